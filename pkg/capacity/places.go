package capacity

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/version"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// LookAgain is how long what nobody watches, such as LimitRanges, is believed.
const LookAgain = 10 * time.Second

// Places answers what stands against the new size of each pod of a workload by itself: what
// depends on other pods is for [Room].
type Places struct {
	nodes        []*corev1.Node
	nodesUnknown bool
	limits       Limits

	answers []answer // few: there may be many pods, and many nodes
}

// answer is why no node is large enough for pods that are alike; empty if one is.
type answer struct {
	pod      *corev1.Pod
	tooLarge string
}

// NewPlaces answers by the nodes of the cluster and the LimitRanges of the namespace. Where
// the nodes are unknown, nothing depends on them. A list that is sorted by name is shared, not copied: there may be many workloads, and many
// nodes.
func NewPlaces(nodes []*corev1.Node, nodesUnknown bool, limits Limits) *Places {
	if !slices.IsSortedFunc(nodes, compareNames) {
		nodes = slices.SortedFunc(slices.Values(nodes), compareNames)
	}
	return &Places{nodes: nodes, nodesUnknown: nodesUnknown, limits: limits}
}

func compareNames(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) }

// Node returns the node of that name; nil if it is not known.
func (p *Places) Node(name string) *corev1.Node {
	i, found := slices.BinarySearchFunc(p.nodes, name, func(n *corev1.Node, name string) int { return cmp.Compare(n.Name, name) })
	if !found {
		return nil
	}
	return p.nodes[i]
}

// Lost returns why nothing is to be expected of the node of a pod, which may be nil: it is
// gone, or its kubelet has not been heard of. It is empty if the node is there, or no node
// is known.
func (p *Places) Lost(pod *corev1.Pod) string {
	if len(p.nodes) == 0 || pod == nil || pod.Spec.NodeName == "" {
		return ""
	}
	node := p.Node(pod.Spec.NodeName)
	if node == nil {
		return "its node " + pod.Spec.NodeName + " is gone"
	}
	if !lost(node) {
		return ""
	}
	why := "its node " + node.Name + " is not Ready"
	if pod.DeletionTimestamp != nil {
		why += ", so it stays until you delete the node, or the pod by force, or taint the node with " + corev1.TaintNodeOutOfService
	}
	return why
}

// lost reports whether the node says that it is not Ready.
func lost(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
}

// Drained reports whether the node of a pod may be about to lose its pods: it is lost, or would not take this one now, as
// whoever drains nodes marks them first, or takes the label from them that a DaemonSet selects.
func (p *Places) Drained(pod *corev1.Pod) bool {
	node := p.Node(pod.Spec.NodeName)
	return p.Lost(pod) != "" || node != nil && !openTo(pod, node)
}

// Unplaceable returns why the pod that a restart of this one brings has no place: the API
// server would refuse it, or no node is large enough. Without a reason, it has one.
//
// What admission gave the running pod, such as its RuntimeClass's tolerations, it gives
// the next one, too: so the pod is asked about, and not the template.
func (p *Places) Unplaceable(place judge.Place, now time.Time) judge.Refusal {
	pod, refusal := successor(place, rollout.Revision{}, p.limits)
	if refusal != "" {
		return judge.Refusal{
			Reason: "a new pod of this size would be refused, too: " + refusal, Kind: judge.ReasonInvalid, Until: now.Add(LookAgain),
		}
	}
	if p.nodesUnknown {
		return judge.Refusal{}
	}
	if only := TargetNode(pod); only != "" { // each of its siblings has a node of its own
		return p.unplaceableOn(only, pod)
	}
	at := slices.IndexFunc(p.answers, func(a answer) bool { return alike(a.pod, pod) })
	if at < 0 {
		_, tooLarge := candidates(pod, nil, p.nodes)
		at, p.answers = len(p.answers), append(p.answers, answer{pod, tooLarge})
	}
	if tooLarge := p.answers[at].tooLarge; tooLarge != "" {
		return judge.Refusal{Reason: tooLarge, Kind: judge.ReasonNoNodeFits}
	}
	return judge.Refusal{}
}

// unplaceableOn is Unplaceable for a pod that may come to no other node.
func (p *Places) unplaceableOn(only string, pod *corev1.Pod) judge.Refusal {
	var nodes []*corev1.Node
	if node := p.Node(only); node != nil {
		nodes = append(nodes, node)
	}
	could, allowed, short := among(pod, nil, nodes)
	switch {
	case len(could) > 0:
		return judge.Refusal{}
	case allowed > 0:
		return judge.Refusal{Reason: short.on("node " + only + ", the only one that it can run on,"), Kind: judge.ReasonNoNodeFits}
	}
	return judge.Refusal{Reason: "it can run only on node " + only + ", which does not match its node selector, affinity or tolerations", Kind: judge.ReasonNoNodeFits}
}

// Filled returns what the LimitRanges make of a new pod of the template; nil if that is nothing, or not known.
func (p *Places) Filled(template *corev1.PodTemplateSpec) *corev1.PodSpec {
	if len(p.limits.Ranges) == 0 {
		return nil
	}
	filled, _ := p.limits.admit(resize.Defaulted(template))
	return filled
}

