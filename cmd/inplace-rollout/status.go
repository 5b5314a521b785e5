package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
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

// The exit codes of status for rollouts that are not complete, and where nothing goes on until a person acts.
const (
	incomplete = cli.Incomplete
	stopped    = cli.Stopped
)

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
yet, or has not been Ready for long enough since), Infeasible (not possible on this
node) or Done; or KeptBack, by the partition or the pause. WHY says what it
waits for. Of more than 20 pods, those with the same state share a row.
-o wide shows each, with its node, its size and what Kubernetes says in its conditions.
With -A, each workload has a row. Long lines wrap on a terminal only.

All of it is what a controller would say now. What it has written into the condition can be
some seconds behind: where its reason is another one, it is shown, too.
Of what you cannot list, such as nodes, what the condition says is taken to be true.

The exit code is 0 if everything is complete, with all pods Done or KeptBack; 2 if
something is not complete yet, such as for lack of room, or while no controller is
ready; and 3 if nothing continues until a person acts. With --watch the command ends when
everything is complete, or after --timeout. With -o json or -o yaml, --watch writes each
workload when it changes: a line, or a document.`,
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
			ctx, cancel := o.within(cmd.Context(), o.timeout)
			defer cancel()
			if err := o.connect(); err != nil {
				return err
			}
			if err := o.warn(ctx, cmd.ErrOrStderr(), o.scope(o.all)); err != nil {
				return err
			}
			if err := o.warnOfUnowned(ctx, cmd.ErrOrStderr(), o.scope(o.all)); err != nil {
				return err
			}
			return o.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr(), args)
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
	view := statusView{format: o.output, brief: o.all, selects: o.selects()}
	if o.watch {
		return o.follow(ctx, newScreen(out, view), complaints, args)
	}
	reports, err := o.reports(ctx, args)
	if err != nil {
		return err
	}
	if err := view.print(out, reports, o.clock.Now()); err != nil {
		return err
	}
	return completeness(reports)
}

// selects says what the selector selects where it selects nothing; empty without one.
func (o statusOptions) selects() string {
	where := " in " + o.namespace + " namespace"
	switch {
	case o.selector == "":
		return ""
	case o.all:
		where = ""
	}
	return where + ": none that the selector " + o.selector + " selects is opted in."
}

// follow shows reports until everything that is opted in is complete: what is not never becomes so.
func (o statusOptions) follow(ctx context.Context, screen *screen, complaints io.Writer, args []string) error {
	reports, err := o.reports(ctx, args)
	var last []statusReport
	for err == nil {
		last = reports
		if err := screen.show(reports, o.clock.Now()); err != nil {
			return err
		}
		if !slices.ContainsFunc(reports, func(r statusReport) bool { return r.OptedIn && !r.Complete }) {
			return completeness(reports)
		}
		reports, err = o.next(ctx, args, screen)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && last != nil {
		if _, err := fmt.Fprintf(complaints, "Error: not complete after %s\n", o.timeout); err != nil {
			return err
		}
		return completeness(last)
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

// completeness is the exit code: of several workloads, that of one where something goes on yet.
func completeness(reports []statusReport) error {
	var code error
	for _, r := range reports {
		switch {
		case r.Complete:
		case !r.Stopped:
			return incomplete
		default:
			code = stopped
		}
	}
	return code
}

// passing reports whether it may help to look again: the API server is out of reach or
// overloaded, as while a control plane is upgraded.
func passing(err error) bool {
	code := codeOf(err)
	return code == 0 && !errors.Is(err, context.Canceled) || code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}

// statusReport is how far the rollout of one workload has come.
type statusReport struct {
	metav1.TypeMeta `json:",inline"`
	Workload        cli.Workload `json:"workload"`
	OptedIn         bool         `json:"optedIn"`
	Revision        string       `json:"revision"`
	Held            bool         `json:"held"`
	Complete        bool         `json:"complete"`
	// Stopped: nothing goes on until a person acts.
	Stopped bool   `json:"stopped"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Condition is what the workload's condition says, where that is something else.
	Condition *writtenCondition `json:"condition,omitempty"`
	// Unknown is why nothing is known of the pods; empty if something is.
	Unknown string      `json:"unknown,omitempty"`
	Pods    []podStatus `json:"pods"`

	// Rollout is the record of a guarded rollout; nil if none is under way or stopped.
	Rollout *rollout.Record `json:"rollout,omitempty"`

	recorded *recorded    // the same, with what it rests on
	written  *metav1.Time // when the condition was; nil if there is none
	short    string       // the message, without what the pods say; empty if that is all of it
	blocker  string       // the pod that the others wait for; empty if they wait for none
}

