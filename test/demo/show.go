package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// follow runs kubectl's waiters and shows the pods from the first moment of an act
// on, until all waiters have ended and the workloads are settled.
func (d *demo) follow(ctx context.Context, w *workload, a act, steps []step) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(steps))
	var subjects []measure.Subject
	for _, s := range steps {
		d.out.command("kubectl " + s.waiter + " &")
		go func() { ended <- d.wait(ctx, w, s, a.outcomes[s.namespace]) }()
		subjects = append(subjects, w.subject(s.namespace))
	}
	d.out.line("")

	watching, stop := context.WithCancel(ctx)
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		d.show(watching, a.from, d.view(a.from, subjects))
	}()
	var failed error
	for range steps {
		if err := <-ended; err != nil && failed == nil {
			failed = err
			cancel()
		}
	}
	if failed == nil {
		failed = d.await(ctx, "the built-in controller agrees", subjects...)
	}
	stop()
	<-shown
	d.out.line("")
	return failed
}

// view shows what a rollout does.
func (d *demo) view(from int, subjects []measure.Subject) *view {
	history, _ := d.recorder.From(0)
	v := newView(d.out, history, from, subjects)
	if d.Node != nil {
		v.widths = [columns]int{colPod: v.widths[colPod], colRequested: 13, colKernel: 13, colReads: 14, colUID: 10, colFate: 8, colRestarts: 9, colCounter: 8}
	}
	return v
}

