package main

import (
	"bytes"
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/podchecks"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestPlanGuard: plan says how a rollout will be guarded, in words and as data.
func TestPlanGuard(t *testing.T) {
	answerable := func([]string) string { return "" }
	const stops = "After a failure no other pod follows."
	for _, tt := range []struct {
		annotations map[string]string
		pods, large int // of those the second ones are of a class of their own
		comes       judge.Forecast
		want        string
	}{
		{map[string]string{api.CanaryAnnotation: "10%"}, 15, 0, judge.Live, "Guarded: 2 pods first, the others when they have been Ready for 1m30s. " + stops},
		{map[string]string{api.CanaryAnnotation: "10%"}, 20, 2, judge.Live, "Guarded: 3 pods first, the others when they have been Ready for 1m30s. " + stops},
		{map[string]string{api.CanaryAnnotation: "5", api.CanaryDurationAnnotation: "manual", api.OnFailureAnnotation: "Revert"}, 3, 0, judge.ContainerRestart,
			"Guarded: 3 pods first, the others when the rollout is promoted. After a failure no other pod follows, and those with the new size go back."},
		{map[string]string{api.CanaryAnnotation: "1"}, 3, 0, judge.PodRestart, "Guarded: 1 pod first, the others when it has been Ready for 1m30s. " + stops},
		{map[string]string{api.ChecksAnnotation: "a, b"}, 3, 0, judge.Deferred, "After a failure no other pod follows; checks: a, b."},
		{map[string]string{api.CanaryAnnotation: "1"}, 3, 0, judge.AfterDelete, ""},
		{nil, 3, 0, judge.Live, ""},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"minReadySeconds": int64(90)}}}
		u.SetLabels(map[string]string{api.EnabledLabel: "true"})
		settings := must.Get(policy.Read(tt.annotations))(t)
		f := rollout.WorkloadForecast{Pods: make([]judge.PodForecast, tt.pods)}
		for i := range f.Pods {
			if f.Pods[i].Forecast = tt.comes; i < tt.large {
				f.Pods[i].Member.Class = "large"
			}
		}
		said := ""
		if g := guardOf(u, settings.Guard, f, answerable); g != nil {
			said = g.String()
		}
		must.Equal(t, said, tt.want, "%v", tt.annotations)
	}
}

