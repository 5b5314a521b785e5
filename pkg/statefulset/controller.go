// Package statefulset carries resources-only edits of StatefulSets into their
// running pods. Each sync gathers what there is (observe.go), plans the next
// step from it (plan.go) and carries it out (apply.go); nothing is remembered
// that a restarted controller could not read back or find out again.
package statefulset

import (
	"context"
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
	"k8s.io/client-go/tools/record"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/pkg/workload"
)

// history is what a session keeps of a set: the templates of its revisions, which
// never change. One that is gone is nil.
type history map[string]*workload.Template

// Controller rolls out resources-only edits of opted-in StatefulSets in place.
type Controller struct {
	*workload.Controller[*appsv1.StatefulSet, history]
}

type session = workload.Session[history]

// New returns a controller that writes through client and tells through recorder.
func New(ctx context.Context, client kubernetes.Interface, recorder record.EventRecorder, nodes *workload.Nodes, options workload.Options) (*Controller, error) {
	c := &Controller{}
	var err error
	c.Controller, err = workload.New(ctx, kind{c, client}, client, recorder, nodes, options)
	return c, err
}

// kind is workload.Kind for StatefulSets.
type kind struct {
	controller *Controller
	client     kubernetes.Interface
}

func (kind) Name() string { return "StatefulSet" }

func (k kind) NewInformer(namespace string, tweak func(*metav1.ListOptions)) cache.SharedIndexInformer {
	return appsinformers.NewFilteredStatefulSetInformer(k.client, namespace, 0, cache.Indexers{}, tweak)
}

func (kind) Decode(obj any) (*appsv1.StatefulSet, error) {
	set, ok := obj.(*appsv1.StatefulSet)
	if !ok {
		return nil, fmt.Errorf("a %T where a StatefulSet belongs", obj)
	}
	return set, nil
}

func (k kind) Patch(ctx context.Context, set *appsv1.StatefulSet, kind types.PatchType, patch []byte, subresources ...string) (runtime.Object, error) {
	return k.client.AppsV1().StatefulSets(set.Namespace).Patch(ctx, set.Name, kind, patch, metav1.PatchOptions{FieldManager: api.FieldManager}, subresources...)
}

func (kind) Selector(set *appsv1.StatefulSet) *metav1.LabelSelector { return set.Spec.Selector }

func (kind) Condition(set *appsv1.StatefulSet) *workload.Condition { return condition(set) }

func (kind) NewCondition(c workload.Condition, _ metav1.Time) any {
	return appsv1.StatefulSetCondition{
		Type: api.ConditionComplete, Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
	}
}

func (kind) Open(context.Context, *appsv1.StatefulSet, func()) (history, error) {
	return history{}, nil
}

func (k kind) Sync(ctx context.Context, set *appsv1.StatefulSet) (time.Duration, error) {
	return k.controller.syncSet(ctx, set)
}

func (kind) Leave(context.Context, cache.ObjectName) error { return nil } // a partition is let go by admission

// condition returns the set's condition inplace-rollout.io/Complete, or nil.
func condition(set *appsv1.StatefulSet) *workload.Condition {
	i := slices.IndexFunc(set.Status.Conditions, func(c appsv1.StatefulSetCondition) bool { return c.Type == api.ConditionComplete })
	if i < 0 {
		return nil
	}
	c := set.Status.Conditions[i]
	return &workload.Condition{Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message}
}

// syncSet takes the next step of an opted-in set.
func (c *Controller) syncSet(ctx context.Context, set *appsv1.StatefulSet) (time.Duration, error) {
	if set.Status.ObservedGeneration < set.Generation {
		return 0, nil // its status says nothing about its template yet
	}
	if said, rests := atRest(set); rests {
		c.EndSession(cache.MetaObjectToName(set))
		return c.Tell(ctx, set, said)
	}
	if workload.Held(set) && c.Complete(set) {
		// Held where it was before a lower partition was wished, with ordinals that do not start at 0: no status
		// was written since, in which the admission policy would have taken the condition back.
		return c.Tell(ctx, set, workload.News{Condition: rollout.Condition{Reason: rollout.ReasonPending, Message: "waiting for inplace-rollout to look at this partition"}})
	}
	s, err := c.Session(ctx, set)
	if err != nil || !s.Pods.HasSynced() {
		return 0, err // the watch tells when it has
	}
	s.Retry(set)
	p, err := c.plan(ctx, s, set)
	if err != nil {
		return 0, err
	}
	return c.apply(ctx, s, set, p)
}

