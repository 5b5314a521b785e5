package capacity

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// successor is the pod that comes for the one of the place, as far as it can be foreseen: like it, of the new size, with what the
// LimitRanges fill in by now. The refusal is why the API server would not let it in; empty if it would.
//
// What admission gave the running pod, it gives the next one, too. But the scheduler chose the node, somebody has removed the scheduling
// gates or added a container to debug, and the labels of the revision are other ones, in what the API server has merged them into as well.
func successor(p judge.Place, revision rollout.Revision, limits Limits) (pod *corev1.Pod, refusal string) {
	spec, refusal := limits.admit(p.Target.Newborn(!limits.Unknown))
	pod = &corev1.Pod{
		ObjectMeta: p.Pod.ObjectMeta, Spec: *spec,
		Status: corev1.PodStatus{ExtendedResourceClaimStatus: p.Pod.Status.ExtendedResourceClaimStatus}, // the next one has its devices from there, too
	}
	pod.Spec.NodeName, pod.Spec.EphemeralContainers = "", nil
	if revision.Template != nil {
		pod.Spec.NodeName, pod.Spec.SchedulingGates = revision.Template.Spec.NodeName, revision.Template.Spec.SchedulingGates
	}
	relabel(pod, revision.Labels)
	return pod, refusal
}

// newborns are the pods that come to a workload of which there are these: what admission gave to one, it gives to the others.
func newborns(workload, namespace string, there []*corev1.Pod, toCome []rollout.Coming) []*corev1.Pod {
	pods := make([]*corev1.Pod, len(toCome))
	for i, c := range toCome {
		sibling := c.For
		if sibling == nil && len(there) > 0 {
			sibling = there[0]
		}
		pods[i] = newborn(c, sibling)
		pods[i].Namespace = namespace
		pods[i].UID = types.UID(fmt.Sprintf("to come %d of %s", i, workload))
	}
	return pods
}

func newborn(c rollout.Coming, sibling *corev1.Pod) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: *c.Template.ObjectMeta.DeepCopy(), Spec: *resize.Defaulted(c.Template)}
	if sibling != nil {
		pod.Spec.Priority, pod.Spec.PreemptionPolicy, pod.Spec.Overhead = sibling.Spec.Priority, sibling.Spec.PreemptionPolicy, sibling.Spec.Overhead
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, sibling.Spec.Tolerations...)
	}
	if c.For != nil {
		pod.Spec.Volumes = c.For.Spec.Volumes // with the claims that a StatefulSet has for it
		if pinnedTo(c.For) != "" {            // to its node, by the DaemonSet controller
			pod.Spec.Affinity = c.For.Spec.Affinity
		}
	}
	relabel(pod, c.Labels)
	return pod
}

// relabel gives the pod other labels, also where the API server has merged, or will merge, their values into its affinity and topology
// spread constraints (mutatePodAffinity and mutateTopologySpreadConstraints in pkg/registry/core/pod of Kubernetes). The pod's spec
// is not changed in place.
func relabel(pod *corev1.Pod, with map[string]string) {
	pod.Labels = maps.Clone(pod.Labels)
	for key, value := range with {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, key, value)
	}
	merge := func(selector *metav1.LabelSelector, keys []string, operator metav1.LabelSelectorOperator) *metav1.LabelSelector {
		if selector == nil || len(keys) == 0 {
			return selector
		}
		merged := selector.DeepCopy()
		for _, key := range keys {
			if value, has := pod.Labels[key]; has {
				merged.MatchExpressions = slices.DeleteFunc(merged.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
					return r.Key == key && r.Operator == operator && len(r.Values) == 1
				})
				merged.MatchExpressions = append(merged.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
			}
		}
		return merged
	}
	terms := func(all []corev1.PodAffinityTerm) {
		for i, t := range all {
			all[i].LabelSelector = merge(merge(t.LabelSelector, t.MatchLabelKeys, metav1.LabelSelectorOpIn), t.MismatchLabelKeys, metav1.LabelSelectorOpNotIn)
		}
	}
	pod.Spec.Affinity = pod.Spec.Affinity.DeepCopy()
	if a := pod.Spec.Affinity; a != nil && a.PodAffinity != nil {
		terms(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
	terms(apart(pod))
	pod.Spec.TopologySpreadConstraints = slices.Clone(pod.Spec.TopologySpreadConstraints)
	for i, c := range pod.Spec.TopologySpreadConstraints {
		pod.Spec.TopologySpreadConstraints[i].LabelSelector = merge(c.LabelSelector, c.MatchLabelKeys, metav1.LabelSelectorOpIn)
	}
}
