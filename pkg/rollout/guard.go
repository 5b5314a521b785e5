package rollout

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// minCanaryDuration is for how long a canary proves its size at least, where its annotation says nothing.
const minCanaryDuration = time.Minute

// Guard is how one rollout is guarded: how many pods get the size first, for how long they have to be well with
// it, and what happens when one is not. docs/guarded-rollouts.md says what users are promised.
type Guard struct {
	policy.Guard
	// Version that is rolled out.
	Version Version
	// Stored is what the condition says of this very rollout; zero if it says nothing of it.
	Stored Condition
	// Back: the size is the one from before a rollout that is not over, and nothing new.
	Back bool
	// Proven: all pods count as ones of this size, and have not counted as ones of another since. No pod waits for another one to
	// go back to it.
	Proven bool
	// Since is when another size came after this one, and Began when the workload came to this one last, both by the clock
	// of the API server. Since is zero if none did, and Began if that is not known. Pods that have had the size since before
	// show that it is nothing new.
	Since, Began time.Time
	// Created is when the size was first that of the workload. Oldest: no known one came before it, so no pod had to prove it.
	Created time.Time
	Oldest  bool
	// Lifted: the user has had a rollout tried again that was stopped.
	Lifted bool
	// NotReadyTimeout is how long a resized pod may be not Ready before it has failed.
	NotReadyTimeout time.Duration
	// Outcomes of the checks that are named; nil knows nothing.
	Outcomes Outcomes

	came      time.Time // when the workload came to this size, by the clock of the API server or ours; zero if that is not known
	promotion string    // what the annotation says if this rollout was promoted
	tried     Tried
	losses    *Losses
	rejected  *Rejected
}

// Tried are the pods that were asked for the size of a rollout while others waited for them.
type Tried struct {
	version Version
	pods    map[types.UID]Place
	// proving is since when pods that have the size have not been well with it for long enough, by our own clock.
	proving map[types.UID]time.Time
	// canaries are how many there were to be at most: a percentage of fewer pods is less.
	canaries int
}

// of returns what is known of a version: nothing if t is nil, or of another one.
func (t *Tried) of(version Version) Tried {
	if t == nil || t.version != version {
		return Tried{}
	}
	return *t
}

// Asked notes that the plan's step has asked a member for its size.
func (t *Tried) Asked(s Step, m Member) {
	if s.guard == nil || !s.Canary || s.guard.rescues(m) {
		return
	}
	if t.pods == nil {
		t.pods = map[types.UID]Place{}
	}
	t.pods[m.Pod.UID] = Place{Name: m.Name, Class: m.Class}
}

// See notes that canaries have passed: they can be lost no more. What was tried of another version counts for nothing.
func (t *Tried) See(s Step) {
	if s.guard == nil {
		return
	}
	if t.version != s.guard.Version {
		*t = Tried{version: s.guard.Version}
	}
	t.proving, t.canaries = s.provingSince, max(t.canaries, s.canaries)
	for _, pod := range s.passed {
		delete(t.pods, pod)
	}
}

// Forget has the next canaries be the first ones.
func (t *Tried) Forget() { *t = Tried{} }

// Promotion is the value of the annotation with which the rollout of a version is promoted that has not been complete since that
// time. A later rollout of the same version is another one.
func Promotion(version Version, since metav1.Time) string {
	return string(version) + "@" + since.UTC().Format(time.RFC3339)
}

// CanaryDuration is for how long pods have to be well with their size.
func CanaryDuration(g policy.Guard, minReadySeconds int32) time.Duration {
	if g.Duration > 0 {
		return g.Duration
	}
	return max(time.Duration(minReadySeconds)*time.Second, minCanaryDuration)
}

// Outcomes returns what is known of a check for a pod.
type Outcomes func(pod types.UID, check string) Outcome

// Outcome of a check for a pod. Neither passed nor failed is not known.
type Outcome struct {
	Passed, Failed bool
	// Overdue: it is not known for too long.
	Overdue bool
	// Message says what was measured, or why nothing is known.
	Message string
}

// Subject is a pod that is to pass checks: its resize was asked for, and seen done, at these times.
type Subject struct {
	Pod         *corev1.Pod
	Asked, Done time.Time
}

