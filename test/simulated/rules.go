package simulated

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Rules are those of a rollout, by which a simulation judges what is done to a pod.
type Rules struct {
	*Cluster

	// Want is the template's version, and InForce the action and the policy that are.
	Want     Version
	Template *corev1.PodTemplateSpec
	InForce  string
	// Edit of the template.
	Edit string
	// Labelled: the built-in controller takes the pod for updated. Available is as it means it.
	Labelled, Available func(*corev1.Pod) bool
	// Keeps: admission has given the pod its cpu, and the template's is the same as then.
	Keeps func(*corev1.Pod) bool
	// Admitted: the pod is of the wanted version, and what it has instead is admission's.
	Admitted func(*corev1.Pod) bool
	// Born: the controller has seen a pod that was born for the edit.
	Born bool
	// Most is how many may be under way at once. Down is how many of them we may take down: with 0 none that can be
	// replaced first, and one of the others.
	Most, Down int
	// MinReady is for how long a pod has to have been well with its size until it has proved it.
	MinReady time.Duration
	// PassDeferred: nobody waits for a pod that waits for room on its node and has nothing to lose.
	PassDeferred bool
}

// of is the version that the pod is to have: the cpu that admission gave it at its birth stays.
func (r Rules) of(pod *corev1.Pod) Version {
	want := r.Want
	if r.Keeps(pod) {
		want.CPU = SizeOf(pod).CPU
	}
	return want
}

func (r Rules) size(pod *corev1.Pod) Version {
	want := r.of(pod)
	want.Image = 0
	return want
}

// NeedsRestart reports whether only a new pod can be one of the template.
func (r Rules) NeedsRestart(pod *corev1.Pod) bool {
	have, has := VersionOf(&pod.Spec), AppliedSize(pod)
	o := r.Outcome(pod, r.size(pod))
	differs := has != r.size(pod)
	if r.Hands != nil { // what a new one would have, too, is no reason
		return r.Want.Image != have.Image || r.NeedsNew(pod, r.Template, r.Born) || r.forced(pod, differs)
	}
	return r.Want.Image != have.Image || have.Memory > 0 && r.Want.Memory == 0 || (o.Refused || o.Infeasible) && differs || r.forced(pod, differs)
}

// forced reports whether what is in force says that a pod that has not come to the template's size restarts.
func (r Rules) forced(pod *corev1.Pod, differs bool) bool {
	action, list, _ := strings.Cut(r.InForce, ";")
	if action != string(policy.Restart) {
		return Forbids(list, pod, r.of(pod))
	}
	if r.Labelled(pod) {
		return differs || SizeOf(pod) != r.size(pod) || pod.Status.ObservedGeneration != pod.Generation
	}
	arrived := VersionOf(&pod.Spec) == r.of(pod) && !differs && pod.Status.ObservedGeneration == pod.Generation && len(pod.Status.Conditions) == 1 && podutils.IsPodReady(pod)
	return !arrived
}

// MayAsk returns why the pod may not be asked for that size by what is in force; empty if it may.
func (r Rules) MayAsk(pod *corev1.Pod, size Version) string {
	if do, list, _ := strings.Cut(r.InForce, ";"); do == string(policy.Restart) || Forbids(list, pod, size) {
		return fmt.Sprintf("resizes %s, which has %+v, to %+v, and %s is in force", pod.Name, AppliedSize(pod), size, r.InForce)
	}
	return ""
}

// Turns is what a simulation remembers of resizes.
type Turns struct {
	// Batch are the pods that this sync has asked.
	Batch []*corev1.Pod
	// Restarting are the pods whose container has been asked to restart, by their place.
	Restarting map[string]types.UID

	asked map[types.UID]string // the edit for which a pod was last asked while it was Ready
}

// NewTurns remembers nothing yet.
func NewTurns() Turns {
	return Turns{Restarting: map[string]types.UID{}, asked: map[types.UID]string{}}
}

// Other is a place beside the one of the pod that is resized.
type Other struct {
	Pod *corev1.Pod // nil if there is none
	// KeptBack: it is not to be resized. Lost: nobody waits for it who loses nothing by a resize.
	KeptBack, Lost bool
}

