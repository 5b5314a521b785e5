package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/plural"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// planKind is the kind of the report as a document.
const planKind = "RolloutPlan"

// planReport is what a rollout does to one workload.
type planReport struct {
	metav1.TypeMeta `json:",inline"`
	Workload        cli.Workload `json:"workload"`
	// New: it does not exist yet. The pods are those that it adopts, and all others will be new.
	New bool `json:"new,omitempty"`
	// OptedIn: the rollout is made in place at all.
	OptedIn bool `json:"optedIn"`
	// HandOver is why the built-in controller makes the rollout; empty if it does not.
	HandOver string        `json:"handOver,omitempty"`
	Pods     []podForecast `json:"pods"`
	// OldEnvironment lists environment variables that will go on showing the old size, as `app: GOMAXPROCS`.
	OldEnvironment []string `json:"oldEnvironment,omitempty"`
	// OldVolumes lists the volumes in memory that will keep the size which the old memory limit gave them.
	OldVolumes []string `json:"oldVolumes,omitempty"`
	// NotInPods are containers of the template that the pods lack, because an injector drops or renames them: their size
	// is not the rollout's.
	NotInPods []string `json:"notInPods,omitempty"`
	// KnownFaults are those of the nodes' kubelets that the resizes may meet.
	KnownFaults []knownFault `json:"knownFaults,omitempty"`
	// MinReadySeconds is for how long each pod that is resized has to be Ready before the rollout goes
	// on after it; 0 if it does at once, or none is resized.
	MinReadySeconds int64 `json:"minReadySeconds,omitempty"`
	// Guard is how the rollout is guarded; nil if it is not, or no pod is resized or restarted.
	Guard *planGuard `json:"guard,omitempty"`
	// Waits: no controller is ready, and the rollout waits for one.
	Waits bool `json:"waits,omitempty"`
	// Unknown is what is not known of what would happen, and why, as `whether nodes have room: …`.
	Unknown []string    `json:"unknown,omitempty"`
	Summary planSummary `json:"summary"`

	restarts   bool
	infeasible bool      // pods keep their size of which it is unknown which
	recorded   *recorded // of the rollout that is under way; nil if there is none
}

// knownFault of kubelets, which the resizes of these pods may meet.
type knownFault struct {
	Issue string   `json:"issue"`
	Says  string   `json:"says"`
	Pods  []string `json:"pods"`

	text string
}

type podForecast struct {
	Name string `json:"name"`
	Node string `json:"node,omitempty"`
	// Class of the node, where that has a size of its own.
	Class    string         `json:"class,omitempty"`
	Forecast judge.Forecast `json:"fate"`
	Reason   string         `json:"reason,omitempty"`
	// Late is the fate of a pod if its node has no room, or its kubelet fails to resize it, until the deadline.
	Late    judge.Forecast `json:"late,omitempty"`
	Changes []change       `json:"changes,omitempty"`
	Room    []room         `json:"room,omitempty"`
}

// planGuard is how a rollout is guarded: docs/guarded-rollouts.md.
type planGuard struct {
	// Canaries are the pods that come before the others; none without a canary.
	Canaries int `json:"canaries,omitempty"`
	// Duration is for how long they have to be well, as 10m0s, or manual.
	Duration  string   `json:"duration,omitempty"`
	OnFailure string   `json:"onFailure"`
	Checks    []string `json:"checks,omitempty"`
	// Awaits is why no pod gets the size before the checks are mended; empty if pods do.
	Awaits string `json:"awaits,omitempty"`
}

// guardOf returns how a rollout is guarded; nil if it is not.
func guardOf(after *unstructured.Unstructured, g *policy.Guard, forecast rollout.WorkloadForecast, unanswerable func(checks []string) string) *planGuard {
	if g == nil || !policy.Enabled(after) || forecast.HandOver != "" {
		return nil
	}
	canaries, pods := forecast.Guarded(*g)
	if pods == 0 {
		return nil
	}
	planned := &planGuard{Canaries: canaries, OnFailure: policy.OnFailureHold, Checks: g.Checks, Awaits: unanswerable(g.Checks)}
	if g.Revert {
		planned.OnFailure = policy.OnFailureRevert
	}
	if g.Canary != nil {
		if planned.Duration = canaryDuration(after, g).String(); g.Manual {
			planned.Duration = policy.Manual
		}
	}
	return planned
}

