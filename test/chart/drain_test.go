//go:build around

package chart

import (
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestDrain: of the controller, the webhook and the estimator one pod at a time may be evicted, also where there is only one, so that no
// node waits for it: that is what maxUnavailable of 1 says, and minAvailable does not.
func TestDrain(t *testing.T) {
	objects := must.Get(template(t, folder(), "platform", "--set", "hold=webhook,initialResources.enabled=true,initialResources.prometheusURL=http://prometheus:9090"))(t)
	for _, name := range []string{"inplace-rollout", "inplace-rollout-webhook", "inplace-rollout-estimator"} {
		budget, deployment := ofKind(objects, "PodDisruptionBudget", name), ofKind(objects, "Deployment", name)
		if budget == nil || deployment == nil {
			t.Errorf("of %s there are %s and %s", name, budget, deployment)
			continue
		}
		of, spec := deployment["spec"].(map[string]any), budget["spec"].(map[string]any)
		if spec["maxUnavailable"] != 1.0 || spec["unhealthyPodEvictionPolicy"] != "AlwaysAllow" || mustMarshal(t, spec["selector"]) != mustMarshal(t, of["selector"]) {
			t.Errorf("the budget of %s is %s", name, mustMarshal(t, spec))
		}
	}
}
