//go:build integration

package integration

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

func imageOf(pod corev1.Pod) string { return pod.Spec.Containers[0].Image }

// halfUpgraded has web-3 and web-4 of five with another image, and the others to follow.
func halfUpgraded(t *testing.T, o options) *workload {
	t.Helper()
	o.Replicas = 5
	o.Spec = "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 3}}"
	w := newWorkload(t, o)
	w.kubectl("set", "image", w.ref, "app=app:2")
	if got := w.run("release", w.ref, "--yes"); got.code != 0 {
		t.Fatal(got.stderr)
	}
	w.waitFor("two upgraded pods", func(set *appsv1.StatefulSet) bool {
		return set.Status.UpdatedReplicas == 2 && set.Status.AvailableReplicas == 5 && set.Status.CurrentRevision != set.Status.UpdateRevision
	})
	return w
}

// lose deletes pods and waits for the next ones.
func (w *workload) lose(names ...string) map[string]corev1.Pod {
	w.t.Helper()
	before := w.uids()
	for _, name := range names {
		w.kubectl("delete", "pod", name, "--now")
		w.waitPod(name, "to be back", func(pod corev1.Pod) bool { return pod.UID != before[name] })
	}
	return w.pods()
}

// TestLostDuringAnImageRollout: a size is edited while an image is rolled out. A pod that is lost
// then, or new, has the new image, and the size from before the edit.
func TestLostDuringAnImageRollout(t *testing.T) {
	w := halfUpgraded(t, options{})
	w.patch(`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}},"template":{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"150m"}}}]}}}}`)
	w.waitFor("the edit to be seen", observed)
	w.kubectl("scale", w.ref, "--replicas=6")
	w.waitPod("web-5", "to come", func(corev1.Pod) bool { return true })
	now := w.lose("web-4", "web-0")
	for _, name := range []string{"web-5", "web-4", "web-0"} {
		if image, cpu := imageOf(now[name]), cpuOf(now[name].Spec.Containers[0].Resources); image != "app:2" || cpu != "100m" {
			t.Errorf("%s came with image %s and cpu %s, want app:2 and 100m", name, image, cpu)
		}
	}
	before := w.uids()
	w.ownController(t, controller.Options{})
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-1", "web-2")
}

// TestBornAfterAFailure: no pod comes with a size that has failed: neither one that is lost after the next edit, nor those of a
// set that was scaled to zero.
func TestBornAfterAFailure(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{})
	w.waitComplete()
	fails := func(cpu string) {
		w.setResources("cpu="+cpu, "")
		w.waitPod("web-2", "to have the size", func(pod corev1.Pod) bool { return cpuOf(*pod.Status.ContainerStatuses[0].Resources) == cpu })
		w.waitCondition("Progressing", "canary of ")
		time.Sleep(2 * time.Second) // its resize is seen done
		w.oomKill("web-2", 10*time.Second)
		w.waitCondition("ResizeFailed", "web-2 failed")
	}
	born := func(what string, pods map[string]corev1.Pod, names ...string) {
		t.Helper()
		for _, name := range names {
			if cpu := cpuOf(pods[name].Spec.Containers[0].Resources); cpu != "100m" {
				t.Errorf("%s: %s came with cpu %s, want 100m, which all had before", what, name, cpu)
			}
		}
	}
	w.guard("canary", "1", "canary-duration", "1h")
	fails("150m")
	w.setResources("cpu=180m", "")
	w.waitCondition("Progressing", "canary of ")
	born("lost after the next edit", w.lose("web-0"), "web-0")

	time.Sleep(2 * time.Second)
	w.oomKill("web-2", time.Second) // sooner than before this resize, which says something against the size
	w.waitCondition("ResizeFailed", "web-2 failed")
	w.kubectl("scale", w.ref, "--replicas=0")
	w.waitFor("no pods", func(set *appsv1.StatefulSet) bool { return set.Status.Replicas == 0 && len(w.pods()) == 0 })
	w.kubectl("scale", w.ref, "--replicas=3")
	w.waitFor("three pods", func(set *appsv1.StatefulSet) bool { return set.Status.AvailableReplicas == 3 })
	born("scaled up again", w.pods(), "web-0", "web-1", "web-2")
	w.waitCondition("ResizeFailed", "web-2 failed")

	time.Sleep(2 * time.Second) // the API server's times have no fractions: the pods are older than the edit
	w.setResources("cpu=100m", "")
	w.waitComplete()
}
