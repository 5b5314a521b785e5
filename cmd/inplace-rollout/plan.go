package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// planOptions are the arguments of the plan command.
type planOptions struct {
	*cluster
	files         resource.FilenameOptions
	fieldManager  string // of server-side apply; empty takes the one whose fields match the manifest best
	output        cli.Format
	failOn        []string
	failOnRestart bool // as --fail-on=restart
	resizePolicy  string
}

func newPlanCommand() *cobra.Command {
	o := planOptions{cluster: newCluster()}
	cmd := &cobra.Command{
		Use:   "plan (TYPE/NAME | -f FILE… | -k FOLDER)",
		Short: "Show what an edit would do to each pod",
		Long: `Show what an edit would do to each pod, in the order in which it would happen.

Pass edited manifests with -f or -k; they are read as by whoever has applied
the workload before: kubectl, client- or server-side, or Helm. If there are several,
it is the one whose fields match the manifest best, unless you name it with
--field-manager. Without manifests, the held rollout is shown. Nothing is written: a dry run shows whether the API server takes the
edit and whether a controller goes on with it, if you can make it.

Each pod is Live (resized, nothing restarts), ContainerRestart (resized, and the
kubelet restarts containers for it), Deferred (it waits for room on its node or in a quota),
PodRestart (a new pod comes in its place), AfterDelete (a new pod comes when you
delete this one), Infeasible (it stays as it is), KeptBack (by the partition, the pause,
a stop, or checks that cannot be asked), New (there is no pod in its place, or it is about
to go), ScaledIn (it goes, because there will be fewer pods) or Unchanged. A kubelet can
still refuse a resize for other reasons. ROOM shows how much of the node is requested now.
Of more than 20 pods, those with the same fate share a row; -o wide shows each.
Whether surge pods of a Deployment will be Pending is not said.

The exit code is 0, or 3 if --fail-on names what would happen as things stand: restart
(of a pod or a container: now, at its deadline, or when you delete it), infeasible (a pod
is Infeasible, now or at its deadline, or Deferred without one), or unknown (the plan says of something that it is unknown).

What the edit removes is read from the workload: what kubectl apply, server-side apply (such as
Flux) or Helm have set, and the manifest no longer has. Where the workload does not tell, the plan says so.

To see whether nodes have room, you need the right to list nodes, persistent volumes,
their claims, and the pods of all namespaces. Without it, the plan says that the room is
unknown. LimitRanges and ResourceQuotas are considered if you can list them.`,
		Example: `  # What would this edit do?
  kubectl set resources sts/db --limits=cpu=4 --dry-run=client -o yaml | inplace-rollout plan -f -

  # In a pipeline: fail if a manifest restarts anything
  inplace-rollout plan -f web.yaml --fail-on=restart,infeasible

  # Several files, each workload as if the others stayed as they are
  inplace-rollout plan -f web.yaml,db.yaml

  # What is still to come of the rollout in flight?
  inplace-rollout plan deployment/web`,
		ValidArgsFunction: o.completeWorkload(policy.Enabled),
		SilenceUsage:      true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(args); err != nil {
				return err
			}
			if err := o.connect(); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args)
		},
	}
	f := cmd.Flags()
	f.StringSliceVarP(&o.files.Filenames, "filename", "f", nil, "manifests with StatefulSets, Deployments and DaemonSets: files, folders or addresses; - reads the standard input")
	f.StringVarP(&o.files.Kustomize, "kustomize", "k", "", "folder of a kustomization, instead of -f")
	f.BoolVarP(&o.files.Recursive, "recursive", "R", false, "with -f: the folders in a folder, too")
	f.StringVar(&o.fieldManager, "field-manager", "", "with -f or -k: the manager of kubectl apply --server-side")
	o.output.AddFlag(cmd, "a row for each pod")
	f.StringSliceVar(&o.failOn, "fail-on", nil, "exit with code 3 if this would happen: "+strings.Join(failures, ", "))
	f.BoolVar(&o.failOnRestart, "fail-on-restart", false, "")
	_ = f.MarkDeprecated("fail-on-restart", "use --fail-on=restart")
	f.StringVar(&o.resizePolicy, "default-resource-resize-policy", "", "the value with which the controller was started; empty takes what the controller says")
	o.flags.AddFlags(cmd.PersistentFlags())
	o.completeFlags(cmd)
	cli.CompleteResizePolicy(cmd)
	cli.CompleteFlag(cmd, "filename", cobra.FixedCompletions([]cobra.Completion{"json", "yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt))
	return cmd
}

func (o planOptions) validate(args []string) error {
	if o.fromManifests() == (len(args) > 0) {
		return errors.New("want either a workload, such as sts/web, or -f FILE, or -k FOLDER")
	}
	if o.fromManifests() || o.files.Recursive || o.fieldManager != "" {
		if err := o.files.RequireFilenameOrKustomize(); err != nil {
			return err
		}
	}
	if o.resizePolicy != "" {
		if err := cli.ValidResizePolicy(policy.Policy(o.resizePolicy)); err != nil {
			return err
		}
	}
	for _, what := range o.failOn {
		if !slices.Contains(failures, what) {
			return fmt.Errorf("--fail-on has %q: want %s", what, strings.Join(failures, ", "))
		}
	}
	return o.output.Validate()
}

// failures are what --fail-on may name.
var failures = []string{failRestart, failInfeasible, failUnknown}

const failRestart, failInfeasible, failUnknown = "restart", "infeasible", "unknown"

// fromManifests reports whether manifests say what the edit is.
func (o planOptions) fromManifests() bool {
	return len(o.files.Filenames) > 0 || o.files.Kustomize != ""
}

func (o planOptions) run(ctx context.Context, out, warnings io.Writer, args []string) error {
	edits, err := o.edits(ctx, args)
	if err != nil {
		return err
	}
	namespaces := sets.New[string]()
	for _, e := range edits {
		namespaces.Insert(e.after.GetNamespace())
	}
	for _, namespace := range sets.List(namespaces) {
		if err := o.warn(ctx, warnings, namespace); err != nil {
			return err
		}
	}
	return o.runEdits(ctx, out, edits)
}

func (o planOptions) runEdits(ctx context.Context, out io.Writer, edits []edit) error {
	world, reports := capacity.New(o.client, capacity.All, o.clock.Now()), make([]planReport, len(edits))
	for i, e := range edits {
		var err error
		if reports[i], err = o.report(ctx, world, e); err != nil {
			return err
		}
	}
	if err := printPlans(out, o.output, reports); err != nil {
		return err
	}
	if o.failOnRestart {
		o.failOn = append(o.failOn, failRestart)
	}
	if slices.ContainsFunc(reports, func(r planReport) bool { return slices.ContainsFunc(o.failOn, r.would) }) {
		return cli.Foreseen
	}
	return nil
}

// edits lists what is asked about: the edits in the file, or the rollout that the
// named workload is in.
func (o planOptions) edits(ctx context.Context, args []string) ([]edit, error) {
	if !o.fromManifests() {
		live, err := o.named(args)
		return []edit{{live: live, after: live}}, err
	}
	manifests, err := o.fromFiles(o.files)
	if err != nil {
		return nil, err
	}
	edits := make([]edit, len(manifests))
	for i, manifest := range manifests {
		live, err := o.get(ctx, manifest)
		if apierrors.IsNotFound(err) {
			edits[i] = edit{after: manifest}
			continue
		}
		if err != nil {
			return nil, explain(err)
		}
		if edits[i], err = newEdit(ctx, live, manifest, o.fieldManager); err != nil {
			return nil, err
		}
	}
	return edits, nil
}

// report foresees the rollout that an edit starts.
func (o planOptions) report(ctx context.Context, world *capacity.Cluster, e edit) (planReport, error) {
	if e.live == nil {
		return o.reportNew(ctx, world, e.after)
	}
	shown, err := o.try(ctx, &e)
	if err != nil {
		return planReport{}, err
	}
	settings, err := e.settings()
	if err != nil {
		return planReport{}, fmt.Errorf("%s: %w", nameOf(e.after), err)
	}
	edits, err := e.edits()
	if err != nil {
		return planReport{}, err
	}
	q, there := o.question(ctx, world, e.after, settings, shown.unattended)
	if !edits && !e.endsHold() {
		q.NotHeld = ""
	}
	forecast, err := o.foresee(ctx, q, e.after)
	if err != nil {
		return planReport{}, err
	}
	under, says, err := o.underWay(ctx, e, edits, &q, &forecast)
	if err != nil {
		return planReport{}, err
	}
	r, err := newPlanReport(ctx, e.after, forecast, q)
	r.unknown("which pods go back to their size from before, and what restarts for it", under.reverts())
	r.recorded, r.infeasible = under, says != ""
	r.unknown("which pods keep their size, of which the condition says ", says)
	r.Waits = q.NotHeld == "" && e.waits(edits, there, settings)
	if q.NotHeld == "" && !r.Waits && there.Attendance != nil { // one that is there has seen that edits are held
		r.unknown("whether a controller is there: ", there.Attendance.Error())
	}
	r.unknown("whether the API server takes the edit: ", shown.unknown)
	r.unknown("whether the edit removes what the manifest does not say (kubectl apply does not): ", strings.Join(e.unsaid, ", "))
	return r, err
}

// foresee returns what a rollout to after does to its pods. Without the label nothing is held, also where a hold annotation was left.
func (o planOptions) foresee(ctx context.Context, q capacity.Question, after *unstructured.Unstructured) (rollout.WorkloadForecast, error) {
	if policy.Held(after) && !policy.Enabled(after) {
		after = after.DeepCopy()
		unstructured.RemoveNestedField(after.Object, "metadata", "annotations", api.HoldAnnotation)
	}
	return o.forecast(ctx, q, after)
}

// waits reports whether the edit, or the rollout that is under way, is held, and nobody goes on with it.
func (e edit) waits(edits bool, there prerequisite.Report, settings policy.Settings) bool {
	if edits {
		return there.Waits(settings.Action == policy.LiveResize)
	}
	return policy.Held(e.live) && cmp.Or(there.Installed, there.Controller) != nil
}

// goesBack reports whether an edit, or the rollout that is under way, goes back to the size from before one that is not over.
func (o planOptions) goesBack(ctx context.Context, e edit) (bool, error) {
	record, err := rollout.ReadRecord(e.live.GetAnnotations())
	if err != nil || record == nil || record.From == "" {
		return false, err
	}
	former, err := kindOf(e.live).former(ctx, o.cluster, e.live, record)
	if err != nil || former == nil {
		return false, err
	}
	after, err := templateOf(e.after)
	return err == nil && former.Means(after), err
}

// underWay has a forecast go by what has come of the rollout that is under way, if nothing is edited, and returns what is recorded of it,
// and what believe does. Where the size from before is what comes, nothing guards it.
func (o planOptions) underWay(ctx context.Context, e edit, edits bool, q *capacity.Question, forecast *rollout.WorkloadForecast) (under *recorded, says string, err error) {
	if !edits {
		if under = recordedOf(e.live, q.Settings.Guard, *forecast, q.Unanswerable, o.clock.Now()); under != nil && under.Stopped() {
			forecast.Stop()
		}
		says = believe(e.live, forecast.Pods, q.Unseen(*forecast, e.live.GetNamespace()))
	}
	back, err := o.goesBack(ctx, e)
	if err != nil || !back {
		return under, says, err
	}
	if q.Settings.Guard = nil; under != nil {
		under.back = true
	}
	return under, says, nil
}

// What the controller remembers, and no plan sees: in the first case it restarts none of the pods that only a restart helps.
var (
	keepsAll = []string{judge.ReasonRoomUnknown, judge.ReasonPodRejected, judge.ReasonUnsupportedByNode}
	keeps    = []string{judge.ReasonAdmissionDenied, judge.ReasonDeletedAfterResize, judge.ReasonCheckUnknown}
)

// believe has pods that only a restart gives their size be foreseen to keep theirs, where the reason of the condition says so, and rests on
// what the controller remembers, or on nodes that whoever asks cannot see. A node that is lost says nothing of what comes later. It returns
// what the condition says if that can be about others, too: about which, only people read there.
func believe(u *unstructured.Unstructured, pods []judge.PodForecast, unseen bool) (says string) {
	condition := completeOf(u)
	reason := fmt.Sprint(condition["reason"])
	kept := slices.Contains(keepsAll, reason) || unseen && judge.Acts[reason].Rests == judge.OnNodes && reason != judge.ReasonNodeLost
	if !policy.Enabled(u) || !kept && !slices.Contains(keeps, reason) {
		return ""
	}
	for i := range pods {
		switch f := &pods[i]; f.Forecast {
		case judge.PodRestart:
			if !kept {
				continue
			}
			f.Forecast, f.Reason = judge.Infeasible, "the condition says "+reason+"; "+f.Reason
		case judge.Live, judge.Deferred, judge.ContainerRestart:
			says = fmt.Sprintf("%s: %s", reason, condition["message"])
		}
	}
	return says
}

// unknown notes what is not known, and why; nothing if that is empty.
func (r *planReport) unknown(what, why string) {
	if why != "" {
		r.Unknown = append(r.Unknown, what+why)
	}
}

// question is what a forecast for a workload depends on besides it, and what is there to hold edits of it, as far as a user sees, or
// the dry run of the edit shows.
func (o planOptions) question(ctx context.Context, world *capacity.Cluster, after *unstructured.Unstructured, settings policy.Settings, unattended error) (q capacity.Question, there prerequisite.Report) {
	says := o.told(ctx, after.GetNamespace())
	q = capacity.Question{Cluster: world, Settings: settings, Defaults: says.defaults, Unanswerable: says.unanswerable}
	if o.resizePolicy != "" {
		q.Defaults.ResizePolicy = policy.Policy(o.resizePolicy)
	}
	if policy.Enabled(after) {
		there = o.reportOf(ctx, after.GetNamespace())
	}
	there = there.Shown(unattended)
	q.NotHeld = there.NotHeld(settings.Action == policy.LiveResize)
	return q, there
}

// reportNew foresees what becomes of the pods that a new workload adopts: those that
// `kubectl delete --cascade=orphan` has left, when it is created again.
func (o planOptions) reportNew(ctx context.Context, world *capacity.Cluster, after *unstructured.Unstructured) (planReport, error) {
	settings, err := policy.Read(after.GetAnnotations())
	if err != nil {
		return planReport{}, fmt.Errorf("%s: %w", nameOf(after), err)
	}
	q, _ := o.question(ctx, world, after, settings, errUntried)
	var forecast rollout.WorkloadForecast
	if _, selects, _ := unstructured.NestedMap(after.Object, "spec", "selector"); selects { // else the API server refuses it
		if forecast, err = o.foresee(ctx, q, created(after)); err != nil {
			return planReport{}, err
		}
	}
	forecast.Pods = slices.DeleteFunc(forecast.Pods, func(f judge.PodForecast) bool { return f.Member.Pod == nil })
	r, err := newPlanReport(ctx, after, forecast, q)
	r.New = true
	return r, err
}

// created is a manifest with what the API server makes of it, as far as it matters for
// adopted pods.
func created(manifest *unstructured.Unstructured) *unstructured.Unstructured {
	u := manifest.DeepCopy()
	u.SetUID("")
	delete(u.Object, "status")
	return defaulted(u)
}

// defaulted has the update strategy that API servers fill in, where u says none.
func defaulted(u *unstructured.Unstructured) *unstructured.Unstructured {
	if kindOf(u) != deployments && strategyOf(u) == "" {
		_ = unstructured.SetNestedField(u.Object, string(appsv1.RollingUpdateStatefulSetStrategyType), "spec", "updateStrategy", "type")
	}
	return u
}
