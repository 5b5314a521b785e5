//go:build around

package integration

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/podchecks"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestGuardChecks: a check that fails takes the size back. Prometheus is played: what a real one answers to the checks that are
// shipped is tried in test/prometheus. It alone proves the way from the annotation to Prometheus and back; a first answer
// takes half a minute to count.
func TestGuardChecks(t *testing.T) {
	w := newWorkload(t, options{})
	prometheus := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		answer.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(answer, `{"status": "success", "data": {"resultType": "vector", "result": [{"metric": {"namespace": %q, "pod": "web-2", "container": "app"}, "value": [%d, "99"]}]}}`,
			w.namespace, time.Now().Unix())
	}))
	defer prometheus.Close()
	configMaps := client.CoreV1().ConfigMaps(controller.Namespace)
	shipped := must.Get(configMaps.Get(t.Context(), podchecks.ConfigMapName, metav1.GetOptions{}))(t)
	more := shipped.DeepCopy()
	more.Data["too-busy"] = "{message: is busy for $value, unit: '%', above: 50, window: 1s, query: 'busy{namespace=~$namespace, pod=~$pod, container=~$container}'}"
	must.Get(configMaps.Update(t.Context(), more, metav1.UpdateOptions{}))(t)
	t.Cleanup(func() {
		if _, err := configMaps.Patch(context.Background(), podchecks.ConfigMapName, types.MergePatchType, []byte(`{"data": {"too-busy": null}}`), metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	})
	ownController(t, controller.Options{Args: []string{"--checks-prometheus=" + prometheus.URL}})
	w.waitComplete()
	before := w.uids()
	w.guard("canary", "1", "canary-duration", "1s", "checks", "too-busy", "on-failure", "Revert")
	w.setResources("cpu=150m", "")
	w.waitCondition("Reverted", "web-2 failed the check too-busy: is busy for 99 %, more than 50 %")
	if got := w.askedPods(); !slices.Equal(got, []string{"web-2"}) {
		t.Errorf("asked %v, want web-2 alone", got)
	}
	w.assertReplaced(before)
}