// canaryDuration is for how long the canary of a workload has to be well.
func canaryDuration(u *unstructured.Unstructured, g *policy.Guard) time.Duration {
	minReady, _, _ := unstructured.NestedInt64(u.Object, "spec", "minReadySeconds")
	return rollout.CanaryDuration(*g, int32(minReady))
}

// String says it for people.
func (g planGuard) String() string {
	said := ""
	if g.Canaries > 0 {
		then := "when the rollout is promoted"
		switch {
		case g.Duration == policy.Manual:
		case g.Canaries == 1:
			then = "when it has been Ready for " + g.Duration
		default:
			then = "when they have been Ready for " + g.Duration
		}
		said = fmt.Sprintf("Guarded: %s first, the others %s. ", plural.Of(g.Canaries, "pod"), then)
	}
	said += "After a failure no other pod follows"
	if g.OnFailure == policy.OnFailureRevert {
		said += ", and those with the new size go back"
	}
	if len(g.Checks) > 0 {
		said += "; checks: " + strings.Join(g.Checks, ", ")
	}
	if g.Awaits != "" {
		said += ". No pod is resized before they are mended: " + g.Awaits
	}
	return said + "."
}

type change struct {
	Container string `json:"container,omitempty"` // none: of the pod as a whole
	Resource  string `json:"resource"`            // or image
	Side      string `json:"side,omitempty"`      // none: of an image
	From      string `json:"from,omitempty"`      // none: it had none
	To        string `json:"to,omitempty"`        // none: it is removed
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
	Deferred         int `json:"deferred"`
	Restart          int `json:"restart"`
	Infeasible       int `json:"infeasible"`
	KeptBack         int `json:"keptBack"`
	New              int `json:"new"`
	ScaledIn         int `json:"scaledIn"`
	Unchanged        int `json:"unchanged"`
}

// newPlanReport reports the forecast of a workload, which is as the edit leaves it.
func newPlanReport(ctx context.Context, after *unstructured.Unstructured, forecast rollout.WorkloadForecast, q capacity.Question) (planReport, error) {
	guard := guardOf(after, q.Settings.Guard, forecast, q.Unanswerable)
	if guard != nil && guard.Awaits != "" {
		forecast.AwaitChecks(guard.Awaits)
	}
	pods, unknown, err := q.OnNodes(ctx, forecast.Pods)
	if err != nil {
		return planReport{}, explain(err)
	}
	r := planReport{
		TypeMeta: cli.Type(planKind), Workload: cli.WorkloadOf(after),
		OptedIn: policy.Enabled(after), HandOver: forecast.HandOver, Pods: []podForecast{}, Guard: guard,
	}
	if r.unknown("what becomes of the pods: ", forecast.Unknown); forecast.Unknown == "" {
		r.unknown("whether nodes have room: ", cmp.Or(forecast.RoomUnknown, unknown))
	}
	template, err := templateOf(after)
	if err != nil {
		return planReport{}, err
	}
	var resized []*judge.Member
	for _, f := range pods {
		r.NotInPods = rollout.Joined(r.NotInPods, f.Member.Target.Absent)
		r.Pods = append(r.Pods, newPodForecast(f, &template.Spec))
		r.Summary.count(f.Forecast)
		r.restarts = r.restarts || f.Restarts()
		if f.Forecast == judge.Live || f.Forecast == judge.Deferred || f.Forecast == judge.ContainerRestart {
			resized = append(resized, &f.Member)
			r.OldEnvironment = rollout.Joined(r.OldEnvironment, f.Member.Target.OldEnvironment())
			r.OldVolumes = rollout.Joined(r.OldVolumes, f.Member.Target.OldVolumes(template.PodTemplateSpec))
		}
	}
	if len(resized) > 0 {
		r.MinReadySeconds, _, _ = unstructured.NestedInt64(after.Object, "spec", "minReadySeconds")
	}
	for _, f := range judge.Faults(resized) {
		r.KnownFaults = append(r.KnownFaults, knownFault{f.Issue, f.Says, f.Pods, f.String()})
	}
	return r, nil
}

