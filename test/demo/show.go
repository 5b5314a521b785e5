package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// follow runs kubectl's waiters and shows the pods of the namespaces from a moment
// on, until all waiters have ended and the sets are settled. It returns what the
// waiters have said.
func (d *demo) follow(ctx context.Context, from int, waiters, namespaces []string) ([]string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	said, ended := make([]string, len(waiters)), make(chan error, len(waiters))
	for i, line := range waiters {
		d.out.command("kubectl " + line + " &")
		go func() {
			var err error
			said[i], err = d.Kubectl(ctx, strings.Fields(line)...)
			ended <- err
		}()
	}
	d.out.line("")

	watching, stop := context.WithCancel(ctx)
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		d.show(watching, from, namespaces)
	}()
	var failed error
	for range waiters {
		if err := <-ended; err != nil && failed == nil {
			failed = err
			cancel()
		}
	}
	if failed == nil {
		failed = d.recorder.await(ctx, "the StatefulSet controller agrees", (*state).settled, namespaces...)
	}
	stop()
	<-shown
	d.out.line("")
	return said, failed
}

// show shows what changes until ctx is done: as a table, or else line by line.
func (d *demo) show(ctx context.Context, from int, namespaces []string) {
	history, _ := d.recorder.from(0)
	v := &view{screen: d.out, begin: time.Now(), namespaces: namespaces, states: map[string]*state{}, uids: map[types.UID]bool{}}
	if len(history) > from {
		v.begin = history[from].at
	}
	for _, namespace := range namespaces {
		v.states[namespace] = replay(history[:from], namespace)
		for _, pod := range v.states[namespace].pods {
			v.uids[pod.UID] = true
		}
	}
	for {
		moments, changed := d.recorder.from(from)
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

// view shows the pods of some namespaces as they change.
type view struct {
	*screen
	begin      time.Time
	namespaces []string
	states     map[string]*state
	uids       map[types.UID]bool // of the pods that there were at first
}

// take takes a change in and, where there is no table, tells of it in one line.
func (v *view) take(m moment) {
	s := v.states[m.namespace()]
	if s == nil {
		return
	}
	if v.live {
		s.apply(m)
		return
	}
	if m.pod == nil {
		before := setCells(s)
		s.apply(m)
		v.tell(m, "db", setNews(before, setCells(s)))
		return
	}
	before := v.cells(s.pods[m.pod.Name])
	s.apply(m)
	v.tell(m, m.pod.Name, v.podNews(before, v.cells(s.pods[m.pod.Name])))
}

func (v *view) tell(m moment, name, news string) {
	if news != "" {
		v.say("%7s  %-12s  %-4s  %s", "+"+seconds(m.at.Sub(v.begin)), m.namespace(), name, news)
	}
}

// The columns of the table.
const (
	colRevision = iota
	colRequested
	colApplied
	colUID
	colFate
	colReady
	colRestarts
	colResize
	columns
)

var heads = [columns]string{"REVISION", "REQUESTED", "APPLIED", "UID", "POD IS", "READY", "RESTARTS", "RESIZE"}
var widths = [columns]int{13, 14, 14, 10, 10, 7, 10, 11}

// cells of a pod; nil if there is none.
func (v *view) cells(pod *corev1.Pod) []string {
	if pod == nil {
		return nil
	}
	c := pod.Spec.Containers[0]
	cells := make([]string, columns)
	cells[colRevision] = strings.TrimPrefix(pod.Labels["controller-revision-hash"], "db-")
	cells[colRequested] = size(&c.Resources)
	cells[colApplied] = size(containerStatus(pod, c.Name).Resources)
	cells[colUID] = string(pod.UID[:8])
	cells[colFate], cells[colReady] = "kept", "no"
	if !v.uids[pod.UID] {
		cells[colFate] = "REPLACED"
	}
	if pod.DeletionTimestamp != nil {
		cells[colFate] = "ENDING"
	}
	if ready(pod) {
		cells[colReady] = "yes"
	}
	cells[colRestarts] = fmt.Sprint(restartsOf(pod))
	cells[colResize] = resizing(pod)
	return cells
}

func size(r *corev1.ResourceRequirements) string {
	if r == nil {
		return "-"
	}
	return r.Requests.Cpu().String() + " / " + r.Requests.Memory().String()
}

// podNews tells in words what differs between the cells of one pod.
func (v *view) podNews(before, after []string) string {
	switch {
	case after == nil:
		return v.paint(red, "deleted")
	case before == nil:
		return v.paint(red, after[colFate]) + ": new uid " + after[colUID] + ", requested " + after[colRequested]
	}
	words := [columns]string{
		colRevision: "counts as revision ", colRequested: "requested ", colApplied: "applied ",
		colFate: "is ", colReady: "Ready: ", colRestarts: "restarts: ", colResize: "resize ",
	}
	var news []string
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

// setCells are what the set itself says.
func setCells(s *state) []string {
	if s.set == nil {
		return nil
	}
	updated := fmt.Sprintf("updated %d of %d", s.set.Status.UpdatedReplicas, s.replicas())
	partition := fmt.Sprintf("partition %d", s.partition())
	if !s.optedIn() {
		return []string{"the built-in controller alone", updated, partition}
	}
	complete := "Complete: " + string(s.condition().Status)
	if !s.complete() {
		complete += " (" + s.condition().Reason + ")"
	}
	if s.held() {
		partition = fmt.Sprintf("held: %s, user's %s", partition, held(s))
	}
	return []string{"opted in", complete, updated, partition}
}

// setNews tells what differs between the cells of one set.
func setNews(before, after []string) string {
	var news []string
	for i, cell := range after {
		if i >= len(before) || before[i] != cell {
			news = append(news, cell)
		}
	}
	return strings.Join(news, ", ")
}

// table shows all namespaces.
func (v *view) table() []string {
	var lines []string
	for i, namespace := range v.namespaces {
		s := v.states[namespace]
		if i > 0 {
			lines = append(lines, "")
		}
		lines = append(lines,
			v.paint(bold, pad(namespace, 14))+cut(strings.Join(setCells(s), ", "), tableWidth-14),
			v.paint(dim, pad("POD", 7)+v.join(heads[:], nil)))
		for ordinal := s.replicas() - 1; ordinal >= 0; ordinal-- {
			name := fmt.Sprintf("db-%d", ordinal)
			lines = append(lines, pad(name, 7)+v.row(v.cells(s.pods[name])))
		}
	}
	return append(lines, "", v.paint(dim, "after "+seconds(time.Since(v.begin))))
}

func (v *view) row(cells []string) string {
	if cells == nil {
		cells = make([]string, columns)
		cells[colRevision], cells[colReady] = "(gone)", "no"
	}
	styles := [columns]style{}
	if cells[colRequested] != cells[colApplied] {
		styles[colApplied] = yellow
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
		text := pad(cell, widths[i])
		if styles != nil {
			text = v.paint(styles[i], text)
		}
		b.WriteString(text)
	}
	return b.String()
}

// pad fills text up to a width.
func pad(text string, width int) string { return fmt.Sprintf("%-*s", width, text) }
