package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/workload"
)

// releaseOptions are the arguments of the release command.
type releaseOptions struct {
	*cluster
	all           bool
	allNamespaces bool
	yes           bool
}

func newReleaseCommand() *cobra.Command {
	o := releaseOptions{cluster: newCluster()}
	cmd := &cobra.Command{
		Use:   "release (TYPE/NAME | --all)",
		Short: "Let go of held rollouts when the controller is gone",
		Long: `Let go of held rollouts when the controller is gone.

A held rollout is nobody's but the controller's. Without it, this gives back what the
user wants (the partition, or paused), and the built-in controller goes on: it
restarts every pod that is not of the newest revision. What that will be is shown,
and asked for, first. The workload stays opted in: its next edit is held again.`,
		Example: `  # One
  inplace-rollout release sts/web

  # All of them, as before an uninstallation
  inplace-rollout release --all -A --yes`,
		ValidArgsFunction: o.completeWorkload(workload.Held),
		SilenceUsage:      true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.all == (len(args) > 0) {
				return errors.New("want either a workload, such as sts/web, or --all")
			}
			if o.allNamespaces && !o.all {
				return errors.New("--all-namespaces goes with --all")
			}
			// Nothing is said if something is missing in the cluster: that is what this command is for.
			if err := o.connect(); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), args)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "all that are held, in the namespace")
	f.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "with --all: in all namespaces")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	o.flags.AddFlags(cmd.PersistentFlags())
	o.completeFlags(cmd)
	return cmd
}

func (o releaseOptions) run(ctx context.Context, in io.Reader, out io.Writer, args []string) error {
	held, err := o.held(ctx, args)
	if err != nil {
		return err
	}
	if len(held) == 0 {
		_, err := fmt.Fprintln(out, "Nothing is held.")
		return err
	}
	for _, u := range held {
		if err := o.announce(ctx, out, u); err != nil {
			return err
		}
	}
	if !o.yes {
		if agreed, err := ask(in, out); err != nil || !agreed {
			return errors.Join(errors.New("nothing was let go"), err)
		}
	}
	var failed []error
	for _, u := range held {
		err := o.release(ctx, u)
		if apierrors.IsForbidden(err) {
			err = fmt.Errorf("%w\nYou need patch for statefulsets and deployments (apps)", err)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("letting go of %s: %w", nameOf(u), err))
			continue
		}
		if _, err := fmt.Fprintf(out, "%s released\n", nameOf(u)); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

// held lists the named workload, or all, as far as they are held.
func (o releaseOptions) held(ctx context.Context, args []string) ([]*unstructured.Unstructured, error) {
	var found []*unstructured.Unstructured
	var err error
	switch {
	case len(args) > 0:
		var u *unstructured.Unstructured
		if u, err = o.named(args); err == nil {
			found = append(found, u)
		}
	case o.allNamespaces:
		found, err = o.optedIn(ctx, metav1.NamespaceAll)
	default:
		found, err = o.optedIn(ctx, o.namespace)
	}
	if err != nil {
		return nil, err
	}
	var held []*unstructured.Unstructured
	for _, u := range found {
		if workload.Held(u) {
			held = append(held, u)
		}
	}
	return held, nil
}

// announce says what the built-in controller will do.
func (o releaseOptions) announce(ctx context.Context, out io.Writer, u *unstructured.Unstructured) error {
	var world workload.Cluster
	if err := world.ReadPods(ctx, o.client, u.GetNamespace()); err != nil {
		return explain(err)
	}
	foreseen, err := o.foresee(ctx, world, u, policy.Settings{}, workload.Standard)
	if err != nil {
		return explain(err)
	}
	what := "finds nothing left to do"
	if n := len(foreseen.Stale); n > 0 {
		what = fmt.Sprintf("will replace %s not of the newest revision: %s", counted(n, "pod"), strings.Join(foreseen.Stale, ", "))
	}
	if paused, wish := u.GetKind() == deploymentKind.Kind, u.GetAnnotations()[api.HoldAnnotation]; paused && wish == "true" {
		what = "will do nothing until it is resumed"
	}
	_, err = fmt.Fprintf(out, "%s (namespace %s): the %s controller %s\n", nameOf(u), u.GetNamespace(), u.GetKind(), what)
	return err
}

func ask(in io.Reader, out io.Writer) (bool, error) {
	if _, err := fmt.Fprint(out, "Let go? [y/N] "); err != nil {
		return false, err
	}
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("reading the answer: %w", err)
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", nil
}

// release asks the admission policy to let go: what it writes belongs to nobody, so
// that the user's server-side apply never conflicts with it. Where the policy is
// gone, the fields are written here.
func (o releaseOptions) release(ctx context.Context, u *unstructured.Unstructured) error {
	after, err := o.patch(ctx, u, map[string]any{"metadata": map[string]any{
		"uid": u.GetUID(), "resourceVersion": u.GetResourceVersion(),
		"annotations": map[string]any{api.ReleaseAnnotation: "true"},
	}})
	if err != nil || !workload.Held(after) {
		return err
	}
	spec, err := wished(after)
	if err != nil {
		return err
	}
	_, err = o.patch(ctx, after, map[string]any{
		"metadata": map[string]any{"uid": after.GetUID(), "annotations": map[string]any{api.ReleaseAnnotation: nil, api.HoldAnnotation: nil}},
		"spec":     spec,
	})
	return err
}

// wished is what the user wants of the field that holds the workload.
func wished(u *unstructured.Unstructured) (map[string]any, error) {
	wish := u.GetAnnotations()[api.HoldAnnotation]
	if u.GroupVersionKind() == deploymentKind {
		return map[string]any{"paused": wish == "true"}, nil
	}
	partition, err := strconv.ParseInt(wish, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("annotation %s is %q: want the partition as a whole number", api.HoldAnnotation, wish)
	}
	return map[string]any{"updateStrategy": map[string]any{"rollingUpdate": map[string]any{"partition": partition}}}, nil
}

func (o releaseOptions) patch(ctx context.Context, u *unstructured.Unstructured, fields map[string]any) (*unstructured.Unstructured, error) {
	patch, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encoding the patch: %w", err)
	}
	return o.objects.Resource(resourceOf[u.GroupVersionKind()]).Namespace(u.GetNamespace()).
		Patch(ctx, u.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: api.FieldManager + "-release"})
}
