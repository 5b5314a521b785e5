//go:build around

package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/test/autoscaler"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// used is what the metrics API reports of each container: three times what [base] requests.
const used = `annotations: {` + autoscaler.Usage + `: "cpu=300m,memory=300Mi"}`

// TestAutoscalers proves what docs/autoscalers.md says, with the real ones.
// It alone runs them; the Vertical Pod Autoscaler takes twenty seconds to begin.
func TestAutoscalers(t *testing.T) {
	stop := must.Get(autoscaler.Start(t.Context(), cp))(t)
	t.Cleanup(func() { must.Do(t, stop(context.Background())) })
	t.Run("Horizontal", testHorizontal)
	t.Run("Off", testRecommendation)
	t.Run("Initial", testInitial)
	t.Run("InPlaceOrRecreate", testInPlaceOrRecreate)
	t.Run("Infeasible", testInfeasibleBesideUpdater)
	t.Run("StartupBoost", testStartupBoost)
}

// testHorizontal: with twice the request, the same load is half the utilization, and the number of
// pods follows. An absolute target does not move.
func testHorizontal(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]int32{"{type: Utilization, averageUtilization: 300}": 2, "{type: AverageValue, averageValue: 300m}": 4} {
		t.Run(target[len("{type: "):strings.Index(target, ",")], func(t *testing.T) {
			t.Parallel()
			d := newDeployment(t, options{PodMeta: used, Replicas: 4, Resources: "{requests: {cpu: 100m}}"})
			d.ownController(t, controller.Options{})
			d.waitComplete()
			d.apply(`
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 1
  maxReplicas: 10
  behavior: {scaleDown: {stabilizationWindowSeconds: 0}}
  metrics: [{type: Resource, resource: {name: cpu, target: ` + target + `}}]
`)
			sees := func(cpu string) {
				t.Helper()
				eventually(t, "the autoscaler to look", func() (bool, string) {
					status := d.kubectl("get", "hpa/web", "-o", "jsonpath={.status.currentMetrics[0].resource.current}")
					return strings.Contains(status, `"averageValue":"`+cpu+`"`), status
				})
			}
			sees("300m")
			d.setResources("cpu=200m", "")
			d.waitComplete()
			if want == 4 { // almost the same load, to see that it has looked again
				for _, name := range d.names() {
					d.annotatePod(name, autoscaler.Usage+"=cpu=295m")
				}
				sees("295m")
			}
			d.waitFor("the number of pods", func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == want && d.Status.Replicas == want })
		})
	}
}

// testRecommendation: the autoscaler leaves the pods alone, and the job of the example writes what
// it recommends into the template, from where it goes in place into the pods.
func testRecommendation(t *testing.T) {
	t.Parallel()
	w := newWorkload(t, options{PodMeta: used, Resources: "{requests: {cpu: 100m, memory: 100Mi}, limits: {cpu: '2', memory: 2Gi}}"})
	w.ownController(t, controller.Options{})
	w.waitComplete()
	before := w.uids()
	example := must.Get(os.ReadFile(filepath.Join(controller.Root(), "docs", "examples", "recommendation.yaml")))(t)
	w.apply(regexp.MustCompile(`\bdb\b`).ReplaceAllString(string(example), "web"))
	cpu := w.recommended()
	for _, pod := range w.pods() {
		must.Equal(t, cpuOf(pod.Spec.Containers[0].Resources), "100m", "what %s requests before anybody has written that into the template", pod.Name)
	}

	job := must.Get(client.BatchV1().CronJobs(w.namespace).Get(t.Context(), "apply-recommendation", metav1.GetOptions{}))(t)
	w.runJob(&job.Spec.JobTemplate.Spec)
	w.assertMoved(0)
	w.assertReplaced(before)
	for name := range before {
		w.waitSize(name, cpu)
	}
	must.EqualLists(t, w.byUpdater(), nil, "what the autoscaler's updater wrote")
	w.markAudit()
	w.runJob(&job.Spec.JobTemplate.Spec)
	must.EqualLists(t, w.writes(), nil, "the same recommendation again")
}

