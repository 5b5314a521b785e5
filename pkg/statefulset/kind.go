// Package statefulset says what Kubernetes does differently for StatefulSets. A sync gathers
// what there is (kind.go), reads it as places of pods (observe.go), plans the next step
// (plan.go) and makes its writes (writes.go, apply.go). Sessions keep nothing that a
// controller that is restarted could not read again.
package statefulset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

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
	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Kind is [controller.Kind] for StatefulSets.
type Kind struct {
	controller.Plain[*appsv1.StatefulSet, *memory]
}

// New returns the kind, which reads and writes through client.
func New(client kubernetes.Interface) Kind {
	return Kind{controller.Plain[*appsv1.StatefulSet, *memory]{Client: client}}
}

// history has the templates of a set's revisions, by their name. A revision never changes. One that
// is gone has no template: nil.
type history map[string]*hash.Template

// memory is what a session keeps of a set.
type memory struct {
	history
	births
	seen seen
}

// seen is since when the set has been seen, and this version of it, by our own clock.
type seen struct {
	version string
	first   time.Time
	since   time.Time
}

// see notes which version is seen.
func (s *seen) see(version string, now time.Time) {
	if s.first.IsZero() {
		s.first = now
	}
	if s.version != version {
		s.version, s.since = version, now
	}
}

// HasSynced is that of controller.KindState: all of it is read when it is needed.
func (*memory) HasSynced() bool { return true }

type session = controller.Session[*appsv1.StatefulSet, *memory]

// Name of the kind.
func (Kind) Name() string { return "StatefulSet" }

// NewInformer is that of controller.Kind.
func (k Kind) NewInformer(namespace string, tweak func(*metav1.ListOptions)) cache.SharedIndexInformer {
	return appsinformers.NewFilteredStatefulSetInformer(k.Client, namespace, 0, cache.Indexers{}, tweak)
}

// Strip is that of controller.Kind. Templates of revisions are read from the history; that of
// the set only while it is held, to see whether a write of ours has changed it.
func (Kind) Strip(set *appsv1.StatefulSet, atRest bool) *appsv1.StatefulSet {
	stripped := *set
	stripped.Spec.VolumeClaimTemplates = nil
	if atRest {
		stripped.Spec.Template = corev1.PodTemplateSpec{}
	}
	return &stripped
}

// Patch is that of controller.Kind.
func (k Kind) Patch(ctx context.Context, set *appsv1.StatefulSet, kind types.PatchType, patch []byte, subresources ...string) (runtime.Object, error) {
	return k.Client.AppsV1().StatefulSets(set.Namespace).Patch(ctx, set.Name, kind, patch, metav1.PatchOptions{FieldManager: api.FieldManager}, subresources...)
}

// Selector of the set's pods.
func (Kind) Selector(set *appsv1.StatefulSet) *metav1.LabelSelector { return set.Spec.Selector }

// Condition inplace-rollout.io/Complete of the set, or nil.
func (Kind) Condition(set *appsv1.StatefulSet) *rollout.StoredCondition { return condition(set) }

// NewCondition is that of controller.Kind.
func (Kind) NewCondition(c rollout.StoredCondition, _ metav1.Time) any {
	return appsv1.StatefulSetCondition{
		Type: api.ConditionComplete, Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
	}
}

// Open is that of controller.Kind.
func (Kind) Open(context.Context, *appsv1.StatefulSet, func()) (*memory, error) {
	return &memory{history: history{}}, nil
}

// SameTemplate is that of controller.Kind.
func (Kind) SameTemplate(a, b *appsv1.StatefulSet) bool {
	return controller.SameText(&a.Spec.Template, &b.Spec.Template)
}

// Unrestored is that of controller.Kind.
func (Kind) Unrestored(held, written *appsv1.StatefulSet) map[string]any {
	fields, wish := unanswered(written), wishedPartition(held)
	if holdable(written) && partition(written) != wish {
		if fields == nil {
			fields = map[string]any{}
		}
		fields["spec"] = map[string]any{"updateStrategy": map[string]any{"rollingUpdate": map[string]any{"partition": wish}}}
	}
	return fields
}

