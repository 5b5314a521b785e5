package capacity

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/kubectl/pkg/util/qos"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// Quotas count what the ResourceQuotas of a namespace have left while pods go and come.
type Quotas struct {
	list []corev1.ResourceQuota
	now  time.Time
	// counted are the pods that count.
	counted sets.Set[types.UID]
}

// newQuotas begins with all pods of the namespace. What a quota says itself is counted
// anew whenever a pod has gone, and may be behind until then: a resize that was accepted
// and is infeasible counts there with the larger size, and here as it is.
func newQuotas(list []corev1.ResourceQuota, pods []*corev1.Pod, now time.Time) *Quotas {
	q := (&Quotas{list, now, sets.New[types.UID]()}).clone()
	for i := range q.list {
		used := q.list[i].Status.Used
		for name := range used {
			used[name] = *resource.NewQuantity(0, resource.DecimalSI)
		}
	}
	for _, pod := range pods {
		q.add(pod)
	}
	return q
}

// clone counts on from here, apart from q.
func (q *Quotas) clone() *Quotas {
	clone := &Quotas{slices.Clone(q.list), q.now, q.counted.Clone()}
	for i := range clone.list {
		clone.list[i].Status.Used = maps.Clone(clone.list[i].Status.Used)
	}
	return clone
}

// remove counts a pod as gone, unless it was gone before: who knows it may be behind.
func (q *Quotas) remove(pod *corev1.Pod) {
	if q.counted.Has(pod.UID) {
		q.counted.Delete(pod.UID)
		q.count(pod, (*resource.Quantity).Sub)
	}
}

// add counts a pod as there, whether there is room for it or not.
func (q *Quotas) add(pod *corev1.Pod) {
	q.counted.Insert(pod.UID)
	q.count(pod, (*resource.Quantity).Add)
}

func (q *Quotas) count(pod *corev1.Pod, how func(*resource.Quantity, resource.Quantity)) {
	takes := q.usage(pod)
	for i := range q.list {
		if !matches(&q.list[i], pod) {
			continue
		}
		for name, used := range q.list[i].Status.Used {
			if quantity, counts := takes[name]; counts {
				used = used.DeepCopy()
				how(&used, quantity)
				q.list[i].Status.Used[name] = used
			}
		}
	}
}

// refuseResize returns why the API server would refuse a resize of the pod to this spec; empty if it would not. Then it counts.
func (q *Quotas) refuseResize(pod *corev1.Pod, to *corev1.PodSpec) string {
	if len(q.list) == 0 {
		return ""
	}
	resized := pod.DeepCopy()
	resized.Spec = *to
	if why := q.refusal(resized, pod, q.usage(pod)); why != "" {
		return why
	}
	q.remove(pod)
	q.add(resized)
	return ""
}

// refusal returns why the API server would not let a pod in, in the place of another one unless that is nil; empty if it would
// (CheckRequest in pkg/admission/plugin/resourcequota of k8s.io/apiserver). What it has already, as one that is resized has, is let in even
// where the quota is exceeded: each resource is compared only if there is more of it. What a quota demands, every pod must specify.
//
// Of a quota for 1 cpu, of which three pods use 900m, 100m are left; in the place of one of them, 400m are. What is used
// is said as the quota's status has it.
func (q *Quotas) refusal(pod, old *corev1.Pod, has corev1.ResourceList) string {
	wanted, left := q.usage(pod), q
	if old != nil {
		left = q.clone()
		left.remove(old)
	}
	for i := range q.list {
		quota := &q.list[i]
		if !matches(quota, pod) {
			continue
		}
		if lacking := unsaid(quota, pod); lacking != "" {
			return fmt.Sprintf("quota %s: must specify %s", quota.Name, lacking)
		}
		var exceeded []string
		for _, name := range sorted(quota.Status.Hard) {
			want := wanted[name]
			if want.Cmp(has[name]) <= 0 {
				continue
			}
			hard := quota.Status.Hard[name]
			used, known := quota.Status.Used[name]
			if !known {
				return fmt.Sprintf("the status of quota %s has no usage of %s yet", quota.Name, name)
			}
			others := left.list[i].Status.Used[name]
			if sum := plus(others, want); sum.Cmp(hard) <= 0 {
				continue
			}
			wants := want.String()
			if others.Cmp(used) != 0 {
				freed := used.DeepCopy()
				freed.Sub(others)
				wants += " in place of " + freed.String()
			}
			exceeded = append(exceeded, fmt.Sprintf("%s %s (used: %s of %s)", name, wants, &used, &hard))
		}
		if len(exceeded) > 0 {
			return fmt.Sprintf("quota %s has no room for %s", quota.Name, strings.Join(exceeded, ", "))
		}
	}
	return ""
}

// replace returns what is left when the pod has taken the place of the old one, or why there
// is no room for it. With newFirst, it comes before the old one goes.
func (q *Quotas) replace(old, pod *corev1.Pod, newFirst bool) (*Quotas, error) {
	left, instead := q.clone(), old
	if newFirst {
		instead = nil
	}
	if why := q.refusal(pod, instead, nil); why != "" {
		return nil, refused{judge.Refusal{Kind: judge.ReasonQuotaExceeded, Reason: why}}
	}
	left.remove(old)
	left.add(pod)
	return left, nil
}

