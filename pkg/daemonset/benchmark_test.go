package daemonset

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

// BenchmarkSync is that of simulated.
func BenchmarkSync(b *testing.B) {
	simulated.BenchmarkSync(b, func(b *testing.B, n int) *simulated.Harness[*appsv1.DaemonSet, *history] {
		b.Helper()
		c := newCluster(b, n, controller.Options{})
		c.edit(newer)
		return c.Harness
	})
}
