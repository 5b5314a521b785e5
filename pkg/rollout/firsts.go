package rollout

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// Firsts are when each pod was first seen as it is, by our own clock. The API server notes when it
// was written, too, but by a clock that may differ from ours by minutes: what is known by one of them
// must not be compared with the other. A controller that is restarted begins anew at its first look.
type Firsts map[types.UID]first

// first is when a pod was first seen with its label of a revision, and with its spec.
type first struct {
	label      string
	labelled   time.Time
	generation int64
	specified  time.Time
}

// at returns what is to be noted of a pod that is looked at now.
func (f Firsts) at(pod *corev1.Pod, now time.Time) first {
	is, known := f[pod.UID]
	if label := pod.Labels[appsv1.ControllerRevisionHashLabelKey]; !known || is.label != label {
		is.label, is.labelled = label, now
	}
	if !known || is.generation != pod.Generation {
		is.generation, is.specified = pod.Generation, now
	}
	return is
}

// Relabelled returns when we gave the last of those of the pods that count the label of a revision
// which they have, by the clock of the API server, and since when that is known, by our own. Both
// are zero if there is none. Watched pods do not say so: see [Relabelled].
func (f Firsts) Relabelled(all []*corev1.Pod, counts func(*corev1.Pod) bool, now time.Time) (last, known time.Time) {
	for _, pod := range all {
		at := Relabelled(pod)
		if at.IsZero() || !counts(pod) {
			continue
		}
		if at.After(last) {
			last = at
		}
		if seen := f.at(pod, now).labelled; seen.After(known) {
			known = seen
		}
	}
	return last, known
}

// Relabelled returns when a write of ours, such as a label of a revision, last changed the pod itself, by
// the clock of the API server. It is zero if managedFields have no such write. Watched pods
// never have: their managedFields are stripped in pkg/pods.
func Relabelled(pod *corev1.Pod) time.Time {
	var last time.Time
	for _, entry := range pod.ManagedFields {
		if entry.Manager == api.FieldManager && entry.Subresource == "" && entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}

// specified returns since when the pod is known to have its spec.
func (f Firsts) specified(pod *corev1.Pod, now time.Time) time.Time { return f.at(pod, now).specified }

// See notes pods that are looked at now.
func (f Firsts) See(now time.Time, looked ...*corev1.Pod) {
	for _, pod := range looked {
		f[pod.UID] = f.at(pod, now)
	}
}
