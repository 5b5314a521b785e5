//go:build integration

package integration

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// simAllDeferred has pods wait for room on their nodes, and deferredFor gives them up later than a
// test takes that asks how long others wait for them.
const (
	simAllDeferred = "annotations: {sim.inplace-rollout.io/resize: deferred}"
	deferredFor    = "annotations: {inplace-rollout.io/deferred-timeout: 90s}"
)

// TestAllDeferred: where no node has room, nothing is down. So where pods have no order, nobody waits
// for those before: all are asked at once, and not one after the other's deadline.
func TestAllDeferred(t *testing.T) {
	parallel(t)
	t.Run("DaemonSet", func(t *testing.T) {
		parallel(t)
		d := newDaemonSet(t, options{Replicas: 4, Meta: deferredFor, PodMeta: simAllDeferred})
		before := d.uids()
		allAsked(t, d.sandbox)
		d.assertMoved(before, "150m")
	})
	t.Run("Deployment", func(t *testing.T) {
		parallel(t)
		d := newDeployment(t, options{Replicas: 4, Meta: deferredFor, PodMeta: simAllDeferred, Spec: "strategy: {rollingUpdate: {maxUnavailable: 1, maxSurge: 0}}"})
		before := d.uids()
		allAsked(t, d.sandbox)
		d.assertMoved(before, "150m")
	})
	t.Run("Parallel", func(t *testing.T) {
		parallel(t)
		w := newWorkload(t, options{Replicas: 4, Meta: deferredFor, PodMeta: simAllDeferred, Spec: "podManagementPolicy: Parallel"})
		before := w.uids()
		allAsked(t, w.sandbox)
		w.assertMoved(0)
		w.assertReplaced(before)
	})
}

func allAsked[W metav1.Object](t *testing.T, s *sandbox[W]) {
	t.Helper()
	s.setResources("cpu=150m", "")
	asked := func() []string { return only(s.writes(), "patch pods/resize") }
	eventually(t, "all to be asked", func() (bool, string) { return len(asked()) == 4, fmt.Sprint(asked()) })
	s.waitCondition("Deferred", "0 of 4 pods resized")
	var first, last time.Time
	for name := range s.pods() {
		for _, at := range s.audit("patch", "pods", "resize", name) {
			if first.IsZero() || at.Before(first) {
				first = at
			}
			if at.After(last) {
				last = at
			}
		}
	}
	if took := last.Sub(first); took > 20*time.Second {
		t.Errorf("the last pod was asked %s after the first", took)
	}
	for name := range s.pods() {
		s.annotatePod(name, "sim.inplace-rollout.io/resize-")
	}
	s.waitComplete()
}

// TestDeferredInOrder: an OrderedReady set keeps its order; and where the resize restarts a container, or
// takes something from the pod, pods wait for each other, or they could go down together as soon as their
// nodes have room.
func TestDeferredInOrder(t *testing.T) {
	parallel(t)
	t.Run("OrderedReady", func(t *testing.T) {
		parallel(t)
		oneAsked(t, newWorkload(t, options{Meta: deferredFor, PodMeta: simAllDeferred}).sandbox, "cpu=100m,memory=150Mi", "")
	})
	t.Run("RestartContainer", func(t *testing.T) {
		parallel(t)
		oneAsked(t, newDaemonSet(t, options{Meta: deferredFor, PodMeta: simAllDeferred, Pod: restartsForMemory}).sandbox, "cpu=100m,memory=150Mi", "")
	})
	t.Run("LowerLimit", func(t *testing.T) {
		parallel(t)
		oneAsked(t, newDeployment(t, options{Meta: deferredFor, PodMeta: simAllDeferred}).sandbox, "cpu=150m", "memory=150Mi")
	})
}

func oneAsked[W metav1.Object](t *testing.T, s *sandbox[W], requests, limits string) {
	t.Helper()
	s.setResources(requests, limits)
	s.waitCondition("Deferred", "deferred on node")
	time.Sleep(3 * time.Second)
	asked := only(s.writes(), "patch pods/resize")
	if len(asked) != 1 {
		t.Fatalf("asked %v, want one", asked)
	}
}
