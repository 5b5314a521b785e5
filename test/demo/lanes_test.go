package main

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/test/golden"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

func needing(memory string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}}
}

// at is a moment some seconds after an edit.
func at(seconds float64, object metav1.Object) measure.Moment {
	object.SetNamespace("demo")
	object.SetLabels(map[string]string{"app": "db"})
	return measure.Moment{At: time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second))), Object: object}
}

func setAt(seconds float64, memory string) measure.Moment {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}}
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Resources: needing(memory)}}
	return at(seconds, set)
}

// podAt is a pod that is to have a size and has another one; the kernel has killed these containers of it.
func podAt(seconds float64, name, wants, has string, ready corev1.ConditionStatus, killed ...string) measure.Moment {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pod.Spec.Containers = []corev1.Container{{Name: "app", Resources: needing(wants)}}
	size := needing(has)
	status := corev1.ContainerStatus{Name: "app", Resources: &size, AllocatedResources: size.Requests}
	for _, id := range killed {
		status.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "OOMKilled", ContainerID: id}
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	return at(seconds, pod)
}

// history has db-1 resized, killed once, of which the status tells twice, and resized back; and db-0 replaced by another pod.
func history() []measure.Moment {
	end := podAt(3, "db-0", "256Mi", "256Mi", corev1.ConditionTrue)
	end.Deleted = true
	return []measure.Moment{
		setAt(-1, "256Mi"), podAt(-1, "db-0", "256Mi", "256Mi", corev1.ConditionTrue), podAt(-1, "db-1", "256Mi", "256Mi", corev1.ConditionTrue),
		setAt(0, "100Mi"), podAt(1, "db-1", "100Mi", "256Mi", corev1.ConditionTrue), podAt(2, "db-1", "100Mi", "100Mi", corev1.ConditionTrue),
		end, podAt(4, "db-2", "100Mi", "100Mi", corev1.ConditionFalse),
		podAt(5, "db-1", "100Mi", "100Mi", corev1.ConditionFalse, "1"), podAt(6, "db-1", "256Mi", "256Mi", corev1.ConditionTrue, "1"), setAt(10, "100Mi"),
	}
}

// TestPicture compares a picture of the same with testdata/picture.svg.
func TestPicture(t *testing.T) {
	lanes := lanesOf(history(), 3, measure.Subject{Namespace: "demo", Name: "db"})
	text := must.Get(picture{Title: "About <this>", Source: "Measured & drawn.", Rows: [][]panel{{{"One", "it <went>", lanes}, {"Other", "so, too", lanes[2:]}}}}.svg())(t)
	golden.Assert(t, "picture.svg", []byte(text))
}
