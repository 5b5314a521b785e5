package judge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/test/build"
)

func drainsNothing(*corev1.Pod) bool { return false }

// What counts as a pod that others have deleted soon after its resize.
func TestLosses(t *testing.T) {
	gone := func(*corev1.Pod) *corev1.Pod { return nil }
	for _, tt := range []struct {
		name     string
		after    time.Duration
		now      func(*corev1.Pod) *corev1.Pod // what the pod is then; nil if it is gone
		replicas int
		drained  bool // its node is
		ours     bool // we have had it restarted
		lost     string
	}{
		{"it is there", time.Second, func(pod *corev1.Pod) *corev1.Pod { return pod }, 3, false, false, ""},
		{"it is gone", time.Second, gone, 3, false, false, "web-0 was deleted 1s after its resize"},
		{"it is terminating, and says why", 2 * time.Second, func(pod *corev1.Pod) *corev1.Pod {
			build.Terminating(pod)
			pod.Status.Conditions = append(pod.Status.Conditions,
				corev1.PodCondition{Type: "TerminationTarget", Status: corev1.ConditionTrue, Reason: "NoMatchingWorkload", Message: "No matching Workload; restoring pod templates"})
			return pod
		}, 3, false, false, "web-0 was deleted 2s after its resize, TerminationTarget NoMatchingWorkload: No matching Workload; restoring pod templates"},
		{"it is gone, long after", time.Minute, gone, 3, false, false, ""},
		{"it is gone, and fewer are wanted", time.Second, gone, 2, false, false, ""},
		{"it is gone, and more are wanted", time.Second, gone, 4, false, false, "web-0 was deleted 1s after its resize"},
		{"it is drained", time.Second, gone, 3, true, false, ""},
		{"it has failed", time.Second, func(pod *corev1.Pod) *corev1.Pod {
			pod.Status.Phase = corev1.PodFailed
			return pod
		}, 3, false, false, ""},
		{"we have had it go", time.Second, gone, 3, false, true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := build.Pod("web-0", build.Size(t, ""))
			drained := func(*corev1.Pod) bool { return tt.drained }
			var l Losses
			l.Begin("1", false)
			l.See([]*corev1.Pod{pod}, 3, drained, build.Start)
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
				for _, lost := range l.See(there, tt.replicas, drained, build.Start.Add(tt.after)) {
					said = append(said, lost.String())
				}
			}
			if got := strings.Join(said, "|"); got != tt.lost {
				t.Errorf("lost: %q, want %q", got, tt.lost)
			}
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
			l.See(nil, 3, drainsNothing, build.Start.Add(time.Second))
		}
	}
	why := func(when, want string) {
		t.Helper()
		if got := l.Why(); got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
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
		l.See([]*corev1.Pod{pod(2), pod(3)}, 3, drainsNothing, at(second))
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
