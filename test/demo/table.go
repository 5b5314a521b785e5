package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/inplace-rollout/inplace-rollout/test/cgroup"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// row is a line of the table of results, and what is claimed of it.
type row struct {
	label string
	value func(result) any
	// In place, and built in; nil claims nothing.
	inPlace, builtIn func(result) any
}

// is claims the same of each result.
func is(value any) func(result) any { return func(result) any { return value } }

// of is so many of the pods that there should be.
func of(n int, r result) string { return fmt.Sprintf("%d of %d", n, r.Before.Replicas()) }

func allPods(r result) any { return of(r.Before.Replicas(), r) }
func noPod(r result) any   { return of(0, r) }

// The widths of the table's first and other columns.
const (
	labelWidth  = 44
	columnWidth = 22
)

// compare shows results beside each other, and checks what is claimed of them.
func (d *demo) compare(what string, rows []row, results []result) {
	d.title(what)
	for _, row := range append([]row{{"", func(r result) any { return r.title }, nil, nil}}, rows...) {
		text := fmt.Sprintf("%-*s", labelWidth, row.label)
		for _, r := range results {
			claimed := row.builtIn
			if r.Namespace == inPlace {
				claimed = row.inPlace
			}
			if claimed != nil {
				d.is(fmt.Sprintf("%s of %s: %s", r.title, r.Subject, row.label), row.value(r), claimed(r))
			}
			text += fmt.Sprintf("%-*v", columnWidth, row.value(r))
		}
		d.say("%s", text)
	}
}

// is checks one thing.
func (d *demo) is(what string, got, want any) {
	d.checks++
	if got != want {
		d.wrong = append(d.wrong, fmt.Errorf("%s: got %v, want %v", what, got, want))
	}
}

// conclude says whether all checks have passed, and what that means.
func (d *demo) conclude(passed string) error {
	if len(d.wrong) > 0 {
		return fmt.Errorf("%d of %d checks failed:\n%w", len(d.wrong), d.checks, errors.Join(d.wrong...))
	}
	d.say("\nAll %d checks passed: %s", d.checks, passed)
	return nil
}

// ours is how many writes of inplace-rollout there were, but events.
func ours(t measure.Trail) (writes int) {
	for _, w := range t.Writes {
		if w.User == controller.User && w.Resource != "events" {
			writes += w.Count
		}
	}
	return writes
}

// same are the rows of every show.
var same = []row{
	{"pods replaced", func(r result) any { return of(r.Replaced, r) }, noPod, allPods},
	{"pods deleted / created, audit log", func(r result) any { return fmt.Sprintf("%d / %d", r.audit.Deleted, r.audit.Created) }, is("0 / 0"), nil},
	{"longest time with fewer pods Ready", func(r result) any { return fmt.Sprintf("%.1f s", r.Short.Seconds()) }, nil, nil},
	{"all such times together", func(r result) any { return fmt.Sprintf("%.1f s", r.ShortAll.Seconds()) }, nil, nil},
	{"size before", func(r result) any { return size(r.Before) }, nil, nil},
	{"size after", func(r result) any { return size(r.After) }, nil, nil},
	{"writes of inplace-rollout, without events", func(r result) any { return ours(r.audit) }, nil, is(0)},
}

// resizes is how many were carried out: where a kubelet writes the pod at that moment, a request is repeated.
func resizes(r result) any {
	n := 0
	for _, of := range r.audit.Steps {
		n += len(of.Asked)
	}
	return n
}

// visited are the rows where visitors come to the pods.
var visited = []row{
	{"visits", func(r result) any { return r.Visits }, nil, nil},
	{"times when visits were not answered", func(r result) any { return r.Lost }, nil, nil},
}

// lineWidth is how wide the output is.
const lineWidth = 110

// screen is where the demo is shown, and tells when nobody reads it any more.
type screen struct {
	*os.File
	unread func()
}

func (s screen) say(format string, args ...any) {
	if _, err := fmt.Fprintln(s.File, strings.TrimRight(fmt.Sprintf(format, args...), " \n")); err != nil {
		s.unread()
	}
}

func (s screen) title(text string) {
	s.say("\n── %s %s", text, strings.Repeat("─", lineWidth-4-utf8.RuneCountInString(text)))
}

