package deployment

import (
	"cmp"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

func TestDeletedAfterResize(t *testing.T) {
	simulated.DeletedAfterResize(t, func(t *testing.T) simulated.Guarded { return newCluster(t, 3, controller.Options{}).guarded(t) }, nil)
}

func TestRejectedByKubelet(t *testing.T) {
	simulated.RejectedByKubelet(t, 1, func(t *testing.T) simulated.Guarded {
		return newCluster(t, 3, controller.Options{}, func(d *appsv1.Deployment) {
			d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: ptr.To(intstr.FromInt32(1)), MaxSurge: ptr.To(intstr.FromInt32(0))}
		}).guarded(t)
	}, policy.OnFailureHold, policy.OnFailureRevert)
}

// A new pod that its kubelet has let in, beside another one that was rejected, goes back in place.
func TestRevertBesideRejected(t *testing.T) {
	c := newCluster(t, 4, controller.Options{}, func(d *appsv1.Deployment) { bounds(0, 2)(&scene{d: d}) })
	g := c.guarded(t)
	g.Annotate(map[string]string{api.OnFailureAnnotation: policy.OnFailureRevert, api.CanaryAnnotation: "2"})
	c.Infeasible(func(pod *corev1.Pod) bool { return simulated.SizeOf(pod).CPU == newer.CPU })
	var letIn *corev1.Pod
	c.Rejects = func(pod *corev1.Pod) bool {
		letIn = cmp.Or(letIn, pod)
		return simulated.SizeOf(pod).CPU == newer.CPU && pod.UID != letIn.UID
	}
	g.Edit(newer)
	c.Rounds(60)
	pod := c.Pods[letIn.Name]
	if have, back := g.Condition(), c.Sized(older); have.Reason != judge.ReasonReverted || len(back) != 4 || pod.UID != letIn.UID || simulated.AppliedSize(pod).CPU != older.CPU {
		t.Errorf("%v have the size from before: %+v", back, have)
	}
}
