package workload

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/fit"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// maxLooks bounds how many nodes are looked at for one pod, each of which costs a
// request; the next look is at others. It also bounds at how many of the pods that
// wait for a node there is a closer look.
const maxLooks = 100

// Crowded looks for room for the pods that are about to be given up, beside the
// other pods of the cluster and those that wait for a node, and in the quotas of the
// namespace, and returns true if it has found none for one of them: the next plan keeps
// it, and the plan after that looks again. Nobody watches all pods for that: it is asked
// only when a pod is about to go. A pod whose template differs in more than its size is
// not ours to keep.
//
// Pods are those of the workload as the API server has them right now, and toCome
// the templates of those that it lacks: they need room, too. Where others come first,
// before the pods go, they only have to get into the namespace.
func (c *Controller[W, X]) Crowded(ctx context.Context, s *Session[X], namespace, revision string, restarts []rollout.Restart, first bool,
	pods []*corev1.Pod, toCome []*corev1.PodTemplateSpec,
) (bool, error) {
	restarts = slices.DeleteFunc(slices.Clone(restarts), func(r rollout.Restart) bool {
		return r.Cause == rollout.CauseTemplate || r.Member.Pod == nil || r.Member.Pod.Spec.NodeName == ""
	})
	if len(restarts) == 0 {
		return false, nil
	}
	quotas, err := c.quotas(ctx, namespace)
	if err != nil {
		return false, err
	}
	r := newRoom(served{c.Client}, c.Nodes.List(), maxLooks)
	r.expect(pods, toCome)
	q := newShare(quotas, r)
	unknown, crowded := first, false
	for _, restart := range restarts {
		m := restart.Member
		pod, _ := replacement(m, s.limits)
		why := rollout.Refusal{Reason: q.replace(m.Pod, pod, first), Kind: rollout.ReasonQuotaExceeded}
		if why.Reason == "" && !unknown {
			why.Kind = rollout.ReasonNoNodeFits
			if why.Reason, err = r.find(ctx, pod); apierrors.IsForbidden(err) { // as where the controller has rights in one namespace only
				klog.FromContext(ctx).V(2).Info("Cannot tell whether nodes have room", "reason", err.Error())
				unknown = true
			} else if err != nil {
				return false, err
			}
		}
		if size := Size(revision, m.Target.Changes); why.Reason == "" {
			delete(s.Crowded, m.Pod.UID)
			q.settle()
		} else {
			s.Crowded.Keep(m.Pod.UID, size, why, c.Clock.Now())
			crowded = true
		}
	}
	return crowded, nil
}

// share is what a workload takes of the quotas of its namespace.
type share struct {
	now, then *capacity.Quotas // then: if the last one that was asked for is replaced
}

// newShare counts those that are about to go as gone, and those that are to come as there.
func newShare(quotas *capacity.Quotas, r *room) *share {
	for _, pod := range r.leaving {
		quotas.Free(pod)
	}
	for _, pod := range r.coming {
		quotas.Add(pod)
	}
	return &share{now: quotas}
}

