// Package daemonset says what Kubernetes does differently for DaemonSets. A sync gathers what
// there is (kind.go, history.go), reads it as places of pods (observe.go), with the sizes that they
// have by the class of their node (classes.go), and plans the next step (plan.go); the engine makes
// its writes. Sessions keep nothing that a controller that is restarted could not read again.
package daemonset

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Kind is [controller.Kind] for DaemonSets.
type Kind struct {
	controller.Plain[*appsv1.DaemonSet, *history]
}

// New returns the kind, which reads and writes through client.
func New(client kubernetes.Interface) Kind {
	return Kind{controller.Plain[*appsv1.DaemonSet, *history]{Client: client}}
}

type session = controller.Session[*appsv1.DaemonSet, *history]

// Name of the kind.
func (Kind) Name() string { return "DaemonSet" }

// NewInformer is that of controller.Kind.
func (k Kind) NewInformer(namespace string, tweak func(*metav1.ListOptions)) cache.SharedIndexInformer {
	return appsinformers.NewFilteredDaemonSetInformer(k.Client, namespace, 0, cache.Indexers{}, tweak)
}

// Strip is that of controller.Kind.
func (Kind) Strip(set *appsv1.DaemonSet, atRest bool) *appsv1.DaemonSet {
	stripped := *set
	if atRest {
		stripped.Spec.Template = corev1.PodTemplateSpec{}
	}
	return &stripped
}

// Patch is that of controller.Kind.
func (k Kind) Patch(ctx context.Context, set *appsv1.DaemonSet, kind types.PatchType, patch []byte, subresources ...string) (runtime.Object, error) {
	return k.Client.AppsV1().DaemonSets(set.Namespace).Patch(ctx, set.Name, kind, patch, metav1.PatchOptions{FieldManager: api.FieldManager}, subresources...)
}

// Selector of the set's pods.
func (Kind) Selector(set *appsv1.DaemonSet) *metav1.LabelSelector { return set.Spec.Selector }

// Condition inplace-rollout.io/Complete of the set, or nil.
func (Kind) Condition(set *appsv1.DaemonSet) *rollout.StoredCondition { return condition(set) }

// NewCondition is that of controller.Kind.
func (Kind) NewCondition(c rollout.StoredCondition, _ metav1.Time) any {
	return appsv1.DaemonSetCondition{
		Type: api.ConditionComplete, Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
	}
}

// Open is that of controller.Kind.
func (Kind) Open(context.Context, *appsv1.DaemonSet, func()) (*history, error) {
	return &history{}, nil
}

// SameTemplate is that of controller.Kind.
func (Kind) SameTemplate(a, b *appsv1.DaemonSet) bool {
	return controller.SameText(&a.Spec.Template, &b.Spec.Template)
}

// Unrestored is that of controller.Kind. Only a set that its user wants to be rolled is held.
func (Kind) Unrestored(_, written *appsv1.DaemonSet) map[string]any {
	const want = appsv1.RollingUpdateDaemonSetStrategyType
	if written.Spec.UpdateStrategy.Type == want {
		return nil
	}
	return map[string]any{"spec": map[string]any{"updateStrategy": map[string]any{"type": string(want)}}}
}

// Observed reports whether the status of the set speaks of its template.
func (Kind) Observed(set *appsv1.DaemonSet) bool {
	return set.Status.ObservedGeneration >= set.Generation
}

// condition returns the set's condition inplace-rollout.io/Complete, or nil.
func condition(set *appsv1.DaemonSet) *rollout.StoredCondition {
	i := slices.IndexFunc(set.Status.Conditions, func(c appsv1.DaemonSetCondition) bool { return c.Type == api.ConditionComplete })
	if i < 0 {
		return nil
	}
	c := set.Status.Conditions[i]
	return &rollout.StoredCondition{Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message}
}

// BuiltInStatus is that of controller.Kind.
func (Kind) BuiltInStatus(set *appsv1.DaemonSet) rollout.BuiltInStatus { return builtInStatus(set) }

// Gather is that of controller.Kind.
func (k Kind) Gather(ctx context.Context, s *session, set *appsv1.DaemonSet, list controller.ListPods, live bool) (rollout.Observation, error) {
	if live {
		s.KindState.generation = 0
	}
	o := observation{set: set, history: s.KindState}
	all, err := list()
	if err != nil {
		return nil, err
	}
	for _, pod := range all {
		if metav1.IsControlledBy(pod, set) {
			o.pods = append(o.pods, pod)
		}
	}
	if err := k.update(ctx, s.KindState, set, o.pods); err != nil {
		return nil, err
	}
	return o, nil
}
