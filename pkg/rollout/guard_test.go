package rollout_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// A canary proves its size for as long as is said or, where nothing is, as a new pod has to be Ready, and a minute at least.
func TestCanaryDuration(t *testing.T) {
	for _, tt := range []struct {
		said            time.Duration
		minReadySeconds int32
		want            time.Duration
	}{
		{0, 0, time.Minute},
		{0, 59, time.Minute},
		{0, 90, 90 * time.Second},
		{10 * time.Second, 90, 10 * time.Second},
		{10 * time.Minute, 0, 10 * time.Minute},
	} {
		if got := rollout.CanaryDuration(policy.Guard{Duration: tt.said}, tt.minReadySeconds); got != tt.want {
			t.Errorf("%s is said, and minReadySeconds is %d: %s, want %s", tt.said, tt.minReadySeconds, got, tt.want)
		}
	}
}

// A canary that others resize again and again proves another size: it has failed. Once its size is proved, such a pod is let be.
func TestContestedCanary(t *testing.T) {
	template := build.Size(t, `requests: {cpu: 100m}`)
	for phase, want := range map[rollout.Phase]int{rollout.PhaseCanary: 1, rollout.PhaseRolling: 0} {
		target := must.Get(resize.For(build.Pod("web-2", template, build.Resized(template)), template, template))(t)
		target.Conceded = true
		guard := &rollout.Guard{Guard: policy.Guard{Canary: ptr.To(intstr.FromInt32(1)), Duration: time.Hour}, Record: rollout.Record{Phase: phase}}
		o := rollout.Options{Limit: 1, Guard: guard, Terms: judge.Terms{Action: policy.LiveResizePreferred, Strategy: policy.RollingUpdate, Now: build.Start.Add(time.Minute)}}
		m := judge.Member{Place: judge.Place{Name: "web-2", Pod: target.Pod(), Available: true, Target: target}, Policy: policy.LiveResizeable}
		if step := rollout.Next(judge.Pods([]judge.Member{m}, o.Terms), o); len(step.Failures) != want {
			t.Errorf("in the phase %s: %d failures, want %d: %v", phase, len(step.Failures), want, step.Failures)
		}
	}
}
