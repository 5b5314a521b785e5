package capacity

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// The claims of pods are bound to volumes, or not yet; or one of both has been deleted.
func TestServedVolumes(t *testing.T) {
	claim := func(name, volume string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
	}
	from := served{fake.NewClientset(claim("bound", "volume"), claim("unbound", ""), claim("severed", "deleted"),
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "volume"}})}
	for _, tt := range []struct {
		claims, want []string
		lost         bool
	}{
		{claims: nil},
		{claims: []string{"unbound", "bound"}, want: []string{"volume"}},
		{claims: []string{"deleted", "bound"}, want: []string{"volume"}, lost: true},
		{claims: []string{"severed"}, lost: true},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}
		for _, name := range tt.claims {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}})
		}
		bound, lost, err := from.volumes(t.Context(), pod)
		var names []string
		for _, volume := range bound {
			names = append(names, volume.Name)
		}
		if err != nil || !slices.Equal(names, tt.want) || lost != tt.lost {
			t.Errorf("%q: got %q, lost: %t, and %v; want %q, lost: %t", tt.claims, names, lost, err, tt.want, tt.lost)
		}
	}
}

// However many pods wait for a node, whoever made them: so many are read. Those of a node are few,
// and come from the API server's cache.
func TestServedPods(t *testing.T) {
	client := fake.NewClientset()
	var asked []string
	client.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		o := a.(clienttesting.ListActionImpl).ListOptions
		asked = append(asked, fmt.Sprintf("%s limit %d version %q", o.FieldSelector, o.Limit, o.ResourceVersion))
		next := "more"
		if o.Limit != maxWaiting {
			next = ""
		}
		return true, &corev1.PodList{ListMeta: metav1.ListMeta{Continue: next}, Items: make([]corev1.Pod, 1)}, nil
	})
	for _, node := range []string{"", "node-1"} {
		if found, err := (served{client}).onNode(t.Context(), node); err != nil || len(found) != 1 {
			t.Errorf("on node %q are %v: %v", node, found, err)
		}
	}
	if want := []string{`spec.nodeName= limit 1000 version ""`, `spec.nodeName=node-1 limit 500 version "0"`}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
}