// Guard returns how the rollout of this version is guarded; nil if it is not. The condition, which may be nil, is the
// workload's.
func (f Facts) Guard(version Version, stored *StoredCondition, minReadySeconds int32) *Guard {
	if f.Settings.Guard == nil {
		return nil
	}
	g := &Guard{Guard: *f.Settings.Guard, Version: version, Lifted: f.Lifted, NotReadyTimeout: f.Defaults.NotReadyTimeout, Outcomes: f.Outcomes}
	g.Duration, g.tried, g.losses, g.rejected = CanaryDuration(g.Guard, minReadySeconds), f.Tried.of(version), f.Losses, f.Rejections.First()
	if stored != nil {
		g.promotion = Promotion(version, stored.LastTransitionTime)
		if !stored.Complete() && !stored.Pending() {
			g.came = stored.LastTransitionTime.Time
		}
	}
	if says := stored.Says(); says.guarded() && says.Version == version {
		g.Stored = says
	}
	return g
}

// Overtaken notes when the workload came to the newest template, and when another of the templates was made after it, if the
// workload has come back to it.
func (g *Guard) Overtaken(newest *hash.Template, all iter.Seq[*hash.Template]) {
	g.Created, g.Began, g.Oldest = newest.Created, newest.Renewed, true
	if g.came = cmp.Or(g.Began, g.came); g.came.IsZero() {
		g.came = g.Created
	}
	for other := range all {
		g.Oldest = g.Oldest && (other == nil || !other.Created.Before(newest.Created))
		if other == nil || other == newest {
			continue
		}
		for _, at := range []time.Time{other.Created, other.Renewed} {
			if at.After(newest.Created) && at.After(g.Since) && (at.Equal(other.Created) || at.Before(newest.Renewed)) {
				g.Since = at
			}
		}
	}
}

// guarded reports whether the condition is of a phase that only guarded rollouts have.
func (c Condition) guarded() bool {
	return c.Phase == PhaseCanary || c.stopped()
}

// stopped reports whether the condition says that a guarded rollout was stopped.
func (c Condition) stopped() bool { return c.Phase == PhaseStopped || c.Phase == PhaseReverted }

// Stopped reports whether a condition, which may be nil, says that a guarded rollout was stopped.
func Stopped(c *StoredCondition) bool { return c.Says().stopped() }

// Beside returns what is said of annotations that cannot be read, which does not have it forgotten that the rollout was stopped.
func (c Condition) Beside(stored *StoredCondition) Condition {
	if says := stored.Says(); c.Reason == ReasonInvalidPolicy && says.stopped() {
		return says.And(c)
	}
	return c
}

// Stopped reports whether a pod has failed, and nothing goes on by itself.
func (g *Guard) Stopped() bool {
	return g != nil && !g.Lifted && g.Stored.stopped()
}

// Reverts reports whether the pods that have the size are to go back.
func (g *Guard) Reverts() bool { return g.Stopped() && g.Revert }

// Failure is a pod that has failed since its resize, and what was seen.
type Failure struct {
	Member Member
	What   string
}

// String is the failure for messages, in which "; " separates what is not about it.
func (f Failure) String() string {
	return strings.ReplaceAll(f.Member.Name+" "+f.What, "; ", ", ")
}

// guarded is what one step has to know of the guard.
type guarded struct {
	*Guard

	canaries int // that get the size before the others; 0 for none
	classes  map[string]*trial
	failures []Failure
	subjects []Subject
	passed   []types.UID // have proved the size
	proving  map[types.UID]time.Time
	live     bool // pods are to be resized, or have yet to be seen with their size
}

// trial is what is known of the size of one class of pods. Pods of other kinds are all of one class.
type trial struct {
	// touched are the pods that have the size, or get it by this step, and proved those of them that have been well
	// with it for long enough. A pod that was not Ready before the edit, and still is not, has lost nothing and proves
	// nothing: it is none of them.
	touched, proved int
	known           bool     // some pods have had it since before
	lost            []string // names of canaries that are gone
}

// guard returns what the step has to know; nil if the rollout is not guarded.
func (o Options) guard(verdicts []*Verdict) *guarded {
	if o.Guard == nil {
		return nil
	}
	g := &guarded{Guard: o.Guard, canaries: o.Guard.Canaries(len(verdicts)), classes: map[string]*trial{}, proving: map[types.UID]time.Time{}}
	there := sets.Set[types.UID]{}
	for _, v := range verdicts {
		t := g.class(v.Member.Class)
		if !Gone(v.Member.Pod) {
			there.Insert(v.Member.Pod.UID)
		}
		g.live = g.live || v.holds()
		switch {
		case Gone(v.Member.Pod) && v.Member.Updated: // the next pod there has it from its birth
			t.touched++
		case !v.hasSize() || v.givenUp():
		case g.veteran(v):
			t.known = true
		default:
			g.count(t, v, o)
		}
	}
	g.lose(there)
	g.loseToOthers()
	return g
}

