//go:build integration

package integration

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

func TestResize(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 5})
	before := w.uids()
	w.waitComplete()
	w.markAudit()

	w.setResources("cpu=150m,memory=150Mi", "cpu=300m,memory=300Mi")
	w.waitComplete()

	w.assertMoved(0)
	w.assertReplaced(before)
	if got, want := only(w.writes(), "patch pods/resize"), []string{"web-4", "web-3", "web-2", "web-1", "web-0"}; !slices.Equal(got, want) {
		t.Errorf("resized in the order %v, want %v", got, want)
	}
	w.assertFew(w.writes(), 2, 6)
	w.waitEvent("RolloutStarted", "app: cpu request 100m→150m, app: cpu limit 200m→300m, app: memory request 100Mi→150Mi, app: memory limit 200Mi→300Mi")
	w.waitEvent("PodResized", "web-4: resized in place")
	w.waitEvent("RolloutComplete", "all pods")
}

func TestUndo(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{})
	before := w.uids()
	w.setResources("cpu=150m", "")
	w.waitComplete()
	w.assertMoved(0)
	w.kubectl("rollout", "undo", "statefulset/web")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
	must.Equal(t, w.get().Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String(), "100m", "cpu request after the undo")
	if history := w.kubectl("rollout", "history", "statefulset/web"); !strings.Contains(history, "2") || !strings.Contains(history, "3") {
		t.Errorf("the history is\n%s", history)
	}
}

func TestPartition(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 5, Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 2}}"})
	before := w.uids()
	w.setResources("cpu=150m", "")
	w.waitComplete()
	w.assertMoved(2)
	for _, name := range []string{"web-0", "web-1"} {
		must.Equal(t, w.pods()[name].Spec.Containers[0].Resources.Requests.Cpu().String(), "100m", "cpu request of %s, which is below the partition", name)
	}
	w.patch(`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`)
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)

	// Each step of an image rollout is the StatefulSet controller's, and the answer to each write has its partition.
	w.patch(`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":4}}}}`)
	w.kubectl("set", "image", w.ref, "app=app:2")
	w.waitComplete()
	for _, partition := range []string{"2", "0"} {
		patch := `{"spec":{"updateStrategy":{"rollingUpdate":{"partition":` + partition + `}}}}`
		if got := w.kubectl("patch", w.ref, "--patch", patch, "-o", "jsonpath={.spec.updateStrategy.rollingUpdate.partition}"); strings.TrimSpace(got) != partition {
			t.Errorf("lowered to %s, the partition reads %s", partition, got)
		}
		w.waitComplete()
	}
	w.assertReplaced(before, "web-0", "web-1", "web-2", "web-3", "web-4")
	if _, marked := w.get().Annotations[api.HandedOverAnnotation]; marked {
		t.Error("the mark is left behind")
	}
}

// TestReapplies: a GitOps tool says again and again, of each kind, what the hold changes. The field is still the user's then: another
// value conflicts with nobody.
func TestReapplies(t *testing.T) {
	parallel(t)
	inParallel(t, "StatefulSet", func(t *testing.T) {
		w := newWorkload(t, options{Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0}}"})
		reapply(w.sandbox, "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0}}", "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 3}}")
		must.Equal(t, partitionOf(w.get()), "3", "partition")
	})
	inParallel(t, "Deployment", func(t *testing.T) {
		d := newDeployment(t, options{Spec: "paused: false"})
		reapply(d.sandbox, "paused: false", "paused: true")
		if !d.get().Spec.Paused {
			t.Error("it is not paused by its user")
		}
	})
	inParallel(t, "DaemonSet", func(t *testing.T) {
		const limits = "updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}}"
		d := newDaemonSet(t, options{Spec: limits})
		reapply(d.sandbox, limits, "updateStrategy: {type: OnDelete}")
		must.Equal(t, strategyOf(d.get()), "OnDelete", "the user's strategy")
	})
}

