//go:build integration

package integration

import (
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/webhook"
)

// changesPods serves a webhook for the sandbox that changes each pod whose labels the controller writes, as Kyverno and
// Gatekeeper do with pods that are older than their rules. The API server then refuses the write. Resizes go by it. It
// does so until stop is called.
func (s *sandbox[W]) changesPods() (stop func()) {
	s.t.Helper()
	var mended atomic.Bool
	webhook.Serve(s.t, client, webhook.Options{Namespace: s.namespace, Resources: []string{"pods"}, Mutate: func(r *admissionv1.AdmissionRequest, pod *unstructured.Unstructured) {
		if r.Operation == admissionv1.Update && (r.UserInfo.Username == controller.User || r.DryRun != nil && *r.DryRun) && !mended.Load() {
			_ = unstructured.SetNestedField(pod.Object, true, "spec", "hostPID")
		}
	}})
	eventually(s.t, "the webhook to be asked", func() (bool, string) {
		err := s.try(s.t, "label", "pod", s.names()[0], "--overwrite", "example.com/asks=yes", "--dry-run=server")
		return err != nil, ""
	})
	return func() { mended.Store(true) }
}

// TestLabelsRefused: where admission refuses every write of a pod's labels, pods get their size all the same, the condition says
// how many have it and what is in the way, and each pod is tried again.
func TestLabelsRefused(t *testing.T) {
	parallel(t)
	w, d := newWorkload(t, options{}), newDaemonSet(t, options{})
	before, daemonsBefore := w.uids(), d.uids()
	mend, mendDaemons := w.changesPods(), d.changesPods()
	w.setResources("cpu=150m", "")
	d.setResources("cpu=150m", "")
	for name := range before {
		w.waitSize(name, "150m")
	}
	for name := range daemonsBefore {
		d.waitSize(name, "150m")
	}
	w.waitCondition("AdmissionDenied", "3 of 3 pods resized; web-2: has its size, but cannot be marked as updated: Pod \"web-2\" is invalid: spec: Forbidden: pod updates may not change fields")
	d.waitCondition("AdmissionDenied", "3 of 3 pods resized; ")
	w.waitEvent("AdmissionDenied", "web-2: has its size, but cannot be marked as updated")
	d.waitEvent("AdmissionDenied", "has its size, but cannot be marked as updated")
	if status, _, message := complete(w.get()); status != corev1.ConditionFalse || strings.Contains(message, "\n") {
		t.Errorf("Complete is %s: %q", status, message)
	}
	for _, failed := range append(w.events("StepFailed"), d.events("StepFailed")...) {
		t.Errorf("an event says %s", failed)
	}
	mend()
	mendDaemons()
	w.waitComplete()
	d.waitComplete()
	w.waitFor("all pods to count as updated", func(set *appsv1.StatefulSet) bool { return set.Status.UpdatedReplicas == 3 })
	w.assertMoved(0)
	w.assertReplaced(before)
	d.assertMoved(daemonsBefore, "150m")
}
