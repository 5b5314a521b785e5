//go:build integration

package integration

import (
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/kubectl/pkg/util/qos"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/webhook"
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
	w.assertFewWrites(2, 6)
	w.waitEvent("RolloutStarted", "app: cpu request 100m→150m, app: cpu limit 200m→300m, app: memory request 100Mi→150Mi, app: memory limit 200Mi→300Mi")
	w.waitEvent("PodResized", "web-4: resized in place")
	w.waitEvent("RolloutComplete", "5 of 5 pods")
}

func TestLimitsOnlyStaysGuaranteed(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Resources: "{limits: {cpu: 100m, memory: 100Mi}}"})
	before := w.uids()
	w.setResources("", "cpu=200m,memory=150Mi")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
	for _, pod := range w.pods() {
		if pod.Status.QOSClass != corev1.PodQOSGuaranteed || qos.ComputePodQOS(&pod) != corev1.PodQOSGuaranteed {
			t.Errorf("%s is %s", pod.Name, qos.ComputePodQOS(&pod))
		}
	}
}

// injection adds a sidecar to pods, which no template knows.
func injection(r *admissionv1.AdmissionRequest, pod *unstructured.Unstructured) {
	if r.Operation != admissionv1.Create {
		return
	}
	containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
	sidecar := map[string]any{"name": "injected", "image": "mesh:1", "resources": map[string]any{"requests": map[string]any{"cpu": "11m"}}}
	_ = unstructured.SetNestedSlice(pod.Object, slices.Insert(containers, 0, any(sidecar)), "spec", "containers")
}

func TestInjectedSidecarAndLimitRangeKeepTheirValues(t *testing.T) {
	parallel(t)
	w := createWorkload(t, options{Replicas: 2, Resources: "{requests: {cpu: 100m}}"})
	webhook.Serve(t, client, webhook.Options{Namespace: w.namespace, Resources: []string{"pods"}, Mutate: injection})
	eventually(t, "the injection to be in force", func() (bool, string) {
		pods := w.pods()
		if len(pods) < 2 {
			return false, "not all pods exist"
		}
		for name, pod := range pods {
			if len(pod.Spec.Containers) < 2 {
				w.kubectl("delete", "pod", name)
				return false, name + " has no sidecar"
			}
		}
		return true, ""
	})
	w.waitFor("all pods to be available", func(set *appsv1.StatefulSet) bool { return set.Status.AvailableReplicas == 2 })
	apply(t, w.namespace, `{apiVersion: v1, kind: LimitRange, metadata: {name: later}, spec: {limits: [{type: Container, default: {memory: 1Gi}, defaultRequest: {memory: 512Mi}}]}}`)
	before := w.uids()

	w.setResources("cpu=150m", "")
	w.waitComplete()

	w.assertMoved(0)
	w.assertReplaced(before)
	for _, pod := range w.pods() {
		if c := pod.Spec.Containers[0]; c.Name != "injected" || c.Resources.Requests.Cpu().String() != "11m" {
			t.Errorf("%s: the injected container became %+v", pod.Name, c)
		}
	}
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
	if got := w.get().Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String(); got != "100m" {
		t.Errorf("cpu request %s after the undo, want 100m", got)
	}
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
		if got := w.pods()[name].Spec.Containers[0].Resources.Requests.Cpu().String(); got != "100m" {
			t.Errorf("%s below the partition has cpu request %s", name, got)
		}
	}
	w.patch(`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`)
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
}

// TestCanaryIsTakenBack: the pods below the partition have what the undo brings all along,
// so the status counts enough updated pods before those above it are replaced.
func TestCanaryIsTakenBack(t *testing.T) {
	parallel(t)
	// minReadySeconds: whoever is told too early sees it.
	w := newWorkload(t, options{Replicas: 5, Spec: "{minReadySeconds: 2, updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 3}}}"})
	before := w.uids()
	w.kubectl("set", "image", w.ref, "app=app:2")
	w.waitComplete()
	w.assertMoved(3)
	w.assertReplaced(before, "web-3", "web-4")
	canaries := w.uids()
	w.kubectl("rollout", "undo", w.ref)
	w.waitComplete()
	set := w.get()
	for _, pod := range w.pods() {
		w.assertPod(set, pod)
		if image := pod.Spec.Containers[0].Image; image != "app:1" || !podutils.IsPodReady(&pod) {
			t.Errorf("Complete, and %s has %s, Ready %t", pod.Name, image, podutils.IsPodReady(&pod))
		}
	}
	w.assertReplaced(canaries, "web-3", "web-4")
}