// writtenCondition is what a condition says that may be behind.
type writtenCondition struct {
	Reason  string       `json:"reason"`
	Message string       `json:"message"`
	Written *metav1.Time `json:"written"`
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
	Reason    string       `json:"reason,omitempty"` // one of the condition's, of a pod that is not done
	Why       string       `json:"why,omitempty"`

	coming bool // there is no such pod, or it is about to go
	sized  bool // it has its size, be it marked, or well with it, or not
}

// why says what the pod waits for, in the words of the condition.
func (p podStatus) why() string {
	if p.Reason == "" || p.Reason == judge.ReasonProgressing {
		return p.Why
	}
	return p.Reason + ": " + p.Why
}

// underWay reports whether the pod is about to be another one by itself.
func (p podStatus) underWay() bool {
	return p.coming || p.State == stateRequested || p.State == stateAccepted
}

// pending reports whether something is still to be done to the pod.
func (p podStatus) pending() bool { return p.State != stateDone && p.State != stateKeptBack }

func (o statusOptions) reports(ctx context.Context, args []string) ([]statusReport, error) {
	o.says = nil // --watch looks again
	if scope := o.scope(o.all); o.watch && o.cluster.reports[scope].Controller != nil {
		delete(o.cluster.reports, scope)
	}
	found, err := o.workloads(ctx, args)
	if err != nil {
		return nil, err
	}
	return o.reportAll(ctx, found)
}

