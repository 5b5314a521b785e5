//go:build around

package estimator

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// TestWithout: while the estimator and Prometheus are gone, pods are created with the last estimates, and without any where there
// are none. Nobody is asked for them, so there is nobody to wait for: no webhook is there.
func TestWithout(t *testing.T) {
	if !cp.AtLeast("1.36") {
		t.Skip("there is no MutatingAdmissionPolicy v1")
	}
	namespace(t, "shop", "enabled")
	p := alone(t)
	waitEntry(t, "shop", nginx+"_-1.25.cpu", "200m")
	waitBorn(t, true) // the API server takes a moment to see the table
	assertNoWebhooks(t)

	t.Cleanup(func() {
		if err := server.Restart(context.Background()); err != nil { // the other tests want it
			t.Error(err)
		}
	})
	server.Pause()
	p.Kill()
	for range 20 {
		if got, estimated := bear(t); !estimated {
			t.Fatalf("without both, a pod has %s", got)
		}
	}
	if err := client.CoreV1().ConfigMaps("shop").Delete(t.Context(), api.EstimatesName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitBorn(t, false)
}

// waitBorn waits until new pods have the requests that the history of their image says, or none.
func waitBorn(t *testing.T, want bool) {
	t.Helper()
	eventually(t, "pods of the other sort", func() (bool, string) { got, estimated := bear(t); return estimated == want, got })
}

// bear has a pod be created that requests nothing, without keeping it. It returns what it has, and whether that is the estimate.
func bear(t *testing.T) (has string, estimated bool) {
	t.Helper()
	created, err := client.CoreV1().Pods("shop").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "born-"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "nginx:1.25"}}},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	requests := created.Spec.Containers[0].Resources.Requests
	has = requests.Cpu().String() + " " + requests.Memory().String() + " " + created.Annotations[api.EstimateAnnotation]
	return has, strings.HasPrefix(has, "200m 65Mi ") && strings.Contains(has, `"request":"200m"`)
}

// assertNoWebhooks checks that there is nobody whom the API server could ask about pods.
func assertNoWebhooks(t *testing.T) {
	t.Helper()
	mutating, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	validating, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(mutating.Items)+len(validating.Items) > 0 {
		t.Errorf("deploy/initial-resources has webhooks: %v %v", mutating.Items, validating.Items)
	}
}
