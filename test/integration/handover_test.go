//go:build integration

package integration

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/util/podutils"
)

// TestHandover: where every pod needs a restart anyway, the built-in rollout starts, and is left alone. It alone proves that the
// real built-in controllers do the rest, for each kind.
func TestHandover(t *testing.T) {
	parallel(t)
	for _, edit := range []handover{
		{"StatefulSet", "rollout restart", "", []string{"rollout", "restart"}, "100m", "metadata.annotations[kubectl.kubernetes.io/restartedAt]"},
		{"StatefulSet", "QoS class", "", []string{"set", "resources", "--requests=cpu=200m,memory=200Mi"}, "200m", "the QoS class would change from Burstable to Guaranteed"},
		{"Deployment", "image and resources", "", []string{"patch", "--patch", imageEdit}, "150m", "spec.containers[app].image"},
		{"DaemonSet", "image and resources", "", []string{"patch", "--patch", imageEdit}, "150m", "spec.containers[app].image"},
		{"DaemonSet", "RestartOnly", "annotations: {" + setPolicy + ": cpu=RestartOnly}", []string{"set", "resources", "--requests=cpu=150m"}, "150m", "cpu of app: RestartOnly (annotation cpu)"},
	} {
		t.Run(edit.kind+"/"+edit.name, func(t *testing.T) {
			parallel(t)
			o := options{Replicas: 2, Meta: edit.meta}
			switch edit.kind {
			case "StatefulSet":
				w := newWorkload(t, o)
				testHandover(t, w.sandbox, edit, func(string) { w.assertMoved(0) })
			case "Deployment":
				d := newDeployment(t, o)
				testHandover(t, d.sandbox, edit, d.assertSettled)
				d.assertProgressing()
			case "DaemonSet":
				d := newDaemonSet(t, o)
				testHandover(t, d.sandbox, edit, d.assertSettled)
			}
		})
	}
}

// handover is an edit that a workload with this metadata leaves to the built-in controller.
type handover struct {
	kind, name, meta string
	args             []string
	cpu, why         string
}

func testHandover[W metav1.Object](t *testing.T, s *sandbox[W], edit handover, assertSettled func(cpu string)) {
	t.Helper()
	s.waitComplete()
	before := s.uids()
	s.markAudit()
	s.kubectl(append(edit.args, s.ref)...)
	s.waitComplete()
	assertSettled(edit.cpu)
	s.assertAllReplaced(before)
	if got := only(s.writes(), "patch pods/resize"); len(got) > 0 {
		t.Errorf("resized %v", got)
	}
	s.assertNoRefusals()
	s.waitEvent("HandedOver", edit.why)
	s.assertWarns("HandedOver", edit.name == "QoS class" || edit.name == "RestartOnly") // the others ask for new pods
	if n := len(s.history()); n != 2 {
		t.Errorf("%d revisions, want two", n)
	}
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
