package capacity

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// MaxLooks bounds how many nodes are looked at for one pod, each of which costs a
// request; the next look is at others. It also bounds at how many of the pods that
// wait for a node there is a closer look.
const MaxLooks = 100

// Room looks for room for the pods that take the places of others, one after the other:
// beside the other pods of the cluster and those that wait for a node, and in the quotas
// of their namespace. Each that has found room has taken it.
//
// Nobody watches all pods for that: it is asked only when a pod is about to go.
type Room struct {
	nodes  *room
	quotas *claim
	// Unknown reports that it cannot be told what room the nodes have.
	Unknown bool
}

// NewRoom returns the room that there is on nodes, of which at most looks are looked at for
// one pod, and in the quotas of one namespace.
//
// Pods are those of the workload right now, and toCome the templates of those that it
// lacks: they need room, too.
func NewRoom(from Source, nodes []*corev1.Node, looks int, quotas *Quotas, pods []*corev1.Pod, toCome []*corev1.PodTemplateSpec) *Room {
	r := newRoom(from, nodes, looks)
	r.expect(pods, toCome)
	return &Room{nodes: r, quotas: newClaim(quotas, r)}
}

// Replace looks for room for the pod that comes for the member's, and returns why there is
// none; without a reason, there was, and it is taken. Where newFirst is set, the other pod
// comes before the member's goes, and so it only has to get into the namespace.
func (r *Room) Replace(ctx context.Context, m rollout.Member, limits Limits, newFirst bool) (rollout.Refusal, error) {
	pod, _ := replacement(m.Place, limits)
	if why := r.quotas.replace(m.Pod, pod, newFirst); why != "" {
		return rollout.Refusal{Reason: why, Kind: rollout.ReasonQuotaExceeded}, nil
	}
	if !newFirst && !r.Unknown {
		why, err := r.nodes.find(ctx, pod)
		switch {
		case apierrors.IsForbidden(err): // as where the controller has rights in one namespace only
			klog.FromContext(ctx).V(2).Info("Cannot tell whether nodes have room", "reason", err.Error())
			r.Unknown = true
		case err != nil:
			return rollout.Refusal{}, err
		case why != "":
			return rollout.Refusal{Reason: why, Kind: rollout.ReasonNoNodeFits}, nil
		}
	}
	r.quotas.settle()
	return rollout.Refusal{}, nil
}

// claim is what a workload takes of the quotas of its namespace.
type claim struct {
	now, then *Quotas // then: if the last one that was asked for is replaced
}

// newClaim counts those that are about to go as gone, and those that are to come as there.
func newClaim(quotas *Quotas, r *room) *claim {
	for _, pod := range r.leaving {
		quotas.Free(pod)
	}
	for _, pod := range r.coming {
		quotas.Add(pod)
	}
	return &claim{now: quotas}
}

// replace tells why the quotas have no room for a pod in the place of the old one;
// empty if they have.
func (s *claim) replace(old, pod *corev1.Pod, first bool) (refusal string) {
	s.then = s.now.Clone()
	if !first {
		s.then.Free(old)
	}
	if refusal = s.then.Refusal(pod); refusal != "" {
		return refusal
	}
	if s.then.Add(pod); first {
		s.then.Free(old)
	}
	return ""
}

// settle has the last one replaced.
func (s *claim) settle() { s.now = s.then }

// room is what the nodes have, and will have when pods have been replaced.
type room struct {
	source Source
	nodes  []*corev1.Node
	byName map[string]*corev1.Node
	looks  int // at nodes, at the most, for one pod
	// there and peers are what has been read, by the node's name and by who matches.
	there, peers map[string][]*corev1.Pod
	// known are the pods of which more is known than what has been read: their node is
	// where they will be. They are nil if they will be gone.
	known map[types.UID]*corev1.Pod
	// waiting are the pods that wait for a node of which more had to be known.
	waiting map[types.UID]*waiter
	// filled tells that one of them has been counted as there.
	filled bool
	// leaving and coming are pods of the workload that are about to be gone, and there.
	leaving, coming []*corev1.Pod
}

