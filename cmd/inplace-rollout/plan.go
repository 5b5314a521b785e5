package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/printers"
	resourcehelper "k8s.io/component-helpers/resource"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/pkg/workload"
)

// planOptions are the arguments of the plan command.
type planOptions struct {
	*cluster
	file          string
	output        string
	failOnRestart bool
	resizePolicy  string
}

func newPlanCommand() *cobra.Command {
	o := planOptions{cluster: newCluster()}
	cmd := &cobra.Command{
		Use:   "plan (TYPE/NAME | -f FILE)",
		Short: "Show what an edit would do to each pod",
		Long: `Show what an edit would do to each pod, in the order in which it would happen.

The edit is what a manifest says: with -f, as 'kubectl apply' would take it. Without
it, the rollout that is held now is shown. Nothing is written.

Each pod is Live (resized, nothing restarts), ContainerRestart (resized, and the
kubelet restarts containers for it), PodRestart (a new pod comes in its place),
AfterDelete (a new pod comes when you delete this one), Refused (it stays as it is),
KeptBack (by the partition) or Unchanged. What a kubelet will say cannot be foreseen;
ROOM tells what its node has left.`,
		Example: `  # What would this edit do?
  kubectl set resources sts/web --limits=cpu=2 --dry-run=client -o yaml | inplace-rollout plan -f -

  # In a pipeline: fail if a manifest restarts anything
  inplace-rollout plan -f web.yaml --fail-on-restart

  # What is still to come of the rollout in flight?
  inplace-rollout plan deployment/web`,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if (o.file == "") == (len(args) == 0) {
				return errors.New("want either a workload, such as sts/web, or -f FILE")
			}
			if !slices.Contains([]string{"", "json", "yaml"}, o.output) {
				return fmt.Errorf("--output is %q: want json or yaml, or none for a table", o.output)
			}
			if p := policy.Policy(o.resizePolicy); p != policy.LiveResizeable && p != policy.RestartOnly {
				return fmt.Errorf("--default-resource-resize-policy is %q: want LiveResizeable or RestartOnly", o.resizePolicy)
			}
			if err := o.connect(); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), args)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.file, "filename", "f", "", "manifest with StatefulSets and Deployments; - reads the standard input")
	f.StringVarP(&o.output, "output", "o", "", "json or yaml; none prints a table")
	f.BoolVar(&o.failOnRestart, "fail-on-restart", false, "exit with code 3 if a pod or a container would restart")
	f.StringVar(&o.resizePolicy, "default-resource-resize-policy", string(policy.LiveResizeable), "what the controller was started with")
	o.flags.AddFlags(cmd.PersistentFlags())
	return cmd
}

func (o planOptions) run(ctx context.Context, out io.Writer, args []string) error {
	world, err := workload.ReadCluster(ctx, o.client, metav1.NamespaceAll)
	if err != nil {
		return explain(err)
	}
	var reports []planReport
	if o.file == "" {
		live, err := o.named(args)
		if err != nil {
			return err
		}
		report, err := o.report(ctx, world, live, live)
		if err != nil {
			return err
		}
		reports = append(reports, report)
	} else {
		manifests, err := o.fromFile(o.file)
		if err != nil {
			return err
		}
		for _, manifest := range manifests {
			report, err := o.reportManifest(ctx, world, manifest)
			if err != nil {
				return err
			}
			reports = append(reports, report)
		}
	}
	if err := print(out, o.output, reports); err != nil {
		return err
	}
	if o.failOnRestart && slices.ContainsFunc(reports, planReport.restarts) {
		return exitError(3)
	}
	return nil
}

func (o planOptions) reportManifest(ctx context.Context, world workload.Cluster, manifest *unstructured.Unstructured) (planReport, error) {
	live, err := o.get(ctx, manifest)
	if err != nil {
		return planReport{}, err
	}
	after, err := edited(live, manifest)
	if err != nil {
		return planReport{}, err
	}
	return o.report(ctx, world, live, after)
}

// planReport is what a rollout does to one workload.
type planReport struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// OptedIn tells whether the rollout is in place at all.
	OptedIn bool `json:"optedIn"`
	// HandOver tells why the built-in controller makes the rollout; empty if it does not.
	HandOver string        `json:"handOver,omitempty"`
	Pods     []podForecast `json:"pods"`
	Summary  planSummary   `json:"summary"`
}

