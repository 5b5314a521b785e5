//go:build around

package chart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// Where the chart is installed, and as what.
const (
	platform = "platform"
	release  = "our-release"
)

// TestLifecycle installs the chart in a namespace of another name, upgrades it in the middle of a rollout,
// and uninstalls it in the middle of another one, while somebody goes on editing: nothing is held in the end. It alone
// has Helm install the chart: with the policies, and with the webhook.
func TestLifecycle(t *testing.T) {
	for _, hold := range []string{"policy", "webhook"} {
		t.Run(hold, func(t *testing.T) { lifecycle(t, hold) })
	}
}

func lifecycle(t *testing.T, hold string) {
	w := newWorld(t, hold)
	installs := []string{"install", release, folder(), "--create-namespace", "--wait", "--timeout=2m"}
	if hold == "webhook" { // the cluster has both
		installs = append(installs, "--set=hold=webhook")
	}
	w.helm(installs...)
	if hold == "webhook" {
		w.startWebhook()
	}
	before := w.firstRollout()

	// Upgraded and rolled back in the middle of a rollout, which ends in place. Nothing says how it is held any more.
	w.duringRollout(before, func() {
		w.helm("upgrade", release, folder(), "--set", "podAnnotations.changed=yes,flowControl=false")
		w.helm("rollback", release, "2")
	})

	w.begins("170m")
	w.uninstallFails()

	// Uninstalled in the middle of a rollout.
	stop := w.editAllTheTime("late")
	said := w.uninstall()
	if edits := stop(); edits == 0 {
		t.Error("nothing was edited meanwhile")
	}
	must.Contain(t, said, "statefulset.apps/web released", "what the hook said")
	if w.held("web") || w.held("late") {
		t.Errorf("after the uninstallation, web is held: %t, and late: %t", w.held("web"), w.held("late"))
	}
	w.assertNothingLeft()
	says := w.kubectl("get", "statefulset/web", "--output=jsonpath={.status.conditions[?(@.type=='"+api.ConditionComplete+"')]}")
	must.Equal(t, says, "", "the condition of web after the uninstallation")
	w.kubectl("rollout", "status", "statefulset/web", "--timeout="+patience.String())
}

// firstRollout starts the controller, which is installed now, and has it roll out web in place. It returns web's pods.
func (w *world) firstRollout() string {
	w.t.Helper()
	w.startController()
	w.applyStatefulSet("web")
	w.applyStatefulSet("late")
	before := w.uids("web")
	w.edit("web", "150m")
	w.complete("web")
	w.assertInPlace("web", before, "150m")
	return before
}

// begins has a rollout of web wait in its middle.
func (w *world) begins(cpu string) {
	w.t.Helper()
	w.defers("web", true)
	w.edit("web", cpu)
	w.kubectl("wait", "--for=jsonpath={.status.conditions[?(@.type=='"+api.ConditionComplete+"')].reason}=Deferred", "statefulset/web", "--timeout="+patience.String())
}

// duringRollout upgrades in the middle of a rollout, which ends in place.
func (w *world) duringRollout(before string, upgrade func()) {
	w.t.Helper()
	w.begins("160m")
	upgrade()
	if !w.held("web") {
		w.t.Error("an upgrade lets go")
	}
	w.defers("web", false)
	w.complete("web")
	w.assertInPlace("web", before, "160m")
}

// world is the control plane, and a namespace for workloads.
type world struct {
	t         *testing.T
	hold      string
	cp        *controlplane.ControlPlane
	client    kubernetes.Interface
	namespace string
}

func newWorld(t *testing.T, hold string) *world {
	t.Helper()
	w := &world{t: t, hold: hold}
	w.cp, w.client = needCluster(t)
	namespace := must.Get(w.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "team-"}}, metav1.CreateOptions{}))(t)
	w.namespace = namespace.Name
	return w
}

func (w *world) helm(args ...string) {
	w.t.Helper()
	_, _, err := helm(w.t.Context(), w.t, w.cp.Kubeconfig(), append(args, "--namespace", platform)...)
	must.Do(w.t, err)
}

func (w *world) kubectl(args ...string) string {
	w.t.Helper()
	return must.Get(w.cp.Kubectl(w.t.Context(), append(args, "--namespace", w.namespace)...))(w.t)
}

