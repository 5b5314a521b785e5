package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// minCanaryDuration is for how long a canary proves its size at least, where its annotation says nothing.
const minCanaryDuration = time.Minute

// Guard is how one rollout is guarded: how many pods get the size first, for how long they have to be well with
// it, and what happens when one is not. docs/guarded-rollouts.md says what users are promised.
type Guard struct {
	policy.Guard
	// Record of this rollout, as it was when the step is planned.
	Record Record
	// Back: the size is the one from before a rollout that is not over, and nothing new.
	Back bool
	// NotReadyTimeout is how long a resized pod may be not Ready before it has failed.
	NotReadyTimeout time.Duration
	// Outcomes of the checks that are named; nil knows nothing.
	Outcomes Outcomes

	unanswerable string  // why the checks that are named can have no outcome; empty if they can
	before       *Record // the one that this one follows; nil if that was over, or this one goes on
	again        bool    // the user has had it tried again since
	notes        *judge.PodNotes
	newest       string
	called       Version
	room         int // how many bytes a record may have
	losses       *judge.Losses
	rejected     *judge.Rejected
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

// Edit is what is rolled out, for [Facts.Guard].
type Edit struct {
	// Version tells the edit from others, and Called is its name for people; the version, if it is empty.
	Version, Called Version
	// Newest revision, and what returns the one that most of the other pods are of; empty if there are none.
	Newest string
	Former func() string
	// Began is when the workload came to this version, by the clock of the API server.
	Began time.Time
}

// Guard returns how the rollout of an edit is guarded; nil if it is not. What was never proved is no size to go back to: the record
// of an edit that was overtaken tells what the pods had before.
func (f Facts) Guard(e Edit, minReadySeconds int32) *Guard {
	if f.Settings.Guard == nil {
		return nil
	}
	g := &Guard{Guard: *f.Settings.Guard, NotReadyTimeout: ptr.Deref(f.Settings.NotReadyTimeout, f.Defaults.NotReadyTimeout), Outcomes: f.Outcomes, newest: e.Newest, called: cmp.Or(e.Called, e.Version), notes: f.Notes, room: room(f.Annotations)}
	if f.Unanswerable != nil {
		g.unanswerable = f.Unanswerable(g.Checks)
	}
	g.Duration, g.losses, g.rejected = CanaryDuration(g.Guard, minReadySeconds), f.Losses, f.Rejections.First()
	stored := f.Record
	first := stored == nil || stored.Of == ""
	g.Record = Record{Phase: PhaseCanary, Schema: RecordSchema, Of: e.Version, Began: seconds(e.Began), Since: seconds(f.Now)}
	switch {
	case first:
	case stored.Of != e.Version, stored.Phase == PhasePending:
		g.before, g.Record.From, g.Record.Tried = stored, stored.From, cmp.Or(stored.Tried, &stored.Began)
	case stored.triedAgainBy(f.Annotations):
		g.before, g.again = stored, true
		g.Record.Began, g.Record.From, g.Record.Most, g.Record.Tried = stored.Began, stored.From, stored.Most, cmp.Or(stored.Tried, &stored.Began)
		if next := seconds(stored.Since.Add(time.Second)); g.Record.Since.Before(&next) { // it has another name
			g.Record.Since = next
		}
	default: // of what goes on, nobody forgets who is the canary, or that it is over
		g.Record = *stored
	}
	if g.Record.From == "" && e.Former != nil {
		g.Record.From = cmp.Or(e.Former(), e.Newest)
	}
	if g.Back = e.Newest != "" && g.Record.From == e.Newest; g.Back && first { // there is no former size
		return nil
	}
	g.pass(f.Annotations)
	return g
}

// pass ends the canary where nobody waits for one, or not any longer.
func (g *Guard) pass(annotations map[string]string) {
	r := &g.Record
	r.Promoted = r.Promoted || r.PromotedBy(annotations)
	if r.Phase == PhaseCanary && (g.Canary == nil || g.Back || r.Promoted) {
		r.roll()
	}
}

// Stopped reports whether a pod has failed, and nothing goes on by itself.
func (g *Guard) Stopped() bool { return g != nil && g.Record.Stopped() }

// Keeps reports whether the rollout goes no further before a person acts: it was stopped, or waits to be promoted.
func (g *Guard) Keeps() bool {
	return g.Stopped() || g != nil && g.Manual && g.Record.Unproved()
}

// Former is the revision that pods go back to; empty if g is nil, or none is known.
func (g *Guard) Former() string {
	if g == nil {
		return ""
	}
	return g.Record.From
}

// Reverts reports whether the pods that have the size are to go back.
func (g *Guard) Reverts() bool { return g.Stopped() && g.Revert && !g.Back }

// failure is a pod that has failed since its resize, and what was seen.
type failure struct {
	Member judge.Member
	What   string
}

// String is the failure for messages, in which "; " separates what is not about it.
func (f failure) String() string {
	return strings.ReplaceAll(f.Member.Name+" "+f.What, "; ", ", ")
}

// guarded is what one step has to know of the guard.
type guarded struct {
	*Guard

	record   Record // as it is to be after the step
	classes  map[string]*trial
	failures []failure
	subjects []Subject
	live     bool // pods are to be resized, or have yet to be seen with their size
	// sick are those that have lost nothing, and whether others take their place: they were not asked beside the canary.
	sick map[types.UID]bool
}

// trial is what is known of the size of one class of pods. Pods of other kinds are all of one class.
type trial struct {
	canaries int // that get the size before the others; 0 for none
	// touched are the pods that have the size, or get it by this step, and proved those of them that have been well
	// with it for long enough. A pod that was not Ready before the edit, and still is not, has lost nothing and proves
	// nothing: it is none of them.
	touched, proved int
	// sick are those of the others that were asked as canaries. Only Ready pods take the place of more than there are to be, since they can
	// prove the size, or fail: otherwise one pod after the other would have it.
	sick int
	lost []string // names of canaries that are gone
}

// guard returns what the step has to know; nil if the rollout is not guarded.
func (o Options) guard(verdicts []*judge.Verdict) *guarded {
	if o.Guard == nil {
		return nil
	}
	g := &guarded{Guard: o.Guard, record: o.Guard.Record, classes: map[string]*trial{}, sick: map[types.UID]bool{}}
	g.record.Canaries = slices.Clone(g.record.Canaries)
	of := map[string]int{}
	for _, v := range verdicts {
		of[v.Member.Class] += v.Member.Count() * asInt(v.Member.Differs == "")
	}
	most := 0
	for class, pods := range of {
		t := g.class(class)
		t.canaries = min(o.Guard.Canaries(pods), pods)
		most += t.canaries
	}
	g.record.Most = max(g.record.Most, most)
	for _, v := range verdicts {
		t := g.of(v)
		g.live = g.live || v.Holds()
		switch {
		case judge.Gone(v.Member.Pod) && v.Member.Updated: // the next pod there has it from its birth
			t.touched += v.Member.Count()
		case v.HasSize() && !v.GivenUp():
			g.count(t, v, o)
		case g.changed(v):
			t.touched++
		}
	}
	g.lose(present(verdicts))
	g.loseToOthers()
	return g
}

// present are the verdicts on the pods that are there.
func present(verdicts []*judge.Verdict) map[types.UID]*judge.Verdict {
	of := map[types.UID]*judge.Verdict{}
	for _, v := range verdicts {
		if !judge.Gone(v.Member.Pod) {
			of[v.Member.Pod.UID] = v
		}
	}
	return of
}

// of returns the trial that a member is part of.
func (g *guarded) of(v *judge.Verdict) *trial { return g.class(v.Member.Class) }

func (g *guarded) class(name string) *trial {
	if g.classes[name] == nil {
		g.classes[name] = &trial{canaries: asInt(g.Canary != nil)}
	}
	return g.classes[name]
}

// lose counts the canaries that are gone before they have proved their size, such as by a drain. Others follow them, but not one after the
// other through all pods: nobody knows that the size is not what loses them. With a canary of 1, a second pod is asked, and no third
// one. One that is of another class now has gone, too. But one that was one pod too many is forgotten.
func (g *guarded) lose(there map[types.UID]*judge.Verdict) {
	g.record.Canaries = slices.DeleteFunc(g.record.Canaries, func(c Canary) bool { return there[c.UID] == nil && !c.Proved && g.losses.Surplus(c.UID) })
	for _, c := range g.record.Canaries {
		if v := there[c.UID]; (v == nil || v.Member.Class != c.Class) && !c.Proved && !g.losses.Unasked(c.UID) {
			t := g.class(c.Class)
			t.lost = append(t.lost, c.Name)
		}
	}
	for _, t := range g.classes {
		if n := len(t.lost); n > max(t.canaries, g.record.Most) && !g.opened(t) && !g.Stopped() {
			what := map[bool]string{false: "is gone", true: "is gone, or of another class"}[len(g.classes) > 1]
			what += fmt.Sprintf(": so were %d canaries before they had proved the size", n)
			g.failures = append(g.failures, failure{judge.Member{Place: judge.Place{Name: slices.Max(t.lost)}}, what})
		}
	}
}

// loseToOthers takes a canary that others have deleted soon after its resize for a failure, and so many of other pods, too. So
// it does a new pod that its kubelet has rejected.
func (g *guarded) loseToOthers() {
	if r := g.rejected; r != nil && !g.Stopped() {
		g.failures = append(g.failures, failure{judge.Member{Place: judge.Place{Name: r.Pod}}, "was " + r.Why + judge.AndThen})
	}
	all := g.losses.All()
	for _, lost := range all {
		canary := g.record.canary(lost.Pod.UID)
		if !g.Stopped() && (canary != nil && !g.opened(g.class(canary.Class)) || len(all) >= judge.MaxLosses) {
			g.failures = append(g.failures, failure{judge.Member{Place: judge.Place{Name: lost.Pod.Name}}, lost.What()})
		}
	}
}

// count counts a pod that has the size.
func (g *guarded) count(t *trial, v *judge.Verdict, o Options) {
	m := &v.Member
	c := g.record.canary(m.Pod.UID)
	if m.Lost != "" && !g.opened(t) && judge.DownBefore(m.Pod, o.Now.Add(-g.NotReadyTimeout)) { // another one takes its place
		t.lost = append(t.lost, m.Name)
		return
	}
	if c == nil && g.tellsAnew(t, m) { // what has happened so far counts for nothing, but for how it was before
		c = g.record.ask(m, o.Now)
		c.Unready = false // that may be what the size has done: it has to be Ready with it all the same
		c.asBefore(g.before)
	}
	if c != nil {
		c.see(v, o.Now)
	}
	if g.lostNothing(v, o.Now) {
		g.sick[m.Pod.UID] = !g.rescues(*m)
		t.sick += asInt(g.sick[m.Pod.UID])
	} else {
		t.touched++
	}
	if g.well(v, o) {
		t.proved++
		if c != nil && c.Class == m.Class {
			c.Proved = true
		}
	}
	if !g.Stopped() && !g.Back && !g.again {
		g.judge(t, v, o)
	}
}

// ofBefore reports whether the pod had the size before the rollout, as where its node's class has a size that the edit does not change, or
// above a partition that has been lowered since: what becomes of it says nothing of the edit. A size that was not proved is none of before.
func (g *guarded) ofBefore(m *judge.Member) bool {
	resized, began := m.Target.Resized, cmp.Or(g.Record.Tried, &g.Record.Since)
	return !resized.IsZero() && resized.Add(resize.ClockSkew).Before(began.Time) && g.record.canary(m.Pod.UID) == nil
}

// tellsAnew reports whether it is recorded how a pod that has the size is when the rollout is tried again: so many as there are canaries have
// to prove it once more, and of others there is something to tell only where a container has ended. Half of the record is for them.
func (g *guarded) tellsAnew(t *trial, m *judge.Member) bool {
	if !g.again || g.ofBefore(m) {
		return false
	}
	asked := 0
	for i := range g.record.Canaries {
		asked += asInt(g.record.Canaries[i].Class == m.Class)
	}
	return asked < t.canaries || judge.HasEnded(m.Pod) && len(g.record.String()) < maxRecord/2
}

// judge notes whether a pod that has got the size in this rollout has failed, and that it has to pass the checks.
func (g *guarded) judge(t *trial, v *judge.Verdict, o Options) {
	m := &v.Member
	if m.Target.Conceded && !g.opened(t) { // it would prove another size; nothing may be left to show that it was asked
		g.failures = append(g.failures, failure{*m, "has not got its size: others resize it repeatedly"})
		return
	}
	if m.Target.Resized.IsZero() && !g.born(m) || g.ofBefore(m) {
		return
	}
	if what := cmp.Or(v.Failed(!g.opened(t), g.NotReadyTimeout, o.Terms), g.neverProves(v, o), g.failedCheck(m)); what != "" {
		g.failures = append(g.failures, failure{*m, what})
	}
	if b := m.Before; b != nil && !b.Done.IsZero() && len(g.Checks) > 0 {
		// A restarted controller does not know when it asked, and nobody has asked a pod that was made with the size.
		asked := cmp.Or(b.Asked, m.Target.Resized, m.Pod.CreationTimestamp.Time)
		g.subjects = append(g.subjects, Subject{m.Pod, asked, b.Done})
	}
}

// ask records that a pod is asked for the size while others wait for it.
func (r *Record) ask(m *judge.Member, now time.Time) *Canary {
	r.Canaries = append(r.Canaries, Canary{UID: m.Pod.UID, Name: m.Name, Class: m.Class, Past: judge.PastOf(m.Pod, now, r.tried())})
	return &r.Canaries[len(r.Canaries)-1]
}

// see records when the canary was seen with its size, and since when it is Ready with it.
func (c *Canary) see(v *judge.Verdict, now time.Time) {
	m := &v.Member
	at := seconds(now)
	if c.Done == nil && judge.Done(v.Observed) {
		c.Done, c.Past = &at, c.WhenDone(m.Pod)
	}
	if ready := judge.ReadySince(m.Pod); c.Done != nil && v.Observed == resize.Actuated && !m.Down() && (c.Well == nil || c.Ready != ready) {
		c.Well, c.Ready = &at, ready
	}
}

// patience is how long a pod may take to be well for long enough: it may be not Ready for as long as that is not a failure, and be
// interrupted once, at the last moment.
func (g *Guard) patience() time.Duration { return g.NotReadyTimeout + 2*g.Duration }

// proving returns since when the pod has the size, has not proved it yet, and is looked at; zero if it is not so. While no controller looked,
// it may have been Ready.
func (g *guarded) proving(v *judge.Verdict, now time.Time) time.Time {
	if at := g.provedAt(v); !v.Settled() || !v.HasSize() || g.hasProved(v) || !at.IsZero() && !at.After(now) {
		return time.Time{}
	}
	if since := g.notes.Of(v.Member.Pod.UID).Proving(now); !since.IsZero() {
		return since
	}
	return now
}

// late reports whether the pod has had its size for longer than that, and has not been well with it for long enough since.
func (g *guarded) late(v *judge.Verdict, now time.Time) bool {
	since := g.proving(v, now)
	return !since.IsZero() && g.NotReadyTimeout > 0 && !now.Before(since.Add(g.patience()))
}

// neverProves returns what was seen of a pod that becomes Ready again and again, and does not stay so; empty if it need not
// yet. A pod that was made with the size, such as one of a new node, may never be Ready for many other reasons: it has
// failed as long as others wait for the canary.
func (g *guarded) neverProves(v *judge.Verdict, o Options) string {
	m := &v.Member
	if m.Cure || !g.late(v, o.Now) || m.Target.Resized.IsZero() && g.open(v) {
		return ""
	}
	return fmt.Sprintf("has not stayed Ready for %s with its size, for more than %s", g.Duration, g.patience())
}

// rescues reports whether the size can only do the pod good: it has not been Ready since before the edit, or was there at the edit and no
// node has room for it. Of an OrderedReady StatefulSet, the canary may be a pod that comes after it. One that is not Ready for less long,
// or came later, may be one that has just been made.
func (g *Guard) rescues(m judge.Member) bool {
	if m.Pod == nil {
		return false
	}
	nowhere := !g.Record.Began.Time.Before(m.Pod.CreationTimestamp.Time) && m.Target.Nowhere() != ""
	edited := cmp.Or(g.Record.tried(), g.Record.Began.Time) // what an unproved size has done since counts for nothing
	return m.Cures() && (nowhere || judge.DownBefore(m.Pod, edited))
}

// lostNothing reports whether a pod that has the size was not Ready when it was asked for it, and still is not. Where that was so
// only since the edit, it counts as a canary like another, until it has been so for too long: nobody waits for it for ever.
func (g *guarded) lostNothing(v *judge.Verdict, now time.Time) bool {
	m := &v.Member
	overdue := g.NotReadyTimeout > 0 && !m.Since.IsZero() && !now.Before(m.Since.Add(g.NotReadyTimeout))
	return m.Cure && (m.Down() && (g.rescues(*m) || overdue) || g.late(v, now))
}

// failedCheck returns what the first check says that the pod has failed; empty if there is none.
func (g *guarded) failedCheck(m *judge.Member) string {
	for _, check := range g.Checks {
		if outcome := g.outcome(m, check); outcome.Failed {
			return fmt.Sprintf("failed the check %s: %s", check, outcome.Message)
		}
	}
	return ""
}

func (g *guarded) outcome(m *judge.Member, check string) Outcome {
	if g.Outcomes == nil {
		return Outcome{Message: "no check is queried"}
	}
	return g.Outcomes(m.Pod.UID, check)
}

// born reports whether the pod was made with the size in this rollout.
func (g *guarded) born(m *judge.Member) bool {
	return m.Updated && g.newest != "" && g.Record.From != g.newest && m.Target.Resized.IsZero() && !m.Pod.CreationTimestamp.Time.Before(g.Record.Began.Time)
}

// provedAt returns when the pod will have been well with its size for long enough; zero if it is not well. Of a canary that is
// recorded, and holds after a restart of the controller, too.
func (g *guarded) provedAt(v *judge.Verdict) time.Time {
	m := &v.Member
	if !v.HasSize() || m.Down() {
		return time.Time{}
	}
	since := v.WellSince()
	if c := g.record.canary(m.Pod.UID); c != nil {
		if since = (time.Time{}); c.Well != nil && c.Ready == judge.ReadySince(m.Pod) && v.Observed == resize.Actuated {
			since = c.Well.Time
		}
	} else if begun := g.record.Since.Time; !since.IsZero() && since.Before(begun) { // also of a rollout that is tried again
		since = begun
	}
	if since.IsZero() {
		return since
	}
	return since.Add(g.Duration)
}

// proof names the size that a pod has, and the rollout in which it proves that.
func (g *guarded) proof(v *judge.Verdict) string {
	return fmt.Sprintf("%s of generation %d", g.record.Name(), v.Member.Pod.Generation)
}

// hasProved reports whether the pod has been well for long enough since it got its size in this rollout. That it is not Ready for a moment
// later takes nothing back; whether it fails is judged all the same.
func (g *guarded) hasProved(v *judge.Verdict) bool {
	m := &v.Member
	if judge.Gone(m.Pod) || !v.HasSize() {
		return false
	}
	c, proved := g.record.canary(m.Pod.UID), g.notes.Of(m.Pod.UID).Proved
	return c != nil && c.Proved && c.Class == m.Class || proved != "" && proved == g.proof(v) || g.ofBefore(m)
}

// well reports whether the pod has been well with its size for long enough, and has passed all checks.
func (g *guarded) well(v *judge.Verdict, o Options) bool {
	if g.hasProved(v) {
		return true
	}
	m, at := &v.Member, g.provedAt(v)
	if at.IsZero() || at.After(o.Now) {
		return false
	}
	return m.Target.Resized.IsZero() && !g.born(m) || !slices.ContainsFunc(g.Checks, func(check string) bool { return !g.outcome(m, check).Passed })
}

// unproved reports whether the pod has the size, and has yet to prove it.
func (g *guarded) unproved(v *judge.Verdict, o Options) bool {
	if g == nil || g.Back || v.Member.Cure && (v.Member.Down() || g.late(v, o.Now)) {
		return false
	}
	return v.HasSize() && !v.GivenUp() && !g.well(v, o)
}

// open reports whether the pod need not wait for a canary any longer.
func (g *guarded) open(v *judge.Verdict) bool { return g.opened(g.of(v)) }

func (g *guarded) opened(t *trial) bool {
	return t.canaries == 0 || g.Record.Phase == PhaseRolling || !g.Manual && t.proved >= t.canaries
}

// mayTouch reports whether one more pod may get the size. It does not know of the limits.
func (g *guarded) mayTouch(v *judge.Verdict) bool {
	switch {
	case g == nil || v.Cause == judge.CauseTemplate: // it is more than a size
		return true
	case g.Stopped() || len(g.failures) > 0:
		return false
	case g.unanswerable != "" && !g.Back: // no pod could prove its size
		return v.HasSize() || g.rescues(v.Member)
	}
	return v.HasSize() || g.changed(v) || g.open(v) || g.of(v).lacksCanary(v.Claim.Ready) || g.rescues(v.Member)
}

// lacksCanary reports whether a pod, Ready or not, is to be a canary.
func (t *trial) lacksCanary(ready bool) bool {
	has := t.touched
	if !ready {
		has += t.sick
	}
	return has < t.canaries
}

// asks counts a pod that is asked for the size by this step, unless that can only do it good.
func (g *guarded) asks(v *judge.Verdict) {
	if g != nil && !g.rescues(v.Member) {
		g.of(v).touched++
	}
}

// restarts counts a pod that gets the size by a restart in this step, unless resizes come first.
func (g *guarded) restarts(v *judge.Verdict, o Options) {
	if g != nil && (o.Restarts != AfterResizes || !g.live) {
		g.of(v).touched++
	}
}

// end completes the step.
func (g *guarded) end(s *Step, o Options) {
	if g == nil {
		return
	}
	s.guard, s.Failures, s.Subjects, s.Checks, s.record = g.Guard, g.failures, g.subjects, g.Checks, &g.record
	s.provingSince, s.proved = map[types.UID]time.Time{}, map[types.UID]string{}
	s.unready = unready(s.Verdicts)
	if g.Stopped() || len(g.failures) > 0 {
		if s.stop(); !g.Stopped() {
			g.fail()
		}
		return
	}
	s.awaitChecks(g)
	for _, v := range s.Verdicts {
		if m := &v.Member; v.Observed == resize.Unready && !m.Since.IsZero() {
			s.RequeueWithin(m.Since.Add(g.NotReadyTimeout).Sub(o.Now))
		}
		if since := g.proving(v, o.Now); !since.IsZero() {
			s.RequeueWithin(since.Add(g.patience()).Sub(o.Now))
			s.provingSince[v.Member.Pod.UID] = since
		}
		if s.prove(g, v, o); g.well(v, o) {
			s.proved[v.Member.Pod.UID] = g.proof(v)
		}
	}
	s.Canary, s.Proved = s.Canary || g.awaits(s.Verdicts, o) || g.deserted(s.Verdicts, o), g.proved()
	s.awaitSick(g)
	if g.over() {
		g.record.roll()
	} else {
		g.asksCanaries(s, o)
	}
	s.Urgency = urgentIf(g.record.Phase != g.Record.Phase)
}

// unready is how many pods have the size, and are not updated as they are not Ready with it.
func unready(verdicts []*judge.Verdict) (n int) {
	for _, v := range verdicts {
		n += asInt(!v.Member.Updated && v.Decision != policy.MarkUpdated && v.HasSize() && v.Observed == resize.Unready)
	}
	return n
}

// over reports whether the canary of each class is over.
func (g *guarded) over() bool {
	for _, t := range g.classes {
		if !g.opened(t) {
			return false
		}
	}
	return len(g.classes) > 0
}

// proved reports whether as many pods of each class have proved the size as are canaries.
func (g *guarded) proved() bool {
	for _, t := range g.classes {
		if t.proved < t.canaries {
			return false
		}
	}
	return true
}

// fail records what has failed.
func (g *guarded) fail() {
	var said []string
	for _, f := range g.failures[:min(len(g.failures), spelledOut)] {
		said = append(said, f.String())
	}
	if more := len(g.failures) - len(said); more > 0 {
		said = append(said, fmt.Sprintf("and %d more", more))
	}
	if g.record.Phase, g.record.Failed = PhaseStopped, strings.Join(said, ", "); g.Revert {
		g.record.Phase = PhaseReverting
	}
}

// asksCanaries records the pods that this step asks while others wait for them. None is asked where there is no room for that.
func (g *guarded) asksCanaries(s *Step, o Options) {
	there := present(s.Verdicts)
	isCanary := func(m judge.Member) bool {
		v := there[m.Pod.UID]
		return v != nil && !v.HasSize() && !g.open(v) && !g.rescues(m)
	}
	g.record.Canaries = slices.DeleteFunc(g.record.Canaries, func(c Canary) bool { return g.forgets(c, there[c.UID]) })
	known := len(g.record.Canaries)
	for i := range s.Resize {
		if m := &s.Resize[i]; isCanary(*m) && g.record.canary(m.Pod.UID) == nil { // one of another class is that still
			g.record.ask(m, o.Now).asBefore(g.before)
		}
	}
	if size := len(g.record.String()); size > g.room {
		g.record.Canaries = g.record.Canaries[:known]
		s.Resize = slices.DeleteFunc(slices.Clone(s.Resize), isCanary)
		s.Waits = append([]Wait{{judge.Member{Place: judge.Place{Name: "no pod is resized"}}, judge.ReasonInvalidPolicy, fmt.Sprintf(
			"the annotation %s would have %d bytes, and can have %d beside the other annotations: want fewer of these; promote goes on without a canary", api.RolloutAnnotation, size, g.room)}}, s.Waits...)
	}
}

// changed reports whether the pod is a canary that has taken its size but for what admission has changed in the request.
func (g *guarded) changed(v *judge.Verdict) bool {
	m := &v.Member
	return !judge.Gone(m.Pod) && !v.HasSize() && !v.GivenUp() && g.notes.Of(m.Pod.UID).Request != nil && g.Record.canary(m.Pod.UID) != nil
}

// forgets reports whether a recorded pod, of which that is known, is no canary: it was not asked after all, or it is asked now, and is as it
// is now, or it never runs with the size. Its successor does.
func (g *guarded) forgets(c Canary, v *judge.Verdict) bool {
	if v == nil {
		return g.losses.Unasked(c.UID)
	}
	return !v.HasSize() && !g.changed(v) && v.Member.Class == c.Class || v.Decision == policy.RestartByController || v.Decision == policy.WaitForDelete
}

// awaits reports whether the canary is not over: others wait for it, or there are no others.
func (g *guarded) awaits(verdicts []*judge.Verdict, o Options) bool {
	return slices.ContainsFunc(verdicts, func(v *judge.Verdict) bool {
		if g.of(v).canaries == 0 || g.open(v) {
			return false
		}
		if v.HasSize() {
			return g.unproved(v, o)
		}
		return !judge.Gone(v.Member.Pod) && v.Cause != judge.CauseTemplate && (v.Decision == policy.Resize || v.Decision == policy.RestartByController)
	})
}

// deserted reports whether the workload was scaled to zero in the midst of its canary. Its pods come back as they were before the
// rollout as long as that is not over: all at once, they would be more than the canary. Under OnDelete they come with the size
// in any case.
func (g *guarded) deserted(verdicts []*judge.Verdict, o Options) bool {
	return len(verdicts) == 0 && o.Strategy != policy.OnDelete && g.Record.Phase == PhaseCanary && !g.opened(g.class(""))
}

// awaitChecks says that no pod is asked for the size, where it would have to pass checks that nobody can answer.
func (s *Step) awaitChecks(g *guarded) {
	first := slices.IndexFunc(s.Verdicts, func(v *judge.Verdict) bool { return v.Decision == policy.Resize && !v.HasSize() })
	if g.unanswerable == "" || g.Back || first < 0 {
		return
	}
	s.Waits = slices.Insert(s.Waits, 0, Wait{s.Verdicts[first].Member, judge.ReasonCheckUnknown,
		"not resized, because " + g.unanswerable})
	s.RequeueWithin(time.Minute) // as often as it is read which there are
}

// awaitSick says of canaries that were not Ready before, either, that the others wait for them all the same, where none takes their place.
func (s *Step) awaitSick(g *guarded) {
	for i := range s.Waits {
		w := &s.Waits[i]
		if t := g.class(w.Member.Class); w.Reason != judge.ReasonNotReadyAfterResize || !s.Canary || g.opened(t) || t.touched >= t.canaries {
			continue
		}
		switch replaced, sick := g.sick[w.Member.Pod.UID]; {
		case sick && s.waiting:
			w.Message += "; as it counts against maxUnavailable, the others wait until it is Ready"
		case replaced:
			w.Message += "; it was not Ready before, either: the others wait until one is Ready, or the rollout is promoted"
		}
	}
}

// prove keeps the rollout open until the pod has been well with its size for as long as a canary has to.
func (s *Step) prove(g *guarded, v *judge.Verdict, o Options) {
	if !g.unproved(v, o) {
		return
	}
	s.Guarding, s.Hold, s.proving = true, true, true
	s.Trying = s.Trying || v.Settled() && !g.open(v)
	if at := g.provedAt(v); !at.IsZero() {
		s.RequeueWithin(at.Sub(o.Now))
	}
	for _, check := range g.Checks {
		if outcome := g.outcome(&v.Member, check); outcome.Overdue {
			s.Waits = append(s.Waits, Wait{v.Member, judge.ReasonCheckUnknown, fmt.Sprintf("the check %s has no result: %s", check, outcome.Message)})
		}
	}
	switch at := g.provedAt(v); {
	case v.Reason != "":
	case at.IsZero() || at.After(o.Now):
		s.Waits = append(s.Waits, Wait{v.Member, judge.ReasonProgressing, fmt.Sprintf("waiting until it has been Ready at its new size for %s", g.Duration)})
	default:
		s.Waits = append(s.Waits, Wait{v.Member, judge.ReasonProgressing, "waiting for " + strings.Join(g.Checks, ", ")})
	}
}

// Proving reports whether a guarded rollout waits for pods to prove their size, or to be promoted: it moves, though no pod does.
func (s Step) Proving() bool {
	refused := func(v *judge.Verdict) bool { return v.State == resize.Refused }
	return (s.Guarding || s.Canary && !slices.ContainsFunc(s.Verdicts, refused)) && !s.record.Stopped()
}

// SizeUnproved reports whether the size of a guarded rollout is not proved, be there pods that wait for it or not: those that are made
// now are to have the one from before.
func (s Step) SizeUnproved() bool { return s.record.Unproved() }

// Back reports whether the pods of a guarded rollout get the size from before it, which has been proved.
func (s Step) Back() bool { return s.guard != nil && s.guard.Back }

// stop has no more pods touched.
func (s *Step) stop() {
	s.Resize, s.MarkUpdated, s.Restart = nil, nil, nil
	s.Hold, s.Guarding = true, true
}

// guardedCondition is the condition of a guarded rollout: c, if the guard has nothing to say.
func (s Step) guardedCondition(c Condition) Condition {
	switch {
	case s.guard == nil:
	case s.record.Stopped():
		return s.stopped()
	case s.Canary:
		c.Phase, c.Version = PhaseCanary, s.guard.called
		if s.guard.Manual {
			c.Details += "; the others wait until it is promoted"
		}
	default:
		c.Version = s.guard.called
	}
	return c
}

// stopped is the condition of a rollout that was stopped. What its pods wait for changes all the time, and counts for
// nothing until it goes on; so does that more of them are not Ready.
func (s Step) stopped() Condition {
	c := s.progress()
	_, c.Details = Spell(slices.DeleteFunc(slices.Clone(s.Waits), func(w Wait) bool {
		return w.Reason == judge.ReasonProgressing || w.Reason == judge.ReasonNotReadyAfterResize
	}))
	c.Reason, c.Phase, c.Version, c.Why = judge.ReasonResizeFailed, PhaseStopped, s.guard.called, s.record.Failed
	return c
}
