package statefulset

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/podchecks"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

// hostile is a guarded set of three pods that never have more than most pods with the failing size.
func hostile(t *testing.T, annotations map[string]string) (*cluster, simulated.Guarded, func() []string) {
	t.Helper()
	c := newCluster(t, 3, controller.Options{})
	g := c.guarded(t)
	had := g.Doomed(policy.OnFailureHold)
	g.Annotate(annotations)
	return c, g, had
}

func underOnDelete(c *cluster) {
	c.change(func(set *appsv1.StatefulSet) {
		set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
	})
	c.Rounds(3)
}

// The mark of a set under OnDelete stays where a size has failed: its operator would give that to all pods.
func TestHostileHoldOfReverted(t *testing.T) {
	for _, onFailure := range []string{policy.OnFailureHold, policy.OnFailureRevert} {
		t.Run(onFailure, func(t *testing.T) {
			c, g, had := hostile(t, map[string]string{api.OnFailureAnnotation: onFailure})
			underOnDelete(c)
			g.Edit(newer)
			c.Rounds(60)
			if !simulated.Stopped(condition(c.Set)) || !policy.Held(c.Set) {
				t.Fatalf("the setup: %+v", condition(c.Set))
			}
			c.Rounds(600)
			if len(had()) > 1 || !simulated.Stopped(condition(c.Set)) || !policy.Held(c.Set) {
				t.Errorf("held: %t, %v have the size, and the condition says %+v", policy.Held(c.Set), had(), condition(c.Set))
			}
		})
	}
}

// A pod that was restarted once when it came up, and has run well for long, has failed if it is OOMKilled with its size.
func TestHostileCrashAtStartup(t *testing.T) {
	c, g, had := hostile(t, nil)
	for name := range c.Pods {
		pod := c.Pods[name].DeepCopy()
		s, at := &pod.Status.ContainerStatuses[0], c.Clock.Now().Add(-30*24*time.Hour)
		s.RestartCount, s.State.Running = 1, &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at)}
		s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
			Reason: "Error", ExitCode: 1, StartedAt: metav1.NewTime(at.Add(-3 * time.Second)), FinishedAt: metav1.NewTime(at), ContainerID: "run://first",
		}
		c.WritePod(pod)
	}
	c.Kills = func(pod *corev1.Pod, v version) bool {
		return v.CPU == newer.CPU && pod.Status.ContainerStatuses[0].RestartCount == 1
	}
	c.Rounds(5)
	g.Edit(newer)
	g.Stops(t, had)
}

// A canary whose node can never have the size does not keep the rollout for ever.
func TestHostileInfeasibleCanary(t *testing.T) {
	for _, action := range []policy.Action{policy.LiveResize, policy.LiveResizePreferred} {
		t.Run(string(action), func(t *testing.T) {
			c, g, _ := hostile(t, map[string]string{api.CanaryDurationAnnotation: "5s", api.ResizeActionAnnotation: string(action)})
			c.Kills = nil
			c.Infeasible(func(pod *corev1.Pod) bool { return pod.Name == "web-2" })
			g.Edit(newer)
			c.Rounds(300)
			if size := simulated.SizeOf(c.Pods["web-0"]); size.CPU != newer.CPU {
				t.Errorf("web-0 has %v: %+v", size, condition(c.Set))
			}
		})
	}
}

// Under OnDelete the hold goes in bounded time while a canary waits to be promoted, and nothing more is tried then.
func TestHostileHoldOfManual(t *testing.T) {
	c, g, _ := hostile(t, map[string]string{api.CanaryDurationAnnotation: policy.Manual})
	c.Mended = true
	underOnDelete(c)
	g.Edit(newer)
	c.Rounds(1000)
	if n := simulated.Count(c.Writes, "patch pods/resize"); n != 1 || !policy.Held(c.Set) {
		t.Errorf("%d pods were asked, held: %t: %+v", n, policy.Held(c.Set), condition(c.Set))
	}
	g.Annotate(map[string]string{api.PromoteAnnotation: g.Name()})
	if c.Until(1000, func() bool { return condition(c.Set).Complete() }); policy.Held(c.Set) {
		t.Errorf("once it is promoted: %+v", condition(c.Set))
	}
}

// Under OnDelete the hold does not go while nothing is known of a check: its operator would give all pods a size that nobody has proved.
func TestHostileHoldOfUnknownCheck(t *testing.T) {
	asks := simulated.NewAsks()
	asks.Overdue()
	c := newCluster(t, 3, controller.Options{Checks: asks})
	g := c.guarded(t)
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "20s", api.ChecksAnnotation: "cpu-throttling"})
	underOnDelete(c)
	g.Edit(newer)
	c.Rounds(800)
	if !policy.Held(c.Set) || condition(c.Set).Reason != judge.ReasonCheckUnknown {
		t.Errorf("held: %t: %+v", policy.Held(c.Set), condition(c.Set))
	}
	asks.Answer = func(podchecks.Subject) podchecks.Outcome {
		return podchecks.Outcome{State: podchecks.Passed, Effect: podchecks.GoOn}
	}
	g.Completes(t)
}

