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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/fit"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// maxLooks bounds how many nodes are looked at for one pod, each of which costs a
// request; the next look is at others.
const maxLooks = 100

// Crowded looks for room for the pods that are about to be given up, beside the
// other pods of the cluster and those that wait for a node, and returns true if it
// has found none for one of them: the next plan keeps it, and the plan after that
// looks again. Nobody watches all pods for that: it is asked only when a pod is about
// to go. A pod whose template differs in more than its size is not ours to keep.
//
// Pods are those of the workload as the API server has them right now, and toCome
// the templates of those that it lacks: they need room, too.
func (c *Controller[W, X]) Crowded(ctx context.Context, s *Session[X], revision string, restarts []rollout.Restart,
	pods []*corev1.Pod, toCome []*corev1.PodTemplateSpec,
) (bool, error) {
	r := newRoom(c.Nodes.List(), maxLooks, func(node string) ([]*corev1.Pod, error) {
		return listPods(ctx, c.Client, metav1.NamespaceAll, metav1.ListOptions{
			FieldSelector:   fields.OneTermEqualSelector("spec.nodeName", node).String(),
			ResourceVersion: "0", // from the API server's cache, which has them by node
		})
	})
	r.expect(pods, toCome)
	crowded := false
	for _, restart := range restarts {
		m := restart.Member
		if restart.Cause == rollout.CauseTemplate || m.Pod == nil || m.Pod.Spec.NodeName == "" {
			continue
		}
		why, err := r.find(ctx, replacement(m))
		if apierrors.IsForbidden(err) { // as where the controller has rights in one namespace only
			klog.FromContext(ctx).V(2).Info("Cannot tell whether nodes have room", "reason", err.Error())
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if size := Size(revision, m.Target.Changes); why == "" {
			delete(s.Crowded, m.Pod.UID)
		} else {
			s.Crowded.Keep(m.Pod.UID, size, why, false, c.Clock.Now())
			crowded = true
		}
	}
	return crowded, nil
}

// room is what the nodes have, and will have when pods have been replaced.
type room struct {
	nodes []*corev1.Node
	looks int // at nodes, at the most, for one pod
	// list reads the pods of a node, or those that wait for one if it has no name.
	list func(node string) ([]*corev1.Pod, error)
	// there is what has been read, by the node's name.
	there map[string][]*corev1.Pod
	// known are the pods of which more is known than what has been read: their node is
	// where they will be. They are nil if they will be gone.
	known map[types.UID]*corev1.Pod
	// filled tells that a pod that waits for a node has been counted as there.
	filled bool
}

func newRoom(nodes []*corev1.Node, looks int, list func(node string) ([]*corev1.Pod, error)) *room {
	return &room{nodes: nodes, looks: looks, list: list, there: map[string][]*corev1.Pod{}, known: map[types.UID]*corev1.Pod{}}
}

// expect counts the pods of a workload as they will be: those that are terminating
// are gone, and those that are to come wait for a node.
func (r *room) expect(pods []*corev1.Pod, toCome []*corev1.PodTemplateSpec) {
	for _, pod := range pods {
		if r.known[pod.UID] = pod; pod.DeletionTimestamp != nil {
			r.known[pod.UID] = nil
		}
	}
	for i, template := range toCome {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint("to come ", i))}, Spec: *resize.Defaulted(template)}
		if len(pods) > 0 { // admission gives all of them the same
			pod.Spec.Priority, pod.Spec.PreemptionPolicy = pods[0].Spec.Priority, pods[0].Spec.PreemptionPolicy
		}
		r.known[pod.UID] = pod
	}
}

