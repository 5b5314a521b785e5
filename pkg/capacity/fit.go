// the pods that are there. It asks what the filters of the scheduler ask that most
// pods have to do with, because a size for which there is no room is no reason to
// give up a pod that runs. Everything here is pure.
package capacity

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	volumehelper "k8s.io/component-helpers/storage/volume"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// Candidates are the nodes to which the pod could be scheduled when they are empty.
// Nodes that are cordoned or have other taints, and the pod does not tolerate that, or that its node
// selector, its required node affinity or that of its volumes excludes do not count,
// and the others must be able to allocate what the pod requests. Where there is none,
// the error says why. Other pods are not looked at, so one of them is no promise.
func Candidates(pod *corev1.Pod, volumes []*corev1.PersistentVolume, nodes []*corev1.Node) ([]*corev1.Node, error) {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	devices := devicesOf(pod)
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
	allowed, largest := 0, corev1.ResourceList{}
	var candidates []*corev1.Node
	for _, node := range nodes {
		if matches, err := affinity.Match(node); err != nil || !matches || !open(pod, node) || !Reaches(node, volumes) {
			continue
		}
		allowed++
		if holds(node.Status.Allocatable, devices.leave(requests, node)) {
			candidates = append(candidates, node)
			continue
		}
		for name := range requests {
			if q := node.Status.Allocatable[name]; q.Cmp(largest[name]) > 0 {
				largest[name] = q
			}
		}
	}
	switch {
	case len(candidates) > 0:
		return candidates, nil
	case allowed == 0:
		return nil, fmt.Errorf("none of %d nodes is open to the pod", len(nodes))
	default:
		return nil, fmt.Errorf("no node of the %d open to the pod can hold %s", allowed, describe(requests, largest))
	}
}

// Alike tells whether the same nodes are Candidates for both pods, but for their volumes.
func Alike(a, b *corev1.Pod) bool {
	same := equality.Semantic.DeepEqual
	return same(a.Spec.NodeSelector, b.Spec.NodeSelector) && same(a.Spec.Affinity, b.Spec.Affinity) && same(a.Spec.Tolerations, b.Spec.Tolerations) &&
		same(resourcehelper.PodRequests(a, resourcehelper.PodResourcesOptions{}), resourcehelper.PodRequests(b, resourcehelper.PodResourcesOptions{})) &&
		same(devicesOf(a), devicesOf(b))
}

// devices are extended resources that dynamic resource allocation gives to a pod.
type devices map[corev1.ResourceName]struct{}

// devicesOf are those of a pod that are known: those that name a DeviceClass, and those
// that its status says were allocated so. A DeviceClass may have any name for them
// besides, and who has not read it cannot tell.
func devicesOf(pod *corev1.Pod) devices {
	found := devices{}
	for name := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix) {
			found[name] = struct{}{}
		}
	}
	if status := pod.Status.ExtendedResourceClaimStatus; status != nil {
		for _, mapping := range status.RequestMappings {
			found[corev1.ResourceName(mapping.ResourceName)] = struct{}{}
		}
	}
	return found
}

// leave returns what the node itself must have of the requests: not the devices that it
// does not list (shouldDelegateResourceToDRA in
// pkg/scheduler/framework/plugins/noderesources of Kubernetes).
func (d devices) leave(requests corev1.ResourceList, node *corev1.Node) corev1.ResourceList {
	if len(d) == 0 {
		return requests
	}
	left := maps.Clone(requests)
	maps.DeleteFunc(left, func(name corev1.ResourceName, _ resource.Quantity) bool {
		_, device := d[name]
		listed := node.Status.Allocatable[name]
		return device && listed.Sign() <= 0
	})
	return left
}

// Reaches tells whether all volumes can be had on the node.
func Reaches(node *corev1.Node, volumes []*corev1.PersistentVolume) bool {
	return !slices.ContainsFunc(volumes, func(v *corev1.PersistentVolume) bool { return volumehelper.CheckNodeAffinity(v, node.Labels) != nil })
}