// The kubelet says in one status that the resize is done and that the container was OOMKilled for it: that is a failure.
func TestHostileKilledAtOnce(t *testing.T) {
	c, g, had := hostile(t, map[string]string{api.CanaryDurationAnnotation: "20s"})
	c.Judge = func(*corev1.Pod, version) simulated.Outcome { return simulated.Outcome{Slow: 3} }
	c.Kills = func(pod *corev1.Pod, _ version) bool {
		return simulated.SizeOf(pod).CPU == newer.CPU && pod.Status.ContainerStatuses[0].RestartCount == 0
	}
	g.Edit(newer)
	g.Stops(t, had)
}

// An autoscaler scales in again and again, and the canary is the first to go: one other follows it, and no third one.
func TestHostileScaling(t *testing.T) {
	c, g, had := hostile(t, map[string]string{api.CanaryDurationAnnotation: "20s"})
	c.change(func(set *appsv1.StatefulSet) { set.Spec.Replicas = ptr.To[int32](6) })
	c.Until(100, func() bool { return len(c.Pods) == 6 && c.Set.Status.ReadyReplicas == 6 })
	g.Edit(newer)
	for n := int32(5); n >= 2; n-- {
		c.Until(50, func() bool { return len(had()) > 0 })
		c.Rounds(2)
		c.change(func(set *appsv1.StatefulSet) { set.Spec.Replicas = ptr.To(n) })
		c.Rounds(10)
	}
	if len(had()) > 2 {
		t.Errorf("%v have the size: %+v", had(), condition(c.Set))
	}
}

// Every pod that gets the size is drained: one other follows the canary, and no third one.
func TestHostileEvicted(t *testing.T) {
	c, g, _ := hostile(t, nil)
	c.Kills = nil
	g.Edit(newer)
	if lost := g.Loses(200); len(lost) != 2 || !simulated.Stopped(condition(c.Set)) {
		t.Errorf("%v, one after the other, have got the size, and were lost with it: %+v", lost, condition(c.Set))
	}
}

func (c *cluster) completes(t *testing.T, what string) {
	t.Helper()
	if c.Until(300, func() bool { return condition(c.Set).Complete() }); !condition(c.Set).Complete() {
		t.Fatalf("the setup, %s: %+v", what, condition(c.Set))
	}
}

// The size has the only pod be evicted again and again: more are lost than the canary has.
func TestHostileEvictedAlone(t *testing.T) {
	for _, replicas := range []int{1, 3} {
		c := newCluster(t, replicas, controller.Options{})
		g := c.guarded(t)
		g.Annotate(map[string]string{api.CanaryAnnotation: "100%", api.CanaryDurationAnnotation: "20s", api.OnFailureAnnotation: policy.OnFailureRevert})
		g.Edit(newer)
		if lost := g.Loses(300); len(lost) > 2*replicas || !simulated.Stopped(condition(c.Set)) {
			t.Errorf("%d replicas: %v have got the size, and were lost with it: %+v", replicas, lost, condition(c.Set))
		}
	}
}

// An autoscaler takes away the canary after it has passed, and others come and go: a healthy rollout.
func TestHostileScaledInAfterPassing(t *testing.T) {
	c := newCluster(t, 6, controller.Options{})
	g := c.guarded(t)
	g.CanaryPasses(t)
	for _, n := range []int32{4, 6, 3, 6} {
		c.change(func(set *appsv1.StatefulSet) { set.Spec.Replicas = ptr.To(n) })
		c.Rounds(12)
	}
	g.Completes(t)
}

// In the middle of a rollout that nothing guards, a lost pod is made as the newest template before the edit says, guarded or not.
func TestHostileBornDuringImage(t *testing.T) {
	c, g, _ := hostile(t, nil)
	c.Kills = nil
	g.Edit(otherImage)
	c.Until(200, func() bool {
		return c.Pods["web-2"] != nil && c.Of(c.Pods["web-2"]).Image == otherImage.Image && len(c.Pods) == 3
	})
	g.Edit(version{Image: otherImage.Image, CPU: newer.CPU})
	c.Rounds(2)
	c.DeletePod("web-2")
	c.Rounds(20)
	if is := c.Of(c.Pods["web-2"]).Image; is != otherImage.Image {
		t.Errorf("web-2 is made with image %d, want %d, which it had: current %s: %+v", is, otherImage.Image, c.Set.Status.CurrentRevision, condition(c.Set))
	}
}

// TestRevertToTheSecond: a pod goes back to what it had.
func TestRevertToTheSecond(t *testing.T) {
	newCluster(t, 3, controller.Options{}).guarded(t).RevertsToTheSecond(t)
}
