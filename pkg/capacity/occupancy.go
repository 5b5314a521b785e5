package capacity

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// maxLooks bounds how many nodes are looked at for one pod, each of which costs a
// request; the next look is at others. It also bounds at how many of the pods that
// wait for a node there is a closer look.
const maxLooks = 100

// occupancy is which pods are on which node, and will be when some have been replaced.
type occupancy struct {
	source source
	nodes  []*corev1.Node
	byName map[string]*corev1.Node
	looks  int // at nodes, at the most, for one pod
	// there has the pods that have been read of a node, and peers those of a podSet.
	there, peers map[string][]*corev1.Pod
	// moved are the pods that will not be where they have been read: each has the node on
	// which it will be, or is nil if it will be gone.
	moved map[types.UID]*corev1.Pod
	// waiting are the pods without a node that had to be looked at closely.
	waiting map[types.UID]*waiter
	// overtaken: one of them has been put on a node.
	overtaken bool
}

// waiter is what a pod that waits for a node demands.
type waiter struct {
	topology *topology
	volumes  []*corev1.PersistentVolume
	// never: there is no node that it could come to.
	never bool
}

func newOccupancy(from source, nodes []*corev1.Node, looks int) *occupancy {
	return &occupancy{
		source: from, nodes: nodes, byName: byName(nodes), looks: looks,
		there: map[string][]*corev1.Pod{}, peers: map[string][]*corev1.Pod{}, moved: map[types.UID]*corev1.Pod{}, waiting: map[types.UID]*waiter{},
	}
}

// expect counts the pods of a workload as they will be: those that are terminating
// are gone, and those that are to come wait for a node. It returns both.
func (o *occupancy) expect(pods []*corev1.Pod, toCome []*corev1.PodTemplateSpec) (leaving, coming []*corev1.Pod) {
	for _, pod := range pods {
		if o.moved[pod.UID] = pod; pod.DeletionTimestamp != nil {
			o.moved[pod.UID] = nil
			leaving = append(leaving, pod)
		}
	}
	for i, template := range toCome {
		pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *resize.Defaulted(template)}
		pod.UID = types.UID(fmt.Sprint("to come ", i))
		if len(pods) > 0 { // admission gives all of them the same
			sibling := pods[0].Spec
			pod.Namespace = pods[0].Namespace
			pod.Spec.Priority, pod.Spec.PreemptionPolicy = sibling.Priority, sibling.PreemptionPolicy
			pod.Spec.Tolerations, pod.Spec.Overhead = append(pod.Spec.Tolerations, sibling.Tolerations...), sibling.Overhead
		}
		o.moved[pod.UID] = pod
		coming = append(coming, pod)
	}
	return leaving, coming
}

// find puts the pod on a node that has room for it, in place of the one with the same UID.
// It returns why no node has; empty if one has. Pods that wait for a node may be faster, so
// they come first where they can.
//
// On a node of 4 cpus with three pods of 1, one can become one of 2, and then no other
// one can. If a pod of 2 waits for a node, none can: it would come as soon as one goes.
func (o *occupancy) find(ctx context.Context, pod *corev1.Pod) (why string, err error) {
	volumes, _, err := o.source.volumes(ctx, pod)
	if err != nil {
		return "", err
	}
	nodes, tooLarge := candidates(pod, volumes, o.nodes)
	if tooLarge != "" {
		return tooLarge, nil
	}
	topology, err := newTopology(pod, o.byName)
	if err != nil {
		return "", err
	}
	rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	slices.SortStableFunc(nodes, func(a, b *corev1.Node) int { return isOn(pod, b) - isOn(pod, a) })
	looked := nodes[:min(len(nodes), o.looks)]
	before, barred := maps.Clone(o.moved), false
	o.moved[pod.UID] = nil
	for _, node := range looked {
		others, err := o.on(ctx, node.Name)
		if err != nil {
			return "", err
		}
		if !beside(pod, node, others) {
			continue
		}
		if others, err = o.putWaiting(ctx, node, others); err != nil {
			return "", err
		}
		if !beside(pod, node, others) {
			continue
		}
		allowed, err := o.allows(ctx, topology, node, others)
		if err != nil {
			return "", err
		}
		if allowed {
			o.put(pod, node)
			return "", nil
		}
		barred = true
	}
	o.moved = before
	return o.crowded(len(looked), len(nodes), barred), nil
}

// on returns the pods of a node, or those that wait for one if the name is empty.
func (o *occupancy) on(ctx context.Context, node string) ([]*corev1.Pod, error) {
	if _, read := o.there[node]; !read {
		all, err := o.source.onNode(ctx, node)
		if err != nil {
			return nil, err
		}
		o.there[node] = all
	}
	return o.correct(o.there[node], func(pod *corev1.Pod) bool { return pod.Spec.NodeName == node }), nil
}

