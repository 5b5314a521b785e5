package controller

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
)

// TestFirsts: a label, and a spec, are known since they were first seen, and another one since then.
func TestFirsts(t *testing.T) {
	f, at := Firsts{}, func(minute int) time.Time { return build.Start.Add(time.Duration(minute) * time.Minute) }
	pod := func(label string, generation int64) *corev1.Pod {
		p := build.Pod("web-0", build.Size(t, ""), build.RelabelledAt(at(1000))) // by another clock
		p.Labels[appsv1.ControllerRevisionHashLabelKey], p.Generation = label, generation
		return p
	}
	every := func(*corev1.Pod) bool { return true }
	for _, tt := range []struct {
		minute     int
		label      string
		generation int64
		labelled   int
		specified  int
	}{
		{0, "a", 1, 0, 0},
		{1, "a", 2, 0, 1},
		{2, "a", 2, 0, 1},
		{3, "b", 2, 3, 1},
		{4, "b", 2, 3, 1},
		{5, "a", 3, 5, 5},
	} {
		p := pod(tt.label, tt.generation)
		last, known := f.Relabelled([]*corev1.Pod{p, build.Pod("web-1", build.Size(t, ""))}, every, at(tt.minute))
		if specified := f.specified(p, at(tt.minute)); !known.Equal(at(tt.labelled)) || !last.Equal(at(1000)) || !specified.Equal(at(tt.specified)) {
			t.Errorf("minute %d: labelled since %s, as known since %s, with its spec since %s", tt.minute, last, known, specified)
		}
		f.See(at(tt.minute), p)
	}
	for range 3 * fewNotes {
		p := pod("a", 1)
		p.UID += "x"
		f.See(at(6), p)
		f.forget([]*corev1.Pod{p})
	}
	if len(f) > 2+fewNotes+1 {
		t.Errorf("%d pods are remembered", len(f))
	}
}

// TestBeganByTheirClock: what others have set since the rollout began is told from what they set
// before, however far ahead the clock of the API server is, or behind.
func TestBeganByTheirClock(t *testing.T) {
	template, others := build.Size(t, "requests: {cpu: 100m}"), build.Size(t, "requests: {cpu: 130m}")
	for _, ahead := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		e := newEngine(t, Options{})
		theirs := func(after time.Duration) time.Time { return build.Start.Add(ahead + after) }
		e.w.ManagedFields = []metav1.ManagedFieldsEntry{
			{Manager: "kubectl", Time: ptr.To(metav1.NewTime(theirs(0)))}, {Manager: "cron", Time: ptr.To(metav1.NewTime(theirs(-time.Hour)))}, {Manager: "someone"},
		}
		w, err := e.strip(e.w)
		if err != nil {
			t.Fatal(err)
		}
		progressing := rollout.Plan{Condition: rollout.Condition{Reason: rollout.ReasonProgressing}}
		if _, err := e.writeCondition(t.Context(), w, progressing); err != nil {
			t.Fatal(err)
		}
		for after, overruled := range map[time.Duration]bool{-time.Minute: false, time.Minute: true} {
			pod := build.Pod("web-0", template, build.Resized(others), build.ResizedBy("vpa", theirs(after),
				`{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:requests":{"f:cpu":{}}}}}}}`))
			f := Facts{Now: build.Start.Add(time.Minute), Defaults: policy.Standard}
			target, err := f.Leftover(pod, rollout.Revision{Template: template}, e.kind.condition, true)
			if err != nil || target.Overrules != overruled {
				t.Errorf("the clock is %s ahead: what was set %s after the edit is overruled: %t, %v", ahead, after, target.Overrules, err)
			}
		}
	}
}

// TestSilentKubeletByOurClock: a kubelet that says no generation has looked at a size two minutes
// after that was first seen, whatever the API server's clock says.
func TestSilentKubeletByOurClock(t *testing.T) {
	older, newer := build.Size(t, "requests: {cpu: 100m}"), build.Size(t, "requests: {cpu: 150m}")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	node.Status.NodeInfo.KubeletVersion = "v1.33.5"
	for _, ahead := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		pod := build.Pod("web-0", older, build.Resized(newer), build.ResizedAt(build.Start.Add(ahead)))
		pod.Status.ObservedGeneration = 0
		firsts := Firsts{}
		for _, tt := range []struct {
			after time.Duration
			want  resize.State
		}{{0, resize.InProgress}, {119 * time.Second, resize.InProgress}, {2 * time.Minute, resize.Actuated}} {
			f := Facts{Now: build.Start.Add(tt.after), Nodes: []*corev1.Node{node}, Firsts: firsts}
			target, err := f.Target(pod, older, newer)
			if err != nil {
				t.Fatal(err)
			}
			if state, says := target.Observe(); state != tt.want {
				t.Errorf("the clock is %s ahead: after %s it is %s: %s", ahead, tt.after, state, says)
			}
			firsts.See(f.Now, pod)
		}
	}
}