// runJob runs the command of a job as its pod would, under its ServiceAccount.
func (s *sandbox[W]) runJob(job *batchv1.JobSpec) {
	s.t.Helper()
	pod := job.Template.Spec
	kubeconfig := must.Get(cp.ServiceAccountKubeconfig(s.t.Context(), s.namespace, pod.ServiceAccountName, ""))(s.t)
	s.kubectl("config", "set-context", "--current", "--namespace", s.namespace, "--kubeconfig", kubeconfig)
	command := pod.Containers[0].Command
	cmd := exec.CommandContext(s.t.Context(), command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+filepath.Dir(cp.Bin("kubectl"))+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
}

// testInitial: only new pods have the recommended size, also those that the table restarts, and the
// rollout is complete with them.
func testInitial(t *testing.T) {
	t.Parallel()
	w := newWorkload(t, options{PodMeta: used})
	w.ownController(t, controller.Options{})
	w.waitComplete()
	cpu, before := w.vertical("Initial"), w.uids()
	w.kubectl("delete", "pod", "web-1")
	w.waitSize("web-1", cpu)
	w.waitComplete()
	w.assertReplaced(before, "web-1")

	before = w.uids()
	w.annotatePod("web-0", simInfeasible)
	w.setResources("cpu=150m", "")
	w.waitComplete()
	w.assertReplaced(before, "web-0")
	for name, want := range map[string]string{"web-0": cpu, "web-1": "150m", "web-2": "150m"} {
		w.waitSize(name, want)
	}
}

// testInPlaceOrRecreate: between edits the updater's sizes stay. On an edit the template wins, as
// often as it is contested, but five times at most. Nothing is restarted.
func testInPlaceOrRecreate(t *testing.T) {
	t.Parallel()
	w := newWorkload(t, options{PodMeta: used})
	w.ownController(t, controller.Options{})
	w.waitComplete()
	w.markAudit()
	before, cpu := w.uids(), w.vertical("InPlaceOrRecreate")
	w.waitSizes(cpu)
	w.assertUncontested()

	w.annotatePod("web-0", simLasting) // the rollout is not over until the updater has tried all it can
	w.setResources("cpu=150m", "")
	for _, name := range []string{"web-1", "web-2"} {
		w.waitEvent("ResizedByOthers", name+": updater keeps resizing this pod. Its next size stays until the next edit")
		w.waitSize(name, cpu)
	}
	w.annotatePod("web-0", simAccepted)
	w.waitComplete()
	if _, _, message := complete(w.get()); !strings.HasSuffix(message, "; also resized by updater") {
		t.Errorf("the condition says %q", message)
	}
	ofPods, _ := tally(only(w.writes(), "patch"))
	for name := range before {
		if n := len(w.audit("patch", "pods", "resize", name)); n < 1 || n > 5 {
			t.Errorf("%s was resized %d times: %v", name, n, ofPods)
		}
	}

	w.markAudit()
	w.waitSizes(cpu)
	w.kubectl("scale", w.ref, "--replicas=4") // something for the controller to look at
	w.waitSize("web-3", cpu)
	w.assertUncontested()
	w.assertReplaced(before)
}

// assertUncontested checks that the rollout is Complete, and that the controller has resized nothing.
func (s *sandbox[W]) assertUncontested() {
	s.t.Helper()
	s.waitComplete()
	must.EqualLists(s.t, only(s.writes(), "patch pods/resize"), nil, "what the controller resized between edits")
}

// testInfeasibleBesideUpdater: the updater evicts a pod whose resize is infeasible, whoever has asked
// for it, also one that is to be left as it is.
func testInfeasibleBesideUpdater(t *testing.T) {
	t.Parallel()
	w := newWorkload(t, options{PodMeta: used, Meta: `annotations: {inplace-rollout.io/resource-resize-action: LiveResize}`})
	w.ownController(t, controller.Options{})
	before := w.uids()
	w.annotatePod("web-1", simInfeasible)
	w.setResources("cpu=150m", "")
	w.waitCondition("Infeasible", "web-1")
	w.vertical("InPlaceOrRecreate")
	w.waitComplete()
	w.assertReplaced(before, "web-1")
}

// testStartupBoost: a pod that is edited while it is boosted is put back to the size from before the edit,
// and is asked once more. The rollout is Complete only then.
func testStartupBoost(t *testing.T) {
	t.Parallel()
	w := newWorkload(t, options{})
	w.ownController(t, controller.Options{})
	w.waitComplete()
	w.apply(`
apiVersion: autoscaling.k8s.io/v1
kind: VerticalPodAutoscaler
metadata: {name: web}
spec:
  targetRef: {apiVersion: apps/v1, kind: StatefulSet, name: web}
  updatePolicy: {updateMode: "Off"}
  startupBoost: {cpu: {type: Factor, factor: 3, durationSeconds: 10}}
`)
	eventually(t, "the autoscaler to boost new pods", func() (bool, string) {
		w.kubectl("delete", "pod", "web-1")
		w.waitPod("web-1", "to come back", func(pod corev1.Pod) bool { return len(pod.Status.ContainerStatuses) > 0 })
		cpu := cpuOf(w.pods()["web-1"].Spec.Containers[0].Resources)
		return cpu == "300m", cpu
	})
	before := w.uids()
	w.markAudit()
	w.setResources("cpu=150m", "")
	w.waitCondition("Progressing", "3 of 3 pods resized; web-1: waiting for its startup booster to put back app: cpu request 150m→100m")
	w.waitSize("web-1", "150m")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
	if writes := w.byUpdater(); !slices.Contains(writes, "patch pods/resize web-1") {
		t.Errorf("the autoscaler's updater wrote %v, and has put nothing back", writes)
	}
	// It may put back the same once more, before it sees that it has taken its mark away.
	if n := len(w.audit("patch", "pods", "resize", "web-1")); n < 2 || n > 6 {
		t.Errorf("web-1 was resized %d times, want twice at least, and six times at most", n)
	}
}

// waitSizes waits until all pods run with the cpu request.
func (s *sandbox[W]) waitSizes(cpu string) {
	s.t.Helper()
	for _, name := range s.names() {
		s.waitSize(name, cpu)
	}
}

// vertical makes a VerticalPodAutoscaler for the workload, and returns how much cpu it recommends.
func (s *sandbox[W]) vertical(mode string) string {
	s.t.Helper()
	s.apply(fmt.Sprintf(`
apiVersion: autoscaling.k8s.io/v1
kind: VerticalPodAutoscaler
metadata: {name: web}
spec:
  targetRef: {apiVersion: apps/v1, kind: %s, name: web}
  updatePolicy: {updateMode: %q}
  resourcePolicy: {containerPolicies: [{containerName: app, controlledResources: [cpu, memory]}]}
`, s.kind, mode))
	return s.recommended()
}

// recommended waits until the autoscaler says how much cpu.
func (s *sandbox[W]) recommended() (target string) {
	s.t.Helper()
	eventually(s.t, "a recommendation", func() (bool, string) {
		target = s.kubectl("get", "vpa/web", "-o", "jsonpath={.status.recommendation.containerRecommendations[0].target.cpu}")
		return target != "", s.kubectl("get", "vpa/web", "-o", "yaml")
	})
	return target
}

// byUpdater is what the autoscaler's updater has done to pods.
func (s *sandbox[W]) byUpdater() (writes []string) {
	s.t.Helper()
	for _, e := range s.audited(controlplane.ByUser(autoscaler.Updater)) {
		if e.ObjectRef.Resource == "pods" {
			writes = append(writes, fmt.Sprintf("%s pods/%s %s", e.Verb, e.ObjectRef.Subresource, e.ObjectRef.Name))
		}
	}
	return writes
}