// reportAll returns how far the rollouts of workloads have come, in their order.
func (o statusOptions) reportAll(ctx context.Context, found []*unstructured.Unstructured) ([]statusReport, error) {
	world, reports := capacity.New(o.client, capacity.All, o.clock.Now()), make([]statusReport, len(found))
	for i, u := range found {
		var err error
		if reports[i], err = o.report(ctx, world, u, o.told(ctx, u.GetNamespace())); err != nil {
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

func (o statusOptions) report(ctx context.Context, world *capacity.Cluster, u *unstructured.Unstructured, says told) (statusReport, error) {
	r := statusReport{
		TypeMeta: cli.Type(statusKind), Workload: cli.WorkloadOf(u), OptedIn: policy.Enabled(u),
		Revision: kindOf(u).revision(u), Held: policy.Held(u), Pods: []podStatus{},
	}
	r.readCondition(u)
	if !r.OptedIn {
		return r, nil
	}
	settings, err := policy.InForce(u.GetAnnotations())
	if err == nil && kindOf(u) == daemonSets {
		_, err = policy.ReadClasses(u.GetAnnotations())
	}
	if err == nil {
		_, err = rollout.ReadRecord(u.GetAnnotations())
	}
	if err != nil {
		r.now(rollout.Plan{Condition: rollout.Invalid(err)}, false)
		return r, nil
	}
	q := capacity.Question{Cluster: world, Settings: settings, Defaults: says.defaults, Unanswerable: says.unanswerable, Next: true}
	forecast, err := o.forecast(ctx, q, u)
	if err != nil {
		return r, err
	}
	r.Unknown, r.blocker = forecast.Unknown, blocker(forecast.Plan)
	r.recorded = recordedOf(u, settings.Guard, forecast, says.unanswerable, o.clock.Now())
	for _, f := range forecast.Pods {
		if v := goingBack(forecast.Plan, f.Member.Name); v != nil && f.Forecast != judge.ScaledIn && f.Forecast != judge.KeptBack { // the size that it has is the one that has failed
			f = judge.Forecasts([]*judge.Verdict{v}, o.clock.Now())[0]
		}
		if f.Forecast != judge.ScaledIn {
			r.Pods = append(r.Pods, r.statusOf(f, forecast.Plan))
		}
	}
	r.Revision = cmp.Or(forecast.Revision, r.Revision)
	r.now(forecast.Plan, q.Unseen(forecast, u.GetNamespace()))
	if o.reportOf(ctx, o.scope(o.all)).Controller != nil {
		r.unattended()
	}
	return r, nil
}

// now has the report say what a controller would that looked at the workload now: what it has written may be behind, and is shown
// where it says something else. But it knows more than the plan where that rests on less than the controller sees.
func (r *statusReport) now(p rollout.Plan, unseen bool) {
	written, c := &writtenCondition{r.Reason, r.Message, r.written}, r.conditionOf(p)
	rests := judge.Acts[r.Reason].Rests
	kept := c.Reason == judge.ReasonProgressing && (rests == judge.OnMemory || unseen && rests == judge.OnNodes)
	switch known := r.written != nil && c.Reason != "" && r.Reason != judge.ReasonPending; {
	case known && kept:
		r.refuse(p)
	case known:
		r.Complete, r.Reason, r.Message = c.Complete, c.Reason, c.Message()
		r.short = r.shortened(p, c).Message()
	}
	r.lose()
	if r.Reason != written.Reason && r.written != nil {
		r.Condition = written
	}
	r.Stopped = !r.Complete && (judge.Acts[r.Reason].Stops && !r.moves(p, kept) || r.recorded.awaitsPromotion(p))
}

// promises are what a controller is about to do, and what is to be said where none is ready.
var promises = strings.NewReplacer("resizing: ", "to be resized when a controller is ready: ", "restarting: ", "to be restarted when a controller is ready: ",
	"asking again: ", "to be asked again when a controller is ready: ", "is about to be marked", "is marked when a controller is ready")

// unattended has nothing be promised that only a controller does.
func (r *statusReport) unattended() {
	r.Message, r.short = promises.Replace(r.Message), promises.Replace(r.short)
	for i, p := range r.Pods {
		r.Pods[i].Why = promises.Replace(p.Why)
	}
}

// conditionOf is the condition that a controller would write by a plan.
func (r *statusReport) conditionOf(p rollout.Plan) rollout.Condition {
	if p.Condition.Reason == "" && r.Held && len(p.Verdicts) > 0 { // the hold is about to end
		return p.Step.Condition()
	}
	c := p.Condition
	if p.Unacknowledged != "" && p.Updated == p.Total { // else pods wait for more
		c.Details += "; " + p.Unacknowledged
	}
	return c
}

// shortened is a plan's condition without the waits that the table of pods says.
func (r *statusReport) shortened(p rollout.Plan, c rollout.Condition) rollout.Condition {
	_, spelled := rollout.Spell(p.Waits)
	if rest, all := strings.CutPrefix(c.Details, spelled); all {
		_, others := rollout.Spell(slices.DeleteFunc(slices.Clone(p.Waits), r.podsSay))
		c.Details = others + rest
	}
	return c
}

// podsSay reports whether the table of pods has what a wait says.
func (r *statusReport) podsSay(w rollout.Wait) bool {
	return slices.ContainsFunc(r.Pods, func(p podStatus) bool { return p.Name == w.Member.Name || p.Why == ofSet(w) })
}

// refuse has the pods that would be asked or restarted now say why the controller does not do it. Those after them may wait, or it may be
// so of them, too: of which pods the condition says it, only people read there.
func (r *statusReport) refuse(p rollout.Plan) {
	for i := range r.Pods {
		pod := &r.Pods[i]
		why, restarts := strings.CutPrefix(pod.Why, "restarting: ")
		switch {
		case restarts && r.Reason == judge.ReasonDisruptionBudget:
			pod.Reason, pod.Why = r.Reason, pod.Why+"; not evicted yet"
		case restarts:
			pod.Reason, pod.Why = r.Reason, "not restarted: "+why
		case slices.ContainsFunc(p.Resize, func(m judge.Member) bool { return m.Name == pod.Name }):
			pod.Reason, pod.Why = r.Reason, "as the condition says"
		case pod.Why == besideOthers, pod.Why == behindOthers && (r.Workload.Kind != statefulSets.name || judge.Acts[r.Reason].Rests == judge.OnNodes):
			pod.Why = "as the condition says, or " + pod.Why
		}
	}
}

// lose has a workload not be Complete where a pod is not done: one may have been lost since.
func (r *statusReport) lose() {
	i := slices.IndexFunc(r.Pods, podStatus.pending)
	if !r.Complete || i < 0 {
		return
	}
	p := r.Pods[i]
	r.Complete, r.Reason, r.short = false, judge.ReasonProgressing, ""
	r.Message = p.Name + " is " + string(p.State) + ": " + p.why()
}

// moves reports whether something goes on by itself: a pod that whoever looks sees on its way, or what the plan does next, unless the
// condition is believed instead.
func (r *statusReport) moves(p rollout.Plan, believed bool) bool {
	if r.Rollout.Stopped() {
		return r.Rollout.Phase == rollout.PhaseReverting
	}
	return slices.ContainsFunc(r.Pods, podStatus.underWay) || !believed && len(p.Resize)+len(p.MarkUpdated)+len(p.Restart) > 0
}

// sized is how many pods the condition says to be resized.
func (r *statusReport) sized() (n int) {
	for _, p := range r.Pods {
		if p.sized {
			n++
		}
	}
	return n
}

// readCondition takes over the controller's condition, if it is about what is there now.
func (r *statusReport) readCondition(u *unstructured.Unstructured) {
	if !r.OptedIn {
		r.Stopped, r.Reason = true, "NotOptedIn"
		r.Message = cmp.Or(policy.BadLabel(u), "label it with "+api.EnabledLabel+"=true to have it rolled out in place")
		return
	}
	r.Rollout, _ = rollout.ReadRecord(u.GetAnnotations()) // of one that cannot be read the condition says so
	r.Reason, r.Message = "Unknown", "no controller has written the condition"
	if fields := completeOf(u); fields != nil {
		r.Reason, _, _ = unstructured.NestedString(fields, "reason")
		r.Message, _, _ = unstructured.NestedString(fields, "message")
		r.Complete = fields["status"] == string(corev1.ConditionTrue)
		r.written = writtenAt(u, fields)
	}
	observed, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	if r.Complete && (r.Held || observed < u.GetGeneration()) {
		r.Complete, r.Reason, r.Message = false, judge.ReasonPending, "the controller has not seen the newest edit yet"
	}
}

// writtenAt returns when the controller has written the condition last: with the status, or at least its transition.
func writtenAt(u *unstructured.Unstructured, condition map[string]any) *metav1.Time {
	at := &metav1.Time{}
	if transition, err := time.Parse(time.RFC3339, fmt.Sprint(condition["lastTransitionTime"])); err == nil {
		at.Time = transition
	}
	for _, entry := range u.GetManagedFields() {
		if entry.Manager == api.FieldManager && entry.Subresource == "status" && entry.Time != nil && entry.Time.After(at.Time) {
			at = entry.Time
		}
	}
	return at
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

// statusOf is the state of a pod, and what it waits for by the plan that is made now.
func (r *statusReport) statusOf(f judge.PodForecast, plan rollout.Plan) podStatus {
	m := f.Member
	p := podStatus{Name: m.Name, Class: m.Class, State: stateWaiting, Reason: f.Waits, Why: f.Message}
	waits := waitsOf(m, plan.Waits)
	if len(waits) > 0 {
		i := max(slices.IndexFunc(waits, func(w rollout.Wait) bool { return w.Reason != judge.ReasonProgressing }), 0)
		p.Reason, p.Why = waits[i].Reason, waits[i].Message
	}
	if f.Forecast == judge.KeptBack {
		p.State, p.Reason, p.Why = stateKeptBack, "", f.Reason
	}
	if m.Pod != nil {
		p.Node = m.Pod.Spec.NodeName
		p.Condition, p.Since = conditionOf(m.Pod)
	}
	if p.coming = judge.Gone(m.Pod); p.coming {
		return p
	}
	p.Applied, p.sized = m.Target.Applied(), m.Updated || judge.Done(f.Observed)
	p.show(f, len(waits) > 0 && p.Reason == judge.ReasonProgressing)
	p.Wanted = r.stillWanted(p.Wanted)
	if why := r.awaits(plan, m); p.State == stateWaiting && f.Observed == resize.Unsent && len(waits) == 0 && why != "" {
		p.Reason, p.Why = judge.ReasonProgressing, why
	}
	if p.pending() {
		rest := "waiting for the kubelet"
		if f.Observed == resize.Actuated {
			rest = "it has its size, and is about to be marked"
			if r.recorded != nil && !r.recorded.back { // a new leader has it proved anew
				rest = "it has its size, and is marked when the controller has seen it Ready for long enough"
			}
		}
		p.Why = cmp.Or(p.Why, r.awaitsPerson(plan, m), rest)
	}
	r.prove(&p, f)
	return p
}

// stillWanted is the size that a pod is to have; nil if that has failed, and pods go back.
func (r *statusReport) stillWanted(size resize.Size) resize.Size {
	if r.Rollout != nil && slices.Contains([]rollout.Phase{rollout.PhaseReverting, rollout.PhaseReverted}, r.Rollout.Phase) {
		return nil
	}
	return size
}

// waitsOf returns the waits of a pod, or those of its ReplicaSet if that is not the one whose pods are resized.
func waitsOf(m judge.Member, all []rollout.Wait) (waits []rollout.Wait) {
	set := ""
	if m.Pod != nil && m.Differs != "" {
		set = ptr.Deref(metav1.GetControllerOf(m.Pod), metav1.OwnerReference{}).Name
	}
	for _, w := range all {
		switch w.Member.Name {
		case m.Name:
			waits = append(waits, w)
		case set:
			waits = append(waits, rollout.Wait{Member: m, Reason: w.Reason, Message: ofSet(w)})
		}
	}
	return waits
}

// ofSet is what pods of a ReplicaSet say of a wait of that.
func ofSet(w rollout.Wait) string { return w.Member.Name + ": " + w.Message }

// show sets the state of a pod that is there. Waits: it has still to show something, be it updated or not.
func (p *podStatus) show(f judge.PodForecast, waits bool) {
	m := f.Member
	switch {
	case m.Updated:
		p.State, p.Wanted = stateDone, m.Target.Wanted()
		if !m.Available || waits {
			p.State = stateAccepted
		}
	case p.State == stateKeptBack:
	case m.Differs == "":
		never := len(m.Target.Obstacles) > 0 // by a resize
		if !never {
			p.Wanted = m.Target.Wanted()
		}
		switch {
		case never && judge.Done(f.Observed): // with the size from before
			p.State = stateWaiting
		case f.Observed == resize.InProgress && m.Pod.Status.ObservedGeneration >= m.Pod.Generation:
			p.State = stateAccepted // the kubelet has seen it, and does not say that it has to wait
		default:
			p.State = stateOf[f.Observed]
		}
	}
}

// prove notes when the pod will have proved its size. Where the workload is Complete, that has been proved, whatever the clock here says.
func (r *statusReport) prove(p *podStatus, f judge.PodForecast) {
	at := f.ProvedAt
	if canary := r.recorded.until(f.Member.Pod.UID); at.IsZero() && !canary.IsZero() && canary.After(r.recorded.now) {
		at = canary
	}
	if !at.IsZero() && !r.Complete && !r.Rollout.Stopped() {
		p.State, p.Proved = stateAccepted, ptr.To(metav1.NewTime(at))
	}
}

// goingBack returns the verdict on a pod that has the size which has failed, or is about to lose it; nil if nothing is to be done to it.
func goingBack(p rollout.Plan, name string) *judge.Verdict {
	if p.Condition.Phase != rollout.PhaseReverted {
		return nil
	}
	i := slices.IndexFunc(p.Verdicts, func(v *judge.Verdict) bool { return v.Member.Name == name && !v.Member.Updated })
	if i < 0 {
		return nil
	}
	return p.Verdicts[i]
}

// awaitsPerson says that nothing goes on by itself where the rollout was stopped, and the pod does not go back; empty if it does.
func (r *statusReport) awaitsPerson(plan rollout.Plan, m judge.Member) string {
	if r.Rollout.Stopped() && goingBack(plan, m.Name) == nil {
		return "the rollout was stopped"
	}
	return ""
}

// What pods wait for whose turn has not come.
const (
	behindOthers = "waiting for the pods before it"
	besideOthers = "waiting for other pods"
)

// blocker names the pod that uses up the limits by itself, or with others that are not available either; empty where pods are resized, or
// others are under way.
func blocker(p rollout.Plan) (name string) {
	for _, v := range p.Verdicts {
		switch {
		case v.Claim.Share && !v.Claim.Down:
			return ""
		case v.Claim.Share && !v.Claim.Idle:
			name = cmp.Or(name, v.Member.Name)
		}
	}
	if len(p.Resize)+len(p.Restart) > 0 {
		return ""
	}
	return name
}

// awaits says what a pod waits for that is not asked yet; empty if no plan tells.
func (r *statusReport) awaits(plan rollout.Plan, m judge.Member) string {
	switch person := r.awaitsPerson(plan, m); {
	case person != "":
		return person
	case plan.Condition.Phase == rollout.PhaseHandedOver:
		return "waiting for the " + plan.Condition.Kind + " controller"
	case plan.Canary && (r.blocker == "" || r.recorded.asked()):
		return "waiting for the canary"
	case r.blocker != "" && r.blocker != m.Name:
		return "waiting for " + r.blocker + ", which is not available, and counts towards maxUnavailable"
	case len(plan.Verdicts) > 0 && len(r.Pods) == 0: // the first one may have been lost
		return besideOthers
	case len(plan.Verdicts) > 0:
		return behindOthers
	default:
		return ""
	}
}

// stateOf are the words for the states that a pod shows.
var stateOf = map[resize.State]podState{
	resize.Unsent: stateWaiting, resize.InProgress: stateRequested, resize.Deferred: stateRequested, resize.Failing: stateAccepted,
	resize.Infeasible: stateInfeasible, resize.Unready: stateAccepted, resize.Actuated: stateAccepted, // until it counts as updated
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
