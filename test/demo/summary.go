package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/cgroup"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// result is everything that is known of one edit of one subject.
type result struct {
	title string
	measure.Subject
	measure.Measurement
	*outcome
	samples []measure.Sample
}

// result of an act, whose history ends with the next act in the same namespace.
func (a act) result(title string, of measure.Subject, history []measure.Moment) result {
	return result{
		title: title, Subject: of, Measurement: measure.Edit(history, a.from, of), outcome: a.outcomes[of.Namespace],
		samples: measure.Trace(history, a.from, of),
	}
}

// waited is how long kubectl's waiter has waited since the edit.
func (r result) waited() time.Duration { return r.returned.Sub(r.Edited) }

// early names the pods without the new size when kubectl's waiter had ended.
func (r result) early() []string {
	return (&measure.State{Workload: r.After.Workload, Pods: r.pods}).WrongSize()
}

// audit reads what was written in a namespace since a mark.
func (d *demo) audit(mark int64, namespace string) (measure.Trail, error) {
	return d.AuditLog(mark, namespace, measure.InPlace, nil)
}

// ours are the writes of inplace-rollout, by verb and resource.
func ours(t measure.Trail) map[string]int {
	by := map[string]int{}
	for _, w := range t.Writes {
		if w.User == controller.User {
			by[w.Verb+" "+w.Resource] += w.Count
		}
	}
	return by
}

// summarise shows the results beside each other.
func (d *demo) summarise(results []result) {
	d.out.line(d.out.paint(dim, pad("", labelWidth)+each(results, func(r result) string { return r.title })))
	d.out.line(d.out.paint(bold, pad("", labelWidth)+each(results, func(r result) string {
		if r.Namespace == inPlace {
			return "in place"
		}
		return "built-in"
	})))
	table := rows(results[0].Before)
	if d.Node != nil {
		table = append(table, visitRows...)
	}
	for _, row := range table {
		d.out.line(pad(row.label, labelWidth) + each(results, row.value))
	}
	d.summariseWrites(results)
}

// row is a line of the summary.
type row struct {
	label string
	value func(result) string
}

// rows for results that begin like this.
func rows(s *measure.State) []row {
	n := s.Replicas()
	of := func(count int) string { return fmt.Sprintf("%d of %d", count, n) }
	field, _ := s.HoldField()
	common := []row{
		{"pods replaced", func(r result) string { return of(r.Replaced) }},
		{"pods deleted / created, audit log", func(r result) string { return fmt.Sprintf("%d / %d", r.audit.Deleted, r.audit.Created) }},
		{"container restarts in living pods", func(r result) string { return fmt.Sprint(r.Restarts) }},
		{"containers started anew, new pods too", func(r result) string { return fmt.Sprint(r.Started) }},
		{"pods not Ready at some time", func(r result) string { return of(r.NotReady) }},
		{fmt.Sprintf("longest time with fewer than %d Ready", n), func(r result) string { return seconds(r.Short) }},
		{"all such times together", func(r result) string { return seconds(r.ShortAll) }},
		{"from the edit until complete", func(r result) string { return seconds(r.Took) }},
		{"from the edit until kubectl's wait ends", func(r result) string { return seconds(r.waited()) }},
		{"pods of the new size by then", func(r result) string { return of(len(r.pods) - len(r.early())) }},
		{"pods of the new size, spec and status", func(r result) string { return of(len(r.After.Pods) - len(r.After.WrongSize())) }},
		{"size before", func(r result) string { return templateSize(r.Before) }},
		{"size after", func(r result) string { return templateSize(r.After) }},
		{field + ", before → after", func(r result) string { return brake(r.Before) + " → " + brake(r.After) }},
		{"annotation " + api.HoldAnnotation, func(r result) string { return r.After.Held() }},
		{"revisions in kubectl rollout history", func(r result) string { return strings.Join(r.revisions, ", ") }},
	}
	if len(s.Sets) == 0 {
		return common
	}
	return append(common,
		row{"ReplicaSet of the pods, before", func(r result) string { return strings.Join(r.Before.Active(), ", ") }},
		row{"ReplicaSet of the pods, after", func(r result) string { return strings.Join(r.After.Active(), ", ") }},
		row{"ReplicaSets that had pods", func(r result) string { return fmt.Sprint(r.Used) }},
	)
}

