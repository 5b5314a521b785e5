//go:build integration

package integration

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
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
	d.waitEvent("RolloutComplete", "all pods")

	d.addNode(6, controlplane.Node{})
	d.waitAvailable(6)
	d.assertMoved(before, "150m")
	if resizes := only(d.writes(), "patch pods/resize"); len(resizes) != 5 {
		t.Errorf("resized %v, want the pod of the new node born at the new size", resizes)
	}
}

// TestDaemonSetUndo goes back through the history, in place.
func TestDaemonSetUndo(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{})
	before := d.uids()
	d.markAudit()
	for _, cpu := range []string{"150m", "180m"} {
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
	if said := d.warnings("set", "resources", d.ref, "--requests=cpu=150m"); !strings.Contains(said, "the previous rollout with maxSurge is not over") {
		t.Errorf("after the edit the API server says %s", said)
	}
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

// TestDaemonSetNodeNotReady: a pod whose node is silent holds up nobody, takes a share of
// maxUnavailable, and is resized when the node is back.
func TestDaemonSetNodeNotReady(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{Replicas: 4, Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}}"})
	before := d.uids()
	slow := d.on(1).Name
	d.annotatePod(slow, simLasting)
	d.begin("150m", slow)
	d.notReady(1)
	for i := range 3 {
		d.waitSize(d.on(i+2).Name, "150m")
	}
	d.waitCondition("NodeLost", slow)
	d.assertReplaced(before)
	d.readyAgain(1)
	d.waitComplete()
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
		if pod.Labels["pod-template-generation"] != "1" {
			t.Errorf("%s has the labels %v: this shows nothing", name, pod.Labels)
		}
	}
	d.waitComplete()
	d.assertMoved(before, "150m")
}
