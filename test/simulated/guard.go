package simulated

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/podchecks"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
)

// Guarded is a world of any kind with the whole controller in it, of three pods of version [Former], for the trials of
// guarded rollouts.
type Guarded struct {
	*Cluster

	// Rounds lets everybody do one thing, n times.
	Rounds func(n int)
	// Lives lets the kubelets and the built-in controllers do one thing each.
	Lives func()
	// FailsNext has the nth write from now on fail, carried out or not, and Try is one round, which may fail.
	FailsNext func(nth int, carriedOut bool)
	Try       func() (failed bool)
	// DiesNext has the controller die with its next write, carried out or not.
	DiesNext func(carriedOut bool)
	// Restart has another controller take over, which remembers nothing.
	Restart func()
	// Cordon has the controller see that the nodes take no pods any more: what is deleted then is drained.
	Cordon func()
	// Meta changes the metadata of the workload, and Edit its template.
	Meta func(change func(metav1.Object))
	Edit func(v Version)
	// Scale sets the replicas; nil where there are none.
	Scale func(replicas int32)
	// MayBeDown lets so many pods be down at once; nil under OnDelete, a strategy that OnDelete sets, where there is one.
	MayBeDown func(n int)
	OnDelete  func()
	// Marks: the built-in controller takes a canary that has passed for updated once the workload is opted out.
	Marks bool
	// Condition is what the workload says, and Held whether it is held.
	Condition func() *rollout.StoredCondition
	Held      func() bool
	// Annotations of the workload.
	Annotations func() map[string]string
	// Template is the version that the workload wants.
	Template func() Version
	// Asks is what the controller has asked of checks.
	Asks *Asks
	// Recorded are the events, and Written the writes of the controller.
	Recorded, Written func() []string
}

// Annotate sets annotations.
func (g Guarded) Annotate(annotations map[string]string) {
	g.Meta(func(o metav1.Object) { o.SetAnnotations(labels.Merge(o.GetAnnotations(), annotations)) })
}

// OptOut takes the label away.
func (g Guarded) OptOut() { g.Meta(func(o metav1.Object) { delete(o.GetLabels(), api.EnabledLabel) }) }

// Stopped reports whether the condition says that a guarded rollout was stopped.
func Stopped(c *rollout.StoredCondition) bool {
	return c != nil && (c.Reason == judge.ReasonResizeFailed || c.Reason == judge.ReasonReverted)
}

// Phase of the guarded rollout, as it is recorded; empty if there is none.
func (g Guarded) Phase() rollout.Phase {
	if r, err := rollout.ReadRecord(g.Annotations()); err == nil && r != nil {
		return r.Phase
	}
	return ""
}

// Name of the rollout under way, by which it is promoted, or tried again; empty if it is not guarded.
func (g Guarded) Name() string {
	if r, err := rollout.ReadRecord(g.Annotations()); err == nil && r != nil {
		return r.Name()
	}
	return ""
}

// Newer, Former and Next differ in their cpu.
var (
	Former = Version{Image: 1, CPU: 1}
	Newer  = Version{Image: 1, CPU: 2}
	Next   = Version{Image: 1, CPU: 3}
)

// Guardedly is what a trial asks of a guarded rollout.
type guardedly struct {
	*testing.T
	Guarded

	before map[types.UID]bool
	asked  map[types.UID]bool // pods that have had the newer size
	lasts  int                // for how long what was stopped, or reverted, is looked at; a minute if 0
}

// Guarded returns the world for the trials of guarded rollouts. What only the kind knows is in of: how to annotate and edit the
// workload, and what it says.
func (h *Harness[W, K]) Guarded(t *testing.T, defaults policy.Defaults, of Guarded) Guarded {
	of.Cluster = h.cluster
	of.Rounds = func(n int) { t.Helper(); h.Rounds(n) }
	of.Lives = h.Lives
	of.Restart = func() {
		h.Fails, h.Dies = 0, false
		h.Start(h.Kind.Kind, controller.Options{Defaults: defaults})
	}
	of.DiesNext = func(carriedOut bool) { h.Fails, h.CarriedOut, h.Dies = len(h.Writes)+1, carriedOut, true }
	of.Cordon = func() {
		var cordoned []*corev1.Node
		for _, node := range h.Nodes.List() {
			node = node.DeepCopy()
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "drained", Effect: corev1.TaintEffectNoExecute}) // for DaemonSets, too
			cordoned = append(cordoned, node)
		}
		h.Nodes.Set(cordoned...)
	}
	of.FailsNext = func(nth int, carriedOut bool) { h.Fails, h.CarriedOut = len(h.Writes)+nth, carriedOut }
	of.Try = func() (failed bool) {
		t.Helper()
		h.Rounds(1, func(error) bool { failed = true; return true })
		return failed
	}
	of.Recorded, of.Written = func() []string { return h.Events }, func() []string { return h.Writes }
	return of
}

// eachGuardedWriteFails has each of the first writes of a revert fail once, carried out or not, and another controller take over
// after it, or not. At most one pod gets the size that fails, and it goes back. New makes a world.
func eachGuardedWriteFails(t *testing.T, new func() Guarded) {
	t.Helper()
	for offset := range 8 {
		for i := range 4 {
			carriedOut, restart := i&1 > 0, i&2 > 0
			g := new()
			had := g.Doomed(policy.OnFailureRevert)
			g.FailsNext(1+offset, carriedOut)
			g.Edit(Newer)
			for range 100 {
				failed := g.Try()
				if had(); failed && restart {
					g.Restart()
				}
			}
			if len(had()) > 1 || g.Condition().Reason != judge.ReasonReverted {
				t.Errorf("write %d, carried out %t, restart %t: %v have got it: %+v", offset, carriedOut, restart, had(), g.Condition())
			}
		}
	}
}

