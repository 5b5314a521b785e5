package capacity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/features"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Room is what the nodes, and the quotas of one namespace, have left for pods that take the places of others, one after the
// other: each that has found room has taken it. Pods that wait for a node, and those that other workloads have been promised, come
// first where they can.
type Room struct {
	*Cluster
	// workload for which it is, and its namespace.
	workload, namespace string
	// keepIfUnknown is set if a pod is kept whose successor may have no room as far as can be known.
	keepIfUnknown bool
	// unknown is why not all is known that decides what room there is, as far as has been asked; empty if it is.
	unknown string

	byName map[string]*corev1.Node
	quotas *Quotas
	own    []*corev1.Pod
	// moved are the pods that will not be where they have been read: each has the node on which it will be, or is nil if it will be
	// gone.
	moved map[types.UID]*corev1.Pod
	// promised are those of other workloads that are to come.
	promised sets.Set[types.UID]
	// waiting is what those without a node demand that had to be looked at closely.
	waiting map[types.UID]*demand
	// overtakers is how many of them have been put on a node.
	overtakers int
}

// Room is what there is now for the successors of a workload's pods. There are these pods of it, and those to come need room, too.
// A pod whose successor may have room, or none, as far as can be known, is given up unless keepIfUnknown is set.
func (c *Cluster) Room(ctx context.Context, workload, namespace string, there []*corev1.Pod, toCome []rollout.Coming, keepIfUnknown bool) (*Room, error) {
	r := &Room{
		Cluster: c, workload: workload, namespace: namespace, keepIfUnknown: keepIfUnknown, own: there,
		moved: map[types.UID]*corev1.Pod{}, waiting: map[types.UID]*demand{},
	}
	nodes, unknown, err := c.knownNodes(ctx)
	if err != nil {
		return nil, err
	}
	r.byName, r.unknown = byName(nodes), unknown
	if r.quotas, err = c.Quotas(ctx, namespace); err != nil {
		return nil, err
	}
	for _, pod := range there {
		r.moved[pod.UID] = pod
	}
	leaving, coming := c.ledger.beside(workload, c.now)
	r.promised = sets.New[types.UID]()
	for _, pod := range coming {
		r.promised.Insert(pod.UID)
	}
	for _, pod := range there {
		if pod.DeletionTimestamp != nil {
			leaving = append(leaving, pod)
		}
	}
	coming = append(coming, newborns(workload, namespace, there, toCome)...)
	for i, pod := range coming { // the LimitRanges may fill in more of it
		limits, err := c.LimitsOf(ctx, pod.Namespace)
		if err != nil {
			return nil, err
		}
		spec, _ := limits.admit(&pod.Spec)
		coming[i] = &corev1.Pod{ObjectMeta: pod.ObjectMeta, Spec: *spec, Status: pod.Status}
	}
	r.expect(leaving, coming)
	return r, nil
}

// Quotas are what the ResourceQuotas of a namespace have left now.
func (c *Cluster) Quotas(ctx context.Context, namespace string) (*Quotas, error) {
	list, err := c.quotasOf(ctx, namespace)
	if err != nil {
		return nil, err
	}
	var all []*corev1.Pod
	if len(list) > 0 {
		if all, err = c.Pods(ctx, namespace); err != nil {
			return nil, err
		}
	}
	return newQuotas(list, all, c.now), nil
}

// expect counts pods as they will be: gone, or waiting for a node.
func (r *Room) expect(leaving, coming []*corev1.Pod) {
	for _, pod := range leaving {
		if r.moved[pod.UID] = nil; pod.Namespace == r.namespace {
			r.quotas.remove(pod)
		}
	}
	for _, pod := range coming {
		if r.moved[pod.UID] = pod; pod.Namespace == r.namespace {
			r.quotas.add(pod)
		}
	}
}

// Replace looks for room for the pod that comes for the member's, and returns why there is none; without a reason, there was, and it is
// taken, and promised. Where newFirst is set, the other pod comes before the member's goes. It may wait for room then that pods of other
// workloads have, but not for what the workload's own pods have, which stay until it is there.
func (r *Room) Replace(ctx context.Context, m judge.Member, revision rollout.Revision, newFirst bool) (judge.Refusal, error) {
	err := r.replace(ctx, m, revision, newFirst)
	r.note(err)
	return refusal(err)
}