// reapply applies a larger size again and again while a pod holds the rollout up, and another value of the field at last.
func reapply[W metav1.Object](s *sandbox[W], spec, other string) {
	s.t.Helper()
	before, slow := s.uids(), s.names()[0]
	s.annotatePod(slow, simLasting)
	o := options{Kind: s.kind, Resources: largerThanBase, Spec: spec}
	for range 10 {
		s.apply(manifest(s.t, s.namespace, o))
		if !held(s.get()) {
			s.t.Fatal("not held any more")
		}
	}
	s.annotatePod(slow, simAccepted)
	s.waitComplete()
	s.assertReplaced(before)
	for name := range before {
		s.waitSize(name, "150m")
	}
	o.Spec = other
	s.apply(manifest(s.t, s.namespace, o))
	if held(s.get()) {
		s.t.Error("held, and nothing is edited")
	}
}

func TestWithoutTheLabel(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{OptedOut: true})
	before := w.uids()
	w.setResources("cpu=150m", "")
	w.kubectl("rollout", "status", "statefulset/web", "--timeout="+patience.String())
	w.assertReplaced(before, "web-0", "web-1", "web-2")
	must.EqualLists(t, w.writes(), nil, "what the controller wrote")
	if conditions := w.get().Status.Conditions; len(conditions) > 0 {
		t.Errorf("conditions %v", conditions)
	}
}

// TestPodWithoutNode: a pod that no node has room for has nothing to lose. It is resized, also with LiveResize, and runs; where
// that is not enough, the scheduler's words are told, and another edit helps.
func TestPodWithoutNode(t *testing.T) {
	parallel(t)
	w := createWorkload(t, options{Replicas: 2, Resources: "{requests: {cpu: 64}}", Spec: "podManagementPolicy: Parallel", Meta: liveOnly})
	w.waitUnschedulable("web-0")
	w.waitUnschedulable("web-1")
	before := w.uids()
	w.setResources("cpu=48", "")
	w.waitCondition("NoNodeFits", "web-1: no node has room for it at its new size, either: 0/")
	w.setResources("cpu=150m", "")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
}

func (s *sandbox[W]) waitUnschedulable(name string) {
	s.t.Helper()
	s.waitPod(name, "to be unschedulable", func(pod corev1.Pod) bool {
		return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Reason == corev1.PodReasonUnschedulable })
	})
}

// TestAbandonedPodLevelResources: the API server lets the pod's own resources be
// added, but not removed. Before 1.36 it lets them be neither.
func TestAbandonedPodLevelResources(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 2})
	before := w.uids()
	if !cp.AtLeast("1.36") {
		w.patch(`{"spec":{"template":{"spec":{"resources":{"limits":{"cpu":"1"}}}}}}`)
		w.waitComplete()
		w.assertReplaced(before, "web-0", "web-1")
		w.waitEvent("RestartFallback", "the API server does not set pod-level resources of a running pod")
		return
	}
	w.annotatePod("web-1", simLasting)
	w.patch(`{"spec":{"template":{"spec":{"resources":{"limits":{"cpu":"1"}}}}}}`)
	w.waitPod("web-1", "to have resources of its own", func(pod corev1.Pod) bool { return pod.Spec.Resources != nil })
	w.patch(`{"spec":{"template":{"spec":{"resources":null}}}}`)
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-1")
	if pod := w.pods()["web-1"]; pod.Spec.Resources != nil {
		t.Errorf("web-1 still has resources of its own: %+v", pod.Spec.Resources)
	}
	w.assertNoRefusals()
	w.waitEvent("RestartFallback", "pod: the cpu limit is removed")
}

func TestOptOutDuringTheRollout(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{})
	before := w.uids()
	w.annotatePod("web-1", simLasting)
	w.begin("150m", "web-1")
	w.kubectl("label", "statefulset/web", "inplace-rollout.io/enabled-")
	if set := w.get(); held(set) || *set.Spec.UpdateStrategy.RollingUpdate.Partition != 0 {
		t.Errorf("still held: %v %+v", set.Annotations, set.Spec.UpdateStrategy)
	}
	w.waitWithdrawn()
	w.kubectl("rollout", "status", "statefulset/web", "--timeout="+patience.String())
	w.assertMoved(0)
	w.assertReplaced(before, "web-0", "web-1")
	w.waitWithdrawn()
}

