package rollout_test

import (
	"testing"
	"time"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
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
