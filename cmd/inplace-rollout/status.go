package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/pkg/workload"
)

// incomplete is the exit code of status for rollouts that are not complete.
const incomplete = exitError(2)

// watchInterval is how often status --watch looks.
const watchInterval = time.Second

// statusOptions are the arguments of the status command.
type statusOptions struct {
	*cluster
	all    bool
	watch  bool
	output string
}

func newStatusCommand() *cobra.Command {
	o := statusOptions{cluster: newCluster()}
	cmd := &cobra.Command{
		Use:   "status [TYPE/NAME]",
		Short: "Show how far rollouts have come, pod by pod",
		Long: `Show how far rollouts have come, pod by pod: of one workload, or of all that are
opted in, in a namespace or everywhere.

A pod's state is in the words of the proposal for vertical scaling: Waiting (it has
not been asked yet), Requested (the kubelet has not answered, or defers it), Accepted
(it is being carried out), Rejected (not possible on this node) or Done. Beside it
stands what Kubernetes says in the pod's conditions.

The exit code is 0 if everything is complete, and 2 if not; with --watch it waits
until everything is.`,
		Example: `  # How far is it?
  inplace-rollout status sts/web

  # Watch it until it is complete
  inplace-rollout status deployment/web --watch

  # Everything that is opted in
  inplace-rollout status -A`,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{"", "json", "yaml"}, o.output) {
				return fmt.Errorf("--output is %q: want json or yaml, or none for a table", o.output)
			}
			if o.watch && o.output != "" {
				return errors.New("--watch prints no " + o.output + ": leave one of them away")
			}
			if err := o.connect(); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), args)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "all namespaces")
	f.BoolVarP(&o.watch, "watch", "w", false, "go on until everything is complete")
	f.StringVarP(&o.output, "output", "o", "", "json or yaml; none prints a table")
	o.flags.AddFlags(cmd.PersistentFlags())
	return cmd
}

func (o statusOptions) run(ctx context.Context, out io.Writer, args []string) error {
	screen := newScreen(out)
	for {
		reports, err := o.reports(ctx, args)
		if err != nil {
			return err
		}
		complete := !slices.ContainsFunc(reports, func(r statusReport) bool { return !r.Complete })
		switch {
		case !o.watch:
			err = printStatus(out, o.output, reports)
		default:
			err = screen.show(reports)
		}
		if err != nil || complete {
			return err
		}
		if !o.watch {
			return incomplete
		}
		select {
		case <-ctx.Done():
			return incomplete
		case <-time.After(watchInterval):
		}
	}
}

// statusReport is how far the rollout of one workload has come.
type statusReport struct {
	Kind      string      `json:"kind"`
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	OptedIn   bool        `json:"optedIn"`
	Revision  string      `json:"revision"`
	Held      bool        `json:"held"`
	Complete  bool        `json:"complete"`
	Reason    string      `json:"reason"`
	Message   string      `json:"message"`
	Pods      []podStatus `json:"pods"`
}

// State of a pod's resize, in the words of the 2017 proposal.
type State string

// The states.
const (
	Waiting   State = "Waiting"
	Requested State = "Requested"
	Accepted  State = "Accepted"
	Rejected  State = "Rejected"
	Done      State = "Done"
)

type podStatus struct {
	Name      string       `json:"name"`
	Node      string       `json:"node,omitempty"`
	Wanted    string       `json:"wanted"`
	Applied   string       `json:"applied"`
	State     State        `json:"state"`
	Condition string       `json:"condition,omitempty"` // of Kubernetes
	Since     *metav1.Time `json:"since,omitempty"`
	Why       string       `json:"why,omitempty"`
}

func (o statusOptions) reports(ctx context.Context, args []string) ([]statusReport, error) {
	found, err := o.workloads(ctx, args)
	if err != nil {
		return nil, err
	}
	var reports []statusReport
	pods := map[string]workload.Cluster{} // by namespace
	for _, u := range found {
		world, read := pods[u.GetNamespace()]
		if !read {
			list, err := o.client.CoreV1().Pods(u.GetNamespace()).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, explain(err)
			}
			for i := range list.Items {
				world.Pods = append(world.Pods, &list.Items[i])
			}
			pods[u.GetNamespace()] = world
		}
		report, err := o.report(ctx, world, u)
		if err != nil {
			return nil, err
		}
		reports = append(reports, report)
	}
	return reports, nil
}

func (o statusOptions) workloads(ctx context.Context, args []string) ([]*unstructured.Unstructured, error) {
	if len(args) > 0 {
		u, err := o.named(args)
		return []*unstructured.Unstructured{u}, err
	}
	if o.all {
		return o.optedIn(ctx, metav1.NamespaceAll)
	}
	return o.optedIn(ctx, o.namespace)
}

func (o statusOptions) report(ctx context.Context, world workload.Cluster, u *unstructured.Unstructured) (statusReport, error) {
	r := statusReport{Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName(), OptedIn: workload.Enabled(u), Held: workload.Held(u)}
	r.Revision, _, _ = unstructured.NestedString(u.Object, "status", "updateRevision")
	if u.GroupVersionKind() == deploymentKind {
		r.Revision = u.GetAnnotations()["deployment.kubernetes.io/revision"]
	}
	r.readCondition(u)
	settings, err := workload.Settings(u.GetAnnotations())
	if err != nil {
		return r, nil //nolint:nilerr // the condition tells of the malformed annotation
	}
	foreseen, err := o.foresee(ctx, world, u, settings, workload.Defaults{ResizePolicy: policy.LiveResizeable})
	if err != nil {
		return r, explain(err)
	}
	for _, f := range foreseen.Pods {
		r.Pods = append(r.Pods, statusOf(f))
	}
	return r, nil
}