// Observed reports whether the status of the set speaks of its template.
func (Kind) Observed(set *appsv1.StatefulSet) bool {
	return set.Status.ObservedGeneration >= set.Generation
}

// condition returns the set's condition inplace-rollout.io/Complete, or nil.
func condition(set *appsv1.StatefulSet) *rollout.StoredCondition {
	i := slices.IndexFunc(set.Status.Conditions, func(c appsv1.StatefulSetCondition) bool { return c.Type == api.ConditionComplete })
	if i < 0 {
		return nil
	}
	c := set.Status.Conditions[i]
	return &rollout.StoredCondition{Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message}
}

// owned returns those of the pods that the set controls.
func owned(set *appsv1.StatefulSet, all []*corev1.Pod) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range all {
		if metav1.IsControlledBy(pod, set) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// orphans returns those of the pods that nothing controls and that are not terminating. The
// StatefulSet controller adopts them if their name is one of the set's (ClaimPods in
// pkg/controller of Kubernetes).
func orphans(all []*corev1.Pod) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range all {
		if metav1.GetControllerOfNoCopy(pod) == nil && pod.DeletionTimestamp == nil {
			pods = append(pods, pod)
		}
	}
	return pods
}

// BuiltInStatus is that of controller.Kind.
func (Kind) BuiltInStatus(set *appsv1.StatefulSet) rollout.BuiltInStatus { return builtInStatus(set) }

// Gather is that of controller.Kind.
func (k Kind) Gather(ctx context.Context, s *session, set *appsv1.StatefulSet, list controller.ListPods, live bool) (rollout.Observation, error) {
	all, err := list()
	if err != nil {
		return nil, err
	}
	o := observation{set: set, pods: owned(set, all), orphans: orphans(all), revisions: s.KindState.history}
	known := func(revision string) error {
		if _, known := s.KindState.history[revision]; known {
			return nil
		}
		if err := k.readRevisions(ctx, s, set); err != nil {
			return err
		}
		if _, still := s.KindState.history[revision]; !still {
			s.KindState.history[revision] = nil // gone: do not ask for it again
		}
		return nil
	}
	err = errors.Join(known(set.Status.UpdateRevision), known(set.Status.CurrentRevision))
	for _, pod := range o.pods {
		if err == nil {
			err = known(pod.Labels[appsv1.ControllerRevisionHashLabelKey])
		}
	}
	if err != nil {
		return nil, err
	}
	if s.KindState.history[set.Status.UpdateRevision] == nil {
		delete(s.KindState.history, set.Status.UpdateRevision)
		return nil, fmt.Errorf("the set's update revision %q is not in the history", set.Status.UpdateRevision)
	}
	s.KindState.seen.see(set.ResourceVersion, s.Now())
	o.seen = s.KindState.seen
	o.births, err = k.awaitBirths(ctx, s, o, live)
	return o, err
}

// readRevisions reads the history of the set. Like the StatefulSet controller, it takes revisions for
// the set's that nothing controls: that controller may have made one the update revision, and adopt
// it only when something happens to the set again, which the hold prevents. In the same way the
// update revision may still belong to a set of this name that was deleted.
func (k Kind) readRevisions(ctx context.Context, s *session, set *appsv1.StatefulSet) error {
	list, err := k.Client.AppsV1().ControllerRevisions(set.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(set.Spec.Selector)})
	if err != nil {
		return fmt.Errorf("listing ControllerRevisions: %w", err)
	}
	for i := range list.Items {
		stored := &list.Items[i]
		if !metav1.IsControlledBy(stored, set) && metav1.GetControllerOfNoCopy(stored) != nil && stored.Name != set.Status.UpdateRevision {
			continue
		}
		if s.KindState.history[stored.Name], err = hash.OfRevision(stored); err != nil {
			return err
		}
	}
	return nil
}
