package judge

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// Terms are what a workload says of each of its pods.
type Terms struct {
	// Unavailable is how many of them may be down at once: what takes a pod down keeps to
	// that. With 0, a pod that its resize would take down is replaced first, unless the
	// action is LiveResize: then one at a time is down.
	Unavailable int
	// PassLost: a pod whose node is lost holds up no resize that takes no pod down.
	PassLost bool
	// PassDeferred: a pod that waits for room on its node, and loses nothing meanwhile or when it
	// comes, holds up nobody.
	PassDeferred bool
	// Strategy decides who restarts pods.
	Strategy policy.Strategy
	// Action that came with the edit.
	Action policy.Action
	// Lost is why no further pod is asked for its size, because others delete the pods that are; empty if they do not.
	Lost string
	// MinReadySeconds is for how long a pod has to be Ready until it is available, and to be well
	// since its resize until it has proved its size.
	MinReadySeconds int32
	// DeferredTimeout and ErrorTimeout are how long a pod may be Deferred, or Failing,
	// before that counts as final.
	DeferredTimeout, ErrorTimeout time.Duration
	// Back: the pods go back to their size from before.
	Back bool
	// ReadyTimeout is how long a pod is waited for to be Ready before it counts as overdue; 0 if none does.
	ReadyTimeout time.Duration
	// BoosterTimeout is how long a pod that has its size is waited for that a startup booster is about to put back.
	BoosterTimeout time.Duration
	// Now is the time.
	Now time.Time
}

// Verdict is what is known of one member, and what follows from it for that member alone.
// What it may do now depends on the others, too: that is rollout.Next's to say.
type Verdict struct {
	Member Member
	// Observed is the state that the pod shows, and Says what its kubelet says of it, or what
	// it lacks. Both are empty if there is no pod, or it is of another template.
	Observed resize.State
	Says     string
	// State is what that counts as, with all that is known besides; empty unless the pod has
	// still to get its size.
	State resize.State
	// Decision about the pod; empty if it is updated, and nothing is to be done about it.
	Decision policy.Decision
	// Why it is so: the reason for a restart, for leaving the pod as it is, or for the state.
	Why string
	// Cause of a restart; empty if only the size is to change.
	Cause Cause
	// Reason and Message of the condition, as long as the pod is not done; both are empty if
	// there is nothing to say.
	Reason, Message string
	// Unready: the pod is not Ready since it was resized. The size may have done it.
	Unready bool
	// Overdue: the pod has its size, and has been waited for to be Ready for longer than Terms.ReadyTimeout.
	Overdue bool
	// ProvedAt is when the pod will have proved the size that it has; zero if it has, or has nothing
	// to prove.
	ProvedAt time.Time
	// Until is when the verdict may become another one though nothing happens; zero if it does not.
	Until time.Time

	// OldEnvironment are the environment variables that will not show the new size.
	OldEnvironment []string

	// late is the decision if the node has no room for the size until the deadline; empty
	// where State is.
	late policy.Decision
	// claim is what the budget counts the member as.
	Claim Claim
	// faulty: its resize may meet a fault of its kubelet.
	MayMeetFault bool
}

// Pods returns the verdict on each of the members.
func Pods(members []Member, o Terms) []*Verdict {
	verdicts := make([]*Verdict, len(members))
	for i, m := range members {
		verdicts[i] = m.Judge(o)
	}
	return verdicts
}