// eventually waits for something, and fails with what it is instead.
func (w *world) eventually(what string, is func() (bool, string)) {
	w.t.Helper()
	must.Eventually(w.t, 50*time.Millisecond, patience, what, is)
}

// startWebhook runs the webhook as the chart's ServiceAccount, with the chart's arguments, behind the chart's Service.
func (w *world) startWebhook() {
	w.t.Helper()
	deployment := must.Get(w.client.AppsV1().Deployments(platform).Get(w.t.Context(), "inplace-rollout-webhook", metav1.GetOptions{}))(w.t)
	process, address, err := controller.StartReplica(w.t.Context(), w.cp, platform, controller.WebhookOptions{
		Args: deployment.Spec.Template.Spec.Containers[0].Args[1:], Log: w.log("webhook"),
	})
	must.Do(w.t, err)
	w.t.Cleanup(process.Stop)
	cluster.webhook.Store(address)
	must.Do(w.t, process.WaitReady(w.t.Context()))
}

// log is a file for the output of a process.
func (w *world) log(name string) *os.File {
	w.t.Helper()
	return must.Get(os.Create(filepath.Join(w.cp.Dir(), "log", name+"-"+w.hold+".log")))(w.t)
}

// startController runs the controller as the chart's ServiceAccount.
func (w *world) startController() {
	w.t.Helper()
	process := must.Get(controller.Start(w.t.Context(), w.cp, controller.Options{Namespace: platform, Log: w.log("inplace-rollout")}))(w.t)
	w.t.Cleanup(process.Stop)
	must.Do(w.t, process.WaitReady(w.t.Context()))
}

// applyStatefulSet applies an opted-in set, and waits until it is complete.
func (w *world) applyStatefulSet(name string) {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), name+".yaml")
	must.Do(w.t, os.WriteFile(file, []byte(strings.ReplaceAll(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web, labels: {inplace-rollout.io/enabled: "true"}}
spec:
  replicas: 2
  serviceName: web
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0 # the simulated kubelet has no graceful termination
      containers:
      - {name: app, image: "app:1", resources: {requests: {cpu: 100m}, limits: {cpu: "1"}}}
`, "web", name)), 0o600))
	w.kubectl("apply", "--filename", file)
	w.complete(name)
}

func (w *world) edit(name, cpu string) {
	w.t.Helper()
	w.kubectl("set", "resources", "statefulset/"+name, "--requests=cpu="+cpu)
}

func (w *world) complete(name string) {
	w.t.Helper()
	w.kubectl("wait", "--for=condition="+api.ConditionComplete, "statefulset/"+name, "--timeout="+patience.String())
}

// defers has the second pod's kubelet put off resizes, or not any more.
func (w *world) defers(name string, yes bool) {
	w.t.Helper()
	says := map[bool]string{true: "deferred", false: "accepted"}[yes]
	w.kubectl("annotate", "--overwrite", "pod/"+name+"-1", "sim.inplace-rollout.io/resize="+says)
}

func (w *world) held(name string) bool {
	w.t.Helper()
	set := must.Get(w.client.AppsV1().StatefulSets(w.namespace).Get(w.t.Context(), name, metav1.GetOptions{}))(w.t)
	return policy.Held(set)
}

// uids says who the pods are.
func (w *world) uids(name string) string {
	w.t.Helper()
	return w.kubectl("get", "pods", "--selector=app="+name, "--output=jsonpath={.items[*].metadata.uid}")
}

func (w *world) assertInPlace(name, before, cpu string) {
	w.t.Helper()
	must.Equal(w.t, w.uids(name), before, "the pods of %s", name)
	if got := w.kubectl("get", "pods", "--selector=app="+name, "--output=jsonpath={.items[*].status.containerStatuses[*].resources.requests.cpu}"); got != cpu+" "+cpu {
		w.t.Errorf("the pods of %s have %s of cpu, want %s each", name, got, cpu)
	}
}

// editAllTheTime edits a set, with short pauses, until stop is called, which returns how often that went well.
func (w *world) editAllTheTime(name string) (stop func() (edits int)) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done, edits := make(chan struct{}), 0
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			time.Sleep(20 * time.Millisecond)
			patch := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"%dm"}}}]}}}}`, 200+i%100)
			// For a moment after what holds came or went, the guard or the API server refuses some.
			if _, err := w.client.AppsV1().StatefulSets(w.namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err == nil {
				edits++
			}
		}
	}()
	w.t.Cleanup(cancel)
	return func() int { cancel(); <-done; return edits }
}

