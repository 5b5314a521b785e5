//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
)

// TestDeferredTooLong waits for room only as long as the workload says. Then the pod is restarted, since the scheduler has room for
// it: the kubelet preempts nobody for a resize, the scheduler does for a new pod. Where it has none is in test/integration. It
// runs alone, because it fills the node.
func TestDeferredTooLong(t *testing.T) {
	a := newApp(t, options{
		Replicas: 1, Annotations: api.DeferredTimeoutAnnotation + ": 5s", Pod: "priorityClassName: important",
		Around: "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: important}, value: 1000}",
	})
	before := a.pods()
	a.fillNode("30m")
	a.setResources("cpu=150m,memory=32Mi", "cpu=300m,memory=64Mi")
	a.event("Pod", "ResizeDeferred", "web-0: ") // the kubelet's
	a.event("StatefulSet", judge.EventDeferred, "web-0")
	a.event("StatefulSet", judge.EventHandedOver, "for more than 5s") // its only pod is left to the built-in controller
	a.complete()
	a.assertMoved()
	a.assertRestarted(before, "web-0")
}

// assertRestarted checks that the named pods, and no others, are new, and that none
// was restarted twice.
func (a *app) assertRestarted(before []corev1.Pod, want ...string) {
	a.t.Helper()
	var replaced []string
	for i, pod := range a.pods() {
		if pod.UID != before[i].UID {
			replaced = append(replaced, pod.Name)
		}
	}
	if !slices.Equal(replaced, want) {
		a.t.Errorf("replaced %v, want %v", replaced, want)
	}
	for _, name := range want {
		// Events come after what they tell of.
		a.eventually(name+" to have started twice", func() (bool, string) { n := a.started(name); return n >= 2, fmt.Sprint(n) })
		if n := a.started(name); n != 2 {
			a.t.Errorf("%s has been created %d times, want 2", name, n)
		}
	}
}

// started is how many pods of a name have started a container.
func (a *app) started(name string) int {
	a.t.Helper()
	list, err := client.CoreV1().Events(a.namespace).List(a.t.Context(), metav1.ListOptions{FieldSelector: "reason=Started,involvedObject.name=" + name})
	if err != nil {
		a.t.Fatal(err)
	}
	uids := map[string]bool{}
	for _, e := range list.Items {
		uids[string(e.InvolvedObject.UID)] = true
	}
	return len(uids)
}

// TestOOMLoop cures a program that is killed for its memory again and again: the new
// size is what it needs to become Ready, so nobody waits for it to be Ready first.
func TestOOMLoop(t *testing.T) {
	t.Parallel()
	a := createApp(t, options{Spec: "podManagementPolicy: Parallel", Container: `args: ["--memory=73400320", "--on=web-0"]`})
	a.eventually("the others to be Ready, and web-0 to be killed again and again", func() (bool, string) {
		pods := a.pods()
		if len(pods) != 3 {
			return false, fmt.Sprint(names(pods))
		}
		terminated := appOf(&pods[0]).LastTerminationState.Terminated
		looping := appOf(&pods[0]).RestartCount >= 2 && terminated != nil && terminated.Reason == "OOMKilled"
		return looping && appOf(&pods[1]).Ready && appOf(&pods[2]).Ready, fmt.Sprint(pods[0].Status.ContainerStatuses)
	})
	before := a.pods()
	a.setResources(largeRequests, largeLimits)
	a.complete()
	a.assertUIDs(before)
	a.assertMoved()
	after := a.pods()
	for i := range after[1:] {
		if appOf(&after[i+1]).RestartCount != 0 {
			t.Errorf("%s has been restarted", after[i+1].Name)
		}
	}
	if !appOf(&after[0]).Ready {
		t.Error("web-0 is not Ready")
	}
	a.event("Pod", "ResizeCompleted", "web-0: ")
}
