package measure

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/kubectl/pkg/util/podutils"
)

// Ready reports whether a pod is there, Ready, and stays.
func Ready(pod *corev1.Pod) bool {
	return pod != nil && pod.DeletionTimestamp == nil && podutils.IsPodReady(pod)
}

// ContainerStatus is what the kubelet tells of a container.
func ContainerStatus(pod *corev1.Pod, name string) corev1.ContainerStatus {
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == name {
			return c
		}
	}
	return corev1.ContainerStatus{}
}

// OtherSize tells where a container of a pod has another size than it should: in its spec, and in what the
// kubelet tells of it.
func OtherSize(pod *corev1.Pod, container string, want corev1.ResourceRequirements) []string {
	var differs []string
	for _, c := range pod.Spec.Containers {
		if c.Name == container && !equality.Semantic.DeepEqual(c.Resources, want) {
			differs = append(differs, fmt.Sprintf("spec %v, want %v", c.Resources, want))
		}
	}
	status := ContainerStatus(pod, container)
	if status.Resources == nil || !equality.Semantic.DeepEqual(*status.Resources, want) {
		differs = append(differs, fmt.Sprintf("status %v, want %v", status.Resources, want))
	}
	if !equality.Semantic.DeepEqual(status.AllocatedResources, want.Requests) {
		differs = append(differs, fmt.Sprintf("allocated %v, want %v", status.AllocatedResources, want.Requests))
	}
	return differs
}

// HasSize reports whether all containers of a pod have the size that a template gives them, and no resize is
// under way.
func HasSize(pod *corev1.Pod, template []corev1.Container) bool {
	return Resizing(pod) == "" && len(pod.Spec.Containers) == len(template) &&
		!slices.ContainsFunc(template, func(c corev1.Container) bool { return len(OtherSize(pod, c.Name, c.Resources)) > 0 })
}

// Resizing tells how far the kubelet is with a resize, or is empty.
func Resizing(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == corev1.PodResizePending:
			return strings.ToLower(c.Reason)
		case c.Type == corev1.PodResizeInProgress && c.Reason != "":
			return strings.ToLower(c.Reason)
		case c.Type == corev1.PodResizeInProgress:
			return "in progress"
		}
	}
	return ""
}

// Restarts is how often the containers of a pod have restarted.
func Restarts(pod *corev1.Pod) int {
	n := 0
	for _, c := range pod.Status.ContainerStatuses {
		n += int(c.RestartCount)
	}
	return n
}

func containerIDs(pod *corev1.Pod) []string {
	var ids []string
	for _, c := range pod.Status.ContainerStatuses {
		if c.ContainerID != "" {
			ids = append(ids, c.ContainerID)
		}
	}
	return ids
}

// WrongSize is how many pods have another size than the template wants, in spec or status, or are still being resized.
func (s *State) WrongSize() (n int) {
	for _, pod := range s.Pods {
		if !HasSize(pod, s.Template().Spec.Containers) {
			n++
		}
	}
	return n
}

// PodNames are the names of the pods, in order.
func (s *State) PodNames() []string { return slices.Sorted(maps.Keys(s.Pods)) }
