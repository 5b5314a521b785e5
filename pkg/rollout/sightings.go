package rollout

import (
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// Sightings are how pods have been seen, and since when, by our own clock. The clocks of the kubelet and
// the API server may be wrong by minutes, and what is known by one clock must not be compared with
// another one. A controller that was restarted has seen nothing yet, and waits for longer.
type Sightings struct {
	pods  map[types.UID]seen
	again bool // pods whose resize has not been seen yet may be asked again
}

// seen is what has been seen of one pod.
type seen struct {
	first
	resize Sighting
	judged bool // a verdict has rested on the sighting of its resize
}

// first is when a pod was first seen with its label of a revision, and with its spec.
type first struct {
	label      string
	labelled   time.Time
	generation int64
	specified  time.Time
}

// Look notes pods that are looked at now.
func (s *Sightings) Look(now time.Time, pods ...*corev1.Pod) {
	for _, pod := range pods {
		is := s.of(pod.UID)
		is.first = s.first(pod, now)
		s.note(pod.UID, is)
	}
}

// See notes the sightings of resizes that the verdicts rest on.
func (s *Sightings) See(verdicts []*Verdict) {
	for _, v := range verdicts {
		m := &v.Member
		if !Gone(m.Pod) && m.Differs == "" {
			is := s.of(m.Pod.UID)
			is.resize, is.judged = m.Sighting, true
			s.note(m.Pod.UID, is)
		}
	}
}

// Asked notes that the pod was asked for its size, and whether that can only do it good.
func (s *Sightings) Asked(m Member) {
	if is := s.of(m.Pod.UID); is.judged {
		is.resize.Cure, is.resize.Again = m.Cures(), false
		s.note(m.Pod.UID, is)
	}
}

// AskAgain has each pod asked once more for what its kubelet has put off or refused, and has
// the timeouts begin anew. It does so for pods that have not been seen yet, too: it is not
// known for what they were asked, or when.
func (s *Sightings) AskAgain() {
	s.again = true
	for pod, is := range s.pods {
		if is.judged {
			is.resize.Generation, is.resize.Again = -1, true
			s.pods[pod] = is
		}
	}
}

// Noted returns what is noted of the resize of a pod. The sighting is zero if s is nil.
func (s *Sightings) Noted(pod types.UID) Sighting {
	is := s.of(pod)
	if s != nil && !is.judged {
		is.resize.Again = s.again
	}
	return is.resize
}

// Of returns what is seen of the resize of the pod of a place now, and since when. The place must have
// a pod. The sighting is zero if s is nil.
func (s *Sightings) Of(place Place, now time.Time) Sighting {
	if s == nil {
		return Sighting{}
	}
	state, _ := place.Target.Observe()
	seen := s.Noted(place.Pod.UID)
	// InProgress does not begin anew: the kubelet may come to say again what it said before.
	if seen.Since.IsZero() || seen.Generation != place.Pod.Generation || seen.State != state && state != resize.InProgress {
		seen.Generation, seen.State, seen.Since = place.Pod.Generation, state, now
	}
	// A pod that is to have another size now has yet to prove the one that it has.
	well := state == resize.Actuated || len(place.Target.Changes) > 0 && place.Target.Settled()
	seen.Proof = seen.Proof.Of(place.Pod, well, now)
	return seen
}

// Relabelled returns when we gave the last of those of the pods that count the label of a revision
// which they have, by the clock of the API server, and since when that is known, by our own. Both
// are zero if there is none. Watched pods do not say so: see [Relabelled].
func (s *Sightings) Relabelled(all []*corev1.Pod, counts func(*corev1.Pod) bool, now time.Time) (last, known time.Time) {
	for _, pod := range all {
		at := Relabelled(pod)
		if at.IsZero() || !counts(pod) {
			continue
		}
		if at.After(last) {
			last = at
		}
		if seen := s.first(pod, now).labelled; seen.After(known) {
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

// first returns what is to be noted of a pod that is looked at now.
func (s *Sightings) first(pod *corev1.Pod, now time.Time) first {
	is := s.of(pod.UID).first
	known := !is.labelled.IsZero()
	if label := pod.Labels[appsv1.ControllerRevisionHashLabelKey]; !known || is.label != label {
		is.label, is.labelled = label, now
	}
	if !known || is.generation != pod.Generation {
		is.generation, is.specified = pod.Generation, now
	}
	return is
}

// of returns what has been seen of a pod; nothing if s is nil.
func (s *Sightings) of(pod types.UID) seen {
	if s == nil {
		return seen{}
	}
	return s.pods[pod]
}

func (s *Sightings) note(pod types.UID, is seen) {
	if s.pods == nil {
		s.pods = map[types.UID]seen{}
	}
	s.pods[pod] = is
}

// Len returns how many pods have been seen.
func (s *Sightings) Len() int { return len(s.pods) }

// Forget forgets all but these pods.
func (s *Sightings) Forget(but sets.Set[types.UID]) { Forget(s.pods, but) }

// Forget deletes what is noted of all but these pods.
func Forget[M ~map[types.UID]V, V any](notes M, but sets.Set[types.UID]) {
	maps.DeleteFunc(notes, func(pod types.UID, _ V) bool { return !but.Has(pod) })
}
