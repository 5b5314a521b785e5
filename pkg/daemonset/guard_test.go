package daemonset

import (
	"maps"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

func TestGuardedRollouts(t *testing.T) {
	for _, under := range []appsv1.DaemonSetUpdateStrategyType{"RollingUpdate", "OnDelete"} {
		t.Run(string(under), func(t *testing.T) {
			simulated.GuardedRollouts(t, func(t *testing.T, pods int, asks *simulated.Asks) simulated.Guarded {
				g := newCluster(t, pods, controller.Options{Checks: asks}).guarded(t)
				if under == "OnDelete" {
					g.OnDelete()
					g.MayBeDown = nil
				}
				return g
			})
		})
	}
}

// guarded is the cluster for the trials of guarded rollouts.
func (c *cluster) guarded(t *testing.T) simulated.Guarded {
	return c.Guarded(t, defaults, simulated.Guarded{
		Meta: func(change func(metav1.Object)) {
			c.Change(func() { c.User(func(set *appsv1.DaemonSet) { change(set) }) })
		},
		Edit: c.edit, Condition: func() *rollout.StoredCondition { return condition(c.Set) }, Held: func() bool { return policy.Held(c.Set) || policy.Recorded(c.Set) }, Annotations: func() map[string]string { return c.Set.Annotations },
		Template:  func() simulated.Version { return simulated.VersionOf(&c.Set.Spec.Template.Spec) },
		MayBeDown: func(n int) { c.strategy(rollingUpdate(intstr.FromInt(n), intstr.FromInt32(0))) },
		OnDelete:  func() { c.strategy(appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}) },
		Marks:     true,
	})
}

// newGuarded has so many nodes, and a set with these annotations.
func newGuarded(t *testing.T, nodes int, annotations map[string]string) (*cluster, simulated.Guarded) {
	t.Helper()
	c := newCluster(t, nodes, controller.Options{})
	g := c.guarded(t)
	g.Annotate(annotations)
	return c, g
}

// enlarge has these nodes be of a class that has a size of its own.
func (c *cluster) enlarge(g simulated.Guarded, nodes ...string) {
	for _, name := range nodes {
		c.changeNode(name, func(node *corev1.Node) { node.Labels["size"] = "large" })
	}
	c.nodesChange()
	g.Annotate(map[string]string{api.NodeResourcesAnnotation: `[{"nodeSelector": {"size": "large"}, "containers": {"app": {"requests": {"cpu": "9m"}}}}]`})
	c.Rounds(60)
}

// TestGuardAndClasses: pods whose class of node has a size of its own, which the edit does not change, are no canaries: they
// prove nothing of the size that the others get.
func TestGuardAndClasses(t *testing.T) {
	c, g := newGuarded(t, 6, nil)
	c.enlarge(g, "node-0", "node-1", "node-2")
	had := g.Doomed(policy.OnFailureHold)
	g.Edit(newer)
	if name := g.Stops(t, had); capacity.TargetNode(c.Pods[name]) < "node-3" {
		t.Errorf("the canary %s is on a node with a size of its own", name)
	}
}

// TestGuardAndSurge: with maxSurge the DaemonSet controller makes new pods first, so that the restarts are its own. Resizes
// are guarded.
func TestGuardAndSurge(t *testing.T) {
	c, g := newGuarded(t, 3, nil)
	c.strategy(rollingUpdate(intstr.FromInt32(0), intstr.FromInt32(1)))
	had := g.Doomed(policy.OnFailureHold)
	g.Edit(newer)
	g.Stops(t, had)
}

// TestCanaryOnALostNode: another one takes its place, and no third one.
func TestCanaryOnALostNode(t *testing.T) {
	c, g := newGuarded(t, 5, map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "20s"})
	g.Edit(simulated.Newer)
	for n := range 2 {
		g.Until(t, "a canary", func() bool { return len(c.Sized(simulated.Newer)) == n+1 })
		for _, name := range c.Sized(simulated.Newer) {
			c.Crash(c.Pods[name], true) // as the node lifecycle controller says
			c.changeNode(capacity.TargetNode(c.Pods[name]), func(node *corev1.Node) { node.Status.Conditions[0].Status = corev1.ConditionUnknown })
		}
		c.nodesChange()
	}
	c.Rounds(200)
	if n := len(c.Sized(simulated.Newer)); n != 2 || !simulated.Stopped(condition(c.Set)) {
		t.Errorf("%d pods have been asked: %+v", n, condition(c.Set))
	}
}

// resized: it has a memory of 1.
func resized(pod *corev1.Pod) bool { return simulated.SizeOf(pod).Memory == 1 }