// GuardedRollouts tries what docs/guarded-rollouts.md promises of every kind. New makes a world of so many pods, with these checks.
func GuardedRollouts(t *testing.T, of func(t *testing.T, pods int, asks *Asks) Guarded) {
	t.Helper()
	new := func(t *testing.T, asks *Asks) Guarded { t.Helper(); return of(t, 3, asks) }
	plain := func(t *testing.T, pods int) Guarded { t.Helper(); return of(t, pods, NewAsks()) }
	t.Run("the only pod is the canary, and goes back", func(t *testing.T) { plain(t, 1).alone(t) })
	t.Run("pods that are drained after the canary has passed", func(t *testing.T) { plain(t, 6).drainedAfterPassing(t) })
	t.Run("each write fails", func(t *testing.T) {
		eachGuardedWriteFails(t, func() Guarded { return plain(t, 4) })
	})
	t.Run("a controller that takes over after each step, and one that dies with its first write", func(t *testing.T) {
		want, got := plain(t, 3).whenFollowed(t, false, false), plain(t, 3).whenFollowed(t, true, false)
		if want-got > 2*time.Second || got-want > 2*time.Second {
			t.Errorf("the others follow %s after the edit, want %s", got, want)
		}
		if got := plain(t, 3).whenFollowed(t, true, true); got < want-2*time.Second || got > 2*want {
			t.Errorf("where controllers die, the others follow %s after the edit, want %s, and not much more", got, want)
		}
	})
	for _, ahead := range skews {
		t.Run("the clock is ahead by "+ahead.String(), func(t *testing.T) {
			plain(t, 4).canaryLost(t, ahead)
			plain(t, 4).downUnseen(t, ahead)
			plain(t, 4).rescues(t, ahead)
		})
	}
	if plain(t, 1).Scale != nil {
		t.Run("it is scaled out in its canary", func(t *testing.T) { plain(t, 3).scaledOut(t) })
		t.Run("it is scaled to zero in its canary", func(t *testing.T) {
			for _, canary := range []string{"1", "30%"} {
				plain(t, 3).scaledToZero(t, canary)
			}
		})
		for _, onFailure := range []string{policy.OnFailureHold, policy.OnFailureRevert} {
			for _, next := range []string{"edit", "retry", "undo"} {
				t.Run("what follows it fails, too: "+onFailure+", "+next, func(t *testing.T) { plain(t, 3).failsAgain(t, onFailure, next) })
			}
		}
		t.Run("it is edited at zero", func(t *testing.T) { plain(t, 3).editedAtZero(t) })
	}
	if plain(t, 1).MayBeDown != nil {
		unguardedOnDelete(t, plain)
	}
	type trial struct {
		name string
		run  func(*guardedly)
	}
	trials := []trial{
		{"a canary that is well lets the others follow", (*guardedly).passes},
		{"a size that fails every pod stops at the first, whenever it comes back", (*guardedly).stops},
		{"also where the pod never is Ready again", (*guardedly).stopsUnready},
		{"a retry goes on, and stops again", (*guardedly).retries},
		{"also where the pod never is Ready again, and no other is asked", (*guardedly).retriesUnready},
		{"an undo is complete at once", (*guardedly).isUndone},
		{"a new edit is tried anew", (*guardedly).isEdited},
		{"an edit there and back is tried anew", (*guardedly).isEditedThereAndBack},
		{"a pod that was not Ready before has not failed", (*guardedly).isNotCured},
		{"one that was not is not followed by others that were not, either", (*guardedly).areNotCured},
		{"Revert goes back", (*guardedly).reverts},
		{"an edit during a revert is tried anew", (*guardedly).isEditedDuringRevert},
		{"what fails after the canary stops the rest", (*guardedly).stopsLater},
		{"without a canary a failure stops, too", (*guardedly).stopsWithoutCanary},
		{"without a canary each pod has to prove its size, and holds up no other", (*guardedly).provesWithoutCanary},
		{"a pod that was killed as often before has not failed", (*guardedly).curesAnyhow},
		{"one behind the canary that fails again with the next size stops it", func(g *guardedly) { g.failsAgainLater("1") }},
		{"also without a canary", func(g *guardedly) { g.failsAgainLater("") }},
		{"also one that is not Ready again", (*guardedly).isUnreadyAgainLater},
		{"a check that fails stops the rollout", (*guardedly).failsCheck},
		{"a check of which nothing is known stops nothing, and lets nothing pass", (*guardedly).knowsNothing},
		{"a manual canary waits for its promotion", (*guardedly).isPromoted},
		{"a pod that is Ready again and again, and does not stay so, stops it", (*guardedly).stopsFlapping},
		{"one that was not Ready once while nobody looked does not", (*guardedly).isNotReadyUnseen},
		{"one that was not Ready before keeps nobody by that", (*guardedly).isNotCuredFlapping},
		{"one that has proved its size may be not Ready for a moment", (*guardedly).isNotReadyLater},
		{"a canary of all pods goes back", (*guardedly).revertsAll},
		{"a canary of more pods than there are stops", (*guardedly).stopsAll},
		{"a canary has a minute, where nothing else is said", (*guardedly).hasAMinute},
		{"what was asked last goes back first", (*guardedly).revertsTheLastFirst},
		{"a pod that only a restart would bring back keeps its size", (*guardedly).revertsOrLeaves},
		{"a canary that was killed before anybody could say so stops it", (*guardedly).stopsKilledUnseen},
	}
	for _, onFailure := range []string{policy.OnFailureHold, policy.OnFailureRevert} {
		trials = append(trials, trial{"what guards it is taken away, and counts all the same, " + onFailure, func(g *guardedly) { g.isUnguarded(onFailure) }})
		for _, timeout := range []string{"", "5s"} {
			trials = append(trials, trial{"a pod that is not Ready at its size from before, either, keeps no other from going back, " + onFailure + timeout, func(g *guardedly) { g.goesBackBeside(onFailure, timeout) }})
		}
		trials = append(trials, trial{"what has failed is not proved by another edit, " + onFailure, func(g *guardedly) { g.isEditedBackToFailure(onFailure) }})
		for _, duration := range []string{"10m", policy.Manual} {
			trials = append(trials, trial{"an undo of the second edit is complete at once, " + onFailure + " " + duration, func(g *guardedly) { g.isUndoneToTheFirst(onFailure, duration) }})
		}
	}
	for _, trial := range trials {
		t.Run(trial.name, func(t *testing.T) {
			asks := NewAsks()
			g := &guardedly{T: t, Guarded: new(t, asks), before: map[types.UID]bool{}, asked: map[types.UID]bool{}}
			g.Asks = asks
			for _, uid := range g.UIDs() {
				g.before[uid] = true
			}
			trial.run(g)
			for _, pod := range g.Pods {
				if !g.before[pod.UID] {
					t.Errorf("pod %s is another one than before", pod.Name)
				}
			}
		})
	}
	t.Run("an edit of the image, too, is not guarded", func(t *testing.T) { new(t, NewAsks()).unguardedImage(t) })
}

// unguardedOnDelete tries what OnDelete makes no different, and what becomes of the workload if it comes.
func unguardedOnDelete(t *testing.T, of func(t *testing.T, pods int) Guarded) {
	t.Helper()
	t.Run("pods are lost with the size", func(t *testing.T) { of(t, 4).lost(t) })
	for annotation, value := range asksForRestarts {
		t.Run("pods that were restarted for their size are not restarted to go back, "+value, func(t *testing.T) { of(t, 3).revertsRestarted(t, annotation, value) })
	}
	t.Run("a canary that is made with the size, and is not Ready, fails as one that was resized", func(t *testing.T) { of(t, 3).madeNotReady(t) })
	for _, action := range []policy.Action{policy.LiveResize, policy.LiveResizePreferred} {
		for _, last := range []bool{false, true} {
			t.Run(fmt.Sprintf("one pod can never have the size on its node, %s, the last: %t", action, last), func(t *testing.T) { of(t, 4).neverResizes(t, action, last) })
		}
	}
	t.Run("containers restart on the way back where they did on the way forth", func(t *testing.T) { of(t, 3).revertsContainers(t) })
	if of(t, 1).Marks { // others go by the template from before
		t.Run("a pod goes back to what it had, which was not the first size", func(t *testing.T) { of(t, 4).revertsToTheSecond(t) })
	}
	for _, passed := range []bool{false, true} {
		t.Run(fmt.Sprintf("it is opted out, its canary has passed: %t", passed), func(t *testing.T) { of(t, 5).optedOut(t, passed) })
	}
	t.Run("admission gives new pods the limit that is removed", func(t *testing.T) { of(t, 3).givesBack(t) })
	t.Run("resized pods are deleted", func(t *testing.T) {
		deletedAfterResize(t, func(t *testing.T) Guarded {
			if g := of(t, 6); g.Scale == nil { // whoever is deleted comes back with the size
				return g
			}
			return of(t, 3)
		})
	})
}

// lost has every pod that gets the size be drained: one other follows the canary, and no third one. Where new pods have the newest size,
// none follows, and it is the canary again.
func (g Guarded) lost(t *testing.T) {
	t.Helper()
	before := slices.Collect(maps.Values(g.UIDs()))
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "20s"})
	g.Edit(Newer)
	lost := slices.DeleteFunc(g.Loses(200), func(uid types.UID) bool { return g.Scale == nil && !slices.Contains(before, uid) })
	if g.Scale != nil && (len(lost) != 2 || !Stopped(g.Condition())) || len(lost) > 2 || g.Scale == nil && len(lost) > 1 {
		t.Errorf("%v have got the size, one after the other, and were lost with it: %+v", lost, g.Condition())
	}
}

// neverResizes has one pod, the first that is asked or the last, be one whose node can never have the size: that does not keep the rollout
// for ever.
func (g Guarded) neverResizes(t *testing.T, action policy.Action, last bool) {
	t.Helper()
	never := ""
	g.Infeasible(func(pod *corev1.Pod) bool {
		if never == "" && SizeOf(pod).CPU == Newer.CPU && AppliedSize(pod).CPU != Newer.CPU && (!last || len(g.Sized(Newer)) == len(g.Pods)) {
			never = pod.Name
		}
		return pod.Name == never
	})
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "5s", api.ResizeActionAnnotation: string(action)})
	g.Edit(Newer)
	if g.Rounds(300); never == "" || len(g.Sized(Newer)) != len(g.Pods) || g.Condition().Complete() != (action == policy.LiveResizePreferred) {
		t.Errorf("all but %q could have the size, and %v have been asked: %+v", never, g.Sized(Newer), g.Condition())
	}
}

// whenFollowed returns how long after the edit another pod is asked than the canary. Where controllers take over, each lives for one
// round, and where they die, until its first write at most, which every second time is carried out.
func (g Guarded) whenFollowed(t *testing.T, takeOver, die bool) time.Duration {
	t.Helper()
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "30s"})
	g.Edit(Newer)
	began, canary := g.Clock.Now(), ""
	for life := range 400 {
		if takeOver {
			g.Restart()
		}
		if die {
			g.DiesNext(life%2 > 0)
		}
		if g.Try() && !die {
			t.Fatal("a step has failed")
		}
		sized := g.Sized(Newer)
		if canary == "" && len(sized) > 0 {
			canary = sized[0]
		}
		if len(sized) > 0 && !slices.Contains(sized, canary) {
			t.Errorf("%s was the canary, and %v have the size", canary, sized)
		}
		if len(sized) > 1 {
			return g.Clock.Now().Sub(began)
		}
	}
	t.Fatalf("the others never follow: %+v %q", g.Condition(), g.Written())
	return 0
}

