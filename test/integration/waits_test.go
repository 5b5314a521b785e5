//go:build around

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

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
	t.Run("StatefulSet", func(t *testing.T) {
		parallel(t)
		w := newWorkload(t, options{})
		asked(t, 0, w.sandbox, w.waitComplete)
	})
	t.Run("Deployment", func(t *testing.T) {
		parallel(t)
		d := newDeployment(t, options{})
		asked(t, 1, d.sandbox, d.waitComplete)
	})
	t.Run("DaemonSet", func(t *testing.T) {
		parallel(t)
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
			t.Run(helm.program+" "+helm.flag+" "+kind, func(t *testing.T) {
				parallel(t)
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
	if waiting != (want == "waits") {
		r.t.Errorf("%s %s waits: %t; the table says %q", r.program, flag, waiting, want)
	}
	s.annotatePod(slow, simAccepted)
	if err := <-ended; err != nil {
		r.t.Error(err)
	}
	if waiting && held(s.get()) {
		r.t.Errorf("%s %s has ended, and the rollout is held", r.program, flag)
	}
	waitComplete()
}