// find tells why no node has room for a pod that takes the place of the one with its
// UID; empty if one has, where it is from then on. Those that wait for a node may be
// faster than it, so they come first where they can.
//
// On a node of 4 cpus with pods of 2, 1 and 1, one of 1 can become one of 2 only if
// no pod of 1 waits for a node; and if it does, the other one of 1 cannot any more.
func (r *room) find(ctx context.Context, pod *corev1.Pod) (why string, err error) {
	nodes, tooLarge := candidates(ctx, pod, r.nodes)
	if tooLarge != "" {
		return tooLarge, nil
	}
	rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	slices.SortStableFunc(nodes, func(a, b *corev1.Node) int { return own(pod, b) - own(pod, a) })
	looked := nodes[:min(len(nodes), r.looks)]
	before := maps.Clone(r.known)
	r.known[pod.UID] = nil
	for _, node := range looked {
		others, err := r.on(node.Name)
		if err != nil {
			return "", err
		}
		if !fit.Beside(pod, node, others) {
			continue
		}
		if others, err = r.fill(ctx, node, others); err != nil {
			return "", err
		}
		if fit.Beside(pod, node, others) {
			r.place(pod, node)
			return "", nil
		}
	}
	r.known = before
	return r.crowded(len(looked), len(nodes)), nil
}

// on lists the pods of a node, or those that wait for one if it has no name.
func (r *room) on(node string) ([]*corev1.Pod, error) {
	if _, read := r.there[node]; !read {
		all, err := r.list(node)
		if err != nil {
			return nil, fmt.Errorf("looking at node %q: %w", node, err)
		}
		r.there[node] = all
	}
	var pods []*corev1.Pod
	for _, pod := range r.there[node] {
		if _, known := r.known[pod.UID]; !known && pod.Spec.NodeName == node {
			pods = append(pods, pod)
		}
	}
	for _, pod := range r.known {
		if pod != nil && pod.Spec.NodeName == node {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// fill places those that wait for a node on this one, as many as there is room for
// beside the others, and returns all that are there then.
func (r *room) fill(ctx context.Context, node *corev1.Node, others []*corev1.Pod) ([]*corev1.Pod, error) {
	waiting, err := r.on("")
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
		if _, tooLarge := candidates(ctx, pod, []*corev1.Node{node}); tooLarge == "" && fit.Beside(pod, node, others) {
			others = append(others, r.place(pod, node))
			r.filled = true
		}
	}
	return others, nil
}

// place has the pod be on the node from now on.
func (r *room) place(pod *corev1.Pod, node *corev1.Node) *corev1.Pod {
	placed := &corev1.Pod{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
	placed.Spec.NodeName = node.Name
	r.known[pod.UID] = placed
	return placed
}

func (r *room) crowded(looked, candidates int) string {
	nodes := fmt.Sprintf("none of the %d nodes that are large enough", candidates)
	if looked < candidates {
		nodes = fmt.Sprintf("none of %d nodes, of the %d that are large enough,", looked, candidates)
	}
	if r.filled {
		return nodes + " has room beside its pods and those that wait for a node"
	}
	return nodes + " has room beside its pods"
}

func own(pod *corev1.Pod, node *corev1.Node) int {
	if pod.Spec.NodeName == node.Name {
		return 1
	}
	return 0
}

// replacement is the pod that comes for the member's, as far as it can be foreseen:
// like it, of the new size.
func replacement(m rollout.Member) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: m.Pod.ObjectMeta, Spec: *m.Target.Spec()}
}

// Unplaceable tells why the pod that would come for the member's would find no
// room: no node is large enough, or those that are were found to be full.
func (r Refusals) Unplaceable(m rollout.Member, revision, tooLarge string, now time.Time) rollout.Refusal {
	if tooLarge != "" {
		return rollout.Refusal{Reason: tooLarge}
	}
	if m.Pod == nil {
		return rollout.Refusal{}
	}
	full := r.Of(m.Pod.UID, Size(revision, m.Target.Changes))
	if !now.Before(full.Until) {
		return rollout.Refusal{}
	}
	return full
}

// TooLarge tells why no node could hold a pod of the template; empty if one could.
func TooLarge(ctx context.Context, template *corev1.PodTemplateSpec, nodes []*corev1.Node) string {
	_, tooLarge := candidates(ctx, &corev1.Pod{Spec: *resize.Defaulted(template)}, nodes)
	return tooLarge
}

// candidates are the nodes that could hold the pod, or why there is none.
func candidates(ctx context.Context, pod *corev1.Pod, nodes []*corev1.Node) (could []*corev1.Node, tooLarge string) {
	could, err := fit.Candidates(ctx, pod, nodes)
	if err != nil {
		return nil, err.Error()
	}
	return could, ""
}
