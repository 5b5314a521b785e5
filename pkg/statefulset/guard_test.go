package statefulset

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

func TestGuardedRollouts(t *testing.T) {
	for _, under := range []string{"RollingUpdate", "OnDelete", "OnDelete, unmarked"} {
		t.Run(under, func(t *testing.T) {
			simulated.GuardedRollouts(t, func(t *testing.T, pods int, asks *simulated.Asks) simulated.Guarded {
				set := webSet(older, pods)
				if under != "RollingUpdate" {
					set.Spec.PodManagementPolicy, set.Spec.UpdateStrategy = appsv1.ParallelPodManagement, appsv1.StatefulSetUpdateStrategy{Type: "OnDelete"}
				}
				c := newClusterOf(t, set, controller.Options{Checks: asks})
				g := c.guarded(t)
				if under != "RollingUpdate" { // new pods have the new size
					g.Scale, g.MayBeDown = nil, nil
				}
				if under == "OnDelete, unmarked" { // no controller was ready at the edit
					g.Edit, g.Held = c.editUnmarked, func() bool { return policy.Recorded(c.Set) }
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
		Meta:  func(change func(metav1.Object)) { c.change(func(set *appsv1.StatefulSet) { change(set) }) },
		Scale: func(replicas int32) { c.change(func(set *appsv1.StatefulSet) { set.Spec.Replicas = &replicas }) },
		Edit:  c.edit, Condition: func() *rollout.StoredCondition { return condition(c.Set) }, Held: func() bool { return policy.Held(c.Set) }, Annotations: func() map[string]string { return c.Set.Annotations },
		Template: func() simulated.Version { return simulated.VersionOf(&c.Set.Spec.Template.Spec) },
		MayBeDown: func(n int) {
			c.change(func(set *appsv1.StatefulSet) {
				set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt(n))
			})
		},
		OnDelete: func() { underOnDelete(c) },
		Marks:    true,
	})
}

// newGuarded is a set of older with these annotations.
func newGuarded(t *testing.T, replicas int, annotations map[string]string) (*cluster, simulated.Guarded) {
	t.Helper()
	c := newCluster(t, replicas, controller.Options{})
	g := c.guarded(t)
	g.Annotate(annotations)
	return c, g
}

func (c *cluster) change(change func(*appsv1.StatefulSet)) { c.Change(func() { c.User(change) }) }

// TestGuardAndPartition: both count. A canary is one of the pods that may move. Those that a lower partition lets move follow at once,
// since the size has been proved; or when they are promoted.
func TestGuardAndPartition(t *testing.T) {
	for _, duration := range []string{"20s", policy.Manual} {
		t.Run(duration, func(t *testing.T) {
			c, g := newGuarded(t, 5, nil)
			asked := func(what string, want int) {
				t.Helper()
				if n := simulated.Count(c.Writes, "patch pods/resize"); n != want {
					t.Fatalf("%d pods were asked, want %s: %q", n, what, c.Writes)
				}
			}
			promote := func() {
				if duration == policy.Manual {
					g.Annotate(map[string]string{api.PromoteAnnotation: g.Name()})
				}
			}
			g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: duration})
			partitionAt := func(n int32) {
				c.change(func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.Partition = &n })
			}
			partitionAt(2)
			g.Edit(newer)
			c.Rounds(15)
			asked("the canary", 1)
			promote()
			c.completes(t, "above the partition")
			asked("those above the partition", 3)
			partitionAt(0)
			if duration == policy.Manual {
				c.Rounds(100)
				asked("no other before they are promoted", 3)
			}
			promote()
			c.Rounds(5)
			asked("all at once", 5)
			c.completes(t, "the rest")
		})
	}
}

// TestCanaryKeptBack: a canary that its user keeps back for a while does not fail for that.
func TestCanaryKeptBack(t *testing.T) {
	for _, downWhile := range []int{0, 3} { // rounds in which it is not Ready, as at the beginning and the end of that
		c, g := newGuarded(t, 5, map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "20s"})
		g.Edit(newer)
		c.Until(50, func() bool { return simulated.Count(c.Writes, "patch pods/resize") == 1 })
		c.Rounds(10)
		for _, n := range []int32{5, 0} {
			c.Judge = func(*corev1.Pod, version) simulated.Outcome { return simulated.Outcome{Unready: true} }
			c.Crash(c.Pods["web-4"], false)
			c.Rounds(downWhile)
			c.change(func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.Partition = &n })
			c.Rounds(3)
			c.Judge = nil
			c.Rounds(300)
		}
		c.completes(t, "the canary was kept back")
	}
}

// TestFlapsAndIsKeptBack: one that is Ready again and again, and does not stay so, fails all the same.
func TestFlapsAndIsKeptBack(t *testing.T) {
	c, g := newGuarded(t, 5, map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "20s"})
	g.Edit(newer)
	for i := 0; i < 100 && !simulated.Stopped(condition(c.Set)); i++ {
		n := int32(5 * (i % 2))
		c.change(func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.Partition = &n })
		c.Rounds(5)
		c.Crash(c.Pods["web-4"], false)
	}
	if have := condition(c.Set); !simulated.Stopped(have) {
		t.Errorf("it says %+v", have)
	}
}

