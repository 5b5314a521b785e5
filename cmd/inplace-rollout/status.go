package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// incomplete is the exit code of status for rollouts that are not complete.
const incomplete = cli.Incomplete

// watchInterval is how often status --watch looks.
const watchInterval = time.Second

// statusOptions are the arguments of the status command.
type statusOptions struct {
	*cluster
	all      bool
	selector string
	watch    bool
	timeout  time.Duration
	output   cli.Format
}

func newStatusCommand() *cobra.Command {
	o := statusOptions{cluster: newCluster()}
	cmd := &cobra.Command{
		Use:   "status [TYPE/NAME]",
		Short: "Show rollout progress per pod",
		Long: `Show rollout progress per pod: of one workload, or of all that are opted in, in a
namespace or everywhere.

A pod's state is Waiting (resize not requested yet), Requested (the kubelet has not
answered, or defers it), Accepted (it is being carried out, or the pod is not available
yet, or has not been Ready for minReadySeconds since), Infeasible (not possible on this
node) or Done; or KeptBack, by the partition or the pause. WHY says what it
waits for. Of more than 20 pods, those with the same state share a row.
-o wide shows each, with its node, its size and what Kubernetes says in its conditions.
With -A, each workload has a row. Long lines wrap on a terminal only.

The exit code is 0 if everything is complete, with all pods Done or KeptBack, 2 if not,
and 3 if a rollout is stopped until a person acts. With --watch the command ends when everything is complete, or after --timeout. With
-o json or -o yaml, --watch writes each workload when it changes: a line, or a document.`,
		Example: `  # Show progress
  inplace-rollout status sts/db

  # Watch it until it is complete, at most for ten minutes
  inplace-rollout status deployment/web --watch --timeout=10m

  # Everything that is opted in
  inplace-rollout status -A

  # Of one team's, for a script
  inplace-rollout status -A -l team=shop -o json`,
		ValidArgsFunction: o.completeWorkload(policy.Enabled),
		SilenceUsage:      true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(args); err != nil {
				return err
			}
			if err := o.connect(); err != nil {
				return err
			}
			if err := o.warn(cmd.Context(), cmd.ErrOrStderr(), o.scope(o.all)); err != nil {
				return err
			}
			if err := o.warnOfUnowned(cmd.Context(), cmd.ErrOrStderr(), o.scope(o.all)); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "all namespaces")
	f.StringVarP(&o.selector, "selector", "l", "", "label selector of workloads, such as team=shop")
	f.BoolVarP(&o.watch, "watch", "w", false, "watch until everything is complete")
	f.DurationVar(&o.timeout, "timeout", 0, "with --watch: how long to wait at most; 0 waits for as long as it takes")
	o.output.AddFlag(cmd, "a row for each pod, with more columns")
	o.flags.AddFlags(cmd.PersistentFlags())
	o.completeFlags(cmd)
	return cmd
}

func (o statusOptions) validate(args []string) error {
	if err := o.output.Validate(); err != nil {
		return err
	}
	switch {
	case o.all && len(args) > 0:
		return errors.New("want either a workload, such as sts/web, or --all-namespaces")
	case o.selector != "" && len(args) > 0:
		return errors.New("want either a workload, such as sts/web, or --selector")
	case o.timeout != 0 && !o.watch:
		return errors.New("--timeout goes with --watch")
	case o.timeout < 0:
		return fmt.Errorf("--timeout is %s: want 0 or more", o.timeout)
	}
	return validSelector(o.selector)
}

func (o statusOptions) run(ctx context.Context, out, complaints io.Writer, args []string) error {
	view := statusView{format: o.output, brief: o.all}
	if o.watch {
		return o.follow(ctx, newScreen(out, view), complaints, args)
	}
	reports, err := o.reports(ctx, args)
	if err != nil {
		return err
	}
	if err := view.print(out, reports, time.Now()); err != nil {
		return err
	}
	return completeness(reports)
}

