//go:build integration

package integration

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

// stall keeps the pod on the first node from its size, and begins a rollout to 150m.
func (d *daemonSet) stall() (slow string) {
	d.t.Helper()
	slow = d.on(1).Name
	d.annotatePod(slow, simLasting)
	d.begin("150m", slow)
	return slow
}

// TestDaemonSetNodesComeAndGo: pods of new nodes are born at the new size, and those of nodes that
// are gone are no members.
// It alone proves that while a rollout is held; here, too, the garbage collector takes the time.
func TestDaemonSetNodesComeAndGo(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{Replicas: 4})
	before := d.uids()
	slow, gone := d.stall(), d.on(4).Name
	d.markAudit()
	d.addNode(5, controlplane.Node{})
	d.removeNode(4)
	d.waitOn(5, "to be born at the new size", func(pod corev1.Pod) bool { return hasSize(pod, "150m") })
	if !held(d.get()) {
		t.Error("not held any more: this shows nothing")
	}
	d.annotatePod(slow, simAccepted)
	d.waitComplete()
	d.assertSettled("150m")
	d.assertReplaced(before, gone)
}

// TestDaemonSetNodeGoneDuringItsResize: its pod, which is there for a minute, holds up nobody.
// It alone proves that while the real garbage collector lets the pod be, which is what takes the time.
func TestDaemonSetNodeGoneDuringItsResize(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{})
	before := d.uids()
	slow := d.stall()
	d.removeNode(1)
	d.waitCondition("NodeLost", slow+": its node "+d.node(1)+" is gone")
	d.waitSize(d.on(2).Name, "150m")
	d.waitSize(d.on(3).Name, "150m")
	d.waitComplete()
	d.assertSettled("150m")
	d.assertReplaced(before, slow)
}

// TestDaemonSetCordonedNode: that keeps no DaemonSet's pod from its size.
func TestDaemonSetCordonedNode(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{})
	before := d.uids()
	slow := d.stall()
	d.kubectl("cordon", d.node(1))
	d.kubectl("cordon", d.node(3))
	d.annotatePod(slow, simAccepted)
	d.waitComplete()
	d.assertMoved(before, "150m")
	d.annotatePod(d.on(3).Name, simInfeasible) // a restart is possible there, too
	stuck := d.on(3).Name
	d.edit("180m")
	d.assertSettled("180m")
	d.assertReplaced(before, stuck)
}

// TestDaemonSetNodeNotReady: a pod whose node is silent holds up nobody, takes a share of
// maxUnavailable, and is resized when the node is back.
func TestDaemonSetNodeNotReady(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{Replicas: 4, Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}}"})
	before := d.uids()
	slow := d.stall()
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

// TestDaemonSetNodeNotReadyAlone: also where it takes the only share, live resizes go on.
func TestDaemonSetNodeNotReadyAlone(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{})
	before := d.uids()
	d.notReady(1)
	stuck := d.on(3).Name
	d.annotatePod(stuck, simInfeasible)
	d.setResources("cpu=150m", "")
	d.waitSize(d.on(2).Name, "150m")
	d.waitCondition("NodeLost", d.on(1).Name)
	d.assertReplaced(before) // a restart would be the second that is down
	d.readyAgain(1)
	d.waitComplete()
	d.assertSettled("150m")
	d.assertReplaced(before, stuck)
}

// TestDaemonSetTaintedNode: its pod stays as one too many, and gets size and revision, so that the
// DaemonSet controller does not replace it after the release.
func TestDaemonSetTaintedNode(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{})
	before := d.uids()
	d.kubectl("taint", "node", d.node(2), "example.com/no=more:NoSchedule")
	d.edit("150m")
	d.waitSize(d.on(2).Name, "150m")
	d.waitFor("a misscheduled pod", func(o *appsv1.DaemonSet) bool { return o.Status.NumberMisscheduled == 1 })
	d.kubectl("taint", "node", d.node(2), "example.com/no-")
	d.assertMoved(before, "150m")

	slow := d.on(1).Name
	d.annotatePod(slow, simLasting)
	d.begin("180m", slow)
	drained := d.on(3).Name
	d.kubectl("taint", "node", d.node(3), "example.com/no=more:NoExecute") // mid-rollout: its pod goes
	d.waitFor("two pods", func(o *appsv1.DaemonSet) bool { return o.Status.DesiredNumberScheduled == 2 && len(d.pods()) == 2 })
	d.annotatePod(slow, simAccepted)
	d.waitComplete()
	d.assertSettled("180m")
	d.kubectl("taint", "node", d.node(3), "example.com/no-")
	d.waitAvailable(3)
	d.assertSettled("180m")
	d.assertReplaced(before, drained)
}

// TestDaemonSetNodeSelectorDuringTheRollout: that is more than a size.
func TestDaemonSetNodeSelectorDuringTheRollout(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{Node: func(i int) controlplane.Node {
		return controlplane.Node{CPU: "8", Memory: "16Gi", Labels: map[string]string{"disk": map[bool]string{true: "fast", false: "slow"}[i < 3]}}
	}})
	before := d.uids()
	d.stall()
	d.patch(`{"spec":{"template":{"spec":{"nodeSelector":{"disk":"fast"}}}}}`)
	d.waitComplete()
	d.assertSettled("150m")
	d.assertAllReplaced(before)
	if n := len(d.pods()); n != 2 {
		t.Errorf("%d pods, want those of two nodes", n)
	}
	d.waitEvent("HandedOver", "nodeSelector")
}

