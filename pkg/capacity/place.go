package capacity

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// LookAgain is how long what nobody watches, such as LimitRanges, is believed.
const LookAgain = 10 * time.Second

// replacement is the pod that comes for the one of the place, as far as it can be foreseen:
// like it, of the new size, and with what the LimitRanges fill in by now. The refusal
// is why the API server would not let it in; empty if it would.
func replacement(p rollout.Place, limits Limits) (pod *corev1.Pod, refusal string) {
	spec, refusal := limits.Admit(p.Target.Newborn(!limits.Unknown))
	return &corev1.Pod{
		ObjectMeta: p.Pod.ObjectMeta, Spec: *spec,
		Status: corev1.PodStatus{ExtendedResourceClaimStatus: p.Pod.Status.ExtendedResourceClaimStatus}, // the next one has its devices from there, too
	}, refusal
}

// Places say of the pods of one workload what stands against their new size.
type Places struct {
	// Nodes of the cluster. Where there are none, and NodesUnknown is set, nothing depends on them.
	Nodes        []*corev1.Node
	NodesUnknown bool
	// Limits of the namespace.
	Limits Limits
	// Now is the time.
	Now time.Time

	seen []largest // few: there may be many pods, and many nodes
}

// largest is what the nodes say of pods that are alike.
type largest struct {
	pod      *corev1.Pod
	tooLarge string
}

// Unplaceable returns why the pod that a restart of this one brings has no place: the API
// server would refuse it, or no node is large enough. Without a reason, it has one.
//
// What admission gave the running pod, such as its RuntimeClass's tolerations, it gives
// the next one, too: so the pod is asked about, and not the template.
func (p *Places) Unplaceable(place rollout.Place) rollout.Refusal {
	pod, refusal := replacement(place, p.Limits)
	if refusal != "" {
		return rollout.Refusal{
			Reason: "a new pod of this size would be refused, too: " + refusal, Kind: rollout.ReasonInvalid, Until: p.Now.Add(LookAgain),
		}
	}
	if p.NodesUnknown {
		return rollout.Refusal{}
	}
	at := slices.IndexFunc(p.seen, func(l largest) bool { return Alike(l.pod, pod) })
	if at < 0 {
		_, tooLarge := candidates(pod, nil, p.Nodes)
		at, p.seen = len(p.seen), append(p.seen, largest{pod, tooLarge})
	}
	if tooLarge := p.seen[at].tooLarge; tooLarge != "" {
		return rollout.Refusal{Reason: tooLarge, Kind: rollout.ReasonNoNodeFits}
	}
	return rollout.Refusal{}
}

// Barred returns why the API server would refuse a resize to a size that it may take for a
// new pod; empty if it would not, or nothing changes.
func (p *Places) Barred(place rollout.Place) string {
	if len(place.Target.Changes) == 0 {
		return ""
	}
	_, refusal := p.Limits.Admit(place.Target.Spec())
	return refusal
}

// Unsupported returns why the kubelet of the pod's node cannot resize it; without a reason,
// nothing speaks against it.
func (p *Places) Unsupported(place rollout.Place) rollout.Refusal {
	if !place.Target.Untold() {
		return rollout.Refusal{}
	}
	if why := tooOld(place.Pod, p.Nodes); why != "" {
		return rollout.Refusal{Reason: why, Kind: rollout.ReasonUnsupportedByNode, Final: true, Until: p.Now.Add(LookAgain)}
	}
	return rollout.Refusal{}
}

// Infeasible returns what the API server will say, without being asked, to a resize that is
// larger than the pod's node; without a reason, it will not.
func (p *Places) Infeasible(place rollout.Place) rollout.Refusal {
	if place.Pod == nil || place.Differs != "" || len(place.Target.Changes) == 0 {
		return rollout.Refusal{}
	}
	n := slices.IndexFunc(p.Nodes, func(node *corev1.Node) bool { return node.Name == place.Pod.Spec.NodeName })
	if n < 0 {
		return rollout.Refusal{}
	}
	resized := place.Pod.DeepCopy()
	resized.Spec = *place.Target.Spec()
	if err := OnNode(resized, p.Nodes[n]); err != nil {
		return rollout.Refusal{Reason: err.Error(), Kind: rollout.ReasonInfeasible, Final: true, Until: p.Now.Add(time.Hour)}
	}
	return rollout.Refusal{}
}