// readCondition takes over what the controller says, if it says it of what is there now.
func (r *statusReport) readCondition(u *unstructured.Unstructured) {
	r.Reason, r.Message = "Unknown", "the controller has said nothing yet"
	if !r.OptedIn {
		r.Reason, r.Message = "NotOptedIn", "label it with "+api.EnabledLabel+"=true to have it rolled out in place"
	}
	observed, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		fields, ok := c.(map[string]any)
		if !ok || fields["type"] != api.ConditionComplete || !r.OptedIn {
			continue
		}
		r.Reason, _, _ = unstructured.NestedString(fields, "reason")
		r.Message, _, _ = unstructured.NestedString(fields, "message")
		r.Complete = fields["status"] == string(corev1.ConditionTrue) && observed >= u.GetGeneration() && !r.Held
	}
}

func statusOf(f rollout.Forecast) podStatus {
	m := f.Member
	p := podStatus{Name: m.Name, State: Waiting, Why: f.Reason, Wanted: "-", Applied: "-"}
	if m.Pod == nil {
		return p
	}
	p.Node = m.Pod.Spec.NodeName
	p.Applied = m.Target.Applied()
	if m.Differs == "" && f.Fate != rollout.PodRestart {
		p.Wanted = m.Target.Wanted()
	}
	p.Condition, p.Since = conditionOf(m.Pod)
	if m.Updated {
		p.State = Done
		return p
	}
	if m.Differs != "" {
		return p
	}
	state, said := m.Target.Observe()
	p.State = stateOf[state]
	if p.Why == "" {
		p.Why = said
	}
	return p
}

var stateOf = map[resize.State]State{
	resize.Unsent: Waiting, resize.InProgress: Requested, resize.Deferred: Requested, resize.Failing: Accepted,
	resize.Infeasible: Rejected, resize.Unready: Done, resize.Actuated: Done,
}

// conditionOf names what Kubernetes says about the pod's resize.
func conditionOf(pod *corev1.Pod) (string, *metav1.Time) {
	for _, c := range pod.Status.Conditions {
		if c.Status != corev1.ConditionTrue || c.Type != corev1.PodResizePending && c.Type != corev1.PodResizeInProgress {
			continue
		}
		said := string(c.Type)
		if c.Reason != "" {
			said += "/" + c.Reason
		}
		return said, &c.LastTransitionTime
	}
	return "", nil
}

func printStatus(out io.Writer, format string, reports []statusReport) error {
	switch format {
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(reports)
	case "yaml":
		text, err := yaml.Marshal(reports)
		if err != nil {
			return fmt.Errorf("encoding the status: %w", err)
		}
		_, err = out.Write(text)
		return err
	}
	if len(reports) == 0 {
		_, err := fmt.Fprintf(out, "No workload is opted in: label one with %s=true.\n", api.EnabledLabel)
		return err
	}
	for i, r := range reports {
		if i > 0 {
			if _, err := fmt.Fprintln(out); err != nil {
				return err
			}
		}
		if err := r.table(out, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// headline is the status of the workload as a whole, in one line.
func (r statusReport) headline() string {
	held := ""
	if r.Held {
		held = ", held"
	}
	return fmt.Sprintf("%s/%s (namespace %s, revision %s%s): %s: %s", strings.ToLower(r.Kind), r.Name, r.Namespace, orNone(r.Revision), held, r.Reason, r.Message)
}

func (r statusReport) table(out io.Writer, now time.Time) error {
	if _, err := fmt.Fprintln(out, r.headline()); err != nil || len(r.Pods) == 0 {
		return err
	}
	w := printers.GetNewTabWriter(out)
	if _, err := fmt.Fprintln(w, "POD\tNODE\tWANTED\tAPPLIED\tSTATE\tCONDITION\tSINCE\tWHY"); err != nil {
		return err
	}
	for _, p := range r.Pods {
		since := "-"
		if p.Since != nil {
			since = duration.HumanDuration(now.Sub(p.Since.Time))
		}
		if _, err := fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			p.Name, orNone(p.Node), p.Wanted, p.Applied, p.State, orNone(p.Condition), since, orNone(p.Why)); err != nil {
			return err
		}
	}
	return w.Flush()
}

// screen shows reports as they change: on a terminal in one place, otherwise as
// lines of what is new.
type screen struct {
	out      io.Writer
	terminal bool
	lines    int // that are shown on the terminal
	told     map[string]string
}

func newScreen(out io.Writer) *screen {
	file, is := out.(*os.File)
	return &screen{out: out, terminal: is && term.IsTerminal(int(file.Fd())), told: map[string]string{}}
}

func (s *screen) show(reports []statusReport) error {
	if s.terminal {
		var text strings.Builder
		if err := printStatus(&text, "", reports); err != nil {
			return err
		}
		// Up to the first line that was shown, and clear from there on.
		up := ""
		if s.lines > 0 {
			up = fmt.Sprintf("\x1b[%dA\x1b[J", s.lines)
		}
		s.lines = strings.Count(text.String(), "\n")
		_, err := fmt.Fprint(s.out, up, text.String())
		return err
	}
	for _, r := range reports {
		if err := s.line(r.Kind+"/"+r.Name, r.headline()); err != nil {
			return err
		}
		for _, p := range r.Pods {
			if err := s.line(r.Kind+"/"+r.Name+"/"+p.Name, strings.TrimSuffix(fmt.Sprintf("%s: %s %s: %s", p.Name, p.State, p.Wanted, p.Why), ": ")); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *screen) line(about, text string) error {
	if s.told[about] == text {
		return nil
	}
	s.told[about] = text
	_, err := fmt.Fprintln(s.out, text)
	return err
}
