package deployment

import (
	"maps"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
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

// Where no ReplicaSet has the size from before any more, no pod comes before a person acts.
func TestHostileScaledToZeroWithoutHistory(t *testing.T) {
	c, g := hostile(t, nil)
	c.change(func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = ptr.To[int32](0) })
	g.Edit(newer)
	c.Until(200, func() bool { return simulated.Stopped(g.Condition()) })
	for _, n := range []int32{0, 4} {
		g.Scale(n)
		c.Rounds(20)
	}
	if len(c.Pods) > 0 || !simulated.Stopped(g.Condition()) || !g.Held() {
		t.Errorf("%v have the size that has failed, held: %t: %+v", g.Sized(newer), g.Held(), g.Condition())
	}
	g.Edit(simulated.Next)
	g.Completes(t)
}

// Whatever the history has, pods come back from zero as they were before the rollout, and a stop stays one.
func TestHostileScaledToZero(t *testing.T) {
	image := func(v version) version { v.Image = 2; return v }
	for name, edits := range map[string][]version{
		"an older size":     {other},
		"the size itself":   {newer, other},
		"another image":     {image(older), older},
		"all of them":       {newer, image(other), older, other},
		"one that is older": {other, older},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 4, controller.Options{})
			g := c.guarded(t)
			for _, v := range edits {
				g.Edit(v)
				g.Completes(t)
			}
			had := edits[len(edits)-1]
			g.Doomed(policy.OnFailureHold)
			g.Edit(newer)
			c.Until(200, func() bool { return simulated.Stopped(g.Condition()) })
			for _, n := range []int32{0, 4} {
				g.Scale(n)
				c.Rounds(20)
			}
			if got := g.Sized(had); len(got) != 4 || !simulated.Stopped(g.Condition()) || !g.Held() {
				t.Errorf("%v have the size from before, held: %t: %+v", got, g.Held(), g.Condition())
			}
			g.Edit(had)
			if g.Completes(t); len(g.Sized(had)) != 4 {
				t.Errorf("edited back, %v have the size", g.Sized(had))
			}
			g.Edit(version{Image: had.Image, CPU: had.CPU, Memory: 1})
			g.Completes(t)
		})
	}
}

// Every pod that gets the size is drained: one other follows the canary, and no third one.
func TestHostileEvicted(t *testing.T) {
	c, g := hostile(t, nil)
	c.Kills = nil
	g.Edit(newer)
	if lost := g.Loses(200); len(lost) != 2 || !simulated.Stopped(g.Condition()) {
		t.Errorf("%v have got the size, one after the other, and were lost with it: %+v", lost, g.Condition())
	}
}

// A kubelet that rejects a pod of the size from before has no other pod come with a size that its canary has yet to prove.
func TestHostileRejected(t *testing.T) {
	c, g := hostile(t, map[string]string{api.CanaryDurationAnnotation: policy.Manual})
	c.Kills = nil
	g.Edit(newer)
	c.Until(200, func() bool { return len(g.Sized(newer)) == 1 })
	rejected := c.Pods[g.Sized(older)[0]].DeepCopy()
	rejected.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu", Message: "Pod was rejected: Node didn't have enough resource: cpu"}
	c.WritePod(rejected)
	c.Rounds(20)
	g.Scale(6)
	c.Rounds(20)
	if sized := g.Sized(newer); len(sized) != 1 || len(c.Pods) < 6 {
		t.Errorf("%v of %d pods have the size: %+v", sized, len(c.Pods), g.Condition())
	}
}

// Pods that cannot come for a while do not come with a size that its canary has yet to prove: nobody is there who waits for it.
func TestHostileNoPods(t *testing.T) {
	c, g := hostile(t, map[string]string{api.CanaryDurationAnnotation: policy.Manual})
	c.Kills = nil
	g.Edit(newer)
	c.Until(200, func() bool { return len(g.Sized(newer)) == 1 })
	g.Scale(0)
	c.Rounds(20)
	c.noPods = true
	g.Scale(4)
	c.Rounds(20)
	c.noPods = false
	c.Rounds(20)
	if sized := g.Sized(newer); len(sized) > 1 || len(c.Pods) != 4 || !g.Held() {
		t.Errorf("%v of %d pods have the size, held: %t: %+v", sized, len(c.Pods), g.Held(), g.Condition())
	}
}

