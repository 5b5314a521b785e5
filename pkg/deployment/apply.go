package deployment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/pkg/workload"
)

// apply carries the plan out: it tells what was observed, and then takes the
// step. It returns when to look again.
func (c *Controller) apply(ctx context.Context, s *session, d *Deployment, p plan) (time.Duration, error) {
	if c.Options.DryRun {
		logPlan(ctx, p)
		return p.After, nil
	}
	if !p.Release && p.Condition.Reason != "" {
		c.NameOthers(s, d, p.Members, &p.Condition)
		told, err := c.Tell(ctx, d, p.news())
		if err != nil {
			return 0, err
		}
		p.LookAfter(told)
		c.TellWaits(s, d, p.Waits)
	}
	c.tellResized(s, d, p.Members)
	var failed []error
	for _, m := range p.Resize {
		failed = append(failed, c.Resize(ctx, s, d, m, d.template.Hash, d.template.PodTemplateSpec))
	}
	for _, r := range p.Detach {
		failed = append(failed, c.detach(ctx, s, d, r))
	}
	for _, r := range p.Evict {
		failed = append(failed, c.evict(ctx, s, d, r))
	}
	if len(p.GiveBack) > 0 {
		failed = append(failed, GiveBack(ctx, c.Client, c.objects, d.Namespace, p.GiveBack))
	}
	failed = append(failed, c.writeSets(ctx, s, d, p))
	if p.Release {
		later, err := c.LetGo(d, s, func() error { return c.release(ctx, d, p.HandOver) })
		p.LookAfter(later)
		failed = append(failed, err)
	}
	return p.After, errors.Join(failed...)
}

func logPlan(ctx context.Context, p plan) {
	klog.FromContext(ctx).Info("Would take the next step", "resize", rollout.Names(p.Resize),
		"restart", rollout.Reasons(p.Restart), "detach", rollout.Reasons(p.Detach), "evict", rollout.Reasons(p.Evict),
		"keepHistory", p.History != nil, "adopt", p.Adopt, "release", p.Release,
		"reason", p.Condition.Reason, "message", p.Condition.Message)
}

// tellResized tells once of each pod that has taken a size and has it now.
func (c *Controller) tellResized(s *session, d *Deployment, members []rollout.Member) {
	for _, m := range members {
		if !m.Updated {
			continue
		}
		if changes, is := s.Resized(m.Pod.UID); is {
			c.TellResized(d, m.Pod, m.Target.Resized, "resized in place: "+changes)
		}
	}
}

// detach takes a pod out of its ReplicaSet and puts it under the Deployment itself,
// which the garbage collector knows: it is never without an owner.
func (c *Controller) detach(ctx context.Context, s *session, d *Deployment, r rollout.Restart) error {
	pod := r.Member.Pod
	detached, err := pods.Detach(ctx, c.Client.CoreV1(), pod, *metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment")))
	if err != nil {
		return err
	}
	s.Pods.Wrote(detached)
	c.TellRestart(d, r, "replaced, and evicted when another pod has taken its place")
	return nil
}

// evicting names the eviction among what a pod may be refused.
const evicting = "eviction"

func (c *Controller) evict(ctx context.Context, s *session, d *Deployment, r rollout.Restart) error {
	pod := r.Member.Pod
	err := pods.Evict(ctx, c.Client.CoreV1(), pod)
	if refusal, refused := pods.EvictionRefusal(err); refused {
		s.Own.evictions.Keep(pod.UID, evicting, refusal, c.Clock.Now())
		c.Enqueue(cache.MetaObjectToName(d))
		return nil
	}
	if err != nil {
		return err
	}
	delete(s.Own.evictions, pod.UID)
	if isDetached(pod) {
		c.EventBoth(d, pod, corev1.EventTypeNormal, rollout.EventRestart, "evicted: "+r.Reason)
	} else {
		c.TellRestart(d, r, "evicted")
	}
	return nil
}

// GiveBack puts detached pods under their ReplicaSets again, which then have one too
// many and choose which one goes. If its ReplicaSet is gone, the pod goes.
func GiveBack(ctx context.Context, client kubernetes.Interface, objects dynamic.Interface, namespace string, detached []*corev1.Pod) error {
	list, err := objects.Resource(replicaSets).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing ReplicaSets: %w", err)
	}
	var failed []error
	for _, pod := range detached {
		i := slices.IndexFunc(list.Items, func(rs unstructured.Unstructured) bool { return string(rs.GetUID()) == pod.Labels[api.DetachedLabel] })
		if i < 0 {
			failed = append(failed, pods.Evict(ctx, client.CoreV1(), pod))
			continue
		}
		rs := &list.Items[i]
		owner := *metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
		_, err := pods.GiveBack(ctx, client.CoreV1(), pod, owner, rs.GetLabels()[appsv1.DefaultDeploymentUniqueLabelKey])
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// writeSets writes at most one ReplicaSet: each write is a step of its own, after
// which all is looked at again.
func (c *Controller) writeSets(ctx context.Context, s *session, d *Deployment, p plan) error {
	switch {
	case p.Remove != nil:
		err := c.sets(d).Delete(ctx, p.Remove.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &p.Remove.UID, ResourceVersion: &p.Remove.ResourceVersion},
		})
		if err != nil {
			return fmt.Errorf("removing ReplicaSet %s: %w", p.Remove.Name, err)
		}
		return nil
	case p.History != nil:
		return c.keepHistory(ctx, s, d, p)
	case p.Adopt:
		patch, err := adoptPatch(p.Base, d.template, rollout.Names(outdated(p.Members)))
		return c.forget(d, p, c.patchSet(ctx, s, d, p.Base, patch, err))
	case p.Mark:
		patch, err := markPatch(p.Base, rollout.Names(outdated(p.Members)))
		return c.patchSet(ctx, s, d, p.Base, patch, err)
	case p.Settled != nil:
		patch, err := settledPatch(p.Settled)
		return c.forget(d, p, c.patchSet(ctx, s, d, p.Settled, patch, err))
	default:
		return nil
	}
}