// Judge returns the verdict on the member alone. It does not depend on the limits, nor on what
// is not a member, and it holds until the member or another option changes, or Until has come.
func (m Member) Judge(o Terms) *Verdict {
	v := &Verdict{Member: m, OldEnvironment: m.Target.OldEnvironment()}
	v.observe()
	switch {
	case m.Updated && m.ClassSizeUnavailable != "":
		v.Reason, v.Message = ReasonInfeasible, m.ClassSizeUnavailable
	case m.Updated && !m.Down():
	case m.Updated:
		v.ComeUp(o)
	case m.Differs != "":
		v.replace(o, CauseTemplate, m.Differs)
	case m.Pod == nil && m.Remade:
		v.replace(o, CauseUnresizable, "no pod of the older revision can be created: "+m.Unborn.Reason)
	case Gone(m.Pod):
		v.Decision = policy.Wait
		v.ComeUp(o)
	default:
		v.resize(o)
	}
	v.overdue(o)
	v.prove(o)
	v.changesAt(m.AvailableAt(o.MinReadySeconds), o)
	if m.Pod != nil {
		v.changesAt(m.Kubelet.Looked(m.Pod), o)
	}
	if m.busy() {
		v.changesAt(m.Kubelet.Overdue(m.Pod), o)
	}
	v.changesAt(m.GivenUp, o)
	v.Claim = v.claims(o)
	v.awaitBooster(o)
	v.MayMeetFault = v.meetsFault()
	return v
}

// observe reads what the pod shows.
func (v *Verdict) observe() {
	m := v.Member
	if !Gone(m.Pod) && m.Differs == "" {
		v.Observed, v.Says = m.Target.Observe()
	}
	v.Unready = v.Observed == resize.Unready && m.Lost == "" && !m.Target.Resized.IsZero() && !m.Target.Unscheduled()
}

// Spares reports whether a new pod in place of the member's would still be for nothing, or never come:
// the member may get its size yet, or the API server would refuse the new one.
func (v *Verdict) Spares() bool {
	switch v.Decision {
	case policy.MarkUpdated, policy.Resize, policy.Wait:
		return true
	default:
		return v.Reason == ReasonInvalid
	}
}

// resize decides about a pod that has still to get its size.
func (v *Verdict) resize(o Terms) {
	m, p := v.Member, v.progress(o)
	v.State, v.Why, v.Reason, v.Message = p.state, p.why, p.reason, p.why
	v.changesAt(p.until, o)
	decide := func(state resize.State) policy.Decision { return policy.Decide(m.Policy, o.Action, o.Strategy, state) }
	if v.late = decide(resize.DeferredTooLong); v.late != policy.Leave {
		v.late = m.replacement(o)
	}
	switch v.Decision = decide(v.State); v.Decision {
	case policy.RestartByController, policy.WaitForDelete:
		cause, why := v.cause(o)
		if m.InPlaceOnly {
			v.keep(why)
			return
		}
		v.replace(o, cause, why)
	case policy.Leave:
		v.Message += "; left as it is"
	case policy.MarkUpdated:
		v.unmarked(o)
	}
}

// unmarked notes why a pod that has its size does not count as updated: admission refuses every write of its labels.
func (v *Verdict) unmarked(o Terms) {
	if refused := v.Member.Relabel; refused.Reason != "" {
		v.Reason, v.Message = refused.Kind, "has its size, but cannot be marked as updated: "+refused.Reason
		v.changesAt(refused.Until, o)
	}
}

// keep leaves the pod as it is, where a restart would not help.
func (v *Verdict) keep(why string) {
	v.Decision, v.Why, v.Message = policy.Leave, why, why+"; left as it is"
	if v.Reason == ReasonProgressing {
		v.Reason = ReasonInfeasible
	}
}

// cause returns the kind of reason for which a resize is not even tried, or goes no further,
// and the reason.
func (v *Verdict) cause(o Terms) (Cause, string) {
	switch {
	case v.Member.Policy == policy.RestartOnly:
		return CausePolicy, v.Member.Why
	case o.Action == policy.Restart:
		return CauseAction, "the action is Restart"
	default:
		return causeOf[v.State], v.Why
	}
}

