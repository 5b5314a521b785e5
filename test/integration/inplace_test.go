//go:build integration

package integration

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
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
	w.waitEvent("RolloutComplete", "5 of 5 pods")
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
}

func TestOptInWhilePodsLagBehind(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{OptedOut: true, Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 2}}"})
	before := w.uids()
	w.setResources("cpu=150m", "")
	w.waitFor("the built-in rollout to replace the first pod", func(set *appsv1.StatefulSet) bool {
		return observed(set) && set.Status.UpdatedReplicas == 1 && set.Status.ReadyReplicas == 3
	})
	w.patch(`{"metadata":{"labels":{"inplace-rollout.io/enabled":"true"}},"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`)
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-2")
}

func TestReapplies(t *testing.T) {
	parallel(t)
	o := options{Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0}}"}
	w := newWorkload(t, o)
	before := w.uids()
	w.reapply(o)
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
	// The field is still the user's: another value conflicts with nobody.
	o.Resources, o.Spec = largerThanBase, "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 3}}"
	w.apply(manifest(t, w.namespace, o))
	if got := *w.get().Spec.UpdateStrategy.RollingUpdate.Partition; got != 3 {
		t.Errorf("partition %d, want 3", got)
	}
}

// reapply applies a larger size again and again while a pod holds the rollout up.
func (s *sandbox[W]) reapply(o options) {
	s.t.Helper()
	slow := s.names()[0]
	s.annotatePod(slow, simLasting)
	o.Kind, o.Resources = s.kind, largerThanBase
	for range 10 {
		s.apply(manifest(s.t, s.namespace, o))
		if !held(s.get()) {
			s.t.Fatal("not held any more")
		}
	}
	s.annotatePod(slow, simAccepted)
}

func TestImageChange(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{})
	before := w.uids()
	edited := time.Now()
	w.kubectl("set", "image", "statefulset/web", "app=app:2")
	w.waitFor("the hold to be let go", func(set *appsv1.StatefulSet) bool { return !held(set) })
	t.Logf("handed over %s after kubectl was started", time.Since(edited).Round(time.Millisecond))
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-0", "web-1", "web-2")
	w.waitEvent("HandedOver", "spec.containers[app].image")
	w.assertWarns("HandedOver", false) // it was asked for
	if got := only(w.writes(), "patch pods/resize"); len(got) > 0 {
		t.Errorf("resized %v", got)
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
