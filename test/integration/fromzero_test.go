//go:build integration

package integration

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// TestFromZero: what has no pods, and gets some together with another image, never runs the image of before.
// No pod has to be kept, so nothing is held.
func TestFromZero(t *testing.T) {
	parallel(t)
	t.Run("StatefulSet", func(t *testing.T) {
		parallel(t)
		w := newWorkload(t, options{Replicas: 2})
		w.testFromZero(func(o *appsv1.StatefulSet) bool {
			return o.Status.Replicas == 0 && observed(o)
		})
		before := w.uids()
		w.setResources("cpu=150m", "")
		w.waitComplete()
		w.assertMoved(0)
		w.assertReplaced(before)
	})
	t.Run("Parallel", func(t *testing.T) {
		parallel(t)
		w := newWorkload(t, options{Replicas: 2, Spec: "podManagementPolicy: Parallel"})
		w.testFromZero(func(o *appsv1.StatefulSet) bool {
			return o.Status.Replicas == 0 && observed(o)
		})
	})
	t.Run("Deployment", func(t *testing.T) {
		parallel(t)
		d := newDeployment(t, options{Replicas: 2})
		d.testFromZero(func(o *appsv1.Deployment) bool {
			return o.Status.Replicas == 0 && observed(o)
		})
		d.assertSettled("100m")
		before := d.uids()
		d.edit("150m")
		d.assertMoved(before, "150m")
	})
	t.Run("Recreate", func(t *testing.T) {
		parallel(t)
		d := newDeployment(t, options{Replicas: 2, Spec: "strategy: {type: Recreate}"})
		d.testFromZero(func(o *appsv1.Deployment) bool {
			return o.Status.Replicas == 0 && observed(o)
		})
		d.assertSettled("100m")
	})
}

// TestHeldFromZero: what is held from before, and has no pods left, is let go with the next edit.
func TestHeldFromZero(t *testing.T) {
	t.Run("StatefulSet", func(t *testing.T) {
		t.Parallel()
		w := newWorkload(t, options{Replicas: 2})
		w.testHeldFromZero(t, func(o *appsv1.StatefulSet) bool { return o.Status.Replicas == 0 })
		w.assertMoved(0)
	})
	t.Run("Deployment", func(t *testing.T) {
		t.Parallel()
		d := newDeployment(t, options{Replicas: 2})
		d.testHeldFromZero(t, func(o *appsv1.Deployment) bool { return o.Status.Replicas == 0 })
		d.assertSettled("150m")
	})
}

// testHeldFromZero has no controller before the last pod has come.
func (s *sandbox[W]) testHeldFromZero(t *testing.T, empty func(W) bool) {
	t.Helper()
	s.setResources("cpu=150m", "")
	s.kubectl("scale", s.ref, "--replicas=0")
	s.waitFor("no pods", func(o W) bool { return empty(o) && len(s.pods()) == 0 })
	if !held(s.get()) {
		t.Error("not held, and nobody is there to let go")
	}
	log := s.logPods()
	s.patch(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"app:3"}]}}}}`)
	s.patch(`{"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"app","image":"app:2"}]}}}}`) // may not be observed yet
	s.waitImage("app:2", 3)
	log.assertImage("app:2")
	s.ownController(t, controller.Options{})
	s.waitComplete()
}

// TestFromZeroIsNotComplete: a Deployment was complete without pods. It is not any more when it wants some.
func TestFromZeroIsNotComplete(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 2})
	d.waitComplete()
	d.kubectl("scale", d.ref, "--replicas=0")
	d.waitFor("no pods", func(o *appsv1.Deployment) bool {
		return o.Status.Replicas == 0 && observed(o)
	})
	d.patch(strings.Replace(notReady, `"spec":{`, `"spec":{"replicas":2,`, 1))
	d.waitImage("app:2", 2)
	d.waitObserved()
	if status, _, message := complete(d.get()); status == corev1.ConditionTrue {
		t.Errorf("said to be complete, and no pod is Ready: %s", message)
	}
	d.readyUntilComplete(func(o *appsv1.Deployment) bool { return o.Status.AvailableReplicas == 2 })
	d.assertSettled("100m")
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
			if image := imageOf(pod); image != want {
				l.t.Fatalf("%s came with image %s, want %s", pod.Name, image, want)
			}
		}
	})
}
