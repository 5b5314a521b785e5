//go:build integration

package integration

import (
	"fmt"
	"strconv"
	"testing"
	"time"

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
	d.waitEvent("RolloutComplete", "6 of 6 pods")

	d.kubectl("scale", d.ref, "--replicas=8")
	d.waitRolledOut()
	d.assertMoved(before, "150m")
	if resizes := only(d.writes(), "patch pods/resize"); len(resizes) != 6 {
		t.Errorf("resized %v, want the two new pods born at the new size", resizes)
	}
}

// TestDeploymentRolloutStatusIsTruthful: it returns when the last pod has the new size.
func TestDeploymentRolloutStatusIsTruthful(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 4, PodMeta: simDelayed, Spec: "strategy: {rollingUpdate: {maxUnavailable: 2}}"})
	before := d.uids()
	d.setResources("cpu=150m", "")
	d.rolloutStatus().wait(t)
	for name, pod := range d.pods() {
		if !hasSize(pod, "150m") {
			t.Errorf("rollout status has returned, and %s runs with %+v", name, pod.Status.ContainerStatuses[0].Resources)
		}
	}
	d.waitComplete()
	d.assertMoved(before, "150m")
}

// TestDeploymentRolloutStatusAfterARevert: the ReplicaSet still has the template that comes back, so that
// the Deployment controller takes every pod for updated at once.
func TestDeploymentRolloutStatusAfterARevert(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Meta: liveOnly}) // the silent pod is not restarted
	d.waitComplete()
	before := d.uids()
	slow := d.names()[0]
	d.annotatePod(slow, simSilent)
	d.begin("150m", slow)
	d.setResources("cpu=100m", "")
	status := d.rolloutStatus()
	time.Sleep(2 * time.Second)
	select {
	case <-status.done:
		t.Errorf("rollout status has returned, and %s is still to be resized back", slow)
	default:
	}
	d.annotatePod(slow, simAccepted)
	status.wait(t)
	for name, pod := range d.pods() {
		if !hasSize(pod, "100m") {
			t.Errorf("rollout status has returned, and %s runs with %+v", name, pod.Status.ContainerStatuses[0].Resources)
		}
	}
	d.waitComplete()
	d.assertMoved(before, "100m")
}

// TestDeploymentBackAndForth edits A→B→A→B→C→A and goes back through the history;
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
	for _, cpu := range []string{b, a, b, c, a} {
		d.edit(cpu)
		moved(cpu)
	}
	if got := d.history(); len(got) != 3 {
		t.Errorf("the history lists %v, want three revisions: %s", got, summary(d.replicaSets()))
	}
	d.kubectl("rollout", "undo", d.ref)
	d.waitComplete()
	moved(c)
	d.undoTo(b)
	moved(b)
	d.undoTo(a)
	moved(a)
	if created, deleted := d.podsWritten("create"), d.podsWritten("delete"); len(created)+len(deleted) > 0 {
		t.Errorf("created %v and deleted %v, want no pod touched", created, deleted)
	}
	d.assertProgressing()
}

// TestDeploymentBackAndForthAtOnce makes the same edits, and waits only at the end.
func TestDeploymentBackAndForthAtOnce(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 2, PodMeta: simDelayed})
	before, first := d.uids(), d.active().Name
	for range 2 {
		for _, cpu := range []string{"150m", "100m", "150m", "180m", "100m", "180m"} {
			d.setResources("cpu="+cpu, "")
		}
		d.waitComplete()
		d.assertMoved(before, "180m")
		d.assertReplicaSets(3)
		if active := d.active().Name; active != first {
			t.Errorf("ReplicaSet %s has the pods, want %s: %s", active, first, summary(d.replicaSets()))
		}
	}
}

// TestDeploymentSecondEditDuringTheRollout: every edit lands on a pod that is being resized.
func TestDeploymentSecondEditDuringTheRollout(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{PodMeta: simDelayed})
	before := d.uids()
	for _, cpu := range []string{"150m", "180m", "100m"} {
		d.beginAny(cpu)
	}
	d.setResources("cpu=160m", "")
	d.waitComplete()
	d.assertMoved(before, "160m")
	d.assertReplicaSets(4)
}

