//go:build around

package chart

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// budgeted are the Deployments that have a PodDisruptionBudget.
var budgeted = []string{"inplace-rollout", "inplace-rollout-webhook", "inplace-rollout-estimator"}

// TestDrain: of the controller, the webhook and the estimator one pod at a time may be evicted, also where there is only
// one. So no node waits for it.
func TestDrain(t *testing.T) {
	cp, client := needCluster(t)
	const namespace = "drain"
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, cp: cp, client: client, namespace: namespace}
	for replicas := 1; replicas <= 2; replicas++ {
		objects, err := template(t, folder(), namespace, "--set", strings.ReplaceAll("hold=webhook,initialResources.enabled=true,initialResources.prometheusURL=http://prometheus:9090,"+
			"replicas=N,webhook.replicas=N,initialResources.estimator.replicas=N", "N", strconv.Itoa(replicas)))
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, o := range objects { // not what holds
			if o["kind"] == "Deployment" || o["kind"] == "PodDisruptionBudget" || o["kind"] == "ServiceAccount" {
				text.WriteString("---\n" + mustMarshal(t, o))
			}
		}
		file := filepath.Join(t.TempDir(), "all.yaml")
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		w.kubectl("apply", "--filename", file)
		for _, name := range budgeted {
			w.kubectl("rollout", "status", "deployment/"+name, "--timeout="+patience.String())
			var budget *policyv1.PodDisruptionBudget
			w.eventually("the budget of "+name, func() (bool, string) {
				var err error
				budget, err = client.PolicyV1().PodDisruptionBudgets(namespace).Get(t.Context(), name, metav1.GetOptions{})
				return err == nil && budget.Status.ObservedGeneration == budget.Generation && budget.Status.CurrentHealthy == int32(replicas) && budget.Status.ExpectedPods == int32(replicas), mustMarshal(t, budget)
			})
			if budget.Status.DisruptionsAllowed != 1 {
				t.Errorf("of %d replicas of %s, %d may be evicted, want 1", replicas, name, budget.Status.DisruptionsAllowed)
			}
		}
	}
}
