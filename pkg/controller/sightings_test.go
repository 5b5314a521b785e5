package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
)

// TestSightings: what a pod says of times does not matter, only when it was seen.
func TestSightings(t *testing.T) {
	older, newer := build.Size(t, "requests: {cpu: 100m}"), build.Size(t, "requests: {cpu: 150m}")
	start := build.Start.Add(time.Hour)
	seen := Sightings{}
	for i, tt := range []struct {
		says string // the reason of PodResizePending; empty for none
		edit bool
		at   time.Duration
		want time.Duration
	}{
		{says: corev1.PodReasonDeferred, at: 0, want: 0},
		{says: corev1.PodReasonDeferred, at: time.Minute, want: 0},
		{says: "", at: 2 * time.Minute, want: 0}, // in progress: it may say so again
		{says: corev1.PodReasonDeferred, at: 3 * time.Minute, want: 0},
		{says: corev1.PodReasonDeferred, edit: true, at: 4 * time.Minute, want: 4 * time.Minute},
	} {
		pod := build.Pod("web-0", older, build.WithSize(newer))
		if tt.edit {
			pod.Generation++
		}
		if tt.says != "" {
			build.Condition(corev1.PodResizePending, tt.says, "no room")(pod)
			pod.Status.Conditions[1].LastTransitionTime = metav1.NewTime(start.Add(-24 * time.Hour)) // a clock that is behind
		}
		target, err := resize.For(pod, older, newer)
		if err != nil {
			t.Fatal(err)
		}
		m := rollout.Member{Pod: pod, Target: target}
		seen.See(&m, start.Add(tt.at))
		if got := m.Since.Sub(start); got != tt.want {
			t.Errorf("step %d: since %s, want %s", i, got, tt.want)
		}
	}
}

func TestLostNodes(t *testing.T) {
	node := func(name string, ready corev1.ConditionStatus) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if ready != "" {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastHeartbeatTime: metav1.Now()}}
		}
		return n
	}
	all := []*corev1.Node{node("good", corev1.ConditionTrue), node("new", ""), node("down", corev1.ConditionFalse), node("silent", corev1.ConditionUnknown)}
	for name, want := range map[string]string{
		"": "", "good": "", "new": "", "down": "its node down is not Ready", "silent": "its node silent is not Ready", "none": "its node none is gone",
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: name}}
		if got := LostNodes(all)(pod); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
		if got := LostNodes(nil)(pod); got != "" {
			t.Errorf("%q, where no node is known: %q", name, got)
		}
	}
	earlier, later := node("good", corev1.ConditionTrue), node("good", corev1.ConditionTrue)
	earlier.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(build.Start)
	earlier.Status.Conditions, later.Status.Conditions = readiness(earlier), readiness(later)
	if !sameRoom(earlier, later) {
		t.Error("a heartbeat is news")
	}
	later.Status.Conditions[0].Status = corev1.ConditionUnknown
	if sameRoom(earlier, later) {
		t.Error("a node that is lost is no news")
	}
}