func TestPartitionMovedDuringTheRollout(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 4, PodMeta: simDelayed, Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 3}}"})
	before := w.uids()
	w.setResources("cpu=150m", "")
	w.patch(`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":2}}}}`)
	if set := w.get(); !held(set) {
		t.Errorf("not held any more: %v", set.Annotations)
	}
	w.waitComplete()
	w.assertMoved(2)
	w.assertReplaced(before)
}

func TestSwitchToRollingUpdate(t *testing.T) {
	parallel(t)
	// Opted out, so that nobody resizes the stale pods before the switch.
	w := newWorkload(t, options{OptedOut: true, Spec: "updateStrategy: {type: OnDelete}"})
	before := w.uids()
	w.setResources("cpu=150m", "")
	w.waitFor("the pods to be stale", func(set *appsv1.StatefulSet) bool {
		return observed(set) && set.Status.UpdatedReplicas == 0
	})
	w.patch(`{"metadata":{"labels":{"inplace-rollout.io/enabled":"true"}},"spec":{"updateStrategy":{"type":"RollingUpdate"}}}`)
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
}

func TestOnDeleteIsResizedLive(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Spec: "updateStrategy: {type: OnDelete}"})
	before := w.uids()
	w.setResources("cpu=150m", "")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
}

func TestOptInWhilePodsLagBehind(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{OptedOut: true, Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 2}}"})
	before := w.uids()
	w.setResources("cpu=150m", "")
	w.waitFor("the built-in rollout to replace the first pod", func(set *appsv1.StatefulSet) bool {
		return observed(set) && set.Status.UpdatedReplicas == 1 && set.Status.ReadyReplicas == 3
	})
	w.patch(`{"metadata":{"labels":{"inplace-rollout.io/enabled":"true"}},"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`)
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-2")
}

func TestReapplies(t *testing.T) {
	parallel(t)
	o := options{Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0}}"}
	w := newWorkload(t, o)
	before := w.uids()
	w.reapply(o)
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
	// The field is still the user's: another value conflicts with nobody.
	o.Resources, o.Spec = largerThanBase, "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 3}}"
	w.apply(manifest(t, w.namespace, o))
	if got := *w.get().Spec.UpdateStrategy.RollingUpdate.Partition; got != 3 {
		t.Errorf("partition %d, want 3", got)
	}
}

// reapply applies a larger size again and again while a pod holds the rollout up.
func (s *sandbox[W]) reapply(o options) {
	s.t.Helper()
	slow := s.names()[0]
	s.annotatePod(slow, simLasting)
	o.Kind, o.Resources = s.kind, largerThanBase
	for range 10 {
		s.apply(manifest(s.t, s.namespace, o))
		if !held(s.get()) {
			s.t.Fatal("not held any more")
		}
	}
	s.annotatePod(slow, simAccepted)
}

func TestImageChange(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{})
	before := w.uids()
	edited := time.Now()
	w.kubectl("set", "image", "statefulset/web", "app=app:2")
	w.waitFor("the hold to be let go", func(set *appsv1.StatefulSet) bool { return !held(set) })
	t.Logf("handed over %s after kubectl was started", time.Since(edited).Round(time.Millisecond))
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-0", "web-1", "web-2")
	w.waitEvent("HandedOver", "spec.containers[app].image")
	w.assertWarns("HandedOver", false) // it was asked for
	if got := only(w.writes(), "patch pods/resize"); len(got) > 0 {
		t.Errorf("resized %v", got)
	}
}

