//go:build integration

package integration

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// ofGeneration is what the condition says of pods that are of the newest template.
func ofGeneration(d *appsv1.DaemonSet) string {
	return "all pods are of template generation " + d.Annotations[appsv1.DeprecatedTemplateGeneration]
}

func TestDaemonSet(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{Replicas: 5})
	before := d.uids()
	d.waitComplete()
	d.markAudit()

	d.setResources("cpu=150m,memory=150Mi", "cpu=300m,memory=300Mi")
	d.waitComplete()
	d.rolloutStatus().wait(t)

	d.assertMoved(before, "150m")
	d.waitSays(ofGeneration(d.get()))
	if said := d.get().Annotations; said[api.SaidOfAnnotation] != "Over;template generation "+said[appsv1.DeprecatedTemplateGeneration]+";" {
		t.Errorf("it is said of %v", said)
	}
	if created, deleted := d.podsWritten("create"), d.podsWritten("delete"); len(created)+len(deleted) > 0 {
		t.Errorf("created %v and deleted %v, want no pod touched", created, deleted)
	}
	must.EqualLists(t, d.history(), []int{1, 2}, "the history")
	var want []string
	for i := range 5 {
		want = append(want, d.on(i+1).Name)
	}
	must.EqualLists(t, only(d.writes(), "patch pods/resize"), want, "the order of resizes")
	d.assertFew(d.writes(), 2, 6)
	d.waitEvent("RolloutStarted", "app: cpu request 100m→150m, app: cpu limit 200m→300m, app: memory request 100Mi→150Mi, app: memory limit 200Mi→300Mi")
	d.waitEvent("PodResized", want[0]+": resized in place")
	d.waitEvent("RolloutComplete", "all pods")

	d.addNode(6, controlplane.Node{})
	d.waitAvailable(6)
	d.assertMoved(before, "150m")
	if resizes := only(d.writes(), "patch pods/resize"); len(resizes) != 5 {
		t.Errorf("resized %v, want the pod of the new node born at the new size", resizes)
	}
}

// TestDaemonSetSurges: with maxSurge a restart brings the new pod first, which only the DaemonSet
// controller can. What can be resized is.
func TestDaemonSetSurges(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{Replicas: 3, Spec: surging})
	before, stuck := d.uids(), d.on(2).Name
	d.annotatePod(stuck, simInfeasible)
	log := d.logPods()
	d.edit("150m")
	d.assertSettled("150m")
	d.assertReplaced(before, stuck)
	log.assertReady(3)
	log.assertMost(4)
	d.waitEvent("HandedOver", "")
	must.EqualLists(t, only(d.writes(), "delete pods"), nil, "what the controller deleted")
}

// surging is the strategy of a DaemonSet that brings the new pod first.
const surging = "updateStrategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}"

// TestDaemonSetEditDuringASurge: the extra pods would go if the edit were held. So it is not, and
// the built-in rollout goes on; nothing is lost.
func TestDaemonSetEditDuringASurge(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{Replicas: 3, Spec: surging})
	d.waitComplete()
	log := d.logPods()
	time.Sleep(time.Second) // of two pods that are out of date the DaemonSet controller keeps the older one, and times have no fractions
	d.patch(notReady)
	d.waitFor("the surge", func(o *appsv1.DaemonSet) bool { return observed(o) && len(d.pods()) == 4 })
	d.waitImage("app:2", 1)
	must.Contain(t, d.warnings("set", "resources", d.ref, "--requests=cpu=150m"), "the previous rollout with maxSurge is not over", "after the edit")
	if held(d.get()) {
		t.Error("the edit is held, and the surge is lost")
	}
	d.waitEvent("HandedOver", "maxSurge")
	d.readyUntilComplete(rolledOutDaemons)
	d.assertSettled("150m")
	log.assertReady(3)
	d.edit("180m") // and the next edit is in place again
	before := d.uids()
	d.edit("150m")
	d.assertMoved(before, "150m")
}

// TestDaemonSetAdoptsPods: a set that is made again begins at template generation 1, so that pods of
// before count as updated by their label, whatever their size is.
func TestDaemonSetAdoptsPods(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{})
	before := d.uids()
	d.kubectl("delete", d.ref, "--cascade=orphan", "--timeout="+patience.String())
	d.apply(manifest(t, d.namespace, options{Kind: "DaemonSet", Resources: largerThanBase}))
	for name, pod := range d.pods() {
		must.Equal(t, pod.Labels["pod-template-generation"], "1", "%s has the labels %v; with others this shows nothing", name, pod.Labels)
	}
	d.waitComplete()
	d.assertMoved(before, "150m")
}

// class is an entry of the annotation: the size of the container app on nodes with the label size.
func class(label, size string) string {
	return fmt.Sprintf(`{"nodeSelector": {"size": %q}, "containers": {"app": {%s}}}`, label, size)
}

func ofCPU(cpu string) string { return fmt.Sprintf(`"requests": {"cpu": %q}`, cpu) }

// sized is a node with this label size; without one, if it is empty.
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
		annotation += "[" + strings.Join(classes, ",") + "]"
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
	d := newDaemonSet(t, options{Replicas: 5, Node: func(i int) controlplane.Node { return sized([]string{"small", "medium", "large", "", "large"}[i-1]) }})
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
	must.EqualLists(t, d.events("RolloutStarted"), nil, "events of a start")
	d.assertNoRefusals()
}
