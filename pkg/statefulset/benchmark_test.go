package statefulset

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

// BenchmarkSync is that of simulated.
func BenchmarkSync(b *testing.B) {
	simulated.BenchmarkSync(b, func(b *testing.B, n int) *simulated.Harness[*appsv1.StatefulSet, *memory] {
		b.Helper()
		load(b)
		set := webSet(older, n)
		parallel(set) // else they would come up one by one
		c := newClusterOf(b, set, controller.Options{})
		c.edit(newer)
		return c.Harness
	})
}
