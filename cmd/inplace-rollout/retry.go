package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/workload"
)

// retryOptions are the arguments of the retry command.
type retryOptions struct {
	*cluster
	action string
}

// actions that a rollout can be retried with.
var actions = []string{string(policy.Restart), string(policy.LiveResize), string(policy.LiveResizePreferred)}

func newRetryCommand() *cobra.Command {
	o := retryOptions{cluster: newCluster()}
	cmd := &cobra.Command{
		Use:   "retry TYPE/NAME [--action=ACTION]",
		Short: "Try again at once what a rollout was refused, or has put off or left",
		Long: `Try again at once what a rollout was refused, or has put off or left, and begin its
deadlines anew: as when a node has got more room, or a quota was raised.

With --action, that one is in force for the rest of the rollout, whatever came with the
edit: LiveResizePreferred lets a rollout restart pods that was begun with LiveResize and
cannot go on. The annotations of action and policy stay as they are, for the next edit.

Pods that are done are not touched; where no rollout is in flight, it says so. The
controller, if it does not run now, does it when it does.`,
		Example: `  # A quota was raised: do not wait until it is noticed
  inplace-rollout retry sts/db

  # Now pods may be restarted
  inplace-rollout retry deployment/web --action=LiveResizePreferred`,
		ValidArgsFunction: o.completeWorkload(workload.Held),
		SilenceUsage:      true,
		Args:              cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.action != "" && !slices.Contains(actions, o.action) {
				return fmt.Errorf("--action is %q: want %s", o.action, strings.Join(actions, ", "))
			}
			if err := o.connect(); err != nil {
				return err
			}
			if err := o.warn(cmd.Context(), cmd.ErrOrStderr(), o.namespace); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), args)
		},
	}
	cmd.Flags().StringVar(&o.action, "action", "", "what is in force for the rest of the rollout: "+strings.Join(actions, ", ")+"; empty leaves it")
	o.flags.AddFlags(cmd.PersistentFlags())
	o.completeFlags(cmd)
	completeFlag(cmd, "action", cobra.FixedCompletions(actions, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o retryOptions) run(ctx context.Context, out io.Writer, args []string) error {
	u, err := o.named(args)
	if err != nil {
		return err
	}
	if nothing, err := retriable(u); err != nil || nothing != "" {
		_, printErr := fmt.Fprint(out, nothing)
		return errors.Join(err, printErr)
	}
	var after *unstructured.Unstructured
	err = o.unlessEdited(ctx, u, func(u *unstructured.Unstructured) (err error) {
		after, err = o.ask(ctx, u)
		return err
	})
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w\nYou need get and patch for statefulsets and deployments (apps)", err)
	}
	if err != nil {
		return fmt.Errorf("retrying %s: %w", nameOf(u), err)
	}
	said := "what was refused, put off or left is tried again"
	if o.action != "" {
		if inForce, _, _ := strings.Cut(after.GetAnnotations()[api.InForceAnnotation], ";"); inForce != o.action {
			return fmt.Errorf("retrying %s: the action %s was not put in force: its rollout has just ended, or the admission policies are missing or older", nameOf(u), o.action)
		}
		said += ", and " + o.action + " is in force"
	}
	_, err = fmt.Fprintf(out, "%s: %s\n", nameOf(u), said)
	return err
}

// retriable tells why there is nothing to try again: it is done already, or it is an error.
func retriable(u *unstructured.Unstructured) (nothing string, err error) {
	r := statusReport{OptedIn: workload.Enabled(u), Held: workload.Held(u)}
	r.readCondition(u)
	strategy, _, _ := unstructured.NestedString(u.Object, "spec", "updateStrategy", "type")
	onDelete := strategy == string(appsv1.OnDeleteStatefulSetStrategyType)
	switch {
	case !r.OptedIn:
		return "", fmt.Errorf("%s is not opted in: label it with %s=true to have it rolled out in place", nameOf(u), api.EnabledLabel)
	case r.Held || onDelete && !r.Complete:
		return "", nil
	case r.Complete:
		return fmt.Sprintf("%s has no rollout in flight: %s\n", nameOf(u), r.Message), nil
	default:
		return "", fmt.Errorf("%s has no rollout that is made in place: %s", nameOf(u), r.Message)
	}
}

// ask asks for it, as `kubectl annotate` could.
func (o retryOptions) ask(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	value := time.Now().UTC().Format(time.RFC3339Nano)
	if o.action != "" {
		value += ";" + o.action
	}
	return o.patch(ctx, u, map[string]any{"metadata": map[string]any{
		"uid": u.GetUID(), "resourceVersion": u.GetResourceVersion(), "annotations": map[string]any{api.RetryAnnotation: value},
	}}, api.FieldManager+"-retry")
}
