package pods

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// Strip returns a copy of a pod with no more than what plans read of watched pods. The copy
// shares what it has with the pod. It fails if obj is no pod.
//
// What a restart needs besides, such as volumes and topology, is read live, as a whole: see
// capacity.ReadRoom.
func Strip(obj any) (*corev1.Pod, error) {
	pod, is := obj.(*corev1.Pod)
	if !is {
		return nil, fmt.Errorf("a %T where a pod belongs", obj)
	}
	return &corev1.Pod{TypeMeta: pod.TypeMeta, ObjectMeta: stripMeta(pod), Spec: stripSpec(&pod.Spec), Status: stripStatus(&pod.Status)}, nil
}

// annotations are those that are read.
var annotations = []string{resize.LimitRangerAnnotation, corev1.MirrorPodAnnotationKey, corev1.PodDeletionCost}

func stripMeta(pod *corev1.Pod) metav1.ObjectMeta {
	kept := metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Generation: pod.Generation,
		CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp, Finalizers: pod.Finalizers,
		Labels: pod.Labels, OwnerReferences: pod.OwnerReferences, ManagedFields: resize.Kept(pod),
	}
	if _, detached := pod.Labels[api.DetachedLabel]; detached {
		kept.GenerateName = pod.GenerateName
	}
	for key, value := range pod.Annotations {
		if slices.Contains(annotations, key) || resize.BoostAnnotation(key) {
			metav1.SetMetaDataAnnotation(&kept, key, value)
		}
	}
	return kept
}

func stripSpec(spec *corev1.PodSpec) corev1.PodSpec {
	return corev1.PodSpec{
		NodeName: spec.NodeName, OS: spec.OS, SchedulingGates: spec.SchedulingGates,
		NodeSelector: spec.NodeSelector, Affinity: spec.Affinity, Tolerations: spec.Tolerations,
		Overhead: spec.Overhead, Resources: spec.Resources,
		InitContainers: stripContainers(spec.InitContainers), Containers: stripContainers(spec.Containers),
	}
}

func stripContainers(all []corev1.Container) []corev1.Container {
	showsSize := func(env corev1.EnvVar) bool { return env.ValueFrom != nil && env.ValueFrom.ResourceFieldRef != nil }
	var kept []corev1.Container
	for _, c := range all {
		kept = append(kept, corev1.Container{
			Name: c.Name, Resources: c.Resources, ResizePolicy: c.ResizePolicy, RestartPolicy: c.RestartPolicy, Env: filter(c.Env, showsSize),
		})
	}
	return kept
}

// conditions are those that are read.
var conditions = append([]corev1.PodConditionType{corev1.PodReady, corev1.PodScheduled, corev1.PodResizePending, corev1.PodResizeInProgress}, judge.Terminations...)

func stripStatus(status *corev1.PodStatus) corev1.PodStatus {
	return corev1.PodStatus{
		Phase: status.Phase, Reason: status.Reason, Message: status.Message, QOSClass: status.QOSClass, ObservedGeneration: status.ObservedGeneration,
		Conditions:         filter(status.Conditions, func(c corev1.PodCondition) bool { return slices.Contains(conditions, c.Type) }),
		AllocatedResources: status.AllocatedResources, Resources: status.Resources,
		InitContainerStatuses: stripStatuses(status.InitContainerStatuses), ContainerStatuses: stripStatuses(status.ContainerStatuses),
		ExtendedResourceClaimStatus: status.ExtendedResourceClaimStatus,
	}
}

func stripStatuses(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	var kept []corev1.ContainerStatus
	for _, s := range all {
		kept = append(kept, corev1.ContainerStatus{
			Name: s.Name, State: s.State, RestartCount: s.RestartCount, Resources: s.Resources, AllocatedResources: s.AllocatedResources,
		})
		if last := s.LastTerminationState.Terminated; last != nil {
			kept[len(kept)-1].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
				Reason: last.Reason, ExitCode: last.ExitCode, StartedAt: last.StartedAt, FinishedAt: last.FinishedAt, ContainerID: last.ContainerID,
			}
		}
	}
	return kept
}

func filter[T any](all []T, keep func(T) bool) []T {
	var kept []T
	for _, one := range all {
		if keep(one) {
			kept = append(kept, one)
		}
	}
	return kept
}
