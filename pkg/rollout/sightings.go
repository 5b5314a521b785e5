package rollout

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// Sightings are the states in which the resizes of pods have been seen, and since when.
// Timeouts begin then, by our own clock: the clocks of the kubelet and the API server may be
// wrong, and a pod must not be given up for that. A controller that was restarted has seen
// nothing yet, and waits for longer.
type Sightings struct {
	pods  map[types.UID]Sighting
	again bool // pods that have not been seen yet may be asked again
}

// AskAgain has each pod asked once more for what its kubelet has put off or refused, and has
// the timeouts begin anew. It does so for pods that have not been seen yet, too: it is not
// known for what they were asked, or when.
func (s *Sightings) AskAgain() {
	s.again = true
	for pod, seen := range s.pods {
		seen.Generation, seen.Again = -1, true
		s.pods[pod] = seen
	}
}

// Noted returns what is noted of a pod. The sighting is zero if s is nil.
func (s *Sightings) Noted(pod types.UID) Sighting {
	if s == nil {
		return Sighting{}
	}
	seen, known := s.pods[pod]
	if !known {
		seen.Again = s.again
	}
	return seen
}

// Of returns what is seen of the pod of a place now, and since when. The place must have one.
// The sighting is zero if s is nil.
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
	seen.Proof = seen.Proof.Of(place.Pod, state, now)
	return seen
}

// See remembers the sightings that the verdicts rest on.
func (s *Sightings) See(verdicts []*Verdict) {
	if s.pods == nil {
		s.pods = map[types.UID]Sighting{}
	}
	for _, v := range verdicts {
		m := &v.Member
		if !Gone(m.Pod) && m.Differs == "" {
			s.pods[m.Pod.UID] = m.Sighting
		}
	}
}

// Asked remembers that the pod was asked for its size, and whether that can only do it good.
func (s *Sightings) Asked(m Member) {
	if seen, known := s.pods[m.Pod.UID]; known {
		seen.Cure, seen.Again = m.Cures(), false
		s.pods[m.Pod.UID] = seen
	}
}

// Forget forgets all but these pods.
func (s *Sightings) Forget(but sets.Set[types.UID]) { Forget(s.pods, but) }

// Forget deletes what is noted of all but these pods.
func Forget[M ~map[types.UID]V, V any](notes M, but sets.Set[types.UID]) {
	maps.DeleteFunc(notes, func(pod types.UID, _ V) bool { return !but.Has(pod) })
}
