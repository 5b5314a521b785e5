package pods_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/test/build"
)

// Of managedFields, only the entries of the resize subresource are kept.
func TestStripManagedFields(t *testing.T) {
	const fields = `{"f:spec":{}}`
	pod := build.Pod("web-0", build.Size(t, ""), build.Ours(fields), build.ResizedBy("somebody-else", build.Start, fields), func(pod *corev1.Pod) {
		pod.ManagedFields = append(pod.ManagedFields,
			metav1.ManagedFieldsEntry{Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate},
			metav1.ManagedFieldsEntry{Manager: "somebody-else", Subresource: "status"},
			metav1.ManagedFieldsEntry{Manager: api.FieldManager},
		)
	})
	stripped, err := pods.Strip(pod)
	if err != nil {
		t.Fatal(err)
	}
	want := pod.ManagedFields[:2]
	if got := stripped.ManagedFields; !slices.EqualFunc(got, want, func(a, b metav1.ManagedFieldsEntry) bool {
		return a.Manager == b.Manager && a.Subresource == "resize" && string(a.FieldsV1.GetRawBytes()) == fields
	}) {
		t.Errorf("kept %+v, want only what was set through the resize subresource", got)
	}
	if len(pod.ManagedFields) != 5 {
		t.Errorf("the pod itself has changed, to %+v", pod.ManagedFields)
	}
	if _, err := pods.Strip("no pod"); err == nil {
		t.Error("what is no pod is stripped")
	}
}
