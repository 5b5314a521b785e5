package measure

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// Workload is what pods belong to.
type Workload interface {
	metav1.Object
	Template() *corev1.PodTemplateSpec
	Replicas() int
	// Updated pods, as its built-in controller counts them.
	Updated() int
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
func (s statefulSet) Updated() int                      { return int(s.Status.UpdatedReplicas) }

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
func (d daemonSet) Updated() int                      { return int(d.Status.UpdatedNumberScheduled) }

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
func (d deployment) Updated() int                      { return int(d.Status.UpdatedReplicas) }

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
