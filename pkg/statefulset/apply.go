package statefulset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// maxAskInterval bounds how long a refused size is not asked for again, and so how
// long after its obstacle is gone a rollout goes on: nothing tells of a larger quota.
const maxAskInterval = 30 * time.Second

// progressInterval is how often at most a mere message of the condition is written.
const progressInterval = 10 * time.Second

// apply carries the plan out: it tells what was observed, and then takes the
// step. It returns when to look again.
func (c *Controller) apply(ctx context.Context, s *session, set *appsv1.StatefulSet, p plan) (time.Duration, error) {
	if c.options.DryRun {
		logPlan(ctx, p)
		return p.After, nil
	}
	if !p.Release {
		told, err := c.tell(ctx, set, p)
		if err != nil {
			return 0, err
		}
		p.LookAfter(told)
		c.waitEvents(s, set, p.Waits)
	}
	var failed []error
	for _, m := range p.Settle {
		failed = append(failed, c.settle(ctx, s, set, m))
	}
	for _, m := range p.Resize {
		failed = append(failed, c.resize(ctx, s, set, m))
	}
	for _, restart := range p.Delete {
		failed = append(failed, c.deleteStuck(ctx, set, restart))
	}
	if p.movesPartition() {
		failed = append(failed, c.movePartition(ctx, set, p))
	}
	return p.After, errors.Join(failed...)
}

func logPlan(ctx context.Context, p plan) {
	klog.FromContext(ctx).Info("Would take the next step", "resize", names(p.Resize), "settle", names(p.Settle),
		"restart", restarts(p.Restart), "delete", restarts(p.Delete), "partition", p.Partition, "release", p.Release,
		"reason", p.Condition.Reason, "message", p.Condition.Message)
}

func names(members []rollout.Member) []string {
	list := make([]string, len(members))
	for i, m := range members {
		list[i] = m.Name
	}
	return list
}

func restarts(list []rollout.Restart) []string {
	said := make([]string, len(list))
	for i, r := range list {
		said[i] = r.Member.Name + ": " + r.Reason
	}
	return said
}

// resize asks for the pod's new size. The API server's final refusal is kept, so
// that the next plan takes the pod for one that cannot be resized; a controller
// that is restarted meanwhile hears it again.
func (c *Controller) resize(ctx context.Context, s *session, set *appsv1.StatefulSet, m rollout.Member) error {
	resized, err := pods.Resize(ctx, c.client.CoreV1(), m.Pod, m.Target)
	if err != nil {
		return c.refused(s, set, m, err)
	}
	s.watch.Wrote(resized)
	if r := s.refusals[m.Pod.UID]; r != nil && !r.Final {
		delete(s.refusals, m.Pod.UID)
	}
	if left, err := resize.Leftover(resized, &set.Spec.Template); err == nil && len(left.Changes) > 0 {
		told := resize.Describe(left.Changes)
		s.refuse(m.Pod.UID, askedSize(set, left.Changes), "another admission plugin changed the size on its way: "+told, true, c.clock.Now())
	}
	klog.FromContext(ctx).V(2).Info("Asked for a resize", "pod", m.Name, "changes", resize.Describe(m.Target.Changes))
	return nil
}

// refused keeps what the API server said, unless it was only that the pod has
// changed: the next plan knows what to make of it, and when to ask again.
func (c *Controller) refused(s *session, set *appsv1.StatefulSet, m rollout.Member, err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return err
	}
	reason, final := pods.Refusal(err)
	s.refuse(m.Pod.UID, askedSize(set, m.Target.Changes), reason, final, c.clock.Now())
	c.queue.Add(nameOf(set))
	return nil
}

// refuse keeps a refusal and doubles the time until the pod's size is asked for
// again, from a second to maxAskInterval.
func (s *session) refuse(pod types.UID, size, reason string, final bool, now time.Time) {
	r := s.refusals[pod]
	if r == nil || r.size != size {
		r = &refusal{size: size, backoff: backoff.NewExponentialBackOff(
			backoff.WithInitialInterval(time.Second), backoff.WithMultiplier(2), backoff.WithMaxInterval(maxAskInterval), backoff.WithMaxElapsedTime(0))}
		s.refusals[pod] = r
	}
	r.Refusal = rollout.Refusal{Reason: reason, Final: final, Until: now.Add(r.backoff.NextBackOff())}
}

