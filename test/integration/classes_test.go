//go:build integration

package integration

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
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
func ofClasses(d *appsv1.DaemonSet, n, of int) string {
	have := fmt.Sprintf("; %d of them have the size of their node's class", n)
	if n == 1 {
		have = "; 1 of them has the size of its node's class"
	}
	return ofGeneration(d, of, of) + have
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
	d.waitSays(ofClasses(d.get(), 4, 5))
	d.assertUntouched(before)

	d.kubectl("label", "--overwrite", "node", d.node(2), "size=large")
	d.waitSizes("50m", "180m", "180m", "100m", "180m")
	d.kubectl("label", "node", d.node(1), "size-")
	d.waitSizes("100m", "180m", "180m", "100m", "180m")
	d.waitSays(ofClasses(d.get(), 3, 5))
	d.assertUntouched(before)

	d.addNode(6, sized("small"))
	d.waitOn(6, "to be small", func(pod corev1.Pod) bool { return hasSize(pod, "50m") })
	d.waitSays(ofClasses(d.get(), 4, 6))
	before = d.containers()

	d.classes(class("large", `"requests": {"cpu": "190m"}, "limits": {"memory": "300Mi"}`))
	d.waitSizes("100m", "190m", "190m", "100m", "190m", "100m")
	d.classes()
	d.waitSizes("100m", "100m", "100m", "100m", "100m", "100m")
	d.waitSays(ofGeneration(d.get(), 6, 6))
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

// TestClassesAndAnEdit: pods whose class has its own size for what is edited are only relabelled.
func TestClassesAndAnEdit(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{Replicas: 3, Node: sizeLabels("large", "", "small")})
	d.waitComplete()
	d.classes(class("large", ofCPU("180m")), class("small", ofCPU("50m")))
	d.waitSizes("180m", "100m", "50m")
	before := d.containers()
	d.markAudit()
	d.setResources("cpu=150m", "")
	d.waitFor("the edit to be rolled out", func(o *appsv1.DaemonSet) bool { return !held(o) && rolledOutDaemons(o) })
	d.waitSays(ofClasses(d.get(), 2, 3))
	d.waitSizes("180m", "150m", "50m")
	d.assertUntouched(before)
	writes := d.writes()
	if got, want := only(writes, "patch pods/resize"), []string{d.on(2).Name}; !slices.Equal(got, want) {
		t.Errorf("resized %v, want %v alone", got, want)
	}
	if got := only(writes, "patch pods"); len(got) != 3 {
		t.Errorf("relabelled %v, want all three pods", got)
	}

	d.kubectl("annotate", "--overwrite", "--all", "pods", "sim.inplace-rollout.io/resize-time=300ms")
	d.patch(`{"metadata": {"annotations": {"` + api.NodeResourcesAnnotation + `": ` + fmt.Sprintf("%q", listOf(class("small", ofCPU("60m")))) +
		`}}, "spec": {"template": {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "110m"}}}]}}}}`)
	d.waitSizes("110m", "110m", "60m")
	d.waitSays(ofClasses(d.get(), 1, 3))
	d.assertUntouched(before)
}

