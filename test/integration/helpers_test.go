//go:build integration

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

// apply applies a manifest on the server side, as a GitOps tool does.
func apply(t *testing.T, namespace, manifest string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"apply", "--server-side", "--field-manager=gitops", "--filename", file}
	if namespace != "" {
		args = append(args, "--namespace", namespace)
	}
	if _, err := cp.Kubectl(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
}

// reinstall returns what installs deploy/ again, once, in a test that takes
// something away from it.
func reinstall(t *testing.T) func() {
	t.Helper()
	return sync.OnceFunc(func() {
		if err := controller.Install(t.Context(), cp); err != nil {
			t.Error(err)
		}
	})
}

// setQuota sets a quota of cpu requests in the workload's namespace.
func (w *workload) setQuota(cpu string) {
	w.t.Helper()
	apply(w.t, w.namespace, fmt.Sprintf(`{apiVersion: v1, kind: ResourceQuota, metadata: {name: quota}, spec: {hard: {requests.cpu: %q}}}`, cpu))
}

// waitQuota waits until so much of the quota is counted as used.
func (w *workload) waitQuota(used string) {
	w.t.Helper()
	eventually(w.t, "the quota to be counted", func() (bool, string) {
		now := w.kubectl("get", "resourcequota/quota", "-o", "jsonpath={.status.used.requests\\.cpu}")
		return now == used, now
	})
}

// audit returns when the controller made the described writes.
func (w *workload) audit(verb, resource, subresource, name string) []time.Time {
	w.t.Helper()
	events, err := cp.AuditSince(w.mark, controlplane.ByUser(controller.User), controlplane.OnResource(resource, subresource),
		func(e *auditv1.Event) bool {
			return e.Verb == verb && e.ObjectRef.Namespace == w.namespace && e.ObjectRef.Name == name
		})
	if err != nil {
		w.t.Fatal(err)
	}
	var at []time.Time
	for _, e := range events {
		at = append(at, e.RequestReceivedTimestamp.Time)
	}
	return at
}

func readyTime(pod corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
