//go:build integration

package integration

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestDeploymentLeavesNoOldTemplate: a size is edited in the middle of an image rollout, and one pod of
// the new image cannot have it. The pods of the old image are replaced all the same, and the pod
// that was left gets its size as soon as it can.
func TestDeploymentLeavesNoOldTemplate(t *testing.T) {
	parallel(t)
	d := createDeployment(t, options{
		Replicas: 4, Pod: "readinessGates: [{conditionType: example.com/open}]", Spec: "strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 2}}",
		Meta: "annotations: {" + setAction + ": LiveResize, " + setTimeout + ": 2s}",
	})
	for _, name := range d.waitImage("app:1", 4) {
		d.openGate(name)
	}
	d.waitRolledOut()
	d.waitComplete()
	d.kubectl("set", "image", d.ref, "app=app:2")
	newer := d.waitImage("app:2", 2)
	left := newer[0]
	d.annotatePod(left, simDeferred)
	d.setResources("cpu=150m", "")
	d.waitCondition("Deferred", "; the Deployment controller has yet to replace 2 pods of ReplicaSet web-")
	for _, name := range newer {
		d.openGate(name)
	}
	for _, name := range d.waitImage("app:2", 4) {
		d.openGate(name)
	}
	d.waitFor("all pods to be of the new image", rolledOut)
	d.waitCondition("Deferred", "3 of 4 pods resized; "+left+": deferred on node")
	if held(d.get()) {
		t.Error("it is held, and there is nothing to hold")
	}
	d.assertReplicaSets(3)
	if uids := d.uids(); !slices.Contains(slices.Collect(maps.Keys(uids)), left) {
		t.Errorf("there are %v, and %s is gone", slices.Sorted(maps.Keys(uids)), left)
	}
	d.annotatePod(left, simAccepted)
	d.waitComplete()
	d.assertSettled("150m")
	for name, pod := range d.pods() {
		if pod.Spec.Containers[0].Image != "app:2" || pod.Status.Phase != corev1.PodRunning {
			t.Errorf("%s has image %s, and is %s", name, pod.Spec.Containers[0].Image, pod.Status.Phase)
		}
	}
}