// TestCanaryOfAPercentage: it is one of the pods of each class.
func TestCanaryOfAPercentage(t *testing.T) {
	c, g := newGuarded(t, 20, map[string]string{api.CanaryAnnotation: "10%", api.CanaryDurationAnnotation: policy.Manual})
	c.enlarge(g, "node-0", "node-1")
	g.Edit(version{Image: 1, CPU: 1, Memory: 1})
	c.Rounds(100)
	if asked := c.Having(resized); asked != 3 {
		t.Errorf("%d pods were asked, want 1 of 2 large ones, and 2 of 18 others: %+v", asked, condition(c.Set))
	}
}

// TestCanaryOfEachClass: each class of nodes has a canary, where the edit changes the size of all of them. A change of the classes
// alone has none.
func TestCanaryOfEachClass(t *testing.T) {
	c, g := newGuarded(t, 6, nil)
	large := []string{"node-0", "node-1", "node-2"}
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: policy.Manual})
	c.enlarge(g, large...)
	if n := len(c.Sized(version{CPU: 9})); n != len(large) || simulated.Count(c.Events, judge.EventCanaryStarted) > 0 {
		t.Errorf("%d pods have the size of their class, want %d without a canary: %q", n, len(large), c.Events)
	}
	g.Edit(version{Image: 1, CPU: 1, Memory: 1})
	c.Rounds(60)
	canaries := map[bool]int{}
	for name, pod := range c.Pods {
		if resized(pod) {
			canaries[slices.Contains(large, capacity.TargetNode(c.Pods[name]))]++
		}
	}
	if canaries[true] != 1 || canaries[false] != 1 {
		t.Errorf("%d canaries on large nodes, and %d on others, want 1 of both: %+v", canaries[true], canaries[false], condition(c.Set))
	}
}

// TestHostileRelabelled: a canary whose node gets another class, and the next one, and so on: they do not go through all pods.
func TestHostileRelabelled(t *testing.T) {
	c, g := newGuarded(t, 8, map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: policy.Manual})
	c.enlarge(g, "node-0")
	g.Edit(version{Image: 1, CPU: 1, Memory: 1})
	for range 7 {
		c.Rounds(30)
		for _, pod := range c.Pods {
			if resized(pod) {
				c.changeNode(capacity.TargetNode(pod), func(node *corev1.Node) { node.Labels["size"] = "large" })
			}
		}
		c.nodesChange()
	}
	if have, asked := condition(c.Set), c.Having(resized); asked != 4 || !simulated.Stopped(have) {
		t.Errorf("%d pods are asked, want 4 (one of the large, and three others): %+v", asked, have)
	}
}

func hostile(t *testing.T, annotations map[string]string) (*cluster, simulated.Guarded, func() []string) {
	t.Helper()
	c, g := newGuarded(t, 4, nil)
	had := g.Doomed(policy.OnFailureHold)
	g.Annotate(annotations)
	return c, g, had
}

// A canary that is infeasible on its node does not keep a rollout with maxSurge for ever.
func TestHostileInfeasibleWithSurge(t *testing.T) {
	for _, guarded := range []bool{false, true} {
		c, g := newGuarded(t, 4, nil)
		c.strategy(rollingUpdate(intstr.FromInt32(0), intstr.FromInt32(1)))
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

func TestRejectedByKubelet(t *testing.T) {
	for gone, strategy := range []appsv1.DaemonSetUpdateStrategy{strategies[3], strategies[0]} { // maxSurge, maxUnavailable
		simulated.RejectedByKubelet(t, gone, func(t *testing.T) simulated.Guarded {
			c, g := newGuarded(t, 3, nil)
			c.strategy(strategy)
			return g
		})
	}
}

// A pod whose class has a size of its own, which the edit does not change, was killed, or was not Ready, long before the edit.
func TestBadBeforeInAnotherClass(t *testing.T) {
	for _, how := range []string{"killed once", "killed again and again", "not Ready"} {
		c, g := newGuarded(t, 6, nil)
		c.enlarge(g, "node-0", "node-1", "node-2")
		bad := func(pod *corev1.Pod) bool { return capacity.TargetNode(pod) == "node-0" }
		c.Kills = func(pod *corev1.Pod, _ version) bool {
			return how != "not Ready" && bad(pod) && (how != "killed once" || pod.Status.ContainerStatuses[0].RestartCount == 0)
		}
		c.Rounds(60)
		for _, pod := range c.Pods {
			if how == "not Ready" && bad(pod) {
				c.Crash(pod, true)
			}
		}
		c.Rounds(400)
		g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "2s", api.OnFailureAnnotation: policy.OnFailureRevert})
		g.Edit(newer)
		c.Rounds(100)
		if have := g.Condition(); simulated.Stopped(have) || how != "not Ready" && len(g.Sized(newer)) != 3 { // that one counts against maxUnavailable
			t.Errorf("%s: %v have the size: %+v", how, g.Sized(newer), have)
		}
	}
}
