package measure

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// State is what there is of a subject at one time.
type State struct {
	Workload
	Pods   map[string]*corev1.Pod
	Visits map[types.UID]*Visit // the last one to each pod, if it was answered
}

func newState() *State {
	return &State{Pods: map[string]*corev1.Pod{}, Visits: map[types.UID]*Visit{}}
}

// Replay returns the state of a subject after a history.
func Replay(history []Moment, of Subject) *State {
	s := newState()
	for _, m := range history {
		if m.Subject() == of {
			s.Apply(m)
		}
	}
	return s
}

// Apply takes a change in.
func (s *State) Apply(m Moment) {
	switch object := m.Object.(type) {
	case *corev1.Pod:
		s.Pods[object.Name] = object
		if m.Deleted {
			delete(s.Pods, object.Name)
		}
	case *Visit:
		s.Visits[object.UID] = object
		if object.Err != nil {
			delete(s.Visits, object.UID)
		}
	default:
		s.Workload = WorkloadOf(object)
	}
}

// Ready is how many pods are Ready and stay.
func (s *State) Ready() int {
	n := 0
	for _, pod := range s.Pods {
		if Ready(pod) {
			n++
		}
	}
	return n
}

// Settled reports whether the built-in controller counts the newest revision as rolled
// out and, where inplace-rollout is in charge, whether that agrees.
func (s *State) Settled() bool {
	if s.Workload == nil {
		return false
	}
	agreed := s.RolledOut() && len(s.Pods) == s.Replicas() && s.Ready() == s.Replicas()
	return agreed && (!s.OptedIn() || s.Complete().Status == metav1.ConditionTrue && !s.IsHeld())
}

// OptedIn reports whether its label opts the workload in.
func (s *State) OptedIn() bool { return s.GetLabels()[api.EnabledLabel] == "true" }

// IsHeld reports whether a rollout is held.
func (s *State) IsHeld() bool {
	_, held := s.GetAnnotations()[api.HoldAnnotation]
	return held
}

// Held is what the user wants of the field that holds the rollout, if it is held.
func (s *State) Held() string {
	if s.IsHeld() {
		return s.GetAnnotations()[api.HoldAnnotation]
	}
	return "none"
}
