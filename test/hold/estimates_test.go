//go:build integration

package hold

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// estimates runs the webhook with initial resources, beside a namespace that has a table.
func estimates(t *testing.T, name string, labels map[string]string) *controller.Webhook {
	t.Helper()
	w := serveWith(t, controller.WebhookOptions{InitialResources: true})
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	table := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: api.EstimatesName, Labels: map[string]string{api.ManagedByLabel: api.ManagedBy}},
		Data:       map[string]string{"docker.io-_library-_web_-1.cpu": `120m {"request":"120m","from":"image:tag"}`},
	}
	if _, err := client.CoreV1().ConfigMaps(name).Create(t.Context(), table, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "pods can be created", func() (bool, error) {
		_, err := client.CoreV1().ServiceAccounts(name).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil, err
	})
	return w
}

// born creates a pod whose container requests what is given, and returns its request of cpu.
func born(t *testing.T, namespace string, requests corev1.ResourceList) string {
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
	eventually(t, "a pod is estimated", func() (bool, error) {
		if got := born(t, namespace, nil); got != "120m" {
			return false, fmt.Errorf("it requests %s", got)
		}
		return true, nil
	})
}

// full requests lack nothing.
var full = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Mi")}

var enabled = map[string]string{api.InitialResourcesLabel: api.InitialResourcesEnabled}

// While no replica answers, pods are created at once, as they were written, and again with estimates
// when one is back.
func TestNobodyEstimates(t *testing.T) {
	w := estimates(t, "nobody-estimates", enabled)
	estimated(t, "nobody-estimates")
	w.Replica(0).Kill()
	w.Replica(1).Kill()
	for range 3 {
		if got := born(t, "nobody-estimates", nil); got != "0" {
			t.Errorf("a pod requests %s, and nobody answers", got)
		}
	}
	asked := w.Connections()
	born(t, "default", nil)
	born(t, "nobody-estimates", full)
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
	w := estimates(t, "estimates-hang", enabled)
	estimated(t, "estimates-hang")
	for i := range 2 {
		if err := w.Replica(i).Pause(); err != nil {
			t.Fatal(err)
		}
	}
	var took []time.Duration
	for range 3 {
		start := time.Now()
		if got := born(t, "estimates-hang", nil); got != "0" {
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
	w := estimates(t, "asked", nil)
	asked := func() float64 {
		t.Helper()
		sum := 0.0
		for i := range 2 {
			metrics, err := w.Replica(i).Metrics(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range requests.FindAllStringSubmatch(metrics, -1) {
				n, err := strconv.ParseFloat(match[1], 64)
				if err != nil {
					t.Fatal(err)
				}
				sum += n
			}
		}
		return sum
	}
	born(t, "asked", nil)
	born(t, "asked", full)
	if n := asked(); n != 0 {
		t.Errorf("it was asked %g times, and nothing is opted in", n)
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"enabled"}}}`, api.InitialResourcesLabel)
	if _, err := client.CoreV1().Namespaces().Patch(t.Context(), "asked", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	estimated(t, "asked")
	before := asked()
	born(t, "asked", full)
	if n := asked(); n != before {
		t.Errorf("it was asked %g times about a pod that lacks nothing", n-before)
	}
	if got := born(t, "asked", nil); got != "120m" || asked() != before+1 {
		t.Errorf("it was asked %g times about a pod that lacks something, which requests %s", asked()-before, got)
	}
}

var requests = regexp.MustCompile(`(?m)^inplace_rollout_webhook_requests_total{policy="inplace-rollout-initial-resources",.*} (.*)$`)

// What holds rollouts does not wait for estimates that cannot be read.
func TestEstimatesUnread(t *testing.T) {
	w := estimates(t, "unread", enabled)
	create(t, "unread", true)
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
	eventually(t, "an edit is held", func() (bool, error) {
		set, err := edit(t, "unread", 3)
		return err == nil && held(set), err
	})
	if got := born(t, "unread", nil); got != "0" {
		t.Errorf("a pod requests %s, and the webhook may not read the estimates", got)
	}
	if err := w.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	estimated(t, "unread")
}