func newPodForecast(f capacity.PodForecast, after *corev1.PodSpec) podForecast {
	p := podForecast{Name: f.Member.Name, Class: f.Member.Class, Forecast: f.Forecast, Reason: f.Reason}
	for _, s := range f.Space {
		p.Room = append(p.Room, room{string(s.Resource), s.Allocatable.String(), s.Requested.String(), s.Enough})
	}
	p.Late = f.Lasts()
	if f.Member.Pod != nil {
		p.Node = f.Member.Pod.Spec.NodeName
	}
	if f.Forecast == judge.ScaledIn {
		return p
	}
	for _, c := range slices.Concat(f.Member.Target.Changes, f.Member.Target.Removed()) {
		p.Changes = append(p.Changes, changeOf(c))
	}
	if f.Member.Differs != "" && f.Member.Pod != nil {
		p.Changes = append(p.Changes, replaced(&f.Member.Pod.Spec, after)...)
	}
	return p
}

// textOf is a quantity; empty if there is none.
func textOf(q *resource.Quantity) string {
	if q == nil {
		return ""
	}
	return q.String()
}

// replaced are the changes of images and sizes of containers where a new pod has another template. What that does not say of a size may
// be filled in.
func replaced(before, after *corev1.PodSpec) (changes []change) {
	news := slices.Concat(after.InitContainers, after.Containers)
	for _, c := range slices.Concat(before.InitContainers, before.Containers) {
		if i := slices.IndexFunc(news, func(n corev1.Container) bool { return n.Name == c.Name }); i >= 0 && news[i].Image != c.Image {
			changes = append(changes, change{Container: c.Name, Resource: "image", From: c.Image, To: news[i].Image})
		}
	}
	for _, c := range resize.Between(&corev1.PodTemplateSpec{Spec: *before}, &corev1.PodTemplateSpec{Spec: *after}) {
		if c.To != nil {
			changes = append(changes, changeOf(c))
		}
	}
	return changes
}

func changeOf(c resize.Change) change {
	return change{c.Container, string(c.Resource), string(c.Side), textOf(c.From), textOf(c.To)}
}

func (s *planSummary) count(f judge.Forecast) {
	switch f {
	case judge.Live:
		s.Live++
	case judge.ContainerRestart:
		s.ContainerRestart++
	case judge.Deferred:
		s.Deferred++
	case judge.PodRestart, judge.AfterDelete:
		s.Restart++
	case judge.Infeasible:
		s.Infeasible++
	case judge.KeptBack:
		s.KeptBack++
	case judge.New:
		s.New++
	case judge.ScaledIn:
		s.ScaledIn++
	case judge.Unchanged:
		s.Unchanged++
	}
}

// printPlans writes the reports in the format.
func printPlans(out io.Writer, format cli.Format, reports []planReport) error {
	if format.ForMachines() {
		return cli.EncodeList(out, format, planKind, reports)
	}
	return cli.Print(out, reports, func(out io.Writer, r planReport) error { return r.table(cli.PageOf(out), format == cli.Wide) })
}

// table is the report for people.
func (r planReport) table(out io.Writer, each bool) error {
	name := r.Workload.String()
	if r.New && len(r.Pods) == 0 {
		_, err := fmt.Fprintf(out, "%s: it does not exist yet, so every pod will be new\n", name)
		return err
	}
	rows := make([]row, 0, len(r.Pods))
	for _, p := range r.Pods {
		rows = append(rows, row{p.Name, p.Node, p.Class, []cell{{p.Node, listed}, {text: string(p.Forecast)}, {text: p.describe()}, {p.roomText(), hidden}}, p.Reason})
	}
	if err := tableOf(out, each, []string{"NODE", "FATE", "CHANGES", "ROOM", "REASON"}, rows); err != nil {
		return err
	}
	if r.New {
		name += ": it does not exist yet, and adopts these pods"
	}
	_, err := fmt.Fprintln(out, strings.Join(append([]string{name + ": " + r.Summary.String()}, r.notes()...), "\n"))
	return err
}

