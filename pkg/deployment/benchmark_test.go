package deployment

import (
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

// BenchmarkSync is that of simulated.
func BenchmarkSync(b *testing.B) {
	simulated.BenchmarkSync(b, func(b *testing.B, n int) *simulated.Harness[*Deployment, *kindState] {
		b.Helper()
		c := newCluster(b, n, controller.Options{})
		c.edit(newer)
		return c.Harness
	})
}
