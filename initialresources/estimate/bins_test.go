package estimate_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

func TestHistogram(t *testing.T) {
	for name, tt := range map[string]struct {
		resource corev1.ResourceName
		values   []float64
		want     []string
	}{
		"none":             {cpu, nil, nil},
		"one":              {cpu, []float64{0.0305}, []string{"30m-31m 1"}},
		"nothing used":     {memory, []float64{0, 0}, []string{"0-1Mi 2"}},
		"an upper end":     {cpu, []float64{0.030, 0.0301}, []string{"29m-30m 1", "30m-31m 1"}},
		"twos":             {cpu, build.Evenly(8, 0.001, 0.008), []string{"0-2m 2", "2m-4m 2", "4m-6m 2", "6m-8m 2"}},
		"one bin too many": {cpu, build.Evenly(5, 0.001, 0.005), []string{"0-2m 2", "2m-4m 2", "4m-6m 1"}},
		"fives":            {cpu, []float64{0.9, 0.915}, []string{"895m-900m 1", "900m-905m 0", "905m-910m 0", "910m-915m 1"}},
		"whole cores":      {cpu, []float64{0.5, 7}, []string{"0-2 1", "2-4 0", "4-6 0", "6-8 1"}},
		"powers of two":    {memory, []float64{500 * mi, 560 * mi}, []string{"496Mi-512Mi 1", "512Mi-528Mi 0", "528Mi-544Mi 0", "544Mi-560Mi 1"}},
		"an outlier shows": {memory, []float64{1 * mi, 2 * mi, 4000 * mi}, []string{"0-1Gi 2", "1Gi-2Gi 0", "2Gi-3Gi 0", "3Gi-4Gi 1"}},
	} {
		usage := build.Usage{{Resource: tt.resource, At: now, Values: tt.values}}
		got := build.Each(estimate.Histogram(usage.Samples(now, estimate.Key{}, tt.resource), tt.resource, 4), func(b estimate.Bin) string {
			return fmt.Sprintf("%s-%s %d", &b.From, &b.To, b.Samples)
		})
		must.EqualLists(t, got, tt.want, "%s", name)
	}
	if bins := estimate.Histogram(nil, cpu, 4); bins != nil {
		t.Errorf("of no samples %v", bins)
	}
}
