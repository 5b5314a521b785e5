//go:build integration

package integration

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// TestDeploymentHandover: where every pod needs a restart anyway, the built-in
// rollout starts within a second of the edit, and is left alone.
func TestDeploymentHandover(t *testing.T) {
	ownController(t, controller.Options{})
	for _, edit := range []struct {
		name, meta string
		args       []string
		cpu, why   string
	}{
		{
			"image", "", []string{"set", "image", "deployment/web", "app=app:2"},
			"100m", "spec.containers[app].image",
		},
		{
			"image and resources", "",
			[]string{"patch", "deployment/web", "--patch", `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"app:2","resources":{"requests":{"cpu":"150m"}}}]}}}}`},
			"150m", "spec.containers[app].image",
		},
		{
			"rollout restart", "", []string{"rollout", "restart", "deployment/web"},
			"100m", "metadata.annotations[kubectl.kubernetes.io/restartedAt]",
		},
		{
			"RestartOnly", "annotations: {" + setPolicy + ": cpu=RestartOnly}",
			[]string{"set", "resources", "deployment/web", "--requests=cpu=150m"},
			"150m", "cpu of app: RestartOnly (annotation cpu)",
		},
		{
			"action Restart", "annotations: {" + setAction + ": Restart}",
			[]string{"set", "resources", "deployment/web", "--requests=cpu=150m"},
			"150m", "",
		},
		{
			"QoS class", "", []string{"set", "resources", "deployment/web", "--requests=cpu=200m,memory=200Mi"},
			"200m", "the QoS class would change from Burstable to Guaranteed",
		},
		{
			"removed limit", "",
			[]string{"patch", "deployment/web", "--type=json", "--patch", `[{"op":"remove","path":"/spec/template/spec/containers/0/resources/limits/memory"}]`},
			"100m", "app: the memory limit is removed",
		},
	} {
		t.Run(edit.name, func(t *testing.T) {
			d := newDeployment(t, options{Meta: edit.meta})
			d.waitComplete()
			before, first := d.uids(), d.active().Name
			d.markAudit()
			d.kubectl(edit.args...)
			d.waitComplete()
			d.assertSettled(edit.cpu)
			d.assertAllReplaced(before)
			if d.active().Name == first {
				t.Errorf("ReplicaSet %s still has the pods", first)
			}
			if took := d.untilRelease(); took > 10*time.Second { // usually 0.2 s; nothing is waited for
				t.Errorf("let go %s after the edit", took)
			} else {
				t.Logf("let go %s after the edit", took)
			}
			if got := only(d.writes(), "patch pods/resize"); len(got) > 0 {
				t.Errorf("resized %v", got)
			}
			d.waitEvent("HandedOver", edit.why)
			d.assertProgressing()
			if n := len(d.history()); n != 2 {
				t.Errorf("%d revisions, want two: %s", n, summary(d.replicaSets()))
			}
		})
	}
}

// untilRelease is how long the first hold since markAudit lasted.
func (d *deployment) untilRelease() time.Duration {
	d.t.Helper()
	versions := d.versions()
	edit := slices.IndexFunc(versions, func(v version[*appsv1.Deployment]) bool { return held(v.workload) })
	if edit < 0 {
		d.t.Fatal("it was never held")
	}
	after := versions[edit:]
	release := slices.IndexFunc(after, func(v version[*appsv1.Deployment]) bool { return v.user == controller.User && !held(v.workload) })
	if release < 0 {
		d.t.Fatal("it was never let go by the controller")
	}
	return after[release].written.Sub(versions[edit].received)
}

// TestDeploymentPartlyRestartOnly: each direction has a say, and RestartOnly dominates.
func TestDeploymentPartlyRestartOnly(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Meta: `annotations: {` + setPolicy + `: "cpu=LiveResizeable, app/memory:decrease=RestartOnly"}`})
	before := d.uids()
	d.setResources("cpu=150m,memory=120Mi", "") // memory grows: live
	d.waitComplete()
	d.assertMoved(before, "150m")
	d.setResources("cpu=180m,memory=110Mi", "") // memory shrinks: it dominates
	d.waitComplete()
	d.assertSettled("180m")
	d.assertAllReplaced(before)
	d.waitEvent("HandedOver", "memory of app: RestartOnly (annotation app/memory:decrease)")
}

