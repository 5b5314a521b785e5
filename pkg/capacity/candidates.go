package capacity

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// candidates returns the nodes to which the pod could be scheduled if they were empty, or why
// there is none. A node is no candidate if it is not Ready, whatever the pod tolerates; if it is cordoned, or has another taint, and
// the pod does not tolerate that; if the pod's node selector, its required node affinity or that of
// its volumes excludes it; or if it cannot allocate what the pod requests. Other pods are not
// looked at, so a candidate is no promise.
func candidates(pod *corev1.Pod, volumes []*corev1.PersistentVolume, nodes []*corev1.Node) (could []*corev1.Node, tooLarge string) {
	could, allowed, short := among(pod, volumes, nodes)
	switch {
	case len(could) > 0:
		return could, ""
	case allowed == 0:
		return nil, "no node that is Ready matches the node selector, affinity and tolerations of the pod"
	case allowed == 1:
		return nil, short.on("the only node that it can run on")
	default:
		return nil, short.on("the largest node")
	}
}

// among returns those of the nodes that are candidates, how many are open to the pod, and what it
// lacks on these.
func among(pod *corev1.Pod, volumes []*corev1.PersistentVolume, nodes []*corev1.Node) (could []*corev1.Node, allowed int, short shortage) {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	devices := devicesOf(pod, requests)
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
	largest := corev1.ResourceList{}
	for _, node := range nodes {
		if matches, err := affinity.Match(node); err != nil || !matches || lost(node) || !open(pod, node) || !reaches(node, volumes) {
			continue
		}
		allowed++
		if holds(node.Status.Allocatable, devices.leave(requests, node)) {
			could = append(could, node)
			continue
		}
		for name := range requests {
			if q := node.Status.Allocatable[name]; q.Cmp(largest[name]) > 0 {
				largest[name] = q
			}
		}
	}
	return could, allowed, shortage{requests, largest}
}

// TargetNode returns the name of the node that the pod is on or, if it has none yet, of the only
// one that it may come to; empty if there is no such node (GetTargetNodeName in
// pkg/controller/daemon/util of Kubernetes).
func TargetNode(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	return pinnedTo(pod)
}

// pinnedTo returns the name of the only node that the pod may come to, as the DaemonSet
// controller writes it into the required node affinity of its pods; empty if there may be others.
func pinnedTo(pod *corev1.Pod) string {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil || pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	only := ""
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		at := slices.IndexFunc(term.MatchFields, func(r corev1.NodeSelectorRequirement) bool {
			return r.Key == metav1.ObjectNameField && r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1
		})
		if at < 0 || only != "" && only != term.MatchFields[at].Values[0] { // one of the terms is enough
			return ""
		}
		only = term.MatchFields[at].Values[0]
	}
	return only
}

// alike reports whether the same nodes are candidates for both pods, but for their volumes.
func alike(a, b *corev1.Pod) bool {
	same := equality.Semantic.DeepEqual
	requestsA, requestsB := resourcehelper.PodRequests(a, resourcehelper.PodResourcesOptions{}), resourcehelper.PodRequests(b, resourcehelper.PodResourcesOptions{})
	return same(a.Spec.NodeSelector, b.Spec.NodeSelector) && same(a.Spec.Affinity, b.Spec.Affinity) && same(a.Spec.Tolerations, b.Spec.Tolerations) &&
		same(requestsA, requestsB) && same(devicesOf(a, requestsA), devicesOf(b, requestsB))
}

// devices are extended resources that dynamic resource allocation gives to a pod.
type devices map[corev1.ResourceName]struct{}

// devicesOf are those of a pod with these requests that are known: those that name a
// DeviceClass, and those that its status says were allocated so. A DeviceClass may have any
// name for them besides, and who has not read it cannot tell.
func devicesOf(pod *corev1.Pod, requests corev1.ResourceList) devices {
	found := devices{}
	for name := range requests {
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

// cordoned is the taint of a node that is unschedulable. A pod that tolerates it may come to
// the node (NodeUnschedulable in pkg/scheduler/framework/plugins of Kubernetes).
var cordoned = corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}

// open reports whether the scheduler may place the pod on the node, or the kubelet takes it where its template names the node.
func open(pod *corev1.Pod, node *corev1.Node) bool {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName == node.Name && tolerates(pod, node, corev1.TaintEffectNoExecute)
	}
	if node.Spec.Unschedulable && !schedulinghelper.TolerationsTolerateTaint(klog.Background(), pod.Spec.Tolerations, &cordoned, false) {
		return false
	}
	return tolerates(pod, node, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute)
}

// openTo is open for a pod that is on a node, whoever has chosen that.
func openTo(pod *corev1.Pod, node *corev1.Node) bool {
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return err == nil && matches && open(&corev1.Pod{Spec: corev1.PodSpec{Tolerations: pod.Spec.Tolerations}}, node)
}

func tolerates(pod *corev1.Pod, node *corev1.Node, effects ...corev1.TaintEffect) bool {
	_, tainted := schedulinghelper.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations,
		func(t *corev1.Taint) bool { return slices.Contains(effects, t.Effect) }, false)
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

// shortage is what is requested, and the most that an open node has of each resource.
type shortage struct{ requests, largest corev1.ResourceList }

// on says what the pod needs, and that the node has less: `it needs 100.15 cpu; the largest node has 4`.
func (s shortage) on(node string) string {
	var all, needs, has []string
	for _, name := range slices.Sorted(maps.Keys(s.requests)) {
		request, most := s.requests[name], s.largest[name]
		all = append(all, amount(name, request))
		if request.Cmp(most) > 0 {
			needs, has = append(needs, amount(name, request)), append(has, amount(name, most))
		}
	}
	switch len(needs) {
	case 0: // each alone would fit on some node
		return "it needs " + strings.Join(all, " and ") + "; no node has all of that"
	case 1:
		less, _, _ := strings.Cut(has[0], " ")
		return "it needs " + needs[0] + "; " + node + " has " + less
	default:
		return "it needs " + strings.Join(needs, " and ") + "; " + node + " has " + strings.Join(has, " and ")
	}
}

// amount spells a quantity as people do: 100.15 cpu, 150m cpu, 16Gi memory.
func amount(name corev1.ResourceName, q resource.Quantity) string {
	text := q.String()
	if name == corev1.ResourceCPU && q.MilliValue() >= 1000 {
		text = strconv.FormatFloat(float64(q.MilliValue())/1000, 'f', -1, 64)
	}
	return text + " " + string(name)
}
