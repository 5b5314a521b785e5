package estimator

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/initialresources/history"
)

// Metrics of an estimator. Every label has a closed set of values, and no value comes later.
type Metrics struct {
	queries   *prometheus.CounterVec
	failures  *prometheus.CounterVec
	estimated *prometheus.CounterVec
	skipped   *prometheus.CounterVec
	resized   *prometheus.CounterVec
	errors    prometheus.Counter
	rungs     []estimate.Rung

	mu      sync.Mutex
	leading *Estimator // nil in a replica that waits for the lead
	since   time.Time
}

var (
	untilDesc    = prometheus.NewDesc("inplace_rollout_estimates_timestamp_seconds", "Time up to which the estimates include what containers used. Missing where another replica leads.", nil, nil)
	completeDesc = prometheus.NewDesc("inplace_rollout_history_complete", "1 if the whole history has been read; 0 while some is missing, and estimates that were made from more stay unchanged. Missing where another replica leads.", nil, nil)
	missingDesc  = prometheus.NewDesc("inplace_rollout_history_missing_seconds", "How much of the history has not been read, yet or at all. Missing where another replica leads.", nil, nil)
	imagesDesc   = prometheus.NewDesc("inplace_rollout_history_images", "Images, in any version, for which there are estimates.", nil, nil)
	tablesDesc   = prometheus.NewDesc("inplace_rollout_estimate_tables", "Opted-in namespaces, by whether their estimates are published.", []string{"state"}, nil)
)

// States of tables.
const (
	tablePublished = "published"
	tablePending   = "pending"  // it has not been written yet, or cannot be
	tableWithheld  = "withheld" // another ConfigMap has its name
)

// otherRung is that of an estimate which an estimator with other flags has made.
const otherRung = "other"

// defaultRung is that of what somebody has said of the image.
const defaultRung = "default"

// skipReasons are why admission does not set an estimate.
var skipReasons = []string{"annotate", "quota", "room", "pod-max", "pod-min", "changed", unknownImage, "other"}

// unknownImage is that there was no estimate.
const unknownImage = "unknown"

// outcomes of resizing a pod afterwards.
const (
	outcomeResized = "resized"
	outcomeRefused = "refused"
)

// rungName is a rung without the number of samples: 7d:tag.
func rungName(window estimate.Window, from estimate.From) string {
	if from == estimate.FromTag {
		return window.String() + ":tag"
	}
	return window.String() + ":image"
}

// NewMetrics registers the metrics. The rungs are those that estimates come from.
func NewMetrics(registry prometheus.Registerer, rungs []estimate.Rung) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		queries:   counter("inplace_rollout_history_queries_total", "Queries of the history, by what they ask for.", "query"),
		failures:  counter("inplace_rollout_history_query_errors_total", "Queries of the history that failed. They are repeated.", "query"),
		estimated: counter("inplace_rollout_estimated_requests_total", "Requests of new pods' containers for which there was an estimate, by where it came from.", "resource", "rung", "scope"),
		skipped:   counter("inplace_rollout_estimates_skipped_total", "Estimates that were not set in new pods, by the reason.", "resource", "reason"),
		resized:   counter("inplace_rollout_estimate_resizes_total", "Resizes of pods whose estimate has changed, by result.", "outcome"),
		errors:    prometheus.NewCounter(prometheus.CounterOpts{Name: "inplace_rollout_estimate_publish_errors_total", Help: "Writes of estimates that failed. They are repeated."}),
		rungs:     rungs,
	}
	for _, query := range history.Queries {
		m.queries.WithLabelValues(query)
		m.failures.WithLabelValues(query)
	}
	for _, resource := range estimate.Resources {
		for _, reason := range skipReasons {
			m.skipped.WithLabelValues(string(resource), reason)
		}
		for _, scope := range []estimate.Scope{estimate.InNamespace, estimate.InCluster} {
			m.estimated.WithLabelValues(string(resource), otherRung, string(scope))
			m.estimated.WithLabelValues(string(resource), defaultRung, string(scope))
			for _, r := range rungs {
				m.estimated.WithLabelValues(string(resource), rungName(r.Window, r.From), string(scope))
			}
		}
	}
	for _, outcome := range []string{outcomeResized, outcomeRefused} {
		m.resized.WithLabelValues(outcome)
	}
	registry.MustRegister(m.queries, m.failures, m.estimated, m.skipped, m.resized, m.errors, m)
	return m
}

