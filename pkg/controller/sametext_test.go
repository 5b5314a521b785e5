package controller_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
)

// TestSameText: the built-in controllers of sets make a new revision of another spelling.
func TestSameText(t *testing.T) {
	of := func(limit string) *corev1.PodTemplateSpec {
		size := resource.MustParse(limit)
		return &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Volumes: []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &size}}}}}}
	}
	for other, want := range map[string]bool{"1Gi": true, "1024Mi": true, "1073741824": false, "2Gi": false} {
		if got := controller.SameText(of("1Gi"), of(other)); got != want {
			t.Errorf("1Gi and %s: %t", other, got)
		}
	}
}