// follow shows reports until everything that is opted in is complete: what is not never becomes so.
func (o statusOptions) follow(ctx context.Context, screen *screen, complaints io.Writer, args []string) error {
	over := ctx
	if o.timeout > 0 {
		var cancel context.CancelFunc
		over, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	reports, err := o.reports(ctx, args)
	for err == nil {
		if err := screen.show(reports, time.Now()); err != nil {
			return err
		}
		if !slices.ContainsFunc(reports, func(r statusReport) bool { return r.OptedIn && !r.Complete }) {
			return completeness(reports)
		}
		reports, err = o.next(over, args, screen)
	}
	if ctx.Err() == nil && over.Err() != nil {
		if _, err := fmt.Fprintf(complaints, "Error: not complete after %s\n", o.timeout); err != nil {
			return err
		}
		return incomplete
	}
	return err
}

// next looks again, as often as it takes the API server to answer.
func (o statusOptions) next(ctx context.Context, args []string, screen *screen) ([]statusReport, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, incomplete
		case <-time.After(watchInterval):
		}
		reports, err := o.reports(ctx, args)
		if err == nil || ctx.Err() == nil && !passing(err) {
			return reports, err
		}
		if ctx.Err() != nil {
			return nil, incomplete
		}
		if err := screen.trouble(err); err != nil {
			return nil, err
		}
	}
}

// completeness is the exit code.
func completeness(reports []statusReport) error {
	switch {
	case !slices.ContainsFunc(reports, func(r statusReport) bool { return !r.Complete }):
		return nil
	case slices.ContainsFunc(reports, func(r statusReport) bool { return r.recorded != nil && r.recorded.Stopped() }):
		return cli.Stopped
	}
	return incomplete
}

// passing reports whether it may help to look again: the API server is out of reach or
// overloaded, as while a control plane is upgraded.
func passing(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return !errors.Is(err, context.Canceled)
	}
	code := status.Status().Code
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}

// statusReport is how far the rollout of one workload has come.
type statusReport struct {
	metav1.TypeMeta `json:",inline"`
	Workload        cli.Workload `json:"workload"`
	OptedIn         bool         `json:"optedIn"`
	Revision        string       `json:"revision"`
	Held            bool         `json:"held"`
	Complete        bool         `json:"complete"`
	Reason          string       `json:"reason"`
	Message         string       `json:"message"`
	Pods            []podStatus  `json:"pods"`

	// Rollout is the record of a guarded rollout; nil if none is under way or stopped.
	Rollout *rollout.Record `json:"rollout,omitempty"`

	recorded *recorded // the same, with what it rests on
}

// statusKind is the kind of the report as a document.
const statusKind = "RolloutStatus"

// podState is the state of a pod's resize.
type podState string

// The states.
const (
	stateWaiting    podState = "Waiting"
	stateRequested  podState = "Requested"
	stateAccepted   podState = "Accepted"
	stateInfeasible podState = "Infeasible"
	stateDone       podState = "Done"

	// stateKeptBack: the user keeps the pod as it is.
	stateKeptBack podState = "KeptBack"
)

type podStatus struct {
	Name      string       `json:"name"`
	Node      string       `json:"node,omitempty"`
	Class     string       `json:"class,omitempty"` // of the node, where that has a size of its own
	Wanted    resize.Size  `json:"wanted,omitempty"`
	Applied   resize.Size  `json:"applied,omitempty"`
	State     podState     `json:"state"`
	Condition string       `json:"condition,omitempty"` // of Kubernetes
	Since     *metav1.Time `json:"since,omitempty"`
	Proved    *metav1.Time `json:"proved,omitempty"` // when the pod will have proved its size, as far as the clock here tells
	Why       string       `json:"why,omitempty"`
}

// pending reports whether something is still to be done to the pod.
func (p podStatus) pending() bool { return p.State != stateDone && p.State != stateKeptBack }