// of returns the trial that a member is part of.
func (g *guarded) of(v *Verdict) *trial { return g.class(v.Member.Class) }

func (g *guarded) class(name string) *trial {
	if g.classes[name] == nil {
		g.classes[name] = &trial{}
	}
	return g.classes[name]
}

// lose counts the canaries that are gone before they have proved their size, such as by a drain, or because an autoscaler has
// scaled in. Others follow them, but not one after the other through all pods: nobody knows that the size is not what loses them.
// With a canary of 1, a second pod is asked, and no third one.
func (g *guarded) lose(there sets.Set[types.UID]) {
	for uid, place := range g.tried.pods {
		if !there.Has(uid) {
			t := g.class(place.Class)
			t.lost = append(t.lost, place.Name)
		}
	}
	for _, t := range g.classes {
		if n := len(t.lost); n > max(g.canaries, g.tried.canaries) && !g.opened(t) && !g.Stopped() {
			g.failures = append(g.failures, Failure{Member{Place: Place{Name: slices.Max(t.lost)}}, fmt.Sprintf("is gone: %d canaries were deleted or evicted before they had proved the size", n)})
		}
	}
}

// loseToOthers takes a canary that others have deleted soon after its resize for a failure, and so many of other pods, too. So
// it does a new pod that its kubelet has rejected.
func (g *guarded) loseToOthers() {
	if r := g.rejected; r != nil && !g.Stopped() {
		g.failures = append(g.failures, Failure{Member{Place: Place{Name: r.Pod}}, "was " + r.Why + andThen})
	}
	all := g.losses.all()
	for _, lost := range all {
		place, canary := g.tried.pods[lost.Pod.UID]
		if !g.Stopped() && (canary && !g.opened(g.class(place.Class)) || len(all) >= maxLosses) {
			g.failures = append(g.failures, Failure{Member{Place: Place{Name: lost.Pod.Name}}, lost.what()})
		}
	}
}

// count counts a pod that has got the size in this rollout.
func (g *guarded) count(t *trial, v *Verdict, o Options) {
	m := &v.Member
	if at := g.provedAt(v); (at.IsZero() || at.After(o.Now)) && v.settled() {
		if g.proving[m.Pod.UID] = o.Now; !g.tried.proving[m.Pod.UID].IsZero() {
			g.proving[m.Pod.UID] = g.tried.proving[m.Pod.UID]
		}
	}
	if !g.lostNothing(m, o.Now) {
		t.touched++
	}
	if g.well(v, o) {
		t.proved++
		g.passed = append(g.passed, m.Pod.UID)
	}
	if g.Stopped() || m.Target.Resized.IsZero() && !g.born(m) {
		return
	}
	if what := cmp.Or(v.failed(g.NotReadyTimeout, o), g.neverProves(v, o), g.failedCheck(m)); what != "" {
		g.failures = append(g.failures, Failure{*m, what})
	}
	if m.Before != nil && m.Before.done && len(g.Checks) > 0 {
		g.subjects = append(g.subjects, Subject{m.Pod, m.Before.asked, m.Before.at})
	}
}

// settled reports whether the pod runs with the size of its spec, and nothing but the pod itself is in the way of its being Ready.
func (v *Verdict) settled() bool {
	return (v.Observed == resize.Actuated || v.Observed == resize.Unready) && v.Member.Lost == "" && !v.Member.Target.Unscheduled()
}

// patience is how long a pod may take to be well for long enough: it may be not Ready for as long as that is not a failure, and be
// interrupted once, at the last moment.
func (g *Guard) patience() time.Duration { return g.NotReadyTimeout + 2*g.Duration }

// late reports whether the pod has had its size for longer than that, and has not been well with it for long enough since.
func (g *guarded) late(m *Member, now time.Time) bool {
	since, is := g.proving[m.Pod.UID]
	return is && g.NotReadyTimeout > 0 && !now.Before(since.Add(g.patience()))
}