// unguardedImage edits the image beside the size: the built-in controller makes the rollout, and waits for no promotion.
func (g Guarded) unguardedImage(t *testing.T) {
	t.Helper()
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: policy.Manual})
	v := Version{Image: 2, CPU: Newer.CPU}
	g.Edit(v)
	g.Rounds(10)
	if g.Condition().Has(judge.ReasonWaitingForDelete) { // under OnDelete
		for name := range maps.Clone(g.Pods) {
			g.DeletePod(name)
		}
	}
	g.Completes(t)
	for _, pod := range g.Pods {
		if is := VersionOf(&pod.Spec); is != v {
			t.Errorf("%s is of %v, want %v", pod.Name, is, v)
		}
	}
	if n := Count(g.Recorded(), " "+judge.EventCanaryStarted+" ") + Count(g.Written(), "patch pods/resize"); n > 0 {
		t.Errorf("there was a canary: %q %q", g.Recorded(), g.Written())
	}
}

// guard asks for a guarded rollout of the newer size.
func (g *guardedly) guard(annotations ...string) {
	g.Helper()
	all := map[string]string{}
	for i := 0; i < len(annotations); i += 2 {
		all[annotations[i]] = annotations[i+1]
	}
	g.Annotate(all)
	g.Edit(Newer)
}

// round lets everybody do one thing, and counts the pods that have the newer size, or are asked for it.
func (g *guardedly) round() {
	g.Helper()
	g.Rounds(1)
	for _, pod := range g.Pods {
		if SizeOf(pod).CPU == Newer.CPU {
			g.asked[pod.UID] = true
		}
	}
}

func (g *guardedly) rounds(n int, most int) {
	g.Helper()
	for range n {
		if g.round(); len(g.asked) > most {
			g.Fatalf("%d pods have been asked for the size, want %d at most: %s", len(g.asked), most, g.says())
		}
	}
}

// begins has rounds until a pod is asked.
func (g *guardedly) begins() {
	g.Helper()
	for range 100 {
		if g.rounds(1, 1); len(g.asked) > 0 {
			return
		}
	}
	g.Fatalf("no pod is asked: %s", g.says())
}

// until has rounds until the condition has a reason.
func (g *guardedly) until(reason string, most int) {
	g.Helper()
	for range 200 {
		if c := g.Condition(); c != nil && c.Reason == reason {
			return
		}
		g.rounds(1, most)
	}
	g.Fatalf("the reason is never %s: %s", reason, g.says())
}

func (g *guardedly) says() string { return fmt.Sprintf("%+v, writes %q", g.Condition(), g.Written()) }

// sizes counts the pods that have a size.
func (g *guardedly) sizes(v Version) int {
	return g.Having(func(pod *corev1.Pod) bool { return AppliedSize(pod).CPU == v.CPU && SizeOf(pod).CPU == v.CPU })
}

// Having is how many pods are so.
func (c *Cluster) Having(so func(*corev1.Pod) bool) int {
	return build.Count(slices.Collect(maps.Values(c.Pods)), so)
}

// UnreadyWith has pods not be Ready while they have the cpu of a version.
func UnreadyWith(size Version) func(*corev1.Pod, Version) Outcome {
	return func(_ *corev1.Pod, v Version) Outcome { return Outcome{Unready: v.CPU == size.CPU} }
}

func (g *guardedly) recorded(event string, want int) {
	g.Helper()
	if n := Count(g.Recorded(), " "+event+" "); n != want {
		g.Errorf("%d events %s, want %d: %q", n, event, want, g.Recorded())
	}
}

// killing has every pod be killed that has the newer size.
func (g *guardedly) killing(these func(*corev1.Pod) bool) {
	g.Kills = func(pod *corev1.Pod, v Version) bool { return v.CPU == Newer.CPU && these(pod) }
}

// Doomed has every container be killed that has the newer cpu, and asks for a canary of one pod. It returns which pods
// have had that size since, whenever it is called.
func (g Guarded) Doomed(onFailure string) (had func() []string) {
	g.Kills = func(_ *corev1.Pod, v Version) bool { return v.CPU == Newer.CPU }
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "20s", api.OnFailureAnnotation: onFailure})
	seen := map[string]bool{}
	return func() []string {
		for name, pod := range g.Pods {
			if SizeOf(pod).CPU == Newer.CPU {
				seen[name] = true
			}
		}
		return slices.Sorted(maps.Keys(seen))
	}
}

// Loses has rounds, in which each pod is drained as soon as it has the size. It returns which those were.
func (g Guarded) Loses(rounds int) (lost []types.UID) {
	g.Cordon()
	for range rounds {
		g.Rounds(1)
		for name, pod := range maps.Clone(g.Pods) {
			if AppliedSize(pod).CPU == Newer.CPU && pod.DeletionTimestamp == nil {
				lost = append(lost, pod.UID)
				g.DeletePod(name)
			}
		}
	}
	return lost
}

// Sized are the names of the pods whose spec has a size, but for those that are about to go.
func (c *Cluster) Sized(v Version) (names []string) {
	for name, pod := range c.Pods {
		if SizeOf(pod).CPU == v.CPU && pod.DeletionTimestamp == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// CanaryPasses edits the size with a canary of one pod, which passes.
func (g Guarded) CanaryPasses(t *testing.T) {
	t.Helper()
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "20s"})
	g.Edit(Newer)
	g.Until(t, "passed", func() bool { return Count(g.Recorded(), " "+judge.EventCanaryPassed+" ") > 0 })
	g.Rounds(2)
}

// Until has rounds until it is so.
func (g Guarded) Until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 200 {
		if is() {
			return
		}
		g.Rounds(1)
	}
	t.Fatalf("never %s: %+v", what, g.Condition())
}

// Drain deletes the pods that have the newer size, from nodes that take no more.
func (g Guarded) Drain() {
	g.Cordon()
	for _, name := range g.Sized(Newer) {
		g.DeletePod(name)
	}
}

// drainedAfterPassing has the pods with the size be drained twice after the canary has passed. They were not lost before they had
// proved it: the rollout is complete in the end.
func (g Guarded) drainedAfterPassing(t *testing.T) {
	t.Helper()
	g.CanaryPasses(t)
	for range 2 {
		g.Drain()
		g.Rounds(5)
	}
	g.Completes(t)
}

// Completes has rounds until a rollout that nothing stops must be complete.
func (g Guarded) Completes(t *testing.T) {
	t.Helper()
	g.Rounds(400)
	if have := g.Condition(); Stopped(have) || !have.Complete() {
		t.Errorf("the canary has passed, and the condition says %+v", have)
	}
}

// Promoted has it be promoted, and complete with that many pods of the newer size.
func (g Guarded) Promoted(t *testing.T, pods int) {
	t.Helper()
	g.Annotate(map[string]string{api.PromoteAnnotation: g.Name()})
	if g.Completes(t); len(g.Sized(Newer)) != pods {
		t.Errorf("promoted, %v have the size", g.Sized(Newer))
	}
}

// ToZero has it be scaled to zero, and up again.
func (g Guarded) ToZero(replicas int32) {
	for _, n := range []int32{0, replicas} {
		g.Scale(n)
		g.Rounds(20)
	}
}

// canaryLost has the canary be drained, and all other pods go down, some time after the edit. They are not asked at once: each of
// them was well with its size from before. No more than one pod at a time has the size, however far the clock of the API server
// is ahead of that of the kubelets, or behind.
func (g Guarded) canaryLost(t *testing.T, ahead time.Duration) {
	t.Helper()
	g.Ahead = ahead
	g.Doomed(policy.OnFailureHold)
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "20s"})
	g.Edit(Newer)
	g.Until(t, "a canary", func() bool { return len(g.Sized(Newer)) > 0 })
	canary := g.Sized(Newer)
	g.Cordon()
	for name, pod := range maps.Clone(g.Pods) {
		if slices.Contains(canary, name) {
			g.DeletePod(name)
		} else {
			g.Crash(pod, true)
		}
	}
	g.Judge = func(*corev1.Pod, Version) Outcome { return Outcome{Unready: true} }
	g.AtMostOne(t, 15, func() []string { return g.Sized(Newer) })
	if len(canary) != 1 || len(g.Sized(Newer)) != 1 {
		t.Errorf("the canaries were %v, and then %v: %+v", canary, g.Sized(Newer), g.Condition())
	}
}

