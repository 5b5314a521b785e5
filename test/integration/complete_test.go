//go:build integration

package integration

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// waitSays waits until the condition says Complete with this message.
func (s *sandbox[W]) waitSays(message string) {
	s.t.Helper()
	s.waitFor("the condition Complete with "+message, func(workload W) bool {
		status, _, got := complete(workload)
		return status == corev1.ConditionTrue && got == message
	})
}

// ofRevision is what the condition says of pods that are of the newest revision.
func ofRevision(set *appsv1.StatefulSet, n, of int) string {
	return fmt.Sprintf("%d of %d pods are of revision %s", n, of, set.Status.UpdateRevision)
}

// TestOnDeleteEditedWhileOptedOut: Complete was said of another revision.
func TestOnDeleteEditedWhileOptedOut(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Spec: "updateStrategy: {type: OnDelete}"})
	w.waitComplete()
	before := w.uids()
	w.kubectl("label", w.ref, enabled+"-")
	w.setResources("cpu=150m", "")
	w.waitFor("the pods to be stale", func(set *appsv1.StatefulSet) bool {
		return observed(set) && set.Status.UpdatedReplicas == 0
	})
	w.kubectl("label", w.ref, enabled+"=true")
	w.waitSays(ofRevision(w.get(), 3, 3))
	w.assertMoved(0)
	w.assertReplaced(before)
}

// TestPartitionThenOnDelete: Complete was said of a partition that OnDelete does not know.
func TestPartitionThenOnDelete(t *testing.T) {
	for name, restart := range map[string]bool{"the same controller": false, "a restarted controller": true} {
		t.Run(name, func(t *testing.T) {
			process := ownController(t, controller.Options{})
			w := newWorkload(t, options{Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 3}}"})
			before := w.uids()
			w.setResources("cpu=150m", "")
			w.waitFor("the new revision", func(set *appsv1.StatefulSet) bool {
				return observed(set) && set.Status.UpdateRevision != set.Status.CurrentRevision
			})
			w.waitSays(ofRevision(w.get(), 0, 3) + "; partition 3 keeps back the others")
			if restart {
				process.Stop()
			}
			w.patch(`{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`)
			if restart {
				w.waitFor("the StatefulSet controller to look", observed)
				if status, reason, _ := complete(w.get()); status != corev1.ConditionFalse {
					t.Errorf("nobody has looked at the pods, and the condition is %s: %s", status, reason)
				}
				ownController(t, controller.Options{})
			}
			w.waitSays(ofRevision(w.get(), 3, 3))
			w.assertMoved(0)
			w.assertReplaced(before)
		})
	}
}

// TestUndoneAndReleasedWithoutController: what the abandoned edit has left is resized back, though
// nothing is held any more, and only then it is Complete.
func TestUndoneAndReleasedWithoutController(t *testing.T) {
	t.Run("StatefulSet", func(t *testing.T) {
		process := ownController(t, controller.Options{})
		w := newWorkload(t, options{})
		w.waitComplete()
		before, label := w.uids(), w.pods()["web-2"].Labels[appsv1.ControllerRevisionHashLabelKey]
		w.annotatePod("web-1", simLasting)
		w.begin("150m", "web-1") // web-2 has it
		w.waitPod("web-2", "to have the label, too", func(pod corev1.Pod) bool { return pod.Labels[appsv1.ControllerRevisionHashLabelKey] != label })
		w.abandon(process)
		w.waitPod("web-2", "to be replaced by the StatefulSet controller: it was of the abandoned revision", func(pod corev1.Pod) bool { return pod.UID != before["web-2"] })
		ownController(t, controller.Options{})
		w.waitFor("the old revision", func(set *appsv1.StatefulSet) bool { return set.Status.UpdatedReplicas > 0 })
		w.annotatePod("web-1", simAccepted)
		w.waitSays(ofRevision(w.get(), 3, 3))
		w.assertMoved(0)
		w.assertReplaced(before, "web-2")
	})
	t.Run("Deployment", func(t *testing.T) {
		process := ownController(t, controller.Options{})
		d := newDeployment(t, options{})
		d.waitComplete()
		before := d.uids()
		slow := d.names()[0]
		d.annotatePod(slow, simLasting)
		d.begin("150m", slow)
		d.abandon(process)
		ownController(t, controller.Options{})
		d.annotatePod(slow, simAccepted)
		d.waitComplete()
		d.assertMoved(before, "100m")
	})
}

// abandon has an edit undone and let go of while no controller runs.
func (s *sandbox[W]) abandon(process *controller.Process) {
	s.t.Helper()
	process.Stop()
	s.setResources("cpu=100m", "")
	if got := s.run("release", s.ref, "--yes"); got.code != 0 || held(s.get()) {
		s.t.Fatalf("releasing it ended with %d: %s", got.code, got.stderr)
	}
}

// TestMessageFollowsTheReplicas: Complete stays, and says how many pods there are, without a
// write for each of them.
func TestMessageFollowsTheReplicas(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{})
	d := newDeployment(t, options{})
	w.waitSays(ofRevision(w.get(), 3, 3))
	d.waitSays("3 of 3 pods are of revision 1")
	w.markAudit()
	d.markAudit()
	for _, n := range []int{7, 2} {
		w.kubectl("scale", w.ref, fmt.Sprintf("--replicas=%d", n))
		d.kubectl("scale", d.ref, fmt.Sprintf("--replicas=%d", n))
		w.waitSays(ofRevision(w.get(), n, n))
		d.waitSays(fmt.Sprintf("%d of %d pods are of revision 1", n, n))
	}
	w.kubectl("delete", "pod", "web-0")
	w.waitAvailable()
	d.kubectl("delete", "pod", d.names()[0])
	d.waitRolledOut()
	w.assertStayedComplete()
	d.assertStayedComplete()
	for _, writes := range [][]string{w.writes(), d.writes()} {
		if len(writes) > 4 { // two for each scaling at the most
			t.Errorf("the controller wrote %q", writes)
		}
	}
}

// assertStayedComplete checks that nobody has taken Complete back since markAudit.
func (s *sandbox[W]) assertStayedComplete() {
	s.t.Helper()
	for _, e := range s.audited(succeeded, func(e *auditv1.Event) bool { return e.ObjectRef.Subresource == "status" && e.ResponseObject != nil }) {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(e.ResponseObject.Raw); err != nil {
			s.t.Fatal(err)
		}
		if u.GetKind() != s.kind {
			continue
		}
		conditions, _, err := unstructured.NestedSlice(u.Object, "status", "conditions")
		if err != nil {
			s.t.Fatal(err)
		}
		for _, c := range conditions {
			if c, is := c.(map[string]any); is && c["type"] == api.ConditionComplete && c["status"] != "True" {
				s.t.Errorf("%s wrote %v", e.User.Username, c)
			}
		}
	}
}
