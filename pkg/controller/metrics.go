package controller

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Metrics of all controllers of a process. Every label has a closed set of values:
// kinds, and what is listed in this package and in package rollout.
type Metrics struct {
	rollouts        *prometheus.CounterVec
	pods            *prometheus.CounterVec
	restarts        *prometheus.CounterVec
	podDuration     *prometheus.HistogramVec
	rolloutDuration *prometheus.HistogramVec
	errors          *prometheus.CounterVec

	mu         sync.Mutex
	collectors []func(chan<- prometheus.Metric)
}

// result of a rollout.
type result string

const (
	resultComplete   result = "complete"
	resultHandedOver result = "handed_over"
	// resultAbandoned: opted out, or deleted, before its end.
	resultAbandoned result = "abandoned"
)

var results = []result{resultComplete, resultHandedOver, resultAbandoned}

// outcome for a pod.
type outcome string

const (
	// outcomeResized: it has the new size, and nothing was restarted but containers
	// whose resizePolicy says so.
	outcomeResized outcome = "resized"
	// outcomeRestarted: it was given up for a new one.
	outcomeRestarted outcome = "restarted"
	// outcomeRefused: the API server refused the size for good.
	outcomeRefused outcome = "refused"
)

var outcomes = []outcome{outcomeResized, outcomeRestarted, outcomeRefused}

var (
	heldDesc = prometheus.NewDesc("inplace_rollout_held_workloads",
		"Workloads whose rollout is held now.", []string{"kind"}, nil)
	oldestDesc = prometheus.NewDesc("inplace_rollout_oldest_hold_timestamp_seconds",
		"Time since which the oldest held rollout has not been complete; 0 if none is held.", []string{"kind"}, nil)
	stoppedDesc = prometheus.NewDesc("inplace_rollout_stopped_workloads",
		"Workloads whose guarded rollout is stopped because a pod failed, by the reason of their condition.", []string{"kind", "reason"}, nil)
	waitingDesc = prometheus.NewDesc("inplace_rollout_waiting_pods",
		"Pods of held workloads that wait now, by the reason.", []string{"kind", "reason"}, nil)
)

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		rollouts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "inplace_rollout_rollouts_total", Help: "Rollouts that have ended: complete, handed over to the built-in controller from some point on, or abandoned.",
		}, []string{"kind", "result"}),
		pods: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "inplace_rollout_pods_total", Help: "Pods by result: resized, restarted, or finally refused by the API server.",
		}, []string{"kind", "outcome"}),
		restarts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "inplace_rollout_pod_restarts_total", Help: "Pods that were restarted in a rollout in place, by the cause.",
		}, []string{"kind", "cause"}),
		podDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "inplace_rollout_pod_duration_seconds", Help: "Time from the request of a resize until the pod has its size.",
			Buckets: prometheus.ExponentialBuckets(0.125, 2, 14),
		}, []string{"kind"}),
		rolloutDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "inplace_rollout_rollout_duration_seconds", Help: "Time from the edit until the rollout is complete.",
			Buckets: prometheus.ExponentialBuckets(0.5, 2, 16),
		}, []string{"kind"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "inplace_rollout_step_errors_total", Help: "Steps of rollouts that failed. They are repeated.",
		}, []string{"kind"}),
	}
	registry.MustRegister(m.rollouts, m.pods, m.restarts, m.podDuration, m.rolloutDuration, m.errors, m)
	return m
}

// Describe is that of prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{heldDesc, oldestDesc, stoppedDesc, waitingDesc} {
		ch <- desc
	}
}

// Collect is that of prometheus.Collector: gauges are counted when they are collected.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, collect := range m.collectors {
		collect(ch)
	}
}

// kindMetrics are the metrics of one kind. They count nothing if Metrics is nil.
type kindMetrics struct {
	*Metrics
	kind string
}

// of returns the metrics of one kind. Each series is there from the start, so that
// its first increase is seen.
func (m *Metrics) of(kind string, collect func(chan<- prometheus.Metric)) kindMetrics {
	if m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.collectors = append(m.collectors, collect)
		for _, result := range results {
			m.rollouts.WithLabelValues(kind, string(result))
		}
		for _, outcome := range outcomes {
			m.pods.WithLabelValues(kind, string(outcome))
		}
		for _, cause := range judge.Causes {
			m.restarts.WithLabelValues(kind, string(cause))
		}
		m.podDuration.WithLabelValues(kind)
		m.rolloutDuration.WithLabelValues(kind)
		m.errors.WithLabelValues(kind)
	}
	return kindMetrics{m, kind}
}

