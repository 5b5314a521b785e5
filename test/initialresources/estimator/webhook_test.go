//go:build around

package estimator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// webhookWith runs the webhook in place of the policy, in two replicas, beside a namespace that has a table. The
// policy applies again with the end of the test.
func webhookWith(t *testing.T, name, mode string) *controller.Webhook {
	t.Helper()
	withoutPolicy(t)
	log, err := os.OpenFile(filepath.Join(cp.Dir(), "log", "webhook.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	w, err := controller.StartWebhook(t.Context(), cp, controller.WebhookOptions{InitialResources: true, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.Stop()
		_ = log.Close() // it has been written
		if err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(context.Background(), prerequisite.WebhookConfiguration, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	namespace(t, name, mode)
	table := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: api.EstimatesName, Labels: map[string]string{api.ManagedByLabel: api.ManagedBy}},
		Data:       map[string]string{"docker.io-_library-_web_-1.cpu": `120m {"request":"120m","from":"image:tag"}`},
	}
	if _, err := client.CoreV1().ConfigMaps(name).Create(t.Context(), table, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "pods to be created", func() (bool, string) {
		_, err := client.CoreV1().ServiceAccounts(name).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	return w
}

// withoutPolicy has the policy that gives new pods their requests apply nowhere for the time of the test. Its bindings
// stay: API servers look for no tables any more once the last binding has gone and come back.
func withoutPolicy(t *testing.T) {
	t.Helper()
	if !cp.AtLeast("1.36") {
		return // there is none
	}
	bindings := client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	for _, name := range []string{"inplace-rollout-initial-resources", "inplace-rollout-initial-resources-pods"} {
		binding, err := bindings.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		usual := binding.Spec.DeepCopy()
		binding.Spec.MatchResources = &admissionregistrationv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "nowhere"}},
		}
		if binding, err = bindings.Update(t.Context(), binding, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			binding.Spec = *usual
			if _, err := bindings.Update(context.Background(), binding, metav1.UpdateOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// requested creates a pod whose container requests what is given, and returns its request of cpu.
func requested(t *testing.T, namespace string, requests corev1.ResourceList) string {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"}, Spec: corev1.PodSpec{SchedulerName: "nobody"}}
	pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "web:1", Resources: corev1.ResourceRequirements{Requests: requests}}}
	pod, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
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

// full requests lack nothing.
var full = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Mi")}

// While no replica answers, pods are created at once, as they were written, and again with estimates
// when one is back.
func TestNobodyEstimates(t *testing.T) {
	w := webhookWith(t, "nobody-estimates", api.InitialResourcesEnabled)
	estimated(t, "nobody-estimates")
	w.Replica(0).Kill()
	w.Replica(1).Kill()
	for range 3 {
		if got := requested(t, "nobody-estimates", nil); got != "0" {
			t.Errorf("a pod requests %s, and nobody answers", got)
		}
	}
	asked := w.Connections()
	requested(t, "default", nil)
	requested(t, "nobody-estimates", full)
	if now := w.Connections(); now != asked {
		t.Errorf("the API server has asked %d times about pods that want nothing", now-asked)
	}
	if err := w.Start(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	estimated(t, "nobody-estimates")
}

// A pod waits a second for replicas that hang, and no longer.
func TestEstimatesHang(t *testing.T) {
	w := webhookWith(t, "estimates-hang", api.InitialResourcesEnabled)
	estimated(t, "estimates-hang")
	for i := range 2 {
		if err := w.Replica(i).Pause(); err != nil {
			t.Fatal(err)
		}
	}
	var took []time.Duration
	for range 3 {
		start := time.Now()
		if got := requested(t, "estimates-hang", nil); got != "0" {
			t.Errorf("a pod requests %s, and nobody answers", got)
		}
		took = append(took, time.Since(start))
	}
	t.Logf("creating a pod has taken %s", took)
	if least := slices.Min(took); least < time.Second || least > 4*time.Second { // others wait for 5 s, or 10
		t.Errorf("creating a pod has taken %s at least", least)
	}
	for i := range 2 {
		if err := w.Replica(i).Resume(); err != nil {
			t.Fatal(err)
		}
	}
	estimated(t, "estimates-hang")
}

// The webhook is asked about pods that are opted in and lack something, and about no others.
func TestAskedAboutPods(t *testing.T) {
	w := webhookWith(t, "asked", "")
	count := func() float64 {
		t.Helper()
		sum := 0.0
		for i := range 2 {
			metrics, err := w.Replica(i).Metrics(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range asks.FindAllStringSubmatch(metrics, -1) {
				n, err := strconv.ParseFloat(match[1], 64)
				if err != nil {
					t.Fatal(err)
				}
				sum += n
			}
		}
		return sum
	}
	// The webhook counts a request after it has answered it: a count is what two looks agree on.
	asked := func() float64 {
		t.Helper()
		for before := count(); ; {
			time.Sleep(500 * time.Millisecond)
			after := count()
			if after == before {
				return after
			}
			before = after
		}
	}
	requested(t, "asked", nil)
	requested(t, "asked", full)
	if n := asked(); n != 0 {
		t.Errorf("it was asked %g times, and nothing is opted in", n)
	}
	label(t, "asked", api.InitialResourcesEnabled)
	estimated(t, "asked")
	before := asked()
	requested(t, "asked", full)
	if n := asked(); n != before {
		t.Errorf("it was asked %g times about a pod that lacks nothing", n-before)
	}
	if got := requested(t, "asked", nil); got != "120m" {
		t.Errorf("a pod that lacks something requests %s", got)
	}
	if n := asked(); n != before+1 {
		t.Errorf("it was asked %g times about a pod that lacks something", n-before)
	}
}

var asks = regexp.MustCompile(`(?m)^inplace_rollout_webhook_requests_total{policy="inplace-rollout-initial-resources",.*} (.*)$`)

// What holds rollouts does not wait for estimates that cannot be read.
func TestEstimatesUnread(t *testing.T) {
	w := webhookWith(t, "unread", api.InitialResourcesEnabled)
	apply(t, `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: unread, namespace: unread, labels: {inplace-rollout.io/enabled: "true"}},
  spec: {replicas: 1, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: web, resources: {requests: {cpu: 1m}}}]}}}}`)
	estimated(t, "unread")
	if err := client.RbacV1().ClusterRoleBindings().Delete(t.Context(), "inplace-rollout-webhook-initial-resources", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		w.Replica(i).Kill()
		if err := w.Start(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		if err := w.Replica(i).WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	const edit = `{"spec":{"template":{"spec":{"containers":[{"name":"web","resources":{"requests":{"cpu":"3m"}}}]}}}}`
	eventually(t, "an edit that is held", func() (bool, string) {
		set, err := client.AppsV1().StatefulSets("unread").Patch(t.Context(), "unread", types.StrategicMergePatchType, []byte(edit), metav1.PatchOptions{})
		return err == nil && policy.Held(set), fmt.Sprint(err)
	})
	if got := requested(t, "unread", nil); got != "0" {
		t.Errorf("a pod requests %s, and the webhook may not read the estimates", got)
	}
	if err := w.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	estimated(t, "unread")
}
