package resize

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"
)

// State is how far the resize of one pod has come.
type State string

// The states that a pod shows itself. Deferred, Infeasible and Failing are what the
// kubelet says in the pod's conditions (KEP-1287); a reason unknown to us counts as
// Deferred, as it did for the older status.resize.
const (
	// Unsent: the pod's spec does not have the wanted size.
	Unsent State = "Unsent"
	// InProgress: the spec has it, the kubelet has not finished.
	InProgress State = "InProgress"
	// Deferred: possible on this node, but not now; the kubelet tries again.
	Deferred State = "Deferred"
	// Infeasible: not possible on this node; the kubelet does not try again.
	Infeasible State = "Infeasible"
	// Failing: the kubelet accepted it but cannot carry it out yet, as with a
	// memory limit below what is in use; it tries again for ever.
	Failing State = "Failing"
	// Unready: carried out, but the pod is not Ready. A pod that has no node yet is Unready
	// too: nothing has to be carried out.
	Unready State = "Unready"
	// Actuated: carried out, and the pod is Ready.
	Actuated State = "Actuated"
)

// The states that follow from more than what the pod shows, such as deadlines: pkg/judge/verdict.go tells them.
const (
	// Refused: the API server does not take the size now, as where a quota is exceeded;
	// asking again may help.
	Refused State = "Refused"
	// DeferredTooLong: still Deferred at the deadline.
	DeferredTooLong State = "DeferredTooLong"
	// FailingTooLong: still Failing at the deadline.
	FailingTooLong State = "FailingTooLong"
	// Unresizable: something known before any request stands in the way, such as a limit that is removed.
	Unresizable State = "Unresizable"
	// Disruptive: the resize would take the pod down, and no pod may be down. With the action
	// LiveResize no pod is in this state: nothing but a resize is wanted.
	Disruptive State = "Disruptive"
)

// Observe returns how far the pod is on its way to the target's size, and the kubelet's
// message or what is being waited for. The state of the zero Target is empty.
//
// The proof that a resize was carried out needs all of these on one and the same pod
// object: the spec has the size; the kubelet has observed that spec, reports no resize as
// pending or in progress, has allocated the requests and applied the limits; and the pod is
// Ready. Fewer are not enough: conditions are absent both before the kubelet notices the
// spec and while a container restarts for its new size. Kubelets before Kubernetes 1.34 do not
// say which spec they have observed: see [Kubelet].
func (t Target) Observe() (State, string) {
	if t.pod == nil {
		return "", ""
	}
	if len(t.Changes) > 0 {
		return Unsent, ""
	}
	if t.Unscheduled() {
		return Unready, "waiting for a node"
	}
	if state, message := t.fromConditions(); state != "" {
		return state, message
	}
	if answer, lacks := t.answer(); answer != Confirmed && (answer != Unconfirmed || !t.trusted) {
		return InProgress, "waiting for the kubelet: " + lacks
	}
	if !podutils.IsPodReady(t.pod) {
		return Unready, "waiting for the pod to be Ready"
	}
	return Actuated, ""
}

// Answer is what a kubelet says of a size in a pod's status, where no condition of the pod tells of a resize.
type Answer int

// The answers, in the order of how much they leave open. What they mean if they last is decided in pkg/judge.
const (
	// Confirmed: the status shows the size, or conditions tell of its resize, or it has not been asked for.
	Confirmed Answer = iota
	// Unconfirmed: the kubelet has allocated the size, but its status shows other values than were to be applied, or
	// an older generation. Some never show them: kubelets without CFS quota report no cpu limit
	// (kubernetes#129719), NRI plugins have values of their own (kubernetes#130598), and
	// virtual kubelets report the generation of another pod.
	Unconfirmed
	// Unanswered: it has not allocated the size, and does not say why.
	Unanswered
	// Starting: it has not said yet what a container has.
	Starting
)

