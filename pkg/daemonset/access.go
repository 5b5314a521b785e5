package daemonset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Access is that of controller.Kind.
func (k Kind) Access() controller.Access[*appsv1.DaemonSet] {
	access := controller.Typed(k.client, func(namespace string) typedappsv1.DaemonSetInterface { return k.client.AppsV1().DaemonSets(namespace) })
	access.Kind, access.Strip, access.NewCondition = kindName, strip, newCondition
	access.NewInformer = func(namespace string, tweak func(*metav1.ListOptions)) cache.SharedIndexInformer {
		return appsinformers.NewFilteredDaemonSetInformer(k.client, namespace, 0, cache.Indexers{}, tweak)
	}
	access.Selector = func(set *appsv1.DaemonSet) *metav1.LabelSelector { return set.Spec.Selector }
	access.Size = func(set *appsv1.DaemonSet) int {
		return controller.HistorySize(int(set.Spec.Template.Generation), set.Spec.RevisionHistoryLimit)
	}
	access.ObservedGeneration = func(set *appsv1.DaemonSet) int64 { return set.Status.ObservedGeneration }
	access.SameTemplate = func(a, b *appsv1.DaemonSet) bool { return hash.SameText(&a.Spec.Template, &b.Spec.Template) }
	access.ConditionOf = conditionOf
	return access
}

// strip leaves of a set what is read of it.
func strip(set *appsv1.DaemonSet, atRest bool) *appsv1.DaemonSet {
	stripped := *set
	if stripped.Spec.Template = (corev1.PodTemplateSpec{}); !atRest {
		stripped.Spec.Template = hash.Brief(&set.Spec.Template)
	}
	return &stripped
}

// condition returns the condition inplace-rollout.io/Complete, or nil.
func condition(set *appsv1.DaemonSet) *rollout.StoredCondition {
	return rollout.CompleteOf(set, conditionOf)
}

// conditionOf returns the set's condition of that type, or nil.
func conditionOf(set *appsv1.DaemonSet, of string) *rollout.StoredCondition {
	i := slices.IndexFunc(set.Status.Conditions, func(c appsv1.DaemonSetCondition) bool { return string(c.Type) == of })
	if i < 0 {
		return nil
	}
	c := set.Status.Conditions[i]
	return &rollout.StoredCondition{Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message}
}

func newCondition(c rollout.StoredCondition, _ metav1.Time) any {
	return appsv1.DaemonSetCondition{
		Type: api.ConditionComplete, Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
	}
}
