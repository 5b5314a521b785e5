//go:build integration

package integration

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/podchecks"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

// TestGuardedRollouts: a size with which a container is OOMKilled stops at the first pod, in every kind. The pod goes
// back if that is asked for, and the others are never touched.
func TestGuardedRollouts(t *testing.T) {
	parallel(t)
	t.Run("StatefulSet", func(t *testing.T) {
		parallel(t)
		testGuarded(t, newWorkload(t, options{}).sandbox)
	})
	t.Run("Deployment", func(t *testing.T) {
		parallel(t)
		testGuarded(t, newDeployment(t, options{}).sandbox)
	})
	t.Run("DaemonSet", func(t *testing.T) {
		parallel(t)
		testGuarded(t, newDaemonSet(t, options{}).sandbox)
	})
}

// guard sets the annotations of a guarded rollout.
func (s *sandbox[W]) guard(pairs ...string) {
	s.t.Helper()
	var said []string
	for i := 0; i < len(pairs); i += 2 {
		said = append(said, fmt.Sprintf("%q: %q", "inplace-rollout.io/"+pairs[i], pairs[i+1]))
	}
	s.patch(`{"metadata": {"annotations": {` + strings.Join(said, ", ") + `}}}`)
}

// waitCanaries waits until so many pods have been asked for a size, and returns them.
func (s *sandbox[W]) waitCanaries(n int) []string {
	s.t.Helper()
	s.waitFor(fmt.Sprintf("%d pods to be asked", n), func(W) bool { return len(s.askedPods()) >= n })
	return s.askedPods()
}

// askedPods are the pods that we have asked for a size.
func (s *sandbox[W]) askedPods() []string {
	return slices.Compact(slices.Sorted(slices.Values(only(s.writes(), "patch pods/resize"))))
}

// oomKill plays that a container has reached its memory limit after it has run for so long.
func (s *sandbox[W]) oomKill(name string, ran time.Duration) {
	s.t.Helper()
	pod := s.pods()[name]
	controlplane.OOMKill(&pod.Status.ContainerStatuses[0], pod.UID, ran)
	if _, err := client.CoreV1().Pods(s.namespace).UpdateStatus(s.t.Context(), &pod, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func testGuarded[W metav1.Object](t *testing.T, s *sandbox[W]) {
	t.Helper()
	s.waitComplete()
	before := s.uids()
	time.Sleep(time.Second) // the API server's times have no fractions: the pods are older than the edits

	// Held: one pod is asked, and no other, also by a controller that remembers nothing.
	s.guard("canary", "1", "canary-duration", "1h")
	s.setResources("cpu=150m", "")
	canary := s.waitCanaries(1)[0]
	s.waitPod(canary, "to have the size", func(pod corev1.Pod) bool {
		return cpuOf(*pod.Status.ContainerStatuses[0].Resources) == "150m"
	})
	s.waitCondition("Progressing", "canary of ")
	time.Sleep(2 * time.Second) // its resize is seen done
	s.oomKill(canary, 10*time.Second)
	s.waitCondition("ResizeFailed", canary+" failed: container ")
	if got := s.askedPods(); len(got) != 1 || !held(s.get()) {
		t.Errorf("asked %v, held %t, want one pod and the hold", got, held(s.get()))
	}
	if ran := s.run("promote", s.ref); ran.code == 0 || !strings.Contains(ran.stderr, "a pod has failed") {
		t.Errorf("promoting what was stopped: %+v", ran)
	}

	// Tried again, and promoted.
	if ran := s.run("retry", s.ref); ran.code != 0 {
		t.Fatalf("%+v", ran)
	}
	s.waitCondition("Progressing", "canary of ")
	if ran := s.run("promote", s.ref); ran.code != 0 || !strings.Contains(ran.stdout, "the other pods follow") {
		t.Fatalf("%+v", ran)
	}
	s.waitCanaries(len(before))
	s.guard("canary-duration", "1s")
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
	if got := cpuOf(s.pods()[canary].Spec.Containers[0].Resources); got != "150m" {
		t.Errorf("%s has %s, want the size from before", canary, got)
	}
	if got := s.askedPods(); !slices.Equal(got, []string{canary}) || !held(s.get()) {
		t.Errorf("asked %v, held %t, want %s alone, and the hold", got, held(s.get()), canary)
	}
	n := len(only(s.writes(), "patch pods/resize"))
	s.setResources("cpu=150m", "")
	s.waitComplete()
	if got := len(only(s.writes(), "patch pods/resize")); got != n || n != 2 {
		t.Errorf("%d resizes, %d before the undo, want 2 of both", got, n)
	}
	s.assertReplaced(before)
}

// TestGuardSurvives: the controller is killed while a canary is under way, and after it has failed.
// Nothing goes on that had stopped.
func TestGuardSurvives(t *testing.T) {
	w := newWorkload(t, options{})
	process := w.ownController(t, controller.Options{})
	w.waitComplete()
	w.guard("canary", "1", "canary-duration", "4s", "retry", "before")
	w.setResources("cpu=150m", "")
	w.waitCanaries(1)
	process.Kill()
	process = w.ownController(t, controller.Options{})
	w.waitCondition("Progressing", "waiting until it has been Ready at its new size for 4s")
	w.oomKill("web-2", 10*time.Second)
	w.waitCondition("ResizeFailed", "web-2 failed")
	process.Kill()
	process = w.ownController(t, controller.Options{})
	time.Sleep(8 * time.Second) // it has been well for twice as long as a canary has to
	if got := w.askedPods(); !slices.Equal(got, []string{"web-2"}) {
		t.Errorf("asked %v, want web-2 alone", got)
	}
	_, reason, message := complete(w.get())
	if reason != "ResizeFailed" {
		t.Errorf("after all: %s: %s", reason, message)
	}

	process.Kill()
	time.Sleep(2 * time.Second) // the API server's times have no fractions
	if ran := w.run("retry", w.ref); ran.code != 0 {
		t.Fatalf("retry: %+v", ran)
	}
	w.ownController(t, controller.Options{})
	w.waitComplete() // what was tried again while no controller was there goes on
}

// TestGuardChecks: a check that fails takes the size back. Prometheus is played: what a real one answers to the checks that are
// shipped is tried in test/prometheus. It alone proves the way from the annotation to Prometheus and back; a first answer
// takes half a minute to count.
func TestGuardChecks(t *testing.T) {
	w := newWorkload(t, options{})
	prometheus := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		answer.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(answer, `{"status": "success", "data": {"resultType": "vector", "result": [{"metric": {"namespace": %q, "pod": "web-2", "container": "app"}, "value": [%d, "99"]}]}}`,
			w.namespace, time.Now().Unix())
	}))
	defer prometheus.Close()
	configMaps := client.CoreV1().ConfigMaps(controller.Namespace)
	shipped, err := configMaps.Get(t.Context(), podchecks.ConfigMapName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	more := shipped.DeepCopy()
	more.Data["too-busy"] = "{message: is busy for $value, unit: '%', above: 50, window: 1s, query: 'busy{namespace=~$namespace, pod=~$pod, container=~$container}'}"
	if _, err := configMaps.Update(t.Context(), more, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := configMaps.Patch(context.Background(), podchecks.ConfigMapName, types.MergePatchType, []byte(`{"data": {"too-busy": null}}`), metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	})
	ownController(t, controller.Options{Args: []string{"--checks-prometheus=" + prometheus.URL}})
	w.waitComplete()
	before := w.uids()
	w.guard("canary", "1", "canary-duration", "1s", "checks", "too-busy", "on-failure", "Revert")
	w.setResources("cpu=150m", "")
	w.waitCondition("Reverted", "web-2 failed the check too-busy: is busy for 99 %, more than 50 %")
	if got := w.askedPods(); !slices.Equal(got, []string{"web-2"}) {
		t.Errorf("asked %v, want web-2 alone", got)
	}
	w.assertReplaced(before)
}