func (c *Controller) settle(ctx context.Context, s *session, set *appsv1.StatefulSet, m rollout.Member) error {
	revision := set.Status.UpdateRevision
	settled, err := pods.Relabel(ctx, c.client.CoreV1(), m.Pod, revision)
	if err != nil {
		return err
	}
	s.watch.Wrote(settled)
	klog.FromContext(ctx).V(2).Info("Resized a pod", "pod", m.Name, "revision", revision)
	c.eventBoth(set, m.Pod, corev1.EventTypeNormal, rollout.EventResized, fmt.Sprintf("resized in place to revision %s: %s", revision, m.Brings))
	return nil
}

func (c *Controller) deleteStuck(ctx context.Context, set *appsv1.StatefulSet, r rollout.Restart) error {
	pod := r.Member.Pod
	if err := pods.Delete(ctx, c.client.CoreV1(), pod); err != nil {
		return err
	}
	c.eventBoth(set, pod, corev1.EventTypeNormal, rollout.EventRestart, "deleted, because only a new pod can help: "+r.Reason)
	return nil
}

// movePartition lowers the partition, or lets go of the hold. The set's resource
// version is a precondition: the plan was made for this version of it.
func (c *Controller) movePartition(ctx context.Context, set *appsv1.StatefulSet, p plan) error {
	annotations := map[string]any{}
	if p.Release {
		annotations[api.HoldAnnotation] = nil
	} else {
		annotations[api.PartitionAnnotation] = strconv.Itoa(*p.Partition)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": set.UID, "resourceVersion": set.ResourceVersion, "annotations": annotations,
	}})
	if err != nil {
		return fmt.Errorf("encoding the partition: %w", err)
	}
	written, err := c.client.AppsV1().StatefulSets(set.Namespace).Patch(ctx, set.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: api.FieldManager})
	if err != nil {
		return fmt.Errorf("moving the partition: %w", err)
	}
	c.sets.Mutation(written)
	logger := klog.FromContext(ctx)
	if p.Release {
		logger.V(2).Info("Let go of the hold", "partition", partition(written), "handOver", p.HandOver)
		if p.HandOver != "" {
			c.recorder.Eventf(set, corev1.EventTypeNormal, rollout.EventHandedOver,
				"left to the StatefulSet controller, revision %s: %s", set.Status.UpdateRevision, p.HandOver)
		}
		return nil
	}
	logger.V(2).Info("Moved the partition", "partition", partition(written))
	for _, restart := range p.Restart {
		if pod := restart.Member.Pod; pod != nil {
			c.eventBoth(set, pod, corev1.EventTypeNormal, rollout.EventRestart, "restarted by the StatefulSet controller: "+restart.Reason)
		}
	}
	return nil
}

// tell writes the plan's condition if it differs, and then the events that go
// with it. It returns when a message that was not written yet is due.
func (c *Controller) tell(ctx context.Context, set *appsv1.StatefulSet, p plan) (time.Duration, error) {
	if c.options.DryRun {
		return 0, nil
	}
	now := metav1.NewTime(c.clock.Now())
	want := appsv1.StatefulSetCondition{
		Type: api.ConditionComplete, Status: corev1.ConditionFalse, LastTransitionTime: now,
		Reason: p.Condition.Reason, Message: p.Condition.Message,
	}
	if p.Condition.Complete {
		want.Status = corev1.ConditionTrue
	}
	have := condition(set)
	if have != nil && have.Status == want.Status {
		if !have.LastTransitionTime.IsZero() {
			want.LastTransitionTime = have.LastTransitionTime
		}
		if have.Reason == want.Reason {
			if have.Message == want.Message {
				return 0, nil
			}
			if due := c.messageDue(set); due > 0 {
				return due, nil
			}
		}
	}
	metadata := map[string]any{"uid": set.UID}
	if p.Condition.Complete {
		// True of this version of the set; an edit in between would make it a lie.
		metadata["resourceVersion"] = set.ResourceVersion
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": metadata,
		"status":   map[string]any{"conditions": []appsv1.StatefulSetCondition{want}},
	})
	if err != nil {
		return 0, fmt.Errorf("encoding the condition: %w", err)
	}
	written, err := c.client.AppsV1().StatefulSets(set.Namespace).Patch(ctx, set.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{FieldManager: api.FieldManager}, "status")
	if err != nil {
		return 0, fmt.Errorf("writing the condition: %w", err)
	}
	c.sets.Mutation(written)
	c.wroteMessage(set)
	c.conditionEvents(set, have, p)
	return 0, nil
}