// visitRows are those of a real node.
var visitRows = []row{
	{"limits in the kernel, before", func(r result) string {
		return limits(r.Before, func(v *measure.Visit) cgroup.Limits { return v.Kernel })
	}},
	{"limits in the kernel, after", func(r result) string {
		return limits(r.After, func(v *measure.Visit) cgroup.Limits { return v.Kernel })
	}},
	{"limits that the programs read, after", func(r result) string { return limits(r.After, func(v *measure.Visit) cgroup.Limits { return v.Reads }) }},
	{"counters in the end, by pod", func(r result) string { return counts(r.After) }},
	{"visits", func(r result) string { return fmt.Sprint(r.Visits) }},
	{"visits without an answer", func(r result) string { return fmt.Sprint(r.Lost) }},
	{"counts forgotten", func(r result) string { return fmt.Sprint(r.Forgotten) }},
}

// limits of all pods, each only once.
func limits(s *measure.State, of func(*measure.Visit) cgroup.Limits) string {
	all := sets.New[string]()
	for _, pod := range s.Pods {
		if seen := s.Visits[pod.UID]; seen != nil {
			all.Insert(granted(of(seen)))
		}
	}
	return strings.Join(sets.List(all), ", ")
}

// counts are what the pods remember, in the order of their names.
func counts(s *measure.State) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(s.Pods)) {
		if seen := s.Visits[s.Pods[name].UID]; seen != nil {
			all = append(all, fmt.Sprint(seen.Count))
		}
	}
	return strings.Join(all, ", ")
}

func brake(s *measure.State) string {
	_, value := s.HoldField()
	return value
}

func (d *demo) summariseWrites(results []result) {
	d.out.line("")
	d.out.line(d.out.paint(bold, "Writes of inplace-rollout, audit log"))
	kinds := map[string]bool{}
	for _, r := range results {
		for kind := range ours(r.audit) {
			kinds[kind] = true
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		d.out.line(pad(kind, labelWidth) + each(results, func(r result) string { return fmt.Sprint(ours(r.audit)[kind]) }))
	}
	d.out.line(pad("refused, of all these", labelWidth) + each(results, func(r result) string { return fmt.Sprint(r.audit.Conflicts + r.audit.Refusals) }))
}

// The widths of the summary's first and other columns.
const (
	labelWidth  = 40
	columnWidth = 20
)

// each puts a value of every result into its column.
func each(results []result, value func(result) string) string {
	line := ""
	for _, r := range results {
		line += pad(value(r), columnWidth)
	}
	return line
}

func templateSize(s *measure.State) string { return size(&s.Template().Spec.Containers[0].Resources) }

// granted are limits as the table shows sizes.
func granted(l cgroup.Limits) string {
	return resource.NewMilliQuantity(l.CPU, resource.DecimalSI).String() + " / " + resource.NewQuantity(l.Memory, resource.BinarySI).String()
}

// otherwise names the pods whose kernel or program has shown other limits than the
// template has, or nothing yet.
func otherwise(s *measure.State) []string {
	limits := s.Template().Spec.Containers[0].Resources.Limits
	want := cgroup.Limits{CPU: limits.Cpu().MilliValue(), Memory: limits.Memory().Value()}
	var names []string
	for _, name := range s.PodNames() {
		if seen := s.Visits[s.Pods[name].UID]; seen == nil || seen.Kernel != want || seen.Reads != want {
			names = append(names, name)
		}
	}
	return names
}
