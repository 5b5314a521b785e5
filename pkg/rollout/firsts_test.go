package rollout

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

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
}
