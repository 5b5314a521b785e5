//go:build integration

package integration

import (
	"os"
	"path/filepath"
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