// Beside tells whether the node has room for the pod beside the others that are
// there: for what it requests, for its host ports, and for one pod more. The pod
// itself does not count among them, nor do pods that are over, nor those that it may
// preempt.
//
// Of a node with 4 cpus where others request 3, 1 is left for a pod; if one of them,
// requesting 2, has a lower priority, 3 are.
func Beside(pod *corev1.Pod, node *corev1.Node, others []*corev1.Pod) bool {
	left := maps.Clone(node.Status.Allocatable)
	one := *resource.NewQuantity(1, resource.DecimalSI)
	for _, other := range others {
		if other.UID == pod.UID || over(other) || preempts(pod, other) {
			continue
		}
		if conflict(hostPorts(pod), hostPorts(other)) {
			return false
		}
		requests := resourcehelper.PodRequests(other, resourcehelper.PodResourcesOptions{UseStatusResources: true})
		requests[corev1.ResourcePods] = one
		for name, request := range requests {
			if free, limited := left[name]; limited {
				free.Sub(request)
				left[name] = free
			}
		}
	}
	wanted := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	if _, limited := left[corev1.ResourcePods]; limited {
		wanted[corev1.ResourcePods] = one
	}
	return holds(left, devicesOf(pod).leave(wanted, node))
}

// preempts tells whether the scheduler may remove other to make room for the pod.
func preempts(pod, other *corev1.Pod) bool {
	return schedulinghelper.PodPriority(other) < schedulinghelper.PodPriority(pod) &&
		ptr.Deref(pod.Spec.PreemptionPolicy, corev1.PreemptLowerPriority) != corev1.PreemptNever
}

// OnNode returns nil if the node has as much cpu and memory as the pod requests when it has
// no other pod, or the error with which the API server refuses a resize to such a size
// (PodResizeValidator in plugin/pkg/admission/podresize of Kubernetes, which compares
// nothing else).
func OnNode(pod *corev1.Pod, node *corev1.Node) error {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	var lacking []string
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, has := requests[name], node.Status.Allocatable[name]
		if request.Cmp(has) > 0 {
			lacking = append(lacking, fmt.Sprintf("%s, requested: %s, allocatable: %s", name, request.String(), has.String()))
		}
	}
	if len(lacking) > 0 {
		return fmt.Errorf("node %s is too small: %s", node.Name, strings.Join(lacking, "; "))
	}
	return nil
}

// over tells whether the pod takes no room any more.
func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// hostPorts are the ports of its node that the pod takes for as long as it runs.
func hostPorts(pod *corev1.Pod) []corev1.ContainerPort {
	var ports []corev1.ContainerPort
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		ports = append(ports, c.Ports...)
	}
	return slices.DeleteFunc(ports, func(p corev1.ContainerPort) bool { return p.HostPort == 0 })
}

// conflict tells whether one of the ports is wanted twice.
func conflict(a, b []corev1.ContainerPort) bool {
	protocol := func(p corev1.ContainerPort) corev1.Protocol { return cmp.Or(p.Protocol, corev1.ProtocolTCP) }
	everywhere := func(p corev1.ContainerPort) bool { return p.HostIP == "" || p.HostIP == "0.0.0.0" }
	return slices.ContainsFunc(a, func(p corev1.ContainerPort) bool {
		return slices.ContainsFunc(b, func(q corev1.ContainerPort) bool {
			return p.HostPort == q.HostPort && protocol(p) == protocol(q) && (everywhere(p) || everywhere(q) || p.HostIP == q.HostIP)
		})
	})
}

// cordoned is the taint of a node that is unschedulable. A pod that tolerates it may come to
// the node (NodeUnschedulable in pkg/scheduler/framework/plugins of Kubernetes).
var cordoned = corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}

// open tells whether the scheduler may place the pod on the node.
func open(pod *corev1.Pod, node *corev1.Node) bool {
	if node.Spec.Unschedulable && !schedulinghelper.TolerationsTolerateTaint(klog.Background(), pod.Spec.Tolerations, &cordoned, false) {
		return false
	}
	return tolerates(pod, node)
}

func tolerates(pod *corev1.Pod, node *corev1.Node) bool {
	_, tainted := schedulinghelper.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations,
		func(t *corev1.Taint) bool {
			return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
		}, false)
	return !tainted
}

func holds(free, requests corev1.ResourceList) bool {
	for name, request := range requests {
		if request.Sign() > 0 && request.Cmp(free[name]) > 0 {
			return false
		}
	}
	return true
}

// describe names what is requested beside the most that an open node has of it:
// `cpu 100 (at most 8)`. Where each resource alone would fit on some node, all are
// named.
func describe(requests, largest corev1.ResourceList) string {
	var all, lacking []string
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		request, most := requests[name], largest[name]
		said := fmt.Sprintf("%s %s (at most %s)", name, request.String(), most.String())
		all = append(all, said)
		if request.Cmp(most) > 0 {
			lacking = append(lacking, said)
		}
	}
	if len(lacking) > 0 {
		all = lacking
	}
	return strings.Join(all, ", ")
}