// conditionEvents tells of what the written condition has changed.
func (c *Controller) conditionEvents(set *appsv1.StatefulSet, before *appsv1.StatefulSetCondition, p plan) {
	fresh := before == nil || before.Reason == rollout.ReasonPending || before.Status == corev1.ConditionTrue
	if p.Condition.Complete {
		if before == nil || before.Status != corev1.ConditionTrue {
			c.recorder.Event(set, corev1.EventTypeNormal, rollout.EventComplete, p.Condition.Message)
		}
		return
	}
	if fresh && p.Total > 0 {
		c.recorder.Eventf(set, corev1.EventTypeNormal, rollout.EventStarted, "revision %s: %s", set.Status.UpdateRevision, p.Changes)
	}
	if !fresh && before.Reason == p.Condition.Reason {
		return
	}
	if p.Condition.Reason == rollout.ReasonInvalidPolicy {
		c.recorder.Event(set, corev1.EventTypeWarning, rollout.EventInvalidPolicy, p.Condition.Message)
	}
}

// waitEvents tells of each pod once what it waits for, if that is more than progress.
func (c *Controller) waitEvents(s *session, set *appsv1.StatefulSet, waits []rollout.Wait) {
	for _, w := range waits {
		if w.Member.Pod == nil || s.told[w.Member.Pod.UID] == w.Reason {
			continue
		}
		if event, worth := eventOfWait[w.Reason]; worth {
			s.told[w.Member.Pod.UID] = w.Reason
			c.eventBoth(set, w.Member.Pod, event.eventType, event.reason, w.Message)
		}
	}
}

// eventOfWait are the events of waits that are more than progress.
var eventOfWait = map[string]struct{ eventType, reason string }{
	rollout.ReasonDeferred:         {corev1.EventTypeNormal, rollout.EventDeferred},
	rollout.ReasonInfeasible:       {corev1.EventTypeWarning, rollout.EventInfeasible},
	rollout.ReasonResizeError:      {corev1.EventTypeWarning, rollout.EventResizeError},
	rollout.ReasonQuotaExceeded:    {corev1.EventTypeWarning, rollout.EventResizeError},
	rollout.ReasonNoNodeFits:       {corev1.EventTypeWarning, rollout.EventNoNodeFits},
	rollout.ReasonWaitingForDelete: {corev1.EventTypeNormal, rollout.EventWaitingForDelete},
}

// eventBoth tells of a pod on the pod, and on the set with the pod's name.
func (c *Controller) eventBoth(set *appsv1.StatefulSet, pod *corev1.Pod, eventType, reason, message string) {
	c.recorder.Event(pod, eventType, reason, message)
	if !strings.HasPrefix(message, pod.Name) {
		message = pod.Name + ": " + message
	}
	c.recorder.Event(set, eventType, reason, message)
}

// messageDue is how long a mere message must still wait to be written.
func (c *Controller) messageDue(set *appsv1.StatefulSet) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.told[nameOf(set)].Add(progressInterval).Sub(c.clock.Now())
}

func (c *Controller) wroteMessage(set *appsv1.StatefulSet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told[nameOf(set)] = c.clock.Now()
}

func nameOf(set *appsv1.StatefulSet) cache.ObjectName { return cache.MetaObjectToName(set) }