// TestNext: people are told what comes next in a guarded rollout.
func TestNext(t *testing.T) {
	s := canaryStage(t)
	there := podchecks.UnanswerableBy([]string{"a", "b"}, false)
	s.pods[2].CreationTimestamp = metav1.NewTime(now.Add(-5 * time.Minute))
	for _, tt := range []struct {
		change      func(*rollout.Record)
		annotations map[string]string
		want        string
	}{
		{nil, nil, "Canary: web-2, watched at its new size for 60s. The others follow when it has been Ready for 10m0s, in 9m."},
		{nil, map[string]string{api.ChecksAnnotation: "a, b"}, "Canary: web-2, watched at its new size for 60s. The others follow when it has been Ready for 10m0s, in 9m, and has passed a, b."},
		{nil, map[string]string{api.ChecksAnnotation: "a, c"}, "Canary: web-2, watched at its new size for 60s. No further pod is resized before the checks are mended: there is no check c."},
		{func(r *rollout.Record) { r.Canaries = nil }, map[string]string{api.ChecksAnnotation: "c"}, "No further pod is resized before the checks are mended: there is no check c."},
		{func(r *rollout.Record) { r.Promoted = true }, map[string]string{api.ChecksAnnotation: "c"}, "Canary: web-2, watched at its new size for 60s. No further pod is resized before the checks are mended: there is no check c."},
		{func(r *rollout.Record) { r.Phase = rollout.PhaseRolling }, map[string]string{api.ChecksAnnotation: "c"}, "No further pod is resized before the checks are mended: there is no check c."},
		{nil, map[string]string{api.CanaryDurationAnnotation: "manual"}, "Canary: web-2, watched at its new size for 60s. The others follow when you promote it."},
		{func(r *rollout.Record) { r.Promoted = true }, nil, "Canary: web-2, watched at its new size for 60s. It was promoted: the others follow."},
		{func(r *rollout.Record) { r.Canaries[0].Ready++ }, nil, "Canary: web-2, watched at its new size for 60s. The others follow when it has been Ready for 10m0s."},
		{func(r *rollout.Record) { r.Canaries[0].Done, r.Canaries[0].Well = nil, nil }, nil, "Canary: web-2, asked. The others follow when it has been Ready for 10m0s."},
		{func(r *rollout.Record) { r.Canaries, r.Began = nil, metav1.NewTime(now) }, nil, "Canary: no resize has been requested yet."},
		{func(r *rollout.Record) { r.Canaries, r.Began = nil, metav1.NewTime(now.Add(-6*time.Minute)) }, nil, "Canary: web-2, created 5m ago. The others follow when it has been Ready for 10m0s."},
		{func(r *rollout.Record) { r.Phase = rollout.PhaseRolling }, nil, "Complete when each pod has been Ready at its new size for 10m0s."},
		{func(r *rollout.Record) { r.Phase = rollout.PhaseReverting }, nil, "The pods go back to their size from before."},
		{func(r *rollout.Record) { r.Phase = rollout.PhaseReverted }, nil, "The pods that have gone back stay so until you edit, undo or retry."},
	} {
		u := s.live(t)
		record := must.Get(rollout.ReadRecord(u.GetAnnotations()))(t)
		if tt.change != nil {
			tt.change(record)
		}
		annotations := u.GetAnnotations()
		maps.Copy(annotations, tt.annotations)
		annotations[api.RolloutAnnotation] = record.String()
		settings := must.Get(policy.Read(annotations))(t)
		u.SetAnnotations(annotations)
		pod := judge.PodForecast{Member: judge.Member{Place: judge.Place{Pod: s.pods[2], Updated: true}}, Observed: resize.Actuated}
		if got := recordedOf(u, settings.Guard, rollout.WorkloadForecast{Pods: []judge.PodForecast{pod}}, there, now).next(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// TestPromote: whoever promotes a canary again hears that it was promoted, also when the controller has seen that.
func TestPromote(t *testing.T) {
	s, out := canaryStage(t), &bytes.Buffer{}
	o := promoteOptions{s.cluster(t)}
	u := s.live(t)
	for range 2 {
		must.Do(t, o.run(t.Context(), out, u))
		u = must.Get(o.get(t.Context(), u))(t)
	}
	r := must.Get(rollout.ReadRecord(u.GetAnnotations()))(t)
	r.Phase, r.Promoted = rollout.PhaseRolling, true
	u.SetAnnotations(map[string]string{api.RolloutAnnotation: r.String()})
	must.Do(t, o.run(t.Context(), out, u))
	const canary = "statefulset.apps/web: its canary "
	const follow, already = ", and the other pods follow as soon as they can: see status\n", canary + "was promoted already"
	if got := out.String(); got != canary+"is over"+follow+already+follow+already+follow {
		t.Error(got)
	}
	for annotation, value := range map[string]string{api.ResizeActionAnnotation: "Restart", api.ResizePolicyAnnotation: "cpu=RestartOnly", api.InForceAnnotation: "Restart;"} {
		d := u.DeepCopy()
		d.SetKind("Deployment")
		d.SetAnnotations(map[string]string{annotation: value})
		if got := o.follow(t.Context(), d); got != "and the other pods follow, those that are restarted when it has been Ready for its duration" {
			t.Errorf("of a Deployment with %s: %s, it says %s", annotation, value, got)
		}
	}
	for checks, then := range map[string]string{
		"memory":  follow,
		"latency": ", but no other pod is resized before the checks are mended: there is no check latency\n",
	} {
		s := changed(canaryStage, heartbeat("", "memory"), guarded(checks))(t)
		out.Reset()
		if must.Do(t, promoteOptions{s.cluster(t)}.run(t.Context(), out, s.live(t))); out.String() != canary+"is over"+then {
			t.Error(out)
		}
	}
	r.Promoted = false
	u.SetAnnotations(map[string]string{api.RolloutAnnotation: r.String()})
	must.Fails(t, "after a canary that passed", o.run(t.Context(), out, u), "it has no canary under way")
}