func (o statusOptions) reports(ctx context.Context, args []string) ([]statusReport, error) {
	found, err := o.workloads(ctx, args)
	if err != nil {
		return nil, err
	}
	return o.reportAll(ctx, found)
}

// reportAll returns how far the rollouts of workloads have come, in their order.
func (o statusOptions) reportAll(ctx context.Context, found []*unstructured.Unstructured) ([]statusReport, error) {
	world, reports := capacity.New(o.client, capacity.Sizes, time.Now()), make([]statusReport, len(found))
	for i, u := range found {
		var err error
		if reports[i], err = o.report(ctx, world, u); err != nil {
			return nil, err
		}
	}
	return reports, nil
}

func (o statusOptions) workloads(ctx context.Context, args []string) ([]*unstructured.Unstructured, error) {
	if len(args) > 0 {
		u, err := o.named(args)
		return []*unstructured.Unstructured{u}, err
	}
	return o.optedIn(ctx, o.scope(o.all), o.selector)
}

func (o statusOptions) report(ctx context.Context, world *capacity.Cluster, u *unstructured.Unstructured) (statusReport, error) {
	r := statusReport{
		TypeMeta: cli.Type(statusKind), Workload: cli.WorkloadOf(u), OptedIn: policy.Enabled(u),
		Revision: kindOf(u).revision(u), Held: policy.Held(u), Pods: []podStatus{},
	}
	r.readCondition(u)
	settings, err := policy.InForce(u.GetAnnotations())
	if err != nil {
		return r, nil //nolint:nilerr // the condition names the malformed annotation
	}
	if _, err := policy.ReadClasses(u.GetAnnotations()); err != nil && kindOf(u) == daemonSets { // so does it here
		return r, nil
	}
	forecast, err := o.forecast(ctx, world, u, settings, policy.Standard)
	if err != nil {
		return r, explain(err)
	}
	r.recorded = recordedOf(u, settings.Guard, forecast.Pods)
	for _, f := range forecast.Pods {
		if f.Forecast != judge.ScaledIn {
			if r.Complete { // so that has been proved, whatever the clock here says
				f.ProvedAt = time.Time{}
			}
			p := statusOf(f)
			if at := r.recorded.wellUntil(f, settings.Guard, u); (r.Held || r.recorded != nil) && r.Reason == judge.ReasonProgressing && at.After(time.Now()) {
				p.State, p.Why, p.Proved = stateAccepted, "", ptr.To(metav1.NewTime(at))
			}
			r.Pods = append(r.Pods, p)
		}
	}
	r.compare()
	r.catchUp(settings.Guard != nil)
	return r, nil
}

// compare corrects a condition that says Complete where a pod is not done: the condition may
// be behind, and a pod may have been lost since.
func (r *statusReport) compare() {
	i := slices.IndexFunc(r.Pods, podStatus.pending)
	if r.Complete && i >= 0 {
		p := r.Pods[i]
		r.Complete, r.Reason = false, judge.ReasonProgressing
		why := ""
		if p.Why != "" {
			why = ": " + p.Why
		}
		r.Message = fmt.Sprintf("%s is %s%s; the condition says Complete: %s", p.Name, p.State, why, r.Message)
	}
}

// catchUp replaces what a condition says that only tells of progress, which may be a minute behind, by how many pods are done by now. What
// those wait for that are not, the report says of each of them. Where all are done, or the rollout is guarded, only the condition knows
// what is missing.
func (r *statusReport) catchUp(guarded bool) {
	count := r.count()
	now := rollout.Condition{Phase: rollout.PhaseResizing, Updated: count[stateDone], Total: len(r.Pods) - count[stateKeptBack]}
	if r.Held && !guarded && r.Reason == judge.ReasonProgressing && now.Updated < now.Total {
		r.Message = now.Message()
	}
}

