package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

// result is everything that was measured of one edit of one set.
type result struct {
	name, namespace string
	measurement
	audit writes
}

// writes are what the audit log has of one namespace during one edit.
type writes struct {
	ours            map[string]int // of inplace-rollout, by verb and resource
	refused         int            // of those, by the API server
	created, killed int            // pods, by anybody
}

// audit counts the writes since a mark, by namespace.
func (d *demo) audit(mark int64, namespaces []string) (map[string]writes, error) {
	events, err := d.AuditSince(mark, controlplane.Writes)
	if err != nil {
		return nil, err
	}
	counted := map[string]writes{}
	for _, namespace := range namespaces {
		w := writes{ours: map[string]int{}}
		for _, event := range events {
			if event.ObjectRef != nil && event.ObjectRef.Namespace == namespace {
				w.count(&event)
			}
		}
		counted[namespace] = w
	}
	return counted, nil
}

func (w *writes) count(event *auditv1.Event) {
	ref, done := event.ObjectRef, event.ResponseStatus != nil && event.ResponseStatus.Code < 400
	resource := ref.Resource
	if ref.Subresource != "" {
		resource += "/" + ref.Subresource
	}
	switch {
	case done && resource == "pods" && event.Verb == "create":
		w.created++
	case done && resource == "pods" && event.Verb == "delete":
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
	d.out.line(d.out.paint(dim, pad("", labelWidth)+each(results, func(r result) string { return r.name })))
	d.out.line(d.out.paint(bold, pad("", labelWidth)+each(results, func(r result) string {
		if r.namespace == inPlace {
			return "in place"
		}
		return "built-in"
	})))
	n := results[0].before.replicas()
	of := func(count int) string { return fmt.Sprintf("%d of %d", count, n) }
	for _, row := range []struct {
		label string
		value func(result) string
	}{
		{"pods replaced", func(r result) string { return of(r.replaced) }},
		{"pods deleted / created, audit log", func(r result) string { return fmt.Sprintf("%d / %d", r.audit.killed, r.audit.created) }},
		{"container restarts in living pods", func(r result) string { return fmt.Sprint(r.restarts) }},
		{"containers started anew, new pods too", func(r result) string { return fmt.Sprint(r.started) }},
		{"pods not Ready at some time", func(r result) string { return of(r.notReady) }},
		{fmt.Sprintf("longest time with fewer than %d Ready", n), func(r result) string { return seconds(r.short) }},
		{"all such times together", func(r result) string { return seconds(r.shortAll) }},
		{"from the edit until complete", func(r result) string { return seconds(r.took) }},
		{"pods at the new size, spec and status", func(r result) string { return of(len(r.after.pods) - len(wrongSize(r.after))) }},
		{"size before → after", func(r result) string { return templateSize(r.before) + " → " + templateSize(r.after) }},
		{"partition, before → after", func(r result) string { return fmt.Sprintf("%d → %d", r.before.partition(), r.after.partition()) }},
		{"annotation " + api.HoldAnnotation, func(r result) string { return held(r.after) }},
	} {
		d.out.line(pad(row.label, labelWidth) + each(results, row.value))
	}
	d.summariseWrites(results)
	d.out.line("")
	d.out.line(d.out.paint(dim, "The times are those of the simulation: a resize takes about as long here as the start of a database,"))
	d.out.line(d.out.paint(dim, fmt.Sprintf("%s (initialDelaySeconds of its readiness probe). A real one may take minutes.", seconds(longestStart(results[0].after)))))
}

// longestStart is the longest time that the start of a pod is made to take.
func longestStart(s *state) time.Duration {
	longest := time.Duration(0)
	for _, pod := range s.pods {
		longest = max(longest, probeDelay(pod))
	}
	return longest
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
	labelWidth  = 38
	columnWidth = 24
)

// each puts a value of every result into its column.
func each(results []result, value func(result) string) string {
	line := ""
	for _, r := range results {
		line += pad(value(r), columnWidth)
	}
	return line
}

func templateSize(s *state) string { return size(&s.set.Spec.Template.Spec.Containers[0].Resources) }

func held(s *state) string {
	if s.held() {
		return s.set.Annotations[api.HoldAnnotation]
	}
	return "none"
}