// Another image in the midst of a canary, and one of which the history has another size, is not guarded, and waits for no canary.
func TestHostileImage(t *testing.T) {
	c, g := hostile(t, nil)
	c.Kills = nil
	g.Edit(newer)
	c.Until(200, func() bool { return len(g.Sized(newer)) == 1 })
	for _, v := range []version{otherImage, simulated.Next} {
		g.Edit(v)
		g.Completes(t)
	}
}

// A size that fails overtakes another one as soon as a ReplicaSet has that for its canary: who is made later has the one from before both.
func TestHostileOvertaken(t *testing.T) {
	c, g := hostile(t, map[string]string{api.ResizeActionAnnotation: string(policy.Restart)})
	g.Edit(simulated.Next)
	c.Until(50, func() bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(c.sets)), func(rs *appsv1.ReplicaSet) bool { return rs.Annotations[api.AdoptedAnnotation] != "" })
	})
	g.Edit(newer)
	c.Until(200, func() bool { return simulated.Stopped(g.Condition()) })
	c.Rounds(2)
	g.Scale(8)
	if c.Rounds(20); len(g.Sized(newer)) > 1 || len(c.Pods) < 8 {
		t.Errorf("%v of %d pods have the size that has failed: %+v", g.Sized(newer), len(c.Pods), g.Condition())
	}
}

// The new pod of a restarted canary comes before that goes, and is not available for long. Who comes meanwhile has the size from before.
func TestHostileComesFirst(t *testing.T) {
	c := newCluster(t, 4, controller.Options{}, func(d *appsv1.Deployment) { bounds(1, 0)(&scene{d: d}) })
	g := c.guarded(t)
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: policy.Manual, api.ResizeActionAnnotation: string(policy.Restart)})
	c.Judge = func(_ *corev1.Pod, v version) simulated.Outcome {
		return simulated.Outcome{Unready: v.CPU == newer.CPU}
	}
	g.Edit(newer)
	c.Rounds(20)
	g.Scale(8)
	c.Rounds(20)
	if sized := g.Sized(newer); len(sized) != 1 || len(c.Pods) < 8 {
		t.Errorf("%v of %d pods have the size: %+v", sized, len(c.Pods), g.Condition())
	}
	c.Judge = nil
	g.Scale(4)
	c.Rounds(60)
	g.Annotate(map[string]string{api.PromoteAnnotation: g.Name()})
	if g.Completes(t); len(g.Sized(newer)) != 4 {
		t.Errorf("promoted: %v have the size", g.Sized(newer))
	}
}

// While a budget refuses to let the canary go, what comes has the size from before.
func TestHostileBudget(t *testing.T) {
	c := newCluster(t, 4, controller.Options{}, func(d *appsv1.Deployment) { bounds(0, 1)(&scene{d: d}) })
	g := c.guarded(t)
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: policy.Manual, api.ResizeActionAnnotation: string(policy.Restart)})
	c.budget = 1000
	g.Edit(newer)
	c.Rounds(30)
	g.Scale(8)
	c.Rounds(30)
	if sized := g.Sized(newer); len(sized) > 0 || len(c.Pods) != 8 {
		t.Errorf("%v of %d pods have the size: %+v", sized, len(c.Pods), g.Condition())
	}
	c.budget = 0
	c.Until(400, func() bool { return len(g.Sized(newer)) == 1 })
	g.Annotate(map[string]string{api.PromoteAnnotation: g.Name()})
	c.Rounds(200)
	if g.Completes(t); len(g.Sized(newer)) != 8 {
		t.Errorf("promoted, %v have the size", g.Sized(newer))
	}
}
