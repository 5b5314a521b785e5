package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// undoOptions are the arguments of the undo command.
type undoOptions struct {
	*cluster
	toRevision int64 // 0 is the one from before
	dryRun     bool
}

func newUndoCommand() *cobra.Command {
	o := undoOptions{cluster: newCluster()}
	cmd := &cobra.Command{
		Use:   "undo TYPE/NAME",
		Short: "Go back to the template from before, also during a rollout",
		Long: `Go back to the template from before, or of another revision in the history, as kubectl
rollout undo does. During a rollout, kubectl refuses that for a Deployment, because it is
paused ("resume it first"): do not resume it, use this command.

Only the template changes. It is an edit like any other: pods are resized in place where
possible, with the action, the policy and the canary that the workload has now. A size that
the pods have had before a guarded rollout that is not over needs no canary.

Without --to-revision, a guarded rollout that has failed, or whose canary has not passed,
goes back to what was there before it. Any other workload goes back to the newest revision
that has another template.`,
		Example: `  # The new size was wrong
  inplace-rollout undo deployment/web

  # What would that change?
  inplace-rollout undo deployment/web --dry-run

  # To a revision that kubectl rollout history lists
  inplace-rollout undo sts/db --to-revision=1`,
		ValidArgsFunction: o.completeWorkload(policy.Enabled),
		SilenceUsage:      true,
		Args:              cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.toRevision < 0 {
				return fmt.Errorf("--to-revision is %d: want the number of a revision, or 0", o.toRevision)
			}
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
	cmd.Flags().Int64Var(&o.toRevision, "to-revision", 0, "revision to go back to, as kubectl rollout history numbers them; 0 is the one from before")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only show what would happen, by a dry run in the API server")
	o.flags.AddFlags(cmd.PersistentFlags())
	o.completeFlags(cmd)
	return cmd
}

func (o undoOptions) run(ctx context.Context, out io.Writer, u *unstructured.Unstructured) error {
	outcome, err := o.undo(ctx, u)
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w\nYou need get and patch for %s, and list for replicasets and controllerrevisions (apps) and for pods", err, everyResource)
	}
	if err != nil {
		return fmt.Errorf("undoing %s: %w", nameOf(u), err)
	}
	_, err = fmt.Fprintln(out, nameOf(u)+" "+outcome)
	return err
}

// undo goes back, and returns what came of that.
func (o undoOptions) undo(ctx context.Context, u *unstructured.Unstructured) (outcome string, err error) {
	now, err := templateOf(u)
	if err != nil {
		return "", err
	}
	to, err := o.target(ctx, u, now)
	if err != nil {
		return "", err
	}
	which := "the template from before"
	if to.Revision > 0 {
		which = fmt.Sprintf("revision %d", to.Revision)
	}
	if to.Means(now) {
		return "skipped rollback (current template already matches " + which + ")", nil
	}
	after, err := withTemplate(u, to)
	if err != nil {
		return "", err
	}
	if err := o.goBack(ctx, u, after); err != nil {
		return "", err
	}
	outcome = fmt.Sprintf("rolled back to %s: %s", which, cmp.Or(now.Differs(to), resize.Describe(resize.Between(now.PodTemplateSpec, to.PodTemplateSpec))))
	switch paused, _, _ := unstructured.NestedBool(u.Object, "spec", "paused"); {
	case o.dryRun:
		outcome += " (dry run)"
	case policy.WishedPaused(u, paused):
		outcome += "\nIt is paused: nothing happens until you resume it."
	case policy.Enabled(u) && o.hasController(ctx, u.GetNamespace()):
		outcome += fmt.Sprintf("\nTo wait for it: kubectl wait --for=condition=%s %s -n %s --timeout=10m", api.ConditionComplete, nameOf(u), u.GetNamespace())
	}
	return outcome, nil
}

// goBack writes the template of after, unless somebody has edited the workload meanwhile.
func (o undoOptions) goBack(ctx context.Context, u, after *unstructured.Unstructured) error {
	back, err := between(u, after)
	if err != nil {
		return err
	}
	var dryRun []string
	if o.dryRun {
		dryRun = []string{metav1.DryRunAll}
	}
	return o.unlessEdited(ctx, u, func(u *unstructured.Unstructured) error {
		_, err := o.patch(ctx, u, map[string]any{
			"metadata": map[string]any{"uid": u.GetUID(), "resourceVersion": u.GetResourceVersion()},
			"spec":     map[string]any{"template": back},
		}, api.FieldManager+"-undo", dryRun...)
		return err
	})
}

// target is the template to go back to from the one of now.
func (o undoOptions) target(ctx context.Context, u *unstructured.Unstructured, now *hash.Template) (*hash.Template, error) {
	if o.toRevision == 0 {
		switch size, err := o.unprovedSize(ctx, u); {
		case err != nil:
			return nil, err
		case size != nil && size.former == nil:
			return nil, fmt.Errorf("%s, and its template from before is not known\nName one that kubectl rollout history lists with --to-revision", size.why)
		case size != nil:
			return size.former, nil
		}
	}
	all, err := kindOf(u).revisions(ctx, o.cluster, u)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(t *hash.Template) bool { return t.Revision == 0 })
	slices.SortStableFunc(all, func(a, b *hash.Template) int { return cmp.Compare(a.Revision, b.Revision) })
	if len(all) == 0 {
		return nil, errors.New("no rollout history found")
	}
	var numbers []string
	for _, t := range slices.Backward(all) {
		if t.Revision == o.toRevision || o.toRevision == 0 && !t.Means(now) {
			return t, nil
		}
		numbers = append(numbers, strconv.FormatInt(t.Revision, 10))
	}
	if o.toRevision == 0 {
		return nil, errors.New("no last revision to roll back to: the history has only the template that it has now")
	}
	slices.Reverse(numbers)
	return nil, fmt.Errorf("unable to find specified revision %d in history: it has %s", o.toRevision, strings.Join(slices.Compact(numbers), ", "))
}
