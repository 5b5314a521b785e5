package estimator

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/heap"
)

// BenchmarkPods says what is kept in memory of a pod with two containers: of most, that request
// what they need; of those that lack it; and of those that an estimate has sized.
func BenchmarkPods(b *testing.B) {
	const (
		requests = `, "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}`
		why      = `,"from":"image:tag","window":"7d","percentile":90,"samples":1440,"scope":"namespace"}`
		both     = `{"cpu":{"request":"100m"` + why + `,"memory":{"request":"64Mi"` + why + `}`
	)
	for name, c := range map[string]struct{ resources, annotation string }{
		"sized by its user":    {resources: requests},
		"without any requests": {},
		"sized by an estimate": {requests, `{"app":` + both + `,"sidecar":` + both + `}`},
	} {
		b.Run(name, func(b *testing.B) {
			const pods = 10_000
			for range b.N {
				store := cache.NewStore(cache.MetaNamespaceKeyFunc)
				before := heap.InUse()
				for i := range pods {
					// As it is decoded, no two share anything.
					p := build.Pod(fmt.Sprintf("app-%d-7d9c6b5f4-x2v%d", i%1000, i), build.Template(b, fmt.Sprintf(`{"containers": [
						{"name": "app", "image": "registry.example/team/app-%d:1.7"%s}, {"name": "sidecar", "image": "registry.example/mesh/proxy:2.1"%[2]s}]}`, i%1000, c.resources)))
					p.Namespace = fmt.Sprintf("team-%d", i%500)
					if c.annotation != "" {
						p.Annotations = map[string]string{api.EstimateAnnotation: strings.Clone(c.annotation)}
					}
					if err := store.Add(stripPod(p)); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(heap.InUse()-before)/pods, "B/pod")
				runtime.KeepAlive(store)
			}
		})
	}
}