func TestDeploymentHistoryLimit(t *testing.T) {
	parallel(t)
	for limit := range 3 {
		t.Run(strconv.Itoa(limit), func(t *testing.T) {
			parallel(t)
			d := newDeployment(t, options{Replicas: 2, Spec: fmt.Sprintf("revisionHistoryLimit: %d", limit)})
			before := d.uids()
			for i, cpu := range []string{"150m", "180m", "120m", "150m", "100m"} {
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
				d.assertMoved(before, "150m")
			}
		})
	}
}

// TestDeploymentBackToABuiltInRevision: here the ReplicaSet that equals the new
// template is older than the one that has the pods.
func TestDeploymentBackToABuiltInRevision(t *testing.T) {
	parallel(t)
	for _, limit := range []int{1, 10} {
		t.Run(strconv.Itoa(limit), func(t *testing.T) {
			parallel(t)
			d := newDeployment(t, options{OptedOut: true, Spec: fmt.Sprintf("revisionHistoryLimit: %d", limit)})
			d.setResources("cpu=150m", "")
			d.waitRolledOut()
			before, first := d.uids(), d.active().Name
			d.kubectl("label", "--overwrite", d.ref, enabled+"=true")
			d.waitComplete()
			d.assertMoved(before, "150m")
			for _, cpu := range []string{"100m", "150m"} {
				d.edit(cpu)
				d.assertMoved(before, cpu)
				d.assertReplicaSets(2)
				if active := d.active().Name; active != first {
					t.Errorf("ReplicaSet %s has the pods, want %s: %s", active, first, summary(d.replicaSets()))
				}
				if got := d.history(); len(got) != 2 {
					t.Errorf("the history lists %v, want two revisions: %s", got, summary(d.replicaSets()))
				}
			}
		})
	}
}

// TestDeploymentHistoryOfImagesIsKept: the history that the Deployment controller
// itself has made stays, and going back to it is its own rollout.
func TestDeploymentHistoryOfImagesIsKept(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 2})
	d.kubectl("set", "image", d.ref, "app=app:2")
	d.waitComplete()
	before := d.uids()
	d.edit("150m")
	d.assertMoved(before, "150m")
	d.assertReplicaSets(3)
	if got := d.history(); len(got) != 3 {
		t.Errorf("the history lists %v, want three revisions: %s", got, summary(d.replicaSets()))
	}
	d.kubectl("rollout", "undo", d.ref, "--to-revision=1")
	d.waitComplete()
	d.assertAllReplaced(before)
	d.assertSettled("100m")
	if image := d.get().Spec.Template.Spec.Containers[0].Image; image != "app:1" {
		t.Errorf("image %s after the undo, want app:1", image)
	}
}

// TestDeploymentReapplies: a GitOps tool says again and again that it is not paused.
func TestDeploymentReapplies(t *testing.T) {
	parallel(t)
	o := options{Kind: "Deployment", Spec: "paused: false"}
	d := newDeployment(t, o)
	before := d.uids()
	d.reapply(o)
	d.waitComplete()
	d.assertMoved(before, "150m")
	// The field is still the user's: another value conflicts with nobody.
	o.Resources, o.Spec = largerThanBase, "paused: true"
	d.apply(manifest(t, d.namespace, o))
	if got := d.get(); !got.Spec.Paused || held(got) {
		t.Errorf("paused %t, annotations %v, want it paused by its user", got.Spec.Paused, got.Annotations)
	}
}

// TestDeploymentLimitsOnlyStaysGuaranteed: limits are defaults of requests.
func TestDeploymentLimitsOnlyStaysGuaranteed(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Resources: "{limits: {cpu: 100m, memory: 100Mi}}"})
	before := d.uids()
	d.setResources("", "cpu=200m,memory=150Mi")
	d.waitComplete()
	d.assertReplaced(before)
	for name := range before {
		d.waitSize(name, "200m")
	}
}

func TestDeploymentWithoutTheLabel(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{OptedOut: true})
	before := d.uids()
	d.setResources("cpu=150m", "")
	d.rolloutStatus().wait(t)
	d.assertAllReplaced(before)
	if got := d.writes(); len(got) > 0 {
		t.Errorf("the controller wrote %v", got)
	}
	if _, reason, _ := complete(d.get()); reason != "" {
		t.Errorf("it has our condition, with reason %s", reason)
	}
}