// owned are those of the pods that the set controls.
func owned(set *appsv1.StatefulSet, all []*corev1.Pod) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range all {
		if metav1.IsControlledBy(pod, set) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// orphans are those of the pods that nobody controls, and that the StatefulSet
// controller adopts if their name is one of the set's (ClaimPods in pkg/controller of
// Kubernetes).
func orphans(all []*corev1.Pod) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range all {
		if metav1.GetControllerOfNoCopy(pod) == nil && pod.DeletionTimestamp == nil {
			pods = append(pods, pod)
		}
	}
	return pods
}

// plan makes the next step from the watched pods. A step that lets the
// StatefulSet controller loose is made again from what the API server has right
// now: a pod that was born a moment ago would be deleted by it. So is one that says
// Complete. And it is made again without the restarts of pods for which there would be
// no room.
func (c *Controller) plan(ctx context.Context, s *session, set *appsv1.StatefulSet) (plan, error) {
	watched, err := s.Pods.List()
	if err != nil {
		return plan{}, err
	}
	o, err := c.observe(ctx, s, set, watched, false)
	if err != nil {
		return plan{}, err
	}
	p, err := nextStep(ctx, o)
	if err != nil || !p.movesPartition() && len(p.Delete) == 0 && !p.Condition.Complete {
		return p, err
	}
	current, err := c.ListPods(ctx, set)
	if err != nil {
		return plan{}, err
	}
	if o, err = c.observe(ctx, s, set, current, true); err != nil {
		return plan{}, err
	}
	if p, err = nextStep(ctx, o); err != nil {
		return plan{}, err
	}
	if crowded, err := c.Crowded(ctx, s, set.Namespace, set.Status.UpdateRevision, p.Restart, false, o.pods, o.toCome()); err != nil || !crowded {
		return p, err
	}
	return nextStep(ctx, o)
}

func (c *Controller) observe(ctx context.Context, s *session, set *appsv1.StatefulSet, all []*corev1.Pod, rightNow bool) (observation, error) {
	limits, err := c.Limits(ctx, s, set.Namespace, rightNow)
	if err != nil {
		return observation{}, err
	}
	o := observation{
		set: set, pods: owned(set, all), orphans: orphans(all), nodes: c.Nodes.List(), limits: limits, revisions: s.Own,
		refusals: s.Refusals, contests: s.Contests, crowded: s.Crowded, seen: s.Seen,
		defaults: c.Options.Defaults, now: c.Clock.Now(),
	}
	names := []string{set.Status.UpdateRevision, set.Status.CurrentRevision}
	for _, pod := range o.pods {
		names = append(names, pod.Labels[appsv1.ControllerRevisionHashLabelKey])
	}
	for _, name := range names {
		if _, known := s.Own[name]; !known {
			if err := c.readRevisions(ctx, s, set); err != nil {
				return observation{}, err
			}
			if _, still := s.Own[name]; !still {
				s.Own[name] = nil // gone: do not ask for it again
			}
		}
	}
	if s.Own[set.Status.UpdateRevision] == nil {
		delete(s.Own, set.Status.UpdateRevision)
		return observation{}, fmt.Errorf("the set's update revision %q is not in the history", set.Status.UpdateRevision)
	}
	return o, nil
}

// readRevisions reads the history of the set.
func (c *Controller) readRevisions(ctx context.Context, s *session, set *appsv1.StatefulSet) error {
	list, err := c.Client.AppsV1().ControllerRevisions(set.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(set.Spec.Selector)})
	if err != nil {
		return fmt.Errorf("listing ControllerRevisions: %w", err)
	}
	for i := range list.Items {
		stored := &list.Items[i]
		if !metav1.IsControlledBy(stored, set) {
			continue
		}
		if s.Own[stored.Name], err = templateOf(stored); err != nil {
			return err
		}
	}
	return nil
}
