//go:build integration

package integration

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// handovers are edits of a workload of which every pod needs a restart anyway, and why.
func handovers(ref string) []handover {
	return []handover{
		{
			"image", "", []string{"set", "image", ref, "app=app:2"},
			"100m", "spec.containers[app].image",
		},
		{
			"image and resources", "",
			[]string{"patch", ref, "--patch", `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"app:2","resources":{"requests":{"cpu":"150m"}}}]}}}}`},
			"150m", "spec.containers[app].image",
		},
		{
			"rollout restart", "", []string{"rollout", "restart", ref},
			"100m", "metadata.annotations[kubectl.kubernetes.io/restartedAt]",
		},
		{
			"RestartOnly", "annotations: {" + setPolicy + ": cpu=RestartOnly}",
			[]string{"set", "resources", ref, "--requests=cpu=150m"},
			"150m", "cpu of app: RestartOnly (annotation cpu)",
		},
		{
			"action Restart", "annotations: {" + setAction + ": Restart}",
			[]string{"set", "resources", ref, "--requests=cpu=150m"},
			"150m", "",
		},
		{
			"QoS class", "", []string{"set", "resources", ref, "--requests=cpu=200m,memory=200Mi"},
			"200m", "the QoS class would change from Burstable to Guaranteed",
		},
	}
}

// handover is an edit that a workload with this metadata leaves to the built-in controller.
type handover struct {
	name, meta string
	args       []string
	cpu, why   string
}

// TestDeploymentHandover: where every pod needs a restart anyway, the built-in
// rollout starts within a second of the edit, and is left alone.
func TestDeploymentHandover(t *testing.T) {
	ownController(t, controller.Options{})
	for _, edit := range handovers("deployment/web") {
		t.Run(edit.name, func(t *testing.T) {
			d := newDeployment(t, options{Meta: edit.meta})
			first := d.active().Name
			d.testHandover(edit, d.assertSettled)
			if d.active().Name == first {
				t.Errorf("ReplicaSet %s still has the pods", first)
			}
			d.assertProgressing()
			if n := len(d.history()); n != 2 {
				t.Errorf("%d revisions, want two: %s", n, summary(d.replicaSets()))
			}
		})
	}
}

// testHandover makes the edit.
func (s *sandbox[W]) testHandover(edit handover, assertSettled func(cpu string)) {
	s.t.Helper()
	s.waitComplete()
	before := s.uids()
	s.markAudit()
	s.kubectl(edit.args...)
	s.waitComplete()
	assertSettled(edit.cpu)
	s.assertAllReplaced(before)
	if took := s.untilRelease(); took > 10*time.Second { // usually 0.2 s; nothing is waited for
		s.t.Errorf("let go %s after the edit", took)
	} else {
		s.t.Logf("let go %s after the edit", took)
	}
	if got := only(s.writes(), "patch pods/resize"); len(got) > 0 {
		s.t.Errorf("resized %v", got)
	}
	s.waitEvent("HandedOver", edit.why)
}

// untilRelease is how long the first hold since markAudit lasted.
func (s *sandbox[W]) untilRelease() time.Duration {
	s.t.Helper()
	versions := s.versions()
	edit := slices.IndexFunc(versions, func(v version[W]) bool { return held(v.workload) })
	if edit < 0 {
		s.t.Fatal("it was never held")
	}
	after := versions[edit:]
	release := slices.IndexFunc(after, func(v version[W]) bool { return v.user == controller.User && !held(v.workload) })
	if release < 0 {
		s.t.Fatal("it was never let go by the controller")
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
	d.assertWarns("HandedOver", true)
}

// notReady is a new image whose pods are not Ready until somebody says so.
const notReady = `{"spec":{"template":{"metadata":{"annotations":{"sim.inplace-rollout.io/ready":"false"}},"spec":{"containers":[{"name":"app","image":"app:2"}]}}}}`

// waitImage waits until n pods run the image, and returns their names.
func (s *sandbox[W]) waitImage(image string, n int) []string {
	s.t.Helper()
	var names []string
	eventually(s.t, "pods to run "+image, func() (bool, string) {
		names = nil
		for name, pod := range s.pods() {
			if pod.Spec.Containers[0].Image == image && pod.Status.Phase == corev1.PodRunning {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return len(names) == n, describe(s.get())
	})
	return names
}

// readyUntilComplete says of each pod that is not Ready that it is, until the rollout is complete.
func (s *sandbox[W]) readyUntilComplete(rolledOut func(W) bool) {
	s.t.Helper()
	eventually(s.t, "the rollout to complete", func() (bool, string) {
		for name, pod := range s.pods() {
			if pod.Status.Phase == corev1.PodRunning && !podutils.IsPodReady(&pod) {
				// It may be gone by now.
				_ = s.try(s.t, "annotate", "pod", name, "sim.inplace-rollout.io/ready-")
			}
		}
		got := s.get()
		_, reason, _ := complete(got)
		return reason == "Complete" && rolledOut(got), describe(got)
	})
}

// TestDeploymentResourcesDuringAnImageRollout: the new image's pods are resized, and
// the Deployment controller replaces the others, at the new size at once.
func TestDeploymentResourcesDuringAnImageRollout(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{Replicas: 4, Spec: "strategy: {rollingUpdate: {maxSurge: 2, maxUnavailable: 0}}"})
	d.testResourcesDuringAnImageRollout(rolledOut, d.assertSettled)
}

// testResourcesDuringAnImageRollout edits the resources of four pods when two of them have a new image.
func (s *sandbox[W]) testResourcesDuringAnImageRollout(rolledOut func(W) bool, assertSettled func(cpu string)) {
	s.t.Helper()
	old := s.uids()
	s.patch(notReady)
	renewed := s.waitImage("app:2", 2)
	before := s.uids()
	s.markAudit()

	s.setResources("cpu=150m", "")
	for _, name := range renewed {
		s.waitSize(name, "150m")
	}
	s.readyUntilComplete(rolledOut)

	assertSettled("150m")
	after := s.uids()
	for _, name := range renewed {
		if after[name] != before[name] {
			s.t.Errorf("%s of the new image was replaced", name)
		}
	}
	s.assertAllReplaced(old)
	if created := s.podsWritten("create"); len(created) != 2 {
		s.t.Errorf("created %v, want two pods besides %v", created, renewed)
	}
	for _, name := range only(s.writes(), "patch pods/resize") {
		if !slices.Contains(renewed, name) {
			s.t.Errorf("%s was resized, which is replaced anyway or born at the new size", name)
		}
	}
}

// TestDeploymentImageDuringAResize: the image wins; nobody waits for the resize.
func TestDeploymentImageDuringAResize(t *testing.T) {
	parallel(t)
	d := newDeployment(t, options{})
	before := d.uids()
	for name := range before {
		d.annotatePod(name, simLasting)
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
