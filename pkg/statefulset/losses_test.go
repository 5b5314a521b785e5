package statefulset

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

func TestDeletedAfterResize(t *testing.T) {
	var c *cluster
	simulated.DeletedAfterResize(t, func(t *testing.T) simulated.Guarded {
		c = newCluster(t, 3, controller.Options{})
		return c.guarded(t)
	}, func(simulated.Guarded) { underOnDelete(c) })
}

func TestRejectedByKubelet(t *testing.T) {
	simulated.RejectedByKubelet(t, 1, func(t *testing.T) simulated.Guarded { return newCluster(t, 3, controller.Options{}).guarded(t) }, policy.OnFailureRevert)
}

// No other pod is restarted though the limits would let it, as long as one is rejected.
func TestRejectedBesideOthers(t *testing.T) {
	load(t)
	set := webSet(older, 5)
	parallel(set)
	set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(2))
	c := newClusterOf(t, set, controller.Options{})
	before := c.UIDs()
	c.Infeasible(func(pod *corev1.Pod) bool { return simulated.SizeOf(pod).CPU == newer.CPU })
	c.Rejects = func(pod *corev1.Pod) bool { return pod.Name == "web-4" && simulated.SizeOf(pod).CPU == newer.CPU }
	c.edit(newer)
	c.Rounds(60, func(error) bool { return true })
	replaced := 0
	for name, uid := range c.UIDs() {
		if before[name] != uid {
			replaced++
		}
	}
	if have := condition(c.Set); replaced > 2 || have.Reason != judge.ReasonPodRejected {
		t.Errorf("%d pods were replaced, want the two that went at once: %+v", replaced, have)
	}
}