// Refusal returns why the API server would not let in one more pod that is made from the template, as
// far as LimitRanges, quotas and the sizes themselves say. Without a reason, it would. Nil knows of no quota.
func (q *Quotas) Refusal(template *corev1.PodTemplateSpec, limits Limits) judge.Refusal {
	spec, why := limits.admit(resize.Defaulted(template))
	if why != "" {
		return judge.Refusal{Reason: why, Kind: judge.ReasonInvalid}
	}
	if q == nil {
		return judge.Refusal{}
	}
	if why = q.refusal(&corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: *spec}, nil, nil); why != "" {
		return judge.Refusal{Reason: why, Kind: judge.ReasonQuotaExceeded}
	}
	return judge.Refusal{}
}

func plus(a, b resource.Quantity) resource.Quantity {
	sum := a.DeepCopy()
	sum.Add(b)
	return sum
}

// countPods counts pods that are over, too.
const countPods corev1.ResourceName = "count/pods"

// usage is what a pod takes of quotas: the most of what it asks for, has been given
// and has (PodUsageFunc in pkg/quota/v1/evaluator/core of Kubernetes).
func (q *Quotas) usage(pod *corev1.Pod) corev1.ResourceList {
	one := *resource.NewQuantity(1, resource.DecimalSI)
	used := corev1.ResourceList{countPods: one}
	if ended(pod, q.now) {
		return used
	}
	used[corev1.ResourcePods] = one
	options := resourcehelper.PodResourcesOptions{UseStatusResources: true}
	for name, quantity := range resourcehelper.PodRequests(pod, options) {
		if !strings.Contains(string(name), "/") || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			used[name] = quantity
		}
		used[corev1.DefaultResourceRequestsPrefix+name] = quantity
	}
	for name, quantity := range resourcehelper.PodLimits(pod, options) {
		used["limits."+name] = quantity
	}
	return used
}

// ended reports whether a pod takes nothing any more but its place in the store.
func ended(pod *corev1.Pod, now time.Time) bool {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return false
	}
	return now.After(pod.DeletionTimestamp.Add(time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second))
}

// compute are the resources that every container has to name where a quota counts them.
var compute = sets.New(
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
)

// unsaid are the values that a quota demands of each container, and that one lacks.
func unsaid(quota *corev1.ResourceQuota, pod *corev1.Pod) string {
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		return ""
	}
	var lacking []string
	for _, name := range sorted(quota.Status.Hard) {
		if !compute.Has(name) {
			continue
		}
		for c := range containers(&pod.Spec) {
			list, plain := c.Resources.Requests, strings.TrimPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
			if of, is := strings.CutPrefix(string(name), "limits."); is {
				list, plain = c.Resources.Limits, of
			}
			if _, said := list[corev1.ResourceName(plain)]; !said {
				lacking = append(lacking, fmt.Sprintf("%s for %s", name, c.Name))
			}
		}
	}
	return strings.Join(lacking, ", ")
}

// matches reports whether a quota counts the pod at all: whether it is in all of its scopes.
func matches(quota *corev1.ResourceQuota, pod *corev1.Pod) bool {
	for _, scope := range quota.Spec.Scopes {
		if !inScope(pod, corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists}) {
			return false
		}
	}
	if quota.Spec.ScopeSelector == nil {
		return true
	}
	return !slices.ContainsFunc(quota.Spec.ScopeSelector.MatchExpressions, func(s corev1.ScopedResourceSelectorRequirement) bool { return !inScope(pod, s) })
}

// inScope is podMatchesScopeFunc in pkg/quota/v1/evaluator/core of Kubernetes.
func inScope(pod *corev1.Pod, s corev1.ScopedResourceSelectorRequirement) bool {
	terminating := pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds >= 0
	switch s.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return terminating
	case corev1.ResourceQuotaScopeNotTerminating:
		return !terminating
	case corev1.ResourceQuotaScopeBestEffort:
		return qos.GetPodQOS(pod) == corev1.PodQOSBestEffort
	case corev1.ResourceQuotaScopeNotBestEffort:
		return qos.GetPodQOS(pod) != corev1.PodQOSBestEffort
	case corev1.ResourceQuotaScopePriorityClass:
		return ofClass(pod.Spec.PriorityClassName, s)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return acrossNamespaces(pod.Spec.Affinity)
	default:
		return false
	}
}

// operators are those of labels.
var operators = map[corev1.ScopeSelectorOperator]selection.Operator{
	corev1.ScopeSelectorOpIn: selection.In, corev1.ScopeSelectorOpNotIn: selection.NotIn,
	corev1.ScopeSelectorOpExists: selection.Exists, corev1.ScopeSelectorOpDoesNotExist: selection.DoesNotExist,
}

func ofClass(class string, s corev1.ScopedResourceSelectorRequirement) bool {
	has := labels.Set{}
	if class != "" {
		has[string(s.ScopeName)] = class
	}
	r, err := labels.NewRequirement(string(s.ScopeName), operators[s.Operator], s.Values)
	return err == nil && r.Matches(has)
}

// acrossNamespaces reports whether an affinity is to pods of named or selected namespaces.
func acrossNamespaces(a *corev1.Affinity) bool {
	var terms []corev1.PodAffinityTerm
	if a != nil && a.PodAffinity != nil {
		terms = append(terms, a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution...)
		terms = append(terms, unweighted(a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)...)
	}
	if a != nil && a.PodAntiAffinity != nil {
		terms = append(terms, a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution...)
		terms = append(terms, unweighted(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)...)
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil })
}

func unweighted(weighted []corev1.WeightedPodAffinityTerm) []corev1.PodAffinityTerm {
	terms := make([]corev1.PodAffinityTerm, len(weighted))
	for i, w := range weighted {
		terms[i] = w.PodAffinityTerm
	}
	return terms
}
