//go:build integration

package integration

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestGuardedRollouts: a size with which a container is OOMKilled stops at the first pod, in every kind. The pod goes
// back if that is asked for, and the others are never touched. New workloads have proved nothing, and are Complete all the same.
// Nobody who is scaled to zero and back gets the size, with a history or without.
func TestGuardedRollouts(t *testing.T) {
	parallel(t)
	o := options{Meta: "annotations: {inplace-rollout.io/canary: '1', inplace-rollout.io/canary-duration: 1h}"}
	inParallel(t, "StatefulSet", func(t *testing.T) { testGuarded(t, newWorkload(t, o).sandbox) })
	inParallel(t, "Deployment", func(t *testing.T) { testGuarded(t, newDeployment(t, o).sandbox) })
	inParallel(t, "DaemonSet", func(t *testing.T) { testGuarded(t, newDaemonSet(t, o).sandbox) })
	inParallel(t, "DaemonSet under OnDelete", func(t *testing.T) {
		testGuarded(t, newDaemonSet(t, options{Meta: o.Meta, Spec: "updateStrategy: {type: OnDelete}"}).sandbox)
	})
}

// waitCanaries waits until so many pods have been asked for a size, and returns them.
func (s *sandbox[W]) waitCanaries(n int) []string {
	s.t.Helper()
	s.waitFor(fmt.Sprintf("%d pods to be asked", n), func(W) bool { return len(s.askedPods()) >= n })
	return s.askedPods()
}

// oomKill plays that a container has reached its memory limit after it has run for so long.
func (s *sandbox[W]) oomKill(name string, ran time.Duration) {
	s.t.Helper()
	pod := s.pods()[name]
	controlplane.OOMKill(&pod.Status.ContainerStatuses[0], pod.UID, ran)
	must.Get(client.CoreV1().Pods(s.namespace).UpdateStatus(s.t.Context(), &pod, metav1.UpdateOptions{}))(s.t)
}

// comesBack scales the workload to zero and back: its pods are of that size. Where there is no history, a Deployment has none.
func (s *sandbox[W]) comesBack(cpu string, history bool) {
	s.t.Helper()
	if s.kind == "DaemonSet" {
		return
	}
	s.kubectl("scale", s.ref, "--replicas=0")
	s.waitFor("no pods", func(W) bool { return len(s.pods()) == 0 })
	if s.kind == "Deployment" && history {
		s.waitFor("the ReplicaSet that is scaled out next to have the size", func(W) bool { return s.youngestCPU() == cpu })
	}
	s.kubectl("scale", s.ref, "--replicas=3")
	if s.kind == "Deployment" && !history {
		s.waitCondition("ResizeFailed", "no ReplicaSet has the size from before")
		return
	}
	s.waitFor("all pods", func(W) bool { return len(s.pods()) == 3 })
	for name, pod := range s.pods() {
		if is := cpuOf(pod.Spec.Containers[0].Resources); is != cpu {
			s.t.Errorf("%s has come back with %s, want %s: %s", name, is, cpu, describe(s.get()))
		}
	}
}

