package workload

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Sightings are what has been seen of the resizes of pods, and when. Timeouts are
// measured by them: the kubelet's clock and that of the API server may be wrong by any
// time, and a pod must not be given up for that. A controller that is restarted has
// seen nothing yet, and waits for longer.
type Sightings struct {
	pods  map[types.UID]*sighting
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
	for _, seen := range s.pods {
		seen.generation, seen.again = -1, true
	}
}

// See puts into the member what has been seen of its pod before, and keeps what is seen now.
func (s *Sightings) See(m *rollout.Member, now time.Time) {
	if s == nil || rollout.Gone(m.Pod) || m.Differs != "" {
		return
	}
	state, _ := m.Target.Observe()
	seen := s.pods[m.Pod.UID]
	if seen == nil {
		seen = &sighting{again: s.again}
		if s.pods == nil {
			s.pods = map[types.UID]*sighting{}
		}
		s.pods[m.Pod.UID] = seen
	}
	// While it is in progress, the kubelet may come to say again what it has said before.
	if seen.generation != m.Pod.Generation || seen.state != state && state != resize.InProgress {
		seen.generation, seen.state, seen.at = m.Pod.Generation, state, now
	}
	m.Since, m.Cure, m.Again = seen.at, seen.cure, seen.again
}

// Asked keeps whether the pod was not Ready when it was asked for a size.
func (s *Sightings) Asked(m rollout.Member) {
	if seen := s.pods[m.Pod.UID]; seen != nil {
		seen.cure, seen.again = m.Cures(), false
	}
}

// LostNodes returns what tells of a pod why nothing is to be expected of its node: it is
// gone, or its kubelet is not heard of; empty if it is there, or the nodes are not known.
func LostNodes(nodes []*corev1.Node) func(*corev1.Pod) string {
	lost := make(map[string]string, len(nodes))
	for _, node := range nodes {
		lost[node.Name] = ""
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				lost[node.Name] = "its node " + node.Name + " is not Ready"
			}
		}
	}
	return func(pod *corev1.Pod) string {
		if len(nodes) == 0 || pod == nil || pod.Spec.NodeName == "" {
			return ""
		}
		why, is := lost[pod.Spec.NodeName]
		if !is {
			return "its node " + pod.Spec.NodeName + " is gone"
		}
		return why
	}
}
