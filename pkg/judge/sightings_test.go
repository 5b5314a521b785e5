package judge

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestSightings: the times in a pod's conditions do not matter, only when each state was seen, and whether a kubelet has had no
// room all the time, for a size and for those that came after it.
func TestSightings(t *testing.T) {
	older, newer := build.Size(t, "requests: {cpu: 100m}"), build.Size(t, "requests: {cpu: 150m}")
	start := build.Start.Add(time.Hour)
	notes := PodNotes{}
	for i, tt := range []struct {
		says string // the reason of PodResizePending; empty for none
		edit int64  // how many times the pod has got another size since
		cpu  string // if it is another one
		anew bool   // there was room meanwhile
		at   time.Duration
		want time.Duration
	}{
		{says: corev1.PodReasonDeferred, at: 0, want: 0},
		{says: corev1.PodReasonDeferred, at: time.Minute, want: 0},
		{says: "", at: 2 * time.Minute, want: 0}, // in progress: it may say so again
		{says: corev1.PodReasonDeferred, at: 3 * time.Minute, want: 0},
		{says: "", edit: 1, cpu: "200m", at: 4 * time.Minute, want: 4 * time.Minute}, // the kubelet has not looked at it yet
		{says: corev1.PodReasonDeferred, edit: 1, cpu: "200m", at: 5 * time.Minute, want: 0},
		{says: corev1.PodReasonDeferred, edit: 2, cpu: "180m", at: 6 * time.Minute, want: 6 * time.Minute},
		{says: corev1.PodReasonDeferred, edit: 3, cpu: "180m", anew: true, at: 7 * time.Minute, want: 7 * time.Minute},
		{says: corev1.PodReasonDeferred, edit: 4, cpu: "200m", anew: true, at: 8 * time.Minute, want: 7 * time.Minute},
		{says: corev1.PodReasonInfeasible, edit: 4, cpu: "200m", at: 9 * time.Minute, want: 9 * time.Minute},
	} {
		newer := newer
		if tt.cpu != "" {
			newer = build.Size(t, "requests: {cpu: "+tt.cpu+"}")
		}
		pod := build.Pod("web-0", older, build.WithSize(newer))
		pod.Generation += tt.edit
		if tt.says != "" {
			build.Condition(corev1.PodResizePending, tt.says, "no room")(pod)
			pod.Status.Conditions[1].LastTransitionTime = metav1.NewTime(start.Add(-24 * time.Hour)) // a clock that is behind
			if tt.anew {
				pod.Status.Conditions[1].LastTransitionTime = metav1.NewTime(start.Add(-23 * time.Hour))
			}
		}
		target := must.Get(resize.For(pod, older, newer))(t)
		m := Member{Place: Place{Pod: pod, Target: target}}
		m.Sighting = notes.Sighting(m.Place, start.Add(tt.at))
		notes.See([]*Verdict{{Member: m}})
		if got := m.Since.Sub(start); got != tt.want {
			t.Errorf("step %d: since %s, want %s", i, got, tt.want)
		}
	}
}

// TestProof: it begins when the pod is first seen well with its size, and anew with another size,
// when a container has restarted, and when it was not Ready. What a retry asks for is no reason.
func TestProof(t *testing.T) {
	older, newer := build.Size(t, "requests: {cpu: 100m}"), build.Size(t, "requests: {cpu: 150m}")
	start := build.Start.Add(time.Hour)
	notes := PodNotes{}
	for i, tt := range []struct {
		what   string
		change func(*corev1.Pod)
		retry  bool
		edited bool // once more: another size is wanted
		at     time.Duration
		want   time.Duration // since the start; less than 0 for none
	}{
		{what: "not resized yet", change: build.WithSize(newer), at: 0, want: -1},
		{what: "resized", at: time.Second, want: time.Second},
		{what: "time passes", at: 5 * time.Second, want: time.Second},
		{what: "everything is asked for again", retry: true, at: 6 * time.Second, want: time.Second},
		{what: "another size is wanted", edited: true, at: 6 * time.Second, want: time.Second},
		{what: "not Ready", change: build.NotReady, at: 7 * time.Second, want: -1},
		{what: "Ready again", at: 8 * time.Second, want: 8 * time.Second},
		{what: "a container has restarted", change: func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].RestartCount++ }, at: 9 * time.Second, want: 9 * time.Second},
		{what: "time passes again", change: func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].RestartCount++ }, at: 12 * time.Second, want: 9 * time.Second},
		{what: "another size", change: func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses[0].RestartCount++
			pod.Generation++
			pod.Status.ObservedGeneration++
		}, at: 13 * time.Second, want: 13 * time.Second},
	} {
		pod := build.Pod("web-0", older, build.Resized(newer))
		if tt.change != nil {
			tt.change(pod)
		}
		if i == 0 {
			pod = build.Pod("web-0", older, tt.change)
		}
		if tt.retry {
			notes.AskAgain()
		}
		wanted := newer
		if tt.edited {
			wanted = build.Size(t, "requests: {cpu: 170m}")
		}
		target := must.Get(resize.For(pod, older, wanted))(t)
		m := Member{Place: Place{Pod: pod, Target: target}}
		m.Sighting = notes.Sighting(m.Place, start.Add(tt.at))
		notes.See([]*Verdict{{Member: m}})
		var want time.Time
		if tt.want >= 0 {
			want = start.Add(tt.want)
		}
		if got := m.Proof.Since; !got.Equal(want) {
			t.Errorf("%s: proved since %s, want %s", tt.what, got, want)
		}
	}
}

// TestFirstSeen: a label, and a spec, are known since they were first seen, and another one since then.
func TestFirstSeen(t *testing.T) {
	n, at := &PodNotes{}, func(minute int) time.Time { return build.Start.Add(time.Duration(minute) * time.Minute) }
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
		last, known := n.Relabelled([]*corev1.Pod{p, build.Pod("web-1", build.Size(t, ""))}, every, at(tt.minute))
		if specified := n.first(p, at(tt.minute)).specified; !known.Equal(at(tt.labelled)) || !last.Equal(at(1000)) || !specified.Equal(at(tt.specified)) {
			t.Errorf("minute %d: labelled since %s, as known since %s, with its spec since %s", tt.minute, last, known, specified)
		}
		n.Look(at(tt.minute), p)
	}
}
