//go:build around

package estimator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// webhookWith runs the webhook in two replicas, beside a namespace that has a table, and in place of the policy, which applies nowhere for
// the time of the test. Its bindings stay: API servers look for no tables any more once the last binding has gone and come back.
func webhookWith(t *testing.T, name string) *controller.Webhook {
	t.Helper()
	bindings := client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	for _, name := range []string{"inplace-rollout-initial-resources", "inplace-rollout-initial-resources-pods"} {
		if !cp.AtLeast("1.36") {
			break // there is none
		}
		binding := must.Get(bindings.Get(t.Context(), name, metav1.GetOptions{}))(t)
		usual := binding.Spec.DeepCopy()
		binding.Spec.MatchResources = &admissionregistrationv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "nowhere"}},
		}
		binding = must.Get(bindings.Update(t.Context(), binding, metav1.UpdateOptions{}))(t)
		t.Cleanup(func() {
			binding.Spec = *usual
			must.Get(bindings.Update(context.Background(), binding, metav1.UpdateOptions{}))(t)
		})
	}
	log := must.Get(os.OpenFile(filepath.Join(cp.Dir(), "log", "webhook.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))(t)
	w := must.Get(controller.StartWebhook(t.Context(), cp, controller.WebhookOptions{InitialResources: true, Log: log}))(t)
	t.Cleanup(func() {
		w.Stop()
		_ = log.Close() // it has been written
		must.Do(t, client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(context.Background(), prerequisite.WebhookConfiguration, metav1.DeleteOptions{}))
	})
	namespace(t, name, api.InitialResourcesEnabled)
	table := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: api.EstimatesName, Labels: map[string]string{api.ManagedByLabel: api.ManagedBy}},
		Data:       map[string]string{"docker.io-_library-_web_-1.cpu": `120m {"request":"120m","from":"image:tag"}`},
	}
	must.Get(client.CoreV1().ConfigMaps(name).Create(t.Context(), table, metav1.CreateOptions{}))(t)
	eventually(t, "pods to be created", func() (bool, string) {
		_, err := client.CoreV1().ServiceAccounts(name).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	return w
}

// requested creates a pod whose container requests what is given, and returns its request of cpu.
func requested(t *testing.T, namespace string, requests corev1.ResourceList) string {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"}, Spec: corev1.PodSpec{SchedulerName: "nobody"}}
	pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "web:1", Resources: corev1.ResourceRequirements{Requests: requests}}}
	pod = must.Get(client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}))(t)
	return pod.Spec.Containers[0].Resources.Requests.Cpu().String()
}

// estimated waits until new pods get what the table says.
func estimated(t *testing.T, namespace string) {
	t.Helper()
	eventually(t, "a pod with the estimate", func() (bool, string) {
		got := requested(t, namespace, nil)
		return got == "120m", "it requests " + got
	})
}

// While no replica answers, pods are created at once, as they were written, and again with estimates
// when one is back.
func TestNobodyEstimates(t *testing.T) {
	w := webhookWith(t, "nobody-estimates")
	estimated(t, "nobody-estimates")
	w.Replica(0).Kill()
	w.Replica(1).Kill()
	for range 3 {
		must.Equal(t, requested(t, "nobody-estimates", nil), "0", "what a pod requests where nobody answers")
	}
	asked := w.Connections()
	requested(t, "default", nil)
	requested(t, "nobody-estimates", corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Mi")})
	if now := w.Connections(); now != asked {
		t.Errorf("the API server has asked %d times about pods that want nothing", now-asked)
	}
	must.Do(t, w.Start(t.Context(), 0))
	estimated(t, "nobody-estimates")
}
