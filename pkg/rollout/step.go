package rollout

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
)

// Restarts is when those pods of a workload are restarted that only a new one can replace.
type Restarts int

// The times.
const (
	// Ordered means that a pod that is to be restarted keeps the order of the members. It waits for those before
	// it, takes its share of the limits, and those after it wait for it.
	Ordered Restarts = iota
	// AfterResizes means when nothing is left that can be resized live. They hold up nobody before that.
	AfterResizes
	// Independent means each pod as soon as the limits let it, whatever becomes of the others.
	Independent
)

// Options are what a workload says about its rollout.
type Options struct {
	judge.Terms

	// Limit is how many pods may be under way at once: being resized, not available,
	// or about to be restarted.
	Limit int
	// NonMembers are the places that are no members, but not available, or being resized, and so
	// take shares of the limits, too.
	NonMembers []judge.Member
	// Restarts is when pods are restarted.
	Restarts Restarts
	// Doubt: others have deleted a pod soon after its resize. One at a time is asked until one lives on, and none before From.
	Doubt bool
	From  time.Time
	// Closed: none is asked for its size, because some of the pods are about to go, and nobody knows which.
	Closed bool
	// Rejected is a new pod that its kubelet has not let in; nil if there is none. No other pod is given up for a new one then.
	Rejected *judge.Rejected
	// Guard of the rollout; nil if there is none.
	Guard *Guard

	// Of a rollout whose pods go back: when it began, by the clock of the API server, or zero if that is not known; and how long they are
	// waited for to be Ready.
	edited   time.Time
	patience time.Duration
}

// Step is what may be done now, and what has to be waited for.
type Step struct {
	// Verdicts on the members, in their order.
	Verdicts []*judge.Verdict
	// Resize these pods.
	Resize []judge.Member
	// MarkUpdated these: they have the new size and are only not counted as updated yet.
	MarkUpdated []judge.Member
	// Restart these: only new pods can have the new template, and every pod before
	// them is done.
	Restart []Restart
	// Hold: the hold must stay, because some pod, or one about to be born, can be resized
	// live, or may not be restarted.
	Hold bool
	// Waits, in the order of the members.
	Waits []Wait
	// Updated pods, of Total. Beside them the workload has others that are no members, or is to have them.
	Updated, Total, Beside int
	// unmarked pods have the size, and are only not marked as updated yet: they may have to prove it before, or the API server lets nobody.
	unmarked int
	// unready pods of a guarded rollout have the size, and are not updated as they are not Ready with it.
	unready int
	// RequeueAfter is when something becomes possible, or is over, without any event; 0 if
	// nothing is.
	RequeueAfter time.Duration
	// Unready: pods are not Ready since they were resized.
	Unready bool
	// Overdue: others wait for pods to be Ready, for too long.
	Overdue bool
	// Canary: pods wait until the canary of a guarded rollout is over.
	Canary bool
	// Guarding: a guarded rollout has been stopped, or pods have yet to prove their size to it. It is not let go.
	Guarding bool
	// Proved: the canary of each class has proved its size.
	Proved bool
	// Trying: a canary runs with the size, others wait for it, and it has yet to prove it.
	Trying bool
	// Failures are the pods that have failed since their resize, in a guarded rollout that goes on until this step.
	Failures []failure
	// Subjects are the pods that are to pass the Checks.
	Subjects []Subject
	Checks   []string
	// Urgency of the condition's message.
	Urgency Urgency

	passedOver  string // the first pod that is; empty if none is
	awaitsBirth bool   // a restart waits for the successor of another pod to be made
	down        []int  // the Waits of pods that are passed over, and take their share all the same
	waiting     bool   // some pod waits for others before it is resized
	proving     bool   // some pod has yet to prove its size
	guard       *Guard
	record      *Record // as it is to be; nil where the rollout is not guarded
	// provingSince is since when pods have the size that is guarded, and have not proved it.
	provingSince map[types.UID]time.Time
	proved       map[types.UID]string // see [guarded.proof]
}

// Urgency is when a condition is written of which nothing but the message is new.
type Urgency int

// The urgencies. Of several, the last one counts.
const (
	// soon is when the message has lasted for a while.
	soon Urgency = iota
	// Later is after a longer while: the condition is about to change, because other controllers need a moment
	// for what has been done.
	Later
	// AtOnce is now: the next step rests on it.
	AtOnce
)

func urgentIf(urgent bool) Urgency {
	if urgent {
		return AtOnce
	}
	return soon
}

// Defer has the condition's message written later, if it is not urgent.
func (s *Step) Defer() { s.Urgency = max(s.Urgency, Later) }

// Restart is a pod that only a new one can replace.
type Restart struct {
	Member judge.Member
	// Reason for the restart.
	Reason string
	// Now: the limits let the pod be given up now.
	Now bool
	// Cause is the kind of the reason.
	Cause judge.Cause
	// NewFirst: the new pod comes before this one goes.
	NewFirst bool
}

