//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/test/build"
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
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, node.RestartKubelet(context.Background())) })
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

// TestInitContainers resizes a sidecar, which runs, and an init container, which has
// long ended and would be larger the next time.
func TestInitContainers(t *testing.T) {
	t.Parallel()
	with := func(resources string) options {
		return options{Replicas: 2, Resources: resources, Pod: fmt.Sprintf(`
initContainers:
- {name: setup, image: "inplace-rollout-counter:test", args: [--help], resources: %[1]s}
- {name: side, image: "inplace-rollout-counter:test", args: ["--address=:8081"], restartPolicy: Always, resources: %[1]s}`, resources)}
	}
	a := newApp(t, with(small))
	before := a.pods()
	for _, size := range []string{large, small} {
		a.apply(manifest(t, with(size)))
		a.complete()
		a.assertMoved()
		a.assertKept(before, 0)
		want := *build.Parsed[corev1.ResourceRequirements](t, size)
		for i, pod := range a.pods() {
			a.assertCgroupOf(&pod, "side", want)
			setup, side := pod.Status.InitContainerStatuses[0], pod.Status.InitContainerStatuses[1]
			if side.Resources == nil || !apiequality.Semantic.DeepEqual(*side.Resources, want) {
				t.Errorf("%s: the sidecar has %v, want %v", pod.Name, side.Resources, want)
			}
			if got := pod.Spec.InitContainers[0].Resources; !apiequality.Semantic.DeepEqual(got, want) {
				t.Errorf("%s: the init container has %v, want %v", pod.Name, got, want)
			}
			if old := before[i].Status.InitContainerStatuses; setup.ContainerID != old[0].ContainerID || side.ContainerID != old[1].ContainerID {
				t.Errorf("%s: an init container has run again", pod.Name)
			}
		}
	}
	a.podEvents("ResizeCompleted")
	a.event("StatefulSet", judge.EventStarted, "side: cpu request 40m→60m")
}

// TestPodLevel resizes pods as a whole, with their containers and without. The kernel rounds a memory limit down to whole pages.
func TestPodLevel(t *testing.T) {
	t.Parallel()
	with := func(resources, whole string) options {
		return options{Replicas: 2, Resources: resources, Pod: "resources: " + whole}
	}
	const (
		wide  = "{requests: {cpu: 70m, memory: 64Mi}, limits: {cpu: 140m, memory: 128Mi}}"
		wider = "{requests: {cpu: 80m, memory: 80Mi}, limits: {cpu: 160m, memory: 160M}}"
	)
	a := newApp(t, with(small, wide))
	before := a.pods()
	for _, next := range [][2]string{{small, wider}, {large, wider}, {small, wide}} {
		a.apply(manifest(t, with(next[0], next[1])))
		a.complete()
		a.assertMoved()
		a.assertKept(before, 0)
		want := *build.Parsed[corev1.ResourceRequirements](t, next[1])
		want.Limits[corev1.ResourceMemory] = *resource.NewQuantity(want.Limits.Memory().Value()/int64(os.Getpagesize())*int64(os.Getpagesize()), resource.BinarySI)
		for _, pod := range a.pods() {
			a.assertLimits(pod.Name, node.PodCgroup(&pod), want)
			if got := pod.Status.Resources; got == nil || !apiequality.Semantic.DeepEqual(*got, want) {
				t.Errorf("%s: the pod has %v, want %v", pod.Name, got, want)
			}
			if got := pod.Status.AllocatedResources; !apiequality.Semantic.DeepEqual(got, want.Requests) {
				t.Errorf("%s: the pod is allocated %v, want %v", pod.Name, got, want.Requests)
			}
		}
	}
	a.podEvents("ResizeCompleted")
}

// TestQOSClass asks for a size of another QoS class, which no running pod can have: it is restarted.
func TestQOSClass(t *testing.T) {
	t.Parallel()
	a := newApp(t, options{Replicas: 2})
	before := a.pods()
	a.setResources(smallLimits, smallLimits)
	a.complete()
	a.assertMoved()
	a.assertRestarted(before, "web-0", "web-1")
	for _, pod := range a.pods() {
		must.Equal(t, pod.Status.QOSClass, corev1.PodQOSGuaranteed, "QoS class of %s", pod.Name)
	}
	a.event("StatefulSet", judge.EventHandedOver, "the QoS class would change from Burstable to Guaranteed")
}
