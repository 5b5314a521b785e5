//go:build around

package integration

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestArgoHealth is what Argo CD shows of workloads. What it shows of a real rollout is in TestWaits.
func TestArgoHealth(t *testing.T) {
	is := func(reason string) string {
		return fmt.Sprintf("conditions: [{type: %s, status: %q, reason: %s, message: web-1 waits}]", api.ConditionComplete, map[bool]string{true: "True", false: "False"}[reason == "Complete"], reason)
	}
	const (
		set, deployment, daemons = "StatefulSet", "Deployment", "DaemonSet"
		hold                     = "inplace-rollout.io/hold: any"
		done                     = "readyReplicas: 3, updatedReplicas: 3, replicas: 3, availableReplicas: 3, desiredNumberScheduled: 3, updatedNumberScheduled: 3, numberAvailable: 3"
		down                     = "readyReplicas: 2, updatedReplicas: 3, replicas: 3, availableReplicas: 2, desiredNumberScheduled: 3, updatedNumberScheduled: 3, numberAvailable: 2"
		late                     = "conditions: [{type: Progressing, reason: ProgressDeadlineExceeded, message: has timed out progressing}]"
	)
	for _, tt := range []struct{ kind, optedIn, annotations, spec, status, want string }{
		{deployment, "true", "", "paused: true", done + ", " + is("Paused"), "Suspended Paused: web-1 waits"},
		{deployment, "true", "", "", done + ", " + late, "Degraded has timed out progressing"},
		{deployment, "false", "", "", done + ", " + late, "Degraded has timed out progressing"},
		{deployment, "false", "", "paused: true", done, "Suspended the Deployment is paused"},
		{deployment, "true", "", "", down + ", " + is("Progressing"), "Progressing 2 of 3 updated pods are available"},
		{set, "true", "", "", done + ", " + is("WaitingForDelete"), "Suspended WaitingForDelete: web-1 waits"},
		{set, "false", "", "updateStrategy: {rollingUpdate: {partition: 1}}", "readyReplicas: 3, updatedReplicas: 2", "Healthy 2 of 3 pods are updated"},
		{set, "false", "", "", "readyReplicas: 3, updatedReplicas: 2", "Progressing 2 of 3 pods are updated"},
		{daemons, "true", "", "", done + ", " + is("WaitingForDelete"), "Suspended WaitingForDelete: web-1 waits"},
		{daemons, "false", "", "updateStrategy: {type: OnDelete}", "desiredNumberScheduled: 3", "Healthy 0 of 3 pods are updated"},
	} {
		assertHealth(t, tt.kind, tt.optedIn, tt.annotations, tt.spec, tt.status, tt.want)
	}
	for _, kind := range []string{set, deployment, daemons} {
		for _, tt := range [][3]string{
			{hold, is("Deferred"), "Progressing Deferred: web-1 waits"}, {hold, is("Infeasible"), "Degraded Infeasible: web-1 waits"},
			{hold, is("Complete"), "Progressing the rollout is held"}, {hold, is("Progressing"), "Progressing Progressing: web-1 waits"},
			{"", is("Complete"), "Healthy 3 of 3 pods are "}, {"", is("NamespaceLeftOut"), "Healthy 3 of 3 pods are "},
		} {
			assertHealth(t, kind, "true", tt[0], "", done+", "+tt[1], tt[2])
		}
		// Complete, but no longer well: as Argo CD itself sees it.
		assertHealth(t, kind, "true", "", "", down+", "+is("Complete"), "Progressing 2 of 3 ")
		assertHealth(t, kind, "true", "", "", down+", "+is("NamespaceLeftOut"), "Progressing 2 of 3 ")
	}
}

func assertHealth(t *testing.T, kind, optedIn, annotations, spec, status, want string) {
	t.Helper()
	object := map[string]any{}
	text := fmt.Sprintf("{metadata: {generation: 1, labels: {%s: %q}, annotations: {%s}}, spec: {replicas: 3, %s}, status: {observedGeneration: 1, %s}}", enabled, optedIn, annotations, spec, status)
	must.Do(t, yaml.Unmarshal([]byte(text), &object))
	if is, message := health(t, kind, object); !strings.HasPrefix(is+" "+message, want) {
		t.Errorf("a %s of %s is %s: %s, want %s", kind, text, is, message, want)
	}
}

// TestGitOpsSeesNoDrift: mid-rollout, a tool that compares by a dry run on the server
// side finds nothing to do, though its manifest has what holds.
func TestGitOpsSeesNoDrift(t *testing.T) {
	parallel(t)
	inParallel(t, "StatefulSet", func(t *testing.T) {
		o := options{Kind: "StatefulSet", Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0}}"}
		newWorkload(t, o).testNoDrift(t, o)
	})
	inParallel(t, "DaemonSet", func(t *testing.T) {
		o := options{Kind: "DaemonSet", Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}}"}
		newDaemonSet(t, o).testNoDrift(t, o)
	})
}

