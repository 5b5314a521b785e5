package main

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
)

// TestPlanGuard: plan says how a rollout will be guarded, in words and as data.
func TestPlanGuard(t *testing.T) {
	for _, tt := range []struct {
		annotations map[string]string
		pods        int
		want        string
	}{
		{map[string]string{api.CanaryAnnotation: "10%"}, 15, "Guarded: 2 pods first, the others when they have been Ready for 1m30s. After a failure no other pod follows."},
		{map[string]string{api.CanaryAnnotation: "5", api.CanaryDurationAnnotation: "manual", api.OnFailureAnnotation: "Revert"}, 3,
			"Guarded: 3 pods first, the others when the rollout is promoted. After a failure no other pod follows, and those with the new size go back."},
		{map[string]string{api.CanaryAnnotation: "1"}, 3, "Guarded: 1 pod first, the others when it has been Ready for 1m30s. After a failure no other pod follows."},
		{map[string]string{api.ChecksAnnotation: "a, b"}, 3, "After a failure no other pod follows; checks: a, b."},
		{map[string]string{api.CanaryAnnotation: "1"}, 0, ""},
		{nil, 3, ""},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"minReadySeconds": int64(90)}}}
		settings, err := policy.Read(tt.annotations)
		if err != nil {
			t.Fatal(err)
		}
		said := ""
		if g := guardOf(u, settings.Guard, tt.pods); g != nil {
			said = g.String()
		}
		if said != tt.want {
			t.Errorf("%v: %q, want %q", tt.annotations, said, tt.want)
		}
	}
}
