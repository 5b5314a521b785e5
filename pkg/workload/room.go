package workload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/fit"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// maxLooks bounds how many nodes are looked at for one pod, each of which costs a
// request; the next look is at others.
const maxLooks = 100

// Crowded looks for room for the pods that are about to be given up, beside the
// other pods of the cluster, and returns true if it has found none for one of them:
// the next plan keeps it, and the plan after that looks again. Nobody watches all
// pods for that: it is asked only when a pod is about to go. A pod whose template
// differs in more than its size is not ours to keep.
func (c *Controller[W, X]) Crowded(ctx context.Context, s *Session[X], revision string, restarts []rollout.Restart) (bool, error) {
	crowded, there := false, onNodes{}
	for _, r := range restarts {
		m := r.Member
		if r.Cause == rollout.CauseTemplate || m.Pod == nil || m.Pod.Spec.NodeName == "" {
			continue
		}
		why, err := c.noRoom(ctx, replacement(m), there)
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

// onNodes are the pods of the nodes that have been looked at, by the node's name.
type onNodes map[string][]*corev1.Pod

// place counts a pod where its replacement will be: two that are given up together
// may not be promised the same room.
func (there onNodes) place(pod *corev1.Pod, node string) {
	for name, all := range there {
		there[name] = slices.DeleteFunc(all, func(other *corev1.Pod) bool { return other.UID == pod.UID })
	}
	there[node] = append(there[node], pod)
}

// noRoom tells why no node has room for the pod; empty if one has, where it is placed then.
func (c *Controller[W, X]) noRoom(ctx context.Context, pod *corev1.Pod, there onNodes) (why string, err error) {
	nodes, tooLarge := candidates(ctx, pod, c.Nodes.List())
	if tooLarge != "" {
		return tooLarge, nil
	}
	rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	slices.SortStableFunc(nodes, func(a, b *corev1.Node) int { return own(pod, b) - own(pod, a) })
	looked := nodes[:min(len(nodes), maxLooks)]
	for _, node := range looked {
		if _, known := there[node.Name]; !known {
			there[node.Name], err = listPods(ctx, c.Client, metav1.NamespaceAll, metav1.ListOptions{
				FieldSelector:   fields.OneTermEqualSelector("spec.nodeName", node.Name).String(),
				ResourceVersion: "0", // from the API server's cache, which has them by node
			})
			if err != nil {
				return "", fmt.Errorf("looking at node %s: %w", node.Name, err)
			}
		}
		if fit.Beside(pod, node, there[node.Name]) {
			there.place(pod, node.Name)
			return "", nil
		}
	}
	return crowdedMessage(len(looked), len(nodes)), nil
}

func crowdedMessage(looked, candidates int) string {
	if looked < candidates {
		return fmt.Sprintf("none of %d nodes, of the %d that are large enough, has room beside its pods", looked, candidates)
	}
	return fmt.Sprintf("none of the %d nodes that are large enough has room beside its pods", candidates)
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
