//go:build around

package prometheus_test

import (
	"math"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/initialresources/history"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/prometheus"
)

// expected are the samples that initialresources/history promises of containers, worked out from what
// the history says of them. Scrapes and steps are on one grid, and a range has two scrapes.
type expected struct{ cpu, memory []float64 }

func expect(h prometheus.History, o history.Options, now time.Time, which func(prometheus.Container) bool) expected {
	var e expected
	until := now.Add(-o.Lag).Truncate(o.Resolution)
	since := until.Add(-o.Window).Truncate(6 * time.Hour)
	for _, c := range h.Containers {
		if !which(c) {
			continue
		}
		first := c.From.Truncate(h.Every)
		if first.Before(since) {
			first = since
		}
		for t := first; t.Before(until) && t.Before(c.To.Add(o.Range)); t = t.Add(o.Resolution) {
			if doubtful(h, o, c, t) {
				continue
			}
			cpu, memory := math.Inf(-1), math.Inf(-1)
			for _, life := range lives(c) {
				now, before := scraped(h, life, t), scraped(h, life, t.Add(-h.Every))
				if now && before {
					cpu = max(cpu, c.CPU(t)*known(h, c, life, t))
				}
				switch {
				case now:
					memory = max(memory, c.Memory(t))
				case before:
					memory = max(memory, c.Memory(t.Add(-h.Every)))
				}
			}
			if cpu >= 0 {
				e.cpu = append(e.cpu, cpu)
			}
			if memory >= 0 {
				e.memory = append(e.memory, memory)
			}
		}
	}
	slices.Sort(e.cpu)
	slices.Sort(e.memory)
	return e
}

// lives are the times of the series that a container has: one for each start.
func lives(c prometheus.Container) []prometheus.Span {
	all := []prometheus.Span{c.Span}
	for _, r := range c.Restarts {
		all[len(all)-1].To = r.At
		all = append(all, prometheus.Span{From: r.At, To: c.To})
	}
	return all
}

// known is the share of a range that Prometheus takes a rate to be known for. It knows that
// a counter has not been less than zero, so what it saw is not drawn out beyond the start.
func known(h prometheus.History, c prometheus.Container, life prometheus.Span, t time.Time) float64 {
	first := t.Add(-h.Every)
	if c.CPU(t) == 0 || first.Sub(life.From) >= 2*h.Every {
		return 1
	}
	total, before := 0.0, life.From
	for at := first.Add(-2 * h.Every); !at.After(first); at = at.Add(h.Every) {
		if scraped(h, life, at) {
			total += c.CPU(at) * at.Sub(before).Seconds()
			before = at
		}
	}
	increase := c.CPU(t) * h.Every.Seconds()
	return (1 + min(1, total/increase)) / 2
}

func scraped(h prometheus.History, life prometheus.Span, t time.Time) bool {
	return within(life, t) && !slices.ContainsFunc(h.Gaps, func(gap prometheus.Span) bool { return within(gap, t) })
}

func within(s prometheus.Span, t time.Time) bool { return !t.Before(s.From) && t.Before(s.To) }

// doubtful are times shortly after the pod that had this name before.
func doubtful(h prometheus.History, o history.Options, c prometheus.Container, t time.Time) bool {
	for _, other := range h.Containers {
		if other.Namespace != c.Namespace || other.Pod != c.Pod || other.Name != c.Name || other.Image == c.Image {
			continue
		}
		// Either is seen for as long, so neither counts while the other may be meant.
		for at := t; at.After(t.Add(-2 * o.Range)); at = at.Add(-h.Every) {
			if scraped(h, other.Span, at) {
				return true
			}
		}
	}
	return false
}

// check compares what the store has with what is expected.
func check(t *testing.T, store *history.Store, from time.Time, of estimate.Key, want expected, kills int) {
	t.Helper()
	for resource, exact := range map[corev1.ResourceName][]float64{corev1.ResourceCPU: want.cpu, corev1.ResourceMemory: want.memory} {
		got := store.Samples(from, of, resource)
		if got == nil {
			t.Errorf("%v: no samples of %s, want %d", of, resource, len(exact))
			continue
		}
		if int(got.Count()) != len(exact) {
			t.Errorf("%v: %v samples of %s, want %d", of, got.Count(), resource, len(exact))
			continue
		}
		for _, q := range []float64{0, 0.25, 0.5, 0.9, 0.99, 1} {
			value := exact[int(q*float64(len(exact)-1))]
			if have := got.Quantile(q); math.Abs(have-value) > 0.0101*value+1e-9 {
				t.Errorf("%v: %s at %v is %v, want %v", of, resource, q, have, value)
			}
		}
		counted := 0.0
		for _, count := range got.All() {
			counted += count
		}
		if counted != got.Count() {
			t.Errorf("%v: All has %v samples of %s, want %v", of, counted, resource, got.Count())
		}
		must.Equal(t, got.OOMKills(), kills, "%v: OOM kills", of)
	}
}