// replace decides about a pod that only a new one can replace, for this reason.
func (v *Verdict) replace(o Terms, cause Cause, why string) {
	m := v.Member
	v.Cause, v.Why, v.Decision = cause, why, m.replacement(o)
	switch {
	case v.Decision == policy.RestartByController:
		v.Reason, v.Message = ReasonProgressing, "restarting: "+why
	case v.Decision == policy.WaitForDelete:
		v.Reason, v.Message = ReasonWaitingForDelete, "restarts when it is deleted: "+why
	case m.Unplaceable.Kind == ReasonInvalid:
		v.Why = m.invalid(o)
		v.Reason, v.Message = ReasonInvalid, v.Why+"; left as it is"
		v.changesAt(m.Unplaceable.Until, o)
	case cause == CauseInfeasible && m.Refusal.Kind == ReasonInfeasible && m.Unplaceable.Kind == ReasonNoNodeFits: // its node is no larger, either
		v.Why = m.Unplaceable.Reason
		v.Reason, v.Message = m.Unplaceable.Kind, m.onNode("infeasible")+", and not restarted, because "+v.Why
		v.changesAt(m.Unplaceable.Until, o)
	default:
		v.Why = m.Unplaceable.Reason + ": " + why
		v.Reason, v.Message = m.Unplaceable.Kind, "not restarted, because "+v.Why
		v.changesAt(m.Unplaceable.Until, o)
	}
}

// replacement is the decision about a pod that only a new one can replace: it is left where
// there is no place for the new one. Where the user deletes it, that is the user's to know,
// unless the new one would be refused for ever.
func (m Member) replacement(o Terms) policy.Decision {
	switch {
	case m.Unplaceable.Kind == ReasonInvalid || m.InPlaceOnly:
		return policy.Leave
	case o.Strategy == policy.OnDelete:
		return policy.WaitForDelete
	case m.Unplaceable.Reason != "":
		return policy.Leave
	default:
		return policy.RestartByController
	}
}

// invalid is why no new pod can have the size.
func (m Member) invalid(o Terms) string {
	if o.Strategy == policy.OnDelete && !m.InPlaceOnly {
		return m.Unplaceable.Reason + "; do not delete it"
	}
	return m.Unplaceable.Reason
}

// ComeUp notes what a pod waits for that is not available, and to which nothing is to be done.
func (v *Verdict) ComeUp(o Terms) {
	m := v.Member
	v.Reason = ReasonProgressing
	switch {
	case m.Lost != "" && !v.keptByFinalizer(o): // without its finalizers it needs its node, too
		v.Reason, v.Message = ReasonNodeLost, m.Lost
	case m.Pod == nil && m.Refusal.Reason != "":
		v.Reason, v.Message = m.Refusal.Kind, "waiting for the pod to be created: "+m.Refusal.Reason
	case m.Pod != nil && m.Pod.DeletionTimestamp != nil:
		v.terminate(o)
	case Gone(m.Pod):
		v.Message = "waiting for the pod to be created"
	case m.Target.Unscheduled():
		v.findNode(o)
	case v.Unready:
		p := v.notReady(o)
		v.Reason, v.Message = p.reason, p.why
		v.changesAt(p.until, o)
	case m.Available && v.Unproved():
		v.Message = o.waitsForProof()
	case m.Available:
		v.Message = "waiting for the kubelet to resize it"
	default:
		v.Message = "waiting for the pod to become available"
	}
}

// terminate notes that the pod is going, and what keeps it when its grace period is over.
func (v *Verdict) terminate(o Terms) {
	pod := v.Member.Pod
	v.Message = "terminating"
	v.changesAt(pod.DeletionTimestamp.Time, o)
	if v.keptByFinalizer(o) {
		v.Message += ", held by finalizer " + strings.Join(pod.Finalizers, ", ")
	}
}

// keptByFinalizer reports whether the pod is still there after its grace period, and has finalizers.
func (v *Verdict) keptByFinalizer(o Terms) bool {
	pod := v.Member.Pod
	return pod != nil && len(pod.Finalizers) > 0 && pod.DeletionTimestamp != nil && !o.Now.Before(pod.DeletionTimestamp.Time)
}

// schedulerTime is how long after its resize the scheduler may need to look at a pod
// again: what it has said before may be of the size that the pod had then.
const schedulerTime = 10 * time.Second

