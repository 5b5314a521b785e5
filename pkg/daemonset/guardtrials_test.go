package daemonset

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

func hostile(t *testing.T, annotations map[string]string) (*cluster, simulated.Guarded, func() []string) {
	t.Helper()
	c := newCluster(t, 4, controller.Options{})
	g := c.guarded(t)
	had := g.Doomed(policy.OnFailureHold)
	g.Annotate(annotations)
	return c, g, had
}

// The size has every pod that gets it be lost: it stops at the canary.
func TestHostileEvicted(t *testing.T) {
	c, g, _ := hostile(t, nil)
	c.Kills = nil
	before, lost := slices.Collect(maps.Values(c.UIDs())), 0
	g.Edit(newer)
	for _, uid := range g.Loses(200) {
		lost += asInt(slices.Contains(before, uid))
	}
	if lost > 1 {
		t.Errorf("%d of 4 pods have got the size, one after the other, and were lost with it: %+v", lost, condition(c.Set))
	}
}

// A canary that is infeasible on its node does not keep a rollout with maxSurge for ever.
func TestHostileInfeasibleWithSurge(t *testing.T) {
	for _, guarded := range []bool{false, true} {
		c := newCluster(t, 4, controller.Options{})
		c.strategy(rollingUpdate(intstr.FromInt32(0), intstr.FromInt32(1)))
		g := c.guarded(t)
		if guarded {
			g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "5s"})
		}
		never := slices.Max(slices.Collect(maps.Keys(c.Pods)))
		c.Infeasible(func(pod *corev1.Pod) bool { return pod.Name == never })
		g.Edit(newer)
		c.Rounds(300)
		if have := condition(c.Set); !have.Complete() {
			t.Errorf("guarded %t: %+v", guarded, have)
		}
	}
}

// Once its pod is deleted, the canary is born with the size: what it shows of that counts.
func TestHostileBornCanary(t *testing.T) {
	c, g, had := hostile(t, map[string]string{api.OnFailureAnnotation: policy.OnFailureRevert})
	g.Edit(newer)
	c.Until(100, func() bool { return len(had()) > 0 })
	c.DeletePod(had()[0])
	c.Rounds(200)
	if len(had()) > 2 || !simulated.Stopped(condition(c.Set)) {
		t.Errorf("%v have got the size, %v have it: %+v", had(), c.Sized(newer), condition(c.Set))
	}
}

// A→B→C→B: a pod that was born with B a moment ago proves nothing of it.
func TestHostileBornBetween(t *testing.T) {
	c, g, had := hostile(t, nil)
	c.Kills = nil
	g.Edit(newer)
	c.Rounds(2)
	c.DeletePod(slices.Min(slices.Collect(maps.Keys(c.Pods))))
	c.Rounds(4)
	g.Edit(simulated.Next)
	c.Rounds(1)
	g.Edit(newer)
	c.Kills = func(pod *corev1.Pod, v version) bool { return v.CPU == newer.CPU }
	for range 15 {
		c.Rounds(1)
		had()
	}
	if n := len(had()); n > 3 {
		t.Errorf("%v have got the size: %+v", had(), condition(c.Set))
	}
}

// TestRevertToTheSecond: a pod goes back to what it had.
func TestRevertToTheSecond(t *testing.T) {
	newCluster(t, 4, controller.Options{}).guarded(t).RevertsToTheSecond(t)
}
