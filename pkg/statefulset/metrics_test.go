package statefulset

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/inplace-rollout/inplace-rollout/pkg/workload"
)

// measured are the metrics that are not zero, as `name{kind,label}`; of histograms the number of observations.
func measured(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.Metric {
			var labels []string
			for _, l := range m.Label {
				if l.GetName() != "kind" {
					labels = append(labels, l.GetValue())
				}
			}
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if value != 0 {
				got[strings.TrimPrefix(family.GetName(), "inplace_rollout_")+fmt.Sprint(labels)] = value
			}
		}
	}
	return got
}

func TestMetrics(t *testing.T) {
	t.Run("resized", func(t *testing.T) {
		registry := prometheus.NewRegistry()
		c := newCluster(t, 3, workload.Options{Metrics: workload.NewMetrics(registry)})
		if _, err := c.sync(); err != nil {
			t.Fatal(err)
		}
		wants(t, "at rest", registry, map[string]float64{})
		c.edit(newer)
		wants(t, "held, and not looked at", registry, map[string]float64{"held_workloads[]": 1, "oldest_hold_seconds[]": measured(t, registry)["oldest_hold_seconds[]"]})
		c.rest()
		if _, err := c.sync(); err != nil {
			t.Fatal(err)
		}
		wants(t, "complete", registry, map[string]float64{
			"rollouts_total[complete]": 1, "pods_total[resized]": 3,
			"pod_duration_seconds[]": 3, "rollout_duration_seconds[]": 1,
		})
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		problems, err := promlint.NewWithMetricFamilies(families).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("promlint: %v %v", problems, err)
		}
	})
	t.Run("refused and restarted", func(t *testing.T) {
		registry := prometheus.NewRegistry()
		c := newCluster(t, 3, workload.Options{Metrics: workload.NewMetrics(registry)})
		c.fail("patch pods/resize web-1", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web-1", nil), 1<<20)
		c.edit(newer)
		c.rest()
		wants(t, "complete", registry, map[string]float64{
			"rollouts_total[complete]": 1, "pods_total[resized]": 2, "pods_total[restarted]": 1, "pods_total[refused]": 1,
			"pod_restarts_total[infeasible]": 1, "pod_duration_seconds[]": 2, "rollout_duration_seconds[]": 1,
		})
	})
	t.Run("handed over, and not complete once more", func(t *testing.T) {
		registry := prometheus.NewRegistry()
		c := newCluster(t, 3, workload.Options{Metrics: workload.NewMetrics(registry)})
		c.edit(version{image: 2, cpu: 1})
		c.rest()
		wants(t, "complete", registry, map[string]float64{"rollouts_total[handed_over]": 1})
	})
}

func wants(t *testing.T, when string, registry *prometheus.Registry, want map[string]float64) {
	t.Helper()
	if got := measured(t, registry); !maps.Equal(got, want) {
		t.Errorf("%s: %v, want %v", when, got, want)
	}
}
