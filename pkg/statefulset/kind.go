// Package statefulset says what Kubernetes does differently for StatefulSets. A sync gathers
// what there is (kind.go), reads it as places of pods (observe.go), plans the next step
// (plan.go) and makes its writes (writes.go, apply.go). Sessions keep nothing that a
// controller that is restarted could not read again.
package statefulset

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/revisions"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// kindName is how the API names the kind.
const kindName = "StatefulSet"

// Kind is [controller.Kind] for StatefulSets.
type Kind struct {
	client kubernetes.Interface
}

// New returns the kind, which reads and writes through client.
func New(client kubernetes.Interface) Kind {
	return Kind{client: client}
}

// history has the templates of a set's revisions, by their name. A revision never changes. One that
// is gone, or that nobody can read, has no template: nil.
type history map[string]*hash.Template

// memory is what a session keeps of a set.
type memory struct {
	history
	births
	updateRevision string // of the set when it was looked at last
	// renewed is since when the current revision has been the newest one, by our own clock; zero if it is not.
	renewed time.Time
}

// reaches returns how far a held set under OnDelete has come now: of its revision, since the last time that its user had it tried again,
// and with that record of a guarded rollout.
func reaches(before controller.Reached, set *appsv1.StatefulSet, count func() int, now time.Time) controller.Reached {
	if !policy.Held(set) || rolling(set) {
		return controller.Reached{}
	}
	of, updated := set.Status.UpdateRevision+" "+set.Annotations[api.RetryAnnotation]+recorded(set), count()
	if before.Of != of || updated > before.Updated {
		return controller.Reached{Of: of, Updated: updated, Since: now}
	}
	return before
}

// recorded names the guarded rollout, and its phase. What becomes of its canaries is no news.
func recorded(set *appsv1.StatefulSet) string {
	r, err := rollout.ReadRecord(set.Annotations)
	if err != nil || r == nil {
		return ""
	}
	return r.Name() + string(r.Phase)
}

// HasSynced is that of controller.KindState: all of it is read when it is needed.
func (*memory) HasSynced() bool { return true }

// Size is that of controller.KindState.
func (m *memory) Size() (size int) {
	for _, template := range m.history {
		if template != nil {
			size += len(template.Raw)
		}
	}
	return size
}

type session = controller.Session[*appsv1.StatefulSet, *memory]

// Open is that of controller.Kind.
func (Kind) Open(context.Context, *appsv1.StatefulSet, func()) (*memory, error) {
	return &memory{history: history{}}, nil
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

// claimed returns those of the pods that the set controls, and those that nothing controls and that are not terminating. The
// StatefulSet controller adopts the latter if their name is one of the set's (ClaimPods in pkg/controller of Kubernetes).
func claimed(set *appsv1.StatefulSet, all []*corev1.Pod) (owned, orphans []*corev1.Pod) {
	owned = make([]*corev1.Pod, 0, len(all))
	for _, pod := range all {
		switch owner := metav1.GetControllerOfNoCopy(pod); {
		case owner == nil && pod.DeletionTimestamp == nil:
			orphans = append(orphans, pod)
		case owner != nil && owner.UID == set.UID:
			owned = append(owned, pod)
		}
	}
	return owned, orphans
}

// BuiltInStatus is that of controller.Kind.
func (Kind) BuiltInStatus(set *appsv1.StatefulSet) rollout.BuiltInStatus { return builtInStatus(set) }

// Gather is that of controller.Kind.
func (k Kind) Gather(ctx context.Context, s *session, set *appsv1.StatefulSet, list controller.ListPods, live bool) (rollout.Observation, error) {
	all, err := list()
	if err != nil {
		return nil, err
	}
	o := observation{set: set, revisions: s.KindState.history}
	o.pods, o.orphans = claimed(set, all)
	o.places = o.spans()
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
	if now := set.Status.UpdateRevision; now != s.KindState.updateRevision { // an older one is written anew when the set comes back to it
		delete(s.KindState.history, now)
		s.KindState.updateRevision = now
	}
	err = errors.Join(known(set.Status.UpdateRevision), known(set.Status.CurrentRevision))
	last := ""
	for i, pod := range o.pods { // most are of one
		if of := revisions.HashOf(pod); err == nil && (i == 0 || of != last) {
			last, err = of, known(of)
		}
	}
	if err != nil {
		return nil, err
	}
	if s.KindState.history[set.Status.UpdateRevision] == nil {
		delete(s.KindState.history, set.Status.UpdateRevision)
		return nil, fmt.Errorf("the set's update revision %q is not in the history", set.Status.UpdateRevision)
	}
	switch k := s.KindState; {
	case !o.madeOfUpdate():
		k.renewed = time.Time{}
	case k.renewed.IsZero():
		k.renewed = s.Now()
	}
	o.renewed = s.KindState.renewed
	s.Reached = reaches(s.Reached, set, o.updated, s.Now())
	o.moved = s.Reached.Since
	o.births, err = k.awaitBirths(ctx, s, o, live)
	return o, err
}

// readRevisions reads the history of the set.
func (k Kind) readRevisions(ctx context.Context, s *session, set *appsv1.StatefulSet) error {
	list, err := k.client.AppsV1().ControllerRevisions(set.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(set.Spec.Selector)})
	if err != nil {
		return fmt.Errorf("listing ControllerRevisions: %w", err)
	}
	for i := range list.Items {
		stored := &list.Items[i]
		if !revisions.BelongsTo(set, stored, set.Status.UpdateRevision) {
			continue
		}
		template, err := hash.OfRevision(stored)
		if err != nil && stored.Name == set.Status.UpdateRevision {
			return err
		}
		s.KindState.history[stored.Name] = template
	}
	return nil
}

// awaitBirths notes for which pods it is the turn, and looks at the quotas if one of them is missing.
func (k Kind) awaitBirths(ctx context.Context, s *session, o observation, live bool) (births, error) {
	b, now := &s.KindState.births, s.Now()
	o.Now = now
	due, look := map[int]time.Time{}, false
	for _, i := range o.due() {
		since, known := s.Due[i]
		if !known {
			since = now
		}
		due[i] = since
		look = look || now.Sub(since) >= lookAtQuotas
	}
	s.Due, b.due, b.limits = due, due, s.Limits()
	if !look { // what they were is no word on who is missing now
		b.quotas, b.read = nil, time.Time{}
	}
	if look && (live || now.Sub(b.read) >= believeQuotas) {
		quotas, err := capacity.New(k.client, capacity.Sizes, now).Quotas(ctx, o.set.Namespace)
		if err != nil {
			return births{}, err
		}
		b.quotas, b.read = quotas, now
	}
	b.refused = sets.New[string]()
	for _, of := range []string{o.set.Status.CurrentRevision, o.set.Status.UpdateRevision} {
		if t := o.revisions[of]; b.quotas != nil && t != nil && b.quotas.Refusal(t.PodTemplateSpec, b.limits).Kind == judge.ReasonQuotaExceeded {
			b.refused.Insert(of)
		}
	}
	return *b, nil
}
