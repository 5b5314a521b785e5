//go:build integration

package admission

import (
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// BenchmarkAdmission creates pods where nothing is estimated, and where few images are known or many: docs/estimates.md has what it
// says, and HOLD=webhook has the webhook measured.
func BenchmarkAdmission(b *testing.B) {
	const image = "registry.example.com/team/service-%d:v1"
	for _, c := range []struct {
		name, label string
		images      int
	}{{"not opted in", "", 0}, {"10 images", "enabled", 10}, {"1000 images", "enabled", 1000}} {
		n := namespace{name: fmt.Sprintf("benchmark-%d", c.images), label: c.label}
		if c.images > 0 {
			n.table = map[string]string{}
			for i := range c.images {
				maps.Copy(n.table, entries(fmt.Sprintf(image, i), "120m", "300Mi"))
			}
		}
		must.Do(b, n.create(b.Context()))
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: fmt.Sprintf(image, 5)}}}}
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				made := must.Get(client.CoreV1().Pods(n.name).Create(b.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}))(b)
				if got := len(made.Spec.Containers[0].Resources.Requests); (got > 0) != (c.images > 0) {
					b.Fatalf("%d requests are set, and %d images are known", got, c.images)
				}
			}
		})
	}
}