// skews are by how much the clock of the API server may be ahead of those of the kubelets.
var skews = []time.Duration{0, resize.ClockSkew - 2*time.Second, 2*time.Second - resize.ClockSkew}

// downUnseen has all pods go down some time after the edit, and before the controller looks at it. Nobody knows of them that the
// size can only do them good: one gets it.
func (g Guarded) downUnseen(t *testing.T, ahead time.Duration) {
	t.Helper()
	g.Ahead = ahead
	g.Doomed(policy.OnFailureHold)
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "20s"})
	g.Edit(Newer)
	for range 20 {
		g.Lives()
	}
	for _, pod := range maps.Clone(g.Pods) {
		g.Crash(pod, true)
	}
	g.Judge = func(*corev1.Pod, Version) Outcome { return Outcome{Unready: true} }
	g.Lives()
	for range 15 { // the first time, it has not seen the newest version of the workload
		if g.Try(); len(g.Sized(Newer)) > 1 {
			t.Fatalf("%v have the size, want one: %+v %q", g.Sized(Newer), g.Condition(), g.Written())
		}
	}
	if len(g.Sized(Newer)) != 1 {
		t.Errorf("%v have the size: %+v", g.Sized(Newer), g.Condition())
	}
}

// rescues has all pods be down for longer than clocks may differ, with a size that cures them: they need not wait for a canary.
func (g Guarded) rescues(t *testing.T, ahead time.Duration) {
	t.Helper()
	g.Ahead = ahead
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "10m"})
	g.Rounds(5)
	for _, pod := range maps.Clone(g.Pods) {
		g.Crash(pod, true)
	}
	g.Rounds(int(2 * resize.ClockSkew / time.Second))
	g.Edit(Newer)
	g.Rounds(8)
	if n := len(g.Sized(Newer)); n != len(g.Pods) {
		t.Errorf("%d of %d pods that were down have the size: %+v", n, len(g.Pods), g.Condition())
	}
}

// scaledToZero has the workload be scaled to zero in the midst of its canary, and up again. Its pods are of the size from before
// then, and one of them is the next canary: many would have a size that nobody has proved.
func (g Guarded) scaledToZero(t *testing.T, canary string) {
	t.Helper()
	g.Annotate(map[string]string{api.CanaryAnnotation: canary, api.CanaryDurationAnnotation: "20s"})
	g.Edit(Newer)
	g.Until(t, "a canary", func() bool { return len(g.Sized(Newer)) > 0 })
	g.Scale(0)
	g.Rounds(60)
	if c := g.Condition(); len(g.Pods) > 0 || g.Phase() != rollout.PhaseCanary || !g.Held() {
		t.Fatalf("%d pods, held: %t, and the condition says %+v", len(g.Pods), g.Held(), c)
	}
	g.Scale(3)
	g.AtMostOne(t, 20, func() []string { return g.Sized(Newer) })
	g.Completes(t)
}

// scaledOut has an autoscaler scale out while a canary is under way. The new pods are of the size from before.
func (g Guarded) scaledOut(t *testing.T) {
	t.Helper()
	had := g.Doomed(policy.OnFailureRevert)
	g.Edit(Newer)
	g.Rounds(3)
	g.Scale(6)
	g.AtMostOne(t, 150, had)
	if c := g.Condition(); c.Reason != judge.ReasonReverted || len(g.Pods) != 6 {
		t.Errorf("%d pods, and the condition says %+v", len(g.Pods), c)
	}
}

// failsAgain has the pods be OOMKilled with one size, and after runs of the same length with what follows it: that they were killed with
// an unproved size says nothing of how they were before.
func (g Guarded) failsAgain(t *testing.T, onFailure, next string) {
	t.Helper()
	g.Doomed(onFailure)
	g.Kills = func(_ *corev1.Pod, v Version) bool { return v.CPU == Newer.CPU || v.CPU == Next.CPU }
	g.Edit(Newer)
	g.Until(t, "stopped", func() bool { return Stopped(g.Condition()) })
	g.Rounds(30)
	of := map[string]Version{"edit": Next, "retry": Newer, "undo": Next}[next]
	switch next {
	case "retry":
		g.Annotate(map[string]string{api.RetryAnnotation: g.Name()})
	case "undo":
		g.Edit(Former)
		g.Rounds(60)
		fallthrough
	default:
		g.Edit(Next)
	}
	g.AtMostOne(t, 150, func() []string { return g.Sized(of) })
	if have := g.Condition(); !Stopped(have) {
		t.Errorf("%+v", have)
	}
}

// editedAtZero has the workload be scaled to zero when its rollout is stopped, and up again: its pods are as they were before. Then
// it is edited while it is scaled to zero. There is no pod to be a canary, and nothing to wait for: the
// edit is complete at once, and its pods come with its size, also with one that has failed before. The next edit is guarded.
func (g Guarded) editedAtZero(t *testing.T) {
	t.Helper()
	had := g.Doomed(policy.OnFailureRevert)
	g.Edit(Newer)
	g.Until(t, "stopped", func() bool { had(); return Stopped(g.Condition()) })
	g.ToZero(3)
	if len(g.Pods) != 3 || len(had()) != 1 || len(g.Sized(Newer)) > 0 || !Stopped(g.Condition()) || !g.Held() {
		t.Errorf("of %d pods, %v have had the size that has failed, held: %t: %+v", len(g.Pods), had(), g.Held(), g.Condition())
	}
	g.Scale(0)
	g.Rounds(20)
	for _, v := range []Version{Next, Newer} {
		g.Edit(v)
		if g.Rounds(10); !g.Condition().Complete() || g.Held() {
			t.Errorf("edited to %s without pods, held: %t, and the condition says %+v", v, g.Held(), g.Condition())
		}
	}
	g.Scale(3)
	if g.Rounds(60); len(g.Sized(Newer)) != 3 || Stopped(g.Condition()) {
		t.Errorf("of %d pods, %v have the size with which they are made: %+v", len(g.Pods), g.Sized(Newer), g.Condition())
	}
	g.Mended = true
	g.Rounds(20)
	g.Edit(Next)
	g.AtMostOne(t, 15, func() []string { return g.Sized(Next) })
	g.Completes(t)
}

// asksForRestarts are annotations by which a canary is restarted for its size; the empty one says nothing.
var asksForRestarts = map[string]string{api.ResizeActionAnnotation: string(policy.Restart), api.ResizePolicyAnnotation: "cpu=RestartOnly", "": ""}

// revertsRestarted has a canary that is made with the size fail: because the user wants restarts, or, with an empty annotation, because
// the resize is refused. No other pod is made to go back. It stays or, where that is allowed, is resized.
func (g Guarded) revertsRestarted(t *testing.T, annotation, value string) {
	t.Helper()
	g.MayBeDown(3)
	had := g.Doomed(policy.OnFailureRevert)
	back := annotation == ""
	if back {
		g.Judge = func(_ *corev1.Pod, v Version) Outcome { return Outcome{Refused: v.CPU == Newer.CPU} }
	} else {
		g.Annotate(map[string]string{annotation: value})
	}
	before := g.UIDs()
	g.Edit(Newer)
	g.AtMostOne(t, 40, had)
	after := g.UIDs()
	g.AtMostOne(t, 60, had)
	left := 0
	for _, was := range before {
		for _, is := range after {
			left += asInt(was == is)
		}
	}
	c := g.Condition()
	if left != len(before)-1 || !maps.Equal(after, g.UIDs()) || len(had()) != 1 || c.Reason != judge.ReasonReverted {
		t.Errorf("%v have had the size, the pods were %v, then %v, and are %v: %+v", had(), before, after, g.UIDs(), c)
	}
	if len(g.Sized(Former)) == len(before) != back || strings.Contains(c.Message, "left as it is, because only a restart would bring it back") == back {
		t.Errorf("%v have the size from before, want all: %t: %+v", g.Sized(Former), back, c)
	}
}

