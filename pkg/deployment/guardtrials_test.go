package deployment

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

func hostile(t *testing.T, annotations map[string]string) (*cluster, simulated.Guarded) {
	t.Helper()
	c := newCluster(t, 4, controller.Options{})
	g := c.guarded(t)
	g.Doomed(policy.OnFailureHold)
	g.Annotate(annotations)
	return c, g
}

// A pod that only a restart can give its size, and that is restarted after all resizes, does not keep the rollout for ever: be
// it the canary, or one of the others.
func TestHostileInfeasible(t *testing.T) {
	for name, index := range map[string]int{"the canary": 0, "the last": 3} {
		t.Run(name, func(t *testing.T) {
			c, g := hostile(t, map[string]string{api.CanaryDurationAnnotation: "5s"})
			c.Kills = nil
			never := c.names()[index]
			c.Infeasible(func(pod *corev1.Pod) bool { return pod.Name == never })
			g.Edit(newer)
			c.Rounds(300)
			if have := g.Condition(); !have.Complete() {
				t.Errorf("after %s: %+v", c.Clock.Now().Sub(have.LastTransitionTime.Time), have)
			}
		})
	}
}

// Each write fails once, carried out or not, and another controller takes over after it, or not.
func TestHostileEachWriteFails(t *testing.T) {
	simulated.EachGuardedWriteFails(t, func() simulated.Guarded { return newCluster(t, 4, controller.Options{}).guarded(t) })
}

// Every pod that gets the size is drained: one other follows the canary, and no third one.
func TestHostileEvicted(t *testing.T) {
	c, g := hostile(t, nil)
	c.Kills = nil
	g.Edit(newer)
	if lost := g.Loses(200); len(lost) != 2 || !rollout.Stopped(g.Condition()) {
		t.Errorf("%v have got the size, one after the other, and were lost with it: %+v", lost, g.Condition())
	}
}

func TestHostileDownSinceTheEdit(t *testing.T) { simulated.DownSinceTheEdit(t, doomed) }
func TestHostileRescues(t *testing.T)          { simulated.Rescues(t, doomed) }

// doomed is a world in which one size kills every pod.
func doomed(t *testing.T) simulated.Guarded {
	_, g := hostile(t, nil)
	return g
}

// TestGuardedAlone: the only pod is the canary, and goes back.
func TestGuardedAlone(t *testing.T) {
	newCluster(t, 1, controller.Options{}).guarded(t).Alone(t)
}

// A canary that has passed and is drained then was not lost before it had proved the size.
func TestHostileDrainedAfterPassing(t *testing.T) {
	newCluster(t, 6, controller.Options{}).guarded(t).DrainedAfterPassing(t)
}

func (c *cluster) scale(replicas int32) {
	c.change(func(d *appsv1.Deployment) { d.Spec.Replicas = &replicas })
}

// A canary is not over because all pods are gone for a while.
func TestHostileZeroInTheCanary(t *testing.T) {
	for _, canary := range []string{"1", "30%"} {
		c := newCluster(t, 3, controller.Options{})
		c.guarded(t).ScaledToZero(t, canary, c.scale)
	}
}

// TestGuardAndEditAtZero: what has no pods is not guarded.
func TestGuardAndEditAtZero(t *testing.T) {
	c := newCluster(t, 3, controller.Options{})
	c.guarded(t).EditedAtZero(t, c.scale)
}