// waiter is what a pod that waits for a node demands.
type waiter struct {
	topology *Topology
	volumes  []*corev1.PersistentVolume
	// never tells that there is no node that it could come to.
	never bool
}

func newRoom(from Source, nodes []*corev1.Node, looks int) *room {
	return &room{
		source: from, nodes: nodes, byName: ByName(nodes), looks: looks,
		there: map[string][]*corev1.Pod{}, peers: map[string][]*corev1.Pod{}, known: map[types.UID]*corev1.Pod{}, waiting: map[types.UID]*waiter{},
	}
}

// expect counts the pods of a workload as they will be: those that are terminating
// are gone, and those that are to come wait for a node.
func (r *room) expect(pods []*corev1.Pod, toCome []*corev1.PodTemplateSpec) {
	for _, pod := range pods {
		if r.known[pod.UID] = pod; pod.DeletionTimestamp != nil {
			r.known[pod.UID] = nil
			r.leaving = append(r.leaving, pod)
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
		r.known[pod.UID] = pod
		r.coming = append(r.coming, pod)
	}
}

// find tells why no node has room for a pod that takes the place of the one with its
// UID; empty if one has, where it is from then on. Those that wait for a node may be
// faster than it, so they come first where they can.
//
// On a node of 4 cpus with three pods of 1, one can become one of 2, and then no other
// one can. If a pod of 2 waits for a node, none can: it would come as soon as one goes.
func (r *room) find(ctx context.Context, pod *corev1.Pod) (why string, err error) {
	volumes, _, err := r.source.volumes(ctx, pod)
	if err != nil {
		return "", err
	}
	nodes, tooLarge := candidates(pod, volumes, r.nodes)
	if tooLarge != "" {
		return tooLarge, nil
	}
	topology, err := NewTopology(pod, r.byName)
	if err != nil {
		return "", err
	}
	rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	slices.SortStableFunc(nodes, func(a, b *corev1.Node) int { return own(pod, b) - own(pod, a) })
	looked := nodes[:min(len(nodes), r.looks)]
	before, barred := maps.Clone(r.known), false
	r.known[pod.UID] = nil
	for _, node := range looked {
		others, err := r.on(ctx, node.Name)
		if err != nil {
			return "", err
		}
		if !Beside(pod, node, others) {
			continue
		}
		if others, err = r.fill(ctx, node, others); err != nil {
			return "", err
		}
		if !Beside(pod, node, others) {
			continue
		}
		allowed, err := r.allows(ctx, topology, node, others)
		if err != nil {
			return "", err
		}
		if allowed {
			r.place(pod, node)
			return "", nil
		}
		barred = true
	}
	r.known = before
	return r.crowded(len(looked), len(nodes), barred), nil
}

// on lists the pods of a node, or those that wait for one if it has no name.
func (r *room) on(ctx context.Context, node string) ([]*corev1.Pod, error) {
	if _, read := r.there[node]; !read {
		all, err := r.source.onNode(ctx, node)
		if err != nil {
			return nil, err
		}
		r.there[node] = all
	}
	return r.correct(r.there[node], func(pod *corev1.Pod) bool { return pod.Spec.NodeName == node }), nil
}

// allows tells whether the pods around let the one of the topology come to the node.
func (r *room) allows(ctx context.Context, topology *Topology, node *corev1.Node, others []*corev1.Pod) (bool, error) {
	around, err := r.around(ctx, topology.Peers(), others)
	return err == nil && topology.Allows(node, around), err
}

// around lists the pods of a node and those that match, once each.
func (r *room) around(ctx context.Context, peers []Peers, onNode []*corev1.Pod) ([]*corev1.Pod, error) {
	all := map[types.UID]*corev1.Pod{}
	for _, pod := range onNode {
		all[pod.UID] = pod
	}
	for _, p := range peers {
		key := p.Namespace + "/" + p.String()
		if _, read := r.peers[key]; !read {
			matching, err := r.source.matching(ctx, p)
			if err != nil {
				return nil, err
			}
			r.peers[key] = matching
		}
		for _, pod := range r.correct(r.peers[key], p.Match) {
			all[pod.UID] = pod
		}
	}
	return slices.Collect(maps.Values(all)), nil
}

// correct has what is known of pods in place of what has been read.
func (r *room) correct(read []*corev1.Pod, wanted func(*corev1.Pod) bool) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range read {
		if _, known := r.known[pod.UID]; !known && wanted(pod) {
			pods = append(pods, pod)
		}
	}
	for _, pod := range r.known {
		if pod != nil && wanted(pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// fill places those that wait for a node on this one, as many as there is room for
// beside the others, and returns all that are there then.
func (r *room) fill(ctx context.Context, node *corev1.Node, others []*corev1.Pod) ([]*corev1.Pod, error) {
	waiting, err := r.on(ctx, "")
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
		if _, tooLarge := candidates(pod, nil, []*corev1.Node{node}); tooLarge != "" || !Beside(pod, node, others) {
			continue
		}
		may, err := r.mayCome(ctx, pod, node, others)
		if err != nil {
			return nil, err
		}
		if may {
			others = append(others, r.place(pod, node))
			r.filled = true
		}
	}
	return others, nil
}

// mayCome tells whether a pod that waits for a node, and for which this one has room,
// may come to it: otherwise what keeps it waiting would keep others from room that it
// never takes.
func (r *room) mayCome(ctx context.Context, pod *corev1.Pod, node *corev1.Node, others []*corev1.Pod) (bool, error) {
	w, err := r.waiter(ctx, pod)
	if err != nil || w == nil {
		return w == nil, err
	}
	if w.never || !Reaches(node, w.volumes) {
		return false, nil
	}
	return r.allows(ctx, w.topology, node, others)
}

// waiter returns what the pod demands, or nil where that is too much to ask for.
func (r *room) waiter(ctx context.Context, pod *corev1.Pod) (w *waiter, err error) {
	if w, read := r.waiting[pod.UID]; read || len(r.waiting) >= MaxLooks {
		return w, nil
	}
	w = &waiter{}
	if w.volumes, w.never, err = r.source.volumes(ctx, pod); err != nil {
		return nil, err
	}
	if w.topology, err = NewTopology(pod, r.byName); err != nil {
		w.never = true // the scheduler cannot read it either
	}
	r.waiting[pod.UID] = w
	return w, nil
}

// place has the pod be on the node from now on.
func (r *room) place(pod *corev1.Pod, node *corev1.Node) *corev1.Pod {
	placed := &corev1.Pod{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
	placed.Spec.NodeName = node.Name
	r.known[pod.UID] = placed
	return placed
}

func (r *room) crowded(looked, candidates int, barred bool) string {
	message := fmt.Sprintf("none of the %d nodes that are large enough has room beside its pods", candidates)
	if looked < candidates {
		message = fmt.Sprintf("none of %d nodes, of the %d that are large enough, has room beside its pods", looked, candidates)
	}
	if r.filled {
		message += " and those that wait for a node"
	}
	if barred {
		message += ", as its pod affinity and topology spread want it"
	}
	return message
}

func own(pod *corev1.Pod, node *corev1.Node) int {
	if pod.Spec.NodeName == node.Name {
		return 1
	}
	return 0
}

// candidates are the nodes that could hold the pod, or why there is none.
func candidates(pod *corev1.Pod, volumes []*corev1.PersistentVolume, nodes []*corev1.Node) (could []*corev1.Node, tooLarge string) {
	could, err := Candidates(pod, volumes, nodes)
	if err != nil {
		return nil, err.Error()
	}
	return could, ""
}
