package judge

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/build"
)

// noted notes everything there is of a pod.
func noted(n *PodNotes, pod *corev1.Pod) {
	n.Look(build.Start, pod)
	n.See([]*Verdict{{Member: Member{Place: Place{Pod: pod}, Sighting: Sighting{State: resize.Deferred}}}})
	note, refusal := n.Note(pod.UID), Refusal{Reason: "too large"}
	note.Relabel = note.Relabel.Again("", refusal, build.Start)
	note.Size, note.Room, note.Eviction = note.Size.Again("", refusal, build.Start), note.Room.Again("", refusal, build.Start), note.Eviction.Again("", refusal, build.Start)
	note.Contests, note.Recorded, note.Request = maxContests, ReasonInfeasible, &Request{Changes: "cpu"}
	note.Displace([]resize.Change{{Container: "app"}})
}

// TestForget: what is remembered does not grow with the pods that come and go.
func TestForget(t *testing.T) {
	n := &PodNotes{}
	var there []*corev1.Pod
	for i := range 1000 {
		pod := build.Pod(fmt.Sprint(i), build.Size(t, ""))
		there = append(there[max(0, len(there)-9):], pod)
		noted(n, pod)
		n.Forget(there)
	}
	if n.Sighted("uid-of-0").State == resize.Deferred || n.Sighted("uid-of-999").State != resize.Deferred {
		t.Error("the sighting of the first pod is kept, or that of the last one is not")
	}
	if len(n.pods) < 10 || len(n.pods) > 20+fewNotes {
		t.Errorf("the notes of %d pods are kept of 10", len(n.pods))
	}
}

// TestAskAgain: what is tried again, and what is not: whose size the pod has still to get, and what others may put back.
func TestAskAgain(t *testing.T) {
	n, pod := &PodNotes{}, build.Pod("web-0", build.Size(t, ""))
	noted(n, pod)
	n.AskAgain()
	note := n.Of(pod.UID)
	if note.Size != nil || note.Relabel != nil || note.Room != nil || note.Eviction != nil || note.ContestLost() || note.Recorded != "" || !n.Sighted(pod.UID).Again || !n.Sighted("another").Again {
		t.Errorf("noted is still %+v", note)
	}
	if note.Request == nil || note.Displaced == nil {
		t.Errorf("nothing is noted of what was asked, or what was displaced: %+v", note)
	}
}

// TestOver: when a rollout is over, its contests are, and what was displaced is waited for.
func TestOver(t *testing.T) {
	n, pod, until := &PodNotes{}, build.Pod("web-0", build.Size(t, "")), build.Start.Add(time.Minute)
	noted(n, pod)
	n.Over(until)
	n.Over(until.Add(time.Hour)) // it is waited for from the first time on
	note := n.Of(pod.UID)
	if longest := n.AwaitsDisplaced(build.Start); longest != time.Minute || note.Displaced == nil || note.ContestLost() || note.Size == nil {
		t.Errorf("waits for %s, and noted is %+v", longest, note)
	}
	if longest := n.AwaitsDisplaced(until); longest != 0 || note.Displaced != nil {
		t.Errorf("after that, it waits for %s, and displaced is %+v", longest, note.Displaced)
	}
}

// TestNobodyLooks: notes of nobody, and of a forecast, can be read, and say nothing of when a pod was seen.
func TestNobodyLooks(t *testing.T) {
	for _, n := range []*PodNotes{nil, {Foreseen: true}} {
		pod := build.Pod("web-0", build.Size(t, ""))
		if n.Of(pod.UID).Size.Last().Reason != "" || n.Of(pod.UID).ContestLost() || n.Sighting(Place{Pod: pod}, build.Start) != (Sighting{}) || n.Sighted(pod.UID) != (Sighting{}) {
			t.Errorf("noted is %+v", n.Of(pod.UID))
		}
	}
}

