package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json" // numbers without a fraction are int64

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/deployment"
	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/plural"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// releaseOptions are the arguments of the release command.
type releaseOptions struct {
	*cluster
	all           bool
	allNamespaces bool
	forGood       bool
	stopped       bool
	yes           bool
	dryRun        bool
}

func newReleaseCommand() *cobra.Command {
	o := releaseOptions{cluster: newCluster()}
	cmd := &cobra.Command{
		Use:   "release (TYPE/NAME | --all)",
		Short: "Release held rollouts when the controller is gone",
		Long: `Release held rollouts when the controller is gone.

Without the controller, a held rollout does not continue. This command restores the
partition, paused or the update strategy as the user set it. Then the built-in
controller restarts every pod that is not of the newest revision. Pods of a Deployment whose
ReplicaSet has the new size already keep theirs until you delete them. It does not check
capacity; pods that do not fit stay Pending. For an OrderedReady StatefulSet it waits
until every pod is Ready: delete one that never is. Under OnDelete an operator might delete
pods. Detached pods of a Deployment go back to their ReplicaSet. The command first shows
what will happen, and asks. The workload stays opted in: its next edit is held again.

A size that has failed, or that a canary has not proved yet, is not given to more pods: the
workload goes back to its template from before, unless --stopped is given. Of the pods that
have it already, those that count as updated are replaced. The others keep it until you
delete them, or a controller reverts them.

With --for-good, edits are not held again, even if the controller runs. The command first
removes what holds edits: the bindings of the admission policies that hold and guard
them, or the configuration of the webhook; in one namespace with a controller of its own,
the namespace's label. One namespace of an installation for all of them is an error: there
you can only opt workloads out. When nothing has been held for some seconds, it removes the
condition inplace-rollout.io/Complete from the workloads, which nobody would keep true. Then
you can uninstall the rest.`,
		Example: `  # One
  inplace-rollout release sts/db

  # What would be released, and what happens then?
  inplace-rollout release --all -A --dry-run

  # All of them, before an uninstallation
  inplace-rollout release --all -A --for-good --yes`,
		ValidArgsFunction: o.completeWorkload(releasable),
		SilenceUsage:      true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.all == (len(args) > 0) {
				return errors.New("want either a workload, such as sts/web, or --all")
			}
			if o.allNamespaces && !o.all {
				return errors.New("--all-namespaces goes with --all")
			}
			if o.forGood && !o.all {
				return errors.New("--for-good goes with --all")
			}
			// There is no warning if something is missing in the cluster: that is what this command is for.
			if err := o.connect(); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), args)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "all held rollouts in the namespace")
	f.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "with --all: in all namespaces")
	f.BoolVar(&o.forGood, "for-good", false, "with --all: hold no edits any more, before an uninstallation")
	f.BoolVar(&o.stopped, "stopped", false, "replace pods also for a size that has failed, or that a canary has not proved yet")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&o.dryRun, "dry-run", false, "only show what would happen")
	o.flags.AddFlags(cmd.PersistentFlags())
	o.completeFlags(cmd)
	return cmd
}

func (o releaseOptions) run(ctx context.Context, in io.Reader, out io.Writer, args []string) error {
	if o.forGood { // what warns is about to go, too, and knows nothing of that
		ctx = unwarned(ctx)
	}
	notHeld, err := o.endsHolding(ctx)
	if err != nil {
		return err
	}
	all, err := o.holds(ctx, args)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		if _, err := fmt.Fprintln(out, "Nothing is held."); err != nil || !o.forGood {
			return err
		}
	}
	if err := announce(out, all, notHeld); err != nil {
		return err
	}
	if o.dryRun {
		_, err := fmt.Fprintln(out, "Nothing was released: this was a dry run.")
		return errors.Join(stays(all), err)
	}
	if err := stays(all); o.forGood && err != nil { // nobody would go on with it
		return err
	}
	if !o.yes {
		if agreed, err := ask(ctx, in, out); err != nil || !agreed {
			return errors.Join(errors.New("nothing was released"), err)
		}
	}
	if o.forGood {
		return o.runForGood(ctx, out)
	}
	return letGo(out, all)
}