// neverProves returns what was seen of a pod that becomes Ready again and again, and does not stay so; empty if it need not
// yet. A pod that was made with the size, such as one of a new node, may never be Ready for many other reasons: it has
// failed as long as others wait for the canary.
func (g *guarded) neverProves(v *Verdict, o Options) string {
	m := &v.Member
	if m.Cure || !g.late(m, o.Now) || m.Target.Resized.IsZero() && g.open(v) {
		return ""
	}
	return fmt.Sprintf("has not stayed Ready for %s with its size, for more than %s", g.Duration, g.patience())
}

// rescues reports whether the size can only do the pod good: it has not been Ready since before the edit. One that is not Ready
// for less long may be one that has just been made. Where it is not known when the edit was, none is.
func (g *Guard) rescues(m Member) bool { return m.Cures() && downBefore(m.Pod, g.came) }

// lostNothing reports whether a pod that has the size was not Ready when it was asked for it, and still is not. Where that was so
// only since the edit, it counts as a canary like another, until it has been so for too long: nobody waits for it for ever.
func (g *guarded) lostNothing(m *Member, now time.Time) bool {
	overdue := g.NotReadyTimeout > 0 && !m.Since.IsZero() && !now.Before(m.Since.Add(g.NotReadyTimeout))
	return m.Cure && (m.down() && (g.rescues(*m) || overdue) || g.late(m, now))
}

// failedCheck returns what the first check says that the pod has failed; empty if there is none.
func (g *guarded) failedCheck(m *Member) string {
	for _, check := range g.Checks {
		if outcome := g.outcome(m, check); outcome.Failed {
			return fmt.Sprintf("failed the check %s: %s", check, outcome.Message)
		}
	}
	return ""
}

func (g *guarded) outcome(m *Member, check string) Outcome {
	if g.Outcomes == nil {
		return Outcome{Message: "checks are not asked"}
	}
	return g.Outcomes(m.Pod.UID, check)
}

// hasSize reports whether the pod's spec has the size that is rolled out.
func (v *Verdict) hasSize() bool {
	m := &v.Member
	return !Gone(m.Pod) && m.Differs == "" && len(m.Target.Changes)+len(m.Target.Obstacles) == 0
}

// givenUp reports whether the pod will not come to its size in place.
func (v *Verdict) givenUp() bool {
	return v.Decision == policy.RestartByController || v.Decision == policy.Leave || v.Decision == policy.WaitForDelete
}

// born reports whether the pod was made with the size in this rollout. The first pods of a workload were made in none.
func (g *guarded) born(m *Member) bool {
	first := g.Oldest && g.Since.IsZero()
	return m.Labelled && !first && !g.Began.IsZero() && m.Target.Resized.IsZero() && !m.Pod.CreationTimestamp.Time.Before(g.Began)
}

// veteran reports whether the pod is well, and has had the size since before another one came after it. After A→B→A, those that
// have not come to B are veterans, and so are those that a revert has brought back to A before the workload came back. A pod has its
// label when it has proved its size, or was made with it: after A→B→C→B, one that was made a moment before C is none.
func (g *guarded) veteran(v *Verdict) bool {
	m := &v.Member
	if !m.Labelled || v.Observed != resize.Actuated || m.down() || g.Since.IsZero() && !g.Proven {
		return false
	}
	made, untouched := m.Pod.CreationTimestamp.Time, m.Target.Resized.Before(g.Began)
	if g.Proven && untouched {
		return made.Before(g.Began)
	}
	if g.Since.IsZero() {
		return false
	}
	if !g.Oldest && !made.Before(g.Created) {
		made = made.Add(g.Duration)
	}
	return made.Before(g.Since) && (m.Target.Resized.Before(g.Since) || untouched)
}

// provedAt returns when the pod will have been well with its size for long enough; zero if it is not well.
func (g *guarded) provedAt(v *Verdict) time.Time {
	if m := &v.Member; v.hasSize() && !m.down() && !m.Proof.Since.IsZero() {
		return m.Proof.Since.Add(g.Duration)
	}
	return time.Time{}
}

// well reports whether the pod has been well with its size for long enough, and has passed all checks.
func (g *guarded) well(v *Verdict, o Options) bool {
	m, at := &v.Member, g.provedAt(v)
	if at.IsZero() || g.canaries > 0 && at.After(o.Now) {
		return false
	}
	return m.Target.Resized.IsZero() && !g.born(m) || !slices.ContainsFunc(g.Checks, func(check string) bool { return !g.outcome(m, check).Passed })
}

