package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// Place is one pod of a workload, or where one is to be, as its kind knows it.
type Place struct {
	// Name of the pod.
	Name string
	// Index of the place, from 0.
	Index int
	// Pod is nil while the place is empty.
	Pod *corev1.Pod
	// Updated: the pod counts as one of the newest revision, and no edit that was given up
	// has left anything in it. Of a place that is, or is about to be, empty: the next pod
	// there will be so.
	Updated bool
	// Labelled: the built-in controller takes the pod for updated.
	Labelled bool
	// Available as the built-in controller means it: Ready for minReadySeconds and not terminating.
	Available bool
	// Differs is what besides cpu and memory differs between the revision of the pod (for an
	// empty place: of the pod that is born there next) and the newest one; empty if nothing does.
	Differs string
	// Brings is what the newest revision changes of cpu and memory; empty if the pod is
	// updated or Differs is not empty.
	Brings string
	// Target is the size that the pod must have; of pods that exist and are not terminating.
	Target resize.Target
}

// Member is a place with what is known of it besides.
type Member struct {
	Place
	Sighting

	// Policy for what the newest revision changes, and why if it is RestartOnly.
	Policy policy.Policy
	Why    string
	// Refusal of this resize by the API server; of a place without a pod, of the pod.
	Refusal Refusal
	// Unplaceable is why there is no place for the pod that a restart would bring, on any
	// node or in the namespace, and when to look again; without a reason, there is.
	Unplaceable Refusal
	// Barred is why the API server would refuse a resize to a size that it may take for a
	// new pod; empty if it would not.
	Barred string
	// Lost is why nothing is to be expected of the pod's node; empty if it is there.
	Lost string
}

// Sighting is what has been seen of a pod's resize before.
type Sighting struct {
	// Since is when the resize was first seen in the state in which it is; zero if it has
	// not been before. It is told by the clock of Options.Now, and by no other.
	Since time.Time
	// Cure: the pod was not Ready when it was last asked for a size.
	Cure bool
	// Again: the pod is to be asked once more for what its kubelet has put off or refused.
	Again bool
}

// Refusal is why something cannot be had now, such as a size that the API server does not take.
type Refusal struct {
	// Of what: the size that was asked for.
	Of string
	// Reason for it; empty if there is no refusal.
	Reason string
	// Kind is the reason of the condition that goes with it.
	Kind string
	// Final: the answer stays the same as long as the pod is where it is.
	Final bool
	// Since then the answer has been of this kind.
	Since time.Time
	// Until then it is not asked for again.
	Until time.Time
}

// Refusals are what objects, such as pods, cannot have, by their UID.
type Refusals map[types.UID]Refusal

// Of returns the refusal of this size for this object; without a reason, there is none.
func (r Refusals) Of(object types.UID, size string) Refusal {
	if refusal := r[object]; refusal.Of == size {
		return refusal
	}
	return Refusal{}
}