type podForecast struct {
	Name    string       `json:"name"`
	Node    string       `json:"node,omitempty"`
	Fate    rollout.Fate `json:"fate"`
	Reason  string       `json:"reason,omitempty"`
	Changes []change     `json:"changes,omitempty"`
	Room    []room       `json:"room,omitempty"`
}

type change struct {
	Container string `json:"container,omitempty"` // none: of the pod as a whole
	Resource  string `json:"resource"`
	Side      string `json:"side"`
	From      string `json:"from,omitempty"` // none: it had none
	To        string `json:"to"`
}

// room is what a node has of a resource that a pod's edit changes.
type room struct {
	Resource    string `json:"resource"`
	Allocatable string `json:"allocatable"`
	Requested   string `json:"requested"` // by all pods on the node, as they are now
	Enough      bool   `json:"enough"`    // for the edit, as things stand
}

type planSummary struct {
	Live             int `json:"live"`
	ContainerRestart int `json:"containerRestart"`
	Restart          int `json:"restart"`
	Impossible       int `json:"impossible"`
	KeptBack         int `json:"keptBack"`
	Unchanged        int `json:"unchanged"`
}

func (r planReport) restarts() bool { return r.Summary.Restart+r.Summary.ContainerRestart > 0 }

// report foresees the rollout from live to after, which are the same for the one that is held now.
func (o planOptions) report(ctx context.Context, world workload.Cluster, live, after *unstructured.Unstructured) (planReport, error) {
	r := planReport{Kind: live.GetKind(), Namespace: live.GetNamespace(), Name: live.GetName(), OptedIn: workload.Enabled(after)}
	settings, err := settingsOf(live, after)
	if err != nil {
		return r, err
	}
	defaults := workload.Defaults{ResizePolicy: policy.Policy(o.resizePolicy)}
	foreseen, err := o.foresee(ctx, world, after, settings, defaults)
	if err != nil {
		return r, explain(err)
	}
	r.HandOver = foreseen.HandOver
	for _, f := range foreseen.Pods {
		if !r.OptedIn && f.Fate != rollout.Unchanged && f.Fate != rollout.KeptBack {
			f.Fate, f.Reason = rollout.PodRestart, "the "+live.GetKind()+" is not opted in"
		} else if r.HandOver != "" && f.Fate != rollout.Unchanged && f.Fate != rollout.Refused {
			f.Fate, f.Reason = rollout.PodRestart, r.HandOver
		}
		r.add(f, world)
	}
	return r, nil
}

// settingsOf are those that an edit brings, or those in force where nothing is edited.
func settingsOf(live, after *unstructured.Unstructured) (policy.Settings, error) {
	if live == after {
		return workload.Settings(live.GetAnnotations())
	}
	return policy.Read(after.GetAnnotations())
}

func (r *planReport) add(f rollout.Forecast, world workload.Cluster) {
	p := podForecast{Name: f.Member.Name, Fate: f.Fate, Reason: f.Reason}
	if f.Member.Pod != nil {
		p.Node = f.Member.Pod.Spec.NodeName
	}
	for _, c := range f.Member.Target.Changes {
		said := change{Container: c.Container, Resource: string(c.Resource), Side: string(c.Side), To: c.To.String()}
		if c.From != nil {
			said.From = c.From.String()
		}
		p.Changes = append(p.Changes, said)
	}
	if f.Fate == rollout.Live || f.Fate == rollout.ContainerRestart {
		p.Room = roomFor(f.Member, world)
		if p.Reason == "" && slices.ContainsFunc(p.Room, func(r room) bool { return !r.Enough }) {
			p.Reason = "there is no room on the node now: the kubelet will defer it"
		}
	}
	r.Pods = append(r.Pods, p)
	switch f.Fate {
	case rollout.Live:
		r.Summary.Live++
	case rollout.ContainerRestart:
		r.Summary.ContainerRestart++
	case rollout.PodRestart, rollout.AfterDelete:
		r.Summary.Restart++
	case rollout.Refused:
		r.Summary.Impossible++
	case rollout.KeptBack:
		r.Summary.KeptBack++
	case rollout.Unchanged:
		r.Summary.Unchanged++
	}
}

