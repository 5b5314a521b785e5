package capacity

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Load is what pods take of a node, or what a node has left for them.
type Load struct {
	MilliCPU, Memory, Pods int64
}

// LoadOf is that of one pod with these requests.
func LoadOf(requests corev1.ResourceList) Load {
	return Load{MilliCPU: requests.Cpu().MilliValue(), Memory: requests.Memory().Value(), Pods: 1}
}

// Plus is the load of both.
func (l Load) Plus(other Load) Load {
	return Load{l.MilliCPU + other.MilliCPU, l.Memory + other.Memory, l.Pods + other.Pods}
}

// ForAny returns those of the nodes that any new pod may come to: they are not cordoned, and have
// no taint. Where every node that is not cordoned has a taint, it is all of these.
func ForAny(nodes []*corev1.Node) []*corev1.Node {
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool { return n.Spec.Unschedulable })
	if untainted := slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool { return !open(&corev1.Pod{}, n) }); len(untainted) > 0 {
		return untainted
	}
	return nodes
}

// Left returns what the node has left beside a load.
func (l Load) Left(node *corev1.Node) Load {
	has := node.Status.Allocatable
	left := Load{has.Cpu().MilliValue() - l.MilliCPU, has.Memory().Value() - l.Memory, math.MaxInt64}
	if pods, limited := has[corev1.ResourcePods]; limited {
		left.Pods = pods.Value() - l.Pods
	}
	return left
}
