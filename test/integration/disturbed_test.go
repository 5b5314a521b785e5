//go:build integration

package integration

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

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