// madeNotReady has a restarted canary not be Ready: it fails when it has been so for the timeout, however long it would have to be Ready.
func (g Guarded) madeNotReady(t *testing.T) {
	t.Helper()
	g.MayBeDown(1)
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "1h", api.NotReadyTimeoutAnnotation: "20s", api.ResizeActionAnnotation: string(policy.Restart)})
	g.Edit(Newer)
	g.Until(t, "made", func() bool { return len(g.Sized(Newer)) == 1 })
	made := g.Pods[g.Sized(Newer)[0]]
	g.Broken[made.UID] = SizeOf(made)
	g.Rounds(15)
	if Stopped(g.Condition()) {
		t.Errorf("before 20 s: %+v", g.Condition())
	}
	g.Rounds(20)
	if c := g.Condition(); !Stopped(c) || !strings.Contains(c.Message, "was not Ready at its new size for more than 20s") || len(g.Sized(Newer)) != 1 {
		t.Errorf("after 20 s: %+v", c)
	}
}

// revertsToTheSecond has a canary of a third size fail, which has been one of the second size, and has passed: it goes back to that.
func (g Guarded) revertsToTheSecond(t *testing.T) {
	t.Helper()
	g.Doomed(policy.OnFailureRevert)
	g.Edit(Next)
	g.Until(t, "passed", func() bool { return Count(g.Recorded(), " "+judge.EventCanaryPassed+" ") > 0 })
	g.Rounds(2)
	second := g.Sized(Next)
	g.Edit(Newer)
	g.Until(t, "reverted", func() bool { return g.Condition().Reason == judge.ReasonReverted })
	g.Rounds(60)
	if !slices.Equal(g.Sized(Next), second) {
		t.Errorf("%v had the second size, and %v have it: %+v", second, g.Sized(Next), g.Condition())
	}
}

// revertsContainers has a canary fail whose container has restarted for its size: it goes back in the same way, and no pod is replaced.
func (g Guarded) revertsContainers(t *testing.T) {
	t.Helper()
	g.MayBeDown(1)
	former, newer := Version{Image: restarting, CPU: 1, Memory: 1}, Version{Image: restarting, CPU: 1, Memory: 2}
	g.Edit(former)
	g.Completes(t)
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "20s", api.OnFailureAnnotation: policy.OnFailureRevert})
	g.Kills = func(_ *corev1.Pod, v Version) bool { return v.Memory == newer.Memory }
	before, resizes := g.UIDs(), Count(g.Written(), "patch pods/resize")
	g.Edit(newer)
	g.Rounds(60)
	if c := g.Condition(); c.Reason != judge.ReasonReverted || len(g.Sized(Version{CPU: 1, Memory: 1})) != len(before) || !maps.Equal(before, g.UIDs()) {
		t.Errorf("the pods were %v, and are %v: %+v", before, g.UIDs(), c)
	}
	if n := Count(g.Written(), "patch pods/resize") - resizes; n != 2 {
		t.Errorf("%d resizes, want one, and one back", n)
	}
}

// optedOut has the workload be opted out when its canary has the size, or has passed: the built-in controller replaces the others, and
// the canary, unless that has passed, and it takes it for updated.
func (g Guarded) optedOut(t *testing.T, passed bool) {
	t.Helper()
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "20s"})
	g.Edit(Newer)
	g.Until(t, "a canary", func() bool { return len(g.Sized(Newer)) > 0 })
	canary := g.Sized(Newer)[0]
	if passed {
		g.Until(t, "passed", func() bool { return Count(g.Recorded(), " "+judge.EventCanaryPassed+" ") > 0 })
		g.Rounds(2)
	} else {
		g.Rounds(8) // it is well by now
	}
	before := g.UIDs()
	g.OptOut()
	g.Until(t, "all of the size", func() bool { return len(g.Sized(Former)) == 0 && len(g.Sized(Newer)) == len(before) })
	g.Rounds(3)
	after := slices.Collect(maps.Values(g.UIDs()))
	for name, uid := range before {
		stays := slices.Contains(after, uid)
		if want := passed && g.Marks; name == canary && stays != want || name != canary && stays && !passed { // others may have been asked
			t.Errorf("%s is there still: %t; the canary was %s, and it is to stay: %t", name, stays, canary, want)
		}
	}
}

// alone has the only pod of a workload get a size that fails, and go back; and then one with which it is well.
func (g Guarded) alone(t *testing.T) {
	t.Helper()
	had, before := g.Doomed(policy.OnFailureRevert), g.UIDs()
	g.Edit(Newer)
	g.AtMostOne(t, 60, had)
	if c := g.Condition(); len(before) != 1 || len(had()) != 1 || len(g.Sized(Former)) != 1 || c.Reason != judge.ReasonReverted || !g.Held() {
		t.Errorf("%v have had the size, %v are back, held: %t, and the condition says %+v", had(), g.Sized(Former), g.Held(), c)
	}
	edited := g.Clock.Now()
	g.Edit(Next)
	for !g.Condition().Complete() && g.Clock.Now().Sub(edited) < 5*time.Minute {
		g.Rounds(1)
	}
	if took := g.Clock.Now().Sub(edited); took < 20*time.Second || !g.Condition().Complete() {
		t.Errorf("after %s, the condition says %+v", took, g.Condition())
	}
	if after := g.UIDs(); !maps.Equal(before, after) {
		t.Errorf("the pod was %v, and is %v", before, after)
	}
}

// AtMostOne has rounds, in which at most one pod has the size.
func (g Guarded) AtMostOne(t *testing.T, rounds int, had func() []string) {
	t.Helper()
	for range rounds {
		if g.Rounds(1); len(had()) > 1 {
			t.Fatalf("%v have the size, want one pod: %+v %q", had(), g.Condition(), g.Written())
		}
	}
}

// Stops has rounds until the rollout is stopped, and more. At most one pod has the size meanwhile. It returns which.
func (g Guarded) Stops(t *testing.T, had func() []string) string {
	t.Helper()
	g.AtMostOne(t, 150, had)
	if c := g.Condition(); c.Reason != judge.ReasonResizeFailed || len(had()) != 1 {
		t.Fatalf("%v have the size, and the condition says %+v", had(), c)
	}
	return had()[0]
}

func all(*corev1.Pod) bool { return true }

func (g *guardedly) passes() {
	g.guard(api.CanaryAnnotation, "1", api.CanaryDurationAnnotation, "20s")
	g.begins()
	g.rounds(20, 1)
	if c := g.Condition(); g.Phase() != rollout.PhaseCanary || !strings.Contains(c.Message, "1 of 3 pods resized") && !strings.Contains(c.Message, "0 of 3 pods resized") {
		g.Errorf("the canary is under way, and the condition says %+v", c)
	}
	began := g.Clock.Now()
	g.until(judge.ReasonComplete, 3)
	if took := g.Clock.Now().Sub(began); took < 20*time.Second {
		g.Errorf("complete %s after the canary: the others have to be well for as long, too", took)
	}
	if g.sizes(Newer) != 3 || g.Held() {
		g.Errorf("%d pods have the size, held: %t", g.sizes(Newer), g.Held())
	}
	g.recorded(judge.EventCanaryStarted, 1)
	g.recorded(judge.EventCanaryPassed, 1)
	g.recorded(judge.EventResizeFailed, 0)
}

// stopped checks that the rollout was stopped, and stays so.
func (g *guardedly) stopped(words string, most int) {
	g.Helper()
	g.until(judge.ReasonResizeFailed, most)
	n := len(g.asked)
	g.rounds(cmp.Or(g.lasts, 60), n)
	if c := g.Condition(); g.Phase() != rollout.PhaseStopped || !strings.Contains(c.Message, words) {
		g.Errorf("the condition says %q, want %q in it", c.Message, words)
	}
	if !g.Held() || g.Template() != Newer {
		g.Errorf("held: %t, template %v", g.Held(), g.Template())
	}
}

func (g *guardedly) stopsUnready() {
	g.Judge = UnreadyWith(Newer)
	g.guard(api.CanaryAnnotation, "1", api.OnFailureAnnotation, "Hold")
	g.stopped("was not Ready at its new size for more than 1m0s", 1)
}

// flapping has pods be not Ready in a quarter of the time, with the newer size.
func (g *guardedly) flapping(these func(*corev1.Pod) bool) {
	g.Judge = func(pod *corev1.Pod, v Version) Outcome {
		return Outcome{Unready: v.CPU == Newer.CPU && these(pod) && g.Clock.Now().Unix()%20 < 5}
	}
}

func (g *guardedly) stopsFlapping() {
	g.flapping(all)
	g.guard(api.CanaryAnnotation, "1", api.CanaryDurationAnnotation, "20s")
	for range 100 { // a minute for not being Ready, and twice the duration
		g.rounds(1, 1)
	}
	g.recorded(judge.EventResizeFailed, 0)
	g.stopped("has not stayed Ready for 20s with its size, for more than 1m40s", 1)
	g.recorded(judge.EventResizeFailed, 1)
}

