package judge

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/podutils"

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
	// Alike are how many more places there are of which the same is to be said: all are empty. Where somebody wants ever so many pods,
	// that costs no more than one.
	Alike int
	// Updated: the pod counts as one of the newest revision, and no edit that was given up
	// has left anything in it. Of a place that is, or is about to be, empty: the next pod
	// there will be so.
	Updated bool
	// Labelled: the built-in controller takes the pod for updated.
	Labelled bool
	// Available as the built-in controller means it: Ready for minReadySeconds and not terminating.
	Available bool
	// InPlaceOnly: a new pod would not have the size that this one is to have, either. So nothing
	// is restarted for it, and no hold is kept.
	InPlaceOnly bool
	// First: no pod was on its node before this one, which came with the node. Where it finds no room there, nobody has lost
	// anything by that.
	First bool
	// Class of the pod's node, if that has a size of its own; else empty.
	Class string
	// ClassSizeUnavailable is why the pod is not to have the size of its node's class, but that of its template;
	// empty if there is nothing in the way.
	ClassSizeUnavailable string
	// Differs is what besides cpu and memory differs between the revision of the pod (for an
	// empty place: of the pod that is born there next) and the newest one; empty if nothing does.
	Differs string
	// Unborn is why no pod comes to an empty place; without a reason, nothing is known of that. If
	// Remade is set, one comes as soon as it, or one before it, may be made of the newest revision.
	Unborn Refusal
	Remade bool
	// Brings is what the newest revision changes of cpu and memory; empty if the pod is
	// updated or Differs is not empty.
	Brings string
	// Target is the size that the pod must have; zero if there is no pod, it is terminating
	// or Differs is not empty.
	Target resize.Target
}

// Count is how many places it stands for.
func (p Place) Count() int { return 1 + p.Alike }

// Member is a place with what is known of it besides.
type Member struct {
	Place
	Sighting

	// Policy for what the newest revision changes, and why if it is RestartOnly.
	Policy policy.Policy
	Why    string
	// PutBack is what a startup booster is about to change in a pod that has its size; empty if none is.
	PutBack string
	// Refusal of this resize by the API server; of a place without a pod, of the pod.
	Refusal Refusal
	// Relabel is why the API server does not take other labels of the pod; without a reason, nothing is known of that.
	Relabel Refusal
	// Unplaceable is why there is no place for the pod that a restart would bring, on any
	// node or in the namespace, and when to look again; without a reason, there is.
	Unplaceable Refusal
	// Barred is why the API server would refuse a resize to a size that it may take for a
	// new pod; empty if it would not.
	Barred string
	// Lost is why nothing is to be expected of the pod's node; empty if it is there.
	Lost string
	// GivenUp is when the last answer of the pod's kubelet counts as final, though it is not the one that is waited for; zero if
	// the kubelet answers.
	GivenUp time.Time
	// Kubelet of the node.
	Kubelet resize.Kubelet
}

// Sighting is what has been seen of a pod's resize before.
type Sighting struct {
	// Generation of the pod, and State of its resize, since then. InProgress does not count as
	// another state.
	Generation int64
	State      resize.State
	// Since is when the resize was first seen in the state in which it is, by the same clock
	// as Terms.Now; zero if it has not been seen before.
	Since time.Time
	// Spell is since when the pod has not been Ready, by its kubelet's clock: it may have been Ready while nobody looked.
	Spell time.Time
	// Deferral is what the pod was Deferred for last.
	Deferral Deferral
	// Answer of the kubelet, for this generation, since then. While the node is lost, none is waited for.
	Answer   resize.Answer
	Answered time.Time
	// Cure: the pod was not Ready when it was last asked for a size.
	Cure bool
	// Again: the pod is to be asked once more for what its kubelet has put off or refused.
	Again bool
	// Proof is since when the pod has been well with its size.
	Proof Proof
	// Before is how the pod was when it was asked for its size, or first seen with it; nil where the rollout is not guarded. It has
	// what the record has of a canary.
	Before *Health
}

// Deferral is a time for which a kubelet has had no room for a pod, whatever sizes it was asked for meanwhile. It is
// comparable.
type Deferral struct {
	// Transition is since when it says so itself, in seconds, by a clock of its own: it keeps that time for as long as it says so
	// (updatedPodResizeCondition in pkg/kubelet/status of Kubernetes).
	Transition int64
	// CPU and Memory that the pod asked for last.
	CPU, Memory int64
	// Since then that has been seen.
	Since time.Time
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
	// Until then it is not asked for again; zero of a final one that no request can change.
	Until time.Time
}

// stands reports whether it is final, and not to be asked again now.
func (r Refusal) stands(now time.Time) bool {
	return r.Final && (r.Until.IsZero() || now.Before(r.Until))
}

// Gone reports whether the place of the pod is empty or about to be. A pod that is nil is gone.
func Gone(pod *corev1.Pod) bool {
	return pod == nil || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// TakesShare reports whether the pod takes a share of the limits though it is no member.
func (m Member) TakesShare() bool { return m.Down() || resize.Busy(m.Pod, m.Kubelet) }

// Cures reports whether a resize can only do the pod good: it is not Ready, and no
// container of it that runs would restart.
func (m Member) Cures() bool { return !podutils.IsPodReady(m.Pod) && !m.Target.Restarts() }

// Down reports whether the pod is not available, or its node is lost: then it is not known
// whether it still is.
func (m Member) Down() bool { return Gone(m.Pod) || m.Lost != "" || !m.Available }

// Busy reports whether the pod is about to be resized for an edit that was given up.
func (m Member) busy() bool {
	return !Gone(m.Pod) && m.Differs == "" && len(m.Target.Changes) > 0 && resize.Busy(m.Pod, m.Kubelet)
}

// waitsForRoom reports whether the pod has its size, which was set while it had no node or came with a new node,
// and still has none.
func (m Member) waitsForRoom() bool {
	return !Gone(m.Pod) && m.Target.Unscheduled() && len(m.Target.Changes) == 0 && (!m.Target.Resized.IsZero() || m.First && m.Target.Nowhere() != "")
}

// ComesBack reports whether the pod has had the size in this rollout already, and somebody
// else has given it another one since: that it is well with it has been seen.
func (m Member) comesBack() bool { return m.Labelled && m.Target.Overrules }

// Node is the name of the pod's node; empty if it has none, or there is no pod.
func (m Member) Node() string {
	if m.Pod == nil {
		return ""
	}
	return m.Pod.Spec.NodeName
}

// OnNode is how messages name a node.
func OnNode(name string) string { return "node " + name }

// Runs reports whether a container of the pod runs.
func (m Member) Runs() bool {
	return m.Pod != nil && slices.ContainsFunc(m.Pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Running != nil })
}

// AvailableAt returns when the pod becomes available if nothing else happens: there is no event
// when it does. It is zero if the pod is not Ready, or is available.
func (p Place) AvailableAt(minReadySeconds int32) time.Time {
	if p.Available || p.Pod == nil || p.Pod.DeletionTimestamp != nil {
		return time.Time{}
	}
	if c := ConditionReady(p.Pod); c != nil && c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime.Add(time.Duration(minReadySeconds)*time.Second + 100*time.Millisecond)
	}
	return time.Time{}
}

// ConditionReady returns the condition Ready of a pod; nil if it has none.
func ConditionReady(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c
		}
	}
	return nil
}