// notReady is a new image whose pods are not Ready until somebody says so.
const notReady = `{"spec":{"template":{"metadata":{"annotations":{"sim.inplace-rollout.io/ready":"false"}},"spec":{"containers":[{"name":"app","image":"app:2"}]}}}}`

// waitImage waits until n pods run the image, and returns their names.
func (d *deployment) waitImage(image string, n int) []string {
	d.t.Helper()
	var names []string
	eventually(d.t, "pods to run "+image, func() (bool, string) {
		names = nil
		for name, pod := range d.pods() {
			if pod.Spec.Containers[0].Image == image && pod.Status.Phase == corev1.PodRunning {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return len(names) == n, summary(d.replicaSets())
	})
	return names
}

// readyUntilComplete says of each pod that is not Ready that it is, until the rollout is complete.
func (d *deployment) readyUntilComplete() {
	d.t.Helper()
	eventually(d.t, "the rollout to complete", func() (bool, string) {
		for name, pod := range d.pods() {
			if pod.Status.Phase == corev1.PodRunning && !podutils.IsPodReady(&pod) {
				// It may be gone by now.
				_ = d.try(d.t, "annotate", "pod", name, "sim.inplace-rollout.io/ready-")
			}
		}
		got := d.get()
		_, reason, message := complete(got)
		return reason == "Complete" && rolledOut(got), reason + ": " + message + "; " + summary(d.replicaSets())
	})
}

// TestDeploymentResourcesDuringAnImageRollout: the new image's pods are resized, and
// the Deployment controller replaces the others, at the new size at once.
func TestDeploymentResourcesDuringAnImageRollout(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 4, Spec: "strategy: {rollingUpdate: {maxSurge: 2, maxUnavailable: 0}}"})
	old := d.uids()
	d.patch(notReady)
	renewed := d.waitImage("app:2", 2)
	before := d.uids()
	d.markAudit()

	d.setResources("cpu=150m", "")
	for _, name := range renewed {
		d.waitSize(name, "150m")
	}
	d.readyUntilComplete()

	d.assertSettled("150m")
	after := d.uids()
	for _, name := range renewed {
		if after[name] != before[name] {
			t.Errorf("%s of the new image was replaced", name)
		}
	}
	d.assertAllReplaced(old)
	if created := d.podsWritten("create"); len(created) != 2 {
		t.Errorf("created %v, want two pods besides %v", created, renewed)
	}
	for _, name := range only(d.writes(), "patch pods/resize") {
		if !slices.Contains(renewed, name) {
			t.Errorf("%s was resized, which is replaced anyway or born at the new size", name)
		}
	}
}

// TestDeploymentImageDuringAResize: the image wins; nobody waits for the resize.
func TestDeploymentImageDuringAResize(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{})
	before := d.uids()
	for name := range before {
		d.annotatePod(name, simNever)
	}
	d.setResources("cpu=150m", "")
	d.waitCondition("Progressing", "")
	d.kubectl("set", "image", d.ref, "app=app:2")
	d.waitComplete()
	d.assertSettled("150m")
	d.assertAllReplaced(before)
}

// TestDeploymentUndoOfAStuckImage: undo is refused by kubectl only while held; a
// stuck image rollout is not held, and going back keeps the old pods.
func TestDeploymentUndoOfAStuckImage(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 4, Spec: "strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}"})
	before := d.uids()
	d.patch(notReady)
	d.waitImage("app:2", 1)
	d.kubectl("rollout", "undo", d.ref)
	d.waitComplete()
	d.assertMoved(before, "100m")
}

// TestDeploymentOptInDuringABuiltInRollout: what the built-in rollout has left
// behind is resized, where it needs no restart.
func TestDeploymentOptInDuringABuiltInRollout(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 4, OptedOut: true, Spec: "{minReadySeconds: 4, strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}}"})
	d.setResources("cpu=150m", "")
	eventually(t, "the built-in rollout to make its first pod", func() (bool, string) {
		return len(d.pods()) == 5, summary(d.replicaSets())
	})
	d.kubectl("label", "--overwrite", d.ref, enabled+"=true")
	d.waitComplete()
	d.assertSettled("150m")
	d.assertReplicaSets(2)
}