// Gone tells whether the place of the pod, which is nil if there is none, is empty or
// about to be.
func Gone(pod *corev1.Pod) bool {
	return pod == nil || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Options are what a workload says about its rollout.
type Options struct {
	// Limit is how many pods may be under way at once: being resized, not available,
	// or about to be restarted.
	Limit int
	// Unavailable is how many of them may be down at once: what takes a pod down keeps to
	// that. With 0, a pod that its resize would take down is replaced first, unless the
	// action is LiveResize: then one at a time is down.
	Unavailable int
	// Aside are the places that are no members, but not available, or being resized, and so
	// count, too.
	Aside []Member
	// RestartLast tells that pods are restarted when nothing is left that can be resized
	// live, and that they hold up nobody before that. Otherwise each has its turn.
	RestartLast bool
	// Strategy decides who restarts pods.
	Strategy policy.Strategy
	// Action that came with the edit.
	Action policy.Action
	// DeferredTimeout and ErrorTimeout are how long a pod may be Deferred, or Failing,
	// before that counts as final.
	DeferredTimeout, ErrorTimeout time.Duration
	// Now is the time.
	Now time.Time
}

// Wait says what one place of a workload is waiting for.
type Wait struct {
	Member          Member
	Reason, Message string // Reason is one of the condition's
}

// Step is what may be done now, and what has to be waited for.
type Step struct {
	// Resize these pods.
	Resize []Member
	// MarkUpdated these: they have the new size and are only not counted as updated yet.
	MarkUpdated []Member
	// Restart these: only new pods can have the new template, and every pod before
	// them is done.
	Restart []Restart
	// Keep tells that some pod, or one about to be born, must be kept from the built-in
	// controller: it can be resized live, or may not be restarted.
	Keep bool
	// Waits, in the order of the members.
	Waits []Wait
	// Updated pods, of Total.
	Updated, Total int
	// After this time, if not zero, something becomes possible or is over without any event.
	RequeueAfter time.Duration

	// Unready tells that pods are not Ready since they were resized.
	Unready bool

	kept    string // the first pod that is passed over; empty if none is
	blocks  []int  // the Waits of pods that are passed over, and take their share all the same
	waiting bool   // some pod waits for others before it is resized
}

// Restart is a pod that only a new one can replace.
type Restart struct {
	Member Member
	// Reason for the restart.
	Reason string
	// Now tells that the limit lets it be under way now.
	Now bool
	// Cause is the kind of the reason.
	Cause Cause
}

// Cause is the kind of reason for a restart.
type Cause string

// The causes.
const (
	// CauseTemplate: the template differs in more than the size.
	CauseTemplate Cause = "template"
	// CausePolicy: the policy of what changes is RestartOnly.
	CausePolicy Cause = "policy"
	// CauseAction: the action is Restart.
	CauseAction Cause = "action"
	// CauseImpossible: something known before any request stands in the way of a resize.
	CauseImpossible Cause = "impossible"
	// CauseInfeasible: the node can never hold the new size.
	CauseInfeasible Cause = "infeasible"
	// CauseDeferred: the node had no room until the deadline.
	CauseDeferred Cause = "deferred"
	// CauseError: the kubelet could not carry the resize out until the deadline.
	CauseError Cause = "error"
	// CauseUnavailable: the resize would take the pod down, and none may be.
	CauseUnavailable Cause = "unavailable"
)

// Causes are all of them.
var Causes = []Cause{CauseTemplate, CausePolicy, CauseAction, CauseImpossible, CauseInfeasible, CauseDeferred, CauseError, CauseUnavailable}

// causeOf is that of a restart after a resize had this outcome.
var causeOf = map[policy.Outcome]Cause{
	policy.Impossible: CauseImpossible, policy.Infeasible: CauseInfeasible,
	policy.DeferredTooLong: CauseDeferred, policy.FailingTooLong: CauseError, policy.Disruptive: CauseUnavailable,
}

// cause of a restart that is decided after a resize had this outcome.
func (m Member) cause(o Options, outcome policy.Outcome) Cause {
	switch {
	case m.Policy == policy.RestartOnly:
		return CausePolicy
	case o.Action == policy.Restart:
		return CauseAction
	default:
		return causeOf[outcome]
	}
}

// ByEdit tells whether the edit itself wants the restart, whatever comes of a resize.
func (r Restart) ByEdit() bool {
	return slices.Contains([]Cause{CauseTemplate, CausePolicy, CauseAction, CauseImpossible, CauseUnavailable}, r.Cause)
}

// Next goes through members in the order in which they are to be rolled, and
// decides for each by the table of package policy.
//
// With limit 1 and places 2, 1, 0, where 2 is resized but not Ready yet, nothing
// is done and 2 is waited for; once it is settled and available, 1 is resized.
// What is under way or down further down counts too, such as what was begun before
// something above it turned stale, by a new edit or a scale-up.
func Next(members []Member, o Options) Step {
	s, l := Step{Total: len(members)}, count(members, o)
	for _, m := range members {
		s.one(m, o, l)
	}
	if s.waiting {
		for _, i := range s.blocks {
			s.Waits[i].Message += "; as it is not available, others wait for it"
		}
		for _, m := range o.Aside {
			s.waitUntilUp(m, o)
		}
	}
	s.Unready = l.unready > 0
	return s
}

// one takes its share of the step for a member.
func (s *Step) one(m Member, o Options, l *load) {
	switch {
	case m.Updated:
		s.updated(m, o)
		return
	case m.Differs != "":
		s.restart(m, o, Restart{Member: m, Reason: m.Differs, Cause: CauseTemplate, Now: l.mayRestart(m)}, l)
		return
	case Gone(m.Pod):
		s.Keep = true
		s.waitUntilUp(m, o)
		return
	}
	judged := m.judge(o)
	s.RequeueWithin(judged.until.Sub(o.Now))
	switch policy.Decide(m.Policy, o.Action, o.Strategy, judged.outcome) {
	case policy.RestartByController, policy.WaitForDelete:
		s.restart(m, o, Restart{Member: m, Reason: judged.why(m, o), Cause: m.cause(o, judged.outcome), Now: l.mayRestart(m)}, l)
	case policy.Leave:
		s.passOver(m, judged.reason, judged.message+"; left as it is")
	case policy.MarkUpdated:
		s.Keep = true
		s.MarkUpdated = append(s.MarkUpdated, m)
	case policy.Resize:
		s.Keep = true
		if !l.mayResize(m) {
			s.waiting = true
			return
		}
		sent := !o.Now.Before(m.Refusal.Until)
		if sent {
			s.Resize = append(s.Resize, m)
		}
		l.asks(m, sent)
		s.wait(m, judged.reason, judged.message)
	default:
		s.Keep = true
		s.wait(m, judged.reason, judged.message)
	}
}

func (s *Step) updated(m Member, o Options) {
	if !Gone(m.Pod) {
		s.Updated++
	}
	if m.down() {
		s.waitUntilUp(m, o)
	}
}

// waitUntilUp tells of a pod that is not available, and has not to be touched.
func (s *Step) waitUntilUp(m Member, o Options) {
	switch {
	case m.Pod == nil && m.Refusal.Reason != "":
		s.wait(m, m.Refusal.Kind, "waiting for the pod to be created: "+m.Refusal.Reason)
	case Gone(m.Pod):
		s.wait(m, ReasonProgressing, "waiting for the pod to be created")
	case m.Lost != "":
		s.wait(m, ReasonNodeLost, m.Lost)
	case m.Target.Unscheduled():
		s.waitForNode(m, o)
	case m.unready():
		judged := m.notReady(o)
		s.RequeueWithin(judged.until.Sub(o.Now))
		s.wait(m, judged.reason, judged.message)
	case m.Available:
		s.wait(m, ReasonProgressing, "waiting for the kubelet to resize it")
	default:
		s.wait(m, ReasonProgressing, "waiting for the pod to become available")
	}
}

// TakesShare tells whether the pod takes part of the limit though it is no member.
func (m Member) TakesShare() bool { return m.down() || resize.Busy(m.Pod) }

// waitForNode tells of an updated pod that has no node. One that was resized while it had
// none keeps the rollout open until it has one, to be able to tell.
func (s *Step) waitForNode(m Member, o Options) {
	why, resized := m.Target.Nowhere(), m.Target.Resized
	switch looked := resized.Add(schedulerTime); {
	case resized.IsZero() && why == "":
		s.wait(m, ReasonProgressing, "waiting for the pod to become available")
	case resized.IsZero():
		s.wait(m, ReasonProgressing, "waiting for a node: "+why)
	case why == "" || o.Now.Before(looked):
		s.Keep = true
		s.RequeueWithin(looked.Sub(o.Now))
		s.wait(m, ReasonProgressing, "waiting for a node, at its new size")
	default:
		s.Keep = true
		s.wait(m, ReasonNoNodeFits, "no node has room for it at its new size, either: "+why)
	}
}

// schedulerTime is how long after its resize the scheduler may need to look at a pod
// again: what it has said does not tell for which size that was.
const schedulerTime = 10 * time.Second

// restart has the member restarted by whoever does that, unless the new pod would have
// no place, or something before it must be kept from the built-in controller.
//
// Of 3 no node fits, 2 stale, 1 infeasible, 0 stale, the partition cannot be lowered
// to 1 as long as 3 is kept, which may be for ever: so 1 does not hold up 0.
func (s *Step) restart(m Member, o Options, r Restart, l *load) {
	switch {
	case m.Unplaceable.Kind == ReasonInvalid:
		s.RequeueWithin(m.Unplaceable.Until.Sub(o.Now))
		s.passOver(m, ReasonInvalid, m.invalid(o)+"; left as it is")
		return
	case o.Strategy == policy.OnDelete:
		s.wait(m, ReasonWaitingForDelete, "restarts when it is deleted: "+r.Reason)
		return
	case m.Unplaceable.Reason != "":
		s.RequeueWithin(m.Unplaceable.Until.Sub(o.Now))
		s.passOver(m, m.Unplaceable.Kind, "not restarted, because "+m.Unplaceable.Reason+": "+r.Reason)
		return
	case s.kept != "":
		s.wait(m, ReasonProgressing, "waits for "+s.kept+", which is kept: "+r.Reason)
		return
	case o.RestartLast || !s.Keep:
		s.Restart = append(s.Restart, r)
		s.wait(m, ReasonProgressing, "restarting: "+r.Reason)
	}
	if !o.RestartLast {
		l.restarts(m)
	}
}

// passOver keeps the member for as long as nothing else changes: nobody waits for it
// who can do without a restart, as long as it is available.
func (s *Step) passOver(m Member, reason, message string) {
	s.Keep = true
	s.kept = cmp.Or(s.kept, m.Name)
	if m.down() {
		s.blocks = append(s.blocks, len(s.Waits))
	}
	s.wait(m, reason, message)
}

func (s *Step) wait(m Member, reason, message string) {
	s.Waits = append(s.Waits, Wait{m, reason, message})
}

// RequeueWithin asks for another look after d at the latest, if d is to come.
func (s *Step) RequeueWithin(d time.Duration) {
	if d > 0 && (s.RequeueAfter == 0 || d < s.RequeueAfter) {
		s.RequeueAfter = d
	}
}

// toldWaits bounds how many waits a message spells out.
const toldWaits = 3

// Condition of a workload whose rollout is not complete. The first wait that is
// more than progress names the reason. Pods that their size may have harmed come first.
func (s Step) Condition() Condition {
	c := Condition{Reason: ReasonProgressing, Message: fmt.Sprintf("%d of %d pods resized", s.Updated, s.Total)}
	waits := slices.Clone(s.Waits)
	slices.SortStableFunc(waits, func(a, b Wait) int {
		return asInt(b.Reason == ReasonNotReadyAfterResize) - asInt(a.Reason == ReasonNotReadyAfterResize)
	})
	for i, w := range waits {
		if c.Reason == ReasonProgressing {
			c.Reason = w.Reason
		}
		if i < toldWaits {
			c.Message += fmt.Sprintf("; %s: %s", w.Member.Name, w.Message)
		}
	}
	if more := len(s.Waits) - toldWaits; more > 0 {
		c.Message += fmt.Sprintf("; and %d more", more)
	}
	return c
}

// Names of the members' pods.
func Names(members []Member) []string {
	list := make([]string, len(members))
	for i, m := range members {
		list[i] = m.Name
	}
	return list
}

// Reasons tells of each restart which pod it is about, and why.
func Reasons(list []Restart) []string {
	said := make([]string, len(list))
	for i, r := range list {
		said[i] = r.Member.Name + ": " + r.Reason
	}
	return said
}

// Changes describes what the newest revision brings to the first pod that lacks it.
func Changes(members []Member) string {
	for _, m := range members {
		if !m.Updated && m.Pod != nil && m.Differs+m.Brings != "" {
			if m.Labelled {
				return EditBack + ": " + m.Brings
			}
			return m.Differs + m.Brings
		}
	}
	return EditBack + ": the pods have this size, or come back to it"
}

// EditBack is what is rolled out where the pods were made from this very template.
const EditBack = "an edit back"

// OldEnvironment lists the environment variables that will not show the new size, for
// the end of a message; empty if there are none.
func OldEnvironment(members []Member) string {
	var found []string
	for _, m := range members {
		for _, variable := range m.Target.OldEnvironment() {
			if !slices.Contains(found, variable) {
				found = append(found, variable)
			}
		}
	}
	if len(found) == 0 {
		return ""
	}
	return "; environment variables that show the old size until a restart: " + strings.Join(found, ", ")
}

// UntilAvailable is when a pod that is Ready now becomes available, if nothing
// else happens: no event tells of it.
func UntilAvailable(members []Member, minReadySeconds int32, now time.Time) time.Duration {
	least := time.Duration(0)
	for _, m := range members {
		if m.Pod == nil || m.Available || m.Pod.DeletionTimestamp != nil {
			continue
		}
		for _, c := range m.Pod.Status.Conditions {
			if c.Type != corev1.PodReady || c.Status != corev1.ConditionTrue {
				continue
			}
			wait := c.LastTransitionTime.Add(time.Duration(minReadySeconds) * time.Second).Sub(now)
			if wait = max(wait, 0) + 100*time.Millisecond; least == 0 || wait < least {
				least = wait
			}
		}
	}
	return least
}

// judgement is what has come of a member's resize so far.
type judgement struct {
	outcome policy.Outcome
	reason  string // of the condition, while it is waited for or left
	message string
	until   time.Time // when the outcome changes by itself, if it does
}

// why tells the reason for a restart.
func (j judgement) why(m Member, o Options) string {
	switch {
	case m.Policy == policy.RestartOnly:
		return m.Why
	case o.Action == policy.Restart:
		return "the action is Restart"
	default:
		return j.message
	}
}

func (m Member) judge(o Options) judgement {
	if known := m.known(o); known.outcome != "" {
		return known
	}
	state, message := m.Target.Observe()
	if m.mayAskAgain(state) {
		return judgement{outcome: policy.Untried, reason: ReasonProgressing, message: "asking again: " + resize.Describe(m.Target.Effects)}
	}
	switch state {
	case resize.Unsent:
		return m.unsent(o)
	case resize.Deferred:
		return m.timed(o, policy.Deferred, policy.DeferredTooLong, o.DeferredTimeout, ReasonDeferred, m.onNode("deferred")+": "+message)
	case resize.Failing:
		return m.timed(o, policy.Failing, policy.FailingTooLong, o.ErrorTimeout, ReasonResizeError, m.onNode("failing")+": "+message)
	case resize.Infeasible:
		return judgement{outcome: policy.Infeasible, reason: ReasonInfeasible, message: m.onNode("infeasible") + ": " + message}
	case resize.Actuated:
		return judgement{outcome: policy.Actuated}
	case resize.Unready:
		if m.Target.Unscheduled() { // nothing is left to be done to it
			return judgement{outcome: policy.Actuated}
		}
		if m.unready() {
			return m.notReady(o)
		}
	}
	return judgement{outcome: policy.InProgress, reason: ReasonProgressing, message: message}
}

// known is what is known of the resize whatever the kubelet says; without an outcome
// if that is nothing.
func (m Member) known(o Options) judgement {
	obstacles := m.Target.Obstacles
	if m.Barred != "" {
		obstacles = append(slices.Clip(obstacles), m.Barred)
	}
	switch {
	case m.Lost != "":
		return judgement{outcome: policy.InProgress, reason: ReasonNodeLost, message: m.Lost}
	case len(obstacles) > 0 && m.Unplaceable.Kind == ReasonInvalid:
		return judgement{policy.Impossible, ReasonInvalid, m.invalid(o), m.Unplaceable.Until}
	case len(obstacles) > 0:
		return judgement{outcome: policy.Impossible, reason: ReasonInfeasible, message: strings.Join(obstacles, ", ")}
	// Only LiveResize asks again: otherwise the pod is restarted, or a change of the nodes is waited for.
	case m.Refusal.Final && (o.Now.Before(m.Refusal.Until) || o.Action != policy.LiveResize):
		return judgement{policy.Infeasible, m.Refusal.Kind, m.refusal(), m.Refusal.Until}
	case o.Unavailable == 0 && o.Action != policy.LiveResize && m.Available && m.Target.Restarts():
		return judgement{outcome: policy.Disruptive, reason: ReasonProgressing, message: "its resize would restart a container, and maxUnavailable is 0"}
	}
	return judgement{}
}

// unsent is the judgement of a pod whose spec does not have the size yet.
func (m Member) unsent(o Options) judgement {
	switch {
	case m.Target.Unscheduled() && m.Target.Nowhere() == "":
		return judgement{outcome: policy.InProgress, reason: ReasonProgressing, message: "waiting for the pod to be scheduled"}
	case m.Refusal.Final: // asked again, it is told in the same words
		return judgement{outcome: policy.Untried, reason: m.Refusal.Kind, message: m.refusal() + "; left as it is"}
	case m.Refusal.Reason != "":
		return m.refused(o)
	}
	return judgement{outcome: policy.Untried, reason: ReasonProgressing, message: "resizing: " + resize.Describe(m.Target.Changes)}
}

// mayAskAgain tells whether the kubelet is to look once more at what it has put off or refused.
func (m Member) mayAskAgain(state resize.State) bool {
	return m.Again && (state == resize.Deferred || state == resize.Infeasible) && len(m.Target.Back().Changes) > 0
}

// notReady is a pod that is not Ready since it was resized. That is told after a while
// only; nothing else depends on for how long it is so.
func (m Member) notReady(o Options) judgement {
	if until := m.since(o).Add(UnreadyGrace); o.Now.Before(until) {
		return judgement{policy.InProgress, ReasonProgressing, "waiting for the pod to be Ready", until}
	}
	return judgement{outcome: policy.InProgress, reason: ReasonNotReadyAfterResize, message: "not Ready since its resize"}
}

func (m Member) since(o Options) time.Time {
	if m.Since.IsZero() {
		return o.Now
	}
	return m.Since
}

// invalid says why no new pod can have the size.
func (m Member) invalid(o Options) string {
	if o.Strategy == policy.OnDelete {
		return m.Unplaceable.Reason + "; do not delete it"
	}
	return m.Unplaceable.Reason
}

// timed is an outcome that counts as final after timeout.
func (m Member) timed(o Options, now, then policy.Outcome, timeout time.Duration, reason, message string) judgement {
	until := m.since(o).Add(timeout)
	if o.Now.Before(until) {
		return judgement{now, reason, message, until}
	}
	return judgement{outcome: then, reason: reason, message: fmt.Sprintf("%s, for more than %s", message, timeout)}
}

func (m Member) onNode(what string) string { return what + " on node " + m.Pod.Spec.NodeName }

// refused is the judgement of a size that the API server does not take for now.
//
// It takes none for a pod of which the kubelet does not say what its containers have.
// A kubelet that is just starting says it a moment later; one that has not said it
// until the timeout does not know how to resize.
func (m Member) refused(o Options) judgement {
	if m.Refusal.Kind != ReasonUnsupportedByNode {
		return judgement{policy.Refused, m.Refusal.Kind, m.refusal(), m.Refusal.Until}
	}
	final := m.Refusal.Since.Add(o.ErrorTimeout)
	if o.Now.Before(final) || !m.Target.Untold() {
		until := m.Refusal.Until
		if final.Before(until) {
			until = final
		}
		return judgement{policy.Refused, ReasonProgressing, "waiting for the kubelet of node " + m.Pod.Spec.NodeName + " to tell what the containers have", until}
	}
	return judgement{outcome: policy.Infeasible, reason: ReasonUnsupportedByNode,
		message: fmt.Sprintf("%s, for more than %s", m.refusal(), o.ErrorTimeout)}
}

// refusal says what the API server said, and of which node.
func (m Member) refusal() string {
	switch m.Refusal.Kind {
	case ReasonInfeasible:
		return m.onNode("infeasible") + ": " + m.Refusal.Reason
	case ReasonUnsupportedByNode:
		return "node " + m.Pod.Spec.NodeName + " does not support it: " + m.Refusal.Reason
	default:
		return m.Refusal.Reason
	}
}