// announce says what is about to happen: what the built-in controllers do, and where nothing is held any more, if anywhere.
func announce(out io.Writer, all []hold, notHeld string) error {
	for _, h := range all {
		if _, err := fmt.Fprintln(out, h.outlook); err != nil {
			return err
		}
	}
	if notHeld == "" {
		return nil
	}
	_, err := fmt.Fprintf(out, "After this, no edit is held in %s.\n", notHeld)
	return err
}

// stays returns why some of them cannot be let go.
func stays(all []hold) error {
	var failed []error
	for _, h := range all {
		failed = append(failed, h.stays)
	}
	return errors.Join(failed...)
}

// letGo lets go of all of them, and goes on where one fails.
func letGo(out io.Writer, all []hold) error {
	var failed []error
	for _, h := range all {
		if h.stays != nil {
			failed = append(failed, h.stays)
		} else if err := h.letGo(); err != nil {
			failed = append(failed, err)
		} else if _, err := fmt.Fprintln(out, h.done); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

// hold keeps a workload or a pod from the built-in controllers: only our controller, or
// release, lets go of it.
type hold struct {
	outlook string // what the built-in controller does then
	letGo   func() error
	done    string // printed afterwards
	stays   error  // why it is not let go
}

// holds returns those of the workloads, and of the pods that wait for others in their place.
func (o releaseOptions) holds(ctx context.Context, args []string) ([]hold, error) {
	found, err := o.found(ctx, args)
	if err != nil {
		return nil, err
	}
	detached, err := o.detached(ctx, found)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(u *unstructured.Unstructured) bool { return !releasable(u) })
	world := capacity.New(o.client, capacity.Pods, o.clock.Now())
	var all []hold
	for _, u := range found {
		h, err := o.hold(ctx, world, u)
		if err != nil { // the others are let go all the same
			h.outlook = fmt.Sprintf("%s (namespace %s): stays as it is: %s", nameOf(u), u.GetNamespace(), err)
			h.stays = fmt.Errorf("releasing %s (namespace %s): %w", nameOf(u), u.GetNamespace(), err)
		}
		all = append(all, h)
	}
	for _, pod := range detached {
		all = append(all, hold{
			outlook: fmt.Sprintf("pod/%s (namespace %s): goes back to its ReplicaSet, which will delete one pod", pod.Name, pod.Namespace),
			letGo: func() error {
				return deployment.Reattach(ctx, o.client, o.objects, pod.Namespace, []*corev1.Pod{pod})
			},
			done: "pod/" + pod.Name + " given back",
		})
	}
	return all, nil
}

// releasable reports whether there is anything to let go of: a hold or, under OnDelete, the record of a guarded rollout.
func releasable(u metav1.Object) bool { return policy.Held(u) || policy.Recorded(u) }

// found lists the named workload, or all that are opted in, or were opted out where no policy ended their hold.
func (o releaseOptions) found(ctx context.Context, args []string) ([]*unstructured.Unstructured, error) {
	if len(args) > 0 {
		u, err := o.named(args)
		return []*unstructured.Unstructured{u}, err
	}
	all, err := o.list(ctx, o.scope(o.allNamespaces), "")
	return slices.DeleteFunc(all, func(u *unstructured.Unstructured) bool { return !policy.Enabled(u) && !kindOf(u).holds(u) }), err
}

// detached lists the pods that wait for another one in their place: those of the
// named Deployment, or all; the label of their Deployment may have been removed.
func (o releaseOptions) detached(ctx context.Context, found []*unstructured.Unstructured) ([]*corev1.Pod, error) {
	namespace := o.scope(o.allNamespaces)
	if !o.all {
		namespace = found[0].GetNamespace()
	}
	list, err := o.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: api.DetachedLabel})
	if err != nil {
		return nil, explain(fmt.Errorf("listing pods: %w", err))
	}
	var detached []*corev1.Pod
	for i := range list.Items {
		pod := &list.Items[i]
		from, is := deployment.DetachedFrom(pod)
		asked := o.all || kindOf(found[0]) == deployments && found[0].GetName() == from.Name
		if is && asked && pod.DeletionTimestamp == nil {
			detached = append(detached, pod)
		}
	}
	return detached, nil
}