// NewFirst are the restarts with the new pods first.
func NewFirst(restarts []Restart) []Restart {
	first := slices.Clone(restarts)
	for i := range first {
		first[i].NewFirst = true
	}
	return first
}

// ByEdit reports whether the edit itself wants the restart, whatever comes of a resize.
func (r Restart) ByEdit() bool {
	return slices.Contains([]judge.Cause{judge.CauseTemplate, judge.CausePolicy, judge.CauseAction, judge.CauseUnresizable, judge.CauseUnavailable}, r.Cause)
}

// Unproved reports whether restarts are only for values of which it is not known whether the new pods have them, too. The
// first of several shows that, also the last of them.
func (s Step) Unproved() bool {
	return (len(s.Restart) > 1 || s.awaitsBirth) && slices.ContainsFunc(s.Restart, func(r Restart) bool { return r.Cause == judge.CauseUnresizable && r.Member.Target.Unproved })
}

// Shows reports whether the first pods that go show something for the others: a canary, or see [Step.Unproved].
func (s Step) Shows() bool { return s.Canary || s.Unproved() }

// Wait says what one place of a workload is waiting for.
type Wait struct {
	Member          judge.Member
	Reason, Message string // Reason is one of the condition's
}

// Next goes through the verdicts on the members, in the order in which they are to be rolled,
// and says what may be done to each now.
//
// With limit 1 and places 2, 1, 0, where 2 is resized but not Ready yet, nothing
// is done and 2 is waited for; once it is marked as updated and available, 1 is resized.
// What is under way or down further down counts too, such as what was begun before
// something above it turned stale, by a new edit or a scale-up.
func Next(verdicts []*judge.Verdict, o Options) Step {
	s := Step{Verdicts: verdicts}
	o = o.undoing()
	b := newBudget(verdicts, o)
	for _, v := range verdicts {
		s.add(v, o, b)
	}
	b.guard.end(&s, o)
	s.reject(o)
	if s.waiting {
		for _, i := range s.down {
			s.Waits[i].Message += "; it is not available, so others wait for it"
		}
		for _, m := range o.NonMembers {
			v := judge.Verdict{Member: m}
			v.ComeUp(o.Terms)
			s.wait(&v)
		}
	}
	return s
}

// add has the step do what the verdict says, as far as the budget lets it.
func (s *Step) add(v *judge.Verdict, o Options, b *budget) {
	s.Total += v.Member.Count()
	s.Updated += asInt(v.Member.Updated && !judge.Gone(v.Member.Pod))
	s.RequeueWithin(v.Until.Sub(o.Now))
	if o.Back && v.Unready {
		s.RequeueWithin(v.Member.Since.Add(o.patience).Sub(o.Now))
	}
	s.proving = s.proving || v.Unproved()
	s.Unready = s.Unready || v.Unready && !v.Member.InPlaceOnly
	s.Overdue = s.Overdue || v.Overdue
	s.Hold = s.Hold || v.Holds()
	switch v.Decision {
	case policy.RestartByController:
		s.restart(v, o, b)
	case policy.Leave:
		s.passOver(v)
	case policy.MarkUpdated:
		s.mark(v, o, b)
	case policy.Resize:
		s.resize(v, o, b)
	case policy.Wait:
		s.wait(v)
	default: // it is updated, or waits for the user
		s.wait(v)
	}
}

// mark has the member marked as updated, as soon as the API server lets it. Until then it has its size all the same: no
// resize waits for it, and what is restarted after it does.
func (s *Step) mark(v *judge.Verdict, o Options, b *budget) {
	s.unmarked++
	if b.guard.unproved(v, o) { // the StatefulSet controller forgets the revision from before when the last pod is marked
		return
	}
	if !o.Now.Before(v.Member.Relabel.Until) {
		s.MarkUpdated = append(s.MarkUpdated, v.Member)
	}
	if v.Member.Relabel.Reason != "" {
		s.passOver(v)
	}
}

// resize asks for the member's size, as soon as the budget and the API server let it.
func (s *Step) resize(v *judge.Verdict, o Options, b *budget) {
	if !b.guard.mayTouch(v) {
		return
	}
	sent, passed := !o.Now.Before(v.Member.Refusal.Until), b.passes(v, o)
	if passed && !sent {
		s.wait(v)
		return
	}
	claim := v.Claim
	if o.Restarts == Ordered && s.waiting && claim.Owes { // of another size: it does not pass those before it
		claim.Share = false
	}
	if !b.mayResize(claim) {
		if passed {
			s.wait(v)
		}
		s.waiting = true
		s.RequeueWithin(o.From.Sub(o.Now))
		if v.Claim.Ready && v.Claim.Down || v.Unproved() {
			w := judge.Verdict{Member: v.Member, ProvedAt: v.ProvedAt}
			w.ComeUp(o.Terms)
			s.wait(&w)
		}
		return
	}
	if sent {
		s.Resize = append(s.Resize, v.Member)
	}
	b.resizes(v.Claim, sent)
	if sent && !v.HasSize() {
		b.guard.asks(v)
	}
	s.wait(v)
}