// Barred returns why the API server would refuse a resize to a size that it may take for a
// new pod; empty if it would not, or nothing changes.
func (p *Places) Barred(place judge.Place) string {
	if len(place.Target.Changes) == 0 {
		return ""
	}
	_, refusal := p.limits.admit(place.Target.Spec())
	return refusal
}

// Versions of kubelets.
var (
	// firstToResize resizes pods unless a feature gate forbids it.
	firstToResize = version.MustParseGeneric("1.33.0")
	// firstToShrink lowers memory limits of containers that run on, and says which generation of a
	// pod it has observed.
	firstToShrink = version.MustParseGeneric("1.34.0")
)

// Kubelet returns what is known of the kubelet of a pod, which may be nil.
func (p *Places) Kubelet(pod *corev1.Pod, now time.Time) resize.Kubelet {
	if pod == nil {
		return resize.Kubelet{}
	}
	node := p.Node(pod.Spec.NodeName)
	if node == nil {
		return resize.Kubelet{}
	}
	kubelet := node.Status.NodeInfo.KubeletVersion
	return resize.Kubelet{Version: kubelet, Silent: before(kubelet, firstToShrink), Now: now}
}

// before reports whether the kubelet is older than that; false if its version is not understood.
// What distributions add to it, as in v1.34.3-gke.1234, does not count.
func before(kubelet string, first *version.Version) bool {
	v, err := version.ParseGeneric(kubelet)
	return err == nil && v.LessThan(first)
}

// Unsupported returns why the kubelet of the pod's node cannot resize it, as far as its
// version says. Without a reason, nothing speaks against it.
//
// Kubernetes 1.33 lowers no memory limit of a container that runs on: its API server refuses that.
// Under a newer one, its kubelet would not look at what the container uses, and have it killed
// (https://github.com/kubernetes/kubernetes/issues/129152).
func (p *Places) Unsupported(place judge.Place) judge.Refusal {
	kubelet := p.Kubelet(place.Pod, time.Time{}).Version
	why := "its kubelet is of version " + kubelet
	switch {
	case place.Target.Unreported() && before(kubelet, firstToResize):
	case place.Target.ShrinksMemory() && before(kubelet, firstToShrink):
		why += ", before 1.34, and lowers memory limits only with the resizePolicy RestartContainer"
	default:
		return judge.Refusal{}
	}
	return judge.Refusal{Reason: why, Kind: judge.ReasonUnsupportedByNode, Final: true}
}

// undeclared returns which feature the kubelet of a node has to declare for the changes of a place's pod, and does not; empty if there is
// none (InferForUpdate in nodedeclaredfeatures/features/inplacepodresize of k8s.io/component-helpers).
func undeclared(place judge.Place, node *corev1.Node) string {
	for _, c := range place.Target.Changes {
		needs := ""
		if c.Container == "" {
			needs = "InPlacePodLevelResourcesVerticalScaling"
		} else if slices.ContainsFunc(place.Pod.Spec.InitContainers, func(i corev1.Container) bool { return i.Name == c.Container && i.RestartPolicy == nil }) {
			needs = "InPlacePodVerticalScalingInitContainers"
		}
		if needs != "" && !slices.Contains(node.Status.DeclaredFeatures, needs) {
			return needs
		}
	}
	return ""
}

// infeasible returns what the API server will say, without being asked, to a resize that is
// larger than the pod's node, or that its kubelet does not know; without a reason, it will not.
func infeasible(f rollout.Facts, place judge.Place) judge.Refusal {
	if place.Pod == nil || place.Differs != "" || len(place.Target.Changes) == 0 {
		return judge.Refusal{}
	}
	node := f.Places.Node(place.Pod.Spec.NodeName)
	if node == nil {
		return judge.Refusal{}
	}
	if feature := undeclared(place, node); feature != "" {
		return judge.Refusal{Reason: "its kubelet does not declare the feature " + feature, Kind: judge.ReasonUnsupportedByNode, Final: true}
	}
	if why := onNode(place.Target.Spec(), node); why != "" {
		return judge.Refusal{Reason: why, Kind: judge.ReasonInfeasible, Final: true, Until: f.Now.Add(time.Hour)}
	}
	return judge.Refusal{}
}

// onNode returns the error with which the API server refuses a resize to a size that is
// larger than the node is when it has no other pod; empty if it is not (PodResizeValidator
// in plugin/pkg/admission/podresize of Kubernetes, which compares cpu and memory only).
func onNode(spec *corev1.PodSpec, node *corev1.Node) string {
	requests := resourcehelper.PodRequests(&corev1.Pod{Spec: *spec}, resourcehelper.PodResourcesOptions{})
	maps.DeleteFunc(requests, func(name corev1.ResourceName, _ resource.Quantity) bool {
		return name != corev1.ResourceCPU && name != corev1.ResourceMemory
	})
	if holds(node.Status.Allocatable, requests) {
		return ""
	}
	return shortage{requests, node.Status.Allocatable}.on("the node")
}

// TooLarge returns why no node could hold a pod that is made from the template, even if it were empty;
// empty if one could.
func (p *Places) TooLarge(template *corev1.PodTemplateSpec) string {
	if p.nodesUnknown {
		return ""
	}
	_, tooLarge := candidates(&corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: *resize.Defaulted(template)}, nil, p.nodes)
	return tooLarge
}
