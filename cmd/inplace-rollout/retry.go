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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// retryOptions are the arguments of the retry command.
type retryOptions struct {
	*cluster
	allNamespaces bool
	selector      string
	action        string
	stopped       bool
}

func newRetryCommand() *cobra.Command {
	o := retryOptions{cluster: newCluster()}
	cmd := &cobra.Command{
		Use:   "retry (TYPE/NAME | -A | -l SELECTOR)",
		Short: "Retry failed or deferred resizes now",
		Long: `Retry failed or deferred resizes now, and pods that were left as they are. The deadlines
of the rollout start again. Use it when a node has more room, or a quota was raised.

With --action, this action is in force for the rest of the rollout. For example, a stuck
rollout with LiveResize can restart pods after --action=LiveResizePreferred. The
annotations stay as they are, for the next edit.

Pods that are done are not touched. If no rollout is in flight, the command says so. With
-A it retries all rollouts in flight; with -l, those in the namespace that the selector
selects. It leaves guarded rollouts alone that were stopped, unless you name one, or
--stopped is given. While no controller is ready, it is an error where any write would end the
hold; other rollouts are retried when one is ready.

By hand, give the annotation inplace-rollout.io/retry any new value, such as now, or
now;Restart with an action. A guarded rollout that was stopped is retried only by its
name, so that no manifest that was saved before does it: of@since, as the annotation
inplace-rollout.io/rollout says them.`,
		Example: `  # A quota was raised: do not wait until the controller notices
  inplace-rollout retry sts/db

  # There are new nodes: retry everything that waits for room
  inplace-rollout retry -A

  # Now the rollout can restart pods
  inplace-rollout retry deployment/web --action=LiveResizePreferred`,
		ValidArgsFunction: o.completeWorkload(policy.Held),
		SilenceUsage:      true,
		Args:              cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(args); err != nil {
				return err
			}
			if err := o.connect(); err != nil {
				return err
			}
			if err := o.warn(cmd.Context(), cmd.ErrOrStderr(), o.scope(o.allNamespaces)); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), args)
		},
	}
	cmd.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "all rollouts in flight, in all namespaces")
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "all rollouts in flight of workloads that this label selector selects, such as team=shop")
	cmd.Flags().BoolVar(&o.stopped, "stopped", false, "with -A or -l, also guarded rollouts that were stopped because a pod failed")
	cmd.Flags().StringVar(&o.action, "action", "", "action for the rest of the rollout: "+strings.Join(policy.Actions, ", ")+"; empty does not change it")
	o.flags.AddFlags(cmd.PersistentFlags())
	o.completeFlags(cmd)
	cli.CompleteFlag(cmd, "action", cobra.FixedCompletions(policy.Actions, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o retryOptions) validate(args []string) error {
	if (o.allNamespaces || o.selector != "") == (len(args) > 0) {
		return errors.New("want either a workload, such as sts/web, or --all-namespaces or --selector")
	}
	if o.action != "" && !slices.Contains(policy.Actions, o.action) {
		return fmt.Errorf("--action is %q: want %s", o.action, strings.Join(policy.Actions, ", "))
	}
	return validSelector(o.selector)
}

// runAll tries all again that are in flight, and goes on where one fails.
func (o retryOptions) runAll(ctx context.Context, out io.Writer) error {
	all, err := o.optedIn(ctx, o.scope(o.allNamespaces), o.selector)
	if err != nil {
		return err
	}
	var failed []error
	inFlight := 0
	for _, u := range all {
		if over, err := o.over(ctx, u); err != nil || over != "" {
			continue
		}
		inFlight++
		if r, err := rollout.ReadRecord(u.GetAnnotations()); err == nil && r.Stopped() && !o.stopped {
			if _, err := fmt.Fprintf(out, "%s (namespace %s) was stopped because a pod failed, and is left alone: name it, or use --stopped\n", nameOf(u), u.GetNamespace()); err != nil {
				return err
			}
			continue
		}
		outcome, err := o.retry(ctx, u)
		if err != nil {
			failed = append(failed, fmt.Errorf("namespace %s: %w", u.GetNamespace(), err))
		} else if _, err := fmt.Fprintf(out, "%s (namespace %s)%s\n", nameOf(u), u.GetNamespace(), outcome); err != nil {
			return err
		}
	}
	switch {
	case inFlight > 0:
	case o.selector != "":
		_, err = fmt.Fprintf(out, "No rollout is in flight that the selector %s selects.\n", o.selector)
	default:
		_, err = fmt.Fprintln(out, "No rollout is in flight.")
	}
	return errors.Join(append(failed, err)...)
}

func (o retryOptions) run(ctx context.Context, out io.Writer, args []string) error {
	if len(args) == 0 {
		return o.runAll(ctx, out)
	}
	u, err := o.named(args)
	if err != nil {
		return err
	}
	outcome, err := o.retry(ctx, u)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s%s\n", nameOf(u), outcome)
	return err
}

// retry asks for another try where a rollout is in flight. It returns what came of that.
func (o retryOptions) retry(ctx context.Context, u *unstructured.Unstructured) (outcome string, err error) {
	const nothing = " has no rollout in flight: "
	if over, err := o.over(ctx, u); err != nil || over != "" {
		return nothing + over, err
	}
	waits, err := o.keepsHold(ctx, u)
	if err == nil {
		_, err = rollout.ReadRecord(u.GetAnnotations())
	}
	if err != nil {
		return "", fmt.Errorf("retrying %s: %w", nameOf(u), err)
	}
	var after *unstructured.Unstructured
	err = o.unlessEdited(ctx, u, func(u *unstructured.Unstructured) (err error) {
		after, err = o.ask(ctx, u)
		return err
	})
	if apierrors.IsConflict(err) { // it was edited, or it has just ended
		if newest, getErr := o.get(ctx, u); getErr == nil {
			if over, _ := o.over(ctx, newest); over != "" {
				return nothing + over, nil
			}
		}
	}
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w\nYou need get and patch for %s", err, everyResource)
	}
	if err != nil {
		return "", fmt.Errorf("retrying %s: %w", nameOf(u), err)
	}
	return o.asked(after, waits)
}