// Answer returns what the kubelet says of the target's size, and what its status lacks.
func (t Target) Answer() (Answer, string) {
	if t.pod == nil || len(t.Changes) > 0 || t.Unscheduled() {
		return Confirmed, ""
	}
	if state, _ := t.fromConditions(); state != "" {
		return Confirmed, ""
	}
	return t.answer()
}

// answer is Answer for a pod that has been asked for the size, and whose conditions do not tell of a resize.
func (t Target) answer() (answer Answer, lacks string) {
	for _, p := range t.named {
		if of, missing := t.unapplied(p); of > answer {
			answer, lacks = of, p.label()+": "+missing
		}
	}
	if !t.asked && answer <= Unconfirmed { // it was so from the pod's birth on
		return Confirmed, ""
	}
	if t.kubelet.observed(t.pod) {
		return answer, lacks
	}
	if lacks = fmt.Sprintf("generation %d is not observed", t.pod.Generation); answer == Confirmed {
		return Unconfirmed, lacks
	}
	return max(answer, Unanswered), lacks // what its status shows is of another spec
}

// Trusting returns the target for a kubelet of which it is known that its status never shows what it has
// carried out: that it has allocated the size has to do.
func (t Target) Trusting() Target {
	t.trusted = true
	return t
}

// Trusts reports whether the target is for such a kubelet, and its status does not show the size.
func (t Target) Trusts() bool {
	answer, _ := t.Answer()
	return t.trusted && answer == Unconfirmed
}

// Busy reports whether the kubelet has not carried out yet, or not answered, what somebody has asked
// for by a resize, for as long as it may need. Containers of which the kubelet reports no resources
// do not count. What was never asked for is no resize, whatever the status shows.
func Busy(pod *corev1.Pod, kubelet Kubelet) bool {
	if !asked(pod) {
		return false
	}
	t := specified(pod, kubelet)
	state, _ := t.Observe()
	if state != InProgress || len(t.named) == 0 {
		return false
	}
	answer, _ := t.Answer()
	return answer == Confirmed || answer == Starting || !kubelet.overdue(pod)
}

// Owes reports whether the pod is busy until its kubelet shows that, and no longer than the kubelet may take: no condition tells of a resize.
func Owes(pod *corev1.Pod, kubelet Kubelet) bool {
	answer, _ := specified(pod, kubelet).Answer()
	return (answer == Unconfirmed || answer == Unanswered) && Busy(pod, kubelet)
}

// asked reports whether anybody has ever asked for another size of the pod.
func asked(pod *corev1.Pod) bool { return slices.ContainsFunc(pod.ManagedFields, Recorded) }

// Settled reports whether the kubelet has carried out what the pod's spec asks for now, and the pod is
// Ready, whatever the target is: it may be another size.
func (t Target) Settled() bool {
	now := specified(t.pod, t.kubelet)
	now.trusted = t.trusted
	state, _ := now.Observe()
	return state == Actuated
}

// specified returns the target that is the size which the pod's spec has already.
func specified(pod *corev1.Pod, kubelet Kubelet) Target {
	t := Target{pod: pod, kubelet: kubelet, asked: asked(pod)}
	for _, p := range parts(&pod.Spec) {
		if t.says(p) {
			t.named = append(t.named, p)
		}
	}
	return t
}

// Clean reports whether nothing is left to do for the target: the pod's spec has the size and,
// if we have ever resized the pod, so have its containers. A pod that is not Ready may be
// clean.
func (t Target) Clean() bool {
	if len(t.Changes)+len(t.Obstacles) > 0 {
		return false
	}
	state, _ := t.Observe()
	return t.Resized.IsZero() || state == Actuated || state == Unready
}

// Unscheduled reports whether the pod has no node. It starts with whatever size it has
// when it gets one.
func (t Target) Unscheduled() bool { return t.pod != nil && t.pod.Spec.NodeName == "" }

// Gated reports whether the scheduler does not look at the pod yet, as it has scheduling gates (KEP-3521).
func (t Target) Gated() bool { return t.Unscheduled() && len(t.pod.Spec.SchedulingGates) > 0 }