// hold returns that of a workload. One whose size has failed, or is not proved, goes back to its template from before.
func (o releaseOptions) hold(ctx context.Context, world *capacity.Cluster, u *unstructured.Unstructured) (hold, error) {
	name := fmt.Sprintf("%s (namespace %s): ", nameOf(u), u.GetNamespace())
	size, err := o.unprovedSize(ctx, u)
	if err != nil {
		return hold{}, explain(err)
	}
	h := hold{done: nameOf(u) + " released"}
	after, back := u, size != nil && !o.stopped
	switch {
	case back && size.former == nil:
		h.outlook = name + "stays held, because " + size.why + ", and its template from before is not known"
		h.stays = fmt.Errorf("%s is not released: %s, and its template from before is not known\n%s", nameOf(u), size.why, cmp.Or(size.advice, "Edit it, or use --stopped"))
		return h, nil
	case back:
		if after, err = withTemplate(u, size.former); err != nil {
			return hold{}, err
		}
		name += fmt.Sprintf("goes back to its template from before, because %s. Then ", size.why)
		h.done += ", with its template from before"
	}
	what, err := o.outlook(ctx, world, after, size, back)
	if err != nil {
		return hold{}, err
	}
	h.outlook = name + what
	h.letGo = func() error { return o.release(ctx, u, after) }
	return h, nil
}

// unprovedSize is one that is not to spread to more pods by itself.
type unprovedSize struct {
	what, why string
	former    *hash.Template // from before it; nil if that is not known
	advice    string         // what helps then; empty if an edit does
}

// unprovedSize returns that of a workload; nil if there is none. No controller is expected to prove the size.
func (c *cluster) unprovedSize(ctx context.Context, u *unstructured.Unstructured) (*unprovedSize, error) {
	record, err := rollout.Unproved(u.GetAnnotations())
	size := &unprovedSize{what: "the size that has failed"}
	switch {
	case err != nil:
		return &unprovedSize{what: "a size that might have failed", why: err.Error(), advice: "Use --stopped, or a controller that can read it"}, nil //nolint:nilerr // the workload stays held, and that says why
	case record == nil:
		return nil, nil
	case record.Stopped():
		size.why = record.Failed
	default:
		size.what, size.why = "a size that its canary has not proved", "its canary has not proved the size"
	}
	switch size.former, err = kindOf(u).former(ctx, c, u, record); {
	case err != nil:
		return nil, err
	case size.former == nil && record.Phase == rollout.PhasePending && record.From == "": // no pod has another size than it
		return nil, nil
	case size.former == nil:
		return size, nil
	}
	newest, err := templateOf(u)
	if err != nil {
		return nil, err
	}
	size.why += " (" + resize.Describe(resize.Between(size.former.PodTemplateSpec, newest.PodTemplateSpec)) + ")"
	return size, nil
}

// withTemplate returns the workload with another template.
func withTemplate(u *unstructured.Unstructured, template *hash.Template) (*unstructured.Unstructured, error) {
	var fields map[string]any
	if err := utiljson.Unmarshal(template.Raw, &fields); err != nil {
		return nil, fmt.Errorf("decoding a template of %s: %w", nameOf(u), err)
	}
	delete(fields, "$patch") // a ControllerRevision is a patch
	after := u.DeepCopy()
	if err := unstructured.SetNestedMap(after.Object, fields, "spec", "template"); err != nil {
		return nil, fmt.Errorf("going back with %s: %w", nameOf(u), err)
	}
	return after, nil
}