// count is how many pods are in each state.
func (r *statusReport) count() map[podState]int {
	count := map[podState]int{}
	for _, p := range r.Pods {
		count[p.State]++
	}
	return count
}

// readCondition takes over the controller's condition, if it is about what is there now.
func (r *statusReport) readCondition(u *unstructured.Unstructured) {
	if !r.OptedIn {
		r.Reason, r.Message = "NotOptedIn", cmp.Or(policy.BadLabel(u), "label it with "+api.EnabledLabel+"=true to have it rolled out in place")
		return
	}
	r.Rollout, _ = rollout.ReadRecord(u.GetAnnotations()) // of one that cannot be read the condition says so
	r.Reason, r.Message = "Unknown", "the controller has not written the condition yet"
	if fields := completeOf(u); fields != nil {
		r.Reason, _, _ = unstructured.NestedString(fields, "reason")
		r.Message, _, _ = unstructured.NestedString(fields, "message")
		r.Complete = fields["status"] == string(corev1.ConditionTrue)
	}
	observed, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	if r.Complete && (r.Held || observed < u.GetGeneration()) {
		r.Complete, r.Reason, r.Message = false, judge.ReasonPending, "the controller has not seen the newest edit yet"
	}
}

// completeOf returns the fields of the condition Complete of a workload; nil if it has none.
func completeOf(u *unstructured.Unstructured) map[string]any {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if fields, ok := c.(map[string]any); ok && fields["type"] == api.ConditionComplete {
			return fields
		}
	}
	return nil
}

func statusOf(f judge.PodForecast) podStatus {
	m := f.Member
	p := podStatus{Name: m.Name, Class: m.Class, State: stateWaiting, Why: f.Reason}
	if m.Pod == nil {
		return p
	}
	if f.Forecast == judge.KeptBack {
		p.State = stateKeptBack
	}
	p.Node = m.Pod.Spec.NodeName
	p.Condition, p.Since = conditionOf(m.Pod)
	if m.Pod.DeletionTimestamp != nil {
		p.Why = "it is being deleted"
		return p
	}
	if judge.Gone(m.Pod) {
		p.Why = "it has ended"
		return p
	}
	p.Applied = m.Target.Applied()
	switch {
	case m.Updated:
		p.State, p.Wanted = stateDone, m.Target.Wanted()
		if !m.Available {
			p.State, p.Why = stateAccepted, "waiting for the pod to become available"
		}
	case f.Forecast == judge.KeptBack:
	case m.Differs == "":
		if f.Forecast != judge.PodRestart {
			p.Wanted = m.Target.Wanted()
		}
		p.State, p.Why = stateOf[f.Observed], cmp.Or(p.Why, f.Says)
		if f.Observed == resize.InProgress && m.Pod.Status.ObservedGeneration >= m.Pod.Generation {
			p.State = stateAccepted // the kubelet has seen it, and does not say that it has to wait
		}
	}
	if !f.ProvedAt.IsZero() {
		p.State, p.Why, p.Proved = stateAccepted, "", ptr.To(metav1.NewTime(f.ProvedAt))
	}
	return p
}

// stateOf are the words for the states that a pod shows.
var stateOf = map[resize.State]podState{
	resize.Unsent: stateWaiting, resize.InProgress: stateRequested, resize.Deferred: stateRequested, resize.Failing: stateAccepted,
	resize.Infeasible: stateInfeasible, resize.Unready: stateAccepted, resize.Actuated: stateDone,
}

// conditionOf names what Kubernetes says about the pod's resize.
func conditionOf(pod *corev1.Pod) (string, *metav1.Time) {
	for _, c := range pod.Status.Conditions {
		if c.Status != corev1.ConditionTrue || c.Type != corev1.PodResizePending && c.Type != corev1.PodResizeInProgress {
			continue
		}
		name := string(c.Type)
		if c.Reason != "" {
			name += "/" + c.Reason
		}
		return name, &c.LastTransitionTime
	}
	return "", nil
}
