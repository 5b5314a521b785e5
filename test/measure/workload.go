package measure

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// Workload is what pods belong to.
type Workload interface {
	metav1.Object
	Template() *corev1.PodTemplateSpec
	Replicas() int
	// RolledOut reports whether its built-in controller has nothing left to do.
	RolledOut() bool
	// Complete is the condition inplace-rollout.io/Complete, empty if there is none.
	Complete() metav1.Condition
	// HoldField is the field that holds a rollout.
	HoldField() (name, value string)
}

// WorkloadOf is a workload; nil if the object is none.
func WorkloadOf(object metav1.Object) Workload {
	switch object := object.(type) {
	case *appsv1.StatefulSet:
		return statefulSet{object}
	case *appsv1.Deployment:
		return deployment{object}
	case *appsv1.DaemonSet:
		return daemonSet{object}
	}
	return nil
}

type statefulSet struct{ *appsv1.StatefulSet }

func (s statefulSet) Template() *corev1.PodTemplateSpec { return &s.Spec.Template }
func (s statefulSet) Replicas() int                     { return int(ptr.Deref(s.Spec.Replicas, 1)) }

func (s statefulSet) RolledOut() bool {
	n, status := int32(s.Replicas()), s.Status
	return status.ObservedGeneration == s.Generation && status.UpdatedReplicas == n &&
		status.ReadyReplicas == n && status.CurrentRevision == status.UpdateRevision
}

func (s statefulSet) Complete() metav1.Condition {
	for _, c := range s.Status.Conditions {
		if c.Type == api.ConditionComplete {
			return metav1.Condition{Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message}
		}
	}
	return metav1.Condition{}
}

func (s statefulSet) HoldField() (name, value string) {
	partition := int32(0)
	if r := s.Spec.UpdateStrategy.RollingUpdate; r != nil {
		partition = ptr.Deref(r.Partition, 0)
	}
	return "partition", fmt.Sprint(partition)
}

type daemonSet struct{ *appsv1.DaemonSet }

func (d daemonSet) Template() *corev1.PodTemplateSpec { return &d.Spec.Template }
func (d daemonSet) Replicas() int                     { return int(d.Status.DesiredNumberScheduled) }

func (d daemonSet) RolledOut() bool {
	n, status := d.Status.DesiredNumberScheduled, d.Status
	return status.ObservedGeneration == d.Generation && status.UpdatedNumberScheduled == n && status.NumberAvailable == n
}

func (d daemonSet) Complete() metav1.Condition {
	for _, c := range d.Status.Conditions {
		if c.Type == api.ConditionComplete {
			return metav1.Condition{Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message}
		}
	}
	return metav1.Condition{}
}

func (d daemonSet) HoldField() (name, value string) {
	return "type", string(d.Spec.UpdateStrategy.Type)
}

type deployment struct{ *appsv1.Deployment }

func (d deployment) Template() *corev1.PodTemplateSpec { return &d.Spec.Template }
func (d deployment) Replicas() int                     { return int(ptr.Deref(d.Spec.Replicas, 1)) }

func (d deployment) RolledOut() bool {
	n, status := int32(d.Replicas()), d.Status
	return status.ObservedGeneration == d.Generation && status.UpdatedReplicas == n &&
		status.Replicas == n && status.AvailableReplicas == n
}

func (d deployment) Complete() metav1.Condition {
	for _, c := range d.Status.Conditions {
		if c.Type == api.ConditionComplete {
			return metav1.Condition{Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message}
		}
	}
	return metav1.Condition{}
}

func (d deployment) HoldField() (name, value string) { return "paused", fmt.Sprint(d.Spec.Paused) }

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
