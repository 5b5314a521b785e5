package estimate

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Bounds are what the request of any container of a namespace has to keep to.
type Bounds struct {
	min, max     corev1.ResourceList // of LimitRanges
	node         corev1.ResourceList // the most that one has
	defaultLimit corev1.ResourceList
}

// NewBounds returns what LimitRanges and nodes allow. Of the nodes, those count that take
// any pod; where there are none, they set no bound.
func NewBounds(ranges []*corev1.LimitRange, nodes []*corev1.Node) Bounds {
	b := Bounds{min: corev1.ResourceList{}, max: corev1.ResourceList{}, node: corev1.ResourceList{}, defaultLimit: corev1.ResourceList{}}
	ratio, largestDefault := corev1.ResourceList{}, corev1.ResourceList{}
	for _, r := range ranges {
		for _, item := range r.Spec.Limits {
			if item.Type == corev1.LimitTypePod { // a pod keeps to a ratio if each of its containers does
				KeepSmaller(ratio, item.MaxLimitRequestRatio)
			}
			if item.Type != corev1.LimitTypeContainer {
				continue
			}
			KeepLarger(b.min, item.Min)
			KeepSmaller(b.max, item.Max)
			KeepSmaller(b.defaultLimit, item.Default)
			KeepLarger(largestDefault, item.Default)
			KeepSmaller(ratio, item.MaxLimitRequestRatio)
		}
	}
	// A container without a limit gets a default one: its request may not be too small for that.
	// Which of several LimitRanges sets it is a matter of chance.
	for name, limit := range largestDefault {
		if r, ok := ratio[name]; ok && r.Sign() > 0 {
			KeepLarger(b.min, corev1.ResourceList{name: divided(name, limit, r)})
		}
	}
	for _, n := range nodes {
		if takesAny(n) {
			KeepLarger(b.node, n.Status.Allocatable)
		}
	}
	return b
}

// takesAny reports whether a node takes pods that do not ask for it.
func takesAny(n *corev1.Node) bool {
	if n.Spec.Unschedulable {
		return false
	}
	for _, t := range n.Spec.Taints {
		if t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute {
			return false
		}
	}
	return true
}

// divided is the smallest quantity of which limit is at most ratio times as much.
func divided(name corev1.ResourceName, limit, ratio resource.Quantity) resource.Quantity {
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(int64(math.Ceil(float64(limit.MilliValue())*1000/float64(ratio.MilliValue()))), resource.DecimalSI)
	}
	return *resource.NewQuantity(int64(math.Ceil(float64(limit.Value())*1000/float64(ratio.MilliValue()))), resource.BinarySI)
}

// Clamp returns the estimate within the bounds. A LimitRange has the last word: the API
// server refuses a pod that does not keep to it.
func (b Bounds) Clamp(e Estimate) Estimate {
	if most, ok := b.node[e.Resource]; ok && most.Sign() > 0 {
		e = e.AtMost(most, CappedByNode)
	}
	if least, ok := b.min[e.Resource]; ok && e.Request.Cmp(least) < 0 {
		e.Request, e.Capped = plain(e.Resource, least), CappedByLimitRange
	}
	if most, ok := b.max[e.Resource]; ok {
		e = e.AtMost(most, CappedByLimitRange)
	}
	return e
}

// ClampTo returns the estimate within the bounds for a container with these limits of its
// own. One without a limit gets the default of a LimitRange, and may not request more.
func (b Bounds) ClampTo(e Estimate, limits corev1.ResourceList) Estimate {
	e = b.Clamp(e)
	if limit, ok := limits[e.Resource]; ok {
		return e.AtMost(limit, CappedByLimit)
	}
	if limit, ok := b.defaultLimit[e.Resource]; ok {
		return e.AtMost(limit, CappedByLimitRange)
	}
	return e
}

// AtMost returns the estimate with a request of no more than that, and who says so.
func (e Estimate) AtMost(most resource.Quantity, by string) Estimate {
	if e.Request.Cmp(most) > 0 {
		e.Request, e.Capped = plain(e.Resource, most), by
	}
	return e
}

// KeepLarger has a list keep what another one has more of, or alone.
func KeepLarger(into, from corev1.ResourceList) {
	for name, q := range from {
		if had, ok := into[name]; !ok || q.Cmp(had) > 0 {
			into[name] = q.DeepCopy()
		}
	}
}

// KeepSmaller has a list keep what another one has less of, or alone.
func KeepSmaller(into, from corev1.ResourceList) {
	for name, q := range from {
		if had, ok := into[name]; !ok || q.Cmp(had) < 0 {
			into[name] = q.DeepCopy()
		}
	}
}
