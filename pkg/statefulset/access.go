package statefulset

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Access is that of controller.Kind.
func (k Kind) Access() controller.Access[*appsv1.StatefulSet] {
	return controller.Access[*appsv1.StatefulSet]{
		Kind: kindName,
		NewInformer: func(namespace string, tweak func(*metav1.ListOptions)) cache.SharedIndexInformer {
			return appsinformers.NewFilteredStatefulSetInformer(k.client, namespace, 0, cache.Indexers{}, tweak)
		},
		NewPodInformer: func(namespace, selector string) cache.SharedIndexInformer {
			return pods.NewInformer(k.client, namespace, selector)
		},
		Decode: controller.Typed[*appsv1.StatefulSet],
		Strip:  strip,
		Get: func(ctx context.Context, name cache.ObjectName) (*appsv1.StatefulSet, error) {
			return k.client.AppsV1().StatefulSets(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		},
		List: func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error) {
			return k.client.AppsV1().StatefulSets(namespace).List(ctx, o)
		},
		Patch: func(ctx context.Context, set *appsv1.StatefulSet, kind types.PatchType, patch []byte, subresources ...string) (runtime.Object, error) {
			return k.client.AppsV1().StatefulSets(set.Namespace).Patch(ctx, set.Name, kind, patch, metav1.PatchOptions{FieldManager: api.FieldManager}, subresources...)
		},
		Selector:     func(set *appsv1.StatefulSet) *metav1.LabelSelector { return set.Spec.Selector },
		Observed:     statusObserved,
		SameTemplate: func(a, b *appsv1.StatefulSet) bool { return controller.SameText(&a.Spec.Template, &b.Spec.Template) },
		Condition:    condition,
		HasConditions: func(set *appsv1.StatefulSet) bool {
			return condition(set) != nil || conditionOf(set, api.ConditionObserved) != nil
		},
		NewCondition: newCondition,
	}
}

// strip leaves of a set what is read of it. Templates of revisions are read from the history; that of
// the set only while it is held, to see whether a write of ours has changed it.
func strip(set *appsv1.StatefulSet, atRest bool) *appsv1.StatefulSet {
	stripped := *set
	stripped.Spec.VolumeClaimTemplates = nil
	if atRest {
		stripped.Spec.Template = corev1.PodTemplateSpec{}
	}
	return &stripped
}

// statusObserved reports whether the status of the set speaks of its template.
func statusObserved(set *appsv1.StatefulSet) bool {
	return rollout.ObservedGeneration(set.Status.ObservedGeneration, conditionOf(set, api.ConditionObserved)) >= set.Generation
}

// condition returns the set's condition inplace-rollout.io/Complete, or nil.
func condition(set *appsv1.StatefulSet) *rollout.StoredCondition {
	return conditionOf(set, api.ConditionComplete).SpeakingOf(set.Annotations)
}

// conditionOf returns the set's condition of that type, or nil.
func conditionOf(set *appsv1.StatefulSet, kind appsv1.StatefulSetConditionType) *rollout.StoredCondition {
	i := slices.IndexFunc(set.Status.Conditions, func(c appsv1.StatefulSetCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	c := set.Status.Conditions[i]
	return &rollout.StoredCondition{Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message}
}

func newCondition(c rollout.StoredCondition, _ metav1.Time) any {
	return appsv1.StatefulSetCondition{
		Type: api.ConditionComplete, Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
	}
}