// unproved reports whether the pod has got the size in this rollout, and has yet to prove it.
func (g *guarded) unproved(v *Verdict, o Options) bool {
	if g == nil || g.canaries == 0 && len(g.Checks) == 0 || g.Back || g.of(v).known || v.Member.Cure && (v.Member.down() || g.late(&v.Member, o.Now)) {
		return false
	}
	return v.hasSize() && !v.givenUp() && !g.well(v, o)
}

// open reports whether the pod need not wait for a canary any longer.
func (g *guarded) open(v *Verdict) bool { return g.opened(g.of(v)) }

func (g *guarded) opened(t *trial) bool {
	return g.canaries == 0 || g.Back || g.Proven || g.promotion != "" && g.Promoted == g.promotion || t.known || !g.Manual && t.proved >= g.canaries
}

// mayTouch reports whether one more pod may get the size. It does not know of the limits.
func (g *guarded) mayTouch(v *Verdict) bool {
	switch {
	case g == nil || v.Cause == CauseTemplate: // it is more than a size
		return true
	case g.Stopped() || len(g.failures) > 0:
		return false
	}
	return v.hasSize() || g.open(v) || g.of(v).touched < g.canaries || g.rescues(v.Member)
}

// asks counts a pod that is asked for the size by this step, unless that can only do it good.
func (g *guarded) asks(v *Verdict) {
	if g != nil && !g.rescues(v.Member) {
		g.of(v).touched++
	}
}

// restarts counts a pod that gets the size by a restart in this step, unless resizes come first.
func (g *guarded) restarts(v *Verdict, o Options) {
	if g != nil && (o.Restarts != AfterResizes || !g.live) {
		g.of(v).touched++
	}
}

// end completes the step.
func (g *guarded) end(s *Step, o Options) {
	if g == nil {
		return
	}
	s.guard, s.Failures, s.Subjects, s.Checks, s.passed = g.Guard, g.failures, g.subjects, g.Checks, g.passed
	s.provingSince, s.canaries = g.proving, g.canaries
	if g.Stopped() || len(g.failures) > 0 {
		s.stop()
		return
	}
	for _, v := range s.Verdicts {
		m := &v.Member
		if v.Observed == resize.Unready && !m.Since.IsZero() {
			s.RequeueWithin(m.Since.Add(g.NotReadyTimeout).Sub(o.Now))
		}
		if m.Pod != nil && !g.proving[m.Pod.UID].IsZero() {
			s.RequeueWithin(g.proving[m.Pod.UID].Add(g.patience()).Sub(o.Now))
		}
		s.prove(g, v, o)
	}
	s.Canary = s.Canary || g.canaries > 0 && (g.awaits(s.Verdicts, o) || g.deserted(s.Verdicts, o))
	s.Urgency = urgentIf(s.Canary != (g.Stored.Phase == PhaseCanary))
}

// awaits reports whether the canary is not over: others wait for it, or there are no others.
func (g *guarded) awaits(verdicts []*Verdict, o Options) bool {
	return slices.ContainsFunc(verdicts, func(v *Verdict) bool {
		if v.hasSize() {
			return g.unproved(v, o) && !g.open(v)
		}
		return !Gone(v.Member.Pod) && v.Cause != CauseTemplate && !g.open(v) &&
			(v.Decision == policy.Resize || v.Decision == policy.RestartByController)
	})
}

// deserted reports whether the workload was scaled to zero in the midst of its canary. Its pods come back as they were before the
// rollout as long as that is not over: all at once, they would be more than the canary. Under OnDelete they come with the size
// in any case.
func (g *guarded) deserted(verdicts []*Verdict, o Options) bool {
	return len(verdicts) == 0 && o.Strategy != policy.OnDelete && g.Stored.Phase == PhaseCanary && !g.opened(&trial{})
}