// outlook is what the built-in controller will do, where the size may be unproved, and the workload goes back from it or not.
func (o releaseOptions) outlook(ctx context.Context, world *capacity.Cluster, u *unstructured.Unstructured, size *unprovedSize, back bool) (string, error) {
	if _, err := policy.ReadClasses(u.GetAnnotations()); err != nil && kindOf(u) == daemonSets {
		return fmt.Sprintf("the DaemonSet controller can restart pods; which ones, is unknown: %s", err), nil
	}
	forecast, err := o.forecast(ctx, capacity.Question{Cluster: world, Defaults: policy.Standard}, u)
	if err != nil {
		return "", err
	}
	what, other := "finds nothing left to do", leftBehind(forecast)
	switch {
	case len(other) > 0 && kindOf(u) == statefulSets && strategyOf(u) == string(appsv1.OnDeleteStatefulSetStrategyType):
		what = "deletes no pod, but an operator might, as some differ from the template: " + list(other, many)
	case len(other) > 0 && back:
		what += ", but some pods keep the new size until you delete them, or a controller reverts them: " + list(other, many)
	case len(other) > 0:
		what += ", but some pods differ from the template: " + list(other, many)
	}
	if n := len(forecast.Stale); n > 0 {
		which, room, why := "not of the newest revision", withoutRoom(u), ""
		switch {
		case back:
			which, room = "with their size from before", ""
		case size != nil:
			which, why = "with "+size.what, "; "+size.why
		}
		what = fmt.Sprintf("will replace %s %s: %s", plural.Of(n, "pod"), which, list(forecast.Stale, many)) + room + why + awaits(u, forecast)
	}
	if n := missing(u, forecast); n > 0 {
		what = "will create " + plural.Of(n, "missing pod")
	}
	if policy.WishedPaused(u, false) {
		what = "will do nothing until it is resumed"
	}
	return fmt.Sprintf("the %s controller %s", u.GetKind(), what), nil
}

// missing is how many pods of a Deployment nobody makes while it is paused and has none, as after a backup that was taken during a
// rollout is restored elsewhere.
func missing(u *unstructured.Unstructured, forecast rollout.WorkloadForecast) int {
	if kindOf(u) != deployments || slices.ContainsFunc(forecast.Pods, func(f judge.PodForecast) bool { return f.Member.Pod != nil }) {
		return 0
	}
	replicas, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
	return int(replicas)
}

// withoutRoom says what becomes of pods that our controller has kept, because there is no room for new ones: the built-in
// controller does not look. It is empty where the condition says nothing of that.
func withoutRoom(u *unstructured.Unstructured) string {
	reason, _ := completeOf(u)["reason"].(string)
	switch reason {
	case judge.ReasonNoNodeFits:
		return "; new pods for which no node has room will be Pending (" + reason + ")"
	case judge.ReasonQuotaExceeded:
		return "; new pods for which the quota has no room will be missing (" + reason + ")"
	default:
		return ""
	}
}

// awaits says for which pods the built-in controller waits before it replaces any, and what to do about those that do not become Ready.
func awaits(u *unstructured.Unstructured, forecast rollout.WorkloadForecast) string {
	if len(forecast.Awaits) == 0 {
		return ""
	}
	are := " are"
	if len(forecast.Awaits) == 1 {
		are = " is"
	}
	return fmt.Sprintf("; but none before %s Ready: delete what does not become so, as by `kubectl delete pod %s -n %s`",
		list(forecast.Awaits, many)+are, forecast.Awaits[0], u.GetNamespace())
}

// leftBehind names the pods that the built-in controller will not touch, and that are not
// as the template says.
func leftBehind(forecast rollout.WorkloadForecast) []string {
	var names []string
	for _, f := range forecast.Pods {
		switch f.Forecast {
		case judge.Unchanged, judge.KeptBack, judge.New, judge.ScaledIn:
			continue
		}
		if f.Member.Pod != nil && !slices.Contains(forecast.Stale, f.Member.Name) {
			names = append(names, f.Member.Name)
		}
	}
	return names
}

