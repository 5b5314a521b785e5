//go:build integration

package integration

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// TestDeploymentStrategies resizes under each strategy that a Deployment can have. It alone proves that the real
// Deployment controller replaces nothing under any of them; the pure tests know only what it is said to do.
func TestDeploymentStrategies(t *testing.T) {
	parallel(t)
	for name, spec := range map[string]string{
		"Recreate":             "strategy: {type: Recreate}",
		"maxUnavailable 0":     surge,
		"maxUnavailable 100%":  "strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 100%}}",
		"minReadySeconds":      "minReadySeconds: 2",
		"revisionHistoryLimit": "revisionHistoryLimit: 0",
	} {
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
			d.kubectl("set", "image", d.ref, "app=app:2")
			d.waitComplete()
			d.assertSettled("100m")
			d.assertAllReplaced(before)
		})
	}
}

// TestDeploymentScaledToZero: there is nothing to resize, and what comes later has the new size.
func TestDeploymentScaledToZero(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 2})
	d.kubectl("scale", d.ref, "--replicas=0")
	d.waitFor("no pods", func(o *appsv1.Deployment) bool { return o.Status.Replicas == 0 && len(d.pods()) == 0 })
	d.edit("150m")
	d.edit("100m")
	d.edit("150m")
	if got := d.get(); held(got) || got.Spec.Paused {
		t.Errorf("still held: %v", got.Annotations)
	}
	d.assertReplicaSets(2)
	d.markAudit()
	d.kubectl("scale", d.ref, "--replicas=2")
	d.waitRolledOut()
	d.assertSettled("150m")
	if created := d.podsWritten("create"); len(created) != 2 {
		t.Errorf("created %v, want two pods", created)
	}
	if resizes := only(d.writes(), "patch pods/resize"); len(resizes) > 0 {
		t.Errorf("resized %v, want them born at the new size", resizes)
	}
}

// TestDeploymentScaledToZeroDuringTheRollout: nobody waits for pods that are gone.
func TestDeploymentScaledToZeroDuringTheRollout(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 2})
	for _, name := range d.names() {
		d.annotatePod(name, simLasting)
	}
	d.beginAny("150m")
	d.kubectl("scale", d.ref, "--replicas=0")
	d.waitComplete()
	d.kubectl("scale", d.ref, "--replicas=2")
	d.waitRolledOut()
	d.assertSettled("150m")
}

// TestDeploymentPausedByItsUser is left alone while it is edited; resuming it is
// held, and what has been edited meanwhile is done in place.
func TestDeploymentPausedByItsUser(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{})
	d.waitComplete()
	before := d.uids()
	d.markAudit()
	d.kubectl("rollout", "pause", d.ref)
	d.setResources("cpu=150m", "")
	d.setResources("cpu=180m", "")
	d.waitCondition("Paused", "")
	if got := d.get(); held(got) || !got.Spec.Paused {
		t.Errorf("paused %t, annotations %v, want it as its user left it", got.Spec.Paused, got.Annotations)
	}
	if resizes := only(d.writes(), "patch pods/resize"); len(resizes) > 0 {
		t.Errorf("resized %v", resizes)
	}
	d.kubectl("rollout", "resume", d.ref)
	d.waitComplete()
	d.assertMoved(before, "180m")
	d.assertReplicaSets(2)
	d.assertProgressing()

	// Resumed without an edit: let go at once, and nothing happens.
	d.kubectl("rollout", "pause", d.ref)
	d.kubectl("rollout", "resume", d.ref)
	d.waitComplete()
	d.assertMoved(before, "180m")
}

// TestDeploymentResumedDuringTheHold: it is a wish like any other, and rolls nothing.
func TestDeploymentResumedDuringTheHold(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{})
	before := d.uids()
	slow := d.names()[1]
	d.annotatePod(slow, simLasting)
	d.begin("150m", slow)
	d.kubectl("rollout", "resume", d.ref)
	if !held(d.get()) {
		t.Error("not held any more")
	}
	d.annotatePod(slow, simAccepted)
	d.waitComplete()
	d.assertMoved(before, "150m")
}

