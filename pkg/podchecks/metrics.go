package podchecks

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/inplace-rollout/inplace-rollout/pkg/promapi"
)

// Metrics of a Runner. Every label has a closed set of values, and no value comes later: the names of checks are none.
type Metrics struct {
	queries *prometheus.CounterVec
	count   func() map[State]int
}

// Results are what may come of a query.
var Results = []string{resultAnswered, resultTimeout, resultTooLong, resultBadQuery, resultError}

const (
	resultAnswered = "answered"
	resultTimeout  = "timeout"
	resultTooLong  = "too_long"
	resultBadQuery = "bad_query"
	resultError    = "error"
)

var outcomesDesc = prometheus.NewDesc("inplace_rollout_checks",
	"Checks of pods that are asked now, by state.", []string{"state"}, nil)

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{queries: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "inplace_rollout_check_queries_total", Help: "Queries of checks to Prometheus, by result.",
	}, []string{"result"})}
	for _, result := range Results {
		m.queries.WithLabelValues(result)
	}
	registry.MustRegister(m.queries, m)
	return m
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) { ch <- outcomesDesc }

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	states := map[State]int{}
	if m.count != nil {
		states = m.count()
	}
	for _, state := range States {
		ch <- prometheus.MustNewConstMetric(outcomesDesc, prometheus.GaugeValue, float64(states[state]), string(state))
	}
}

func (m *Metrics) watch(count func() map[State]int) {
	if m != nil {
		m.count = count
	}
}

func (m *Metrics) queried(err error) {
	if m == nil {
		return
	}
	result := resultError
	switch long := (promapi.TooLong{}); {
	case err == nil:
		result = resultAnswered
	case errors.Is(err, context.DeadlineExceeded):
		result = resultTimeout
	case errors.As(err, &long):
		result = resultTooLong
	case promapi.BadQuery(err), promapi.OfSeries(err):
		result = resultBadQuery
	}
	m.queries.WithLabelValues(result).Inc()
}