func (s *sandbox[W]) testNoDrift(t *testing.T, o options) {
	t.Helper()
	s.waitComplete()
	slow := s.names()[0]
	s.annotatePod(slow, simDeferred)
	o.Resources = largerThanBase
	wanted := manifest(t, s.namespace, o)
	s.apply(wanted)
	s.waitCondition("Deferred", slow)
	same := writeFile(t, wanted)
	s.assertNoDrift("held", same)
	o.Spec += "\nminReadySeconds: 1"
	other := writeFile(t, manifest(t, s.namespace, o))
	if found, _ := s.drift(other); !strings.Contains(found, "+  minReadySeconds: 1") {
		t.Errorf("another minReadySeconds is no difference: the comparison sees\n%s", found)
	}
	s.apply(wanted)
	if !held(s.get()) {
		t.Error("not held any more after the same manifest")
	}
	s.annotatePod(slow, simAccepted)
	s.waitComplete()
	s.assertNoDrift("complete", same)
	for _, entry := range s.get().GetManagedFields() {
		if entry.Manager == api.FieldManager && strings.Contains(entry.FieldsV1.GetRawString(), "f:spec") {
			t.Errorf("%s owns a part of the spec: %s", entry.Manager, entry.FieldsV1.GetRawString())
		}
	}
}

// drift is what a comparison by a dry run on the server side finds.
func (s *sandbox[W]) drift(file string) (string, error) {
	s.t.Helper()
	return cp.Kubectl(s.t.Context(), "-n", s.namespace, "diff", "--server-side", "--field-manager=gitops", "--filename", file)
}

// assertNoDrift checks that a comparison finds nothing. It is repeated, because a status that is written between its
// two requests is a difference, too.
func (s *sandbox[W]) assertNoDrift(when, file string) {
	s.t.Helper()
	eventually(s.t, when+", no difference", func() (bool, string) {
		found, err := s.drift(file)
		return err == nil, fmt.Sprintf("%v\n%s", err, found)
	})
}

// TestHelm upgrades a release with new sizes, again in the middle of the rollout, and
// rolls it back: all of it goes in place. The manifests say what the hold changes. Whether Helm waits is in TestHelmWaits.
func TestHelm(t *testing.T) {
	parallel(t)
	for _, serverSide := range []string{"true", "false"} {
		for kind, spec := range map[string]string{
			"StatefulSet": "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0}}", "Deployment": "paused: false",
			"DaemonSet": "updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}}",
		} {
			inParallel(t, kind+", on the server side "+serverSide, func(t *testing.T) {
				r := &release{t: t, serverSide: serverSide}
				o := options{By: r.install, Kind: kind, Spec: spec}
				switch kind {
				case "StatefulSet":
					w := newWorkload(t, o)
					before := w.uids()
					upgradeTwice(r, w.sandbox, o, w.waitComplete)
					w.assertMoved(0)
					w.assertReplaced(before)
				case "Deployment":
					d := newDeployment(t, o)
					before := d.uids()
					upgradeTwice(r, d.sandbox, o, d.waitComplete)
					d.assertMoved(before, "100m")
				case "DaemonSet":
					d := newDaemonSet(t, o)
					before := d.uids()
					upgradeTwice(r, d.sandbox, o, d.waitComplete)
					d.assertMoved(before, "100m")
				}
			})
		}
	}
}

// upgradeTwice upgrades the release and rolls it back.
func upgradeTwice[W metav1.Object](r *release, s *sandbox[W], o options, waitComplete func()) {
	r.t.Helper()
	waitComplete()
	slow := s.names()[0]
	s.annotatePod(slow, simDeferred)
	o.Resources = "{requests: {cpu: 150m, memory: 100Mi}, limits: {cpu: 200m, memory: 200Mi}}"
	r.chart(manifest(r.t, s.namespace, o))
	r.run("upgrade", "web", r.folder)
	s.waitCondition("Deferred", slow)

	o.Resources = "{requests: {cpu: 170m, memory: 120Mi}, limits: {cpu: 250m, memory: 200Mi}}"
	r.chart(manifest(r.t, s.namespace, o))
	r.run("upgrade", "web", r.folder)
	s.waitCondition("Deferred", slow)
	if !held(s.get()) {
		r.t.Error("an upgrade in the middle of a rollout has it let go")
	}
	s.annotatePod(slow, simAccepted)
	waitComplete()
	for _, pod := range s.pods() {
		must.Equal(r.t, cpuOf(pod.Spec.Containers[0].Resources), "170m", "cpu request of %s", pod.Name)
	}
	r.run("rollback", "web", "1", "--wait=watcher", "--timeout="+patience.String())
	s.waitPod(slow, "to be rolled back", func(pod corev1.Pod) bool { return cpuOf(pod.Spec.Containers[0].Resources) == "100m" })
	waitComplete()
}

