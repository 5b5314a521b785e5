//go:build integration

package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

// ofGeneration is what the condition says of pods that are of the newest template.
func ofGeneration(d *appsv1.DaemonSet, n, of int) string {
	return fmt.Sprintf("%d of %d pods are of template generation %s", n, of, d.Annotations[appsv1.DeprecatedTemplateGeneration])
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
	d.waitSays(ofGeneration(d.get(), 5, 5))
	if created, deleted := d.podsWritten("create"), d.podsWritten("delete"); len(created)+len(deleted) > 0 {
		t.Errorf("created %v and deleted %v, want no pod touched", created, deleted)
	}
	if got := d.history(); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("the history lists %v, want two revisions", got)
	}
	var want []string
	for i := range 5 {
		want = append(want, d.on(i+1).Name)
	}
	if got := only(d.writes(), "patch pods/resize"); !slices.Equal(got, want) {
		t.Errorf("resized in the order %v, want %v", got, want)
	}
	d.assertFewWrites(2, 6)
	d.waitEvent("RolloutStarted", "app: cpu request 100m→150m, app: cpu limit 200m→300m, app: memory request 100Mi→150Mi, app: memory limit 200Mi→300Mi")
	d.waitEvent("PodResized", want[0]+": resized in place")
	d.waitEvent("RolloutComplete", "5 of 5 pods")

	d.addNode(6, controlplane.Node{})
	d.waitAvailable(6)
	d.assertMoved(before, "150m")
	if resizes := only(d.writes(), "patch pods/resize"); len(resizes) != 5 {
		t.Errorf("resized %v, want the pod of the new node born at the new size", resizes)
	}
}

// TestDaemonSetOrder: those that are not available first, then one of each zone in turn.
func TestDaemonSetOrder(t *testing.T) {
	parallel(t)
	zones := []string{"a", "a", "a", "b", "b"}
	d := newDaemonSet(t, options{Replicas: 5, Node: func(i int) controlplane.Node {
		return controlplane.Node{CPU: "8", Memory: "16Gi", Labels: map[string]string{corev1.LabelTopologyZone: zones[i-1]}}
	}})
	d.waitComplete()
	d.annotatePod(d.on(5).Name, "sim.inplace-rollout.io/ready=false")
	d.waitFor("four available pods", func(o *appsv1.DaemonSet) bool { return o.Status.NumberAvailable == 4 })
	before := d.uids()
	d.markAudit()
	d.setResources("cpu=150m", "")
	d.waitSize(d.on(5).Name, "150m")
	d.annotatePod(d.on(5).Name, "sim.inplace-rollout.io/ready-")
	d.waitComplete()
	d.assertMoved(before, "150m")
	var want []string
	for _, i := range []int{5, 1, 4, 2, 3} {
		want = append(want, d.on(i).Name)
	}
	if got := only(d.writes(), "patch pods/resize"); !slices.Equal(got, want) {
		t.Errorf("resized in the order %v, want %v", got, want)
	}
}

// TestDaemonSetWaitIsTruthful: whoever waits right after the edit waits for that edit.
func TestDaemonSetWaitIsTruthful(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{Replicas: 2, PodMeta: simDelayed})
	d.waitComplete()
	before := d.uids()
	for _, cpu := range []string{"150m", "100m", "180m"} {
		d.edit(cpu)
		for name, pod := range d.pods() {
			if !hasSize(pod, cpu) {
				t.Errorf("the wait has returned, and %s runs with %+v", name, pod.Status.ContainerStatuses[0].Resources)
			}
		}
		d.rolloutStatus().wait(t)
	}
	d.assertMoved(before, "180m")
}

// TestDaemonSetUndo goes back through the history, in place.
func TestDaemonSetUndo(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{})
	before := d.uids()
	d.markAudit()
	for _, cpu := range []string{"150m", "100m", "150m", "180m"} {
		d.edit(cpu)
		d.assertMoved(before, cpu)
	}
	d.kubectl("rollout", "undo", d.ref)
	d.waitComplete()
	d.assertMoved(before, "150m")
	d.undoTo("100m")
	d.assertMoved(before, "100m")
	if got := d.history(); len(got) != 3 {
		t.Errorf("the history lists %v, want three revisions", got)
	}
	if created, deleted := d.podsWritten("create"), d.podsWritten("delete"); len(created)+len(deleted) > 0 {
		t.Errorf("created %v and deleted %v, want no pod touched", created, deleted)
	}
}

// TestDaemonSetEditedAgain: every edit lands on a pod that is being resized, or on one that has
// the size of an edit that was given up.
func TestDaemonSetEditedAgain(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{PodMeta: simDelayed})
	before := d.uids()
	for _, cpu := range []string{"150m", "180m", "100m"} {
		d.beginAny(cpu)
	}
	d.edit("160m")
	d.assertMoved(before, "160m")
	for _, cpu := range []string{"150m", "180m", "150m"} { // at once
		d.setResources("cpu="+cpu, "")
	}
	d.waitComplete()
	d.assertMoved(before, "150m")
}

