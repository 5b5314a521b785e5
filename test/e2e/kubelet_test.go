//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/realnode"
)

// fillNode creates a pod that leaves only so much cpu of the node.
func (a *app) fillNode(left string) {
	a.t.Helper()
	a.alone()
	free := a.freeCPU()
	free.Sub(resource.MustParse(left))
	filler := fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: filler}
spec:
  automountServiceAccountToken: false
  containers: [{name: filler, image: "inplace-rollout-pause:test", resources: {requests: {cpu: %s}}}]
`, free.String())
	a.apply(filler)
	a.kubectl("wait", "--for=condition=Ready", "pod/filler", "--timeout="+patience.String())
}

// alone waits until the pods of earlier tests have given their room back.
func (a *app) alone() {
	a.t.Helper()
	a.eventually("the pods of other tests to be gone", func() (bool, string) {
		pods := must.Get(client.CoreV1().Pods("").List(a.t.Context(), metav1.ListOptions{}))(a.t)
		others := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.Namespace == a.namespace || p.Namespace == controller.Namespace })
		return len(others) == 0, fmt.Sprint(names(others))
	})
}

// freeCPU is what pods may still request of the node.
func (a *app) freeCPU() resource.Quantity {
	a.t.Helper()
	n := must.Get(client.CoreV1().Nodes().Get(a.t.Context(), realnode.Name, metav1.GetOptions{}))(a.t)
	free := n.Status.Allocatable.Cpu().DeepCopy()
	pods := must.Get(client.CoreV1().Pods("").List(a.t.Context(), metav1.ListOptions{}))(a.t)
	for _, pod := range pods.Items {
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		requests := resourcehelper.PodRequests(&pod, resourcehelper.PodResourcesOptions{})
		free.Sub(*requests.Cpu())
	}
	return free
}

// giveOutProcessors gives processors out one by one until the test ends: then no
// Guaranteed pod can be resized.
func giveOutProcessors(t *testing.T) {
	t.Helper()
	err := node.RestartKubelet(t.Context(), func(c realnode.KubeletConfig) {
		c["cpuManagerPolicy"] = "static"
		c["reservedSystemCPUs"] = "0"
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.RestartKubelet(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestRestartContainer has containers that say that they need a restart to use
// other memory: the kubelet restarts them in place, one pod after the other. Other cpu needs none.
func TestRestartContainer(t *testing.T) {
	t.Parallel()
	a := newApp(t, options{Container: "resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]"})
	before := a.pods()
	a.setResources("cpu=60m,memory=32Mi", "cpu=120m,memory=64Mi")
	a.complete()
	a.assertKept(before, 0)
	a.assertMoved()

	a.setResources("cpu=60m,memory=48Mi", "cpu=120m,memory=96Mi")
	a.complete()
	a.assertKept(before, 1)
	a.assertMoved()
	a.event("Pod", "Killing", "requires restart")
	a.assertOneByOne()
}

// assertOneByOne checks that each pod's container was started after the one of
// the next higher ordinal was Ready again.
func (a *app) assertOneByOne() {
	a.t.Helper()
	pods := a.pods()
	slices.Reverse(pods)
	for i := range pods[1:] {
		readied, began := readySince(&pods[i]), appOf(&pods[i+1]).State.Running.StartedAt
		if began.Time.Before(readied.Time) { // both are whole seconds
			a.t.Errorf("%s was restarted at %s, but %s was Ready only at %s", pods[i+1].Name, began, pods[i].Name, readied)
		}
	}
}

func readySince(pod *corev1.Pod) metav1.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime
		}
	}
	return metav1.Time{}
}

// TestShrinkBelowUse takes memory away that a program uses: the kubelet refuses to,
// we tell of it, and when the program has let go of it, it happens.
func TestShrinkBelowUse(t *testing.T) {
	t.Parallel()
	a := newApp(t, options{Replicas: 1, Resources: "{requests: {cpu: 40m, memory: 32Mi}, limits: {cpu: 80m, memory: 128Mi}}"})
	before := a.pods()
	hold(t, &before[0], 80<<20)

	a.setResources("cpu=40m,memory=32Mi", "cpu=80m,memory=64Mi")
	a.podCondition("web-0", corev1.PodResizeInProgress, corev1.PodReasonError)
	a.condition(judge.ReasonResizeError, "web-0")
	a.event("Pod", "ResizeError", "web-0: ")
	a.event("StatefulSet", judge.EventResizeError, "web-0")
	a.assertCgroup(&before[0], before[0].Spec.Containers[0].Resources)

	hold(t, &before[0], 0)
	a.complete()
	a.assertKept(before, 0)
	a.assertMoved()
}