// TestGuardedRestarts: where only new pods can have the size, one of them is the canary.
func TestGuardedRestarts(t *testing.T) {
	c, g := newGuarded(t, 3, nil)
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
	c, g := newGuarded(t, 3, map[string]string{
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
	c, g := newGuarded(t, 3, nil)
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

// hostile is a guarded set of three pods that never have more than most pods with the failing size.
func hostile(t *testing.T, annotations map[string]string) (*cluster, simulated.Guarded, func() []string) {
	t.Helper()
	c, g := newGuarded(t, 3, nil)
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

// A canary that was not Ready before, and is not Ready with its size, has the others wait for maxUnavailable, and they say so.
func TestCanaryNotReadyBefore(t *testing.T) {
	c, g := newGuarded(t, 3, map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "2s"})
	c.Crash(c.Pods["web-2"], true)
	c.Judge = func(pod *corev1.Pod, _ version) simulated.Outcome {
		return simulated.Outcome{Unready: pod.Name == "web-2"}
	}
	g.Edit(newer)
	c.Rounds(100)
	if m := g.Condition().Message; len(g.Sized(newer)) != 1 || !strings.Contains(m, "web-2: not Ready at its new size, for more than 30s; as it counts against maxUnavailable, the others wait") {
		t.Errorf("%v have the size: %s", g.Sized(newer), m)
	}
}

// restartedOnce has each pod have restarted once, when it came up long ago.
func (c *cluster) restartedOnce() {
	for name := range c.Pods {
		pod := c.Pods[name].DeepCopy()
		s, at := &pod.Status.ContainerStatuses[0], c.Clock.Now().Add(-30*24*time.Hour)
		s.RestartCount, s.State.Running = 1, &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at)}
		s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
			Reason: "Error", ExitCode: 1, StartedAt: metav1.NewTime(at.Add(-3 * time.Second)), FinishedAt: metav1.NewTime(at), ContainerID: "run://first",
		}
		c.WritePod(pod)
	}
}

// A pod that was restarted once when it came up, and has run well for long, has failed if it is OOMKilled with its size.
func TestHostileCrashAtStartup(t *testing.T) {
	c, g, had := hostile(t, nil)
	c.restartedOnce()
	c.Kills = func(pod *corev1.Pod, v version) bool {
		return v.CPU == newer.CPU && pod.Status.ContainerStatuses[0].RestartCount == 1
	}
	c.Rounds(5)
	g.Edit(newer)
	g.Stops(t, had)
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

func (c *cluster) completes(t *testing.T, what string) {
	t.Helper()
	if c.Until(300, func() bool { return condition(c.Set).Complete() }); !condition(c.Set).Complete() {
		t.Fatalf("the setup, %s: %+v", what, condition(c.Set))
	}
}

// The size has the only pod be evicted again and again: more are lost than the canary has.
func TestHostileEvictedAlone(t *testing.T) {
	for _, replicas := range []int{1, 3} {
		c, g := newGuarded(t, replicas, map[string]string{
			api.CanaryAnnotation: "100%", api.CanaryDurationAnnotation: "20s", api.OnFailureAnnotation: policy.OnFailureRevert,
		})
		g.Edit(newer)
		if lost := g.Loses(300); len(lost) > 2*replicas || !simulated.Stopped(condition(c.Set)) {
			t.Errorf("%d replicas: %v have got the size, and were lost with it: %+v", replicas, lost, condition(c.Set))
		}
	}
}

// TestHostileDeletedAsTold: under OnDelete the user deletes the pods that the condition names, which can never have the size on their
// nodes. They are not lost by it, canary or not.
func TestHostileDeletedAsTold(t *testing.T) {
	set := webSet(older, 5)
	set.Spec.PodManagementPolicy, set.Spec.UpdateStrategy = appsv1.ParallelPodManagement, appsv1.StatefulSetUpdateStrategy{Type: "OnDelete"}
	c := newClusterOf(t, set, controller.Options{})
	g := c.guarded(t)
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "30s"})
	first := g.UIDs()
	c.Infeasible(func(pod *corev1.Pod) bool { return pod.Name > "web-1" && pod.UID == first[pod.Name] })
	g.Edit(newer)
	for range 60 {
		c.Rounds(6)
		for name := range maps.Clone(c.Pods) {
			if c := condition(c.Set); c != nil && strings.Contains(c.Message, name+": restarts when it is deleted") {
				g.DeletePod(name)
			}
		}
	}
	if have := condition(c.Set); !have.Complete() {
		t.Errorf("%+v", have)
	}
}

