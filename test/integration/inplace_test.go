//go:build integration

package integration

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

func TestResize(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 5})
	before := w.uids()
	w.waitComplete()
	w.markAudit()

	w.setResources("cpu=150m,memory=150Mi", "cpu=300m,memory=300Mi")
	w.waitComplete()

	w.assertMoved(0)
	w.assertReplaced(before)
	if got, want := only(w.writes(), "patch pods/resize"), []string{"web-4", "web-3", "web-2", "web-1", "web-0"}; !slices.Equal(got, want) {
		t.Errorf("resized in the order %v, want %v", got, want)
	}
	w.assertFewWrites(2, 6)
	w.waitEvent("RolloutStarted", "app: cpu request 100m→150m, app: cpu limit 200m→300m, app: memory request 100Mi→150Mi, app: memory limit 200Mi→300Mi")
	w.waitEvent("PodResized", "web-4: resized in place")
	w.waitEvent("RolloutComplete", "all pods")
}

func TestUndo(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{})
	before := w.uids()
	w.setResources("cpu=150m", "")
	w.waitComplete()
	w.assertMoved(0)
	w.kubectl("rollout", "undo", "statefulset/web")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
	if got := w.get().Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String(); got != "100m" {
		t.Errorf("cpu request %s after the undo, want 100m", got)
	}
	if history := w.kubectl("rollout", "history", "statefulset/web"); !strings.Contains(history, "2") || !strings.Contains(history, "3") {
		t.Errorf("the history is\n%s", history)
	}
}

func TestPartition(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 5, Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 2}}"})
	before := w.uids()
	w.setResources("cpu=150m", "")
	w.waitComplete()
	w.assertMoved(2)
	for _, name := range []string{"web-0", "web-1"} {
		if got := w.pods()[name].Spec.Containers[0].Resources.Requests.Cpu().String(); got != "100m" {
			t.Errorf("%s below the partition has cpu request %s", name, got)
		}
	}
	w.patch(`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`)
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)

	// Each step of an image rollout is the StatefulSet controller's, and the answer to each write has its partition.
	w.patch(`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":4}}}}`)
	w.kubectl("set", "image", w.ref, "app=app:2")
	w.waitComplete()
	for _, partition := range []string{"2", "0"} {
		patch := `{"spec":{"updateStrategy":{"rollingUpdate":{"partition":` + partition + `}}}}`
		if got := w.kubectl("patch", w.ref, "--patch", patch, "-o", "jsonpath={.spec.updateStrategy.rollingUpdate.partition}"); strings.TrimSpace(got) != partition {
			t.Errorf("lowered to %s, the partition reads %s", partition, got)
		}
		w.waitComplete()
	}
	w.assertReplaced(before, "web-0", "web-1", "web-2", "web-3", "web-4")
	if _, marked := w.get().Annotations[api.HandedOverAnnotation]; marked {
		t.Error("the mark is left behind")
	}
}

// TestReapplies: a GitOps tool says again and again, of each kind, what the hold changes. The field is still the user's then: another
// value conflicts with nobody.
func TestReapplies(t *testing.T) {
	parallel(t)
	t.Run("StatefulSet", func(t *testing.T) {
		parallel(t)
		w := newWorkload(t, options{Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0}}"})
		reapply(w.sandbox, "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0}}", "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 3}}")
		if got := partitionOf(w.get()); got != "3" {
			t.Errorf("partition %s, want 3", got)
		}
	})
	t.Run("Deployment", func(t *testing.T) {
		parallel(t)
		d := newDeployment(t, options{Spec: "paused: false"})
		reapply(d.sandbox, "paused: false", "paused: true")
		if !d.get().Spec.Paused {
			t.Error("it is not paused by its user")
		}
	})
	t.Run("DaemonSet", func(t *testing.T) {
		parallel(t)
		const limits = "updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}}"
		d := newDaemonSet(t, options{Spec: limits})
		reapply(d.sandbox, limits, "updateStrategy: {type: OnDelete}")
		if got := strategyOf(d.get()); got != "OnDelete" {
			t.Errorf("the strategy is %s, want the user's OnDelete", got)
		}
	})
}

// reapply applies a larger size again and again while a pod holds the rollout up, and another value of the field at last.
func reapply[W metav1.Object](s *sandbox[W], spec, other string) {
	s.t.Helper()
	before, slow := s.uids(), s.names()[0]
	s.annotatePod(slow, simLasting)
	o := options{Kind: s.kind, Resources: largerThanBase, Spec: spec}
	for range 10 {
		s.apply(manifest(s.t, s.namespace, o))
		if !held(s.get()) {
			s.t.Fatal("not held any more")
		}
	}
	s.annotatePod(slow, simAccepted)
	s.waitComplete()
	s.assertReplaced(before)
	for name := range before {
		s.waitSize(name, "150m")
	}
	o.Spec = other
	s.apply(manifest(s.t, s.namespace, o))
	if held(s.get()) {
		s.t.Error("held, and nothing is edited")
	}
}

func TestWithoutTheLabel(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{OptedOut: true})
	before := w.uids()
	w.setResources("cpu=150m", "")
	w.kubectl("rollout", "status", "statefulset/web", "--timeout="+patience.String())
	w.assertReplaced(before, "web-0", "web-1", "web-2")
	if got := w.writes(); len(got) > 0 {
		t.Errorf("the controller wrote %v", got)
	}
	if conditions := w.get().Status.Conditions; len(conditions) > 0 {
		t.Errorf("conditions %v", conditions)
	}
}
