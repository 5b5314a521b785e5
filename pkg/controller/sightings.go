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
	pods  map[types.UID]rollout.Sighting
	again bool // pods that have not been seen yet may be asked again
}

// askAgain has each pod asked once more for what its kubelet has put off or refused, and has
// the timeouts begin anew. It does so for pods that have not been seen yet, too: it is not
// known for what they were asked, or when.
func (s *Sightings) askAgain() {
	s.again = true
	for pod, seen := range s.pods {
		seen.Generation, seen.Again = -1, true
		s.pods[pod] = seen
	}
}

// noted returns what is noted of a pod. The sighting is zero if s is nil.
func (s *Sightings) noted(pod types.UID) rollout.Sighting {
	if s == nil {
		return rollout.Sighting{}
	}
	seen, known := s.pods[pod]
	if !known {
		seen.Again = s.again
	}
	return seen
}

// Of returns what is seen of the pod of a place now, and since when. The place must have one.
// The sighting is zero if s is nil.
func (s *Sightings) Of(place rollout.Place, now time.Time) rollout.Sighting {
	if s == nil {
		return rollout.Sighting{}
	}
	state, _ := place.Target.Observe()
	seen := s.noted(place.Pod.UID)
	// InProgress does not begin anew: the kubelet may come to say again what it said before.
	if seen.Since.IsZero() || seen.Generation != place.Pod.Generation || seen.State != state && state != resize.InProgress {
		seen.Generation, seen.State, seen.Since = place.Pod.Generation, state, now
	}
	seen.Proof = seen.Proof.Of(place.Pod, state, now)
	return seen
}

// See remembers the sightings that the verdicts rest on.
func (s *Sightings) See(verdicts []*rollout.Verdict) {
	if s.pods == nil {
		s.pods = map[types.UID]rollout.Sighting{}
	}
	for _, v := range verdicts {
		m := &v.Member
		if !rollout.Gone(m.Pod) && m.Differs == "" {
			s.pods[m.Pod.UID] = m.Sighting
		}
	}
}

// asked remembers that the pod was asked for its size, and whether that can only do it good.
func (s *Sightings) asked(m rollout.Member) {
	if seen, known := s.pods[m.Pod.UID]; known {
		seen.Cure, seen.Again = m.Cures(), false
		s.pods[m.Pod.UID] = seen
	}
}