// An autoscaler takes away the canary after it has passed, and others come and go: a healthy rollout.
func TestHostileScaledInAfterPassing(t *testing.T) {
	c, g := newGuarded(t, 6, nil)
	g.CanaryPasses(t)
	for _, n := range []int32{4, 6, 3, 6} {
		c.change(func(set *appsv1.StatefulSet) { set.Spec.Replicas = ptr.To(n) })
		c.Rounds(12)
	}
	g.Completes(t)
}

// An autoscaler takes away the canary, and the one that takes its place: a healthy rollout.
func TestHostileScaledInTwice(t *testing.T) {
	c, g := newGuarded(t, 5, nil)
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "20s"})
	g.Edit(newer)
	for _, n := range []int32{4, 3, 2} {
		c.Until(20, func() bool { return len(g.Sized(newer)) > 0 })
		c.change(func(set *appsv1.StatefulSet) { set.Spec.Replicas = ptr.To(n) })
		c.Rounds(3)
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

// A pod that another edit has left with its image waits for the canary, which is restarted: the partition cannot pass those between.
func TestHostileImageBelow(t *testing.T) {
	c, g := newGuarded(t, 3, nil)
	g.Edit(otherImage)
	c.Until(100, func() bool {
		return simulated.VersionOf(&c.Pods["web-1"].Spec).Image == otherImage.Image && simulated.VersionOf(&c.Pods["web-0"].Spec).Image != otherImage.Image
	})
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: policy.Manual, api.ResizeActionAnnotation: string(policy.Restart)})
	v := otherImage
	v.CPU = newer.CPU
	g.Edit(v)
	before := len(g.Written())
	for range 60 {
		if c.Rounds(1); len(g.Sized(newer)) > 1 {
			break
		}
	}
	if sized, writes := g.Sized(newer), len(g.Written())-before; !slices.Equal(sized, []string{"web-2"}) || writes > 12 {
		t.Errorf("%v have the size, by %d writes %q: %+v", sized, writes, g.Written()[before:], g.Condition())
	}
	g.Promoted(t, 3)
}

func TestRejectedByKubelet(t *testing.T) {
	simulated.RejectedByKubelet(t, 1, func(t *testing.T) simulated.Guarded { return newCluster(t, 3, controller.Options{}).guarded(t) }, policy.OnFailureRevert)
}

// No other pod is restarted though the limits would let it, as long as one is rejected.
func TestRejectedBesideOthers(t *testing.T) {
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

// A pod behind the canary, above the user's partition, is lost, and the API server takes no pod of the old size any more.
func TestNoPodBehindTheCanary(t *testing.T) {
	c, g := newGuarded(t, 5, map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: policy.Manual})
	c.change(func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To[int32](1) })
	g.Edit(newer)
	g.Until(t, "asked", func() bool { return len(g.Sized(newer)) == 1 })
	c.refuses = func(pod *corev1.Pod) bool { return c.Of(pod) == older }
	c.DeletePod("web-2")
	c.Rounds(100)
	if have := g.Condition(); g.Phase() != rollout.PhaseCanary || !strings.Contains(have.Message, "web-2: waits for the canary: no pod of the older revision can be created") {
		t.Errorf("%s: %+v", g.Phase(), have)
	}
}

// What becomes of a pod above the partition after its rollout says nothing of the one below, when the partition is lowered.
func TestPartitionLoweredLater(t *testing.T) {
	for _, often := range []bool{false, true} {
		c, g := newGuarded(t, 5, nil)
		killed := func(pod *corev1.Pod) bool { return pod.Status.ContainerStatuses[0].RestartCount > 0 }
		c.Kills = func(pod *corev1.Pod, v version) bool {
			return pod.Name == "web-4" && (often || condition(c.Set).Complete() && v.CPU == newer.CPU && !killed(pod))
		}
		c.Rounds(30)
		g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "2s", api.OnFailureAnnotation: "Revert"})
		c.change(func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To[int32](2) })
		g.Edit(newer)
		c.completes(t, "above")
		g.Until(t, "killed", func() bool { return killed(c.Pods["web-4"]) })
		c.Rounds(60)
		c.change(func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To[int32](0) })
		c.Rounds(60)
		if have := g.Condition(); simulated.Stopped(have) || len(g.Sized(newer)) != 5 {
			t.Errorf("often %t: %v have the size: %+v", often, g.Sized(newer), have)
		}
	}
}

// After a retry, an autoscaler takes away more of the pods that have had the size for long than there are canaries.
func TestScaledInAfterRetry(t *testing.T) {
	c, g := newGuarded(t, 6, map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "20s"})
	c.Kills = func(pod *corev1.Pod, v version) bool { return pod.Name == "web-2" && v.CPU == newer.CPU }
	g.Edit(newer)
	g.Until(t, "stopped", func() bool { return simulated.Stopped(g.Condition()) })
	c.Mended = true
	c.Rounds(5)
	g.Annotate(map[string]string{api.RetryAnnotation: g.Name()})
	c.Rounds(4)
	g.Scale(3)
	g.Completes(t)
}
