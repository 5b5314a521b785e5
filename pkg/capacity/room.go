package capacity

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Room is what the nodes, and the quotas of one namespace, have left for pods that take the
// places of others, one after the other: each that has found room has taken it.
//
// Nobody watches all pods for that: it is read when a pod is about to go.
type Room struct {
	nodes        *occupancy
	nodesUnknown bool
	quotas       *quotas
}

// ReadRoom returns the room that the nodes and the quotas of a namespace have now. Pods are
// those of the workload right now, and toCome the templates of those that it lacks, which
// need room, too.
func ReadRoom(ctx context.Context, client kubernetes.Interface, namespace string, nodes []*corev1.Node, pods []*corev1.Pod, toCome []*corev1.PodTemplateSpec, now time.Time) (*Room, error) {
	quotas, err := countQuotas(ctx, client, namespace, now)
	if err != nil {
		return nil, err
	}
	return newRoom(served{client}, nodes, maxLooks, quotas, pods, toCome), nil
}

// newRoom returns the room on nodes, of which at most looks are looked at for one pod, and in quotas.
func newRoom(from source, nodes []*corev1.Node, looks int, quotas *quotas, pods []*corev1.Pod, toCome []*corev1.PodTemplateSpec) *Room {
	r := &Room{nodes: newOccupancy(from, nodes, looks), quotas: quotas}
	leaving, coming := r.nodes.expect(pods, toCome)
	for _, pod := range leaving {
		quotas.remove(pod)
	}
	for _, pod := range coming {
		quotas.add(pod)
	}
	return r
}

// Replace looks for room for the pod that comes for the member's, and returns why there is
// none; without a reason, there was, and it is taken. Where newFirst is set, the other pod
// comes before the member's goes. It may wait for room then, and so it only has to get into the
// namespace. But one that can come to no other node would wait for ever: there must be room beside
// the member's.
func (r *Room) Replace(ctx context.Context, m rollout.Member, limits Limits, newFirst bool) (rollout.Refusal, error) {
	pod, _ := replacement(m.Place, limits)
	left, why := r.quotas.replace(m.Pod, pod, newFirst)
	if why != "" {
		return rollout.Refusal{Reason: why, Kind: rollout.ReasonQuotaExceeded}, nil
	}
	if newFirst {
		pod.UID += " to come"
	}
	if (!newFirst || pinnedTo(pod) != "") && !r.nodesUnknown {
		why, err := r.nodes.find(ctx, pod)
		switch {
		case apierrors.IsForbidden(err): // as where the controller has rights in one namespace only
			klog.FromContext(ctx).V(2).Info("Cannot say whether nodes have room", "reason", err.Error())
			r.nodesUnknown = true
		case err != nil:
			return rollout.Refusal{}, err
		case why != "":
			return rollout.Refusal{Reason: why, Kind: rollout.ReasonNoNodeFits}, nil
		}
	}
	r.quotas = left
	return rollout.Refusal{}, nil
}