// TestHandover: where every pod needs a restart anyway, the built-in rollout starts, and is left alone. It alone proves that the
// real built-in controllers do the rest, for each kind.
func TestHandover(t *testing.T) {
	parallel(t)
	for _, edit := range []handover{
		{"StatefulSet", "rollout restart", "", []string{"rollout", "restart"}, "100m", "metadata.annotations[kubectl.kubernetes.io/restartedAt]"},
		{"StatefulSet", "QoS class", "", []string{"set", "resources", "--requests=cpu=200m,memory=200Mi"}, "200m", "the QoS class would change from Burstable to Guaranteed"},
		{"Deployment", "image and resources", "", []string{"patch", "--patch", imageEdit}, "150m", "spec.containers[app].image"},
		{"DaemonSet", "image and resources", "", []string{"patch", "--patch", imageEdit}, "150m", "spec.containers[app].image"},
		{"DaemonSet", "RestartOnly", "annotations: {" + setPolicy + ": cpu=RestartOnly}", []string{"set", "resources", "--requests=cpu=150m"}, "150m", "cpu of app: RestartOnly (annotation cpu)"},
	} {
		inParallel(t, edit.kind+"/"+edit.name, func(t *testing.T) {
			o := options{Replicas: 2, Meta: edit.meta}
			switch edit.kind {
			case "StatefulSet":
				w := newWorkload(t, o)
				testHandover(t, w.sandbox, edit, func(string) { w.assertMoved(0) })
			case "Deployment":
				d := newDeployment(t, o)
				testHandover(t, d.sandbox, edit, d.assertSettled)
				d.assertProgressing()
			case "DaemonSet":
				d := newDaemonSet(t, o)
				testHandover(t, d.sandbox, edit, d.assertSettled)
			}
		})
	}
}

// handover is an edit that a workload with this metadata leaves to the built-in controller.
type handover struct {
	kind, name, meta string
	args             []string
	cpu, why         string
}

func testHandover[W metav1.Object](t *testing.T, s *sandbox[W], edit handover, assertSettled func(cpu string)) {
	t.Helper()
	s.waitComplete()
	before := s.uids()
	s.markAudit()
	s.kubectl(append(edit.args, s.ref)...)
	s.waitComplete()
	assertSettled(edit.cpu)
	s.assertAllReplaced(before)
	must.EqualLists(t, only(s.writes(), "patch pods/resize"), nil, "resizes")
	s.assertNoRefusals()
	s.waitEvent("HandedOver", edit.why)
	s.assertWarns("HandedOver", edit.name == "QoS class" || edit.name == "RestartOnly") // the others ask for new pods
	must.Equal(t, len(s.history()), 2, "revisions")
}

// notReady is a new image whose pods are not Ready until somebody says so.
const notReady = `{"spec":{"template":{"metadata":{"annotations":{"sim.inplace-rollout.io/ready":"false"}},"spec":{"containers":[{"name":"app","image":"app:2"}]}}}}`

// waitImage waits until n pods run the image, and returns their names.
func (s *sandbox[W]) waitImage(image string, n int) []string {
	s.t.Helper()
	var names []string
	eventually(s.t, "pods to run "+image, func() (bool, string) {
		names = nil
		for name, pod := range s.pods() {
			if pod.Spec.Containers[0].Image == image && pod.Status.Phase == corev1.PodRunning {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return len(names) == n, describe(s.get())
	})
	return names
}

// readyUntilComplete says of each pod that is not Ready that it is, until the rollout is complete.
func (s *sandbox[W]) readyUntilComplete(rolledOut func(W) bool) {
	s.t.Helper()
	eventually(s.t, "the rollout to complete", func() (bool, string) {
		for name, pod := range s.pods() {
			if pod.Status.Phase == corev1.PodRunning && !podutils.IsPodReady(&pod) {
				// It may be gone by now.
				_ = s.try(s.t, "annotate", "pod", name, "sim.inplace-rollout.io/ready-")
			}
		}
		got := s.get()
		_, reason, _ := complete(got)
		return reason == "Complete" && rolledOut(got), describe(got)
	})
}
