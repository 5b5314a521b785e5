package deployment

import (
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

func TestGuardedRollouts(t *testing.T) {
	simulated.GuardedRollouts(t, func(t *testing.T, pods int, asks *simulated.Asks) simulated.Guarded {
		return newCluster(t, pods, controller.Options{Checks: asks}).guarded(t)
	})
}

// guarded is the cluster for the trials of guarded rollouts.
func (c *cluster) guarded(t *testing.T) simulated.Guarded {
	return c.Guarded(t, defaults, simulated.Guarded{
		Annotate: func(annotations map[string]string) {
			c.change(func(d *appsv1.Deployment) {
				if d.Annotations == nil {
					d.Annotations = map[string]string{}
				}
				maps.Copy(d.Annotations, annotations)
			})
		},
		Scale: func(replicas int32) { c.change(func(d *appsv1.Deployment) { d.Spec.Replicas = &replicas }) },
		Edit:  c.edit, Condition: func() *rollout.StoredCondition { return condition(&Deployment{Deployment: c.d}) }, Held: func() bool { return policy.Held(c.d) }, Annotations: func() map[string]string { return c.d.Annotations },
		Template: func() simulated.Version { return simulated.VersionOf(&c.d.Spec.Template.Spec) },
	})
}

// TestGuardAndTwoReplicaSets: a size is edited while another image is rolled out, so that there are pods of two ReplicaSets.
func TestGuardAndTwoReplicaSets(t *testing.T) {
	c := newCluster(t, 4, controller.Options{})
	g := c.guarded(t)
	g.Edit(otherImage)
	c.Until(50, func() bool { return len(c.sets) == 2 && len(c.Pods) > 4 })
	had := g.Doomed(policy.OnFailureHold)
	v := otherImage
	v.CPU = newer.CPU
	g.Edit(v)
	g.Stops(t, had)
}

// TestGuardedRestarts: where only new pods can have the size, one of them is the canary. It keeps the size, and those that come later
// have the one from before.
func TestGuardedRestarts(t *testing.T) {
	for _, onFailure := range []string{policy.OnFailureHold, policy.OnFailureRevert, ""} {
		c := newCluster(t, 4, controller.Options{}, func(d *appsv1.Deployment) { bounds(0, 3)(&scene{d: d}) })
		g := c.guarded(t)
		had := g.Doomed(onFailure)
		g.Annotate(map[string]string{api.ResizeActionAnnotation: string(policy.Restart)})
		phase := map[string]rollout.Phase{policy.OnFailureHold: rollout.PhaseStopped, policy.OnFailureRevert: rollout.PhaseReverted, "": rollout.PhaseCanary}[onFailure]
		if onFailure == "" { // it is well, and nobody promotes it
			c.Kills = nil
			g.Annotate(map[string]string{api.CanaryDurationAnnotation: policy.Manual, api.OnFailureAnnotation: policy.OnFailureHold})
		}
		g.Edit(newer)
		g.AtMostOne(t, 100, had)
		g.Scale(6)
		g.AtMostOne(t, 20, had)
		if have := g.Condition(); len(had()) != 1 || !slices.Equal(g.Sized(newer), had()) || g.Phase() != phase || len(g.Sized(older)) != 5 {
			t.Errorf("%s: %v have had the size, %v have it, the phase is %s, and the condition says %+v", onFailure, had(), g.Sized(newer), g.Phase(), have)
		}
		for _, n := range []int32{0, 4} {
			g.Scale(n)
			c.Rounds(20)
		}
		if len(g.Sized(newer)) > asInt(onFailure == "") || len(c.Pods) < 4 || g.Phase() != phase { // another canary
			t.Errorf("%s: after a scaling to zero, %v have the size, and the phase is %s", onFailure, g.Sized(newer), g.Phase())
		}
		if onFailure == "" {
			g.Annotate(map[string]string{api.PromoteAnnotation: g.Name()})
			if g.Completes(t); len(g.Sized(newer)) != 4 {
				t.Errorf("promoted: %v have the size", g.Sized(newer))
			}
		}
	}
}

// TestRevertOfContainers: containers restart on the way back where they did on the way forth.
func TestRevertOfContainers(t *testing.T) {
	newCluster(t, 3, controller.Options{}, maxUnavailable1).guarded(t).RevertsContainers(t)
}

// TestGuardAndOptOut: the Deployment controller takes no pod for updated before all have passed.
func TestGuardAndOptOut(t *testing.T) {
	for _, passed := range []bool{false, true} {
		c := newCluster(t, 5, controller.Options{})
		optOut := func() { c.change(func(d *appsv1.Deployment) { delete(d.Labels, api.EnabledLabel) }) }
		if replaced := c.guarded(t).OptedOut(t, passed, optOut); !replaced {
			t.Errorf("passed: %t, and the canary is there still", passed)
		}
	}
}

// TestGuardAndImage: while there are pods of two ReplicaSets, those that get another image have no canary, and stop nothing if they fail.
func TestGuardAndImage(t *testing.T) {
	c := newCluster(t, 4, controller.Options{})
	g := c.guarded(t)
	g.Edit(otherImage)
	c.Until(50, func() bool { return len(c.sets) == 2 && len(c.Pods) > 4 })
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "20s"})
	c.Kills = func(pod *corev1.Pod, v version) bool { return v.CPU == newer.CPU && pod.Generation == 1 } // was made with it
	v := otherImage
	v.CPU = newer.CPU
	g.Edit(v)
	former := func() (n int) {
		for _, pod := range c.Pods {
			n += asInt(simulated.VersionOf(&pod.Spec).Image != v.Image)
		}
		return n
	}
	for range 200 {
		if c.Rounds(1); simulated.Stopped(g.Condition()) {
			t.Fatalf("it is stopped: %+v", g.Condition())
		}
	}
	if n := former(); n > 0 || g.Held() {
		t.Errorf("%d pods have the former image, held: %t: %+v", n, g.Held(), g.Condition())
	}
}

