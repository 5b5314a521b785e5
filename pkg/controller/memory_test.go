package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/podchecks"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// asking is of which workloads checks are asked.
type asking map[string]bool

func (a asking) Ask(workload string, _ []string, pods []podchecks.Subject, _ func()) {
	a[workload] = len(pods) > 0
}
func (asking) Outcomes(string) podchecks.Outcomes { return podchecks.Outcomes{} }
func (asking) Unanswerable([]string) string       { return "" }

// TestMemory: what is remembered of a workload, and asked about its pods, outlives the session that was put away for room, and
// no other end of it.
func TestMemory(t *testing.T) {
	for _, tt := range []struct {
		name string
		then func(t *testing.T, e *engine)
		kept bool
	}{
		{"its session is put away for that of another", putAway, true},
		{"it is at rest", func(t *testing.T, e *engine) {
			e.sync(t, &rollout.StoredCondition{Status: corev1.ConditionTrue, Message: it.Message(), Of: it.Of()}, true)
		}, false},
		{"it is opted out", func(t *testing.T, e *engine) { e.sync(t, nil, false) }, false},
		{"it is about to be deleted", func(t *testing.T, e *engine) {
			e.w.DeletionTimestamp = &metav1.Time{Time: build.Start}
			e.sync(t, nil, true)
		}, false},
		{"it is gone", func(t *testing.T, e *engine) {
			must.Get(e.Sync(t.Context(), e.session.name))(t)
		}, false},
		{"it is made anew", func(_ *testing.T, e *engine) { e.w.UID = "another" }, false},
		{"it is made anew", func(t *testing.T, e *engine) {
			putAway(t, e)
			e.w.UID = "another"
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asks := asking{}
			e := newEngine(t, Options{Sessions: 1, Checks: asks, Ready: func() error { return nil }})
			before := e.open(t)
			before.ask(rollout.Plan{Step: rollout.Step{Subjects: []rollout.Subject{{Pod: build.Pod("web-0", build.Size(t, ""))}}}})
			now := e.clock.Now()
			before.Notes.See([]*judge.Verdict{{Member: judge.Member{
				Place: judge.Place{Pod: build.Pod("web-0", build.Size(t, ""))}, Sighting: judge.Sighting{State: resize.Deferred, Since: now},
			}}})
			before.Notes.Note("a").Size = &judge.Refused{Refusal: judge.Refusal{Reason: "quota"}}
			before.History.Add("b", "", judge.Refusal{Reason: "quota"}, now)
			before.retry(&metav1.ObjectMeta{Annotations: map[string]string{api.RetryAnnotation: "1"}})
			before.waiting = map[string]int{judge.ReasonDeferred: 1}
			tt.then(t, e)
			if e.waiting()[judge.ReasonDeferred] == 1 != tt.kept && tt.name != "it is made anew" {
				t.Errorf("metrics count %v", e.waiting())
			}
			if !tt.kept && tt.name != "it is made anew" && len(e.sessions) > 0 {
				t.Error("its session goes on")
			}
			e.pass(time.Hour)
			after := e.open(t)
			since := after.Notes.Sighted("uid-of-web-0").Since
			if kept := after.memory == before.memory; kept != tt.kept || (after.retried == "1") != tt.kept || since.Equal(now) != tt.kept || len(e.memories) > 2 || asks["Plain default/web"] != tt.kept {
				t.Errorf("remembered is %+v, seen since %s, asked %v", after.memory, since, asks)
			}
		})
	}
}

// putAway has the session put away for that of another workload.
func putAway(t *testing.T, e *engine) {
	other := e.w.DeepCopy()
	other.Name, other.UID = "other", "other"
	e.openNext(e.session.name) // its sync has ended
	must.Get(e.Controller.session(t.Context(), other))(t)
	if e.sessions[e.session.name] != nil || len(e.sessions) != 1 {
		t.Fatalf("there are %d sessions", len(e.sessions))
	}
}

// open returns the session of the workload.
func (e *engine) open(t *testing.T) *Session[*appsv1.ReplicaSet, plainState] {
	t.Helper()
	return must.Get(e.Controller.session(t.Context(), e.w))(t)
}