// prove keeps the rollout open until the pod has been well with its size for as long as a canary has to.
func (s *Step) prove(g *guarded, v *Verdict, o Options) {
	if !g.unproved(v, o) {
		return
	}
	s.Guarding, s.Hold, s.proving = true, true, true
	if at := g.provedAt(v); !at.IsZero() {
		s.RequeueWithin(at.Sub(o.Now))
	}
	for _, check := range g.Checks {
		if outcome := g.outcome(&v.Member, check); outcome.Overdue {
			s.Waits = append(s.Waits, Wait{v.Member, ReasonCheckUnknown, fmt.Sprintf("the check %s has no result: %s", check, outcome.Message)})
		}
	}
	switch at := g.provedAt(v); {
	case v.Reason != "":
	case g.canaries > 0 && (at.IsZero() || at.After(o.Now)):
		s.Waits = append(s.Waits, Wait{v.Member, ReasonProgressing, fmt.Sprintf("waiting until it has been Ready at its new size for %s", g.Duration)})
	default:
		s.Waits = append(s.Waits, Wait{v.Member, ReasonProgressing, "waiting for " + strings.Join(g.Checks, ", ")})
	}
}

// Proving reports whether a guarded rollout waits for pods to prove their size, or to be promoted: it moves, though no pod does.
func (s Step) Proving() bool {
	return (s.Canary || s.Guarding) && len(s.Failures) == 0 && !s.guard.Stopped()
}

// stop has no more pods touched.
func (s *Step) stop() {
	s.Resize, s.MarkUpdated, s.Restart = nil, nil, nil
	s.Hold, s.Guarding = true, true
}

// guardedCondition is the condition of a guarded rollout: c, if the guard has nothing to say.
func (s Step) guardedCondition(c Condition) Condition {
	switch {
	case s.guard == nil:
		return c
	case len(s.Failures) > 0:
		var said []string
		for _, f := range s.Failures[:min(len(s.Failures), spelledOut)] {
			said = append(said, f.String())
		}
		if more := len(s.Failures) - len(said); more > 0 {
			said = append(said, fmt.Sprintf("and %d more", more))
		}
		return s.stopped(strings.Join(said, ", "))
	case s.guard.Stopped():
		return s.stopped(s.guard.Stored.Why)
	case s.Canary:
		c.Phase, c.Version = PhaseCanary, s.guard.Version
		if s.guard.Manual {
			c.Details += "; the others wait until it is promoted"
		}
	}
	return c
}

// stopped is the condition of a rollout that was stopped. What its pods wait for changes all the time, and counts for
// nothing until it goes on.
func (s Step) stopped(why string) Condition {
	c := s.progress()
	_, c.Details = Spell(slices.DeleteFunc(slices.Clone(s.Waits), func(w Wait) bool { return w.Reason == ReasonProgressing }))
	c.Reason, c.Phase, c.Version, c.Why = ReasonResizeFailed, PhaseStopped, s.guard.Version, why
	return c
}

// Reverted is the condition of a rollout whose pods go back, or have gone back, to the size from before.
func (s Step) Reverted(g *Guard) Condition {
	c := s.progress()
	waits := slices.Clone(s.Waits)
	for i, w := range waits {
		for _, r := range s.Restart {
			if r.Member.Name == w.Member.Name {
				waits[i].Reason, waits[i].Message = ReasonInfeasible, "left as it is, because only a restart would bring it back: "+r.Reason
			}
		}
	}
	_, c.Details = Spell(waits)
	c.Reason, c.Phase, c.Version, c.Why = ReasonResizeFailed, PhaseReverted, g.Version, g.Stored.Why
	if len(s.Resize)+len(s.MarkUpdated)+s.Unmarked == 0 && !slices.ContainsFunc(s.Verdicts, func(v *Verdict) bool { return v.Decision == policy.Wait || v.Decision == policy.Resize }) {
		c.Reason = ReasonReverted
	}
	return c
}

// Reverting returns those of the verdicts on the way back that are about pods which have the size that has failed, by the verdicts on
// the way forth, or have gone back already. What was asked last comes first. A pod that has yet another size was never asked.
func Reverting(back, forth []*Verdict) []*Verdict {
	failed := sets.Set[types.UID]{}
	for _, v := range forth {
		if v.hasSize() {
			failed.Insert(v.Member.Pod.UID)
		}
	}
	back = slices.DeleteFunc(back, func(v *Verdict) bool {
		return Gone(v.Member.Pod) || v.Member.Differs != "" || len(v.Member.Target.Changes) > 0 && !failed.Has(v.Member.Pod.UID)
	})
	slices.SortStableFunc(back, func(a, b *Verdict) int { return b.Member.Target.Resized.Compare(a.Member.Target.Resized) })
	return back
}

