//go:build integration

package integration

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

// class is an entry of the annotation: the size of the container app on nodes with the label size.
func class(label, size string) string {
	return fmt.Sprintf(`{"nodeSelector": {"size": %q}, "containers": {"app": {%s}}}`, label, size)
}

func ofCPU(cpu string) string { return fmt.Sprintf(`"requests": {"cpu": %q}`, cpu) }

func listOf(classes ...string) string { return "[" + strings.Join(classes, ",") + "]" }

// sizeLabels gives the nodes the label size, the i-th the i-th of these; none where that is empty.
func sizeLabels(labels ...string) func(i int) controlplane.Node {
	return func(i int) controlplane.Node { return sized(labels[i-1]) }
}

func sized(label string) controlplane.Node {
	node := controlplane.Node{CPU: "8", Memory: "16Gi"}
	if label != "" {
		node.Labels = map[string]string{"size": label}
	}
	return node
}

// classes writes the annotation; without any, it removes it.
func (d *daemonSet) classes(classes ...string) {
	d.t.Helper()
	annotation := api.NodeResourcesAnnotation + "="
	if len(classes) == 0 {
		annotation = api.NodeResourcesAnnotation + "-"
	} else {
		annotation += listOf(classes...)
	}
	d.kubectl("annotate", "--overwrite", d.ref, annotation)
}

// waitSizes waits until the pods on the nodes have these cpu requests, in spec and status.
func (d *daemonSet) waitSizes(cpus ...string) {
	d.t.Helper()
	for i, cpu := range cpus {
		d.waitOn(i+1, "to have cpu "+cpu, func(pod corev1.Pod) bool { return hasSize(pod, cpu) })
	}
}

// assertUntouched checks that the pods are those of before, and none has restarted.
func (d *daemonSet) assertUntouched(before map[string]string) {
	d.t.Helper()
	if got := d.containers(); !maps.Equal(got, before) {
		d.t.Errorf("the containers are %v, want %v", got, before)
	}
}

// containers are the IDs of the pods' containers, and how often they have restarted, by the pod.
func (d *daemonSet) containers() map[string]string {
	d.t.Helper()
	found := map[string]string{}
	for name, pod := range d.pods() {
		for _, s := range pod.Status.ContainerStatuses {
			found[name] += fmt.Sprintf("%s %s %d ", pod.UID, s.ContainerID, s.RestartCount)
		}
	}
	return found
}

// ofClasses is what the condition says where so many pods have the size of their node's class.
func ofClasses(d *appsv1.DaemonSet, n int) string {
	have := fmt.Sprintf("; %d of them have the size of their node's class", n)
	if n == 1 {
		have = "; 1 of them has the size of its node's class"
	}
	return ofGeneration(d) + have
}

// TestClasses: three classes of nodes have three sizes after one annotation. A relabelled node
// changes its pod's size, a new node's pod is resized when it is bound, and without the
// annotation all have the template's size. No pod is restarted.
func TestClasses(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{Replicas: 5, Node: sizeLabels("small", "medium", "large", "", "large")})
	d.waitComplete()
	before := d.containers()
	d.markAudit()

	d.classes(class("small", ofCPU("50m")), class("medium", ofCPU("120m")), class("large", ofCPU("180m")), class("large", ofCPU("1m")))
	d.waitSizes("50m", "120m", "180m", "100m", "180m")
	d.waitSays(ofClasses(d.get(), 4))
	d.assertUntouched(before)

	d.kubectl("label", "--overwrite", "node", d.node(2), "size=large")
	d.waitSizes("50m", "180m", "180m", "100m", "180m")
	d.kubectl("label", "node", d.node(1), "size-")
	d.waitSizes("100m", "180m", "180m", "100m", "180m")
	d.waitSays(ofClasses(d.get(), 3))
	d.assertUntouched(before)

	d.addNode(6, sized("small"))
	d.waitOn(6, "to be small", func(pod corev1.Pod) bool { return hasSize(pod, "50m") })
	d.waitSays(ofClasses(d.get(), 4))
	before = d.containers()

	d.classes(class("large", `"requests": {"cpu": "190m"}, "limits": {"memory": "300Mi"}`))
	d.waitSizes("100m", "190m", "190m", "100m", "190m", "100m")
	d.classes()
	d.waitSizes("100m", "100m", "100m", "100m", "100m", "100m")
	d.waitSays(ofGeneration(d.get()))
	d.assertUntouched(before)
	d.assertSettled("100m")
	if writes := d.writes(); len(only(writes, "delete pods"))+len(only(writes, "patch pods")) > 0 {
		t.Errorf("writes %v, want no pod deleted or relabelled", writes)
	}
	if started := d.events("RolloutStarted"); len(started) > 0 {
		t.Errorf("events say that a rollout has started: %v", started)
	}
	d.assertNoRefusals()
}