// Observe counts a query of the history: [history.Options.Observe].
func (m *Metrics) Observe(query string, _ time.Duration, err error) {
	m.queries.WithLabelValues(query).Inc()
	if err != nil {
		m.failures.WithLabelValues(query).Inc()
	}
}

// Describe is that of prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{untilDesc, completeDesc, missingDesc, imagesDesc, tablesDesc} {
		ch <- desc
	}
}

// Collect is that of prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	e, since := m.leading, m.since
	m.mu.Unlock()
	if e == nil {
		return
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	complete, images := 0.0, 0
	if e.history.Complete() {
		complete = 1
	}
	if b, _ := e.current(); b != nil {
		images = b.images
		if until := e.history.Until(); until.After(since) {
			since = until
		}
	}
	gauge(untilDesc, float64(since.Unix()))
	gauge(completeDesc, complete)
	gauge(missingDesc, e.history.Missing().Seconds())
	gauge(imagesDesc, float64(images))
	for state, n := range e.countTables() {
		gauge(tablesDesc, float64(n), state)
	}
}

// countTables counts the namespaces that are opted in by the state of their tables.
func (e *Estimator) countTables() map[string]int {
	count := map[string]int{tablePublished: 0, tablePending: 0, tableWithheld: 0}
	for _, namespace := range e.watched.allOptedIn() {
		switch stored := e.stored(namespace); {
		case stored == nil:
			count[tablePending]++
		case ours(stored):
			count[tablePublished]++
		default:
			count[tableWithheld]++
		}
	}
	return count
}

// lead notes that the estimator leads, until what is returned is called.
func (m *Metrics) lead(e *Estimator) func() {
	m.set(e)
	return func() { m.set(nil) }
}

func (m *Metrics) leads() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leading != nil
}

func (m *Metrics) set(e *Estimator) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leading = e; e != nil {
		m.since = e.clock.Now()
	}
}

// born counts what was estimated for a pod, unless it was there before this replica led: the one
// before it has counted it.
func (m *Metrics) born(p *pod, a annotation) {
	m.mu.Lock()
	since := m.since
	m.mu.Unlock()
	if p.CreationTimestamp.Add(time.Second).Before(since) {
		return
	}
	for _, l := range p.lacks {
		m.skipped.WithLabelValues(string(l.resource), unknownImage).Inc()
	}
	a.each(func(_ string, resource corev1.ResourceName, s said) {
		if s.Skipped != "" {
			m.skipped.WithLabelValues(string(resource), oneOf(s.Skipped, skipReasons)).Inc()
			return
		}
		m.estimated.WithLabelValues(string(resource), m.rung(s.Estimate), string(scopeOf(s.Estimate))).Inc()
	})
}

func (m *Metrics) rung(e estimate.Estimate) string {
	if e.From == estimate.FromDefault {
		return defaultRung
	}
	name := rungName(e.Window, e.From)
	for _, r := range m.rungs {
		if rungName(r.Window, r.From) == name {
			return name
		}
	}
	return otherRung
}

// scopeOf is one of the two, whatever a pod's annotation says.
func scopeOf(e estimate.Estimate) estimate.Scope {
	if e.Scope == estimate.InCluster {
		return estimate.InCluster
	}
	return estimate.InNamespace
}

// oneOf is the value, or "other" if it is none of those that are known.
func oneOf(value string, known []string) string {
	for _, k := range known {
		if k == value {
			return value
		}
	}
	return "other"
}
