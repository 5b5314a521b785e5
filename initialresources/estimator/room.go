package estimator

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
)

// Entries of a table that are about no image begin so. What admission would set is compared with
// them: where one is missing, there is no such bound.
const (
	roomEntry   = "room."    // the largest request that a node has room for
	quotaEntry  = "quota."   // what the ResourceQuotas have left
	podMaxEntry = "pod-max." // the most that LimitRanges let a pod request
	podMinEntry = "pod-min." // the least
	ratioEntry  = "ratio."   // how many times its request they let a limit be
)

// loads sums up what the pods take of each node.
func loads(pods []*pod) map[string]capacity.Load {
	sums := map[string]capacity.Load{}
	for _, p := range pods {
		if p.node != "" {
			sums[p.node] = sums[p.node].Plus(p.load)
		}
	}
	return sums
}

// largest is the most of each resource that a new pod can request and find room for on some
// node. The nodes may be two for the two resources.
func largest(nodes []*corev1.Node, taken map[string]capacity.Load) capacity.Load {
	var most capacity.Load
	for _, n := range capacity.ForAny(nodes) {
		if left := taken[n.Name].Left(n); left.Pods > 0 {
			most.MilliCPU, most.Memory = max(most.MilliCPU, left.MilliCPU), max(most.Memory, left.Memory)
		}
	}
	return most
}

// steady is the room to publish, where so much was published before; a negative number is none.
// As long as what is there has at least that, and not much more, it stays. Room that shrinks is
// rounded down to two digits of the unit, so that the next pods that take some of it change nothing.
func steady(before, now, unit int64) int64 {
	switch {
	case before < 0 || now-before > now/8:
		return now
	case before <= now:
		return before
	}
	digit := unit
	for now/digit >= 100 {
		digit *= 10
	}
	return now / digit * digit
}

// roomEntries are what the nodes have room for, where the table had those entries before.
func roomEntries(before map[string]string, now capacity.Load) map[string]string {
	had := func(name corev1.ResourceName) resource.Quantity {
		q, err := resource.ParseQuantity(before[roomEntry+string(name)])
		if err != nil {
			return *resource.NewQuantity(-1, resource.DecimalSI)
		}
		return q
	}
	cpu, memory := had(corev1.ResourceCPU), had(corev1.ResourceMemory)
	return entries(roomEntry, corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(steady(cpu.MilliValue(), now.MilliCPU, 1), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(steady(memory.Value(), now.Memory, 1<<20), resource.BinarySI),
	})
}

// quotaLeft is what the tightest ResourceQuota of a namespace has left of each resource. One that
// is for some pods only, such as those of a PriorityClass, counts for all: an estimate that is
// not set does less harm than a pod that is refused for it. Those for BestEffort pods count none
// that request anything. Where one counts pods that are not BestEffort, nothing is left: it would
// count a pod for its estimates alone, and refuse it, such as for a limit that it lacks.
func quotaLeft(quotas []*corev1.ResourceQuota) corev1.ResourceList {
	left := corev1.ResourceList{}
	for _, q := range quotas {
		if isFor(q, corev1.ResourceQuotaScopeBestEffort) {
			continue
		}
		if isFor(q, corev1.ResourceQuotaScopeNotBestEffort) {
			return corev1.ResourceList{corev1.ResourceCPU: {}, corev1.ResourceMemory: {}}
		}
		for _, name := range estimate.Resources {
			for _, counted := range []corev1.ResourceName{name, corev1.DefaultResourceRequestsPrefix + name} {
				hard, limited := q.Status.Hard[counted]
				used, known := q.Status.Used[counted]
				if !limited || !known {
					continue // the API server refuses every pod until it is known
				}
				rest := hard.DeepCopy()
				if rest.Sub(used); rest.Sign() < 0 {
					rest = resource.Quantity{Format: rest.Format}
				}
				estimate.KeepSmaller(left, corev1.ResourceList{name: rest})
			}
		}
	}
	return left
}

// isFor reports whether a quota counts pods of that scope only.
func isFor(q *corev1.ResourceQuota, scope corev1.ResourceQuotaScope) bool {
	return slices.Contains(q.Spec.Scopes, scope) || q.Spec.ScopeSelector != nil && slices.ContainsFunc(q.Spec.ScopeSelector.MatchExpressions,
		func(s corev1.ScopedResourceSelectorRequirement) bool { return s.ScopeName == scope })
}

// podMax is the most of each resource that the LimitRanges let the containers of a pod request
// together, and podMin the least.
func podMax(ranges []*corev1.LimitRange) corev1.ResourceList {
	most := corev1.ResourceList{}
	for item := range items(ranges, corev1.LimitTypePod) {
		estimate.KeepSmaller(most, item.Max)
	}
	return most
}

func podMin(ranges []*corev1.LimitRange) corev1.ResourceList {
	least := corev1.ResourceList{}
	for item := range items(ranges, corev1.LimitTypePod) {
		estimate.KeepLarger(least, item.Min)
	}
	return least
}

// ratios are how many times a request the LimitRanges let a limit be. If each container keeps to
// that, so does the pod.
func ratios(ranges []*corev1.LimitRange) corev1.ResourceList {
	least := corev1.ResourceList{}
	for item := range items(ranges, corev1.LimitTypePod, corev1.LimitTypeContainer) {
		estimate.KeepSmaller(least, item.MaxLimitRequestRatio)
	}
	return least
}

// items are what the LimitRanges say of things of these types.
func items(ranges []*corev1.LimitRange, of ...corev1.LimitType) iter.Seq[corev1.LimitRangeItem] {
	return func(yield func(corev1.LimitRangeItem) bool) {
		for _, r := range ranges {
			for _, item := range r.Spec.Limits {
				if slices.Contains(of, item.Type) && !yield(item) {
					return
				}
			}
		}
	}
}

// entries are those of a table for the resources that are estimated.
func entries(prefix string, list corev1.ResourceList) map[string]string {
	data := make(map[string]string, len(list))
	for _, name := range estimate.Resources {
		if q, has := list[name]; has {
			data[prefix+string(name)] = q.String()
		}
	}
	return data
}
