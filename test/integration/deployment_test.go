//go:build integration

package integration

import (
	"fmt"
	"strconv"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

func TestDeployment(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 6})
	before, first := d.uids(), d.active().Name
	d.waitComplete()
	d.markAudit()

	d.setResources("cpu=150m,memory=150Mi", "cpu=300m,memory=300Mi")
	status := d.rolloutStatus()
	d.waitComplete()
	status.wait(t)

	d.assertMoved(before, "150m")
	d.assertReplicaSets(2)
	if active := d.active().Name; active != first {
		t.Errorf("ReplicaSet %s has the pods, want %s as before", active, first)
	}
	if created, deleted := d.podsWritten("create"), d.podsWritten("delete"); len(created)+len(deleted) > 0 {
		t.Errorf("created %v and deleted %v, want no pod touched", created, deleted)
	}
	if got := d.history(); len(got) != 2 {
		t.Errorf("the history lists %v, want two revisions", got)
	}
	d.assertProgressing()
	d.assertFewWrites(1, 9)
	d.waitEvent("RolloutStarted", "app: cpu request 100m→150m, app: cpu limit 200m→300m, app: memory request 100Mi→150Mi, app: memory limit 200Mi→300Mi")
	d.waitEvent("RolloutComplete", "all pods")

	d.kubectl("scale", d.ref, "--replicas=8")
	d.waitRolledOut()
	d.assertMoved(before, "150m")
	if resizes := only(d.writes(), "patch pods/resize"); len(resizes) != 6 {
		t.Errorf("resized %v, want the two new pods born at the new size", resizes)
	}
}

// TestDeploymentBackAndForth edits A→B→A→B→C and goes back through the history;
// an older ReplicaSet that equals the new template must not become the new one.
func TestDeploymentBackAndForth(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 2})
	before, first := d.uids(), d.active().Name
	d.markAudit()
	moved := func(cpu string) {
		t.Helper()
		d.assertMoved(before, cpu)
		d.assertReplicaSets(3)
		if active := d.active().Name; active != first {
			t.Errorf("at %s ReplicaSet %s has the pods, want %s: %s", cpu, active, first, summary(d.replicaSets()))
		}
	}
	const a, b, c = "100m", "150m", "180m"
	for _, cpu := range []string{b, a, b, c} {
		d.edit(cpu)
		moved(cpu)
	}
	if got := d.history(); len(got) != 3 {
		t.Errorf("the history lists %v, want three revisions: %s", got, summary(d.replicaSets()))
	}
	d.kubectl("rollout", "undo", d.ref)
	d.waitComplete()
	moved(b)
	d.undoTo(a)
	moved(a)
	if created, deleted := d.podsWritten("create"), d.podsWritten("delete"); len(created)+len(deleted) > 0 {
		t.Errorf("created %v and deleted %v, want no pod touched", created, deleted)
	}
	d.assertProgressing()
}

func TestDeploymentHistoryLimit(t *testing.T) {
	parallel(t)
	for limit := range 2 {
		t.Run(strconv.Itoa(limit), func(t *testing.T) {
			parallel(t)
			d := newDeployment(t, options{Replicas: 2, Spec: fmt.Sprintf("revisionHistoryLimit: %d", limit)})
			before := d.uids()
			for i, cpu := range []string{"150m", "180m", "100m"} {
				d.edit(cpu)
				d.assertMoved(before, cpu)
				d.waitFor("the history to be cut", func(*appsv1.Deployment) bool { return len(d.replicaSets()) <= limit+1 })
				d.assertReplicaSets(limit + 1)
				if got, want := d.history(), min(limit, i+1)+1; len(got) != want {
					t.Errorf("the history lists %v, want %d revisions: %s", got, want, summary(d.replicaSets()))
				}
			}
			if limit > 0 {
				d.kubectl("rollout", "undo", d.ref)
				d.waitComplete()
				d.assertMoved(before, "180m")
			}
		})
	}
}

// TestDeploymentStrategies resizes under strategies that a Deployment can have. It alone proves that the real
// Deployment controller replaces nothing under them; the pure tests know only what it is said to do.
func TestDeploymentStrategies(t *testing.T) {
	parallel(t)
	for name, spec := range map[string]string{"Recreate": "strategy: {type: Recreate}", "maxUnavailable 0": surge} {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			d := newDeployment(t, options{Spec: spec})
			before := d.uids()
			log := d.logPods()
			for _, cpu := range []string{"150m", "100m"} {
				d.edit(cpu)
				d.assertMoved(before, cpu)
			}
			log.assertReady(3)
			log.assertMost(3)
		})
	}
}