// What is refused is asked for again later and later; another size, at once less late.
func TestRefusals(t *testing.T) {
	var r *Refused
	for i, tt := range []struct {
		size, kind string
		wait       time.Duration
		since      time.Duration // when it was refused first
	}{
		{"small", ReasonQuotaExceeded, time.Second, 0},
		{"small", ReasonQuotaExceeded, 2 * time.Second, 0},
		{"small", ReasonAdmissionDenied, 4 * time.Second, 2 * time.Minute}, // for another reason
		{"small", ReasonAdmissionDenied, 8 * time.Second, 2 * time.Minute},
		{"small", ReasonAdmissionDenied, 16 * time.Second, 2 * time.Minute},
		{"small", ReasonAdmissionDenied, MaxAskInterval, 2 * time.Minute},
		{"small", ReasonAdmissionDenied, MaxAskInterval, 2 * time.Minute},
		{"large", ReasonAdmissionDenied, time.Second, 7 * time.Minute},
		{"small", ReasonAdmissionDenied, time.Second, 8 * time.Minute},
	} {
		now := build.Start.Add(time.Duration(i) * time.Minute)
		r = r.Again(tt.size, Refusal{Reason: "no", Kind: tt.kind}, now)
		want := Refusal{Of: tt.size, Reason: "no", Kind: tt.kind, Until: now.Add(tt.wait), Since: build.Start.Add(tt.since)}
		if got := r.Of(tt.size); got != want || r.Last() != want || r.Of("other") != (Refusal{}) {
			t.Errorf("try %d: got %+v, want %+v", i, got, want)
		}
	}
}

// TestRefusalLog: what one object is refused says nothing of another one.
func TestRefusalLog(t *testing.T) {
	log, now := RefusalLog{}, build.Start
	for _, object := range []types.UID{"a", "b", "b"} {
		log.Add(object, "small", Refusal{Reason: "no"}, now)
	}
	for object, want := range map[types.UID]time.Duration{"a": time.Second, "b": 2 * time.Second} {
		if wait := log.Of(object, "small").Until.Sub(now); wait != want {
			t.Errorf("%s waits for %s, want %s", object, wait, want)
		}
	}
	if got := log.Of("c", "small"); got != (Refusal{}) {
		t.Errorf("nothing was refused to c: %+v", got)
	}
}