// job waits for the Job of the hook, of which there has been another one before.
func (w *world) job() *batchv1.Job {
	w.t.Helper()
	var job *batchv1.Job
	w.eventually("the Job of the hook", func() (bool, string) {
		found, err := w.client.BatchV1().Jobs(platform).Get(w.t.Context(), "inplace-rollout-release", metav1.GetOptions{})
		job = found
		return err == nil && job.Status.Active > 0 && job.DeletionTimestamp == nil, fmt.Sprint(err)
	})
	return job
}

// startUninstall begins an uninstallation.
func (w *world) startUninstall() <-chan error {
	done := make(chan error, 1)
	go func() {
		_, _, err := helm(w.t.Context(), w.t, w.cp.Kubeconfig(), "uninstall", release, "--namespace", platform, "--timeout=2m")
		done <- err
	}()
	return done
}

// uninstallFails: where the hook cannot run, nothing is uninstalled.
func (w *world) uninstallFails() {
	w.t.Helper()
	done := w.startUninstall()
	job := w.job()
	must.Get(w.client.BatchV1().Jobs(platform).Patch(w.t.Context(), job.Name, types.MergePatchType, []byte(`{"spec":{"activeDeadlineSeconds":1}}`), metav1.PatchOptions{}))(w.t)
	if err := <-done; err == nil {
		w.t.Error("the uninstallation succeeds without its hook")
	}
	what := map[string]string{
		"policy":  "mutatingadmissionpolicybinding/inplace-rollout-hold",
		"webhook": "mutatingwebhookconfiguration/inplace-rollout",
	}[w.hold]
	for _, object := range []string{"deployment/inplace-rollout", what} {
		must.Get(w.cp.Kubectl(w.t.Context(), "get", object, "--namespace", platform))(w.t)
	}
	if !w.held("web") {
		w.t.Error("it let go")
	}
	// Had the Job come so far, there would be a way back.
	must.Get(w.cp.Kubectl(w.t.Context(), "delete", what))(w.t)
	w.helm("rollback", release, "3")
	must.Get(w.cp.Kubectl(w.t.Context(), "get", what))(w.t)
}

// uninstall has Helm uninstall the chart, and returns what the hook printed.
func (w *world) uninstall() string {
	w.t.Helper()
	done := w.startUninstall()
	said := w.runJob()
	if err := <-done; err != nil {
		w.t.Fatalf("%v\nthe hook said %s", err, said)
	}
	return said
}