// release is a release of Helm.
type release struct {
	t          *testing.T
	program    string // helm if empty
	serverSide string
	namespace  string
	folder     string // of the chart
}

// install makes a chart of a manifest, and a release of it.
func (r *release) install(namespace, manifest string) {
	r.t.Helper()
	r.namespace, r.folder = namespace, r.t.TempDir()
	r.write("Chart.yaml", "{apiVersion: v2, name: web, version: 1.0.0}")
	r.chart(manifest)
	args := []string{"install", "web", r.folder}
	if r.serverSide != "" {
		args = append(args, "--server-side="+r.serverSide)
	}
	r.run(args...)
}

// chart has the chart be of another manifest.
func (r *release) chart(manifest string) {
	r.t.Helper()
	r.write("templates/web.yaml", manifest)
}

func (r *release) write(name, text string) {
	r.t.Helper()
	file := filepath.Join(r.folder, name)
	must.Do(r.t, os.MkdirAll(filepath.Dir(file), 0o700))
	must.Do(r.t, os.WriteFile(file, []byte(text), 0o600))
}

func (r *release) run(args ...string) {
	r.t.Helper()
	must.Do(r.t, r.try(args...))
}

// try is run where an error is an answer.
func (r *release) try(args ...string) error {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), filepath.Join(controller.Root(), "bin", "gitops", cmp.Or(r.program, "helm")), append(args, "--namespace", r.namespace)...)
	home := r.t.TempDir()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cp.Kubeconfig(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", cmp.Or(r.program, "helm"), strings.Join(args, " "), err, out)
	}
	return nil
}

// waits is what each tool shows of a rollout that is held: for a StatefulSet, a Deployment and a DaemonSet.
// The table in docs/gitops.md has the same words.
var waits = map[string][3]string{
	"`kubectl wait` for the condition":  {"waits", "waits", "waits"},
	"`kubectl rollout status`":          {"waits", "waits", "an error: OnDelete is not supported"},
	"Argo CD, its own health check":     {"waits: Progressing", "waits: Suspended", "waits: Progressing"},
	"Argo CD, the check below":          {"waits: Progressing", "waits: Progressing", "waits: Progressing"},
	"Flux, and others that use kstatus": {"waits: InProgress", "waits: InProgress", "waits: InProgress"},
	generationWait:                      {"waits", "waits", "waits"},
	helmWait:                            {"waits", "does not: it skips paused Deployments", "waits"},
}

// generationWait is the row of tools that look at no more of a Deployment than its generation, and how many pods are available.
const generationWait = "kapp, Ansible's `kubernetes.core`, Pulumi"

// helmWait is the row of Helm 3 and 4, in each way to wait.
const helmWait = "Helm 3 and 4, `--wait`, also `=watcher` and `=legacy`"

// TestWaitsTable: docs/gitops.md says what is tested here.
func TestWaitsTable(t *testing.T) {
	page := must.Get(os.ReadFile(filepath.Join(controller.Root(), "docs", "gitops.md")))(t)
	for tool, cells := range waits {
		if row := "| " + tool + " | " + strings.Join(cells[:], " | ") + " |"; !strings.Contains(string(page), row) {
			t.Errorf("docs/gitops.md lacks the row\n%s", row)
		}
	}
}

// TestWaits asks each tool in the middle of a rollout, and whether it is content at the end.
func TestWaits(t *testing.T) {
	parallel(t)
	inParallel(t, "StatefulSet", func(t *testing.T) {
		w := newWorkload(t, options{})
		asked(t, 0, w.sandbox, w.waitComplete)
	})
	inParallel(t, "Deployment", func(t *testing.T) {
		d := newDeployment(t, options{})
		asked(t, 1, d.sandbox, d.waitComplete)
	})
	inParallel(t, "DaemonSet", func(t *testing.T) {
		d := newDaemonSet(t, options{})
		asked(t, 2, d.sandbox, d.waitComplete)
	})
}

// argocd is what Argo CD itself takes the workload for.
func argocd(ctx context.Context, t *testing.T, kind string, workload any) string {
	t.Helper()
	object := must.Get(json.Marshal(untyped(t, kind, workload)))(t)
	cmd := exec.CommandContext(ctx, filepath.Join(controller.Root(), "bin", "gitops", "argocd"))
	cmd.Stdin = bytes.NewReader(object)
	out, err := cmd.Output()
	var is struct{ Status string }
	if err == nil {
		err = json.Unmarshal(out, &is)
	}
	if err != nil {
		t.Fatalf("asking Argo CD: %v: %s", err, out)
	}
	return is.Status
}

