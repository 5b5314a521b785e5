package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// A change of nothing but the condition's message is written ProgressInterval after the last
// write, and lastInterval after it if the message is the last word for now. Of a rollout that
// only makes progress, nearly every sync has another message: one that has not lasted for
// ProgressInterval waits for longProgressInterval. So a rollout of many quick steps has two
// writes, one at its beginning and one at its end.
const (
	ProgressInterval     = 10 * time.Second
	longProgressInterval = time.Minute
	lastInterval         = time.Second
)

// writeCondition writes the plan's condition if it differs, or others are to be written beside it, and
// then records the events that go with it. The time of a transition is told by the clock of the API server, which tells
// also when others have resized a pod. It returns after which time a message that was put off is due; 0 if none was.
func (c *Controller[W, K]) writeCondition(ctx context.Context, w W, p rollout.Plan, beside ...any) (due time.Duration, err error) {
	if p.Started != "" && !p.Condition.Complete && !c.options.DryRun {
		c.begun(w)
	}
	now := metav1.NewTime(c.clock.Now())
	have, want := c.access.Condition(w), p.Condition.Stored(*cmp.Or(written(w), &now))
	if have != nil && have.Status == want.Status {
		if !have.Pending() {
			want.LastTransitionTime = have.LastTransitionTime
		}
		if have.Reason == want.Reason && len(beside) == 0 {
			if have.Message == want.Message && w.GetAnnotations()[api.SaidOfAnnotation] == want.Of.String() {
				c.upToDate(w)
				return 0, nil
			}
			if due := c.messageDue(w, p); due > 0 {
				return due, nil
			}
		}
	}
	if c.options.DryRun {
		klog.FromContext(ctx).Info("Would write the condition", "status", want.Status, "reason", want.Reason, "message", want.Message)
		return 0, nil
	}
	if err := c.putConditions(ctx, w, metadataOf(w, p.Condition), append([]any{c.access.NewCondition(want, now)}, beside...)...); err != nil {
		return 0, err
	}
	c.recordCondition(w, have, p)
	c.wroteMessage(w)
	return 0, nil
}

// putConditions writes conditions of the workload, with this metadata.
func (c *Controller[W, K]) putConditions(ctx context.Context, w W, metadata map[string]any, conditions ...any) error {
	patch, err := json.Marshal(map[string]any{"metadata": metadata, "status": map[string]any{"conditions": conditions}})
	if err != nil {
		return fmt.Errorf("encoding the condition: %w", err)
	}
	if _, err := c.patch(ctx, w, types.StrategicMergePatchType, patch, "status"); err != nil {
		return fmt.Errorf("writing the condition: %w", err)
	}
	return nil
}

// metadataOf is what a write of the condition says of the workload: which one it is about, and what the condition speaks of.
func metadataOf(w metav1.Object, c rollout.Condition) map[string]any {
	metadata := map[string]any{"uid": w.GetUID()}
	if c.Complete {
		// It is true of this version of the workload, and not after an edit in between.
		metadata["resourceVersion"] = w.GetResourceVersion()
	}
	annotations := map[string]any{}
	said, is := w.GetAnnotations()[api.SaidOfAnnotation]
	if of := c.Of().String(); of != "" && of != said {
		annotations[api.SaidOfAnnotation] = of
	} else if of == "" && is {
		annotations[api.SaidOfAnnotation] = nil
	}
	if _, marked := w.GetAnnotations()[api.NotHeldAnnotation]; marked && c.Complete {
		annotations[api.NotHeldAnnotation] = nil
	}
	if policy.Recorded(w) && c.Phase == rollout.PhaseOver { // under OnDelete; else it has gone with the hold
		annotations[api.RolloutAnnotation] = nil
	}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	return metadata
}

// withdraw takes our conditions from a workload that has been opted out. Nobody would bring them up to date any more: whoever
// waits for Complete would wait for ever, or go on in the middle of the next rollout. It returns after which time to look again:
// the StatefulSet controller may write conditions back that it read before.
func (c *Controller[W, K]) withdraw(ctx context.Context, name cache.ObjectName) (again time.Duration, err error) {
	w, err := c.access.Get(ctx, name)
	switch {
	case apierrors.IsNotFound(err), err == nil && (policy.Enabled(w) || w.GetDeletionTimestamp() != nil):
		c.noteWithdrawn(name, time.Time{})
		return 0, nil
	case apierrors.IsForbidden(err): // the ClusterRole is older than this controller
		klog.FromContext(ctx).Info("No right to read a workload that might have been opted out: its condition stays for now", "err", err)
		return maxRetryInterval, nil
	case err != nil:
		return 0, fmt.Errorf("reading a workload that might have been opted out: %w", err)
	case !c.says(w):
		return c.withdrawnFor(name, c.access.Observed(w)), nil
	case strings.HasPrefix(w.GetAnnotations()[api.SaidOfAnnotation], rollout.OverUnnamed) && !c.access.Observed(w):
		return ProgressInterval, nil // whoever opts in again needs it
	case c.options.DryRun:
		klog.FromContext(ctx).Info("Would take the condition away")
		return 0, nil
	}
	var gone []any
	for _, kind := range []string{api.ConditionComplete, api.ConditionObserved} {
		gone = append(gone, map[string]any{"$patch": "delete", "type": kind})
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": w.GetUID(), "resourceVersion": w.GetResourceVersion(), "annotations": map[string]any{api.SaidOfAnnotation: nil}},
		"status":   map[string]any{"conditions": gone},
	})
	if err != nil {
		return 0, fmt.Errorf("encoding the patch: %w", err)
	}
	if _, err := c.access.Patch(ctx, w, types.StrategicMergePatchType, patch, "status"); err != nil {
		return 0, fmt.Errorf("taking the condition away: %w", err)
	}
	klog.FromContext(ctx).V(2).Info("Took the condition away: the workload is not opted in any more")
	c.noteWithdrawn(name, c.clock.Now())
	return ProgressInterval, nil
}