// findNode notes what an updated pod without a node waits for. One that was resized while it
// had none keeps the rollout open until it has one, so that its resize can be recorded.
func (v *Verdict) findNode(o Terms) {
	nowhere, resized := v.Member.Target.Nowhere(), v.Member.Target.Resized
	looked := v.Member.shownSince(o).Add(schedulerTime)
	if !resized.IsZero() {
		v.Decision = policy.Wait
	}
	switch {
	case v.Member.Target.Gated():
		v.Message = "waiting for a node: the pod is gated, and is scheduled when its scheduling gates are removed"
	case resized.IsZero() && nowhere == "":
		v.Message = "waiting for the pod to become available"
	case resized.IsZero():
		v.Message = "waiting for a node: " + nowhere
	case nowhere == "" || o.Now.Before(looked):
		v.Message = "waiting for a node, at its new size"
		v.changesAt(looked, o)
	default:
		v.Reason, v.Message = ReasonNoNodeFits, "no node has room for it at its new size, either: "+nowhere
	}
}

// changesAt notes that the verdict may be another one from then on, if then is to come.
func (v *Verdict) changesAt(then time.Time, o Terms) {
	if then.After(o.Now) && (v.Until.IsZero() || then.Before(v.Until)) {
		v.Until = then
	}
}

// progress is how far a resize has come.
type progress struct {
	state  resize.State
	reason string // of the condition
	why    string
	until  time.Time // when the state is another one by itself; zero if it never is
}

// progress is what the state that the pod shows counts as.
func (v *Verdict) progress(o Terms) progress {
	m := v.Member
	if known := m.known(o); known.state != "" {
		return known
	}
	if m.mayAskAgain(v.Observed) {
		return progress{state: resize.Unsent, reason: ReasonProgressing, why: "asking again: " + resize.Describe(m.Target.Effects)}
	}
	switch v.Observed {
	case resize.Unsent:
		return m.unsent(o)
	case resize.Deferred:
		return m.timed(o, resize.Deferred, resize.DeferredTooLong, o.DeferredTimeout, ReasonDeferred, m.onNode("deferred")+": "+v.Says)
	case resize.Failing:
		return m.timed(o, resize.Failing, resize.FailingTooLong, o.ErrorTimeout, ReasonResizeError, m.onNode("failing")+": "+v.Says)
	case resize.Infeasible:
		return progress{state: resize.Infeasible, reason: ReasonInfeasible, why: m.onNode("infeasible") + ": " + v.Says}
	case resize.Actuated:
		return progress{state: resize.Actuated}
	case resize.Unready:
		if m.Target.Unscheduled() { // nothing is left to be done to it
			return progress{state: resize.Actuated}
		}
		if v.Unready {
			return v.notReady(o)
		}
	case resize.InProgress:
		return v.underWay(o)
	}
	return progress{state: resize.InProgress, reason: ReasonProgressing, why: v.Says}
}

// Known is what is known of the resize whatever the kubelet says; without a state if that
// is nothing.
func (m Member) known(o Terms) progress {
	obstacles := m.Target.Obstacles
	if m.Barred != "" {
		obstacles = append(slices.Clip(obstacles), m.Barred)
	}
	switch {
	case m.Lost != "":
		return progress{state: resize.InProgress, reason: ReasonNodeLost, why: m.Lost}
	case len(obstacles) > 0 && m.Unplaceable.Kind == ReasonInvalid && !m.InPlaceOnly:
		return progress{resize.Unresizable, ReasonInvalid, m.invalid(o), m.Unplaceable.Until}
	case len(obstacles) > 0:
		return progress{state: resize.Unresizable, reason: ReasonInfeasible, why: strings.Join(obstacles, ", ")}
	// Only LiveResize asks again: otherwise the pod is restarted, or a change of the nodes is waited for.
	case m.Refusal.stands(o.Now) || m.Refusal.Final && o.Action != policy.LiveResize && !m.InPlaceOnly:
		return progress{resize.Infeasible, m.Refusal.Kind, m.refusal(), m.Refusal.Until}
	case o.Unavailable == 0 && o.Action != policy.LiveResize && m.Available && m.Target.Restarts():
		return progress{state: resize.Disruptive, reason: ReasonProgressing, why: "its resize would restart a container, and maxUnavailable is 0"}
	}
	return progress{}
}

