package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/cgroup"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

// result is everything that is known of one edit of one subject.
type result struct {
	title string
	subject
	measurement
	*outcome
	samples []sample
}

// result of an act, whose history ends with the next act in the same namespace.
func (a act) result(title string, of subject, history []moment) result {
	return result{
		title: title, subject: of, measurement: measure(history, a.from, of), outcome: a.outcomes[of.Namespace],
		samples: trace(history, a.from, of),
	}
}

// waited is how long kubectl's waiter has waited since the edit.
func (r result) waited() time.Duration { return r.returned.Sub(r.edited) }

// early names the pods without the new size when kubectl's waiter had ended.
func (r result) early() []string { return wrongSize(&state{owner: r.after.owner, pods: r.pods}) }

// writes are what the audit log has of one namespace during one edit.
type writes struct {
	ours            map[string]int // of inplace-rollout, by verb and resource
	refused         int            // of those, by the API server
	created, killed int            // pods, by anybody
}

// audit counts the writes in a namespace since a mark.
func (d *demo) audit(mark int64, namespace string) (writes, error) {
	w := writes{ours: map[string]int{}}
	events, err := d.AuditSince(mark, controlplane.Writes)
	if err != nil {
		return w, err
	}
	for _, event := range events {
		if event.ObjectRef != nil && event.ObjectRef.Namespace == namespace {
			w.count(&event)
		}
	}
	return w, nil
}

// nodeUser is how the names of kubelets begin.
const nodeUser = "system:node:"

func (w *writes) count(event *auditv1.Event) {
	ref, done := event.ObjectRef, event.ResponseStatus != nil && event.ResponseStatus.Code < 400
	resource := ref.Resource
	if ref.Subresource != "" {
		resource += "/" + ref.Subresource
	}
	switch {
	case done && resource == "pods" && event.Verb == "create":
		w.created++
	case strings.HasPrefix(event.User.Username, nodeUser): // a kubelet, which reports the end of a pod
	case done && (resource == "pods" && event.Verb == "delete" || resource == "pods/eviction"):
		w.killed++
	}
	if event.User.Username == controller.User {
		w.ours[event.Verb+" "+resource]++
		if !done {
			w.refused++
		}
	}
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
	table := rows(results[0].before)
	if d.node != nil {
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
func rows(s *state) []row {
	n := s.replicas()
	of := func(count int) string { return fmt.Sprintf("%d of %d", count, n) }
	field, _ := s.brake()
	common := []row{
		{"pods replaced", func(r result) string { return of(r.replaced) }},
		{"pods deleted / created, audit log", func(r result) string { return fmt.Sprintf("%d / %d", r.audit.killed, r.audit.created) }},
		{"container restarts in living pods", func(r result) string { return fmt.Sprint(r.restarts) }},
		{"containers started anew, new pods too", func(r result) string { return fmt.Sprint(r.started) }},
		{"pods not Ready at some time", func(r result) string { return of(r.notReady) }},
		{fmt.Sprintf("longest time with fewer than %d Ready", n), func(r result) string { return seconds(r.short) }},
		{"all such times together", func(r result) string { return seconds(r.shortAll) }},
		{"from the edit until complete", func(r result) string { return seconds(r.took) }},
		{"from the edit until kubectl's wait ends", func(r result) string { return seconds(r.waited()) }},
		{"pods of the new size by then", func(r result) string { return of(len(r.pods) - len(r.early())) }},
		{"pods of the new size, spec and status", func(r result) string { return of(len(r.after.pods) - len(wrongSize(r.after))) }},
		{"size before", func(r result) string { return templateSize(r.before) }},
		{"size after", func(r result) string { return templateSize(r.after) }},
		{field + ", before → after", func(r result) string { return brake(r.before) + " → " + brake(r.after) }},
		{"annotation " + api.HoldAnnotation, func(r result) string { return r.after.held() }},
		{"revisions in kubectl rollout history", func(r result) string { return strings.Join(r.revisions, ", ") }},
	}
	if len(s.sets) == 0 {
		return common
	}
	return append(common,
		row{"ReplicaSet of the pods, before", func(r result) string { return strings.Join(r.before.active(), ", ") }},
		row{"ReplicaSet of the pods, after", func(r result) string { return strings.Join(r.after.active(), ", ") }},
		row{"ReplicaSets that had pods", func(r result) string { return fmt.Sprint(r.used) }},
	)
}

// visitRows are those of a real node.
var visitRows = []row{
	{"limits in the kernel, before", func(r result) string { return limits(r.before, func(v *visit) cgroup.Limits { return v.kernel }) }},
	{"limits in the kernel, after", func(r result) string { return limits(r.after, func(v *visit) cgroup.Limits { return v.kernel }) }},
	{"limits that the programs read, after", func(r result) string { return limits(r.after, func(v *visit) cgroup.Limits { return v.reads }) }},
	{"counters in the end, by pod", func(r result) string { return counts(r.after) }},
	{"visits", func(r result) string { return fmt.Sprint(r.visits) }},
	{"visits without an answer", func(r result) string { return fmt.Sprint(r.lost) }},
	{"counts forgotten", func(r result) string { return fmt.Sprint(r.forgotten) }},
}

// limits of all pods, each only once.
func limits(s *state, of func(*visit) cgroup.Limits) string {
	all := sets.New[string]()
	for _, pod := range s.pods {
		if seen := s.visits[pod.UID]; seen != nil {
			all.Insert(granted(of(seen)))
		}
	}
	return strings.Join(sets.List(all), ", ")
}

// counts are what the pods remember, in the order of their names.
func counts(s *state) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		if seen := s.visits[s.pods[name].UID]; seen != nil {
			all = append(all, fmt.Sprint(seen.count))
		}
	}
	return strings.Join(all, ", ")
}

func brake(s *state) string {
	_, value := s.brake()
	return value
}

func (d *demo) summariseWrites(results []result) {
	d.out.line("")
	d.out.line(d.out.paint(bold, "Writes of inplace-rollout, audit log"))
	kinds := map[string]bool{}
	for _, r := range results {
		for kind := range r.audit.ours {
			kinds[kind] = true
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		d.out.line(pad(kind, labelWidth) + each(results, func(r result) string { return fmt.Sprint(r.audit.ours[kind]) }))
	}
	d.out.line(pad("refused, of all these", labelWidth) + each(results, func(r result) string { return fmt.Sprint(r.audit.refused) }))
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

func templateSize(s *state) string { return size(&s.template().Spec.Containers[0].Resources) }
