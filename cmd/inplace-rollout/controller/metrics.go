package controller

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
)

// readyMetric says for alerts what /readyz says for Kubernetes. All replicas of an installation have the same Lease, and so
// the same label.
func readyMetric(ready func() error, installation string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "inplace_rollout_ready", Help: "1 if the cluster has what the controller needs; 0 if not, and then nothing is touched.",
		ConstLabels: prometheus.Labels{"installation": installation},
	}, func() float64 {
		if ready() != nil {
			return 0
		}
		return 1
	})
}

// leftOutMetric says in how many namespaces nothing is held; the log names them.
func leftOutMetric(gate *prerequisite.Gate) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "inplace_rollout_left_out_namespaces", Help: "Namespaces in which edits are not held, because the namespaceSelector of the webhooks excludes them.",
	}, func() float64 { return float64(len(gate.LeftOut())) })
}

// holdMetric says in which way rollouts are held.
type holdMetric struct{ gate *prerequisite.Gate }

var holdDescription = prometheus.NewDesc("inplace_rollout_hold_info", "Always 1; the label says in which way the API server is to hold rollouts. Whether it does, inplace_rollout_edits_held says.", []string{"way"}, nil)

// Describe implements prometheus.Collector.
func (holdMetric) Describe(ch chan<- *prometheus.Desc) { ch <- holdDescription }

// Collect implements prometheus.Collector.
func (m holdMetric) Collect(ch chan<- prometheus.Metric) {
	if way := m.gate.Way(); way != "" {
		ch <- flag(holdDescription, true, string(way))
	}
}

// heldMetric says of which kinds a dry run has shown that edits are held.
type heldMetric struct{ gate *prerequisite.Gate }

var heldDescription = prometheus.NewDesc("inplace_rollout_edits_held", "1 if the last dry run has shown that edits of workloads of this kind are held.", []string{"kind"}, nil)

// Describe implements prometheus.Collector.
func (heldMetric) Describe(ch chan<- *prometheus.Desc) { ch <- heldDescription }

// Collect implements prometheus.Collector.
func (m heldMetric) Collect(ch chan<- prometheus.Metric) {
	for _, kind := range prerequisite.HeldKinds {
		ch <- flag(heldDescription, m.gate.Held(kind), kind)
	}
}

// flag is a metric of the label's value that is 1 if it is so, and else 0.
func flag(description *prometheus.Desc, is bool, label string) prometheus.Metric {
	value := 0.0
	if is {
		value = 1
	}
	return prometheus.MustNewConstMetric(description, prometheus.GaugeValue, value, label)
}