// A failure says how long the container ran, if the kubelet knows. How long other runs were says nothing of one that it does not know.
func TestFailureAfterTheResize(t *testing.T) {
	run := func(reason string, end, length time.Duration) *corev1.ContainerStateTerminated {
		end += time.Hour
		r := &corev1.ContainerStateTerminated{Reason: reason, ExitCode: 137, FinishedAt: metav1.NewTime(build.Start.Add(end))}
		if length > 0 {
			r.StartedAt = metav1.NewTime(build.Start.Add(end - length))
		}
		return r
	}
	pod := func(restarts int32, last *corev1.ContainerStateTerminated) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", RestartCount: restarts, LastTerminationState: corev1.ContainerState{Terminated: last},
		}}}}
	}
	for _, tt := range []struct {
		name     string
		before   *corev1.ContainerStateTerminated
		restarts int32
		after    *corev1.ContainerStateTerminated
		want     string
	}{
		{"killed", nil, 1, run("OOMKilled", time.Minute, 2*time.Second), "failed: container app was OOMKilled after 2s"},
		{"killed, who knows after what time", nil, 1, run("OOMKilled", time.Minute, 0), "failed: container app was OOMKilled"},
		{"restarts, who knows after what time", nil, 2, run("Error", time.Minute, 0), "failed: container app has restarted 2 times since its resize, last with exit code 137"},
		{"killed as before", run("OOMKilled", 0, 10*time.Second), 1, run("OOMKilled", time.Minute, 10*time.Second), ""},
		{"killed before, who knows after what time now", run("OOMKilled", 0, 10*time.Second), 1, run("OOMKilled", time.Minute, 0), "failed: container app was OOMKilled"},
		{"killed after a crash of long ago", run("OOMKilled", -24*time.Hour, 10*time.Second), 1, run("OOMKilled", time.Minute, 10*time.Second), "failed: container app was OOMKilled after 10s"},
		{"restarts after a crash of long ago", run("Error", -24*time.Hour, 5*time.Second), 2, run("Error", time.Minute, 5*time.Second), "failed: container app has restarted 2 times since its resize, last with exit code 137 after 5s"},
		{"killed, who knows after what time before", run("OOMKilled", 0, 0), 1, run("OOMKilled", time.Minute, 10*time.Second), "failed: container app was OOMKilled after 10s"},
	} {
		was := pod(0, tt.before)
		if tt.before != nil {
			was.Status.ContainerStatuses[0].State.Running = &corev1.ContainerStateRunning{StartedAt: tt.before.FinishedAt}
		}
		asked := &Health{Past: PastOf(was, build.Start.Add(time.Hour), time.Time{})}
		done := asked.Of(pod(0, tt.before), resize.Actuated, build.Start, build.Start, time.Time{})
		if got := done.failure(pod(tt.restarts, tt.after), build.Start.Add(2*time.Hour)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestPastOf: which runs that ended before a pod is asked count as the loop that it is in, and which excuse one run only.
func TestPastOf(t *testing.T) {
	at := func(d time.Duration) time.Time { return build.Start.Add(time.Hour + d) }
	const long = time.Minute
	for _, tt := range []struct {
		name                 string
		killed, sized, tried time.Duration // before the pod is asked; 0 for never
		restarts             int32
		loops, unproved      bool
	}{
		{name: "as it is from its birth", killed: 10 * time.Second, restarts: 1, loops: true},
		{name: "with the size that it has", killed: 10 * time.Second, sized: 2 * long, restarts: 1, loops: true},
		{name: "once, before it got the size", killed: 2 * long, sized: long, restarts: 1},
		{name: "once, about when it got the size", killed: 10 * time.Second, sized: 20 * time.Second, restarts: 1},
		{name: "again and again, with this size and the one before", killed: 2 * long, sized: long, restarts: 9, loops: true},
		{name: "with a size that was not proved", killed: 10 * time.Second, sized: 2 * long, tried: 3 * long, restarts: 9, loops: true, unproved: true},
		{name: "with one that was not proved, and has been taken back", killed: 2 * long, sized: long, tried: 3 * long, restarts: 9},
		{name: "that was not asked for another one since such were tried", killed: 10 * time.Second, sized: 4 * long, tried: 3 * long, restarts: 9, loops: true},
	} {
		pod := build.Pod("web-0", build.Size(t, ""))
		if tt.sized > 0 {
			build.ResizedAt(at(-tt.sized))(pod)
		}
		tried, ended := time.Time{}, metav1.NewTime(at(-tt.killed))
		if tt.tried > 0 {
			tried = at(-tt.tried)
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "app", RestartCount: tt.restarts, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ended}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				Reason: "OOMKilled", StartedAt: metav1.NewTime(ended.Add(-2 * long)), FinishedAt: ended,
			}},
		}}
		got := PastOf(pod, at(0), tried).Containers["app"]
		if (got.Loops != "") != tt.loops || got.Unproved != tt.unproved {
			t.Errorf("%s: loops %q, unproved %t, want %t and %t", tt.name, got.Loops, got.Unproved, tt.loops, tt.unproved)
		}
	}
}

// TestKilledWithTheResize: a controller that has not seen the pod before takes what has ended in the second of the resize for its doing.
func TestKilledWithTheResize(t *testing.T) {
	for after, want := range map[time.Duration]bool{-time.Second: false, 0: true, time.Second: true} {
		pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", RestartCount: 1, LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", FinishedAt: metav1.NewTime(build.Start.Add(after))}},
		}}}}
		var h *Health
		h = h.Of(pod, resize.Actuated, build.Start, build.Start.Add(time.Minute), time.Time{})
		if got := h.failure(pod, build.Start.Add(time.Minute)); (got != "") != want {
			t.Errorf("killed %s after the resize: %q", after, got)
		}
	}
}
