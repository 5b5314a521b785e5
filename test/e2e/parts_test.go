//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
)

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
		want := parse(t, size)
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
		want := parse(t, next[1])
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
		if pod.Status.QOSClass != corev1.PodQOSGuaranteed {
			t.Errorf("%s is %s", pod.Name, pod.Status.QOSClass)
		}
	}
	a.event("StatefulSet", judge.EventHandedOver, "the QoS class would change from Burstable to Guaranteed")
}