// Back returns the options of the way back: nothing is restarted for it, and nothing guards it. Where the user wants no resizes,
// pods stay as they are.
func (o Options) Back() Options {
	if o.Action != policy.Restart {
		o.Action = policy.LiveResize
	}
	o.Lost = o.Guard.losses.Why() // of those that have gone back
	o.Guard, o.Strategy, o.Rejected = nil, policy.RollingUpdate, nil
	return o
}

// failed returns what was seen of the pod since its resize that makes it a failure; empty if nothing was, or it was the
// same before.
func (v *Verdict) failed(notReady time.Duration, o Options) string {
	m := &v.Member
	if what := m.Before.failure(m.Pod, o.Now); what != "" {
		return what
	}
	if v.Observed == resize.Unready && !m.Target.Resized.IsZero() && !m.Cure && !m.Since.IsZero() && notReady > 0 && !o.Now.Before(m.Since.Add(notReady)) && m.Lost == "" {
		return fmt.Sprintf("is not Ready since its resize, for more than %s", notReady)
	}
	return ""
}

// Health is how the containers of a pod were before it was asked for a size, and what has happened by the time at which
// its resize was seen done.
type Health struct {
	containers map[string]containerHealth
	done       bool      // its resize was seen done
	stale      bool      // the rollout is tried again
	born       bool      // it was made with its size, and not asked for it
	asked, at  time.Time // when it was asked for, and seen done, by our own clock; zero if that is not known
}

// containerHealth is how one container was.
type containerHealth struct {
	ran      time.Duration // how long its last run before the resize was; negative if none was over, or it is not known
	reason   string        // why that was over
	killed   string        // which run was over last when the size was asked for; empty if none
	started  metav1.Time   // of the run that was under way then
	restarts int32         // by the time at which the resize was seen done
	ended    string        // which run was over last then
}

// healthOf returns how the pod is.
func healthOf(pod *corev1.Pod) *Health {
	h := &Health{containers: map[string]containerHealth{}}
	for s := range statusesOf(pod) {
		c := containerHealth{restarts: s.RestartCount, ran: -1}
		if last := lastRun(s); last != nil {
			c.ended, c.ran, c.reason = idOf(last), length(last), last.Reason
			c.killed = c.ended
		}
		if s.State.Running != nil {
			c.started = s.State.Running.StartedAt
		}
		h.containers[s.Name] = c
	}
	return h
}

// unknownHealth returns what is known of a pod that has its size, by a controller that has not seen it before. What was killed
// since the resize, by the clocks of its kubelet and the API server, counts, unless the rollout is tried again: nobody knows better.
func unknownHealth(pod *corev1.Pod, resized time.Time, again bool) *Health {
	h := healthOf(pod)
	for s := range statusesOf(pod) {
		c := h.containers[s.Name]
		if last := lastRun(s); last != nil && !resized.IsZero() && last.FinishedAt.After(resized) {
			if c.ran = -1; !again {
				c.killed = ""
			}
			h.containers[s.Name] = c
		}
	}
	return h
}

// of returns what is known of a pod that is looked at now, whose resize, of that time, is in that state. That a container restarts
// until the resize is seen done says nothing of the size: it may do so for it. Again: the user has had the rollout tried again.
func (h *Health) of(pod *corev1.Pod, state resize.State, resized, at time.Time, again bool) *Health {
	is := state == resize.Actuated || state == resize.Unready
	if h != nil && h.stale {
		h = h.anew(pod)
	}
	switch {
	case h != nil && (h.done || !is):
		return h
	case h == nil && is:
		now := &Health{born: true}
		if !resized.IsZero() {
			now = unknownHealth(pod, resized, again)
		}
		now.done, now.at = true, at
		return now
	}
	now := healthOf(pod)
	if h == nil {
		return now
	}
	now.done, now.at, now.asked = true, at, h.asked
	for name, c := range now.containers {
		before, known := h.containers[name]
		if !known {
			before = containerHealth{ran: -1}
		}
		c.ran, c.reason, c.killed, c.started = before.ran, before.reason, before.killed, before.started
		now.containers[name] = c
	}
	return now
}

// anew returns what is known where a rollout is tried again: what has happened so far does not count.
func (h *Health) anew(pod *corev1.Pod) *Health {
	now := healthOf(pod)
	now.asked, now.born = h.asked, h.born
	for name, c := range now.containers {
		if before, known := h.containers[name]; known {
			c.ran, c.reason = before.ran, before.reason
			now.containers[name] = c
		}
	}
	return now
}

