package controller

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Sightings are the states in which the resizes of pods have been seen, and since when.
// Timeouts begin then, by our own clock: the clocks of the kubelet and the API server may be
// wrong, and a pod must not be given up for that. A controller that was restarted has seen
// nothing yet, and waits for longer.
type Sightings struct {
	pods  map[types.UID]sighting
	again bool // pods that have not been seen yet may be asked again
}

type sighting struct {
	generation int64
	state      resize.State
	at         time.Time
	cure       bool // the size that the pod was last asked for could only do it good
	again      bool // the pod may be asked again for what its kubelet has put off or refused
}

// askAgain has each pod asked once more for what its kubelet has put off or refused, and has
// the timeouts begin anew. It does so for pods that have not been seen yet, too: it is not
// known for what they were asked, or when.
func (s *Sightings) askAgain() {
	s.again = true
	for pod, seen := range s.pods {
		seen.generation, seen.again = -1, true
		s.pods[pod] = seen
	}
}

// of returns what is seen of the pod of a place now, and since when.
func (s *Sightings) of(place rollout.Place, now time.Time) sighting {
	state, _ := place.Target.Observe()
	seen, known := s.pods[place.Pod.UID]
	if !known {
		seen.again = s.again
	}
	// InProgress does not begin anew: the kubelet may come to say again what it said before.
	if !known || seen.generation != place.Pod.Generation || seen.state != state && state != resize.InProgress {
		seen.generation, seen.state, seen.at = place.Pod.Generation, state, now
	}
	return seen
}

// Of returns what has been seen of the pod of a place, which must have one. The sighting is
// zero if s is nil.
func (s *Sightings) Of(place rollout.Place, now time.Time) rollout.Sighting {
	if s == nil {
		return rollout.Sighting{}
	}
	seen := s.of(place, now)
	return rollout.Sighting{Since: seen.at, Cure: seen.cure, Again: seen.again}
}

// See remembers what is seen of the pods of the members now.
func (s *Sightings) See(members []rollout.Member, now time.Time) {
	if s.pods == nil {
		s.pods = map[types.UID]sighting{}
	}
	for _, m := range members {
		if !rollout.Gone(m.Pod) && m.Differs == "" {
			s.pods[m.Pod.UID] = s.of(m.Place, now)
		}
	}
}

// asked remembers that the pod was asked for its size, and whether that can only do it good.
func (s *Sightings) asked(m rollout.Member) {
	if seen, known := s.pods[m.Pod.UID]; known {
		seen.cure, seen.again = m.Cures(), false
		s.pods[m.Pod.UID] = seen
	}
}
