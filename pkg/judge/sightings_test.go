package judge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
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
		must.Equal(t, m.Since.Sub(start), tt.want, "step %d: since", i)
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

// TestProofAtRest: where the workload was Complete, its pods need not prove the size that they have once more, unless it is new, or they have
// become Ready only now.
func TestProofAtRest(t *testing.T) {
	older, newer := build.Size(t, "requests: {cpu: 100m}"), build.Size(t, "requests: {cpu: 150m}")
	pod := build.Pod("web-0", older, build.Resized(newer))
	place := Place{Pod: pod, Target: must.Get(resize.For(pod, older, build.Size(t, "requests: {cpu: 170m}")))(t)}
	told := toldSince(pod, place.Target)
	for _, after := range []time.Duration{time.Hour, 20 * time.Second, -10 * time.Second} { // the last one by a clock that is ahead
		for _, rested := range []bool{false, true} {
			want := after
			if rested && after > 0 {
				want = 0
			}
			notes := PodNotes{Rested: rested}
			must.Equal(t, notes.Sighting(place, told.Add(after)).Proof.Since.Sub(told), want, "looked at after %s, Complete before: %t: well since", after, rested)
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

func unexplained(*corev1.Pod, []*corev1.Pod) bool { return false }

func drainsNothing(*corev1.Pod) bool { return false }

// What counts as a pod that others have deleted soon after its resize.
func TestLosses(t *testing.T) {
	gone := func(*corev1.Pod) *corev1.Pod { return nil }
	for _, tt := range []struct {
		name    string
		after   time.Duration
		now     func(*corev1.Pod) *corev1.Pod // what the pod is then; nil if it is gone
		wanted  int                           // one was there, and another that was about to go
		drained bool                          // its node is
		ours    bool                          // we have had it restarted
		lost    string
	}{
		{"it is there", time.Second, func(pod *corev1.Pod) *corev1.Pod { return pod }, 1, false, false, ""},
		{"it is gone", time.Second, gone, 1, false, false, "web-0 was deleted 1s after its resize"},
		{"it is terminating, and says why", 2 * time.Second, func(pod *corev1.Pod) *corev1.Pod {
			build.Terminating(pod)
			pod.Status.Conditions = append(pod.Status.Conditions,
				corev1.PodCondition{Type: "TerminationTarget", Status: corev1.ConditionTrue, Reason: "NoMatchingWorkload", Message: "No matching Workload; restoring pod templates"})
			return pod
		}, 1, false, false, "web-0 was deleted 2s after its resize, TerminationTarget NoMatchingWorkload: No matching Workload; restoring pod templates"},
		{"it is gone, long after", time.Minute, gone, 1, false, false, ""},
		{"it is gone, and fewer are wanted", time.Second, gone, 0, false, false, ""},
		{"it is gone, and more are wanted", time.Second, gone, 2, false, false, "web-0 was deleted 1s after its resize"},
		{"it is drained", time.Second, gone, 1, true, false, ""},
		{"it has failed", time.Second, func(pod *corev1.Pod) *corev1.Pod {
			pod.Status.Phase = corev1.PodFailed
			return pod
		}, 1, false, false, ""},
		{"we have had it go", time.Second, gone, 1, false, true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := build.Pod("web-0", build.Size(t, ""))
			unwanted := func(_ *corev1.Pod, before []*corev1.Pod) bool { return len(before) > tt.wanted }
			drained := func(*corev1.Pod) bool { return tt.drained }
			var l Losses
			l.Begin("1", false)
			l.See([]*corev1.Pod{pod, build.Pod("web-1", build.Size(t, ""), build.Terminating)}, unwanted, drained, build.Start)
			l.Asked(pod, build.Start)
			if tt.ours {
				l.Spare(pod)
			}
			var there []*corev1.Pod
			if now := tt.now(pod.DeepCopy()); now != nil {
				there = append(there, now)
			}
			var said []string
			for range 2 { // each counts once
				for _, lost := range l.See(there, unwanted, drained, build.Start.Add(tt.after)) {
					said = append(said, lost.String())
				}
			}
			must.Equal(t, strings.Join(said, "|"), tt.lost, "what is lost")
		})
	}
}

// TestLossesOfOneRollout: three are enough, whichever pods they are. The next rollout, and a retry, begin anew. A controller
// that takes over goes by the condition.
func TestLossesOfOneRollout(t *testing.T) {
	var l Losses
	lose := func(pods int) {
		for i := range pods {
			l.Asked(build.Pod(fmt.Sprint("web-", i), build.Size(t, "")), build.Start)
			l.See(nil, unexplained, drainsNothing, build.Start.Add(time.Second))
		}
	}
	why := func(when, want string) {
		t.Helper()
		must.Equal(t, l.Why(), want, "%s", when)
	}
	l.Begin("1", false)
	lose(2)
	why("two", "")
	l.Begin("1", true)
	lose(1)
	why("three", "3 pods were deleted soon after their resize, the last: web-0 was deleted 1s after its resize")
	l.Begin("2", true)
	why("another edit", "")
	l = Losses{}
	l.Begin("2", true)
	why("another controller", "pods of this rollout were deleted soon after their resize")
	l = Losses{}
	l.Begin("2", false)
	why("another controller, where the condition does not say so", "")
}

// TestDoubt: after a loss one pod at a time is asked, until one has lived on for twice as long as the lost one.
func TestDoubt(t *testing.T) {
	var l Losses
	l.Begin("1", false)
	at := func(second int) time.Time { return build.Start.Add(time.Duration(second) * time.Second) }
	pod := func(n int) *corev1.Pod { return build.Pod(fmt.Sprint("web-", n), build.Size(t, "")) }
	doubts := func(second int, want bool, from time.Time) {
		t.Helper()
		l.See([]*corev1.Pod{pod(2), pod(3)}, unexplained, drainsNothing, at(second))
		if doubt, since := l.Doubt(); doubt != want || !since.Equal(from) {
			t.Errorf("after %d s: doubt %t from %s, want %t from %s", second, doubt, since, want, from)
		}
	}
	l.Asked(pod(1), at(0))
	l.Asked(pod(2), at(1))
	doubts(2, true, at(1+2*2)) // what was asked before is waited for, and proves nothing
	doubts(5, true, at(1+2*2))
	l.Asked(pod(3), at(5))
	doubts(8, true, at(5+2*2))
	doubts(9, false, time.Time{})
}

// TestDoubtEnds: one pod was deleted so long after its resize, and the next one that is asked lives on.
func TestDoubtEnds(t *testing.T) {
	for _, after := range []int{20, 40, 59} {
		var l Losses
		l.Begin("1", false)
		at := func(second int) time.Time { return build.Start.Add(time.Duration(second) * time.Second) }
		one, two := build.Pod("web-1", build.Size(t, "")), build.Pod("web-2", build.Size(t, ""))
		l.Asked(one, at(0))
		l.See([]*corev1.Pod{one, two}, unexplained, drainsNothing, at(1))
		l.See([]*corev1.Pod{two}, unexplained, drainsNothing, at(after))
		l.Asked(two, at(after+1))
		for second := after + 2; second < 4*after; second++ {
			l.See([]*corev1.Pod{two}, unexplained, drainsNothing, at(second))
		}
		if doubt, _ := l.Doubt(); doubt {
			t.Errorf("lost after %d s: it is doubted for ever", after)
		}
	}
}

// TestSilentOnce: a kubelet that did not answer for one pod is given up at once for the next, and waited for again long after that.
func TestSilentOnce(t *testing.T) {
	older, newer := build.Size(t, "requests: {cpu: 1}"), build.Size(t, "requests: {cpu: 2}")
	notes, at := &PodNotes{}, build.Start
	look := func(name string) policy.Decision {
		pod := build.Pod(name, older, build.WithSize(newer), build.ResizedAt(build.Start))
		place := Place{Name: name, Pod: pod, Available: true, Target: must.Get(resize.For(pod, older, newer))(t)}
		m := Member{Place: place, Policy: policy.LiveResizeable, Sighting: notes.Sighting(place, at)}
		m.GivenUp = notes.GivenUp(pod, m.Sighting, 10*time.Minute)
		v := m.Judge(Terms{Unavailable: 1, Strategy: policy.RollingUpdate, ErrorTimeout: 10 * time.Minute, Now: at})
		notes.See([]*Verdict{v})
		return v.Decision
	}
	for _, tt := range []struct {
		name  string
		after time.Duration
		want  policy.Decision
	}{
		{"web-0", 0, policy.Wait}, {"web-0", 10 * time.Minute, policy.RestartByController}, {"web-1", 0, policy.Wait}, {"web-1", briefly, policy.RestartByController},
		{"web-2", 2 * time.Hour, policy.Wait}, {"web-2", briefly, policy.Wait},
	} {
		if at = at.Add(tt.after); look(tt.name) != tt.want {
			t.Errorf("%s at %s: want %s", tt.name, at, tt.want)
		}
	}
}
