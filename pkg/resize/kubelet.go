package resize

import (
	"bytes"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kubelet is what is known of the kubelet that looks after a pod. The zero one is not known, and
// counts as a current one.
type Kubelet struct {
	// Version as its node says.
	Version string
	// Silent: it does not say which generation of a pod it has observed.
	Silent bool
	// Asked is since when it may know of the pod's spec, by the same clock as Now. Without it, that is
	// when the API server says that the pod was last resized.
	Asked time.Time
	// Now is when the pod is looked at.
	Now time.Time
	// Patience is for how long it may give no answer to a size; 0 if that is not known.
	Patience time.Duration
}

// lookTime is within which a kubelet has looked at each of its pods, even if nothing happens: it
// does so every 60 to 90 seconds (workerResyncIntervalJitterFactor in pkg/kubelet of Kubernetes).
const lookTime = 2 * time.Minute

// Looked returns when a kubelet has surely looked at the size that the pod was last asked for, by whomever: one that is silent, or
// whose conditions tell of an older generation. Zero for other kubelets, and if nobody ever asked.
func (k Kubelet) Looked(pod *corev1.Pod) time.Time {
	asked := lastWrite(pod, Recorded)
	if asked.IsZero() || !k.silent(pod) && !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return older(pod, c) }) {
		return time.Time{}
	}
	if !k.Asked.IsZero() {
		asked = k.Asked
	}
	return asked.Add(lookTime)
}

// silent reports whether the kubelet does not say which generation of the pod it has observed.
func (k Kubelet) silent(pod *corev1.Pod) bool { return k.Silent && pod.Status.ObservedGeneration == 0 }

// older reports whether a condition tells of a resize, and of an older generation of the pod.
func older(pod *corev1.Pod, c corev1.PodCondition) bool {
	return (c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress) && c.ObservedGeneration != 0 && c.ObservedGeneration < pod.Generation
}

// ClockSkew is by how much our clock and those of a cluster's API servers and kubelets may differ: docs/operations.md demands it.
const ClockSkew = 30 * time.Second

// Overdue returns when the kubelet has not answered for longer than it may, by the time at which the pod was last asked
// for a size, by whomever; zero if nobody ever asked, or it is not known for how long it may.
func (k Kubelet) Overdue(pod *corev1.Pod) time.Time {
	asked := lastWrite(pod, Recorded)
	if k.Patience == 0 || asked.IsZero() {
		return time.Time{}
	}
	return asked.Add(k.Patience + ClockSkew)
}

func (k Kubelet) overdue(pod *corev1.Pod) bool {
	at := k.Overdue(pod)
	return !at.IsZero() && !k.Now.Before(at)
}

// observed reports whether the pod's status was written by a kubelet that had seen the pod's spec.
// One that is silent has, if it has written the status since the pod was last asked for a size, or
// must have looked meanwhile. That alone proves nothing: it may have written for another reason.
// But it is needed: after an edit that was taken back at once, the status has the wanted values
// before the kubelet has seen anything.
func (k Kubelet) observed(pod *corev1.Pod) bool {
	if k.silent(pod) {
		return !k.unheard(pod, lastWrite(pod, reported))
	}
	return pod.Status.ObservedGeneration >= pod.Generation
}

// unheard reports whether what a silent kubelet said at that time may be about another size than the
// pod was last asked for.
func (k Kubelet) unheard(pod *corev1.Pod, said time.Time) bool {
	return k.silent(pod) && k.Now.Before(k.Looked(pod)) && said.Before(lastWrite(pod, Recorded))
}

// stale reports whether a condition that tells of a resize may be about another size than the pod was last asked for. What else
// raises the pod's generation, such as an ephemeral container, changes neither size nor condition: the kubelet looks again at what is
// Infeasible only when the size changes, and keeps the generation of what is in progress (HandlePodUpdates and
// SetPodResizeInProgressCondition in pkg/kubelet of Kubernetes).
func (k Kubelet) stale(pod *corev1.Pod, c corev1.PodCondition) bool {
	if !older(pod, c) {
		return k.unheard(pod, c.LastProbeTime.Time)
	}
	looked := k.Looked(pod)
	return !k.observed(pod) || looked.IsZero() || k.Now.Before(looked)
}

// By returns the target for a pod with that kubelet.
func (t Target) By(kubelet Kubelet) Target {
	t.kubelet = kubelet
	return t
}

// Pod that the target is for; nil if there is none.
func (t Target) Pod() *corev1.Pod { return t.pod }

// Kept returns the managedFields entries of a pod that are read, without what is not read of them.
func Kept(pod *corev1.Pod) []metav1.ManagedFieldsEntry {
	var kept []metav1.ManagedFieldsEntry
	for _, entry := range pod.ManagedFields {
		switch {
		case Recorded(entry):
			kept = append(kept, entry)
		case reported(entry):
			kept = append(kept, metav1.ManagedFieldsEntry{Subresource: entry.Subresource, Time: entry.Time})
		}
	}
	return kept
}

// reported reports whether a managedFields entry tells when the kubelet last wrote the status. Of
// those who write it, only the kubelet says how the containers are. [Kept] leaves the fields out.
func reported(entry metav1.ManagedFieldsEntry) bool {
	return entry.Subresource == "status" && (entry.FieldsV1 == nil || bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:containerStatuses"`)))
}

// LastAsked is when anybody last asked the pod for a size, by the clock of the API server; zero if nobody ever did.
func LastAsked(pod *corev1.Pod) time.Time { return lastWrite(pod, Recorded) }

// lastWrite is the time of the last of these managedFields entries; zero if there is none.
func lastWrite(pod *corev1.Pod, these func(metav1.ManagedFieldsEntry) bool) time.Time {
	var last time.Time
	for _, entry := range pod.ManagedFields {
		if these(entry) && entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}

// ShrinksMemory reports whether the target asks for a lower memory limit than is in force in a
// container, or for one where there is none, and the container is not restarted for it. One without a limit of its own has the pod's.
func (t Target) ShrinksMemory() bool {
	all := t.parts()
	return slices.ContainsFunc(t.Effects, func(c Change) bool {
		return c.lowersMemory() && slices.ContainsFunc(t.Changes, c.of) && slices.ContainsFunc(all, func(p part) bool {
			return p.container != nil && !t.hasRun(p) && !p.restartsFor(c.Resource) && p.limiter(all, c.Resource).name == c.Container
		})
	})
}
