package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// ErrUnknown is the error where the admission policies have taken a write of ours for a user's.
var ErrUnknown = errors.New("the admission policies do not know this controller: it must run as the ServiceAccount that they were installed for")

// ErrEdited is the error where the template has changed in a write of ours that was to let the
// built-in controller go on. The admission policies have held that edit.
var ErrEdited = errors.New("a mutating webhook changed the pod template in a write of inplace-rollout, so this write is held like an edit")

// Instruct asks the admission policies to do what the annotations say, where nil removes one, and
// returns w as it is stored then. The resource version of w is a precondition: the plan was made
// for this version of it. The error is [ErrEdited] if a webhook has edited the template.
func (s *Session[W, K]) Instruct(ctx context.Context, w W, annotations map[string]any) (written W, err error) {
	written, err = s.controller.merge(ctx, w, map[string]any{"metadata": map[string]any{
		"uid": w.GetUID(), "resourceVersion": w.GetResourceVersion(), "annotations": annotations,
	}})
	if err == nil && policy.Held(written) && !s.controller.access.SameTemplate(written, w) {
		err = ErrEdited
	}
	return written, err
}

// HistorySize is how many bytes the templates are likely to have that a session keeps, where the newest one has so many.
func HistorySize(newest int, limit *int32) int {
	const byDefault = 10
	return newest * (2 + int(min(ptr.Deref(limit, byDefault), byDefault)))
}

// release asks the admission policies to let go of the hold of w, and to bring back what the user
// wants. If they were deleted a moment ago, nobody has done that, and nothing would say it any more:
// so it is done here.
func (s *Session[W, K]) release(ctx context.Context, w W, r rollout.Release) error {
	annotations := map[string]any{api.HoldAnnotation: nil}
	if !policy.Marked(w) { // then the rollout may go on
		annotations[api.RolloutAnnotation] = nil
	}
	if r.Over != "" {
		annotations[api.SaidOfAnnotation] = rollout.Over(r.Over, 0).Of().String()
	}
	if r.KeptBack != "" {
		annotations[api.HandedOverAnnotation] = r.KeptBack
	}
	written, err := s.Instruct(ctx, w, annotations)
	if err != nil && !errors.Is(err, ErrEdited) && !pods.Answered(err) {
		s.controller.awaitAnswer(w)
	}
	if err == nil && policy.Held(written) {
		err = ErrUnknown
	}
	if err == nil {
		err = s.Restore(ctx, written, s.controller.kind.Unrestored(w, written))
	}
	if err != nil {
		return fmt.Errorf("releasing the hold: %w", err)
	}
	klog.FromContext(ctx).V(2).Info("Released the hold", "handOver", r.HandOver)
	if r.HandOver != "" {
		s.RecordHandOver(w, r)
	}
	return nil
}

// awaitAnswer notes that a request to let go of w has had no answer: it may have been carried out.
func (c *Controller[W, K]) awaitAnswer(w W) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unanswered[cache.MetaObjectToName(w)] = w
}

// findOut brings back what the user wants of w, which is not held, if a request to let go of it was carried out without an answer,
// and nobody has brought that back. Then nothing but the annotation has changed, and its spec is still the one of the hold.
func (c *Controller[W, K]) findOut(ctx context.Context, w W) error {
	name := cache.MetaObjectToName(w)
	c.mu.Lock()
	held, waits := c.unanswered[name]
	c.mu.Unlock()
	if !waits || held.GetResourceVersion() == w.GetResourceVersion() { // it was not carried out, or the watch does not show that yet
		return nil
	}
	if held.GetUID() == w.GetUID() && held.GetGeneration()+c.access.AnnotationsCount == w.GetGeneration() {
		if err := c.restore(ctx, w, c.kind.Unrestored(held, w)); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unanswered, name)
	return nil
}

// Restore merges fields into w that the admission policies should have written, and have not,
// because they are not in force any more. It does nothing if there are none.
func (s *Session[W, K]) Restore(ctx context.Context, w W, fields map[string]any) error {
	return s.controller.restore(ctx, w, fields)
}

func (c *Controller[W, K]) restore(ctx context.Context, w W, fields map[string]any) error {
	if fields == nil {
		return nil
	}
	if err := unstructured.SetNestedField(fields, string(w.GetUID()), "metadata", "uid"); err != nil {
		return fmt.Errorf("naming the UID: %w", err)
	}
	// Nobody else knows any more that it was held: so it is tried again, also by a controller that is about to end.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTimeout)
	defer cancel()
	err := retry.OnError(restoreBackoff, mayPass, func() error {
		_, err := c.merge(ctx, w, fields)
		return err
	})
	if err != nil {
		return fmt.Errorf("without the admission policies: %w", err)
	}
	return nil
}

// restoreTimeout bounds a try that hangs, too.
const restoreTimeout = 30 * time.Second

// restoreBackoff is for some 25 s, as long as an API server is away that is restarted.
var restoreBackoff = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 9}

// mayPass reports whether what has failed may succeed when it is tried again: not if the object is another one or gone, or the
// request is refused.
func mayPass(err error) bool {
	return !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err)
}

// MergeStatus merges fields into the status of w. The resource version of w is a precondition.
func (s *Session[W, K]) MergeStatus(ctx context.Context, w W, fields map[string]any) error {
	_, err := s.controller.merge(ctx, w, map[string]any{
		"metadata": map[string]any{"uid": w.GetUID(), "resourceVersion": w.GetResourceVersion()}, "status": fields,
	}, "status")
	return err
}

// keep writes the record of a guarded rollout. The next plan rests on it.
func (s *Session[W, K]) keep(ctx context.Context, w W, write rollout.Keep) error {
	var text any
	if write.After != nil {
		text = write.After.String()
	}
	if _, err := s.Instruct(ctx, w, map[string]any{api.RolloutAnnotation: text}); err != nil {
		return fmt.Errorf("recording the guarded rollout: %w", err)
	}
	klog.FromContext(ctx).V(2).Info("Recorded the guarded rollout", "record", text)
	s.controller.recordGuard(w, write)
	s.losses.ToAsk(write.ToAsk()...)
	s.Requeue()
	return nil
}

func (s *Session[W, K]) showGeneration(ctx context.Context, w W, write rollout.ShowGeneration) error {
	if err := s.MergeStatus(ctx, w, map[string]any{"observedGeneration": write.Generation}); err != nil {
		return fmt.Errorf("showing the generation: %w", err)
	}
	klog.FromContext(ctx).V(2).Info("The generation counts as observed while pods are not Ready", "generation", write.Generation)
	return nil
}

// merge merges fields into w, or a subresource of it, and returns what is stored then.
func (c *Controller[W, K]) merge(ctx context.Context, w W, fields map[string]any, subresources ...string) (written W, err error) {
	patch, err := json.Marshal(fields)
	if err != nil {
		return written, fmt.Errorf("encoding a patch: %w", err)
	}
	return c.patch(ctx, w, types.MergePatchType, patch, subresources...)
}