// restart has the member restarted, unless something before it must be held.
//
// Of 3 no node fits, 2 stale, 1 infeasible, 0 stale, the partition cannot be lowered
// to 1 as long as 3 is held, which may be for ever: so 1 does not hold up 0.
func (s *Step) restart(v *judge.Verdict, o Options, b *budget) {
	if !b.guard.mayTouch(v) {
		s.Canary, s.Hold = true, s.Hold || o.Restarts == Ordered // nobody below it is restarted before it, as for an image
		if v.Member.Pod == nil {
			s.Waits = append(s.Waits, Wait{v.Member, judge.ReasonProgressing, "waits for the canary: " + v.Why})
		}
		return
	}
	now := b.mayRestart(v.Claim)
	s.awaitsBirth = s.awaitsBirth || b.awaitsBirth(v.Claim)
	switch {
	case o.Rejected != nil:
		s.Hold = true
		s.Waits = append(s.Waits, Wait{v.Member, judge.ReasonProgressing, "not restarted, because " + o.Rejected.Pod + " was rejected: " + v.Why})
		return
	case s.passedOver != "" && o.Restarts != Independent:
		s.Waits = append(s.Waits, Wait{v.Member, judge.ReasonProgressing, "waits for " + s.passedOver + ", which is kept: " + v.Why})
		return
	case o.Restarts != Ordered || !s.Hold:
		s.Restart = append(s.Restart, Restart{Member: v.Member, Reason: v.Why, Now: now, Cause: v.Cause})
		b.guard.restarts(v, o)
		said := *v
		if !now {
			said.Message = "waits for its restart: " + v.Why
		}
		s.wait(&said)
	}
	if o.Restarts == Ordered || o.Restarts == Independent && now {
		b.restarts(v)
	}
}

// reject tells first of the new pod that its kubelet has rejected, instead of waiting for its next one. A guarded rollout
// tells of its failure.
func (s *Step) reject(o Options) {
	if o.Rejected == nil || s.Guarding && s.record.Stopped() {
		return
	}
	message := o.Rejected.Why + ", so no other pod is restarted" + judge.AndThen
	others := slices.DeleteFunc(s.Waits, func(w Wait) bool { return w.Member.Name == o.Rejected.Pod })
	s.Waits = append([]Wait{{judge.Member{Place: judge.Place{Name: o.Rejected.Pod, Updated: true}}, judge.ReasonPodRejected, message}}, others...)
}

// passOver leaves the member for as long as nothing else changes: nobody waits for it
// who can do without a restart, as long as it is available.
func (s *Step) passOver(v *judge.Verdict) {
	if !v.Member.InPlaceOnly {
		s.passedOver = cmp.Or(s.passedOver, v.Member.Name)
	}
	if v.Claim.Down {
		s.down = append(s.down, len(s.Waits))
	}
	s.wait(v)
}

// wait lists what the member waits for, if it does.
func (s *Step) wait(v *judge.Verdict) {
	if v.Reason != "" {
		s.Waits = append(s.Waits, Wait{v.Member, v.Reason, v.Message})
	}
}

// RequeueWithin asks for another look after d at the latest, if d is to come.
func (s *Step) RequeueWithin(d time.Duration) {
	if d > 0 && (s.RequeueAfter == 0 || d < s.RequeueAfter) {
		s.RequeueAfter = d
	}
}

// Progress says how many of the workload's pods have the size.
func (s Step) Progress() string { return s.progress().Message() }

func (s Step) progress() Condition {
	return Condition{Phase: PhaseResizing, Updated: s.Updated + s.unmarked + s.unready, Total: s.Total + s.Beside}
}

// Prove notes since when pods have the size of a guarded rollout, and have not proved it, and which have.
func (s Step) Prove(notes *judge.PodNotes, now time.Time) {
	if s.guard == nil { // as where an annotation cannot be read
		notes.LookAway(now)
		return
	}
	notes.Prove(s.Verdicts, s.provingSince, s.proved, now)
}

// NothingUnderWay reports whether no resize is under way, or about to be: every pod is updated, or waits
// for something that may last, such as room on its node. What the condition says then is
// the last word for now.
func (s Step) NothingUnderWay() bool {
	waiting := 0
	for _, w := range s.Waits {
		if !w.Member.Updated && w.Reason != judge.ReasonProgressing {
			waiting += w.Member.Count()
		}
	}
	return !s.proving && len(s.Resize)+len(s.MarkUpdated) == 0 && s.Updated+waiting == s.Total
}