func (c *Controller) sets(d *Deployment) dynamic.ResourceInterface {
	return c.objects.Resource(replicaSets).Namespace(d.Namespace)
}

// keepHistory writes what a ReplicaSet had before. What the API server says against it is
// kept: the rollout does not depend on it for long.
func (c *Controller) keepHistory(ctx context.Context, s *session, d *Deployment, p plan) error {
	var err error
	if p.Reuse == nil {
		err = c.createHistory(ctx, s, d, p)
	} else {
		patch, failed := keepPatch(p.Reuse, p.History)
		err = c.patchSet(ctx, s, d, p.Reuse, patch, failed)
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		return err
	}
	refusal := pods.Refusal(err)
	refusal.Final = apierrors.IsInvalid(err)
	s.Own.history.Keep(p.History.UID, keeping(p.History), refusal, c.Clock.Now())
	c.Enqueue(cache.MetaObjectToName(d))
	return nil
}

// forget tells of the template that the written ReplicaSet had before, if the history has
// no room for it.
func (c *Controller) forget(d *Deployment, p plan, err error) error {
	if err == nil && p.Forgets != "" {
		c.Recorder.Event(d, corev1.EventTypeWarning, rollout.EventNotKept, p.Forgets)
	}
	return err
}

func (c *Controller) createHistory(ctx context.Context, s *session, d *Deployment, p plan) error {
	history, err := newHistory(d, p.History, p.Taken)
	if err != nil {
		return err
	}
	created, err := c.sets(d).Create(ctx, history, metav1.CreateOptions{FieldManager: api.FieldManager})
	if err != nil {
		return fmt.Errorf("keeping the former template of ReplicaSet %s: %w", p.History.Name, err)
	}
	s.Own.sets.Wrote(created)
	c.Enqueue(cache.MetaObjectToName(d))
	return nil
}

func (c *Controller) patchSet(ctx context.Context, s *session, d *Deployment, rs *replicaSet, patch []byte, err error) error {
	if err != nil {
		return err
	}
	written, err := c.sets(d).Patch(ctx, rs.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: api.FieldManager})
	if err != nil {
		return fmt.Errorf("writing ReplicaSet %s: %w", rs.Name, err)
	}
	s.Own.sets.Wrote(written)
	c.Enqueue(cache.MetaObjectToName(d))
	return nil
}

// release lets go of the hold. The Deployment's resource version is a
// precondition: the plan was made for this version of it.
func (c *Controller) release(ctx context.Context, d *Deployment, handOver string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": d.UID, "resourceVersion": d.ResourceVersion, "annotations": map[string]any{api.HoldAnnotation: nil},
	}})
	if err != nil {
		return fmt.Errorf("encoding the release: %w", err)
	}
	written, err := c.Patch(ctx, d, types.MergePatchType, patch)
	if err != nil {
		return fmt.Errorf("letting go of the hold: %w", err)
	}
	if workload.Held(written) && !written.template.Same(d.template) {
		return fmt.Errorf("letting go of the hold: %w", workload.ErrEdited)
	}
	if workload.Held(written) {
		return fmt.Errorf("letting go of the hold: %w", workload.ErrUnknown)
	}
	// The admission policy may have been deleted a moment ago; then it is not left paused.
	if wish := d.wishedPaused(); written.Spec.Paused != wish {
		if patch, err = json.Marshal(map[string]any{"metadata": map[string]any{"uid": d.UID}, "spec": map[string]any{"paused": wish}}); err != nil {
			return fmt.Errorf("encoding the release: %w", err)
		}
		if _, err := c.Patch(ctx, written, types.MergePatchType, patch); err != nil {
			return fmt.Errorf("letting go of the hold without the admission policy: %w", err)
		}
	}
	klog.FromContext(ctx).V(2).Info("Let go of the hold", "handOver", handOver)
	if handOver != "" {
		c.TellHandOver(d, "left to the Deployment controller: "+handOver)
	}
	return nil
}
