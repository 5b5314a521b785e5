package statefulset

import (
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

func TestGuardedRollouts(t *testing.T) {
	for _, under := range []string{"RollingUpdate", "OnDelete", "OnDelete, unmarked"} {
		t.Run(under, func(t *testing.T) {
			simulated.GuardedRollouts(t, func(t *testing.T, pods int, asks *simulated.Asks) simulated.Guarded {
				load(t)
				set := webSet(older, pods)
				if under != "RollingUpdate" {
					set.Spec.PodManagementPolicy, set.Spec.UpdateStrategy = appsv1.ParallelPodManagement, appsv1.StatefulSetUpdateStrategy{Type: "OnDelete"}
				}
				c := newClusterOf(t, set, controller.Options{Checks: asks})
				g := c.guarded(t)
				if under != "RollingUpdate" { // new pods have the new size
					g.Scale, g.Held = nil, func() bool { return policy.Recorded(c.Set) }
				}
				if under == "OnDelete, unmarked" { // no controller was ready at the edit
					g.Edit = c.editUnmarked
				}
				return g
			})
		})
	}
}

// editUnmarked changes the template of a set under OnDelete without marking it.
func (c *cluster) editUnmarked(v version) {
	c.Change(func() {
		c.users(v)
		set := c.Set.DeepCopy()
		delete(set.Annotations, api.HoldAnnotation)
		c.Store(set)
	})
}

// guarded is the cluster for the trials of guarded rollouts.
func (c *cluster) guarded(t *testing.T) simulated.Guarded {
	return c.Guarded(t, defaults, simulated.Guarded{
		Annotate: func(annotations map[string]string) {
			c.change(func(set *appsv1.StatefulSet) { maps.Copy(set.Annotations, annotations) })
		},
		Scale: func(replicas int32) { c.change(func(set *appsv1.StatefulSet) { set.Spec.Replicas = &replicas }) },
		Edit:  c.edit, Condition: func() *rollout.StoredCondition { return condition(c.Set) }, Held: func() bool { return policy.Held(c.Set) }, Annotations: func() map[string]string { return c.Set.Annotations },
		Template: func() simulated.Version { return simulated.VersionOf(&c.Set.Spec.Template.Spec) },
	})
}

func (c *cluster) change(change func(*appsv1.StatefulSet)) { c.Change(func() { c.User(change) }) }

// TestGuardAndPartition: both count. A canary is one of the pods that may move. Those that a lower partition lets move follow at once,
// since the size has been proved; or when they are promoted.
func TestGuardAndPartition(t *testing.T) {
	for _, duration := range []string{"20s", policy.Manual} {
		t.Run(duration, func(t *testing.T) {
			c := newCluster(t, 5, controller.Options{})
			g := c.guarded(t)
			asked := func(what string, want int) {
				t.Helper()
				if n := simulated.Count(c.Writes, "patch pods/resize"); n != want {
					t.Fatalf("%d pods were asked, want %s: %q", n, what, c.Writes)
				}
			}
			promote := func() {
				g.Annotate(map[string]string{api.PromoteAnnotation: g.Name()})
			}
			g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: duration})
			partitionAt := func(n int32) {
				c.change(func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.Partition = &n })
			}
			partitionAt(2)
			g.Edit(newer)
			c.Rounds(15)
			asked("the canary", 1)
			if duration == policy.Manual {
				promote()
			}
			c.completes(t, "above the partition")
			asked("those above the partition", 3)
			partitionAt(0)
			if duration == policy.Manual {
				c.Rounds(100)
				asked("no other before they are promoted", 3)
				promote()
			}
			c.Rounds(5)
			asked("all at once", 5)
			c.completes(t, "the rest")
		})
	}
}

// TestGuardAndPartitionAbove: where the user keeps all pods back, nothing is tried, and nothing is held for that. When he lowers the
// partition, one pod gets the size first.
func TestGuardAndPartitionAbove(t *testing.T) {
	for what, first := range map[string]int32{"3 pods": 3, "more than there are": 5} {
		t.Run(what, func(t *testing.T) {
			c := newCluster(t, 3, controller.Options{})
			g := c.guarded(t)
			partitionAt := func(n int32) {
				c.change(func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.Partition = &n })
			}
			g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: policy.Manual})
			partitionAt(first)
			g.Edit(newer)
			g.Completes(t)
			if n := partition(c.Set); n != int(first) || len(g.Sized(newer)) > 0 {
				t.Errorf("let go, the partition is %d, and %v have the size", n, g.Sized(newer))
			}
			partitionAt(0)
			if c.Rounds(100); len(g.Sized(newer)) != 1 || g.Phase() != rollout.PhaseCanary {
				t.Errorf("lowered, %v have the size: %+v", g.Sized(newer), g.Condition())
			}
			g.Annotate(map[string]string{api.PromoteAnnotation: g.Name()})
			g.Completes(t)
		})
	}
}