// isNotReadyUnseen has the canary be not Ready for a moment after the controller has gone, which comes back long after that.
func (g *guardedly) isNotReadyUnseen() {
	g.guard(api.CanaryAnnotation, "1", api.CanaryDurationAnnotation, "20s")
	g.Until(g.T, "well", func() bool { return strings.Contains(g.Annotations()[api.RolloutAnnotation], `"well":`) })
	for _, g.Judge = range []func(*corev1.Pod, Version) Outcome{UnreadyWith(Newer), nil} {
		g.Clock.SetTime(g.Clock.Now().Add(time.Second))
		g.Kubelets()
	}
	g.Clock.SetTime(g.Clock.Now().Add(5 * time.Minute))
	g.Restart()
	g.until(judge.ReasonComplete, 3)
	g.recorded(judge.EventResizeFailed, 0)
}

func (g *guardedly) isNotCuredFlapping() {
	sick := slices.Min(slices.Collect(maps.Keys(g.Pods)))
	g.Crash(g.Pods[sick], true)
	g.flapping(func(pod *corev1.Pod) bool { return pod.Name == sick })
	g.guard(api.CanaryAnnotation, "1", api.CanaryDurationAnnotation, "20s")
	g.until(judge.ReasonComplete, 3)
	g.recorded(judge.EventResizeFailed, 0)
}

func (g *guardedly) isNotReadyLater() {
	g.guard(api.CanaryAnnotation, "1", api.CanaryDurationAnnotation, policy.Manual)
	g.rounds(1000, 1)
	now := g.Clock.Now()
	g.Judge = func(_ *corev1.Pod, v Version) Outcome {
		return Outcome{Unready: v.CPU == Newer.CPU && g.Clock.Now().Before(now.Add(5*time.Second))}
	}
	g.rounds(100, 1)
	if c := g.Condition(); g.Phase() != rollout.PhaseCanary || !g.Held() {
		g.Errorf("the canary was not Ready for 5 s after a while, held: %t, and the condition says %+v", g.Held(), c)
	}
}

func (g *guardedly) retries() {
	g.killing(all)
	g.guard(api.CanaryAnnotation, "1", api.CanaryDurationAnnotation, "20s")
	g.stopped("OOMKilled", 1)
	g.Annotate(map[string]string{api.RetryAnnotation: "now"}) // which means another rollout, as of a manifest that was saved before
	g.rounds(10, 1)
	g.recorded(judge.EventResizeFailed, 1)
	first := map[string]string{api.RetryAnnotation: g.Name()}
	g.Annotate(first)
	g.rounds(10, 1)
	g.stopped("OOMKilled", 1)
	g.recorded(judge.EventResizeFailed, 2)
	g.Mended = true
	g.Annotate(first)
	g.rounds(10, 1)
	g.stopped("OOMKilled", 1)
	g.Annotate(map[string]string{api.RetryAnnotation: g.Name()})
	for g.Phase() != rollout.PhaseRolling && !g.Condition().Complete() {
		g.rounds(1, 3)
	}
	g.Restart() // what was seen before the retry counts for nothing, to whoever takes over
	g.until(judge.ReasonComplete, 3)
}

func (g *guardedly) retriesUnready() {
	g.stopsUnready()
	for range 2 {
		g.Annotate(map[string]string{api.RetryAnnotation: g.Name()})
		g.rounds(10, 1)
		g.stopped("was not Ready at its new size for more than 1m0s", 1)
	}
}

// forLong is longer than a hold under OnDelete lasts where nothing is guarded.
const forLong = 700

func (g *guardedly) isUndone() {
	g.killing(all)
	g.guard(api.CanaryAnnotation, "1", api.CanaryDurationAnnotation, "10m")
	g.stopped("OOMKilled", 1)
	g.Edit(Former)
	for range 30 { // much less than the canary's duration
		g.rounds(1, 1)
	}
	if c := g.Condition(); c.Reason != judge.ReasonComplete || g.sizes(Former) != 3 {
		g.Errorf("%d pods have the former size: %s", g.sizes(Former), g.says())
	}
}

func (g *guardedly) isEdited() {
	g.killing(all)
	g.lasts = forLong
	g.guard(api.CanaryAnnotation, "1", api.CanaryDurationAnnotation, "20s")
	g.stopped("OOMKilled", 1)
	g.Judge = func(_ *corev1.Pod, v Version) Outcome { return Outcome{Slow: 6 * (v.CPU / 3)} } // it is killed until it has the next size
	g.Edit(Next)
	if g.until(judge.ReasonComplete, 1); g.sizes(Next) != 3 {
		g.Errorf("after the next edit: %s", g.says())
	}
}

func (g *guardedly) isEditedThereAndBack() {
	g.guard(api.CanaryAnnotation, "1", api.CanaryDurationAnnotation, "30s")
	g.begins()
	g.rounds(3, 1)
	g.Edit(Next)
	g.Edit(Newer) // which one pod has had for a moment
	g.rounds(20, 1)
	g.until(judge.ReasonComplete, 3)
}

func (g *guardedly) isNotCured() {
	sick := ""
	for name, pod := range g.Pods {
		if sick = name; pod != nil {
			break
		}
	}
	g.Crash(g.Pods[sick], true)
	g.Judge = func(pod *corev1.Pod, _ Version) Outcome { return Outcome{Unready: pod.Name == sick} }
	g.rounds(3, 0)
	g.guard(api.CanaryAnnotation, "1", api.CanaryDurationAnnotation, "2s")
	g.rounds(5, 3)
	g.Restart()
	g.rounds(100, 3) // longer than a pod may be not Ready
	g.recorded(judge.EventResizeFailed, 0)
}

// areNotCured has no pod be Ready, since a moment before the edit.
func (g *guardedly) areNotCured() {
	for _, pod := range maps.Clone(g.Pods) {
		g.Crash(pod, true)
	}
	g.Judge = func(*corev1.Pod, Version) Outcome { return Outcome{Unready: true} }
	g.guard(api.CanaryAnnotation, "1", api.CanaryDurationAnnotation, "2s")
	if g.rounds(200, 1); !strings.Contains(g.Condition().Message, "it was not Ready before, either: the others wait until one is Ready") {
		g.Errorf("the condition says %+v", g.Condition())
	}
	g.Annotate(map[string]string{api.PromoteAnnotation: g.Name()})
	g.Until(g.T, "promoted", func() bool { return g.sizes(Newer) == 3 })
}

// reverted checks that the pods have gone back, that nothing more is tried, and that an undo is complete at once.
func (g *guardedly) reverted(most int) {
	g.Helper()
	g.until(judge.ReasonReverted, most)
	writes := len(g.Written())
	g.rounds(cmp.Or(g.lasts, 60), most)
	if c := g.Condition(); c.Reason != judge.ReasonReverted || !strings.Contains(c.Message, "OOMKilled") {
		g.Errorf("the condition says %+v", c)
	}
	if more := g.Written()[writes:]; slices.ContainsFunc(more, func(w string) bool { return strings.Contains(w, "pods") }) {
		g.Errorf("after the way back: %q", more)
	}
	if g.sizes(Former) != 3 || !g.Held() || g.Template() != Newer {
		g.Errorf("%d pods have the former size, held: %t, template %v", g.sizes(Former), g.Held(), g.Template())
	}
	g.undone()
}

// undone has what was reverted be undone, which touches no pod.
func (g *guardedly) undone() {
	g.Helper()
	g.Annotate(map[string]string{api.CanaryDurationAnnotation: "10m"})
	resizes := Count(g.Written(), "patch pods/resize")
	g.Edit(Former)
	g.rounds(10, len(g.asked))
	if c := g.Condition(); c.Reason != judge.ReasonComplete || Count(g.Written(), "patch pods/resize") != resizes {
		g.Errorf("an undo is complete at once, and touches no pod: %s", g.says())
	}
}

func (g *guardedly) reverts() {
	g.killing(all)
	g.lasts = forLong
	g.guard(api.CanaryAnnotation, "1", api.CanaryDurationAnnotation, "20s", api.OnFailureAnnotation, "Revert")
	g.reverted(1)
	g.recorded(judge.EventResizeFailed, 1)
	g.recorded(judge.EventReverted, 1)
}

func (g *guardedly) revertsAll() {
	g.killing(all)
	g.guard(api.CanaryAnnotation, "100%", api.CanaryDurationAnnotation, "20s", api.OnFailureAnnotation, "Revert")
	g.reverted(3)
	g.recorded(judge.EventReverted, 1)
}