// show shows what changes until ctx is done: as a table, or else line by line.
func (d *demo) show(ctx context.Context, from int, v *view) {
	for {
		moments, changed := d.recorder.From(from)
		from += len(moments)
		for _, m := range moments {
			v.take(m)
		}
		if d.out.live {
			d.out.draw(v.table())
		}
		select {
		case <-ctx.Done():
			d.out.keep()
			return
		case <-changed:
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// view shows the pods of some subjects as they change.
type view struct {
	*screen
	begin    time.Time
	subjects []measure.Subject
	states   map[measure.Subject]*measure.State
	names    map[measure.Subject][]string // of the pods that have ever been seen
	uids     map[types.UID]bool           // of the pods that there were at first
	widths   [columns]int                 // of the columns; those without are not shown
}

// newView shows what follows on the first moments of a history.
func newView(out *screen, history []measure.Moment, from int, subjects []measure.Subject) *view {
	v := &view{
		screen: out, begin: time.Now(), subjects: subjects, states: map[measure.Subject]*measure.State{},
		names: map[measure.Subject][]string{}, uids: map[types.UID]bool{},
		widths: [columns]int{colRequested: 14, colApplied: 14, colUID: 10, colFate: 9, colReady: 7, colRestarts: 10, colResize: 11},
	}
	if len(history) > from {
		v.begin = history[from].At
	}
	for _, of := range subjects {
		s := measure.Replay(history[:from], of)
		v.states[of] = s
		for name, pod := range s.Pods {
			v.see(of, name)
			v.uids[pod.UID] = true
			v.widths[colPod] = max(v.widths[colPod], len(name)+2)
			if s.Revision(pod) != "" {
				v.widths[colRevision] = 12
			}
		}
	}
	return v
}

// see remembers the name of a pod; the highest ordinal comes first.
func (v *view) see(of measure.Subject, name string) {
	if !slices.Contains(v.names[of], name) {
		v.names[of] = append(v.names[of], name)
		slices.Sort(v.names[of])
		slices.Reverse(v.names[of])
	}
}

// take takes a change in and, where there is no table, tells of it in one line.
func (v *view) take(m measure.Moment) {
	of := m.Subject()
	s := v.states[of]
	if s == nil {
		return
	}
	pod := podOf(m.Object)
	if pod == nil {
		cells := func() []string { return append(ownerCells(s), setCells(s)...) }
		before := cells()
		s.Apply(m)
		news := slices.DeleteFunc(cells(), func(cell string) bool { return slices.Contains(before, cell) })
		v.tell(m, of.Name, strings.Join(news, ", "))
		return
	}
	v.see(of, pod.Name)
	before := v.cells(s, pod.Name)
	s.Apply(m)
	v.tell(m, pod.Name, v.podNews(before, v.cells(s, pod.Name)))
}

// podOf is the pod that an object is, or was about.
func podOf(object metav1.Object) *corev1.Pod {
	switch object := object.(type) {
	case *corev1.Pod:
		return object
	case *measure.Visit:
		return object.Pod
	default:
		return nil
	}
}

func (v *view) tell(m measure.Moment, name, news string) {
	if news != "" && !v.live {
		v.say("%7s  %-12s  %s%s", "+"+seconds(m.At.Sub(v.begin)), m.Object.GetNamespace(), pad(name, v.widths[colPod]), news)
	}
}

// The columns of the table.
const (
	colPod = iota
	colRevision
	colRequested
	colApplied
	colKernel
	colReads
	colUID
	colFate
	colReady
	colRestarts
	colState
	colCounter
	colResize
	columns
)

var heads = [columns]string{
	"POD", "REVISION", "REQUESTED", "APPLIED", "KERNEL", "PROGRAM READS", "UID", "POD IS", "READY", "RESTARTS", "STATE", "COUNTER", "RESIZE",
}

// cells of a pod; nil if there is none.
func (v *view) cells(s *measure.State, name string) []string {
	pod := s.Pods[name]
	if pod == nil {
		return nil
	}
	c := pod.Spec.Containers[0]
	cells := make([]string, columns)
	cells[colPod], cells[colRevision] = name, s.Revision(pod)
	cells[colRequested] = size(&c.Resources)
	cells[colApplied] = size(measure.ContainerStatus(pod, c.Name).Resources)
	cells[colUID] = string(pod.UID[:8])
	cells[colFate], cells[colReady] = "kept", "no"
	if !v.uids[pod.UID] {
		cells[colFate] = "NEW"
	}
	if pod.DeletionTimestamp != nil {
		cells[colFate] = "ENDING"
	}
	if measure.Ready(pod) {
		cells[colReady] = "yes"
	}
	cells[colRestarts] = fmt.Sprint(measure.Restarts(pod))
	cells[colState] = lastState(measure.ContainerStatus(pod, c.Name))
	cells[colResize] = measure.Resizing(pod)
	cells[colKernel], cells[colReads], cells[colCounter] = none, none, none
	if seen := s.Visits[pod.UID]; seen != nil {
		cells[colKernel], cells[colReads], cells[colCounter] = granted(seen.Kernel), granted(seen.Reads), fmt.Sprint(seen.Count)
	}
	return cells
}

// lastState is what became of a container, which may run again.
func lastState(c corev1.ContainerStatus) string {
	switch {
	case c.State.Waiting != nil:
		return c.State.Waiting.Reason
	case c.State.Terminated != nil:
		return c.State.Terminated.Reason
	case c.State.Running != nil && c.LastTerminationState.Terminated != nil:
		return "was " + c.LastTerminationState.Terminated.Reason
	case c.State.Running != nil:
		return "runs"
	default:
		return none
	}
}

// none is the cell for what nobody knows.
const none = "-"

func size(r *corev1.ResourceRequirements) string {
	if r == nil {
		return none
	}
	return r.Requests.Cpu().String() + " / " + r.Requests.Memory().String()
}

// podNews tells in words what differs between the cells of one pod.
func (v *view) podNews(before, after []string) string {
	switch {
	case before == nil && after == nil:
		return "" // a visit to a pod that has gone
	case after == nil:
		return v.paint(red, "deleted")
	case before == nil:
		return v.paint(red, after[colFate]) + ": uid " + after[colUID] + ", requested " + after[colRequested]
	}
	words := [columns]string{
		colRevision: "counts as revision ", colRequested: "requested ", colApplied: "applied ",
		colKernel: "kernel ", colReads: "program reads ",
		colFate: "is ", colReady: "Ready: ", colRestarts: "restarts: ", colResize: "resize ",
	}
	if v.widths[colState] > 0 {
		words[colState] = "container "
	}
	var news []string
	switch {
	case before[colCounter] == after[colCounter]:
	case before[colCounter] == none:
		words[colCounter] = "counter "
	case after[colCounter] == none:
		words[colKernel], words[colReads] = "", ""
		news = append(news, v.paint(red, "does not answer"))
	}
	for i, word := range words {
		if word == "" || before[i] == after[i] {
			continue
		}
		if after[i] == "" {
			after[i] = "done"
		}
		news = append(news, word+after[i])
	}
	return strings.Join(news, ", ")
}

// ownerCells are what the workload itself says.
func ownerCells(s *measure.State) []string {
	field, value := s.HoldField()
	cells := []string{"not opted in", fmt.Sprintf("updated %d of %d", s.Updated(), s.Replicas()), field + " " + value}
	if s.OptedIn() {
		status, reason := s.Complete()
		cells[0] = fmt.Sprintf("Complete: %s", status)
		if !s.IsComplete() {
			cells[0] += " (" + reason + ")"
		}
	}
	if s.IsHeld() {
		cells[2] = fmt.Sprintf("held: %s, user's %s", cells[2], s.Held())
	}
	return cells
}

// setCells are what its ReplicaSets say.
func setCells(s *measure.State) []string {
	var cells []string
	for _, name := range slices.Sorted(maps.Keys(s.Sets)) {
		cells = append(cells, fmt.Sprintf("pods in %s: %d", name, s.Sets[name].Status.Replicas))
	}
	return cells
}

// table shows all subjects.
func (v *view) table() []string {
	var lines []string
	for i, of := range v.subjects {
		s := v.states[of]
		if i > 0 {
			lines = append(lines, "")
		}
		lines = append(lines, v.paint(bold, pad(of.Namespace, 14))+strings.Join(ownerCells(s), ", "))
		if sets := setCells(s); len(sets) > 0 {
			lines = append(lines, pad("", 14)+strings.Join(sets, ", "))
		}
		lines = append(lines, v.paint(dim, v.join(heads[:], nil)))
		for _, name := range v.names[of] {
			lines = append(lines, v.row(name, v.cells(s, name)))
		}
	}
	return append(lines, "", v.paint(dim, "after "+seconds(time.Since(v.begin))))
}

func (v *view) row(name string, cells []string) string {
	if cells == nil {
		cells = make([]string, columns)
		cells[colPod], cells[colFate], cells[colReady] = name, "GONE", "no"
	}
	styles := [columns]style{}
	for _, i := range []int{colApplied, colKernel, colReads} {
		if cells[i] != cells[colRequested] {
			styles[i] = yellow
		}
	}
	switch cells[colFate] {
	case "kept":
		styles[colFate] = green
	default:
		styles[colFate], styles[colUID] = red, red
	}
	if cells[colReady] != "yes" {
		styles[colReady] = red
	}
	if cells[colRestarts] != "0" {
		styles[colRestarts] = red
	}
	styles[colResize] = yellow
	return v.join(cells, styles[:])
}

func (v *view) join(cells []string, styles []style) string {
	var b strings.Builder
	for i, cell := range cells {
		if v.widths[i] == 0 {
			continue
		}
		text := pad(cell, v.widths[i])
		if styles != nil {
			text = v.paint(styles[i], text)
		}
		b.WriteString(text)
	}
	return b.String()
}

// pad fills text up to a width.
func pad(text string, width int) string { return fmt.Sprintf("%-*s", width, text) }