// says reports whether there is anything in w that withdraw takes away.
func (c *Controller[W, K]) says(w W) bool {
	_, said := w.GetAnnotations()[api.SaidOfAnnotation]
	return said || c.access.HasConditions(w)
}

// noteWithdrawn notes when our conditions were taken away; with no time, that nobody need look whether they come back.
func (c *Controller[W, K]) noteWithdrawn(name cache.ObjectName, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at.IsZero() {
		delete(c.withdrawn, name)
		return
	}
	c.withdrawn[name] = at
}

// withdrawnFor returns for how long to look whether conditions that we took away come back; 0 if that is over, which it is not before the
// built-in controller has observed the workload. The queue forgets a later look when an earlier one is due, so each look asks for the last
// one again.
func (c *Controller[W, K]) withdrawnFor(name cache.ObjectName, observed bool) time.Duration {
	c.mu.Lock()
	at, is := c.withdrawn[name]
	c.mu.Unlock()
	left := max(at.Add(ProgressInterval).Sub(c.clock.Now()), 0)
	switch {
	case left > 0 || !is:
	case observed:
		c.noteWithdrawn(name, time.Time{})
	default:
		left = ProgressInterval
	}
	return left
}

// findOptedOut requeues the workloads that were opted out while no controller led: they still have our conditions, and the watch
// does not show them.
func (c *Controller[W, K]) findOptedOut(ctx context.Context) {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return c.access.List(ctx, c.options.Namespace, o)
	})
	pages.PageBufferSize = 0 // most of what is read is nobody's concern
	notOptedIn := metav1.ListOptions{LabelSelector: api.EnabledLabel + "!=true"}
	_ = wait.PollUntilContextCancel(ctx, maxRetryInterval, true, func(ctx context.Context) (done bool, _ error) {
		err := pages.EachListItem(ctx, notOptedIn, func(obj runtime.Object) error {
			w, err := c.access.Decode(obj)
			if err == nil && c.says(w) {
				c.queue.Add(cache.MetaObjectToName(w))
			}
			return err
		})
		if err != nil {
			klog.FromContext(ctx).Error(err, "Could not look for workloads that have been opted out", "kind", c.access.Kind)
		}
		return err == nil, nil
	})
}

// message is what is known of the messages of a workload's condition.
type message struct {
	wrote time.Time       // when the last one was written
	held  bool            // whether the workload was held then
	next  string          // that is to be written; empty if none is
	since time.Time       // since when
	left  rollout.Version // that was handed over since
}

// messageDue returns for how long a new message is still put off where nothing else of the
// condition changes; 0 or less if it is due. The first message after a hold is due at once.
// One of progress is due when it has lasted: then something may stand still, unless a held
// rollout only waits for other controllers for a moment. If the workload is Complete, a new
// message has to last, too: a pod that goes and comes back is not worth two writes. Where only the annotation beside it is another
// one, it is written once a minute at most.
func (c *Controller[W, K]) messageDue(w W, p rollout.Plan) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	name, next := cache.MetaObjectToName(w), p.Condition.Told()
	m, now, have := c.messages[name], c.clock.Now(), c.access.Condition(w)
	if m.next != next {
		m.next, m.since = next, now
		c.messages[name] = m
	}
	lasted, long := m.since.Add(ProgressInterval).Sub(now), m.wrote.Add(longProgressInterval).Sub(now)
	switch {
	case m.held && !policy.Held(w), p.Urgency == rollout.AtOnce:
		return 0
	case have != nil && have.Message == next: // whoever takes the annotation away may do so again and again
		return long
	case p.LastWord():
		return m.wrote.Add(lastInterval).Sub(now)
	case p.Condition.Complete:
		return min(lasted, long)
	case p.Condition.Reason == judge.ReasonProgressing && p.Urgency == rollout.Later && policy.Held(w):
		return long
	case p.Condition.Reason == judge.ReasonProgressing:
		return min(lasted, long)
	default: // pods wait for something
		return m.wrote.Add(ProgressInterval).Sub(now)
	}
}

// upToDate notes that there is nothing to write.
func (c *Controller[W, K]) upToDate(w W) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := cache.MetaObjectToName(w)
	if m, is := c.messages[name]; is {
		m.next = ""
		c.messages[name] = m
	}
}

func (c *Controller[W, K]) wroteMessage(w W) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.messages[cache.MetaObjectToName(w)] = message{wrote: c.clock.Now(), held: policy.Held(w)}
}