// ask waits for an answer, or for the end of the context.
func ask(ctx context.Context, in io.Reader, out io.Writer) (bool, error) {
	if _, err := fmt.Fprint(out, "Release? [y/N] "); err != nil {
		return false, err
	}
	answered := make(chan string, 1)
	go func() {
		answer, _ := bufio.NewReader(in).ReadString('\n') // what cannot be read is no yes
		answered <- strings.ToLower(strings.TrimSpace(answer))
	}()
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case answer := <-answered:
		return answer == "y" || answer == "yes", nil
	}
}

// release lets go of a workload, as after has its template, as long as nobody edits it: what was announced is for
// this generation of it. Its status may change meanwhile, but no pod of it may fail unseen.
func (o releaseOptions) release(ctx context.Context, u, after *unstructured.Unstructured) error {
	back, err := between(u, after)
	if err == nil {
		announced := u.GetAnnotations()[api.RolloutAnnotation]
		err = o.unlessEdited(ctx, u, func(u *unstructured.Unstructured) error {
			record, err := rollout.Unproved(u.GetAnnotations())
			if (record != nil || err != nil) && back == nil && !o.stopped && u.GetAnnotations()[api.RolloutAnnotation] != announced {
				return errors.New("its guarded rollout has been stopped meanwhile")
			}
			return o.askPolicy(ctx, u, back)
		})
	}
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w\nYou need patch for %s", err, everyResource)
	}
	if err != nil {
		return fmt.Errorf("releasing %s: %w", nameOf(u), err)
	}
	return nil
}

// between returns what changes the template of a workload, as a merge patch (RFC 7396); nil if it is the same.
func between(u, after *unstructured.Unstructured) (map[string]any, error) {
	if u == after {
		return nil, nil
	}
	var templates [2]map[string]any
	for i, of := range []*unstructured.Unstructured{u, after} {
		var err error
		if templates[i], _, err = unstructured.NestedMap(of.Object, "spec", "template"); err != nil {
			return nil, fmt.Errorf("reading the template of %s: %w", nameOf(of), err)
		}
	}
	return mergePatch(templates[0], templates[1]), nil
}

// mergePatch returns what makes one object of the other. Packages for that read every number as a float64, which has no room for large ones.
func mergePatch(from, to map[string]any) map[string]any {
	patch := map[string]any{}
	for key := range from {
		if _, stays := to[key]; !stays {
			patch[key] = nil
		}
	}
	for key, value := range to {
		was, isObject := from[key].(map[string]any)
		if is, stays := value.(map[string]any); isObject && stays {
			if inner := mergePatch(was, is); len(inner) > 0 {
				patch[key] = inner
			}
		} else if before, had := from[key]; !had || !reflect.DeepEqual(before, value) {
			patch[key] = value
		}
	}
	return patch
}

// askPolicy asks the admission policy to let go, by a write that changes nothing but the template, if that goes back: what it
// writes belongs to nobody, so that the user's server-side apply never conflicts with
// it. Where the policy is gone, the fields are written here.
func (o releaseOptions) askPolicy(ctx context.Context, u *unstructured.Unstructured, back map[string]any) error {
	which := map[string]any{"uid": u.GetUID()}
	if policy.Recorded(u) || !o.forGood { // else it is let go whoever edits it meanwhile
		which["resourceVersion"] = u.GetResourceVersion()
	}
	fields := map[string]any{"metadata": which}
	if back != nil {
		fields["spec"] = map[string]any{"template": back}
	}
	after, err := o.patch(ctx, u, fields, api.ReleaseManager)
	if err != nil || !releasable(after) {
		return err
	}
	annotations := map[string]any{api.HoldAnnotation: nil, api.RolloutAnnotation: nil}
	if policy.Recorded(after) { // a controller that is there still would guard the rest, also the way back
		action, may := policy.ActionInForce(after.GetAnnotations())
		annotations[api.InForceAnnotation] = action + ";" + may + ";;;;"
	}
	_, err = o.patch(ctx, after, map[string]any{
		"metadata": map[string]any{"uid": after.GetUID(), "annotations": annotations},
		"spec":     kindOf(after).released(after),
	}, api.ReleaseManager)
	return err
}