// TestDeploymentScaledDuringTheRollout: pods that come are resized or born at the
// new size, and those that go are not waited for.
func TestDeploymentScaledDuringTheRollout(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 3, PodMeta: simDelayed})
	before := d.uids()
	slow := d.names()[0]
	d.annotatePod(slow, simLasting)
	d.begin("150m", slow)
	d.kubectl("scale", d.ref, "--replicas=5")
	d.waitFor("five pods", func(o *appsv1.Deployment) bool { return o.Status.AvailableReplicas == 5 })
	if !held(d.get()) {
		t.Error("not held any more: this shows nothing")
	}
	d.annotatePod(slow, simAccepted)
	d.waitComplete()
	d.assertMoved(before, "150m")

	for _, name := range d.names() {
		d.annotatePod(name, simLasting)
	}
	d.beginAny("180m")
	d.kubectl("scale", d.ref, "--replicas=2")
	d.waitFor("two pods", func(o *appsv1.Deployment) bool { return o.Status.Replicas == 2 })
	for _, name := range d.names() {
		d.annotatePod(name, simAccepted)
	}
	d.waitComplete()
	d.assertSettled("180m")
}

// TestDeploymentAutoscaled: an autoscaler changes its mind all the time, and knows
// only of the scale subresource.
func TestDeploymentAutoscaled(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{PodMeta: simDelayed})
	d.setResources("cpu=150m", "")
	for _, replicas := range []int32{5, 2, 6, 4} {
		d.autoscale(replicas)
		d.waitFor("the pods to follow", func(o *appsv1.Deployment) bool {
			return o.Status.Replicas == replicas && observed(o)
		})
	}
	d.waitComplete()
	d.assertSettled("150m")
	if n := *d.get().Spec.Replicas; n != 4 {
		t.Errorf("%d replicas, want the autoscaler's 4", n)
	}
	d.assertReplicaSets(2)
}

func (d *deployment) autoscale(replicas int32) {
	d.t.Helper()
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: d.namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	if _, err := client.AppsV1().Deployments(d.namespace).UpdateScale(d.t.Context(), "web", scale, metav1.UpdateOptions{}); err != nil {
		d.t.Fatal(err)
	}
}

// TestDeploymentPodLostDuringTheRollout: the new pod is born from the old template,
// and has to be resized.
func TestDeploymentPodLostDuringTheRollout(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{PodMeta: simDelayed})
	before := d.uids()
	slow, lost := d.names()[0], d.names()[1]
	d.annotatePod(slow, simLasting)
	d.begin("150m", slow)
	d.kubectl("delete", "pod", lost)
	d.newcomer(before)
	d.annotatePod(slow, simAccepted)
	d.waitComplete()
	d.assertSettled("150m")
	d.assertReplaced(before, lost)
}

func TestDeploymentDeletedDuringTheRollout(t *testing.T) {
	parallel(t)
	for _, cascade := range []string{"foreground", "background"} {
		t.Run(cascade, func(t *testing.T) {
			parallel(t)
			d := newDeployment(t, options{})
			slow := d.names()[0]
			d.annotatePod(slow, simLasting)
			d.begin("150m", slow)
			d.kubectl("delete", d.ref, "--cascade="+cascade, "--timeout="+patience.String())
			eventually(t, "everything to be gone", func() (bool, string) {
				return len(d.replicaSets()) == 0 && len(d.pods()) == 0, summary(d.replicaSets())
			})
		})
	}
}