// TestDaemonSetAdoptsPods: a set that is made again begins at template generation 1, so that pods of
// before count as updated by their label, whatever their size is.
func TestDaemonSetAdoptsPods(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{})
	before := d.uids()
	d.kubectl("delete", d.ref, "--cascade=orphan", "--timeout="+patience.String())
	d.apply(manifest(t, d.namespace, options{Kind: "DaemonSet", Resources: "{requests: {cpu: 150m, memory: 100Mi}, limits: {cpu: 200m, memory: 200Mi}}"}))
	for name, pod := range d.pods() {
		if pod.Labels["pod-template-generation"] != "1" {
			t.Errorf("%s has the labels %v: this shows nothing", name, pod.Labels)
		}
	}
	d.waitComplete()
	d.assertMoved(before, "150m")
}

// TestDaemonSetPodLostDuringTheRollout: the new pod is born at the new size.
func TestDaemonSetPodLostDuringTheRollout(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{})
	before := d.uids()
	slow, lost := d.stall(), d.on(3).Name
	d.kubectl("delete", "pod", lost)
	d.waitOn(3, "to be born at the new size", func(pod corev1.Pod) bool { return hasSize(pod, "150m") })
	d.annotatePod(slow, simAccepted)
	d.waitComplete()
	d.assertSettled("150m")
	d.assertReplaced(before, lost)
}

// TestDaemonSetOptOutDuringTheRollout: the DaemonSet controller does the rest; opted in again, the
// rest is done in place.
func TestDaemonSetOptOutDuringTheRollout(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{})
	d.waitComplete()
	before := d.uids()
	slow := d.stall()
	d.kubectl("label", d.ref, enabled+"-")
	if got := d.get(); held(got) || got.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType {
		t.Errorf("still held: %s", describe(got))
	}
	d.rolloutStatus().wait(t)
	d.assertSettled("150m")
	if after := d.uids(); after[slow] == before[slow] {
		t.Errorf("%s was not restarted", slow)
	}
	d.waitWithdrawn()
	d.markAudit()
	d.setResources("cpu=180m", "")
	d.waitRolledOut()
	if got := d.writes(); len(got) > 0 {
		t.Errorf("the controller wrote %v", got)
	}

	d.patch(`{"spec":{"updateStrategy":{"type":"OnDelete"}}}`)
	d.setResources("cpu=150m", "")
	d.kubectl("label", d.ref, enabled+"=true")
	before = d.uids()
	d.waitComplete()
	d.assertSettled("150m")
	d.assertReplaced(before)
}

// TestDaemonSetSwitchesStrategy: to OnDelete the hold goes in that same write; and back the pods
// that lag behind are held.
func TestDaemonSetSwitchesStrategy(t *testing.T) {
	parallel(t)
	d := newDaemonSet(t, options{})
	before := d.uids()
	slow := d.stall()
	d.patch(`{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`)
	if got := d.get(); held(got) || got.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType {
		t.Errorf("still held: %s", describe(got))
	}
	d.annotatePod(slow, simInfeasible)
	d.waitCondition("WaitingForDelete", slow)
	d.assertReplaced(before)
	d.patch(`{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}`)
	if !held(d.get()) {
		t.Error("not held, and a pod lags behind")
	}
	d.waitComplete()
	d.assertSettled("150m")
	d.assertReplaced(before, slow)
}

// TestDaemonSetDeletedDuringTheRollout: nothing is left.
func TestDaemonSetDeletedDuringTheRollout(t *testing.T) {
	parallel(t)
	for _, cascade := range []string{"foreground", "background"} {
		t.Run(cascade, func(t *testing.T) {
			parallel(t)
			d := newDaemonSet(t, options{Replicas: 2})
			d.stall()
			d.kubectl("delete", d.ref, "--cascade="+cascade, "--timeout="+patience.String())
			eventually(t, "everything to be gone", func() (bool, string) { return len(d.pods()) == 0, "" })
		})
	}
}

// TestDaemonSetHeldWithoutController: a controller that starts in the middle of a hold finds
// everything that it needs in the cluster.
func TestDaemonSetHeldWithoutController(t *testing.T) {
	d := newDaemonSet(t, options{})
	d.setResources("cpu=150m", "")
	d.setResources("cpu=180m", "")
	d.addNode(4, controlplane.Node{})
	d.waitFor("the fourth pod", func(o *appsv1.DaemonSet) bool { return o.Status.NumberAvailable == 4 })
	before := d.uids()
	ownController(t, controller.Options{})
	d.waitComplete()
	d.assertMoved(before, "180m")
	if names := slices.Sorted(slices.Values(d.names())); len(names) != 4 {
		t.Errorf("pods %v", names)
	}
}