// Nowhere returns why the scheduler found no node for the pod when it last looked; empty if
// the pod has a node, or the scheduler has not looked yet. For which size it has looked is
// not known.
func (t Target) Nowhere() string {
	if !t.Unscheduled() || t.Gated() {
		return ""
	}
	for _, c := range t.pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return cmp.Or(c.Message, c.Reason, "it is not scheduled")
		}
	}
	return ""
}

// fromConditions returns what the kubelet says of the present spec in the pod's conditions;
// an empty state if it says nothing. A condition about an older generation is believed once the kubelet
// has surely looked at this one, and a condition without a generation, of a kubelet that sets none, unless
// it may be from before the pod was last asked.
func (t Target) fromConditions() (State, string) {
	var progress State
	var message string
	for _, c := range t.pod.Status.Conditions {
		if c.Status != corev1.ConditionTrue || c.Type != corev1.PodResizePending && c.Type != corev1.PodResizeInProgress {
			continue
		}
		switch {
		case t.kubelet.stale(t.pod, c):
			progress, message = InProgress, "waiting for the kubelet to look at the new size"
		case c.Type == corev1.PodResizePending && c.Reason == corev1.PodReasonInfeasible:
			return Infeasible, c.Message
		case c.Type == corev1.PodResizePending:
			return Deferred, c.Message
		case c.Reason == corev1.PodReasonError:
			progress, message = Failing, c.Message
		default:
			progress, message = InProgress, cmp.Or(c.Message, "the kubelet is resizing it") // as a rule it says no more
		}
	}
	return progress, message
}

// unapplied returns what the status of p still lacks, and what that means; empty if it lacks nothing.
func (t Target) unapplied(p part) (Answer, string) {
	status := t.status(p)
	if p.kind != podLevel && status == nil {
		return Starting, "it has no status"
	}
	if t.hasRun(p) {
		return Confirmed, "" // nothing will be applied to it
	}
	for _, name := range resizable {
		request := p.value(Request, name)
		if request == nil || t.carriedOut(p, Request, name, *request) {
			continue
		}
		lacks := fmt.Sprintf("%s request %s is not allocated", name, request)
		if status != nil && status.State.Running == nil {
			return Starting, lacks
		}
		return Unanswered, lacks
	}
	_, applied := t.reported(p)
	for _, name := range resizable {
		request, limit := p.value(Request, name), p.value(Limit, name)
		if request != nil && p.restartsFor(name) && !same(request, lookup(applied.Requests, name)) {
			return Unconfirmed, fmt.Sprintf("%s request %s waits for the container's restart", name, request)
		}
		if limit != nil && !t.carriedOut(p, Limit, name, *limit) {
			return Unconfirmed, fmt.Sprintf("%s limit %s is not applied", name, limit)
		}
	}
	return Confirmed, ""
}

// hasRun reports whether p is an init container that has run.
func (t Target) hasRun(p part) bool {
	status := t.status(p)
	return p.kind == initContainer && !p.sidecar() && status != nil && status.State.Terminated != nil
}

// reported returns what the kubelet says of p: the requests that it has allocated, and the
// resources that are in force. Both are empty if it says nothing.
//
// Of the pod as a whole the kubelet says what its cgroup has, with the overhead of the RuntimeClass: the requests allocated so, and the limits
// (convertStatusToAPIStatus in pkg/kubelet, and ResourceConfigForPod in pkg/kubelet/cm of Kubernetes). The requests in its status.resources
// have that in part, and are not read.
func (t Target) reported(p part) (allocated corev1.ResourceList, applied corev1.ResourceRequirements) {
	if p.kind == podLevel {
		allocated = t.withoutOverhead(t.pod.Status.AllocatedResources)
		limits := t.withoutOverhead(ptr.Deref(t.pod.Status.Resources, corev1.ResourceRequirements{}).Limits)
		return allocated, corev1.ResourceRequirements{Requests: allocated, Limits: limits}
	}
	if status := t.status(p); status != nil {
		return status.AllocatedResources, ptr.Deref(status.Resources, corev1.ResourceRequirements{})
	}
	return nil, corev1.ResourceRequirements{}
}