// MayResize returns why the pod of a place may not be asked beside those that the step has asked
// before, by what the plan was made from; empty if it may. With its container about to restart, it
// and all that are not available may not be more than may be under way, whatever made them so. And
// a size is tried on one pod first, then on as many more as have proved it. One that has yet to prove
// it counts as not available.
func (t Turns) MayResize(r Rules, place string, pod *corev1.Pod, others []Other) string {
	restarts := Restarts(pod, r.of(pod))
	if restarts {
		r.Most = min(r.Most, max(r.Down, 1))
	}
	if !podutils.IsPodReady(pod) { // it has its share already
		if _, counts := t.Restarting[place]; restarts && !counts && len(t.Restarting) >= r.Most {
			return fmt.Sprintf("restarts the container of %s beside those of %d others: the limit is %d", pod.Name, len(t.Restarting), r.Most)
		}
		return ""
	}
	var c count
	for _, other := range others {
		t.count(&c, r, pod, other, restarts)
	}
	if c.down+c.underWay >= r.Most {
		return fmt.Sprintf("resizes %s, and %d others are not available, and %d under way: the limit is %d", pod.Name, c.down, c.underWay, r.Most)
	}
	fresh := 0
	for _, asked := range t.Batch {
		fresh += asInt(podutils.IsPodReady(asked) || Restarts(asked, r.of(asked)))
	}
	if c.proved < r.Most && (c.unproved > 0 || fresh > c.proved) {
		return fmt.Sprintf("resizes %s with %d others, while %d pods have proved the size, and %d have yet to", pod.Name, fresh, c.proved, c.unproved)
	}
	return ""
}

// Asked notes that the pod of a place has been asked.
func (t Turns) Asked(r Rules, place string, pod *corev1.Pod) {
	if Restarts(pod, r.of(pod)) {
		t.Restarting[place] = pod.UID
	}
	if podutils.IsPodReady(pod) {
		t.asked[pod.UID] = r.Edit
	}
}

// count is of the pods beside the one that is resized.
type count struct{ down, underWay, proved, unproved int }

func (t Turns) count(c *count, r Rules, pod *corev1.Pod, beside Other, restarts bool) {
	other := beside.Pod
	has := other != nil && SizeOf(other) == r.size(other) && VersionOf(&other.Spec).Image == r.Want.Image
	is := has && AppliedSize(other) == SizeOf(other) && other.Status.ObservedGeneration == other.Generation
	switch {
	case beside.Lost && (!restarts || SizeOf(pod).Memory == r.Want.Memory): // then its restart has been asked for before
	case !r.Available(other) && !restarts && other != nil && other.DeletionTimestamp == nil && r.NeedsRestart(other):
		// It may wait for this one in turn.
	case other == nil && !restarts && GivesRoom(pod, r.of(pod)):
		// It may wait for the room that this one gives.
	case !r.Available(other) || beside.Lost:
		c.down++
		if has && !rollout.Gone(other) && !r.NeedsRestart(other) && !beside.KeptBack && !beside.Lost && t.asked[other.UID] == r.Edit {
			c.unproved++
		}
	case is && !beside.KeptBack && r.Unproved(other, r.MinReady):
		c.down++
		c.unproved++
	case is || r.Admitted(other):
		c.proved++
	case podutils.IsPodReady(other) && slices.Contains(t.Batch, other):
		c.underWay++
	case r.WaitsForRoom(other):
		// Nothing is down, now or when its kubelet finds room.
	case !has && Pending(other):
		// It waits for room for the size of an edit that was given up, and is asked for another soon.
	case SizeOf(other) != AppliedSize(other) && !r.NeedsRestart(other):
		c.underWay++
		c.unproved += asInt(has)
	}
}

// WaitsForRoom reports whether the pod waits for room for the wanted size, and nobody waits for it. It
// loses nothing to that size.
func (r Rules) WaitsForRoom(pod *corev1.Pod) bool {
	return r.PassDeferred && SizeOf(pod) == r.size(pod) && Pending(pod) && r.Available(pod) &&
		!Restarts(pod, r.of(pod)) && !Takes(AppliedSize(pod), r.of(pod))
}

// Takes reports whether v has less of something than have. A memory of 0 is no limit.
func Takes(have, v Version) bool {
	return v.CPU < have.CPU || v.Memory > 0 && (have.Memory == 0 || v.Memory < have.Memory)
}

// Pending reports whether the pod's kubelet has put its resize off, or refused it.
func Pending(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodResizePending })
}

func asInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
