//go:build around

package integration

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// progressing is the Deployment's own condition Progressing, as status and reason.
func progressing(d *appsv1.Deployment) string {
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

// TestDeploymentExceedsDeadline: what waits for a held rollout is told when it does not move for as long
// as its user allows, and not told so any more when it does.
func TestDeploymentExceedsDeadline(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Spec: "progressDeadlineSeconds: 5"})
	none := newDeployment(t, options{Spec: "progressDeadlineSeconds: 2147483647"})
	d.waitComplete()
	before, stuck := d.uids(), d.names()[0]
	d.annotatePod(stuck, simDeferred)
	none.annotatePod(none.names()[0], simDeferred)
	none.beginAny("150m")
	d.setResources("cpu=150m", "")
	d.waitFor("the deadline to be exceeded", func(d *appsv1.Deployment) bool { return progressing(d) == "False ProgressDeadlineExceeded" })
	must.Fails(t, "kubectl rollout status", d.try(t, "rollout", "status", d.ref, "--timeout=60s"), "exceeded its progress deadline")
	if !held(d.get()) {
		t.Error("the hold was let go")
	}
	d.patch(`{"spec":{"revisionHistoryLimit":9}}`)
	d.waitObserved()
	must.Equal(t, progressing(d.get()), "False ProgressDeadlineExceeded", "after a write that moves nothing")
	if said := d.get().Annotations; said[api.SaidOfAnnotation] != "Late;edit "+said[api.EditAnnotation]+";" {
		t.Errorf("late is %v", said)
	}
	d.setResources("cpu=160m", "") // a new edit is not late
	d.waitFor("the word to be taken back", func(d *appsv1.Deployment) bool { return progressing(d) == "Unknown DeploymentPaused" })
	d.waitFor("the deadline to be exceeded again", func(d *appsv1.Deployment) bool { return progressing(d) == "False ProgressDeadlineExceeded" })
	d.annotatePod(stuck, simAccepted)
	d.waitComplete()
	d.assertMoved(before, "160m")
	if said, is := d.get().Annotations[api.SaidOfAnnotation]; is {
		t.Errorf("it is Complete, and speaks of %s", said)
	}
	d.waitFor("all to be well", func(d *appsv1.Deployment) bool { return progressing(d) == "True NewReplicaSetAvailable" })
	must.Equal(t, progressing(none.get()), "", "without a deadline")
	late := false
	for _, v := range d.versions() {
		was := late
		late = progressing(v.workload) == "False ProgressDeadlineExceeded"
		if late && !was && !held(v.workload) {
			t.Errorf("at %s it is said to be late, and not held", v.written)
		}
	}
}

// TestReplicaSetOfTheUser: a Deployment takes over a ReplicaSet that somebody has made before, whose
// pods have no pod-template-hash.
func TestReplicaSetOfTheUser(t *testing.T) {
	parallel(t)
	o := options{Kind: "Deployment", Replicas: 2}
	d := newDeployment(t, o)
	d.kubectl("delete", d.ref, "--cascade=foreground")
	d.apply(manifest(t, d.namespace, options{Kind: "ReplicaSet", Replicas: 2, OptedOut: true, Meta: "labels: {app: web}"}))
	d.kubectl("wait", "--for=jsonpath={.status.readyReplicas}=2", "replicaset/web", "--timeout="+patience.String())
	before := d.uids()
	d.apply(manifest(t, d.namespace, o))
	d.waitRolledOut()

	d.edit("150m")

	d.assertMoved(before, "150m")
	if active := d.active(); active.Name != "web" {
		t.Errorf("the pods belong to %s", summary(d.replicaSets()))
	}
}