// replace tells why the quotas have no room for a pod in the place of the old one;
// empty if they have.
func (s *share) replace(old, pod *corev1.Pod, first bool) (refusal string) {
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
func (s *share) settle() { s.now = s.then }

// room is what the nodes have, and will have when pods have been replaced.
type room struct {
	source source
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
	topology *fit.Topology
	volumes  []*corev1.PersistentVolume
	// never tells that there is no node that it could come to.
	never bool
}

func newRoom(from source, nodes []*corev1.Node, looks int) *room {
	return &room{
		source: from, nodes: nodes, byName: fit.ByName(nodes), looks: looks,
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
	nodes, tooLarge := candidates(ctx, pod, volumes, r.nodes)
	if tooLarge != "" {
		return tooLarge, nil
	}
	topology, err := fit.NewTopology(ctx, pod, r.byName)
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
		if !fit.Beside(pod, node, others) {
			continue
		}
		if others, err = r.fill(ctx, node, others); err != nil {
			return "", err
		}
		if !fit.Beside(pod, node, others) {
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
func (r *room) allows(ctx context.Context, topology *fit.Topology, node *corev1.Node, others []*corev1.Pod) (bool, error) {
	around, err := r.around(ctx, topology.Peers(), others)
	return err == nil && topology.Allows(node, around), err
}

// around lists the pods of a node and those that match, once each.
func (r *room) around(ctx context.Context, peers []fit.Peers, onNode []*corev1.Pod) ([]*corev1.Pod, error) {
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
		if _, tooLarge := candidates(ctx, pod, nil, []*corev1.Node{node}); tooLarge != "" || !fit.Beside(pod, node, others) {
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
	if w.never || !fit.Reaches(node, w.volumes) {
		return false, nil
	}
	return r.allows(ctx, w.topology, node, others)
}

// waiter returns what the pod demands, or nil where that is too much to ask for.
func (r *room) waiter(ctx context.Context, pod *corev1.Pod) (w *waiter, err error) {
	if w, read := r.waiting[pod.UID]; read || len(r.waiting) >= maxLooks {
		return w, nil
	}
	w = &waiter{}
	if w.volumes, w.never, err = r.source.volumes(ctx, pod); err != nil {
		return nil, err
	}
	if w.topology, err = fit.NewTopology(ctx, pod, r.byName); err != nil {
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

// replacement is the pod that comes for the member's, as far as it can be foreseen:
// like it, of the new size, and with what the LimitRanges fill in by now. The refusal
// is why the API server would not let it in; empty if it would.
func replacement(m rollout.Member, limits capacity.Limits) (pod *corev1.Pod, refusal string) {
	spec, refusal := limits.Admit(m.Target.Newborn(!limits.Unknown))
	return &corev1.Pod{
		ObjectMeta: m.Pod.ObjectMeta, Spec: *spec,
		Status: corev1.PodStatus{ExtendedResourceClaimStatus: m.Pod.Status.ExtendedResourceClaimStatus}, // the next one has its devices from there, too
	}, refusal
}

// Place puts into the members whose replacements have no place why that is so: the API
// server would refuse them; or no node is large enough; or those that are, or a quota,
// were found to be full.
//
// What admission gave the running pod, such as its RuntimeClass's tolerations, it gives
// the next one, too: so the pod is asked about, and not the template.
func (r Refusals) Place(ctx context.Context, members []rollout.Member, revision string, nodes []*corev1.Node, limits capacity.Limits, now time.Time) {
	type verdict struct {
		pod      *corev1.Pod
		tooLarge string
	}
	var verdicts []verdict // few: there may be many pods, and many nodes
	for i := range members {
		m := &members[i]
		if rollout.Gone(m.Pod) || m.Updated || m.Differs != "" {
			continue
		}
		if m.Target.Untold() {
			if why := tooOld(m.Pod, nodes); why != "" {
				m.Refusal = rollout.Refusal{Reason: why, Kind: rollout.ReasonUnsupportedByNode, Final: true, Until: now.Add(limitsAge)}
			}
		}
		if len(m.Target.Changes) > 0 {
			_, m.Barred = limits.Admit(m.Target.Spec())
		}
		pod, refusal := replacement(*m, limits)
		if refusal != "" {
			m.Unplaceable = rollout.Refusal{
				Reason: "a new pod of this size would be refused, too: " + refusal, Kind: rollout.ReasonInvalid, Until: now.Add(limitsAge),
			}
			continue
		}
		at := slices.IndexFunc(verdicts, func(v verdict) bool { return fit.Alike(v.pod, pod) })
		if at < 0 {
			_, tooLarge := candidates(ctx, pod, nil, nodes)
			at, verdicts = len(verdicts), append(verdicts, verdict{pod, tooLarge})
		}
		if tooLarge := verdicts[at].tooLarge; tooLarge != "" {
			m.Unplaceable = rollout.Refusal{Reason: tooLarge, Kind: rollout.ReasonNoNodeFits}
		} else if full := r.Of(pod.UID, Size(revision, m.Target.Changes)); now.Before(full.Until) {
			m.Unplaceable = full
		}
	}
}

// candidates are the nodes that could hold the pod, or why there is none.
func candidates(ctx context.Context, pod *corev1.Pod, volumes []*corev1.PersistentVolume, nodes []*corev1.Node) (could []*corev1.Node, tooLarge string) {
	could, err := fit.Candidates(ctx, pod, volumes, nodes)
	if err != nil {
		return nil, err.Error()
	}
	return could, ""
}
