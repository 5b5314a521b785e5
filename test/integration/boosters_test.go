//go:build around

package integration

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/webhook"
)

// boostMark is what google/kube-startup-cpu-boost leaves on the pods that it boosts.
const boostMark = "autoscaling.x-k8s.io/startup-cpu-boost"

// booster plays google/kube-startup-cpu-boost: it gives pods 500m at their admission, remembers what they were to
// have, and puts that back by the resize subresource.
type booster[W metav1.Object] struct {
	*sandbox[W]
}

// boosted has pods of a workload born with 500m, and marked.
func boosted(t *testing.T) options {
	t.Helper()
	return options{Resources: "{requests: {cpu: 100m, memory: 100Mi}}", By: func(namespace, manifest string) {
		t.Helper()
		asked := &atomic.Bool{}
		webhook.Serve(t, client, webhook.Options{Namespace: namespace, Resources: []string{"pods"}, Mutate: func(r *admissionv1.AdmissionRequest, pod *unstructured.Unstructured) {
			asked.Store(true)
			containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
			if r.Operation != admissionv1.Create || len(containers) == 0 {
				return
			}
			app, _ := containers[0].(map[string]any)
			original, _, _ := unstructured.NestedString(app, "resources", "requests", "cpu")
			_ = unstructured.SetNestedField(app, "500m", "resources", "requests", "cpu")
			_ = unstructured.SetNestedSlice(pod.Object, containers, "spec", "containers")
			mark := fmt.Sprintf(`{"state":"Active","timestamp":"2026-01-01T00:00:00Z","initCPURequests":{"app":%q}}`, original)
			_ = unstructured.SetNestedField(pod.Object, mark, "metadata", "annotations", boostMark)
		}})
		eventually(t, "the booster to be asked", func() (bool, string) {
			_, err := cp.Kubectl(t.Context(), "-n", namespace, "run", "probe", "--image=app:1", "--dry-run=server")
			return asked.Load(), said(err)
		})
		apply(t, namespace, manifest)
	}}
}

// putBack puts the cpu request of a pod back, and takes the mark away.
func (b booster[W]) putBack(name string) {
	b.t.Helper()
	patch := []byte(`{"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "100m"}}}]}}`)
	if _, err := client.CoreV1().Pods(b.namespace).Patch(b.t.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: "manager"}, "resize"); err != nil {
		b.t.Fatal(err)
	}
	b.annotatePod(name, boostMark+"-")
}

// waitBooster waits until every pod has its size, and nothing is left but to wait for the booster of one.
func (b booster[W]) waitBooster(name string) {
	b.t.Helper()
	b.waitFor("the condition to name the booster of "+name, func(workload W) bool {
		_, reason, message := complete(workload)
		return reason == "Progressing" && strings.HasPrefix(message, "3 of 3 pods resized; ") && strings.Contains(message, name) &&
			strings.Contains(message, "waiting for its startup booster to put back app: cpu request 150m→100m")
	})
}

// TestStartupBoosters is what docs/autoscalers.md says of them: what they put back after an edit is asked for once more, and the
// rollout is over only then. How long one is waited for is proved in pkg/rollout, and what becomes of one without a mark in
// pkg/controller.
func TestStartupBoosters(t *testing.T) {
	for kind, test := range map[string]func(t *testing.T, o options){
		"StatefulSet": func(t *testing.T, o options) { testBooster(t, newWorkload(t, o).sandbox) },
		"Deployment":  func(t *testing.T, o options) { testBooster(t, newDeployment(t, o).sandbox) },
		"DaemonSet":   func(t *testing.T, o options) { testBooster(t, newDaemonSet(t, o).sandbox) },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, boosted(t))
		})
	}
}

func testBooster[W metav1.Object](t *testing.T, s *sandbox[W]) {
	t.Helper()
	b := booster[W]{s}
	process := b.ownController(t, controller.Options{})
	b.waitComplete()
	before, names := b.uids(), b.names()
	for _, name := range names {
		b.waitSize(name, "500m")
	}
	b.markAudit()
	b.setResources("cpu=150m", "")
	b.waitBooster(names[0])
	process.Stop() // nothing is remembered but in the cluster
	b.ownController(t, controller.Options{})
	for i, name := range names {
		b.waitSize(name, "150m")
		if b.putBack(name); i < len(names)-1 {
			b.waitBooster(names[i+1])
		}
	}
	b.waitComplete()
	for name, pod := range b.pods() {
		if !hasSize(pod, "150m") {
			t.Errorf("%s is Complete with %+v", name, pod.Spec.Containers[0].Resources)
		}
	}
	if fmt.Sprint(b.uids()) != fmt.Sprint(before) {
		t.Errorf("the pods were %v and are %v", before, b.uids())
	}
	for _, name := range names {
		if n := len(b.audit("patch", "pods", "resize", name)); n != 2 {
			t.Errorf("%s was asked %d times, want twice", name, n)
		}
	}
	b.waitEvent("ResizedByOthers", "manager also resizes pods")
}
