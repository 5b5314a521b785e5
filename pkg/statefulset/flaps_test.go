package statefulset

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

// flapping is a cluster whose first canary is not Ready for a moment again and again from a while after its resize on. The others get
// their size as the outcome says. Each pod has restarted once, long ago.
func flapping(t *testing.T, set *appsv1.StatefulSet, from, every, moment time.Duration, others simulated.Outcome) (*cluster, simulated.Guarded) {
	t.Helper()
	c := newClusterOf(t, set, controller.Options{})
	c.restartedOnce()
	first, since := "", time.Time{}
	c.Judge = func(pod *corev1.Pod, v version) simulated.Outcome {
		if v.CPU != newer.CPU {
			return simulated.Outcome{}
		}
		if first == "" {
			first, since = pod.Name, c.Clock.Now()
		}
		if age := c.Clock.Now().Sub(since); pod.Name == first {
			return simulated.Outcome{Unready: age > from && age%every < moment}
		}
		return others
	}
	return c, c.guarded(t)
}

// TestCanaryFlapsLater: a pod that has proved its size has proved it, whatever it does while others prove theirs.
func TestCanaryFlapsLater(t *testing.T) {
	for _, canary := range []string{"1", "2", "3"} {
		c, g := flapping(t, webSet(older, 3), 40*time.Second, 15*time.Second, 3*time.Second, simulated.Outcome{Slow: 60})
		c.Rounds(5)
		g.Annotate(map[string]string{api.CanaryAnnotation: canary, api.CanaryDurationAnnotation: "20s"})
		g.Edit(newer)
		c.Rounds(1000)
		if g.Held() || len(c.Sized(newer)) != 3 {
			t.Errorf("a canary of %s: it is held, in the phase %s: %+v", canary, g.Phase(), g.Condition())
		}
	}
}

// TestOnDeleteIsGivenUpThough: nor does that keep the hold of a set under OnDelete from its end.
func TestOnDeleteIsGivenUpThough(t *testing.T) {
	set := webSet(older, 3)
	set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	c, g := flapping(t, set, time.Minute, 5*time.Minute, 5*time.Second, simulated.Outcome{Slow: simulated.Never})
	underOnDelete(c)
	c.Rounds(5)
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "20s", api.ResizeActionAnnotation: string(policy.LiveResize)})
	g.Edit(newer)
	for range 1500 {
		if c.Rounds(1); !g.Held() {
			return
		}
	}
	t.Errorf("it is held: %+v", g.Condition())
}
