package deployment

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/must"
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
		Meta:  func(change func(metav1.Object)) { c.change(func(d *appsv1.Deployment) { change(d) }) },
		Scale: func(replicas int32) { c.change(func(d *appsv1.Deployment) { d.Spec.Replicas = &replicas }) },
		Edit:  c.edit, Condition: func() *rollout.StoredCondition { return condition(&Deployment{Deployment: c.d}) }, Held: func() bool { return policy.Held(c.d) }, Annotations: func() map[string]string { return c.d.Annotations },
		Template:  func() simulated.Version { return simulated.VersionOf(&c.d.Spec.Template.Spec) },
		MayBeDown: func(n int) { c.change(func(d *appsv1.Deployment) { bounds(0, int32(n))(&scene{d: d}) }) },
	})
}

func newGuarded(t *testing.T, replicas int, change ...func(*appsv1.Deployment)) (*cluster, simulated.Guarded) {
	t.Helper()
	c := newCluster(t, replicas, controller.Options{}, change...)
	return c, c.guarded(t)
}

// bounded lets so many more pods be there, and so many be down.
func bounded(surge, unavailable int32) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { bounds(surge, unavailable)(&scene{d: d}) }
}

// TestGuardAndTwoReplicaSets: a size is edited while another image is rolled out, so that there are pods of two ReplicaSets.
func TestGuardAndTwoReplicaSets(t *testing.T) {
	c, g := newGuarded(t, 4)
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
		c, g := newGuarded(t, 4, bounded(0, 3))
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
		g.ToZero(4)
		if len(g.Sized(newer)) > asInt(onFailure == "") || len(c.Pods) < 4 || g.Phase() != phase { // another canary
			t.Errorf("%s: after a scaling to zero, %v have the size, and the phase is %s", onFailure, g.Sized(newer), g.Phase())
		}
		if onFailure == "" {
			g.Promoted(t, 4)
		}
	}
}

// TestGuardAndImage: while there are pods of two ReplicaSets, those that get another image have no canary, and stop nothing if they fail.
func TestGuardAndImage(t *testing.T) {
	c, g := newGuarded(t, 4)
	g.Edit(otherImage)
	c.Until(50, func() bool { return len(c.sets) == 2 && len(c.Pods) > 4 })
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "20s"})
	c.Kills = func(pod *corev1.Pod, v version) bool { return v.CPU == newer.CPU && pod.Generation == 1 } // was made with it
	v := otherImage
	v.CPU = newer.CPU
	g.Edit(v)
	for range 200 {
		if c.Rounds(1); simulated.Stopped(g.Condition()) {
			t.Fatalf("it is stopped: %+v", g.Condition())
		}
	}
	former := func(pod *corev1.Pod) bool { return simulated.VersionOf(&pod.Spec).Image != v.Image }
	if n := c.Having(former); n > 0 || g.Held() {
		t.Errorf("%d pods have the former image, held: %t: %+v", n, g.Held(), g.Condition())
	}
}

// TestGuardAndRecreate: pods that need a restart are restarted together, and wait for no promotion.
func TestGuardAndRecreate(t *testing.T) {
	c, g := newGuarded(t, 3, func(d *appsv1.Deployment) { recreate(&scene{d: d}) })
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
	c, g := newGuarded(t, 3, func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = &deadline })
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "20s", api.NotReadyTimeoutAnnotation: says})
	c.Judge = simulated.UnreadyWith(newer)
	g.Edit(newer)
	c.Rounds(18)
	if simulated.Stopped(g.Condition()) {
		t.Errorf("before 20 s: %+v", g.Condition())
	}
	c.Rounds(12)
	if have := g.Condition(); !simulated.Stopped(have) || !strings.Contains(have.Message, "was not Ready at its new size for more than 20s") {
		t.Errorf("after 20 s: %+v", have)
	}
}

// TestGuardAndUndo: kubectl rollout undo takes the annotations of a Deployment from the ReplicaSet, which may be from before it was guarded.
// It is guarded all the same.
func TestGuardAndUndo(t *testing.T) {
	c, g := newGuarded(t, 3)
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
		must.Equal(t, c.d.Annotations[key], want, "after the undo, %s", key)
	}
	c.Rounds(30)
	if n := len(c.Sized(older)); n != 1 || g.Phase() != rollout.PhaseCanary {
		t.Errorf("%d pods have gone back, want a canary: %+v", n, g.Condition())
	}
}

func hostile(t *testing.T, annotations map[string]string) (*cluster, simulated.Guarded) {
	t.Helper()
	c, g := newGuarded(t, 4)
	g.Doomed(policy.OnFailureHold)
	g.Annotate(annotations)
	return c, g
}