func (r *Room) replace(ctx context.Context, m judge.Member, revision rollout.Revision, newFirst bool) error {
	limits, err := r.LimitsOf(ctx, r.namespace)
	if err != nil {
		return err
	}
	pod, refused := successor(m.Place, revision, limits)
	if refused != "" {
		return invalid("a new pod of this size would be refused, too: %s", refused)
	}
	if r.extent == All {
		err = r.orGoOn(r.admits(ctx, pod))
	}
	if err != nil || r.extent < Sizes {
		return err
	}
	left, err := r.quotas.replace(m.Pod, pod, newFirst)
	if err != nil {
		return err
	}
	if newFirst {
		pod.UID += " to come"
	}
	if err := r.orGoOn(r.find(ctx, pod, m.Pod.Spec.NodeName, newFirst)); err != nil {
		return err
	}
	r.quotas = left
	if !newFirst { // else it waits for its turn, if it has to
		promised := pod.DeepCopy()
		promised.UID += " to come"
		r.ledger.promise(r.workload, m.Pod, promised, r.now)
	}
	return nil
}

// orGoOn drops the answer that it cannot be known, unless the pod is kept then.
func (r *Room) orGoOn(answer error) error {
	if r.keepIfUnknown || !isUnknown(answer) {
		return answer
	}
	r.note(answer)
	return nil
}

// note keeps why the room is unknown, if that is the answer.
func (r *Room) note(answer error) {
	if isUnknown(answer) {
		r.unknown = cmp.Or(r.unknown, answer.Error())
	}
}

// demand is what a pod demands of a node and of the pods around.
type demand struct {
	pod      *corev1.Pod
	volumes  volumes
	topology *topology
	// own: beside the workload's own pods only.
	own bool
	// never: no node can meet it.
	never bool
}

// errExcluded is the answer that other pods keep it away from a node with room.
var errExcluded = noNode("pod affinity, topology spread constraints or a ReadWriteOncePod claim exclude the node")

// find puts the pod on a node that has room for it, in place of the one with the same UID; the one at home first.
//
// On a node of 4 cpus with three pods of 1, one can become one of 2, and then no other one can. If a pod of 2 waits for a node, none
// can: it would come as soon as one goes.
func (r *Room) find(ctx context.Context, pod *corev1.Pod, home string, newFirst bool) error {
	d, err := r.demandOf(ctx, pod)
	if err == nil { // whoever places the pod, a claim that goes takes its data with it
		err = modelled(pod)
	}
	if err != nil {
		return err
	}
	d.own = newFirst && TargetNode(pod) == ""
	all, err := r.allNodes(ctx)
	if err != nil {
		return err
	}
	able, needs := r.declaring(pod, all)
	nodes, tooLarge := candidates(pod, d.volumes.bound, able)
	if tooLarge != "" {
		return noNode("%s%s", tooLarge, needs)
	}
	rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	if at := slices.IndexFunc(nodes, func(n *corev1.Node) bool { return n.Name == home }); at > 0 {
		nodes[0], nodes[at] = nodes[at], nodes[0]
	}
	looked, before := nodes[:min(len(nodes), r.looks)], maps.Clone(r.moved)
	r.moved[pod.UID] = nil
	on, excluded, err := r.search(ctx, looked, d)
	if node := TargetNode(pod); node != "" { // it is of a DaemonSet, and the next one of another node
		r.forget(node)
	}
	if on != nil {
		r.put(pod, on)
		return nil
	}
	if r.moved = before; err != nil {
		return err
	}
	return noNode("%s", r.crowded(len(looked), len(nodes), excluded))
}

// declaring returns those of the nodes that declare the features without which the scheduler places the pod on none from Kubernetes 1.36
// on, and which those are (NodeDeclaredFeatures in pkg/scheduler/framework/plugins of Kubernetes).
//
// A feature that no node declares is not asked for: the scheduler is too old to know it. If it did, it could not have placed the pod that
// runs, and needs the same. Where the template names the node, no scheduler looks at it, and its kubelet has let that pod in.
func (r *Room) declaring(pod *corev1.Pod, nodes []*corev1.Node) (able []*corev1.Node, needs string) {
	if pod.Spec.NodeName != "" {
		return nodes, ""
	}
	for _, feature := range features.AllFeatures {
		lacks := func(n *corev1.Node) bool { return !slices.Contains(n.Status.DeclaredFeatures, feature.Name()) }
		if !feature.InferForScheduling(&nodedeclaredfeatures.PodInfo{Spec: &pod.Spec}) {
			continue
		}
		for _, node := range r.byName {
			if !lacks(node) {
				nodes = slices.DeleteFunc(slices.Clone(nodes), lacks)
				needs += ", of those that declare " + feature.Name()
				break
			}
		}
	}
	return nodes, needs
}