// TestGuardAndRecreate: pods that need a restart are restarted together, and wait for no promotion.
func TestGuardAndRecreate(t *testing.T) {
	c := newCluster(t, 3, controller.Options{}, func(d *appsv1.Deployment) { recreate(&scene{d: d}) })
	g := c.guarded(t)
	g.Annotate(map[string]string{
		api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: policy.Manual, api.ResizeActionAnnotation: string(policy.Restart),
	})
	before := c.names()
	g.Edit(newer)
	for range 50 {
		c.Rounds(1)
		if sized := len(c.Sized(newer)); sized > 0 {
			if left := len(c.Sized(older)); sized != len(before) || left > 0 {
				t.Fatalf("%d pods have the size, and %d the former one, want all together", sized, left)
			}
		}
	}
	if len(c.Sized(newer)) != len(before) || !g.Condition().Complete() {
		t.Errorf("%v have the size: %+v", c.Sized(newer), g.Condition())
	}
}

// TestGuardAndProgressDeadline: a pod may be not Ready for as long as the Deployment may not move, or as its annotation says.
func TestGuardAndProgressDeadline(t *testing.T) {
	for deadline, says := range map[int32]string{20: "", 600: "20s"} {
		testNotReady(t, deadline, says)
	}
}

func testNotReady(t *testing.T, deadline int32, says string) {
	t.Helper()
	c := newCluster(t, 3, controller.Options{}, func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = &deadline })
	g := c.guarded(t)
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "20s", api.NotReadyTimeoutAnnotation: says})
	c.Judge = func(_ *corev1.Pod, v version) simulated.Outcome {
		return simulated.Outcome{Unready: v.CPU == newer.CPU}
	}
	g.Edit(newer)
	c.Rounds(18)
	if simulated.Stopped(g.Condition()) {
		t.Errorf("before 20 s: %+v", g.Condition())
	}
	c.Rounds(12)
	if have := g.Condition(); !simulated.Stopped(have) || !strings.Contains(have.Message, "is not Ready since its resize, for more than 20s") {
		t.Errorf("after 20 s: %+v", have)
	}
}

// TestGuardAndUndo: kubectl rollout undo takes the annotations of a Deployment from the ReplicaSet, which may be from before it was guarded.
// It is guarded all the same.
func TestGuardAndUndo(t *testing.T) {
	c := newCluster(t, 3, controller.Options{})
	g := c.guarded(t)
	g.Edit(newer)
	g.Completes(t)
	guards := map[string]string{
		api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: policy.Manual, api.OnFailureAnnotation: policy.OnFailureRevert, api.ChecksAnnotation: "cpu-throttling",
	}
	g.Annotate(guards)
	c.change(func(d *appsv1.Deployment) {
		for _, rs := range c.sets {
			if simulated.VersionOf(&rs.Spec.Template.Spec) == older {
				undo(d, rs)
				d.Spec.Template = *templates[older]
			}
		}
	})
	for key, want := range guards {
		if is := c.d.Annotations[key]; is != want {
			t.Errorf("after the undo, %s is %q, want %q", key, is, want)
		}
	}
	c.Rounds(30)
	if n := len(c.Sized(older)); n != 1 || g.Phase() != rollout.PhaseCanary {
		t.Errorf("%d pods have gone back, want a canary: %+v", n, g.Condition())
	}
}
