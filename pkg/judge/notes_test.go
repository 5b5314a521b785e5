package judge

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

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
