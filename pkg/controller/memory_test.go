package controller

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
)

// TestMemory: what is remembered of a workload outlives the session that was put away for room, and
// no other end of it.
func TestMemory(t *testing.T) {
	for _, tt := range []struct {
		name string
		then func(t *testing.T, e *engine)
		kept bool
	}{
		{"its session is put away for that of another", func(t *testing.T, e *engine) {
			other := e.w.DeepCopy()
			other.Name, other.UID = "other", "other"
			e.openNext(e.session.name) // its sync has ended
			if _, err := e.Controller.session(t.Context(), other); err != nil {
				t.Fatal(err)
			}
			if e.sessions[e.session.name] != nil || len(e.sessions) != 1 {
				t.Fatalf("there are %d sessions", len(e.sessions))
			}
		}, true},
		{"it is at rest", func(t *testing.T, e *engine) {
			e.sync(t, &rollout.StoredCondition{Status: corev1.ConditionTrue, Message: it.Message()}, true)
		}, false},
		{"it is opted out", func(t *testing.T, e *engine) { e.sync(t, nil, false) }, false},
		{"it is gone", func(t *testing.T, e *engine) {
			if _, err := e.Sync(t.Context(), e.session.name); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"it is made anew", func(_ *testing.T, e *engine) { e.w.UID = "another" }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newEngine(t, Options{Sessions: 1, Ready: func() error { return nil }})
			before := e.open(t)
			now := e.clock.Now()
			before.seen.See([]*rollout.Verdict{{Member: rollout.Member{
				Place: rollout.Place{Pod: build.Pod("web-0", build.Size(t, ""))}, Sighting: rollout.Sighting{State: resize.Deferred, Since: now},
			}}})
			before.refused.Add("a", "", rollout.Refusal{Reason: "quota"}, now)
			before.History.Add("b", "", rollout.Refusal{Reason: "quota"}, now)
			before.retry(&metav1.ObjectMeta{Annotations: map[string]string{api.RetryAnnotation: "1"}})
			before.waiting = map[string]int{rollout.ReasonDeferred: 1}
			tt.then(t, e)
			if e.waiting()[rollout.ReasonDeferred] == 1 != tt.kept && tt.name != "it is made anew" {
				t.Errorf("metrics count %v", e.waiting())
			}
			e.pass(time.Hour)
			after := e.open(t)
			since := after.seen.Noted("uid-of-web-0").Since
			if kept := after.memory == before.memory; kept != tt.kept || (after.retried == "1") != tt.kept || since.Equal(now) != tt.kept || len(e.memories) > 2 {
				t.Errorf("remembered is %+v, seen since %s", after.memory, since)
			}
		})
	}
}

// open returns the session of the workload.
func (e *engine) open(t *testing.T) *Session[*appsv1.ReplicaSet, plainOwn] {
	t.Helper()
	s, err := e.Controller.session(t.Context(), e.w)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sync syncs the workload as it is when nobody holds it.
func (e *engine) sync(t *testing.T, have *rollout.StoredCondition, enabled bool) {
	t.Helper()
	e.kind.condition, e.w.Annotations, e.w.Labels = have, nil, map[string]string{api.EnabledLabel: fmt.Sprint(enabled)}
	if err := e.informer.GetStore().Add(e.w); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Sync(t.Context(), e.session.name); err != nil {
		t.Fatal(err)
	}
}

// TestForget: what is remembered does not grow with the pods that come and go.
func TestForget(t *testing.T) {
	m := newMemory("web")
	var there []*corev1.Pod
	for i := range 1000 {
		pod := build.Pod(fmt.Sprint(i), build.Size(t, ""))
		there = append(there[max(0, len(there)-9):], pod)
		m.seen.Look(time.Now(), there...)
		m.seen.See([]*rollout.Verdict{{Member: rollout.Member{Place: rollout.Place{Pod: pod}, Sighting: rollout.Sighting{State: resize.Deferred}}}})
		for _, r := range []*rollout.RefusalLog{m.refused, m.full, m.Evictions} {
			r.Add(pod.UID, "", rollout.Refusal{Reason: "too large"}, time.Now())
		}
		m.recorded[pod.UID], m.asked[pod.UID], m.contests[pod.UID] = "Infeasible", request{}, 1
		m.displaced[pod.UID] = displaced{}
		m.forget(there)
	}
	if m.seen.Noted("uid-of-0").State == resize.Deferred || m.seen.Noted("uid-of-999").State != resize.Deferred {
		t.Error("the sighting of the first pod is kept, or that of the last one is not")
	}
	for what, n := range map[string]int{
		"sightings": m.seen.Len(), "refusals": len(m.refused.Known()), "evictions": len(m.Evictions.Known()),
		"events": len(m.recorded), "requests": len(m.asked), "contests": len(m.contests), "displaced": len(m.displaced),
	} {
		if n < 10 || n > 20+fewNotes {
			t.Errorf("%d %s are kept of 10 pods", n, what)
		}
	}
}