// runJob plays the part of the Job's container, with its command and its ServiceAccount:
// simulated nodes run no images. It returns what the command printed.
func (w *world) runJob() string {
	w.t.Helper()
	job := w.job()
	said := w.runAs(job.Spec.Template.Spec)
	pods := must.Get(w.client.CoreV1().Pods(platform).List(w.t.Context(), metav1.ListOptions{LabelSelector: "job-name=" + job.Name}))(w.t)
	for _, pod := range pods.Items {
		_, err := w.client.CoreV1().Pods(platform).Patch(w.t.Context(), pod.Name, types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
		if err != nil && !apierrors.IsNotFound(err) {
			w.t.Fatal(err)
		}
	}
	return said
}

// assertNothingLeft waits until what the release had is gone.
func (w *world) assertNothingLeft() {
	w.t.Helper()
	w.eventually("everything to be gone", func() (bool, string) {
		left := w.kubectl("get", "--all-namespaces", "--selector=app.kubernetes.io/instance="+release, "--output=name",
			"deployments,services,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,poddisruptionbudgets,jobs,secrets,"+
				"mutatingadmissionpolicies,mutatingadmissionpolicybindings,validatingadmissionpolicies,validatingadmissionpolicybindings,"+
				"mutatingwebhookconfigurations,flowschemas,prioritylevelconfigurations")
		return left == "", left
	})
}

// TestDryRun: the API server takes what the chart makes of values, by its own validation and compiler of
// expressions. It warns of none of it.
func TestDryRun(t *testing.T) {
	cp, _ := needCluster(t)
	must.Get(cp.Kubectl(t.Context(), "create", "namespace", "dry-run"))(t)
	for _, values := range []string{
		"hold=policy",
		"hold=webhook",
		"hold=policy,fenceOwners=true,resizeRight=true,networkPolicy.enabled=true,metrics.secure=true,metrics.dashboard.enabled=true",
		"hold=policy,serviceAccount.name=resizer,flowControl=false,metrics.service=false",
		"hold=policy,initialResources.enabled=true,initialResources.prometheusURL=http://prometheus:9090,initialResources.resizeAfterwards=true",
		"hold=webhook,initialResources.enabled=true,initialResources.prometheusURL=http://prometheus:9090,metrics.service=false",
		"hold=policy,watch=namespace,parts=cluster,fenceOwners=true",
		"hold=webhook,watch=namespace,parts=cluster,webhook.replicas=3",
		"watch=namespace,parts=controller,networkPolicy.enabled=true",
		"parts=controller,serviceAccount.create=false,replicas=1,leaderElection=false",
		"image.digest=sha256:" + strings.Repeat("0", 64) + ",image.pullPolicy=Always,image.pullSecrets[0].name=registry,priorityClassName=system-cluster-critical," +
			"podLabels.team=a,podAnnotations.a=b,extraEnv[0].name=A,extraEnv[0].value=b,extraArgs[0]=--profiling,tolerations[0].operator=Exists," +
			"affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key=a," +
			"affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator=Exists",
	} {
		out, _, err := helm(t.Context(), t, os.DevNull, "template", release, folder(), "--namespace", "dry-run", "--set", "hold=policy", "--set", values)
		if err != nil {
			t.Error(err)
			continue
		}
		file := filepath.Join(t.TempDir(), "all.yaml")
		must.Do(t, os.WriteFile(file, []byte(out), 0o600))
		applied, err := cp.Kubectl(t.Context(), "apply", "--dry-run=server", "--validate=strict", "--warnings-as-errors", "--filename", file)
		must.Fails(t, "--set "+values, err, "")
		if want, got := len(objectsIn(t, out)), strings.Count(applied, "(server dry run)"); err == nil && want != got {
			t.Errorf("--set %s: it took %d of %d objects", values, got, want)
		}
	}
}

// TestFluxValues: the values of the page's HelmRelease are some that the chart takes. What Flux does with them is what
// TestLifecycle does: it runs Helm.
func TestFluxValues(t *testing.T) {
	values := filepath.Join(t.TempDir(), "values.yaml")
	must.Do(t, os.WriteFile(values, onPage(t, "HelmRelease", "spec", "values"), 0o600))
	cp, _ := needCluster(t)
	out, _, err := helm(t.Context(), t, cp.Kubeconfig(), "template", release, folder(), "--namespace", "kube-system", "--dry-run=server", "--values", values)
	must.Do(t, err)
	for kind, hook := range map[string]string{"Job": "pre-delete", "Pod": "test"} {
		if !slices.ContainsFunc(objectsIn(t, out), func(o object) bool { return o["kind"] == kind && o.annotation("helm.sh/hook") == hook }) {
			t.Errorf("there is no %s for the hook %s", kind, hook)
		}
	}
}

// onPage returns a field of the object of that kind that docs/install.md shows, as YAML.
func onPage(t *testing.T, kind string, fields ...string) []byte {
	t.Helper()
	page := must.Get(os.ReadFile(filepath.Join(controller.Root(), "docs", "install.md")))(t)
	_, block, found := strings.Cut(string(page), "\nkind: "+kind+"\n")
	block, _, ended := strings.Cut(block, "\n```")
	if !found || !ended {
		t.Fatalf("the page shows no %s", kind)
	}
	block, _, _ = strings.Cut(block, "\n---\n")
	var value any
	must.Do(t, yaml.Unmarshal([]byte(block), &value))
	for _, field := range fields {
		parent, _ := value.(map[string]any)
		value = parent[field]
	}
	if value == nil {
		t.Fatalf("the page's %s has no %s", kind, strings.Join(fields, "."))
	}
	return []byte(mustMarshal(t, value))
}