// keepsHold returns an error where nothing would go on with a held workload, or any write to it would let it go, because no controller is
// there, and else reports whether it waits for one. A dry run of the write shows it to whoever can make that; to others, what they can
// read.
func (o retryOptions) keepsHold(ctx context.Context, u *unstructured.Unstructured) (waits bool, err error) {
	if !policy.Held(u) {
		return false, nil
	}
	shown := errUntried
	would, err := o.try(ctx, u)
	if err == nil {
		shown = prerequisite.Unattended(would)
	}
	there := o.reportOf(ctx, u.GetNamespace()).Shown(shown)
	action := policy.Action(o.action)
	if settings, err := policy.InForce(u.GetAnnotations()); err == nil && action == "" {
		action = settings.Action
	}
	switch {
	case errors.Is(shown, prerequisite.ErrNotAsked):
		return false, fmt.Errorf("nothing would go on with it: %w\nTo let it go: kubectl inplace-rollout release %s -n %s", shown, nameOf(u), u.GetNamespace())
	case there.Controller == nil:
		return false, nil
	case err == nil && policy.Held(would), err != nil && there.Waits(action == policy.LiveResize):
		return true, nil
	}
	return false, fmt.Errorf("this write would end the hold and restart pods: %w", there.Controller)
}

// over returns why the rollout of a workload is over; empty if it is in flight. It is an
// error if no rollout of it is made in place.
func (o retryOptions) over(ctx context.Context, u *unstructured.Unstructured) (why string, err error) {
	r := statusReport{OptedIn: policy.Enabled(u), Held: policy.Held(u)}
	r.readCondition(u)
	switch {
	case !r.OptedIn:
		return "", fmt.Errorf("%s is not opted in: label it with %s=true to have it rolled out in place", nameOf(u), api.EnabledLabel)
	case r.Complete:
		return r.Message, nil
	case r.Held || u.GetAnnotations()[api.RolloutAnnotation] != "":
		return "", nil
	case o.ended(ctx, u):
		return justEnded, nil
	case strategyOf(u) == string(appsv1.OnDeleteStatefulSetStrategyType):
		return "", nil
	default:
		return "", fmt.Errorf("%s has no rollout in place: %s", nameOf(u), r.Message)
	}
}

// justEnded is why a rollout is over whose hold has been let go, before the condition says Complete.
const justEnded = "its pods are done"

// ended reports whether no pod of a workload that is not held has anything left to do. The
// condition says so a moment after the hold is let go; who may not list the pods has to wait
// for that. Nor is a rollout over that the user has paused.
func (o retryOptions) ended(ctx context.Context, u *unstructured.Unstructured) bool {
	if paused, _, _ := unstructured.NestedBool(u.Object, "spec", "paused"); paused {
		return false
	}
	reports, err := statusOptions{cluster: o.cluster}.reportAll(ctx, []*unstructured.Unstructured{u})
	return err == nil && len(reports[0].Pods) > 0 && !slices.ContainsFunc(reports[0].Pods, podStatus.pending)
}

// asked returns what is tried again, now that the workload asks for it, and when if it waits for a controller. It is an error if the
// action has not been put in force.
func (o retryOptions) asked(after *unstructured.Unstructured, waits bool) (outcome string, err error) {
	if outcome = ": what could not be done is retried"; waits {
		outcome += " when a controller is ready"
	}
	if o.action == "" {
		return outcome, nil
	}
	if inForce, _ := policy.ActionInForce(after.GetAnnotations()); inForce != o.action {
		return "", fmt.Errorf("retrying %s: the action %s is not in force: the rollout has just ended, or the admission policies are missing or older", nameOf(after), o.action)
	}
	return outcome + ", and " + o.action + " is in force", nil
}

// wish is how a workload asks for another try, as `kubectl annotate` could have it. What was stopped is named.
func (o retryOptions) wish(u *unstructured.Unstructured) map[string]string {
	value := time.Now().UTC().Format(time.RFC3339Nano)
	if r, _ := rollout.ReadRecord(u.GetAnnotations()); r.Stopped() {
		value = r.Name()
	}
	if o.action != "" {
		value += ";" + o.action
	}
	return map[string]string{api.RetryAnnotation: value}
}

// ask has the workload ask for another try.
func (o retryOptions) ask(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	metadata := map[string]any{"uid": u.GetUID(), "resourceVersion": u.GetResourceVersion(), "annotations": o.wish(u)}
	return o.patch(ctx, u, map[string]any{"metadata": metadata}, api.RetryFieldManager)
}

// try asks by a dry run whether that is of use.
func (o retryOptions) try(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	sent := &metav1.ObjectMeta{Annotations: o.wish(u)}
	prerequisite.Ask(sent)
	metadata := map[string]any{"uid": u.GetUID(), "annotations": sent.Annotations}
	return o.patch(unwarned(ctx), u, map[string]any{"metadata": metadata}, api.RetryFieldManager, metav1.DryRunAll)
}