// TestDeploymentDeletedDuringAReplacement: a replacement that has no owner yet would stay for ever.
func TestDeploymentDeletedDuringAReplacement(t *testing.T) {
	parallel(t)
	d := newGated(t)
	before := d.uids()
	d.annotatePod(d.names()[0], simInfeasible)
	d.setResources("cpu=150m", "")
	d.newcomer(before)
	d.kubectl("delete", d.ref, "--timeout="+patience.String())
	eventually(t, "everything to be gone", func() (bool, string) {
		return len(d.replicaSets()) == 0 && len(d.pods()) == 0, summary(d.replicaSets())
	})
}

// TestDeploymentOptOutDuringTheRollout: the Deployment controller does the rest, as if we had never been here.
func TestDeploymentOptOutDuringTheRollout(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{})
	slow := d.names()[0]
	d.annotatePod(slow, simLasting)
	d.begin("150m", slow)
	d.kubectl("label", d.ref, enabled+"-")
	if got := d.get(); held(got) || got.Spec.Paused {
		t.Errorf("still held: paused %t, annotations %v", got.Spec.Paused, got.Annotations)
	}
	d.rolloutStatus().wait(t)
	d.assertSettled("150m")
	d.waitWithdrawn()
	d.markAudit()
	d.kubectl("set", "image", d.ref, "app=app:2")
	d.waitRolledOut()
	if got := d.writes(); len(got) > 0 {
		t.Errorf("the controller wrote %v", got)
	}
}

// TestDeploymentCrashingPod: a pod that was not Ready before the edit is resized,
// because the size may be the cure. As long as it is not Ready it takes the share of
// maxUnavailable, and the rollout stays held.
func TestDeploymentCrashingPod(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 4})
	before := d.uids()
	crashing := d.names()[0]
	d.annotatePod(crashing, "sim.inplace-rollout.io/ready=false")
	d.waitFor("three available pods", func(o *appsv1.Deployment) bool { return o.Status.AvailableReplicas == 3 })
	d.setResources("cpu=150m", "")
	d.waitSize(crashing, "150m")
	d.waitCondition("NotReadyAfterResize", crashing+": not Ready since its resize")
	// The first one proves the size. Until the kubelet of the crashing one has answered, another may follow.
	if asked := only(d.writes(), "patch pods/resize"); len(asked) > 3 || !held(d.get()) {
		t.Errorf("asked %v, held %t, while %s is not Ready; want it and two more", asked, held(d.get()), crashing)
	}
	d.annotatePod(crashing, "sim.inplace-rollout.io/ready-")
	d.waitComplete()
	d.assertMoved(before, "150m")
}

// TestDeploymentPodWithoutNode: a pod that no node has room for is resized before it
// starts: it needs no restart, and no eviction.
func TestDeploymentPodWithoutNode(t *testing.T) {
	parallel(t)
	for _, action := range []string{"LiveResize", "LiveResizePreferred"} {
		t.Run(action, func(t *testing.T) {
			parallel(t)
			d := createDeployment(t, options{
				Replicas: 1, Resources: "{requests: {cpu: 64}}",
				Meta: "annotations: {inplace-rollout.io/resource-resize-action: " + action + "}",
			})
			var name string
			eventually(t, "the pod", func() (bool, string) {
				names := d.names()
				if len(names) == 1 {
					name = names[0]
				}
				return len(names) == 1, ""
			})
			d.waitUnschedulable(name)
			before := d.uids()
			d.setResources("cpu=150m", "")
			d.waitComplete()
			d.assertSettled("150m")
			d.assertReplaced(before)
		})
	}
}

// TestDeploymentHeldWithoutController: a controller that starts in the middle of a
// hold finds everything that it needs in the cluster.
func TestDeploymentHeldWithoutController(t *testing.T) {
	d := newDeployment(t, options{})
	d.setResources("cpu=150m", "")
	d.setResources("cpu=180m", "")
	d.kubectl("scale", d.ref, "--replicas=4")
	d.waitFor("the fourth pod", func(o *appsv1.Deployment) bool { return o.Status.AvailableReplicas == 4 })
	before := d.uids()
	ownController(t, controller.Options{})
	d.waitComplete()
	d.assertMoved(before, "180m")
}
