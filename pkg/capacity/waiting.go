package capacity

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
)

// putWaiting puts pods that wait for a node on this one, as many as there is room for beside the
// others, and returns all that are there then. One for which others would have to go has had its chance already.
func (r *Room) putWaiting(ctx context.Context, node *corev1.Node, others []*corev1.Pod) ([]*corev1.Pod, error) {
	waiting, err := r.on(ctx, "")
	if err != nil {
		return nil, err
	}
	slices.SortFunc(waiting, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(schedulinghelper.PodPriority(b), schedulinghelper.PodPriority(a)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	for _, pod := range waiting {
		if pod.DeletionTimestamp != nil || len(pod.Spec.SchedulingGates) > 0 || Over(pod) {
			continue
		}
		if pod.Status.NominatedNodeName == node.Name { // others go for it, and the room is its own
			others = append(others, r.put(pod, node))
			r.overtakers++
			continue
		}
		able, _ := r.declaring(pod, []*corev1.Node{node})
		if _, tooLarge := candidates(pod, nil, able); tooLarge != "" || isNo(beside(pod, node, others)) {
			continue
		}
		may, err := r.mayCome(ctx, pod, node, others)
		if err != nil {
			return nil, err
		}
		if may {
			others = append(others, r.put(pod, node))
			r.overtakers++
		}
	}
	return others, nil
}

// settle puts pods that wait on these nodes, if some of them will keep others away, also from nodes around; so it puts them on other
// nodes, too, as far as it looks at so many.
func (r *Room) settle(ctx context.Context, nodes []*corev1.Node) error {
	waiting, err := r.on(ctx, "")
	if err != nil || !slices.ContainsFunc(waiting, func(pod *corev1.Pod) bool { return len(apart(pod)) > 0 }) {
		return err
	}
	all, err := r.allNodes(ctx)
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(slices.Clone(all), func(n *corev1.Node) bool { return slices.Contains(nodes, n) })
	for _, node := range append(slices.Clone(nodes), others[:min(len(others), r.looks-len(nodes))]...) {
		others, err := r.on(ctx, node.Name)
		if err == nil {
			_, err = r.putWaiting(ctx, node, others)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mayCome reports whether a pod that waits for a node may come to this one, which has room
// for it. One that may not never takes the room, and must not keep others from it.
func (r *Room) mayCome(ctx context.Context, pod *corev1.Pod, node *corev1.Node, others []*corev1.Pod) (bool, error) {
	w, err := r.waiter(ctx, pod)
	if err != nil || w == nil {
		return w == nil, err
	}
	if w.never {
		return false, nil
	}
	if err := r.reach(ctx, node, w.volumes, others); err != nil {
		return isUnknown(err), ifNeither(err)
	}
	around, err := r.around(ctx, node, w.topology, others)
	if err != nil {
		return isUnknown(err), ifNeither(err)
	}
	allowed, err := w.topology.allows(node, around)
	return allowed || isUnknown(err), ifNeither(err)
}

// ifNeither returns the error unless it is an answer.
func ifNeither(err error) error {
	_, err = refusal(err)
	return err
}

// waiter returns what the pod demands; nil if that cannot be known, or so many have been looked at that it is not read.
func (r *Room) waiter(ctx context.Context, pod *corev1.Pod) (*demand, error) {
	if d, read := r.waiting[pod.UID]; read || len(r.waiting) >= maxLooks {
		return d, nil
	}
	var w *demand
	switch d, err := r.demandOf(ctx, pod); {
	case err == nil:
		w = &d
	case isNo(err):
		w = &demand{never: true}
	case !isUnknown(err):
		return nil, err
	}
	r.waiting[pod.UID] = w
	return w, nil
}
