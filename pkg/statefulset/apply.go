package statefulset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/pkg/workload"
)

// apply carries the plan out: it tells what was observed, and then takes the
// step. It returns when to look again.
func (c *Controller) apply(ctx context.Context, s *session, set *appsv1.StatefulSet, p plan) (time.Duration, error) {
	if c.Options.DryRun {
		logPlan(ctx, p)
		return p.After, nil
	}
	if !p.Release {
		c.NameOthers(s, set, p.Members, &p.Condition)
		told, err := c.Tell(ctx, set, p.news(set))
		if err != nil {
			return 0, err
		}
		p.LookAfter(told)
		c.TellWaits(s, set, p.Waits)
	}
	var failed []error
	for _, m := range p.Settle {
		failed = append(failed, c.settle(ctx, s, set, m))
	}
	for _, m := range p.Resize {
		failed = append(failed, c.Resize(ctx, s, set, m, set.Status.UpdateRevision, &set.Spec.Template))
	}
	for _, restart := range p.Delete {
		failed = append(failed, c.deleteStuck(ctx, set, restart))
	}
	if p.movesPartition() {
		later, err := c.LetGo(set, s, func() error { return c.movePartition(ctx, set, p) })
		p.LookAfter(later)
		failed = append(failed, err)
	}
	return p.After, errors.Join(failed...)
}

func logPlan(ctx context.Context, p plan) {
	klog.FromContext(ctx).Info("Would take the next step", "resize", rollout.Names(p.Resize), "settle", rollout.Names(p.Settle),
		"restart", rollout.Reasons(p.Restart), "delete", rollout.Reasons(p.Delete), "partition", p.Partition, "release", p.Release,
		"reason", p.Condition.Reason, "message", p.Condition.Message)
}

func (c *Controller) settle(ctx context.Context, s *session, set *appsv1.StatefulSet, m rollout.Member) error {
	revision := set.Status.UpdateRevision
	settled, err := pods.Relabel(ctx, c.Client.CoreV1(), m.Pod, revision)
	if err != nil {
		return err
	}
	s.Pods.Wrote(settled)
	klog.FromContext(ctx).V(2).Info("Resized a pod", "pod", m.Name, "revision", revision)
	if changes, is := s.Resized(m.Pod.UID); is {
		c.TellResized(set, m.Pod, m.Target.Resized, fmt.Sprintf("resized in place to revision %s: %s", revision, changes))
	} else {
		c.EventBoth(set, m.Pod, corev1.EventTypeNormal, rollout.EventResized, "has the size of revision "+revision+" already")
	}
	return nil
}

func (c *Controller) deleteStuck(ctx context.Context, set *appsv1.StatefulSet, r rollout.Restart) error {
	if err := pods.Delete(ctx, c.Client.CoreV1(), r.Member.Pod); err != nil {
		return err
	}
	c.TellRestart(set, r, "deleted, because only a new pod can help")
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
	written, err := c.Patch(ctx, set, types.MergePatchType, patch)
	if err != nil {
		return fmt.Errorf("moving the partition: %w", err)
	}
	if workload.Held(written) && !equality.Semantic.DeepEqual(written.Spec.Template, set.Spec.Template) {
		return fmt.Errorf("moving the partition: %w", workload.ErrEdited)
	}
	if err := c.afterPolicy(ctx, written, p, WishedPartition(set)); err != nil {
		return err
	}
	logger := klog.FromContext(ctx)
	if p.Release {
		logger.V(2).Info("Let go of the hold", "handOver", p.HandOver)
		if p.HandOver != "" {
			c.TellHandOver(set, fmt.Sprintf("left to the StatefulSet controller, revision %s: %s", set.Status.UpdateRevision, p.HandOver))
		}
		return nil
	}
	logger.V(2).Info("Moved the partition", "partition", *p.Partition)
	for _, restart := range p.ByPartition {
		c.TellRestart(set, restart, "restarted by the StatefulSet controller")
	}
	return nil
}

// afterPolicy makes good what the admission policy has not done, because it was
// deleted a moment ago: the partition is not left as held, with nobody to tell what
// the user wants, nor the request to lower it as it came. It is an error if the policy
// has not done what the plan asks for.
func (c *Controller) afterPolicy(ctx context.Context, written *appsv1.StatefulSet, p plan, wish int) error {
	_, stored := written.Annotations[api.PartitionAnnotation]
	fields := map[string]any{"metadata": map[string]any{"uid": written.UID, "annotations": map[string]any{api.PartitionAnnotation: nil}}}
	switch {
	case p.Release && workload.Held(written), !p.Release && !stored && partition(written) != *p.Partition:
		return fmt.Errorf("moving the partition: %w", workload.ErrUnknown)
	case p.Release && rolling(written) && partition(written) != wish:
		fields["spec"] = map[string]any{"updateStrategy": map[string]any{"rollingUpdate": map[string]any{"partition": wish}}}
	case !stored:
		return nil
	}
	patch, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("encoding the partition: %w", err)
	}
	if _, err := c.Patch(ctx, written, types.MergePatchType, patch); err != nil {
		return fmt.Errorf("moving the partition without the admission policy: %w", err)
	}
	if !p.Release {
		return errors.New("moving the partition: the admission policy is not in force")
	}
	return nil
}