// TestGuardAndDeadline: the canary, and the others after it, may take longer to prove their size than a rollout may not move. What
// has failed does not move, and whoever waits is told so.
func TestGuardAndDeadline(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Spec: "progressDeadlineSeconds: 12"})
	d.waitComplete()
	d.guard("canary", "1", "canary-duration", "18s")
	d.setResources("cpu=150m", "")
	if err := d.try(t, "rollout", "status", d.ref, "--timeout=2m"); err != nil {
		t.Errorf("kubectl rollout status: %v", err)
	}
	d.waitComplete()
	d.guard("canary", "1", "canary-duration", "1h")
	d.setResources("cpu=180m", "")
	canary := d.waitCanaries(2)
	d.waitCondition("Progressing", "waiting until it has been Ready at its new size for 1h")
	for _, name := range canary {
		if cpuOf(d.pods()[name].Spec.Containers[0].Resources) == "180m" {
			d.oomKill(name, 10*time.Second)
		}
	}
	if err := d.try(t, "rollout", "status", d.ref, "--timeout=2m"); !strings.Contains(said(err), "exceeded its progress deadline") {
		t.Errorf("kubectl rollout status: %v", err)
	}
	d.waitCondition("ResizeFailed", "was OOMKilled")
}

// TestGuardAndUndo: kubectl rollout undo takes the annotations of a Deployment from the ReplicaSet, which is from before it was guarded.
// The undo is guarded all the same.
func TestGuardAndUndo(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{})
	d.waitComplete()
	d.setResources("cpu=150m", "")
	d.waitComplete()
	d.guard("canary", "1", "canary-duration", "1h", "on-failure", "Revert")
	d.markAudit()
	d.kubectl("rollout", "undo", d.ref)
	d.waitCondition("Progressing", "waiting until it has been Ready at its new size for 1h")
	if got := d.askedPods(); len(got) != 1 {
		t.Errorf("asked %v, want one pod", got)
	}
	if got := d.get().Annotations["inplace-rollout.io/on-failure"]; got != "Revert" {
		t.Errorf("on-failure is %q after the undo", got)
	}
}
