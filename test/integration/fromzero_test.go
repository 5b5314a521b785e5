//go:build integration

package integration

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestFromZero: what has no pods, and gets some together with another image, never runs the image of before.
// No pod has to be kept, so nothing is held.
func TestFromZero(t *testing.T) {
	parallel(t)
	t.Run("StatefulSet", func(t *testing.T) {
		parallel(t)
		w := newWorkload(t, options{Replicas: 2})
		w.testFromZero(func(o *appsv1.StatefulSet) bool { return o.Status.Replicas == 0 && observed(o) })
		before := w.uids()
		w.setResources("cpu=150m", "")
		w.waitComplete()
		w.assertMoved(0)
		w.assertReplaced(before)
	})
	t.Run("Deployment", func(t *testing.T) {
		parallel(t)
		d := newDeployment(t, options{Replicas: 2})
		d.testFromZero(func(o *appsv1.Deployment) bool { return o.Status.Replicas == 0 && observed(o) })
		d.assertSettled("100m")
		before := d.uids()
		d.edit("150m")
		d.assertMoved(before, "150m")
	})
}

func (s *sandbox[W]) testFromZero(empty func(W) bool) {
	s.t.Helper()
	s.waitComplete()
	s.kubectl("scale", s.ref, "--replicas=0")
	s.waitFor("no pods", func(o W) bool { return empty(o) && len(s.pods()) == 0 })
	log := s.logPods()
	s.patch(`{"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"app","image":"app:2"}]}}}}`)
	if held(s.get()) {
		s.t.Error("held, and there is nothing to keep")
	}
	s.waitComplete()
	if got := len(s.pods()); got != 3 {
		s.t.Errorf("said to be complete with %d pods, want 3", got)
	}
	s.waitImage("app:2", 3)
	log.assertImage("app:2")
}

// assertImage checks that no pod ever had another image.
func (l *podLog) assertImage(want string) {
	l.t.Helper()
	l.replay(func(pods map[types.UID]corev1.Pod) {
		for _, pod := range pods {
			if image := pod.Spec.Containers[0].Image; image != want {
				l.t.Fatalf("%s came with image %s, want %s", pod.Name, image, want)
			}
		}
	})
}