// youngestCPU is the size of the ReplicaSet that was made last: a Deployment that is paused without pods scales that one.
func (s *sandbox[W]) youngestCPU() string {
	s.t.Helper()
	sets := must.Get(client.AppsV1().ReplicaSets(s.namespace).List(s.t.Context(), metav1.ListOptions{}))(s.t)
	youngest := slices.MaxFunc(sets.Items, func(a, b appsv1.ReplicaSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return cpuOf(youngest.Spec.Template.Spec.Containers[0].Resources)
}

func testGuarded[W metav1.Object](t *testing.T, s *sandbox[W]) {
	t.Helper()
	s.waitComplete()
	before := s.uids()
	time.Sleep(time.Second) // the API server's times have no fractions: the pods are older than the edits

	// Held: one pod is asked, and no other, also by a controller that remembers nothing.
	s.guard("canary", "1", "canary-duration", "30s")
	s.setResources("cpu=150m", "")
	canary := s.waitCanaries(1)[0]
	s.waitPod(canary, "to have the size", func(pod corev1.Pod) bool {
		return cpuOf(*pod.Status.ContainerStatuses[0].Resources) == "150m"
	})
	s.waitCondition("Progressing", "canary of ")
	time.Sleep(2 * time.Second) // its resize is seen done
	s.oomKill(canary, 10*time.Second)
	s.waitCondition("ResizeFailed", canary+" failed: container ")
	if got := s.askedPods(); len(got) != 1 || !policy.Recorded(s.get()) {
		t.Errorf("asked %v, recorded %t, want one pod and the record", got, policy.Recorded(s.get()))
	}
	if ran := s.run("promote", s.ref); ran.code == 0 || !strings.Contains(ran.stderr, "a pod has failed") {
		t.Errorf("promoting what was stopped: %+v", ran)
	}

	s.assertReplaced(before)
	s.comesBack("100m", true)
	before = s.uids()

	// Tried again, and promoted.
	if ran := s.run("retry", s.ref); ran.code != 0 {
		t.Fatalf("%+v", ran)
	}
	s.waitCondition("Progressing", "canary of ")
	if ran := s.run("promote", s.ref); ran.code != 0 || !strings.Contains(ran.stdout, "the other pods follow") {
		t.Fatalf("%+v", ran)
	}
	s.waitCanaries(len(before))
	s.waitComplete()
	s.assertReplaced(before)

	// Reverted: the pod goes back, the template stays, and an undo finds nothing to do.
	s.markAudit()
	s.guard("canary", "1", "canary-duration", "1h", "on-failure", "Revert")
	s.setResources("cpu=180m", "")
	canary = s.waitCanaries(1)[0]
	s.waitCondition("Progressing", "canary of ")
	s.waitPod(canary, "to have the size", func(pod corev1.Pod) bool {
		return cpuOf(*pod.Status.ContainerStatuses[0].Resources) == "180m"
	})
	time.Sleep(2 * time.Second)
	s.oomKill(canary, 2*time.Second) // if it is the same pod, one as long as the first would be nothing new
	s.waitCondition("Reverted", "was OOMKilled after 2s")
	must.Equal(t, cpuOf(s.pods()[canary].Spec.Containers[0].Resources), "150m", "cpu request of %s, as before", canary)
	if got := s.askedPods(); !slices.Equal(got, []string{canary}) || !policy.Recorded(s.get()) {
		t.Errorf("asked %v, recorded %t, want %s alone, and the record", got, policy.Recorded(s.get()), canary)
	}
	s.assertReplaced(before)
	s.comesBack("150m", true)
	s.patch(`{"spec": {"revisionHistoryLimit": 0}}`)
	s.comesBack("150m", false)
	n := len(only(s.writes(), "patch pods/resize"))
	s.setResources("cpu=150m", "")
	s.waitComplete()
	if got := len(only(s.writes(), "patch pods/resize")); got != n || n != 2 {
		t.Errorf("%d resizes, %d before the undo, want 2 of both", got, n)
	}
	before = s.uids()

	// Undone in the midst of a canary, which kubectl refuses for a Deployment.
	s.setResources("cpu=170m", "")
	s.waitCanaries(1)
	if ran := s.run("undo", s.ref); ran.code != 0 || !strings.Contains(ran.stdout, ": app: cpu request 170m→150m\nTo wait for it: kubectl wait ") {
		t.Fatalf("%+v", ran)
	}
	s.waitComplete()
	for name, pod := range s.pods() {
		must.Equal(t, cpuOf(pod.Spec.Containers[0].Resources), "150m", "cpu request of %s after the undo", name)
	}
	s.assertReplaced(before)

	// Released in the midst of a canary: no other pod gets its size, and it loses it.
	s.markAudit()
	s.setResources("cpu=190m", "")
	s.waitCanaries(1)
	if ran := s.run("status", s.ref); !strings.Contains(ran.stdout, "Canary: ") {
		t.Errorf("%+v", ran)
	}
	if ran := s.run("release", s.ref, "--yes"); ran.code != 0 || !strings.Contains(ran.stdout, "goes back to its template from before, because its canary has not proved the size") {
		t.Fatalf("%+v", ran)
	}
	s.waitFor("all pods to have the size from before", func(o W) bool {
		pods := slices.Collect(maps.Values(s.pods()))
		return !held(o) && !policy.Recorded(o) && !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return cpuOf(pod.Spec.Containers[0].Resources) != "150m" })
	})
	s.assertReplaced(before)
	s.restartedCanary()
}

// restartedCanary has one pod restarted for a size that it has to prove: what comes then has the one from before.
func (s *sandbox[W]) restartedCanary() {
	s.t.Helper()
	if s.kind == "DaemonSet" {
		return
	}
	s.guard("resource-resize-action", "Restart", "canary-duration", "manual")
	s.setResources("cpu=200m", "")
	having := func(cpu string) int {
		return build.Count(slices.Collect(maps.Values(s.pods())), func(pod corev1.Pod) bool {
			return cpuOf(pod.Spec.Containers[0].Resources) == cpu && podutils.IsPodReady(&pod)
		})
	}
	s.waitFor("one pod with the size", func(W) bool { return having("200m") == 1 && having("150m") == 2 })
	s.waitCondition("Progressing", "the others wait until it is promoted")
	s.waitFor("what makes pods to have the size from before", func(W) bool {
		replicaSets := must.Get(client.AppsV1().ReplicaSets(s.namespace).List(s.t.Context(), metav1.ListOptions{}))(s.t)
		statefulSets := must.Get(client.AppsV1().StatefulSets(s.namespace).List(s.t.Context(), metav1.ListOptions{}))(s.t)
		return !slices.ContainsFunc(replicaSets.Items, func(rs appsv1.ReplicaSet) bool {
			return *rs.Spec.Replicas > 0 && cpuOf(rs.Spec.Template.Spec.Containers[0].Resources) != "150m"
		}) && !slices.ContainsFunc(statefulSets.Items, func(set appsv1.StatefulSet) bool {
			return *set.Spec.UpdateStrategy.RollingUpdate.Partition < *set.Spec.Replicas // from the restart of the canary until its new pod is there
		})
	})
	s.kubectl("scale", s.ref, "--replicas=5")
	s.waitFor("five pods", func(W) bool { return having("200m")+having("150m") == 5 })
	if n := having("200m"); n != 1 {
		s.t.Errorf("%d pods have the size: %s", n, describe(s.get()))
	}
	if ran := s.run("promote", s.ref); ran.code != 0 {
		s.t.Fatalf("%+v", ran)
	}
	s.waitFor("others to follow", func(W) bool { return having("200m") > 1 }) // each proves its size for a minute
}