// mayAskAgain reports whether the kubelet is to look once more at what it has put off or refused.
func (m Member) mayAskAgain(state resize.State) bool {
	return m.Again && (state == resize.Deferred || state == resize.Infeasible) && len(m.Target.Back().Changes) > 0
}

// unsent is the progress of a pod whose spec does not have the size yet.
func (m Member) unsent(o Terms) progress {
	switch {
	case m.Target.Unscheduled() && m.Target.Nowhere() == "":
		return progress{state: resize.InProgress, reason: ReasonProgressing, why: "waiting for the pod to be scheduled"}
	case o.Lost != "":
		return progress{state: resize.Unresizable, reason: ReasonDeletedAfterResize, why: o.Lost}
	case m.Refusal.Final: // asked again, and the message stays the same
		return progress{state: resize.Unsent, reason: m.Refusal.Kind, why: m.refusal() + "; left as it is"}
	case m.Refusal.Reason != "":
		return m.refused(o)
	}
	return progress{state: resize.Unsent, reason: ReasonProgressing, why: "resizing: " + resize.Describe(m.Target.Changes)}
}

// refused is the progress of a pod whose size the API server does not take for now.
//
// It takes none for a pod of which the kubelet does not say what its containers have.
// A kubelet that is just starting says it a moment later; one that has not said it
// until the timeout does not know how to resize.
func (m Member) refused(o Terms) progress {
	if m.Refusal.Kind != ReasonUnsupportedByNode {
		return progress{resize.Refused, m.Refusal.Kind, m.refusal(), m.Refusal.Until}
	}
	final := m.Refusal.Since.Add(o.ErrorTimeout)
	if o.Now.Before(final) || !m.Target.Unreported() {
		until := m.Refusal.Until
		if final.Before(until) {
			until = final
		}
		return progress{resize.Refused, ReasonProgressing, "waiting for the kubelet of " + OnNode(m.Node()) + " to report the containers' resources", until}
	}
	return progress{state: resize.Infeasible, reason: ReasonUnsupportedByNode,
		why: fmt.Sprintf("%s, for more than %s", m.refusal(), o.ErrorTimeout)}
}

// refusal is the answer of the API server, with the node that it is about.
func (m Member) refusal() string {
	switch m.Refusal.Kind {
	case ReasonInfeasible:
		return m.onNode("infeasible") + ": " + m.Refusal.Reason
	case ReasonUnsupportedByNode:
		return OnNode(m.Node()) + " does not support it: " + m.Refusal.Reason
	default:
		return m.Refusal.Reason
	}
}

// timed is the progress of a pod that is in a state which counts as another, final one
// after the timeout. Whoever has not watched it, such as a command, takes the kubelet's word for since when.
func (m Member) timed(o Terms, now, then resize.State, timeout time.Duration, reason, why string) progress {
	since, says := m.since(o), corev1.PodResizePending
	if now == resize.Failing {
		says = corev1.PodResizeInProgress
	}
	if at := saidSince(m.Pod, says); m.Since.IsZero() && !at.IsZero() {
		since = at
	}
	until := since.Add(timeout)
	if o.Now.Before(until) {
		return progress{now, reason, why, until}
	}
	return progress{state: then, reason: reason, why: fmt.Sprintf("%s, for more than %s", why, timeout)}
}