// again has the pod looked at anew when it is looked at next.
func (h *Health) again() *Health {
	if h == nil {
		return nil
	}
	return &Health{containers: h.containers, asked: h.asked, stale: true}
}

// String is what is known, for comparing.
func (h *Health) String() string {
	if h == nil {
		return "unknown"
	}
	return fmt.Sprint(h.done, h.at, h.containers)
}

// failure returns what has become of the containers since; empty if nothing has, or it was as bad before: a run that was
// over for the same reason, and half as long as the last one before the resize, or longer, says nothing against the size. The run
// that was under way at the resize must not have been much longer either: then the container had got well.
//
// Of a container that was OOMKilled every hour, a run of 50 minutes is none, and one of 20 s is, and so is one of 30 days.
func (h *Health) failure(pod *corev1.Pod, now time.Time) string {
	if h == nil || !h.done {
		return ""
	}
	for s := range statusesOf(pod) {
		if what := h.failureOf(pod, s, now); what != "" {
			return "failed: container " + s.Name + " " + what
		}
	}
	return ""
}

// failureOf is failure for one container.
func (h *Health) failureOf(pod *corev1.Pod, s *corev1.ContainerStatus, now time.Time) string {
	before, known := h.containers[s.Name]
	if !known && !h.born {
		return ""
	}
	if !known {
		before = containerHealth{ran: -1}
	}
	last := lastRun(s)
	if last == nil || before.usual(last) {
		return ""
	}
	ran, restarts := length(last), s.RestartCount-before.restarts
	if before.straddles(last) && !h.asked.IsZero() {
		ran = min(ran, now.Sub(h.asked))
	}
	after := ""
	if ran >= 0 {
		after = " after " + ran.Round(time.Second).String()
	}
	since := "its resize"
	if h.born {
		since = "the pod was made"
	}
	switch {
	case last.Reason == reasonOOMKilled && idOf(last) != before.killed:
		return "was OOMKilled" + after + atLimit(pod, s.Name)
	case restarts >= 2 && idOf(last) != before.ended:
		return fmt.Sprintf("has restarted %d times since %s, last with exit code %d%s", restarts, since, last.ExitCode, after)
	default:
		return ""
	}
}

// straddles reports whether the run was under way when the size was asked for.
func (c containerHealth) straddles(run *corev1.ContainerStateTerminated) bool {
	return !run.StartedAt.IsZero() && run.StartedAt.Equal(&c.started)
}

// usual reports whether the run ended as the last one before the resize did.
func (c containerHealth) usual(run *corev1.ContainerStateTerminated) bool {
	ran := length(run)
	return c.ran >= 0 && c.reason == run.Reason && ran >= c.ran/2 && (!c.straddles(run) || ran <= 2*c.ran)
}

// downBefore reports whether the pod has not been Ready since before that time, by the clock of its kubelet, which may differ.
func downBefore(pod *corev1.Pod, at time.Time) bool {
	return !podutils.IsPodReady(pod) && notReadySince(pod).Add(resize.ClockSkew).Before(at)
}

// notReadySince returns since when a pod that is not Ready has been so, by the clock of its kubelet.
func notReadySince(pod *corev1.Pod) time.Time {
	if c := ConditionReady(pod); c != nil {
		return c.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}

// reasonOOMKilled is how container runtimes call the end of a container that has reached its memory limit.
const reasonOOMKilled = "OOMKilled"

// atLimit says what the container may use at most, which is what it used when it was OOMKilled.
func atLimit(pod *corev1.Pod, container string) string {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if limit, is := c.Resources.Limits[corev1.ResourceMemory]; is && c.Name == container {
			return ", at its memory limit of " + limit.String()
		}
	}
	return ""
}

// lastRun returns how the container ended last; nil if it never did.
func lastRun(s *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if s.State.Terminated != nil {
		return s.State.Terminated
	}
	return s.LastTerminationState.Terminated
}

// length returns how long the run was; negative if the kubelet does not say when it began, as of one that never did.
func length(run *corev1.ContainerStateTerminated) time.Duration {
	if run.StartedAt.IsZero() {
		return -1
	}
	return run.FinishedAt.Sub(run.StartedAt.Time)
}

// idOf tells one run from others.
func idOf(run *corev1.ContainerStateTerminated) string {
	return run.ContainerID + " " + run.FinishedAt.UTC().Format(time.RFC3339)
}