// Where no ReplicaSet has the size from before any more, no pod comes before a person acts.
func TestHostileScaledToZeroWithoutHistory(t *testing.T) {
	c, g := hostile(t, nil)
	c.change(func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = ptr.To[int32](0) })
	g.Edit(newer)
	c.Until(200, func() bool { return simulated.Stopped(g.Condition()) })
	g.ToZero(4)
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
			c, g := newGuarded(t, 4)
			for _, v := range edits {
				g.Edit(v)
				g.Completes(t)
			}
			had := edits[len(edits)-1]
			g.Doomed(policy.OnFailureHold)
			g.Edit(newer)
			c.Until(200, func() bool { return simulated.Stopped(g.Condition()) })
			g.ToZero(4)
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

// Where the kubelet rejects the new pod of a restarted canary, and the next ones, nothing is written before their ReplicaSet has the size
// from before again.
func TestHostileRejectedCanary(t *testing.T) {
	c, g, evicted := restarting(t, 4, 0, 1)
	c.Rejects = func(pod *corev1.Pod) bool { return simulated.SizeOf(pod).CPU == newer.CPU }
	g.Edit(newer)
	c.Until(50, func() bool { return evicted() == 1 })
	for range 5 { // until the controller looks
		g.Lives()
	}
	before := len(g.Written())
	c.Until(10, func() bool { g.Try(); return len(g.Written()) > before })
	if first := g.Written()[before]; !strings.HasPrefix(first, "patch replicasets ") {
		t.Errorf("the first write is to %s: %q", first, g.Written()[before:])
	}
	c.Until(50, func() bool { return simulated.Stopped(g.Condition()) })
}

// restarting is a Deployment whose canary is restarted, with that many pods, and what was evicted.
func restarting(t *testing.T, pods int, surge, unavailable int32) (c *cluster, g simulated.Guarded, evicted func() int) {
	t.Helper()
	c, g = newGuarded(t, pods, bounded(surge, unavailable))
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: policy.Manual, api.ResizeActionAnnotation: string(policy.Restart)})
	return c, g, func() int { return simulated.Count(g.Written(), "eviction") }
}

func (c *cluster) takenOut() (uids []types.UID) {
	for _, pod := range c.Pods {
		if isDetached(pod) {
			uids = append(uids, pod.UID)
		}
	}
	return uids
}

// A canary that is detached until its new pod is available stays where the edit is taken back meanwhile, and goes where the Deployment is
// scaled to zero.
func TestHostileDetached(t *testing.T) {
	for _, pods := range []int{1, 3} {
		for name, end := range map[string]func(simulated.Guarded){
			"edited back": func(g simulated.Guarded) { g.Edit(older) }, "scaled to zero": func(g simulated.Guarded) { g.Scale(0) },
		} {
			c, g, _ := restarting(t, pods, 1, 0)
			c.Judge = simulated.UnreadyWith(newer)
			g.Edit(newer)
			c.Until(100, func() bool { return len(c.takenOut()) == 1 && len(g.Sized(newer)) == 1 })
			before := c.takenOut()
			c.Rounds(1) // the ReplicaSet has the size from before again
			end(g)
			c.Rounds(60)
			if name == "scaled to zero" {
				if len(c.Pods) > 0 {
					t.Errorf("%s: %v are left: %+v", name, slices.Collect(maps.Keys(c.Pods)), g.Condition())
				}
				continue
			}
			if g.Completes(t); !slices.Contains(slices.Collect(maps.Values(c.UIDs())), before[0]) || len(c.Pods) != pods || len(c.takenOut()) > 0 {
				t.Errorf("%s: %v was detached, and of %d pods there are %v", name, before, pods, c.UIDs())
			}
		}
	}
}

// Where the edit is taken back, the pod goes that has come in the place of the detached canary, also where the ReplicaSet controller would
// choose another one; and the detached one goes back where a budget keeps that pod. Where admission keeps the detached one from going back,
// no other pod goes for it.
func TestHostileGivenBack(t *testing.T) {
	for _, refused := range []string{"", "eviction", "labels"} {
		c, g, evicted := restarting(t, 3, 1, 0)
		c.Judge = func(*corev1.Pod, version) simulated.Outcome { return simulated.Outcome{} }
		g.Edit(newer)
		c.Until(100, func() bool {
			sized := g.Sized(newer)
			return len(c.takenOut()) == 1 && len(sized) == 1 && podutils.IsPodReady(c.Pods[sized[0]])
		})
		before, out := c.takenOut(), ""
		for _, name := range g.Sized(older) {
			cheap := c.Pods[name].DeepCopy()
			cheap.Annotations = map[string]string{corev1.PodDeletionCost: "-1"}
			c.WritePod(cheap)
			if before = append(before, cheap.UID); isDetached(cheap) {
				out = name
			}
		}
		switch refused {
		case "eviction":
			c.budget = 1
		case "labels":
			c.Refuse("patch pods "+out, apierrors.NewForbidden(corev1.Resource("pods"), out, errors.New("no")), 1000)
		}
		g.Edit(older)
		c.Rounds(60)
		if refused == "labels" {
			if evicted() > 2 { // the one that came, and at last the detached one, when another has come
				t.Errorf("%d pods go for one that cannot go back: %q", evicted(), g.Written())
			}
			continue
		}
		g.Completes(t)
		left := c.Having(func(pod *corev1.Pod) bool { return slices.Contains(before, pod.UID) })
		if len(c.Pods) != 3 || len(c.takenOut()) > 0 || refused == "" && left != 3 {
			t.Errorf("refused %q: %d of 3 old pods are left, of %v: %q", refused, left, c.UIDs(), g.Written())
		}
	}
}

