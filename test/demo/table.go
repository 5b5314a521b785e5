package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

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

// amounts are cpu and memory.
func amounts(list corev1.ResourceList) string {
	return list.Cpu().String() + " / " + list.Memory().String()
}

// size is what the template of a workload requests.
func size(s *measure.State) string {
	return amounts(s.Template().Spec.Containers[0].Resources.Requests)
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
