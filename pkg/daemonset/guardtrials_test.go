package daemonset

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

var third = version{Image: 1, CPU: 3}

func hostile(t *testing.T, annotations map[string]string) (*cluster, simulated.Guarded, func() []string) {
	t.Helper()
	c := newCluster(t, 4, controller.Options{})
	g := c.guarded(t)
	had := g.Doomed(policy.OnFailureHold)
	g.Annotate(annotations)
	return c, g, had
}

// The canaries are of the third revision, and a pod had the second: it goes back to that.
func TestHostileRevertOfThird(t *testing.T) {
	c, g, _ := hostile(t, map[string]string{api.OnFailureAnnotation: policy.OnFailureRevert, api.CanaryDurationAnnotation: "5s"})
	g.Edit(third)
	second := func() (name string) {
		for name, pod := range c.Pods {
			if c.Of(pod) == third {
				return name
			}
		}
		return ""
	}
	c.Until(100, func() bool { return second() != "" })
	had := map[string]int{}
	for name, pod := range c.Pods {
		had[name] = simulated.SizeOf(pod).CPU
	}
	g.Edit(newer)
	for range 200 {
		c.Rounds(1)
	}
	for pod, cpu := range had {
		if now := simulated.SizeOf(c.Pods[pod]).CPU; now != cpu {
			t.Errorf("%s had cpu %d before, and has %d; the condition says %+v", pod, cpu, now, condition(c.Set))
		}
	}
}

// The size has every pod that gets it be lost: it stops at the canary.
func TestHostileEvicted(t *testing.T) {
	c, g, _ := hostile(t, nil)
	c.Kills = nil
	before := map[string]bool{}
	for _, pod := range c.Pods {
		before[string(pod.UID)] = true
	}
	g.Edit(newer)
	lost := 0
	for _, uid := range g.Loses(200) {
		lost += asInt(before[string(uid)])
	}
	if lost > 1 {
		t.Errorf("%d of 4 pods have got the size, one after the other, and were lost with it: %+v", lost, condition(c.Set))
	}
}

// Each write fails once, carried out or not, and another controller takes over after it, or not.
func TestHostileEachWriteFails(t *testing.T) {
	simulated.EachGuardedWriteFails(t, func() simulated.Guarded { return newCluster(t, 4, controller.Options{}).guarded(t) })
}

// A controller that takes over does not take a canary that was killed for one that is well.
func TestHostileKilledUnseen(t *testing.T) {
	c, g, had := hostile(t, nil)
	c.Kills = func(pod *corev1.Pod, v version) bool {
		return v.CPU == newer.CPU && pod.Status.ContainerStatuses[0].RestartCount == 0
	}
	g.Edit(newer)
	killed := func() bool {
		for _, pod := range c.Pods {
			if pod.Status.ContainerStatuses != nil && pod.Status.ContainerStatuses[0].RestartCount > 0 {
				return true
			}
		}
		return false
	}
	c.Until(100, killed)
	if !killed() || rollout.Stopped(condition(c.Set)) {
		t.Fatalf("the setup: the controller has said so already: %+v", condition(c.Set))
	}
	g.Restart()
	for range 150 {
		c.Rounds(1)
		had()
	}
	if len(had()) > 1 || !rollout.Stopped(condition(c.Set)) {
		t.Errorf("%v have got it: %+v", had(), condition(c.Set))
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
		var never string
		for name := range c.Pods {
			never = max(never, name)
		}
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
	for range 200 {
		c.Rounds(1)
	}
	n := 0
	for _, pod := range c.Pods {
		if simulated.SizeOf(pod).CPU == newer.CPU {
			n++
		}
	}
	if len(had()) > 2 {
		t.Errorf("%v have got the size: %+v", had(), condition(c.Set))
	}
	if !rollout.Stopped(condition(c.Set)) {
		t.Errorf("%d pods have the size and are killed again and again, and the condition says %+v", n, condition(c.Set))
	}
}

// A→B→C→B: a pod that was born with B a moment ago proves nothing of it.
func TestHostileBornBetween(t *testing.T) {
	c, g, had := hostile(t, nil)
	c.Kills = nil
	g.Edit(newer)
	c.Rounds(2)
	var name string
	for name = range c.Pods {
		break
	}
	c.DeletePod(name)
	c.Rounds(4)
	g.Edit(third)
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

// An undo is complete at once after a revert of all pods.
func TestHostileUndoOfAll(t *testing.T) {
	c, g, _ := hostile(t, map[string]string{api.OnFailureAnnotation: policy.OnFailureRevert})
	all := func() bool {
		for _, p := range c.Pods {
			if simulated.AppliedSize(p).CPU != newer.CPU {
				return false
			}
		}
		return true
	}
	c.Kills = func(pod *corev1.Pod, v version) bool { return v.CPU == newer.CPU && all() }
	g.Edit(newer)
	c.Until(300, func() bool { have := condition(c.Set); return have != nil && have.Reason == rollout.ReasonReverted })
	g.Annotate(map[string]string{api.CanaryDurationAnnotation: "10m"})
	g.Edit(simulated.Former)
	c.Rounds(30)
	if have := condition(c.Set); have.Reason != rollout.ReasonComplete {
		t.Errorf("the condition says %+v", have)
	}
}

// A→B→A→B: the first edit was completed, the second fails, and is undone.
func TestHostileUndoOfTheFirst(t *testing.T) {
	for _, onFailure := range []string{policy.OnFailureHold, policy.OnFailureRevert} {
		for _, duration := range []string{"10m", policy.Manual} {
			t.Run(onFailure+" "+duration, func(t *testing.T) {
				c := newCluster(t, 4, controller.Options{})
				g := c.guarded(t)
				g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "5s", api.OnFailureAnnotation: onFailure})
				g.Edit(simulated.Newer)
				if c.Until(300, func() bool { return condition(c.Set).Complete() }); !condition(c.Set).Complete() {
					t.Fatalf("the setup: %+v", condition(c.Set))
				}
				g.Annotate(map[string]string{api.CanaryDurationAnnotation: duration})
				c.Kills = func(_ *corev1.Pod, v version) bool { return v.CPU == simulated.Former.CPU }
				c.Rounds(30)
				g.Edit(simulated.Former)
				c.Until(200, func() bool { return rollout.Stopped(condition(c.Set)) })
				c.Rounds(20)
				g.Edit(simulated.Newer)
				c.Rounds(60)
				if failed := c.Sized(simulated.Former); len(failed) > 0 || !condition(c.Set).Complete() {
					t.Errorf("a minute after the undo, %v have what kills them: %+v", failed, condition(c.Set))
				}
			})
		}
	}
}

// A canary that has passed and is drained then was not lost before it had proved the size.
func TestHostileDrainedAfterPassing(t *testing.T) {
	newCluster(t, 4, controller.Options{}).guarded(t).DrainedAfterPassing(t)
}

func TestHostileDownSinceTheEdit(t *testing.T) { simulated.DownSinceTheEdit(t, doomed) }
func TestHostileRescues(t *testing.T)          { simulated.Rescues(t, doomed) }

// doomed is a world in which one size kills every pod.
func doomed(t *testing.T) simulated.Guarded {
	_, g, _ := hostile(t, nil)
	return g
}

// TestGuardedAlone: the only pod is the canary, and goes back.
func TestGuardedAlone(t *testing.T) {
	newCluster(t, 1, controller.Options{}).guarded(t).Alone(t)
}