// demandOf reads what the pod demands.
func (r *Room) demandOf(ctx context.Context, pod *corev1.Pod) (d demand, err error) {
	d.pod = pod
	if r.extent == All {
		d.volumes, err = r.volumesOf(ctx, pod)
	}
	if err == nil {
		d.topology, err = r.topologyOf(ctx, pod)
	}
	return d, err
}

// search returns a node that has room, if there is one, and otherwise whether some have that are excluded. The error is that it cannot be
// known, or could not be read.
func (r *Room) search(ctx context.Context, nodes []*corev1.Node, d demand) (on *corev1.Node, excluded bool, err error) {
	if !d.own {
		err = r.settle(ctx, nodes)
	}
	if err != nil {
		return nil, false, err
	}
	for came := -1; came < r.overtakers; { // one that has come to a node may have made another one possible
		came = r.overtakers
		for _, node := range nodes {
			switch answer := r.takes(ctx, node, d); {
			case answer == nil:
				return node, false, nil
			case isUnknown(answer):
				err = answer
			case isNo(answer):
				excluded = excluded || errors.Is(answer, errExcluded)
			default:
				return nil, false, answer
			}
		}
	}
	return nil, excluded, err
}

// modelled reports whether what the pod demands of the scheduler is known here.
func modelled(pod *corev1.Pod) error {
	switch {
	case len(pod.Spec.SchedulingGates) > 0:
		return unknown("its template has scheduling gates: whoever removes them decides that")
	case pod.Spec.NodeName != "": // no scheduler is asked
		return nil
	case cmp.Or(pod.Spec.SchedulerName, corev1.DefaultSchedulerName) != corev1.DefaultSchedulerName:
		return unknown("the scheduler %s decides that", pod.Spec.SchedulerName)
	case len(pod.Spec.ResourceClaims) > 0:
		return unknown("it has resource claims (dynamic resource allocation)")
	}
	return nil
}

// takes reports whether the node has room for the pod: in guards, of which each is asked if the one before it has said yes.
func (r *Room) takes(ctx context.Context, node *corev1.Node, d demand) error {
	if d.own { // a pod that comes first may wait for what others have, and for another node, but not for its own workload
		return r.besideOwn(ctx, node, d)
	}
	others, err := r.on(ctx, node.Name)
	if err != nil {
		return err
	}
	if err := r.fits(d.pod, node, others); err != nil {
		return err
	}
	if others, err = r.putWaiting(ctx, node, others); err != nil {
		return err
	}
	err = r.lets(ctx, node, d, others)
	if left := r.without(d.pod, others); isNo(err) && len(left) < len(others) {
		err = r.lets(ctx, node, d, left)
	}
	return err
}

// without leaves out those that the scheduler removes for the pod if it cannot come otherwise; none where no scheduler is asked. What is
// promised to others stays theirs.
func (r *Room) without(pod *corev1.Pod, others []*corev1.Pod) []*corev1.Pod {
	if pod.Spec.NodeName != "" {
		return others
	}
	return slices.DeleteFunc(slices.Clone(others), func(other *corev1.Pod) bool {
		return other.UID != pod.UID && preempts(pod, other) && !r.promised.Has(other.UID)
	})
}

// fits reports whether the node has room for the pod beside the others, at least if the scheduler removes those that it may.
func (r *Room) fits(pod *corev1.Pod, node *corev1.Node, others []*corev1.Pod) error {
	err := beside(pod, node, others)
	if isNo(err) {
		err = beside(pod, node, r.without(pod, others))
	}
	return err
}

// lets reports whether the pod may come to the node where these others are.
func (r *Room) lets(ctx context.Context, node *corev1.Node, d demand, others []*corev1.Pod) error {
	if err := beside(d.pod, node, others); err != nil {
		return err
	}
	if err := r.reach(ctx, node, d.volumes, others); err != nil {
		return err
	}
	if d.pod.Spec.NodeName != "" { // no scheduler looks at what is around
		return nil
	}
	if err := r.exclusive(ctx, node, d, others); err != nil {
		return err
	}
	around, err := r.around(ctx, node, d.topology, others)
	if err != nil {
		return err
	}
	allowed, err := d.topology.allows(node, around)
	if err == nil && !allowed {
		return errExcluded
	}
	return err
}

// besideOwn reports whether nothing that the workload's own pods have keeps the pod from the node.
func (r *Room) besideOwn(ctx context.Context, node *corev1.Node, d demand) error {
	var own, there []*corev1.Pod
	for _, pod := range r.own {
		if pod.DeletionTimestamp == nil {
			own = append(own, pod)
		}
		if pod.DeletionTimestamp == nil && pod.Spec.NodeName == node.Name {
			there = append(there, pod)
		}
	}
	if err := beside(d.pod, node, there); err != nil {
		return err
	}
	if err := r.exclusive(ctx, node, d, there); err != nil {
		return err
	}
	without := *d.topology
	without.near = nil // what it has to be near to may be others' pods
	allowed, err := without.allows(node, own)
	if err == nil && !allowed {
		return errExcluded
	}
	return err
}