func (g *guardedly) stopsAll() {
	g.killing(all)
	g.guard(api.CanaryAnnotation, "5", api.CanaryDurationAnnotation, "20s")
	g.stopped("OOMKilled", 3)
	g.recorded(judge.EventCanaryPassed, 0)
}

func (g *guardedly) isEditedDuringRevert() {
	g.killing(all)
	g.Judge = func(_ *corev1.Pod, v Version) Outcome { return Outcome{Slow: 5 * (Newer.CPU - v.CPU)} } // the way back is slow
	g.guard(api.CanaryAnnotation, "1", api.CanaryDurationAnnotation, "20s", api.OnFailureAnnotation, "Revert")
	g.until(judge.ReasonResizeFailed, 1)
	g.rounds(2, 1)
	g.Judge = nil
	g.Edit(Next)
	if g.until(judge.ReasonComplete, 1); g.sizes(Next) != 3 {
		g.Errorf("after the next edit: %s", g.says())
	}
}

func (g *guardedly) stopsLater() {
	first := ""
	g.killing(func(pod *corev1.Pod) bool {
		if first == "" {
			first = pod.Name
		}
		return pod.Name != first
	})
	g.guard(api.CanaryAnnotation, "1", api.CanaryDurationAnnotation, "20s", api.OnFailureAnnotation, "Revert")
	g.reverted(3)
	g.recorded(judge.EventCanaryPassed, 1)
}

func (g *guardedly) stopsWithoutCanary() {
	g.killing(all)
	g.guard(api.OnFailureAnnotation, policy.OnFailureHold)
	g.stopped("OOMKilled", 3)
}

// provesWithoutCanary has the pods be killed a while after the last one was asked: the rollout is not complete by then.
func (g *guardedly) provesWithoutCanary() {
	g.guard(api.OnFailureAnnotation, policy.OnFailureRevert, api.CanaryDurationAnnotation, "20s")
	g.Until(g.T, "all of the size", func() bool { return g.sizes(Newer) == 3 })
	g.rounds(10, 3)
	g.killing(all)
	g.reverted(3)
}

func (g *guardedly) curesAnyhow() {
	g.Kills = func(*corev1.Pod, Version) bool { return true }
	g.rounds(20, 0)
	g.guard(api.CanaryAnnotation, "1", api.CanaryDurationAnnotation, "2s")
	for len(g.asked) < 2 {
		g.rounds(1, 3)
	}
	g.Annotate(map[string]string{api.RetryAnnotation: "now"}) // as of another pod, which waits: it forgets nothing
	g.until(judge.ReasonComplete, 3)
	g.recorded(judge.EventResizeFailed, 0)
}

// sick returns the second of the pods that have got another size than the one from before.
func (g *guardedly) sick() func(*corev1.Pod, Version) bool {
	var first, second string
	return func(pod *corev1.Pod, v Version) bool {
		if v.CPU == Former.CPU {
			return false
		}
		if first = cmp.Or(first, pod.Name); pod.Name != first {
			second = cmp.Or(second, pod.Name)
		}
		return pod.Name == second
	}
}

// failsAgainLater: that a pod was killed again and again with a size that was not proved excuses nothing with the next one.
func (g *guardedly) failsAgainLater(canary string) {
	g.Kills = g.sick()
	g.guard(api.CanaryAnnotation, canary, api.CanaryDurationAnnotation, "5s", api.OnFailureAnnotation, policy.OnFailureHold)
	g.again(Next)
}

func (g *guardedly) isUnreadyAgainLater() {
	sick := g.sick()
	g.Judge = func(pod *corev1.Pod, v Version) Outcome { return Outcome{Unready: sick(pod, v)} }
	g.guard(api.CanaryAnnotation, "1", api.CanaryDurationAnnotation, "5s")
	g.again(Next)
}

// again edits a rollout that is stopped, and wants the next one to be stopped, too.
func (g *guardedly) again(next Version) {
	g.until(judge.ReasonResizeFailed, 3)
	g.Rounds(60)
	before := g.Name()
	g.Edit(next)
	g.Until(g.T, "stopped again", func() bool { return g.Phase() == rollout.PhaseStopped && g.Name() != before })
}

func (g *guardedly) failsCheck() {
	g.Asks.Answer = func(podchecks.Subject) podchecks.Outcome { return g.Asks.of(podchecks.Failed) }
	g.guard(api.CanaryAnnotation, "1", api.CanaryDurationAnnotation, "5s", api.ChecksAnnotation, "cpu-throttling", api.OnFailureAnnotation, "Revert")
	g.until(judge.ReasonReverted, 1)
	if c := g.Condition(); !strings.Contains(c.Message, "failed the check cpu-throttling: throttled in 83 % of its periods") {
		g.Errorf("the condition says %+v", c)
	}
	if len(g.Asks.asked) > 0 {
		g.Errorf("is still asked: %v", g.Asks.asked)
	}
}

func (g *guardedly) knowsNothing() {
	g.guard(api.CanaryAnnotation, "1", api.CanaryDurationAnnotation, "5s", api.ChecksAnnotation, "cpu-throttling")
	g.rounds(40, 1)
	g.Asks.Overdue()
	g.until(judge.ReasonCheckUnknown, 1)
	if g.rounds(forLong, 1); !g.Held() || g.Condition().Reason != judge.ReasonCheckUnknown {
		g.Errorf("held: %t, and the condition says %+v", g.Held(), g.Condition())
	}
	var canary types.UID
	restarted := false
	g.Asks.Answer = func(pod podchecks.Subject) podchecks.Outcome {
		if canary = cmp.Or(canary, pod.UID); pod.Asked.IsZero() {
			g.Errorf("of %s nobody knows from when its value from before is", pod.Name)
		}
		if pod.UID != canary && !restarted {
			return podchecks.Outcome{State: podchecks.Unknown, Effect: podchecks.Wait}
		}
		return g.Asks.of(podchecks.Passed)
	}
	g.rounds(10, 3)
	restarted = true
	g.Restart()
	g.until(judge.ReasonComplete, 3)
	if g.rounds(1, 3); len(g.Asks.asked) > 0 {
		g.Errorf("is still asked: %v", g.Asks.asked)
	}
}

func (g *guardedly) hasAMinute() {
	g.guard(api.CanaryAnnotation, "1")
	g.begins()
	g.rounds(60, 1)
	g.until(judge.ReasonComplete, 3)
}

// revertsTheLastFirst has a check fail, which takes down no pod: such a pod would go back at once.
func (g *guardedly) revertsTheLastFirst() {
	g.Asks.Answer = func(podchecks.Subject) podchecks.Outcome {
		if g.sizes(Newer) < len(g.Pods) {
			return g.Asks.of(podchecks.Passed)
		}
		return g.Asks.of(podchecks.Failed)
	}
	g.guard(api.CanaryAnnotation, "100%", api.CanaryDurationAnnotation, "20s", api.ChecksAnnotation, "cpu-throttling", api.OnFailureAnnotation, "Revert")
	g.until(judge.ReasonReverted, 3)
	resizes := slices.DeleteFunc(slices.Clone(g.Written()), func(w string) bool { return !strings.Contains(w, "patch pods/resize") })
	back := slices.Clone(resizes[len(resizes)/2:])
	slices.Reverse(back)
	if n := len(resizes); n != 6 || !slices.Equal(back, resizes[:n/2]) {
		g.Errorf("the pods were asked, and went back, as %q", resizes)
	}
	g.undone()
}

// revertsOrLeaves adds a limit of memory, which no resize takes away.
func (g *guardedly) revertsOrLeaves() {
	g.killing(all)
	g.Annotate(map[string]string{api.CanaryAnnotation: "1", api.CanaryDurationAnnotation: "20s", api.OnFailureAnnotation: policy.OnFailureRevert})
	g.Edit(Version{Image: 1, CPU: Newer.CPU, Memory: 1})
	g.until(judge.ReasonReverted, 1)
	resizes := Count(g.Written(), "patch pods/resize")
	g.rounds(60, 1)
	sized := g.Sized(Version{CPU: Newer.CPU})
	if c := g.Condition(); len(sized) != 1 || c.Reason != judge.ReasonReverted || !strings.Contains(c.Message, sized[0]+": app: the memory request is removed, app: the memory limit is removed; left as it is") {
		g.Errorf("%v have the size: %+v", sized, c)
	}
	if n := Count(g.Written(), "patch pods/resize"); n != resizes || n != 1 {
		g.Errorf("%d resizes, %d when it was reverted, want 1 of both: %q", n, resizes, g.Written())
	}
}

