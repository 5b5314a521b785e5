package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// promoteOptions are the arguments of the promote command.
type promoteOptions struct{ *cluster }

func newPromoteCommand() *cobra.Command {
	o := promoteOptions{cluster: newCluster()}
	cmd := &cobra.Command{
		Use:   "promote TYPE/NAME",
		Short: "End the canary of a guarded rollout: the other pods follow",
		Long: `End the canary of a guarded rollout: the other pods follow at once, even if its duration
is not over. A Deployment restarts pods only when the duration is over, or, if the edit
restarts all of them, as the Deployment controller does. The workload needs the annotation
` + api.CanaryAnnotation + ` and a canary that is under way. The next edit has a
canary of its own.

A rollout that was stopped because a pod failed cannot be promoted. Use retry. Where its
checks cannot be asked, no pod follows.`,
		Example: `  # The first pod runs well at its new size
  inplace-rollout promote sts/db

  # The same for a Deployment
  inplace-rollout promote deployment/web`,
		ValidArgsFunction: o.completeWorkload(policy.Recorded),
		SilenceUsage:      true,
		Args:              cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.connect(); err != nil {
				return err
			}
			if err := o.warn(cmd.Context(), cmd.ErrOrStderr(), o.namespace); err != nil {
				return err
			}
			u, err := o.named(args)
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), u)
		},
	}
	o.flags.AddFlags(cmd.PersistentFlags())
	o.completeFlags(cmd)
	return cmd
}

func (o promoteOptions) run(ctx context.Context, out io.Writer, u *unstructured.Unstructured) error {
	var canary *rollout.Record
	over := "is over"
	err := o.unlessEdited(ctx, u, func(u *unstructured.Unstructured) (err error) {
		if canary, err = canaryOf(u); err == nil && (canary.Promoted || canary.PromotedBy(u.GetAnnotations())) {
			over = "was promoted already"
		} else if err == nil {
			_, err = o.patch(ctx, u, map[string]any{"metadata": map[string]any{
				"uid": u.GetUID(), "resourceVersion": u.GetResourceVersion(), "annotations": map[string]any{api.PromoteAnnotation: canary.Name()},
			}}, api.FieldManager+"-promote")
		}
		return err
	})
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w\nYou need get and patch for %s", err, everyResource)
	}
	if err != nil {
		return fmt.Errorf("promoting %s: %w", nameOf(u), err)
	}
	_, err = fmt.Fprintf(out, "%s: its canary %s, %s\n", nameOf(u), over, o.follow(ctx, u))
	return err
}

// follow says whether the other pods do.
func (o promoteOptions) follow(ctx context.Context, u *unstructured.Unstructured) string {
	settings, err := policy.InForce(u.GetAnnotations())
	if err == nil && settings.Guard != nil {
		if why := o.told(ctx, u.GetNamespace()).unanswerable(settings.Guard.Checks); why != "" {
			return "but no other pod is resized before the checks are mended: " + why
		}
	}
	if !o.hasController(ctx, u.GetNamespace()) {
		return "and the other pods follow when a controller is ready"
	}
	restarts := settings.Action == policy.Restart || o.told(ctx, u.GetNamespace()).defaults.ResizePolicy == policy.RestartOnly ||
		strings.Contains(policy.AnnotationsInForce(u.GetAnnotations())[api.ResizePolicyAnnotation], string(policy.RestartOnly))
	switch {
	case restarts && strategyOf(u) == string(appsv1.OnDeleteStatefulSetStrategyType):
		return "and the other pods follow, those that only a restart helps when they are deleted"
	case restarts && kindOf(u) == deployments:
		return "and the other pods follow, those that are restarted when it has been Ready for its duration"
	}
	return "and the other pods follow as soon as they can: see status"
}

// canaryOf returns the record of the guarded rollout whose canary is under way, or was promoted. It is an error if there is none, or a
// pod has failed.
func canaryOf(u *unstructured.Unstructured) (*rollout.Record, error) {
	switch r, err := rollout.ReadRecord(u.GetAnnotations()); {
	case err != nil:
		return nil, err
	case r.Stopped():
		return nil, fmt.Errorf("a pod has failed: %s\nUse retry to try it again", r.Failed)
	case r == nil || r.Phase != rollout.PhaseCanary && (r.Phase != rollout.PhaseRolling || !r.Promoted):
		said := statusReport{OptedIn: policy.Enabled(u), Held: policy.Held(u)}
		said.readCondition(u)
		return nil, fmt.Errorf("it has no canary under way: %s", said.Message)
	default:
		return r, nil
	}
}