// exclusive reports whether no other pod has a claim that one pod alone may use at a time (ReadWriteOncePod).
func (r *Room) exclusive(ctx context.Context, node *corev1.Node, d demand, others []*corev1.Pod) error {
	if len(d.volumes.alone) == 0 {
		return nil
	}
	all, err := r.Pods(ctx, r.namespace)
	if err != nil {
		return err
	}
	elsewhere := r.correct(all, func(other *corev1.Pod) bool { return other.Spec.NodeName != "" && other.Spec.NodeName != node.Name })
	for _, other := range append(elsewhere, others...) {
		for _, name := range d.volumes.alone {
			if other.UID != d.pod.UID && other.Namespace == d.pod.Namespace && !Over(other) && slices.Contains(claimNames(other), name) {
				return errExcluded
			}
		}
	}
	return nil
}

// read reads pods, or where not all of the cluster is looked at, those of the namespace: a node may have less room than it seems to have
// then, but not more.
func (r *Room) read(ctx context.Context, all func() ([]*corev1.Pod, error)) ([]*corev1.Pod, error) {
	if r.extent < All {
		return r.Pods(ctx, r.namespace)
	}
	return all()
}

// on returns the pods of a node, or those that wait for one if the name is empty.
func (r *Room) on(ctx context.Context, node string) ([]*corev1.Pod, error) {
	read, err := r.read(ctx, func() ([]*corev1.Pod, error) { return r.podsOn(ctx, node) })
	return r.correct(read, func(pod *corev1.Pod) bool { return pod.Spec.NodeName == node }), err
}

// around returns the pods of a node, which are these, and elsewhere those that the topology is about, and those that keep others away,
// once each.
func (r *Room) around(ctx context.Context, node *corev1.Node, t *topology, onNode []*corev1.Pod) ([]*corev1.Pod, error) {
	all := map[types.UID]*corev1.Pod{}
	for _, pod := range onNode {
		all[pod.UID] = pod
	}
	for _, peers := range t.peers() {
		matching, err := r.read(ctx, func() ([]*corev1.Pod, error) { return r.podsOf(ctx, peers) })
		if err != nil {
			return nil, err
		}
		for _, pod := range r.correct(matching, func(pod *corev1.Pod) bool { return pod.Spec.NodeName != node.Name && peers.match(pod) }) {
			all[pod.UID] = pod
		}
	}
	repelling, err := r.read(ctx, func() ([]*corev1.Pod, error) { return r.ledger.repel(ctx, r.client, r.now) })
	if err != nil {
		return nil, err
	}
	for _, pod := range r.correct(repelling, func(pod *corev1.Pod) bool { return pod.Spec.NodeName != node.Name && len(apart(pod)) > 0 }) {
		if all[pod.UID] == nil {
			all[pod.UID] = pod
		}
	}
	return slices.Collect(maps.Values(all)), nil
}

// correct returns those of the pods that were read, and of those that have moved, that are
// wanted where they will be.
func (r *Room) correct(read []*corev1.Pod, wanted func(*corev1.Pod) bool) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range read {
		if _, moved := r.moved[pod.UID]; !moved && wanted(pod) {
			pods = append(pods, pod)
		}
	}
	for _, pod := range r.moved {
		if pod != nil && wanted(pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// put has the pod be on the node from now on.
func (r *Room) put(pod *corev1.Pod, node *corev1.Node) *corev1.Pod {
	placed := &corev1.Pod{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
	placed.Spec.NodeName = node.Name
	r.moved[pod.UID] = placed
	return placed
}

// crowded says that no node has room, of so many that were looked at.
func (r *Room) crowded(looked, candidates int, excluded bool) string {
	message := fmt.Sprintf("none of the %d nodes that are large enough has room", candidates)
	switch {
	case candidates == 1:
		message = "the only node that is large enough has no room"
	case looked < candidates:
		message = fmt.Sprintf("none of the %d nodes that were checked, of %d that are large enough, has room", looked, candidates)
	}
	message += " beside its pods"
	if r.overtakers > 0 {
		message += " and those that are to come"
	}
	if excluded {
		message += " (pod affinity, topology spread constraints or a ReadWriteOncePod claim exclude nodes with room)"
	}
	return message
}