func TestImageAndResourcesTogether(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 1}}"})
	before := w.uids()
	w.patch(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"app:2","resources":{"requests":{"cpu":"150m"}}}]}}}}`)
	w.waitComplete()
	w.assertMoved(1)
	w.assertReplaced(before, "web-1", "web-2")
	if got := only(w.writes(), "patch pods/resize"); len(got) > 0 {
		t.Errorf("resized %v", got)
	}
}

func TestResourcesDuringAnImageRollout(t *testing.T) {
	parallel(t)
	// The new pod of the image rollout is never Ready, which stops that rollout after web-2.
	w := newWorkload(t, options{})
	before := w.uids()
	w.patch(`{"spec":{"template":{"metadata":{"annotations":{"sim.inplace-rollout.io/ready":"false"}},"spec":{"containers":[{"name":"app","image":"app:2"}]}}}}`)
	w.waitPod("web-2", "to be replaced", func(pod corev1.Pod) bool { return pod.UID != before["web-2"] && pod.Status.Phase == corev1.PodRunning })
	renewed := w.uids()
	w.setResources("cpu=150m", "")
	w.waitPod("web-2", "to be resized", func(pod corev1.Pod) bool {
		return pod.Spec.Containers[0].Resources.Requests.Cpu().String() == "150m"
	})
	for _, name := range []string{"web-2", "web-1", "web-0"} {
		w.waitPod(name, "to run", func(pod corev1.Pod) bool {
			return pod.Spec.Containers[0].Image == "app:2" && pod.Status.Phase == corev1.PodRunning
		})
		w.annotatePod(name, "sim.inplace-rollout.io/ready-") // kubectl's way to remove it
	}
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(renewed, "web-0", "web-1")
}

func TestWithoutTheLabel(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{OptedOut: true})
	before := w.uids()
	w.setResources("cpu=150m", "")
	w.kubectl("rollout", "status", "statefulset/web", "--timeout="+patience.String())
	w.assertReplaced(before, "web-0", "web-1", "web-2")
	if got := w.writes(); len(got) > 0 {
		t.Errorf("the controller wrote %v", got)
	}
	if conditions := w.get().Status.Conditions; len(conditions) > 0 {
		t.Errorf("conditions %v", conditions)
	}
}

func TestOrdinalsStart(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Spec: "{ordinals: {start: 7}, updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 1}}}"})
	before := w.uids()
	w.setResources("cpu=150m", "")
	w.waitComplete()
	w.assertMoved(1)
	w.assertReplaced(before)
	if got, want := only(w.writes(), "patch pods/resize"), []string{"web-9", "web-8"}; !slices.Equal(got, want) {
		t.Errorf("resized %v, want %v", got, want)
	}
}

func TestParallelResizesMaxUnavailableAtOnce(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 4, PodMeta: simDelayed,
		Spec: "{podManagementPolicy: Parallel, updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}}}"})
	before := w.uids()
	w.setResources("cpu=150m", "")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
	writes := w.writes()
	order := only(writes, "patch pods/resize")
	if len(order) != 4 || len(only(writes, "patch pods")) != 4 {
		t.Fatalf("writes %v, want two for each pod", writes)
	}
	slices.Sort(order[1:3]) // asked for at the same time
	if !slices.Equal(order, []string{"web-3", "web-1", "web-2", "web-0"}) {
		t.Errorf("order %v, want one to prove the size, then two", order)
	}
	both, last := w.audit("patch", "pods", "resize", "web-1"), w.audit("patch", "pods", "resize", "web-0")
	if took := last[0].Sub(both[0]); took < 2*time.Second { // simDelayed
		t.Errorf("web-0 was asked %s after web-1, and neither it nor web-2 can have had its size by then", took)
	}
}

func TestTwoControllersTakeTurns(t *testing.T) {
	w := newWorkload(t, options{Replicas: 2})
	before := w.uids()
	first := ownController(t, controller.Options{Args: []string{"--leader-elect=true"}})
	second := ownController(t, controller.Options{Args: []string{"--leader-elect=true"}})
	w.setResources("cpu=150m", "")
	w.waitComplete()
	first.Stop()
	w.setResources("cpu=180m", "")
	w.waitComplete()
	second.Stop()
	w.assertMoved(0)
	w.assertReplaced(before)
}