// withoutOverhead returns a list of the pod as a whole without its overhead, which is added to no limit of 0 (PodLimits in
// k8s.io/component-helpers/resource).
func (t Target) withoutOverhead(list corev1.ResourceList) corev1.ResourceList {
	if len(t.pod.Spec.Overhead) == 0 {
		return list
	}
	own := list.DeepCopy()
	for name, q := range own {
		if over := t.pod.Spec.Overhead[name]; q.Cmp(over) >= 0 {
			q.Sub(over)
			own[name] = q
		}
	}
	return own
}

// carriedOut reports whether the kubelet says that it has allocated a request of p, or applied a limit.
func (t Target) carriedOut(p part, side Side, name corev1.ResourceName, want resource.Quantity) bool {
	allocated, applied := t.reported(p)
	if side == Request {
		return same(&want, lookup(allocated, name))
	}
	var over resource.Quantity
	if p.kind == podLevel {
		over = t.pod.Spec.Overhead[name]
	}
	return appliedAs(name, want, over, lookup(applied.Limits, name))
}

// inForce returns the value that is in force in the pod as it runs: the kubelet may not have
// accepted yet what the spec asks for; of a value that is new, nothing is in force then. Where the
// kubelet says nothing of p, it is the spec's value. So it is where nobody has asked for another one since the pod's
// birth, or the kubelet has allocated it: then the status shows what a runtime makes of it. It is the older template's value, too, where the
// status may show what a runtime makes of that: asked for again, a limit that is rounded down could be below its request.
func (t Target) inForce(p part, v value) *resource.Quantity {
	if !t.asked || !t.says(p) || t.hasRun(p) || v.From != nil && t.carriedOut(p, v.Side, v.Resource, *v.From) {
		return v.From
	}
	if state, _ := t.fromConditions(); state == "" && t.kubelet.observed(t.pod) {
		if answer, _ := t.unapplied(p); answer == Unconfirmed {
			return v.From
		}
	}
	if v.was != nil && t.carriedOut(p, v.Side, v.Resource, *v.was) {
		return v.was
	}
	allocated, applied := t.reported(p)
	if v.Side == Limit {
		return lookup(applied.Limits, v.Resource)
	}
	return lookup(allocated, v.Resource)
}

// pageSizes are those that kernels have, in bytes.
var pageSizes = []int64{4 << 10, 16 << 10, 64 << 10}

// appliedAs reports whether got, of the status, shows that the limit want is applied, which the cgroup has together with over. The systemd
// cgroup driver rounds a cpu limit up to the next 10m, so 105m may be shown as 110m. The kernel rounds a memory limit down to whole pages, and
// the kubelet reads that of the pod as a whole from there (convertToAPIPodLevelResourcesStatus in pkg/kubelet of Kubernetes): 600M may be shown
// as 599998464.
func appliedAs(name corev1.ResourceName, want, over resource.Quantity, got *resource.Quantity) bool {
	const step = 10
	switch {
	case same(&want, got):
		return true
	case got == nil:
		return false
	case name == corev1.ResourceCPU:
		over := over.MilliValue()
		return got.MilliValue()+over == (want.MilliValue()+over+step-1)/step*step
	default:
		over := over.Value()
		return name == corev1.ResourceMemory && slices.ContainsFunc(pageSizes, func(page int64) bool { return got.Value()+over == (want.Value()+over)/page*page })
	}
}

// says reports whether the kubelet says what p has.
func (t Target) says(p part) bool {
	if p.kind == podLevel {
		return t.pod.Status.Resources != nil
	}
	status := t.status(p)
	return status != nil && status.Resources != nil
}

func (t Target) status(p part) *corev1.ContainerStatus {
	statuses := t.pod.Status.ContainerStatuses
	if p.kind == initContainer {
		statuses = t.pod.Status.InitContainerStatuses
	}
	for i := range statuses { // they are too large to be copied
		if statuses[i].Name == p.name {
			return &statuses[i]
		}
	}
	return nil
}