// notes are what there is to say besides.
func (r planReport) notes() []string {
	var notes []string
	note := func(format, what string) {
		if what != "" {
			notes = append(notes, fmt.Sprintf(format, what))
		}
	}
	note("Environment variables that show the old size until a restart: %s.", strings.Join(r.OldEnvironment, ", "))
	note("Volumes in memory that keep their size until a restart: %s.", strings.Join(r.OldVolumes, ", "))
	note("Not in the pods, so not sized: %s.", strings.Join(r.NotInPods, ", "))
	if r.MinReadySeconds > 0 {
		note("Each resized pod must be Ready for %s before it counts as available.", (time.Duration(r.MinReadySeconds) * time.Second).String())
	}
	note("%s", r.guarded())
	for _, f := range r.KnownFaults {
		note("Known fault of kubelets: %s.", f.text)
	}
	if r.Waits {
		note("%s", "No controller is ready: the rollout waits for one.")
	}
	for _, what := range r.Unknown {
		note("It is unknown %s.", what)
	}
	return notes
}

// would reports whether that would happen which --fail-on names.
func (r planReport) would(happen string) bool {
	switch happen {
	case failRestart:
		return r.restarts
	case failInfeasible:
		return r.infeasible || r.Summary.Infeasible > 0 || slices.ContainsFunc(r.Pods, func(p podForecast) bool { return p.Late == judge.Deferred || p.Late == judge.Infeasible })
	default:
		return len(r.Unknown) > 0
	}
}

// guarded says how the rollout is guarded or, where it is under way, what has come of that; empty if it is not.
func (r planReport) guarded() string {
	switch {
	case r.recorded != nil && r.recorded.Stopped():
		return fmt.Sprintf("Stopped: %s. %s", r.recorded.Failed, r.recorded.next())
	case r.recorded != nil:
		return r.recorded.next()
	case r.Guard != nil:
		return r.Guard.String()
	}
	return ""
}

// String is the summary in one line, as in `5 live, 1 restart, 0 infeasible`.
func (s planSummary) String() string {
	parts := []string{fmt.Sprintf("%d live", s.Live)}
	if s.ContainerRestart > 0 {
		parts = append(parts, fmt.Sprintf("%d container restart", s.ContainerRestart))
	}
	if s.Deferred > 0 {
		parts = append(parts, fmt.Sprintf("%d deferred", s.Deferred))
	}
	parts = append(parts, fmt.Sprintf("%d restart", s.Restart), fmt.Sprintf("%d infeasible", s.Infeasible))
	if s.New > 0 {
		parts = append(parts, fmt.Sprintf("%d new", s.New))
	}
	if s.ScaledIn > 0 {
		parts = append(parts, fmt.Sprintf("%d scaled in", s.ScaledIn))
	}
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
	var changes []string
	for i, c := range p.Changes {
		container := ""
		if i == 0 || p.Changes[i-1].Container != c.Container {
			if container = "pod: "; c.Container != "" {
				container = c.Container + ": "
			}
		}
		changes = append(changes, fmt.Sprintf("%s%s %s→%s", container, strings.TrimSpace(c.Resource+" "+c.Side), cmp.Or(c.From, "none"), cmp.Or(c.To, "none")))
	}
	return strings.Join(changes, ", ")
}

func (p podForecast) roomText() string {
	rooms := make([]string, len(p.Room))
	for i, r := range p.Room {
		rooms[i] = fmt.Sprintf("%s: %s of %s requested", r.Resource, r.Requested, r.Allocatable)
	}
	return strings.Join(rooms, ", ")
}