// A detached canary whose new pod goes is given back, and restarted anew, once; and one that has its size from before in its spec alone
// is restarted after an edit back. Neither goes on for ever.
func TestHostileDetachedLoops(t *testing.T) {
	for _, pods := range []int{1, 3} {
		c, g, _ := restarting(t, pods, 1, 0)
		g.Edit(newer)
		c.Until(100, func() bool { return len(c.takenOut()) == 1 && len(g.Sized(newer)) == 1 })
		c.Rounds(1)
		c.DeletePod(g.Sized(newer)[0])
		before := len(g.Written())
		c.Rounds(60)
		if writes := len(g.Written()) - before; len(g.Sized(newer)) != 1 || len(c.takenOut()) > 0 || writes > 12 {
			t.Errorf("its new pod is gone: %v have the size, %v are detached, after %d writes %q: %+v", g.Sized(newer), c.takenOut(), writes, g.Written()[before:], g.Condition())
		}

		c, g = newGuarded(t, pods, bounded(1, 0))
		g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "30s"})
		c.Infeasible(func(*corev1.Pod) bool { return true })
		g.Edit(newer)
		c.Until(200, func() bool {
			return slices.ContainsFunc(slices.Collect(maps.Values(c.Pods)), func(pod *corev1.Pod) bool { return simulated.AppliedSize(pod).CPU == newer.CPU })
		})
		c.Rounds(3)
		g.Edit(older)
		before = len(g.Written())
		if g.Completes(t); len(g.Written())-before > 60 {
			t.Errorf("edited back, %d writes %q", len(g.Written())-before, g.Written()[before:])
		}
	}
}

// A canary is restarted once, also where all pods are Ready again after its new pod was rejected, or that cannot come.
func TestHostileRestartedOnce(t *testing.T) {
	for _, unavailable := range []int32{1, 3} {
		for name, begin := range map[string]func(*cluster){
			"rejected": func(c *cluster) {
				c.Rejects = func(pod *corev1.Pod) bool { return simulated.SizeOf(pod).CPU == newer.CPU }
			},
			"never made":   func(c *cluster) { c.noPods = true },
			"never Ready":  func(c *cluster) { c.Judge = simulated.UnreadyWith(newer) },
			"well with it": func(*cluster) {},
		} {
			c, g, evicted := restarting(t, 5, 0, unavailable)
			begin(c)
			g.Edit(newer)
			if name == "rejected" { // while the controller looks elsewhere, all pods become Ready again
				c.Until(50, func() bool { return evicted() == 1 })
				for len(g.Sized(newer)) == 0 {
					g.Lives()
				}
				for g.Try(); len(g.Sized(older)) < 5; {
					g.Lives()
				}
			}
			if c.Rounds(100); evicted() != 1 {
				t.Errorf("%s, maxUnavailable %d: %d evictions, want 1: %+v %q", name, unavailable, evicted(), g.Condition(), g.Written())
			}
			must.Equal(t, simulated.Stopped(g.Condition()), name == "rejected", "%s, maxUnavailable %d: stopped, %+v", name, unavailable, g.Condition())
		}
	}
}

// A canary that goes with others as the Deployment is scaled in, or before it is asked for the size, is not lost by it, and is forgotten.
func TestHostileScaledIn(t *testing.T) {
	c, g := newGuarded(t, 6)
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "10m"})
	canaries := func() []rollout.Canary { return must.Get(rollout.ReadRecord(c.d.Annotations))(t).Canaries }
	g.Edit(newer)
	c.Until(200, func() bool { return len(g.Sized(newer)) == 1 && canaries()[0].Done != nil })
	changed, first, second := c.Changed, canaries()[0].Name, ""
	c.Changed = func(object runtime.Object, gone bool) {
		changed(object, gone)
		if all := canaries(); len(all) > 0 && all[0].Name != first && second == "" {
			second = all[0].Name
			c.DeletePod(second)
		}
	}
	g.Scale(4)
	c.DeletePod(first)
	c.Rounds(30)
	if all := canaries(); simulated.Stopped(g.Condition()) || len(g.Sized(newer)) != 1 || second == "" || len(all) != 1 || all[0].Name == second {
		t.Errorf("%v have the size, recorded %+v: %+v", g.Sized(newer), all, g.Condition())
	}
}