// while does something, and meanwhile tells what becomes of some subjects from a moment on, in a line for each change.
func (d *demo) while(ctx context.Context, from int, subjects []measure.Subject, do func() error) error {
	ctx, stop := context.WithCancel(ctx)
	told := make(chan struct{})
	go func() {
		defer close(told)
		d.tell(ctx, from, subjects)
	}()
	err := do()
	stop()
	<-told
	return err
}

func (d *demo) tell(ctx context.Context, from int, subjects []measure.Subject) {
	history, _ := d.recorder.From(0)
	states, said := map[measure.Subject]*measure.State{}, map[string]string{}
	for _, of := range subjects {
		states[of] = measure.Replay(history[:from], of)
	}
	for begin := time.Now(); ; {
		moments, changed := d.recorder.From(from)
		from += len(moments)
		for _, m := range moments {
			s := states[m.Subject()]
			if s == nil {
				continue
			}
			s.Apply(m)
			name, text := m.Subject().Name, ofWorkload(s)
			switch m.Object.(type) {
			case *corev1.Pod, *measure.Visit:
				name = m.Object.GetName()
				text = d.ofPod(s, s.Pods[name])
			}
			if whose := m.Object.GetNamespace() + "/" + name; said[whose] != text {
				said[whose] = text
				d.say("+%5.1f s  %-12s  %-21s  %s", max(0, m.At.Sub(begin).Seconds()), m.Object.GetNamespace(), name, text)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// ofPod is what there is to tell of a pod.
func (d *demo) ofPod(s *measure.State, pod *corev1.Pod) string {
	if pod == nil {
		return "GONE"
	}
	container := pod.Spec.Containers[0]
	status := measure.ContainerStatus(pod, container.Name)
	text := "wants " + amounts(container.Resources.Requests)
	if status.Resources != nil {
		text += ", has " + amounts(status.Resources.Requests)
	}
	if resizing := measure.Resizing(pod); resizing != "" {
		text += ", resize " + resizing
	}
	if seen := s.Visits[pod.UID]; seen != nil {
		text += ", kernel grants " + granted(seen.Kernel)
	}
	if t := ended(status); t != nil {
		text += fmt.Sprintf(", %s, restarts: %d", t.Reason, measure.Restarts(pod))
	}
	if measure.Ready(pod) {
		return text + ", Ready"
	}
	return text + ", NOT READY"
}

// ended is how a container has ended, if it has.
func ended(c corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if c.State.Terminated != nil {
		return c.State.Terminated
	}
	return c.LastTerminationState.Terminated
}

// ofWorkload is what the workload itself says.
func ofWorkload(s *measure.State) string {
	field, value := s.HoldField()
	text := fmt.Sprintf("updated %d of %d, %s %s", s.Updated(), s.Replicas(), field, value)
	if s.IsHeld() {
		text += ", held: user's " + s.Held()
	}
	if c := s.Complete(); c.Status != "" {
		text += fmt.Sprintf(", Complete: %s (%s)", c.Status, c.Reason)
	}
	return text
}

// amounts are cpu and memory.
func amounts(list corev1.ResourceList) string {
	return list.Cpu().String() + " / " + list.Memory().String()
}

// size is what the template of a workload requests.
func size(s *measure.State) string {
	return amounts(s.Template().Spec.Containers[0].Resources.Requests)
}

// granted are limits, written as sizes are.
func granted(l cgroup.Limits) string {
	if l.CPU == 0 {
		return "no limit / " + inBytes(l.Memory)
	}
	return resource.NewMilliQuantity(l.CPU, resource.DecimalSI).String() + " / " + inBytes(l.Memory)
}

// otherwise names the pods whose kernel or program has shown other limits than the template has, or nothing yet.
func otherwise(s *measure.State) []string {
	limits := s.Template().Spec.Containers[0].Resources.Limits
	want := cgroup.Limits{CPU: limits.Cpu().MilliValue(), Memory: limits.Memory().Value()}
	return slices.DeleteFunc(s.PodNames(), func(name string) bool {
		seen := s.Visits[s.Pods[name].UID]
		return seen != nil && seen.Kernel == want && seen.Reads == want
	})
}