// underWay is the progress of a pod whose kubelet has not finished. Of one that says that it resizes the pod, nothing follows but that it
// is told: that may take long, as where a container ends slowly.
func (v *Verdict) underWay(o Terms) progress {
	m, p := v.Member, progress{state: resize.InProgress, reason: ReasonProgressing, why: v.Says}
	if m.Answer == resize.Unanswered && !m.GivenUp.IsZero() && !o.Now.Before(m.GivenUp) {
		_, lacks := m.Target.Answer()
		return progress{state: resize.FailingTooLong, reason: ReasonResizeError, why: m.onNode("no answer from the kubelet") + ": " + lacks}
	}
	at := saidSince(m.Pod, corev1.PodResizeInProgress)
	if at.IsZero() {
		return p
	}
	if m.Since.After(at) {
		at = m.Since
	}
	if p.until = at.Add(o.ErrorTimeout); !o.Now.Before(p.until) {
		p.reason, p.why = ReasonResizeError, fmt.Sprintf("%s: %s, for more than %s", m.onNode("not done"), v.Says, o.ErrorTimeout)
	}
	return p
}

// unreadyGrace is how long a pod may be not Ready after its resize before the condition says
// so: where a container restarts, it is so as a matter of course.
const unreadyGrace = 10 * time.Second

// notReady is the progress of a pod that is not Ready since it was resized. Nothing but what
// the condition says depends on for how long it is so.
func (v *Verdict) notReady(o Terms) progress {
	if until := v.Member.shownSince(o).Add(unreadyGrace); o.Now.Before(until) {
		return progress{resize.InProgress, ReasonProgressing, "waiting for the pod to be Ready", until}
	}
	size := "new size"
	if o.Back {
		size = "size from before"
	}
	return progress{state: resize.InProgress, reason: ReasonNotReadyAfterResize, why: "not Ready at its " + size}
}

// overdue notes whether the pod is waited for to be Ready for too long.
func (v *Verdict) overdue(o Terms) {
	m := v.Member
	if o.ReadyTimeout <= 0 || v.Observed != resize.Unready || v.Message == "" || m.Lost != "" || m.Target.Unscheduled() {
		return
	}
	if at := m.since(o).Add(o.ReadyTimeout); o.Now.Before(at) {
		v.changesAt(at, o)
		return
	}
	v.Overdue = true
	v.Message += fmt.Sprintf(", for more than %s", o.ReadyTimeout)
}

// since is when the pod came into its state, as far as anybody has seen it.
func (m Member) since(o Terms) time.Time {
	if m.Since.IsZero() {
		return o.Now
	}
	return m.Since
}

// shownSince is since when the pod shows its state, for words only: whoever has not watched it, such as a command, takes the word of the
// API server and the kubelet for it, whose clocks may differ.
func (m Member) shownSince(o Terms) time.Time {
	if m.Since.IsZero() && !m.Target.Resized.IsZero() {
		return m.toldSince()
	}
	return m.since(o)
}

// toldSince is since when the pod has its size, and is Ready or is not, by the clocks of the API server and its kubelet.
func (m Member) toldSince() time.Time { return toldSince(m.Pod, m.Target) }

func toldSince(pod *corev1.Pod, target resize.Target) time.Time {
	return slices.MaxFunc([]time.Time{target.Resized, readyOrNotSince(pod)}, time.Time.Compare)
}

func (m Member) onNode(what string) string { return what + " on " + OnNode(m.Node()) }

// Settled reports whether the pod runs with the size of its spec, and nothing but the pod itself is in the way of its being Ready.
func (v *Verdict) Settled() bool {
	return Done(v.Observed) && v.Member.Lost == "" && !v.Member.Target.Unscheduled()
}

// HasSize reports whether the pod's spec has the size that is rolled out.
func (v *Verdict) HasSize() bool {
	m := &v.Member
	return !Gone(m.Pod) && m.Differs == "" && len(m.Target.Changes)+len(m.Target.Obstacles) == 0
}

// GivenUp reports whether the pod will not come to its size in place.
func (v *Verdict) GivenUp() bool {
	return v.Decision == policy.RestartByController || v.Decision == policy.Leave || v.Decision == policy.WaitForDelete
}

// Holds reports whether the hold must stay for the member.
func (v *Verdict) Holds() bool {
	switch v.Decision {
	case policy.Leave, policy.MarkUpdated, policy.Resize, policy.Wait:
		return !v.Member.InPlaceOnly
	default:
		return false
	}
}
