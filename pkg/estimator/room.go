package estimator

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/estimate"
)

// Entries of a table that are about no image begin so. What admission would set is compared with
// them: where one is missing, there is no such bound.
const (
	roomEntry   = "room."    // the largest request that a node has room for
	quotaEntry  = "quota."   // what the ResourceQuotas have left
	podMaxEntry = "pod-max." // the most that LimitRanges let a pod request
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
// that request anything.
func quotaLeft(quotas []*corev1.ResourceQuota) corev1.ResourceList {
	left := corev1.ResourceList{}
	for _, q := range quotas {
		if forBestEffort(q) {
			continue
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
				keepLess(left, name, rest)
			}
		}
	}
	return left
}

func forBestEffort(q *corev1.ResourceQuota) bool {
	for _, scope := range q.Spec.Scopes {
		if scope == corev1.ResourceQuotaScopeBestEffort {
			return true
		}
	}
	if q.Spec.ScopeSelector == nil {
		return false
	}
	for _, s := range q.Spec.ScopeSelector.MatchExpressions {
		if s.ScopeName == corev1.ResourceQuotaScopeBestEffort {
			return true
		}
	}
	return false
}

// podMax is the most of each resource that the LimitRanges let the containers of a pod request
// together.
func podMax(ranges []*corev1.LimitRange) corev1.ResourceList {
	return least(ranges, corev1.LimitTypePod, func(i corev1.LimitRangeItem) corev1.ResourceList { return i.Max })
}

// ratios are how many times a container's request the LimitRanges let its limit be.
func ratios(ranges []*corev1.LimitRange) corev1.ResourceList {
	return least(ranges, corev1.LimitTypeContainer, func(i corev1.LimitRangeItem) corev1.ResourceList { return i.MaxLimitRequestRatio })
}

// least is the least of what the LimitRanges say of things of a type.
func least(ranges []*corev1.LimitRange, of corev1.LimitType, says func(corev1.LimitRangeItem) corev1.ResourceList) corev1.ResourceList {
	all := corev1.ResourceList{}
	for _, r := range ranges {
		for _, item := range r.Spec.Limits {
			if item.Type != of {
				continue
			}
			for _, name := range estimate.Resources {
				if q, limited := says(item)[name]; limited {
					keepLess(all, name, q)
				}
			}
		}
	}
	return all
}

func keepLess(list corev1.ResourceList, name corev1.ResourceName, q resource.Quantity) {
	if have, has := list[name]; !has || q.Cmp(have) < 0 {
		list[name] = q
	}
}

func entries(prefix string, list corev1.ResourceList) map[string]string {
	data := make(map[string]string, len(list))
	for name, q := range list {
		data[prefix+string(name)] = q.String()
	}
	return data
}
