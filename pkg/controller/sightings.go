package controller

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Sightings are what has been seen of the resizes of pods, and when. Timeouts are
// measured by them: the kubelet's clock and that of the API server may be wrong by any
// time, and a pod must not be given up for that. A controller that is restarted has
// seen nothing yet, and waits for longer.
type Sightings struct {
	pods  map[types.UID]sighting
	again bool // those that have not been seen yet may be asked again
}

type sighting struct {
	generation int64
	state      resize.State
	at         time.Time
	cure       bool // for what the pod was asked last
	again      bool // it may be asked again for what its kubelet has put off or refused
}

// askAgain forgets since when resizes are in the state in which they are, and has each
// pod asked once more for what its kubelet has put off or refused. Of a pod that nobody
// has seen yet it is not known for what it was asked, or when.
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
	// While it is in progress, the kubelet may come to say again what it has said before.
	if !known || seen.generation != place.Pod.Generation || seen.state != state && state != resize.InProgress {
		seen.generation, seen.state, seen.at = place.Pod.Generation, state, now
	}
	return seen
}

// Of returns what has been seen of the pod of a place, which is there; nothing if s is nil.
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

// asked remembers whether the pod was not Ready when it was asked for a size.
func (s *Sightings) asked(m rollout.Member) {
	if seen, known := s.pods[m.Pod.UID]; known {
		seen.cure, seen.again = m.Cures(), false
		s.pods[m.Pod.UID] = seen
	}
}