// allows reports whether the pods around let the one of the topology come to the node.
func (o *occupancy) allows(ctx context.Context, topology *topology, node *corev1.Node, others []*corev1.Pod) (bool, error) {
	around, err := o.around(ctx, topology.peers(), others)
	return err == nil && topology.allows(node, around), err
}

// around returns the pods of a node and those of the sets, once each.
func (o *occupancy) around(ctx context.Context, peers []podSet, onNode []*corev1.Pod) ([]*corev1.Pod, error) {
	all := map[types.UID]*corev1.Pod{}
	for _, pod := range onNode {
		all[pod.UID] = pod
	}
	for _, p := range peers {
		key := p.Namespace + "/" + p.String()
		if _, read := o.peers[key]; !read {
			matching, err := o.source.matching(ctx, p)
			if err != nil {
				return nil, err
			}
			o.peers[key] = matching
		}
		for _, pod := range o.correct(o.peers[key], p.match) {
			all[pod.UID] = pod
		}
	}
	return slices.Collect(maps.Values(all)), nil
}

// correct returns those of the pods that were read, and of those that have moved, that are
// wanted where they will be.
func (o *occupancy) correct(read []*corev1.Pod, wanted func(*corev1.Pod) bool) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range read {
		if _, moved := o.moved[pod.UID]; !moved && wanted(pod) {
			pods = append(pods, pod)
		}
	}
	for _, pod := range o.moved {
		if pod != nil && wanted(pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// putWaiting puts pods that wait for a node on this one, as many as there is room for beside the
// others, and returns all that are there then.
func (o *occupancy) putWaiting(ctx context.Context, node *corev1.Node, others []*corev1.Pod) ([]*corev1.Pod, error) {
	waiting, err := o.on(ctx, "")
	if err != nil {
		return nil, err
	}
	slices.SortFunc(waiting, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(schedulinghelper.PodPriority(b), schedulinghelper.PodPriority(a)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	for _, pod := range waiting {
		if pod.DeletionTimestamp != nil || len(pod.Spec.SchedulingGates) > 0 {
			continue
		}
		if _, tooLarge := candidates(pod, nil, []*corev1.Node{node}); tooLarge != "" || !beside(pod, node, others) {
			continue
		}
		may, err := o.mayCome(ctx, pod, node, others)
		if err != nil {
			return nil, err
		}
		if may {
			others = append(others, o.put(pod, node))
			o.overtaken = true
		}
	}
	return others, nil
}

// mayCome reports whether a pod that waits for a node may come to this one, which has room
// for it. One that may not never takes the room, and must not keep others from it.
func (o *occupancy) mayCome(ctx context.Context, pod *corev1.Pod, node *corev1.Node, others []*corev1.Pod) (bool, error) {
	w, err := o.waiter(ctx, pod)
	if err != nil || w == nil {
		return w == nil, err
	}
	if w.never || !reaches(node, w.volumes) {
		return false, nil
	}
	return o.allows(ctx, w.topology, node, others)
}

// waiter returns what the pod demands; nil if so many have been looked at that it is not read.
func (o *occupancy) waiter(ctx context.Context, pod *corev1.Pod) (w *waiter, err error) {
	if w, read := o.waiting[pod.UID]; read || len(o.waiting) >= maxLooks {
		return w, nil
	}
	w = &waiter{}
	if w.volumes, w.never, err = o.source.volumes(ctx, pod); err != nil {
		return nil, err
	}
	if w.topology, err = newTopology(pod, o.byName); err != nil {
		w.never = true // the scheduler cannot read it either
	}
	o.waiting[pod.UID] = w
	return w, nil
}

// put has the pod be on the node from now on.
func (o *occupancy) put(pod *corev1.Pod, node *corev1.Node) *corev1.Pod {
	placed := &corev1.Pod{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
	placed.Spec.NodeName = node.Name
	o.moved[pod.UID] = placed
	return placed
}

// crowded says that no node has room, of so many that were looked at.
func (o *occupancy) crowded(looked, candidates int, barred bool) string {
	message := fmt.Sprintf("none of the %d nodes that are large enough has room", candidates)
	switch {
	case candidates == 1:
		message = "the only node that is large enough has no room"
	case looked < candidates:
		message = fmt.Sprintf("none of the %d nodes that were checked, of %d that are large enough, has room", looked, candidates)
	}
	message += " beside its pods"
	if o.overtaken {
		message += " and those that wait for a node"
	}
	if barred {
		message += " (pod affinity or topology spread constraints exclude nodes with room)"
	}
	return message
}

func isOn(pod *corev1.Pod, node *corev1.Node) int {
	if pod.Spec.NodeName == node.Name {
		return 1
	}
	return 0
}