// TestGuardAndPartitionRaised: a canary that the user keeps back afterwards is still one, and the rollout waits for him.
func TestGuardAndPartitionRaised(t *testing.T) {
	c := newCluster(t, 3, controller.Options{})
	g := c.guarded(t)
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: policy.Manual})
	g.Edit(newer)
	g.Until(t, "tried", func() bool { return len(g.Sized(newer)) == 1 })
	c.change(func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To(int32(3)) })
	if c.Rounds(100); !g.Held() || len(g.Sized(newer)) != 1 {
		t.Errorf("held is %t, and %v have the size", g.Held(), g.Sized(newer))
	}
}

// TestGuardedRestarts: where only new pods can have the size, one of them is the canary.
func TestGuardedRestarts(t *testing.T) {
	c := newCluster(t, 3, controller.Options{})
	g := c.guarded(t)
	had := g.Doomed(policy.OnFailureHold)
	g.Annotate(map[string]string{api.ResizeActionAnnotation: string(policy.Restart)})
	g.Edit(newer)
	g.AtMostOne(t, 100, had)
	if have := condition(c.Set); len(had()) != 1 || g.Phase() != rollout.PhaseStopped {
		t.Errorf("%v have the size, and the condition says %+v", had(), have)
	}
	g.Scale(6)
	if c.Rounds(60); len(c.Pods) != 6 || len(had()) != 1 {
		t.Errorf("scaled out, %v of %d pods have the size: %+v", had(), len(c.Pods), condition(c.Set))
	}
}

// TestGuardedRestartsScaledOut: a canary that was restarted is well, and others that come meanwhile are no canaries.
func TestGuardedRestartsScaledOut(t *testing.T) {
	c := newCluster(t, 3, controller.Options{})
	g := c.guarded(t)
	g.Annotate(map[string]string{
		api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "1m", api.ResizeActionAnnotation: string(policy.Restart),
	})
	g.Edit(newer)
	g.Until(t, "restarted", func() bool { return len(g.Sized(newer)) == 1 })
	c.Rounds(5)
	g.Scale(6)
	if c.Rounds(20); len(c.Pods) != 6 || len(g.Sized(newer)) != 1 {
		t.Errorf("scaled out in the canary, %v of %d pods have the size: %+v", g.Sized(newer), len(c.Pods), condition(c.Set))
	}
	g.Completes(t)
}

// TestGuardedRestartAndResize: a pod that is restarted for its size is a canary, too, as long as it is not there again.
func TestGuardedRestartAndResize(t *testing.T) {
	c := newCluster(t, 3, controller.Options{})
	g := c.guarded(t)
	had := g.Doomed(policy.OnFailureHold)
	c.Judge = func(pod *corev1.Pod, v version) simulated.Outcome {
		return simulated.Outcome{Refused: pod.Name == "web-2" && v.CPU == 2}
	}
	g.Edit(newer)
	g.AtMostOne(t, 100, had)
	if len(had()) != 1 {
		t.Errorf("%v have the size: %+v", had(), g.Condition())
	}
}

// TestRevertOfRestarts: pods that were restarted for their size are not restarted to go back, once or again and again.
func TestRevertOfRestarts(t *testing.T) {
	for annotation, value := range simulated.Restarting {
		t.Run(value, func(t *testing.T) {
			c := newCluster(t, 3, controller.Options{})
			c.change(func(set *appsv1.StatefulSet) {
				set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(3))
			})
			c.guarded(t).RevertsRestarted(t, annotation, value)
		})
	}
}

// TestRevertOfContainers: containers restart on the way back where they did on the way forth.
func TestRevertOfContainers(t *testing.T) {
	newCluster(t, 3, controller.Options{}).guarded(t).RevertsContainers(t)
}

// TestGuardAndOptOut: the StatefulSet controller takes a canary for updated that has passed.
func TestGuardAndOptOut(t *testing.T) {
	for _, passed := range []bool{false, true} {
		c := newCluster(t, 5, controller.Options{})
		optOut := func() { c.change(func(set *appsv1.StatefulSet) { delete(set.Labels, api.EnabledLabel) }) }
		if replaced := c.guarded(t).OptedOut(t, passed, optOut); replaced == passed {
			t.Errorf("passed: %t, and replaced: %t", passed, replaced)
		}
	}
}