// roomFor tells what the member's node has of the resources whose requests change.
func roomFor(m rollout.Member, world workload.Cluster) []room {
	if m.Pod == nil || m.Pod.Spec.NodeName == "" || len(m.Target.Changes) == 0 {
		return nil
	}
	n := slices.IndexFunc(world.Nodes, func(node *corev1.Node) bool { return node.Name == m.Pod.Spec.NodeName })
	if n < 0 {
		return nil
	}
	options := resourcehelper.PodResourcesOptions{}
	before := resourcehelper.PodRequests(&corev1.Pod{Spec: m.Pod.Spec}, options)
	after := resourcehelper.PodRequests(&corev1.Pod{Spec: *m.Target.Spec()}, options)
	var rooms []room
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		was, is := before[name], after[name]
		if was.Cmp(is) == 0 {
			continue
		}
		allocatable, requested := world.Nodes[n].Status.Allocatable[name], requestedOn(m.Pod.Spec.NodeName, name, world)
		wanted := requested.DeepCopy()
		wanted.Sub(was)
		wanted.Add(is)
		rooms = append(rooms, room{string(name), allocatable.String(), requested.String(), wanted.Cmp(allocatable) <= 0})
	}
	return rooms
}

// requestedOn sums up what the pods of a node request.
func requestedOn(node string, name corev1.ResourceName, world workload.Cluster) resource.Quantity {
	sum := resource.Quantity{Format: resource.DecimalSI}
	if name == corev1.ResourceMemory {
		sum.Format = resource.BinarySI
	}
	for _, pod := range world.Pods {
		if pod.Spec.NodeName == node && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			sum.Add(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})[name])
		}
	}
	return sum
}

// print writes the reports as a table, or in the format of --output.
func print(out io.Writer, format string, reports []planReport) error {
	switch format {
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(reports)
	case "yaml":
		text, err := yaml.Marshal(reports)
		if err != nil {
			return fmt.Errorf("encoding the plan: %w", err)
		}
		_, err = out.Write(text)
		return err
	}
	for i, r := range reports {
		if i > 0 {
			if _, err := fmt.Fprintln(out); err != nil {
				return err
			}
		}
		if err := r.table(out); err != nil {
			return err
		}
	}
	return nil
}

func (r planReport) table(out io.Writer) error {
	w := printers.GetNewTabWriter(out)
	if _, err := fmt.Fprintln(w, "POD\tNODE\tFATE\tCHANGES\tROOM\tREASON"); err != nil {
		return err
	}
	for _, p := range r.Pods {
		if _, err := fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", p.Name, orNone(p.Node), p.Fate, orNone(p.describe()), orNone(p.roomText()), orNone(p.Reason)); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%s/%s: %s\n", strings.ToLower(r.Kind), r.Name, r.Summary)
	return err
}

// String is the summary in one line, as in `5 live, 1 restart, 0 impossible`.
func (s planSummary) String() string {
	parts := []string{fmt.Sprintf("%d live", s.Live)}
	if s.ContainerRestart > 0 {
		parts = append(parts, fmt.Sprintf("%d container restart", s.ContainerRestart))
	}
	parts = append(parts, fmt.Sprintf("%d restart", s.Restart), fmt.Sprintf("%d impossible", s.Impossible))
	if s.KeptBack > 0 {
		parts = append(parts, fmt.Sprintf("%d kept back", s.KeptBack))
	}
	if s.Unchanged > 0 {
		parts = append(parts, fmt.Sprintf("%d unchanged", s.Unchanged))
	}
	return strings.Join(parts, ", ")
}

// describe names the changes as events do, a container's together.
func (p podForecast) describe() string {
	var said []string
	for i, c := range p.Changes {
		container := ""
		if i == 0 || p.Changes[i-1].Container != c.Container {
			if container = "pod: "; c.Container != "" {
				container = c.Container + ": "
			}
		}
		from := c.From
		if from == "" {
			from = "none"
		}
		said = append(said, fmt.Sprintf("%s%s %s %s→%s", container, c.Resource, c.Side, from, c.To))
	}
	return strings.Join(said, ", ")
}

func (p podForecast) roomText() string {
	said := make([]string, len(p.Room))
	for i, r := range p.Room {
		said[i] = fmt.Sprintf("%s: %s of %s requested", r.Resource, r.Requested, r.Allocatable)
	}
	return strings.Join(said, ", ")
}

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