func (k kindMetrics) ended(result result, took time.Duration) {
	if k.Metrics == nil {
		return
	}
	k.rollouts.WithLabelValues(k.kind, string(result)).Inc()
	if result == resultComplete && took > 0 {
		k.rolloutDuration.WithLabelValues(k.kind).Observe(took.Seconds())
	}
}

func (k kindMetrics) failed() {
	if k.Metrics != nil {
		k.errors.WithLabelValues(k.kind).Inc()
	}
}

func (k kindMetrics) pod(outcome outcome) {
	if k.Metrics != nil {
		k.pods.WithLabelValues(k.kind, string(outcome)).Inc()
	}
}

func (k kindMetrics) resized(took time.Duration) {
	k.pod(outcomeResized)
	if k.Metrics != nil {
		k.podDuration.WithLabelValues(k.kind).Observe(took.Seconds())
	}
}

func (k kindMetrics) restarted(cause judge.Cause) {
	k.pod(outcomeRestarted)
	if k.Metrics != nil {
		k.restarts.WithLabelValues(k.kind, string(cause)).Inc()
	}
}

// begun notes that a rollout of w is in flight. A controller that is restarted notes it anew.
func (c *Controller[W, K]) begun(w W) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rolling.Insert(cache.MetaObjectToName(w))
}

// ended counts the end of a workload's rollout, once: one that was handed over is complete
// later, too. What is complete without us, such as a new workload, does not count.
func (c *Controller[W, K]) ended(name cache.ObjectName, result result, took time.Duration) {
	c.mu.Lock()
	ours := c.rolling.Has(name)
	c.rolling.Delete(name)
	c.mu.Unlock()
	if ours {
		c.metrics.ended(result, took)
	}
}

// stoppedAs returns the reason of a guarded rollout that was stopped; empty if it was not.
func stoppedAs(w metav1.Object) string {
	switch r, _ := rollout.ReadRecord(w.GetAnnotations()); {
	case !r.Stopped():
		return ""
	case r.Phase == rollout.PhaseReverted:
		return judge.ReasonReverted
	default:
		return judge.ReasonResizeFailed
	}
}

// heldSince returns since when a held workload with that condition has not been complete; zero if that is not known. Before the built-in
// controller has observed an edit, it is the time of that, which keepWritten has kept.
func heldSince(w metav1.Object, have *rollout.StoredCondition) time.Time {
	if have != nil && !have.Complete() && !have.Pending() {
		return have.LastTransitionTime.Time
	}
	for _, entry := range w.GetManagedFields() {
		if entry.Subresource == "" && entry.Time != nil {
			return entry.Time.Time
		}
	}
	return time.Time{}
}

// collect sends the gauges of what is held now.
func (c *Controller[W, K]) collect(ch chan<- prometheus.Metric) {
	held, oldest := 0, time.Time{}
	stopped := map[string]int{judge.ReasonResizeFailed: 0, judge.ReasonReverted: 0}
	for _, obj := range c.informer.GetStore().List() {
		object, ok := obj.(metav1.Object)
		if !ok || !policy.Held(object) && !policy.Recorded(object) {
			continue
		}
		w, err := c.access.Decode(obj)
		if err != nil {
			continue
		}
		have := c.access.Condition(w)
		if reason := stoppedAs(w); reason != "" {
			stopped[reason]++
		}
		if !policy.Held(object) { // a DaemonSet under OnDelete
			continue
		}
		held++
		if began := heldSince(w, have); !began.IsZero() && (oldest.IsZero() || began.Before(oldest)) {
			oldest = began
		}
	}
	kind := c.access.Kind
	ch <- prometheus.MustNewConstMetric(heldDesc, prometheus.GaugeValue, float64(held), kind)
	ch <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, timestamp(oldest), kind)
	for reason, n := range stopped {
		ch <- prometheus.MustNewConstMetric(stoppedDesc, prometheus.GaugeValue, float64(n), kind, reason)
	}
	for reason, n := range c.waiting() {
		ch <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(n), kind, reason)
	}
}

// timestamp is in seconds since 1970; 0 for the zero time.
func timestamp(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// waiting counts the pods of workloads that are not at rest by the reason that they wait for.
func (c *Controller[W, K]) waiting() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	count := map[string]int{}
	for reason := range eventOfWait {
		count[reason] = 0
	}
	for _, m := range c.memories {
		for reason, n := range m.waiting {
			if _, worth := eventOfWait[reason]; worth {
				count[reason] += n
			}
		}
	}
	return count
}
