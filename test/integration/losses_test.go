//go:build integration

package integration

import (
	"testing"
)

// rejected has kubelets take no pod with cpu 150m, and none resize to it.
const rejected = `annotations: {sim.inplace-rollout.io/rejects-cpu: 150m, sim.inplace-rollout.io/resize: infeasible}`

const rejection = "rejected by the kubelet of node "

// TestRejectedByKubeletOfDeployment is the same for a Deployment, whose ReplicaSet makes more and more such pods.
func TestRejectedByKubeletOfDeployment(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{PodMeta: rejected, Spec: "strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}"})
	before := d.uids()
	d.setResources("cpu=150m", "")
	d.waitCondition("PodRejected", rejection)
	d.setResources("cpu=100m", "")
	d.waitComplete()
	there := 0
	for name, uid := range d.uids() {
		if before[name] == uid {
			there++
		}
	}
	if there != 2 {
		t.Errorf("%d pods of 3 are there still, want 2", there)
	}

	// Guarded: its ReplicaSet has the former template again, and the third pod comes back.
	d.guard("canary", "1", "canary-duration", "1h", "on-failure", "Revert")
	d.setResources("cpu=150m", "")
	d.waitCondition("Reverted", "3 of 3 pods have their size from before")
	d.waitCondition("Reverted", rejection)
	if cpu := cpuOf(d.active().Spec.Template.Spec.Containers[0].Resources); cpu != "100m" || !held(d.get()) {
		t.Errorf("the ReplicaSet makes pods of %s, want the size from before", cpu)
	}
	d.setResources("cpu=100m", "")
	d.waitComplete()
}