// stopsKilledUnseen has each container be killed once: what it held until then was too much, and it begins anew.
func (g *guardedly) stopsKilledUnseen() {
	killed := func(pod *corev1.Pod) bool {
		return pod.Status.ContainerStatuses != nil && pod.Status.ContainerStatuses[0].RestartCount > 0
	}
	g.killing(func(pod *corev1.Pod) bool { return !killed(pod) })
	g.guard(api.CanaryAnnotation, "1", api.CanaryDurationAnnotation, "20s")
	g.Until(g.T, "killed", func() bool { return slices.ContainsFunc(slices.Collect(maps.Values(g.Pods)), killed) })
	if Stopped(g.Condition()) {
		g.Fatalf("the controller has said so already: %s", g.says())
	}
	g.Restart()
	g.stopped("", 1)
}

func (g *guardedly) stops() {
	g.killing(all)
	g.guard(api.CanaryAnnotation, "1", api.CanaryDurationAnnotation, "20s")
	for range 3 {
		g.stopped("container app was OOMKilled", 1)
		g.Edit(Former)
		g.rounds(5, 1)
		g.Edit(Newer)
	}
	g.rounds(100, 1)
	g.recorded(judge.EventResizeFailed, 4)
	g.recorded(judge.EventCanaryPassed, 0)
}

// isUnguarded has the annotations taken away while the canary waits, and when it has failed: they are asked again at the next edit.
func (g *guardedly) isUnguarded(onFailure string) {
	for _, g.Mended = range []bool{true, false} {
		g.killing(all)
		g.guard(api.CanaryAnnotation, "1", api.CanaryDurationAnnotation, policy.Manual, api.OnFailureAnnotation, onFailure)
		g.Until(g.T, "in its canary, or stopped", func() bool {
			return g.Mended && g.Phase() == rollout.PhaseCanary || Stopped(g.Condition())
		})
		clear(g.asked)
		g.rounds(20, 1)
		g.Annotate(map[string]string{api.CanaryAnnotation: "", api.CanaryDurationAnnotation: "", api.OnFailureAnnotation: ""})
		g.rounds(60, 1)
		g.Edit(Former)
		g.until(judge.ReasonComplete, 1)
	}
}

// isEditedBackToFailure: nothing has been complete since. A built-in controller may have made the size that has failed its current
// revision meanwhile, which proves nothing.
func (g *guardedly) isEditedBackToFailure(onFailure string) {
	g.killing(all)
	g.guard(api.CanaryAnnotation, "1", api.CanaryDurationAnnotation, "10m", api.OnFailureAnnotation, onFailure)
	g.Until(g.T, "stopped", func() bool { return Stopped(g.Condition()) })
	g.rounds(20, 1)
	g.Edit(Next)
	g.rounds(10, 1)
	g.Edit(Newer)
	g.rounds(60, 1)
}

// goesBackBeside has a pod stay not Ready, whatever its size, once it has had the newer one, and one that has never had it do so, too. The
// first one that had it goes back, by itself or by an undo, also where a restarted controller does not know how they were.
func (g *guardedly) goesBackBeside(onFailure, notReadyTimeout string) {
	for _, v := range []Version{Next, Former} { // they were resized before, too
		g.Edit(v)
		g.Until(g.T, "the setup", func() bool { return g.Condition().Complete() && g.sizes(v) == 3 })
	}
	sick, ill := g.sick(), map[string]bool{}
	g.Judge = func(pod *corev1.Pod, v Version) Outcome {
		if sick(pod, v) || len(ill) == 1 && v.CPU == Former.CPU && Stopped(g.Condition()) {
			ill[pod.Name] = true
		}
		return Outcome{Unready: ill[pod.Name]}
	}
	g.guard(api.CanaryAnnotation, "1", api.CanaryDurationAnnotation, "5s", api.OnFailureAnnotation, onFailure, api.NotReadyTimeoutAnnotation, notReadyTimeout)
	g.Until(g.T, "stopped", func() bool { return Stopped(g.Condition()) })
	if onFailure == policy.OnFailureHold {
		g.Edit(Former)
	}
	g.Until(g.T, "one is back", func() bool { return g.sizes(Former) == 2 })
	g.Restart()
	g.Until(g.T, "all are back", func() bool { return g.sizes(Former) == 3 })
}

// isUndoneToTheFirst: the first edit was completed, and the second, to the former size, fails.
func (g *guardedly) isUndoneToTheFirst(onFailure, duration string) {
	g.guard(api.CanaryAnnotation, "1", api.CanaryDurationAnnotation, "5s", api.OnFailureAnnotation, onFailure)
	g.until(judge.ReasonComplete, 3)
	g.Annotate(map[string]string{api.CanaryDurationAnnotation: duration})
	g.Kills = func(_ *corev1.Pod, v Version) bool { return v.CPU == Former.CPU }
	g.rounds(30, 3)
	g.Edit(Former)
	g.Until(g.T, "stopped", func() bool { return Stopped(g.Condition()) })
	g.rounds(20, 3)
	g.Edit(Newer)
	g.rounds(30, 3)
	if failed := g.Sized(Former); len(failed) > 0 || !g.Condition().Complete() {
		g.Errorf("30 s after the undo, %v have what kills them: %s", failed, g.says())
	}
}

// Asks plays [controller.Checks].
type Asks struct {
	// Answer of a pod; nil knows nothing.
	Answer func(podchecks.Subject) podchecks.Outcome

	overdue bool
	asked   map[string][]podchecks.Subject
}

// NewAsks knows nothing yet.
func NewAsks() *Asks { return &Asks{asked: map[string][]podchecks.Subject{}} }

// Ask is that of controller.Checks.
func (a *Asks) Ask(workload string, names []string, pods []podchecks.Subject, _ func()) {
	if delete(a.asked, workload); len(names) > 0 && len(pods) > 0 {
		a.asked[workload] = pods
	}
}

// Unanswerable is that of controller.Checks.
func (a *Asks) Unanswerable([]string) string { return "" }

// Outcomes is that of controller.Checks.
func (a *Asks) Outcomes(workload string) podchecks.Outcomes {
	outcomes := map[types.UID]podchecks.Outcome{}
	for _, pod := range a.asked[workload] {
		switch {
		case a.Answer != nil:
			outcomes[pod.UID] = a.Answer(pod)
		case a.overdue:
			outcomes[pod.UID] = podchecks.Outcome{State: podchecks.Unknown, Effect: podchecks.Hold, Message: "no data"}
		}
	}
	return podchecks.OutcomesOf("cpu-throttling", outcomes)
}

// Overdue says that what is not known is not for too long.
func (a *Asks) Overdue() { a.overdue = true }

func (*Asks) of(state podchecks.State) podchecks.Outcome {
	if state == podchecks.Failed {
		return podchecks.Outcome{State: state, Effect: podchecks.Fail, Message: "throttled in 83 % of its periods"}
	}
	return podchecks.Outcome{State: state, Effect: podchecks.GoOn}
}

func (g *guardedly) isPromoted() {
	g.guard(api.CanaryAnnotation, "1", api.CanaryDurationAnnotation, policy.Manual)
	g.rounds(90, 1)
	c := g.Condition()
	if g.Phase() != rollout.PhaseCanary || !strings.Contains(c.Message, "promoted") || strings.Contains(c.Message, "canary of edit ") { // which nobody can look up
		g.Fatalf("the canary waits, and the condition says %+v", c)
	}
	g.Annotate(map[string]string{api.PromoteAnnotation: "another rollout"})
	g.rounds(10, 1)
	g.Annotate(map[string]string{api.PromoteAnnotation: g.Name()})
	g.rounds(2, 3)
	g.Annotate(map[string]string{api.PromoteAnnotation: ""}) // a manifest without it is applied
	g.until(judge.ReasonComplete, 3)
	g.recorded(judge.EventCanaryPromoted, 1)
	g.recorded(judge.EventCanaryPassed, 0)
	if n := Count(g.Recorded(), "edit "); n > 0 {
		g.Errorf("%d events name an edit: %q", n, g.Recorded())
	}
	g.Annotate(map[string]string{api.CanaryDurationAnnotation: "2s"})
	g.Edit(Former)
	g.rounds(5, 3)
	g.until(judge.ReasonComplete, 3)
	g.Annotate(map[string]string{api.CanaryDurationAnnotation: policy.Manual})
	clear(g.asked)
	g.Edit(Newer) // which was promoted once, and has a canary of its own
	g.rounds(40, 1)
}
