package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// leaveOut leaves a workload in whose namespace edits are not held to the built-in controller, as one that is not opted in, and
// says so in its condition. A hold that is still there from before is let go: nobody would go on with it. Under the action
// LiveResize that would restart pods, for which only the user can ask; it stays. So it does where a guarded rollout has yet to prove
// the size, or has failed with it: all pods would get it.
func (c *Controller[W, K]) leaveOut(ctx context.Context, w W) error {
	name, because := cache.MetaObjectToName(w), ""
	if policy.Held(w) {
		settings, err := policy.InForce(w.GetAnnotations())
		unproved, unread := rollout.Unproved(w.GetAnnotations())
		switch {
		case err != nil:
			because = err.Error()
		case settings.Action == policy.LiveResize:
			because = "its action is LiveResize"
		case unproved != nil || unread != nil:
			because = "the size has failed, or its canary has not proved it"
		default:
			return c.letGoLeftOut(ctx, w)
		}
	} else if err := c.cleanUp(ctx, name); err != nil {
		return err
	}
	c.abandon(name)
	_, err := c.writeCondition(ctx, w, rollout.Plan{Condition: rollout.LeftOut(c.access.Kind, w.GetNamespace(), because)})
	return err
}

// letGoLeftOut lets go of a hold, and brings back what the user wants, in one write: no policy adds the rest. The namespace may
// be left out no more, and then the hold is a new one.
func (c *Controller[W, K]) letGoLeftOut(ctx context.Context, w W) error {
	if still, err := c.options.LeftOutNow(ctx, w.GetNamespace()); err != nil || !still {
		return err
	}
	why := rollout.LeftOut(c.access.Kind, w.GetNamespace(), "").Message()
	release := rollout.Release{HandOver: why, To: c.kind.BuiltInStatus(w).HandedOver}
	if c.options.DryRun {
		logWrites(ctx, release)
		return nil
	}
	fields := map[string]any{}
	if spec, is := c.kind.Unrestored(w, w)["spec"]; is {
		fields["spec"] = spec
	}
	fields["metadata"] = map[string]any{
		"uid": w.GetUID(), "resourceVersion": w.GetResourceVersion(),
		"annotations": map[string]any{api.HoldAnnotation: nil, api.PartitionAnnotation: nil, api.RolloutAnnotation: nil},
	}
	if _, err := c.merge(ctx, w, fields); err != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Released the hold", "handOver", why)
	c.begun(w)
	c.ended(cache.MetaObjectToName(w), resultHandedOver, 0)
	c.recorder.Event(w, corev1.EventTypeWarning, judge.EventHandedOver, release.To.Because(why).Message())
	return nil
}
