//go:build integration

package integration

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// simFailsLater makes each size too small, which shows only three seconds after the resize.
const simFailsLater = `annotations: {sim.inplace-rollout.io/fails-after: "3s"}`

// TestSizeThatFailsLater: a size that is too small shows so only after a while. As a pod has to have
// been Ready for minReadySeconds since its resize, one is lost, and not all.
// It alone proves that of pods that become not Ready after they have been; that takes three times ten seconds.
func TestSizeThatFailsLater(t *testing.T) {
	parallel(t)
	t.Run("StatefulSet", func(t *testing.T) {
		parallel(t)
		w := newWorkload(t, options{Replicas: 5, PodMeta: simFailsLater, Spec: "minReadySeconds: 10"})
		oneFails(t, w.sandbox)
		if got := only(w.writes(), "patch pods/resize"); !slices.Equal(got, []string{"web-4"}) {
			t.Errorf("asked %v, want web-4 alone", got)
		}
		// A new edit may be the cure.
		for name := range w.pods() {
			w.annotatePod(name, "sim.inplace-rollout.io/fails-after-")
		}
		w.patch(`{"spec": {"minReadySeconds": 1}}`)
		w.setResources("cpu=120m", "")
		w.waitComplete()
		w.assertMoved(0)
	})
	t.Run("Deployment", func(t *testing.T) {
		parallel(t)
		oneFails(t, newDeployment(t, options{Replicas: 4, PodMeta: simFailsLater, Spec: "{minReadySeconds: 10, strategy: {rollingUpdate: {maxUnavailable: 100%}}}"}).sandbox)
	})
	t.Run("DaemonSet", func(t *testing.T) {
		parallel(t)
		oneFails(t, newDaemonSet(t, options{Replicas: 4, PodMeta: simFailsLater, Spec: "{minReadySeconds: 10, updateStrategy: {rollingUpdate: {maxUnavailable: 100%}}}"}).sandbox)
	})
}

func oneFails[W metav1.Object](t *testing.T, s *sandbox[W]) {
	t.Helper()
	s.setResources("cpu=150m", "")
	s.waitCondition("NotReadyAfterResize", "not Ready since its resize") // as it has been for ten seconds
	if got := only(s.writes(), "patch pods/resize"); len(got) != 1 || !held(s.get()) {
		t.Errorf("asked %v, held %t, want one pod and the hold", got, held(s.get()))
	}
}
