package capacity

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/utils/ptr"
)

// beside reports whether the node has room for the pod beside the others that are
// there: for what it requests, for its host ports, and for one pod more. The pod
// itself does not count among them, nor do pods that are over.
func beside(pod *corev1.Pod, node *corev1.Node, others []*corev1.Pod) error {
	left := maps.Clone(node.Status.Allocatable)
	for _, other := range others {
		if other.UID == pod.UID || Over(other) {
			continue
		}
		if conflict(hostPorts(pod), hostPorts(other)) {
			return noNode("another pod has the host port on node %s", node.Name)
		}
		for name, request := range counted(Taken(other)) {
			if free, limited := left[name]; limited {
				free.Sub(request)
				left[name] = free
			}
		}
	}
	wanted := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	if _, limited := left[corev1.ResourcePods]; limited {
		wanted = counted(wanted)
	}
	listed := devicesOf(pod, wanted).leave(wanted, node)
	if !holds(left, listed) {
		return noNode("node %s has no room", node.Name)
	}
	if len(listed) < len(wanted) {
		return unknown("its extended resources might be devices that are allocated dynamically")
	}
	return nil
}

// Taken is what the scheduler counts of a pod on a node (CalculateResource in pkg/scheduler/framework/types.go of Kubernetes 1.37): of a
// resize that waits, the larger size, and of one that is infeasible, what the pod has, pod-level resources included.
//
// The pod-level status has the overhead of a RuntimeClass, too, so that it counts twice. The scheduler of 1.36 counts it twice with
// pod-level requests only, but nothing here tells it from that of 1.37: too much keeps a pod, too little would trade it for one that
// is Pending. Before 1.36 the gate InPlacePodLevelResourcesVerticalScaling is off: no scheduler looks at that status, and no kubelet writes it.
func Taken(pod *corev1.Pod) corev1.ResourceList {
	return resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true})
}

// counted adds that it is one pod.
func counted(requests corev1.ResourceList) corev1.ResourceList {
	requests[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return requests
}

// preempts reports whether the scheduler may remove other to make room for the pod.
func preempts(pod, other *corev1.Pod) bool {
	return schedulinghelper.PodPriority(other) < schedulinghelper.PodPriority(pod) &&
		ptr.Deref(pod.Spec.PreemptionPolicy, corev1.PreemptLowerPriority) != corev1.PreemptNever
}

// Over reports whether the pod takes no room any more.
func Over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// hostPorts are the ports of its node that the pod takes for as long as it runs: those of its init containers only if they run on
// (GetHostPorts in pkg/scheduler/util of Kubernetes).
func hostPorts(pod *corev1.Pod) []corev1.ContainerPort {
	var ports []corev1.ContainerPort
	for _, c := range pod.Spec.InitContainers {
		if ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
			ports = append(ports, c.Ports...)
		}
	}
	for _, c := range pod.Spec.Containers {
		ports = append(ports, c.Ports...)
	}
	return slices.DeleteFunc(ports, func(p corev1.ContainerPort) bool { return p.HostPort == 0 })
}

// conflict reports whether one of the ports is wanted twice.
func conflict(a, b []corev1.ContainerPort) bool {
	protocol := func(p corev1.ContainerPort) corev1.Protocol { return cmp.Or(p.Protocol, corev1.ProtocolTCP) }
	everywhere := func(p corev1.ContainerPort) bool { return p.HostIP == "" || p.HostIP == "0.0.0.0" }
	return slices.ContainsFunc(a, func(p corev1.ContainerPort) bool {
		return slices.ContainsFunc(b, func(q corev1.ContainerPort) bool {
			return p.HostPort == q.HostPort && protocol(p) == protocol(q) && (everywhere(p) || everywhere(q) || p.HostIP == q.HostIP)
		})
	})
}