// TestClassesThatCannotBeHad: the pod keeps the template's size, the condition says why and where,
// and an edit of the template goes on beside that.
func TestClassesThatCannotBeHad(t *testing.T) {
	parallel(t)
	const void = "it keeps the template's size, because it cannot get the size of class size=large in place on node "
	for _, tt := range []struct {
		name, size, meta, spec, limits, kubelet string
		reason, says                            string
		small                                   string // cpu of the pod of the other class
	}{
		{name: "too large for the node", size: ofCPU("9") + `, "limits": {"cpu": "9"}`, reason: "Infeasible", says: "infeasible on node "},
		{name: "the kubelet refuses", size: ofCPU("150m"), kubelet: "infeasible", reason: "Infeasible", says: "infeasible on node "},
		{name: "deferred", size: ofCPU("150m"), kubelet: "deferred", reason: "Deferred", says: "deferred on node "},
		{name: "QoS class", size: `"requests": {"cpu": "200m", "memory": "200Mi"}`, reason: "Infeasible", says: void},
		{name: "RestartOnly", size: `"requests": {"memory": "150Mi"}`, meta: memoryRestarts(":increase"), reason: "Infeasible",
			says: ": memory of app: RestartOnly (annotation memory:increase)"},
		{name: "the action Restart", size: ofCPU("150m"), meta: `annotations: {inplace-rollout.io/resource-resize-action: Restart}`, reason: "Infeasible",
			says: ": the action is Restart", small: "100m"},
		{name: "OnDelete", size: `"requests": {"cpu": "200m", "memory": "200Mi"}`, spec: "updateStrategy: {type: OnDelete}", reason: "Infeasible", says: void},
		{name: "LimitRange", size: `"limits": {"cpu": "600m"}`, limits: `{type: Container, max: {cpu: 500m}}`, reason: "Infeasible", says: "must be at most 500m"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			parallel(t)
			d := newDaemonSet(t, options{Replicas: 3, Node: sizeLabels("large", "", "small"), Meta: tt.meta, Spec: tt.spec})
			if tt.limits != "" {
				d.apply(`{apiVersion: v1, kind: LimitRange, metadata: {name: limits}, spec: {limits: [` + tt.limits + `]}}`)
			}
			d.waitComplete()
			before := d.containers()
			if tt.name == "too large for the node" && !cp.AtLeast("1.36") {
				tt.kubelet = "infeasible" // see tooSmall
			}
			if tt.kubelet != "" {
				d.annotatePod(d.on(1).Name, "sim.inplace-rollout.io/resize="+tt.kubelet)
			}
			small, template := cmp.Or(tt.small, "50m"), "100m"
			d.classes(class("large", tt.size), class("small", ofCPU("50m")))
			d.waitCondition(tt.reason, tt.says)
			d.waitOn(3, "to have cpu "+small, func(pod corev1.Pod) bool { return hasSize(pod, small) })
			if small == "50m" {
				d.waitCondition(tt.reason, "; 1 of 2 has the size of its node's class; "+d.on(1).Name+": ")
			}
			switch {
			case tt.kubelet != "": // it would refuse the edit, too
				d.annotatePod(d.on(1).Name, simAccepted)
			case tt.name != "the action Restart":
				template = "110m"
				d.setResources("cpu=110m", "")
				d.waitOn(2, "to have the new size", func(pod corev1.Pod) bool { return hasSize(pod, template) })
				d.waitFor("the edit to be rolled out", func(o *appsv1.DaemonSet) bool { return !held(o) && rolledOutDaemons(o) })
				d.waitCondition(tt.reason, tt.says)
				d.waitEvent("RolloutStarted", "app: cpu request 100m→110m")
			}
			d.assertUntouched(before)
			d.classes()
			d.waitSizes(template, template, template)
			d.waitSays(ofGeneration(d.get(), 3, 3))
			d.assertUntouched(before)
		})
	}
}

// TestClassesVoidByAnEdit: an edit brings a limit that is below what a class requests. The pod
// gets the template's size with that edit, and its class's with the next.
func TestClassesVoidByAnEdit(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{Replicas: 2, Node: sizeLabels("large", "")})
	d.waitComplete()
	before := d.containers()
	d.classes(class("large", ofCPU("180m")))
	d.waitSizes("180m", "100m")
	d.setResources("", "cpu=150m")
	d.waitSizes("100m", "100m")
	d.waitCondition("Infeasible", d.node(1)+": app: the cpu request 180m is more than the limit 150m")
	d.setResources("cpu=110m", "cpu=190m")
	d.waitSizes("180m", "110m")
	d.waitSays(ofClasses(d.get(), 1, 2))
	d.assertUntouched(before)
}

// TestClassesAndAnAutoscaler: what somebody else has set stays, until the next edit.
func TestClassesAndAnAutoscaler(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{Replicas: 2, Node: sizeLabels("large", "")})
	d.waitComplete()
	d.byOthers(d.on(1).Name, "150Mi")
	d.classes(class("large", `"requests": {"cpu": "150m", "memory": "120Mi"}`))
	d.waitSizes("150m", "100m")
	memory := func(want string) func(corev1.Pod) bool {
		return func(pod corev1.Pod) bool { return pod.Spec.Containers[0].Resources.Requests.Memory().String() == want }
	}
	d.waitOn(1, "to keep the autoscaler's memory", memory("150Mi"))
	d.setResources("cpu=110m", "")
	d.waitSizes("150m", "110m")
	d.waitOn(1, "to have the memory of its class", memory("120Mi"))
}

// TestClassesOfARestartedController: a controller that is restarted finds what it has done, and
// goes on with what was written meanwhile.
func TestClassesOfARestartedController(t *testing.T) {
	d := newDaemonSet(t, options{Replicas: 3, Node: sizeLabels("large", "small", "")})
	process := d.ownController(t, controller.Options{})
	d.classes(class("large", ofCPU("150m")))
	d.waitSizes("150m", "100m", "100m")
	d.waitSays(ofClasses(d.get(), 1, 3))
	before := d.containers()
	process.Stop()
	d.markAudit()
	d.kubectl("label", "--overwrite", "node", d.node(1), "size=small")
	d.kubectl("label", "--overwrite", "node", d.node(2), "size=large")
	d.ownController(t, controller.Options{})
	d.waitSizes("100m", "150m", "100m")
	d.assertUntouched(before)
}