// sync syncs the workload as it is when nobody holds it.
func (e *engine) sync(t *testing.T, have *rollout.StoredCondition, enabled bool) {
	t.Helper()
	e.kind.condition, e.w.Annotations, e.w.Labels = have, nil, map[string]string{api.EnabledLabel: fmt.Sprint(enabled)}
	must.Do(t, e.informer.GetStore().Add(e.w))
	must.Get(e.Sync(t.Context(), e.session.name))(t)
}

// TestDisplaced: where the edit has displaced what somebody else had given a pod, its pods are watched for a while when the
// rollout is over, and one that is put back is asked once more. Elsewhere the session ends with the rollout.
func TestDisplaced(t *testing.T) {
	const timeout = 5 * time.Minute
	older, newer := build.Size(t, "requests: {cpu: 100m}"), build.Size(t, "requests: {cpu: 150m}")
	restarts := build.Template(t, "containers: [{name: app, resources: {requests: {cpu: 100m}}, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]}]")
	putBack := func(template *corev1.PodTemplateSpec) *corev1.Pod {
		return build.Pod("web-0", template, build.ResizedBy("manager", build.Start, build.CPURequest))
	}
	for _, tt := range []struct {
		name    string
		pod     *corev1.Pod
		nothing bool // was displaced
		refused error
		asked   int
		kept    bool // the session, before the time is over
	}{
		{name: "nothing is displaced", pod: putBack(older), nothing: true},
		{name: "not put back", pod: build.Pod("web-0", newer, build.Ours(build.CPURequest)), kept: true},
		{name: "put back", pod: putBack(older), asked: 1},
		{name: "put back, and refused", pod: putBack(older), refused: apierrors.NewForbidden(schema.GroupResource{}, "web-0", nil), asked: 1},
		{name: "put back, and changed meanwhile", pod: putBack(older), refused: apierrors.NewConflict(schema.GroupResource{}, "web-0", nil), asked: 2, kept: true},
		{name: "put back, and no answer", pod: putBack(older), refused: apierrors.NewServerTimeout(schema.GroupResource{}, "patch", 0), asked: 2, kept: true},
		{name: "its container would be restarted", pod: putBack(restarts), kept: true},
		{name: "it goes", pod: build.Pod("web-0", older, build.ResizedBy("manager", build.Start, build.CPURequest), build.Terminating), kept: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newEngine(t, Options{Ready: func() error { return nil }, Defaults: policy.Defaults{BoosterTimeout: timeout}})
			client, asked := fake.NewClientset(tt.pod), 0
			client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				asked++
				return true, build.Pod("web-0", newer, build.Ours(build.CPURequest)), tt.refused
			})
			s := e.open(t)
			e.watches(t, s, client)
			must.Do(t, wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return s.Pods.HasSynced(), nil }))
			edit := must.Get(resize.For(build.Pod("web-0", older, build.Resized(build.Size(t, "requests: {cpu: 500m}"))), older, newer))(t)
			if !tt.nothing {
				s.Notes.Note(tt.pod.UID).Displace(edit.Displaced)
			}
			s.Notes.Over(e.clock.Now().Add(timeout))
			over := &rollout.StoredCondition{Status: corev1.ConditionTrue, Message: it.Message(), Of: it.Of()}
			e.pass(timeout - time.Second)
			for range 2 {
				e.kind.condition, e.w.Annotations = over, nil
				must.Do(t, e.informer.GetStore().Add(e.w))
				_, _ = e.Sync(t.Context(), e.session.name) // an error has it tried again
			}
			if kept := e.sessions[e.session.name] != nil; asked != tt.asked || kept != tt.kept {
				t.Errorf("asked %d times, and the session is kept: %t", asked, kept)
			}
			e.pass(time.Second)
			e.sync(t, over, true)
			if asked != tt.asked || e.sessions[e.session.name] != nil {
				t.Errorf("after that time: asked %d times, session %v", asked, e.sessions[e.session.name])
			}
		})
	}
}
