//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// TestEviction has pods of a Deployment that their kubelet can never resize: each is
// evicted, when that may be. It runs alone, because it restarts the kubelet.
func TestEviction(t *testing.T) {
	giveOutProcessors(t)
	guaranteed := options{Kind: "Deployment", Replicas: 2, Resources: "{limits: {cpu: 80m, memory: 64Mi}}"}
	enlarge := func(a *app) {
		a.kubectl("set", "resources", a.ref, "--containers=app", "--limits=cpu=120m,memory=96Mi")
	}

	t.Run("PodDisruptionBudget", func(t *testing.T) {
		o := guaranteed
		o.Spec = "strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}"
		o.Around = `
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}`
		a := newApp(t, o)
		before := a.pods()
		enlarge(a)
		a.condition(rollout.ReasonDisruptionBudget, "not evicted yet")
		a.event("Deployment", rollout.EventDisruptionBudget, "")
		a.tell()
		a.assertKept(before, 0)
		for _, pod := range before {
			a.podCondition(pod.Name, corev1.PodResizePending, corev1.PodReasonInfeasible)
			a.assertCgroup(&pod, parse(t, "{requests: {cpu: 80m, memory: 64Mi}, limits: {cpu: 80m, memory: 64Mi}}"))
		}

		census := a.census(before, 0)
		a.kubectl("patch", "poddisruptionbudget/web", "--type=merge", "--patch", `{"spec":{"minAvailable":1}}`)
		freed := time.Now()
		// A write of the kubelet may break an eviction off that the budget has counted already:
		// its controller waits for the pod to go for two minutes (DeletionTimeout).
		a.completeWithin(patience + 2*time.Minute)
		t.Logf("complete %s after the budget was relaxed", time.Since(freed).Round(10*time.Millisecond))
		a.assertEnlarged(before)
		census.assert(1, 2)
		a.tell()
	})

	t.Run("maxUnavailable 0", func(t *testing.T) {
		o := guaranteed
		o.Spec = "{minReadySeconds: 2, strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}}"
		a := newApp(t, o)
		before := a.pods()
		census := a.census(before, 2)
		enlarge(a)
		a.complete()
		a.assertEnlarged(before)
		census.assert(2, 3)
		a.tell()
		t.Log("available, of pods: " + census.String())
	})
}

// assertEnlarged checks that all pods have been replaced by larger ones.
func (a *app) assertEnlarged(before []corev1.Pod) {
	a.t.Helper()
	after := a.pods()
	if len(after) != len(before) {
		a.t.Errorf("pods %v, before %v", names(after), names(before))
	}
	for _, pod := range after {
		if slices.ContainsFunc(before, func(old corev1.Pod) bool { return old.UID == pod.UID }) {
			a.t.Errorf("%s has not been replaced", pod.Name)
		}
		a.assertSize(&pod, parse(a.t, "{requests: {cpu: 120m, memory: 96Mi}, limits: {cpu: 120m, memory: 96Mi}}"))
	}
	if w := a.get(); w.builtIn != "" {
		a.t.Errorf("the built-in controller is not done: %s", w.builtIn)
	}
}

// census counts the app's pods, and those of them that are available, at every change.
type census struct {
	t               *testing.T
	minReadySeconds int32

	mu     sync.Mutex
	pods   map[types.UID]*corev1.Pod
	counts [][2]int // available and all that are not about to go
}

// census begins with pods that there are, and ends with the test.
func (a *app) census(before []corev1.Pod, minReadySeconds int32) *census {
	a.t.Helper()
	c := &census{t: a.t, minReadySeconds: minReadySeconds, pods: map[types.UID]*corev1.Pod{}}
	for _, pod := range before {
		c.pods[pod.UID] = &pod
	}
	changes, err := client.CoreV1().Pods(a.namespace).Watch(a.t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(changes.Stop)
	go func() {
		for event := range changes.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok {
				c.count(pod, event.Type == watch.Deleted)
			}
		}
	}()
	return c
}

func (c *census) count(pod *corev1.Pod, gone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.pods, pod.UID); !gone && pod.DeletionTimestamp == nil {
		c.pods[pod.UID] = pod
	}
	available := 0
	for _, pod := range c.pods {
		if podutils.IsPodAvailable(pod, c.minReadySeconds, metav1.Now()) {
			available++
		}
	}
	if now := [2]int{available, len(c.pods)}; len(c.counts) == 0 || c.counts[len(c.counts)-1] != now {
		c.counts = append(c.counts, now)
	}
}

// assert checks the fewest that were available at any time, and the most that there were.
func (c *census) assert(fewest, most int) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	gotFewest, gotMost := most, 0
	for _, counts := range c.counts {
		gotFewest, gotMost = min(gotFewest, counts[0]), max(gotMost, counts[1])
	}
	if gotFewest != fewest || gotMost != most {
		c.t.Errorf("at least %d pods were available, want %d; at most %d existed, want %d", gotFewest, fewest, gotMost, most)
	}
}

func (c *census) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for _, counts := range c.counts {
		all = append(all, fmt.Sprintf("%d of %d", counts[0], counts[1]))
	}
	return strings.Join(all, ", ")
}
