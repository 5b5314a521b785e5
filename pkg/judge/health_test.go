package judge

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/build"
)

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
		asked := &Health{Past: PastOf(was, build.Start.Add(time.Hour))}
		done := asked.Of(pod(0, tt.before), resize.Actuated, build.Start, build.Start)
		if got := done.failure(pod(tt.restarts, tt.after), build.Start.Add(2*time.Hour)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
