package pods_test

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// Of managedFields, the entries of the resize subresource are kept, and when the kubelet last wrote.
func TestStripManagedFields(t *testing.T) {
	const fields = `{"f:spec":{}}`
	wrote := metav1.NewTime(build.Start)
	pod := build.Pod("web-0", build.Size(t, ""), build.Ours(fields), build.ResizedBy("somebody-else", build.Start, fields), func(pod *corev1.Pod) {
		pod.ManagedFields = append(pod.ManagedFields,
			metav1.ManagedFieldsEntry{Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate},
			metav1.ManagedFieldsEntry{Manager: "somebody-else", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{}}}`)},
			metav1.ManagedFieldsEntry{Manager: "kubelet", Subresource: "status", Time: &wrote, FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:containerStatuses":{}}}`)},
			metav1.ManagedFieldsEntry{Manager: api.FieldManager},
		)
	})
	stripped := must.Get(pods.Strip(pod))(t)
	want, last := pod.ManagedFields[:2], len(stripped.ManagedFields)-1
	if kubelet := stripped.ManagedFields[last]; kubelet.Subresource != "status" || !kubelet.Time.Equal(&wrote) || kubelet.FieldsV1 != nil {
		t.Errorf("of the kubelet: kept %+v, want its time and no fields", kubelet)
	}
	if got := stripped.ManagedFields[:last]; !slices.EqualFunc(got, want, func(a, b metav1.ManagedFieldsEntry) bool {
		return a.Manager == b.Manager && a.Subresource == "resize" && string(a.FieldsV1.GetRawBytes()) == fields
	}) {
		t.Errorf("kept %+v, want what was set through the resize subresource", got)
	}
	if len(pod.ManagedFields) != 6 {
		t.Errorf("the pod itself has changed, to %+v", pod.ManagedFields)
	}
	if _, err := pods.Strip("no pod"); err == nil {
		t.Error("what is no pod is stripped")
	}
}

// Of annotations, those are kept that plans read.
func TestStripAnnotations(t *testing.T) {
	kept := map[string]string{
		"kubernetes.io/limit-ranger": "a", "autoscaling.x-k8s.io/startup-cpu-boost": "b", "vpaCpuStartupBoost/app": "c",
	}
	pod := build.Pod("web-0", build.Size(t, ""), func(pod *corev1.Pod) {
		pod.Annotations = maps.Clone(kept)
		pod.Annotations["example.com/note"] = "d"
	})
	stripped := must.Get(pods.Strip(pod))(t)
	if !maps.Equal(stripped.Annotations, kept) {
		t.Errorf("kept %v, want %v", stripped.Annotations, kept)
	}
}