// TestDaemonSetHandover: where every pod needs a restart anyway, the built-in rollout starts at once.
func TestDaemonSetHandover(t *testing.T) {
	parallel(t)
	for _, edit := range handovers("daemonset/web") {
		t.Run(edit.name, func(t *testing.T) {
			parallel(t)
			d := newDaemonSet(t, options{Replicas: 2, Meta: edit.meta})
			d.testHandover(edit, d.assertSettled)
			if n := len(d.history()); n != 2 {
				t.Errorf("%d revisions, want two", n)
			}
		})
	}
}

// TestDaemonSetResourcesDuringAnImageRollout: the new image's pods are resized, and the others are
// replaced, at the new size at once, and no more at a time than before.
func TestDaemonSetResourcesDuringAnImageRollout(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{Replicas: 4, Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}}"})
	log := d.logPods()
	d.testResourcesDuringAnImageRollout(rolledOutDaemons, d.assertSettled)
	log.assertMost(4)
}

// TestDaemonSetImageDuringAResize: the image wins; nobody waits for the resize.
func TestDaemonSetImageDuringAResize(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{})
	before := d.uids()
	for name := range before {
		d.annotatePod(name, simLasting)
	}
	d.beginAny("150m")
	d.kubectl("set", "image", d.ref, "app=app:2")
	d.waitComplete()
	d.assertSettled("150m")
	d.assertAllReplaced(before)
}

// TestDaemonSetInfeasibleOnSomeNodes: a pod cannot move, so one whose node cannot hold the size is
// kept, and is told of with its node; those on other nodes are resized.
func TestDaemonSetInfeasibleOnSomeNodes(t *testing.T) {
	parallel(t)
	small := func(i int) controlplane.Node {
		return controlplane.Node{CPU: map[bool]string{true: "2", false: "4"}[i <= 2], Memory: "16Gi"}
	}
	for action, reason := range map[string]string{"LiveResizePreferred": "NoNodeFits", "LiveResize": "Infeasible", "Restart": "NoNodeFits"} {
		t.Run(action, func(t *testing.T) {
			parallel(t)
			d := newDaemonSet(t, options{Replicas: 4, Node: small, Meta: "annotations: {" + setAction + ": " + action + "}"})
			before := d.uids()
			kept := map[string]types.UID{d.on(1).Name: before[d.on(1).Name], d.on(2).Name: before[d.on(2).Name]}
			d.tooSmall(d.on(1).Name, d.on(2).Name)
			d.setResources("cpu=3", "cpu=3500m")
			d.waitCondition(reason, "2 of 4 pods resized; ")
			for i := range 2 {
				d.waitCondition(reason, d.node(i+1))
				d.waitCondition(reason, d.on(i+1).Name)
			}
			d.waitEvent(map[string]string{"NoNodeFits": "NoNodeFits", "Infeasible": "ResizeInfeasible"}[reason], d.on(1).Name)
			restarted := []string{}
			for name := range before {
				if _, there := d.uids()[name]; !there {
					restarted = append(restarted, name)
				}
			}
			if want := map[string]int{"Restart": 2}[action]; len(restarted) != want {
				t.Errorf("restarted %v, want %d pods", restarted, want)
			}
			d.assertReplaced(kept)
			d.largeEnough(d.on(1).Name, d.on(2).Name)
			d.kubectl("annotate", "--overwrite", d.ref, setAction+"=LiveResize")
			d.setResources("cpu=150m", "cpu=200m") // fits everywhere: it mends every pod
			d.waitComplete()
			d.assertReplaced(kept)
			d.assertSettled("150m")
		})
	}
}

// TestDaemonSetRestartsOnItsNode: pods that cannot be resized are restarted, each by itself, within
// maxUnavailable; nobody else is touched.
func TestDaemonSetRestartsOnItsNode(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{Replicas: 4})
	before := d.uids()
	stuck := []string{d.on(2).Name, d.on(3).Name}
	for _, name := range stuck {
		d.annotatePod(name, simInfeasible)
	}
	log := d.logPods()
	d.edit("150m")
	d.assertSettled("150m")
	d.assertReplaced(before, stuck...)
	log.assertReady(3)
	log.assertMost(4)
	d.waitEvent("RestartFallback", stuck[0])
	d.assertWarns("RestartFallback", true)
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
	if got := only(d.writes(), "delete pods"); len(got) > 0 {
		t.Errorf("the controller deleted %v", got)
	}
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
	d.waitFor("the surge", func(o *appsv1.DaemonSet) bool {
		return observed(o) && len(d.pods()) == 4
	})
	d.waitImage("app:2", 1)
	d.setResources("cpu=150m", "")
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