// The ReplicaSet controller deletes the canaries, and others, because fewer pods are wanted: others take their places, but not before it is
// known which pods stay.
func TestHostileScaledInSlowly(t *testing.T) {
	c, g := newGuarded(t, 8, bounded(0, 2))
	g.Annotate(map[string]string{api.CanaryAnnotation: "2", api.CanaryDurationAnnotation: "20s"})
	g.Edit(newer)
	c.Until(20, func() bool { return len(g.Sized(newer)) == 2 })
	canaries := g.Sized(newer)
	others := slices.DeleteFunc(c.names(), func(name string) bool { return slices.Contains(canaries, name) })
	meanwhile := func(does func()) {
		c.Client.Lock()
		does()
		c.Client.Unlock()
		c.Sees()
		if _, err := c.Sync(); err != nil && !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
		c.Sees()
	}
	meanwhile(func() {
		c.user(func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(3)) })
		for range 4 {
			c.dcSees(true, true)
			c.dcSync()
		}
	})
	for _, name := range append(canaries, others[3:]...) {
		meanwhile(func() { c.DeletePod(name) })
		must.Equal(t, simulated.Count(c.Writes, "patch pods/resize"), 2, "pods that are asked")
	}
	c.Rounds(100, apierrors.IsConflict)
	if have := g.Condition(); !have.Complete() || !slices.Equal(c.names(), others[:3]) || simulated.Count(c.Events, "Warning") > 0 {
		t.Errorf("%v: %+v; events %q", c.names(), have, c.Events)
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
	c, g, _ := restarting(t, 4, 1, 0)
	c.Judge = simulated.UnreadyWith(newer)
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
	g.Promoted(t, 4)
}

// While a budget refuses to let the canary go, what comes has the size from before.
func TestHostileBudget(t *testing.T) {
	c, g, _ := restarting(t, 4, 0, 1)
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

// TestHostileInfeasible: no node has room for any pod's new size. One is restarted as the canary, and what comes meanwhile has the size
// from before.
func TestHostileInfeasible(t *testing.T) {
	c, g := newGuarded(t, 4, bounded(0, 1))
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "1m"})
	c.Infeasible(func(*corev1.Pod) bool { return true })
	had := func() int {
		return c.Having(func(pod *corev1.Pod) bool { return simulated.AppliedSize(pod).CPU == newer.CPU })
	}
	g.Edit(newer)
	c.Until(400, func() bool { return had() == 1 })
	c.Rounds(5)
	c.DeletePod(slices.MinFunc(slices.Collect(maps.Values(c.Pods)), func(a, b *corev1.Pod) int {
		return cmp.Compare(asInt(simulated.AppliedSize(a).CPU == newer.CPU), asInt(simulated.AppliedSize(b).CPU == newer.CPU))
	}).Name) // was asked, too: it is no canary that has been lost
	c.Rounds(5)
	g.Scale(6)
	if c.Rounds(30); had() != 1 || len(c.Pods) != 6 {
		t.Errorf("%d of %d pods have the size: %+v", had(), len(c.Pods), g.Condition())
	}
	if g.Completes(t); had() != 6 {
		t.Errorf("complete, %d pods have the size", had())
	}
}

func TestRejectedByKubelet(t *testing.T) {
	simulated.RejectedByKubelet(t, 1, func(t *testing.T) simulated.Guarded {
		return newCluster(t, 3, controller.Options{}, bounded(0, 1)).guarded(t)
	}, policy.OnFailureHold, policy.OnFailureRevert)
}

// A new pod that its kubelet has let in, beside another one that was rejected, goes back in place.
func TestRevertBesideRejected(t *testing.T) {
	c, g := newGuarded(t, 4, bounded(0, 2))
	g.Annotate(map[string]string{api.OnFailureAnnotation: policy.OnFailureRevert, api.CanaryAnnotation: "2"})
	c.Infeasible(func(pod *corev1.Pod) bool { return simulated.SizeOf(pod).CPU == newer.CPU })
	var letIn *corev1.Pod
	c.Rejects = func(pod *corev1.Pod) bool {
		letIn = cmp.Or(letIn, pod)
		return simulated.SizeOf(pod).CPU == newer.CPU && pod.UID != letIn.UID
	}
	g.Edit(newer)
	c.Rounds(60)
	pod := c.Pods[letIn.Name]
	if have, back := g.Condition(), c.Sized(older); have.Reason != judge.ReasonReverted || len(back) != 4 || pod.UID != letIn.UID || simulated.AppliedSize(pod).CPU != older.CPU {
		t.Errorf("%v have the size from before: %+v", back, have)
	}
}