func asked[W metav1.Object](t *testing.T, column int, s *sandbox[W], waitComplete func()) {
	t.Helper()
	kubectl := func(timeout time.Duration, args ...string) string {
		switch err := s.try(t, append(args, "--timeout="+timeout.String())...); {
		case err == nil:
			return "does not"
		case strings.Contains(err.Error(), "only available for RollingUpdate strategy type"):
			return "an error: OnDelete is not supported"
		case strings.Contains(err.Error(), "timed out"):
			return "waits"
		default:
			return err.Error()
		}
	}
	check := func(over bool) {
		t.Helper()
		timeout := time.Second
		if over { // it is content as soon as it has an answer
			timeout = patience
		}
		custom, _ := health(t, s.kind, s.get())
		flux := must.Get(status.Compute(untyped(t, s.kind, s.get())))(t)
		generation := "does not"
		if statusOf(s.get()).ObservedGeneration != s.get().GetGeneration() {
			generation = "waits"
		}
		for tool, shows := range map[string]string{
			generationWait:                      generation,
			"`kubectl wait` for the condition":  kubectl(timeout, "wait", "--for=condition="+api.ConditionComplete, s.ref),
			"`kubectl rollout status`":          kubectl(timeout, "rollout", "status", s.ref),
			"Argo CD, its own health check":     "waits: " + argocd(t.Context(), t, s.kind, s.get()),
			"Argo CD, the check below":          "waits: " + custom,
			"Flux, and others that use kstatus": "waits: " + string(flux.Status),
		} {
			if over {
				if shows != "does not" && shows != "waits: Healthy" && shows != "waits: Current" {
					t.Errorf("%s: over, it %s", tool, shows)
				}
			} else if want := waits[tool][column]; shows != want {
				t.Errorf("%s: it %s, want %s", tool, shows, want)
			}
		}
	}
	waitComplete()
	check(true)
	slow := s.names()[0]
	s.annotatePod(slow, simDeferred)
	s.setResources("cpu=150m", "")
	s.waitCondition("Deferred", slow)
	check(false)
	s.annotatePod(slow, simAccepted)
	waitComplete()
	check(true)
	s.setResources("cpu=160m", "")
	s.setResources("cpu=150m", "")
	waitComplete()
	for _, v := range s.versions() {
		flux, err := status.Compute(untyped(t, s.kind, v.workload))
		if err != nil || held(v.workload) && v.workload.GetGeneration() > 1 && flux.Status != status.InProgressStatus {
			t.Errorf("held, at %s, Flux takes it for %v: %v", v.written, flux, err)
		}
	}
}

// TestHelmWaits upgrades a release in each way to wait, with a pod that cannot have its size yet.
func TestHelmWaits(t *testing.T) {
	parallel(t)
	for _, helm := range []struct{ program, flag string }{
		{"helm", "--wait"}, {"helm", "--wait=watcher"}, {"helm", "--wait=legacy"}, {"helm-3", "--wait"},
	} {
		for i, kind := range []string{"StatefulSet", "Deployment", "DaemonSet"} {
			inParallel(t, helm.program+" "+helm.flag+" "+kind, func(t *testing.T) {
				r, want := &release{t: t, program: helm.program}, waits[helmWait][i]
				o := options{By: r.install, Kind: kind}
				switch kind {
				case "StatefulSet":
					w := newWorkload(t, o)
					helmWaits(r, w.sandbox, o, w.waitComplete, helm.flag, want)
				case "Deployment":
					d := newDeployment(t, o)
					helmWaits(r, d.sandbox, o, d.waitComplete, helm.flag, want)
				case "DaemonSet":
					d := newDaemonSet(t, o)
					helmWaits(r, d.sandbox, o, d.waitComplete, helm.flag, want)
				}
			})
		}
	}
}

func helmWaits[W metav1.Object](r *release, s *sandbox[W], o options, waitComplete func(), flag, want string) {
	r.t.Helper()
	waitComplete()
	slow := s.names()[0]
	s.annotatePod(slow, simDeferred)
	o.Resources = largerThanBase
	r.chart(manifest(r.t, s.namespace, o))
	ended := make(chan error, 1)
	go func() { ended <- r.try("upgrade", "web", r.folder, flag, "--timeout="+patience.String()) }()
	s.waitCondition("Deferred", slow)
	waiting := true
	select {
	case err := <-ended:
		waiting = false
		ended <- err
	case <-time.After(5 * time.Second): // it looks every 2 s
	}
	must.Equal(r.t, waiting, want == "waits", "%s %s waits, where the table says %q", r.program, flag, want)
	s.annotatePod(slow, simAccepted)
	must.Fails(r.t, "its end", <-ended, "")
	if waiting && held(s.get()) {
		r.t.Errorf("%s %s has ended, and the rollout is held", r.program, flag)
	}
	waitComplete()
}
