package policy_test

import (
	"math"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
)

const notHeld = "not held"

// withHold is a workload whose hold says this.
func withHold(hold string) *metav1.ObjectMeta {
	if hold == notHeld {
		return &metav1.ObjectMeta{}
	}
	return &metav1.ObjectMeta{Annotations: map[string]string{api.HoldAnnotation: hold}}
}

func TestWishedPartition(t *testing.T) {
	for _, tt := range []struct {
		name, hold string
		inForce    int
		want       int
	}{
		{"not held", notHeld, 2, 2},
		{"not held, and above all", notHeld, math.MaxInt32, math.MaxInt32},
		{"held", "3", math.MaxInt32, 3},
		{"held, and lowered for one pod", "0", 2, 0},
		{"a hold that cannot be read", "nonsense", math.MaxInt32, 0},
		{"a hold that cannot be read, and a partition that is none of a hold", "-1", 2, 2},
		{"a hold beyond all partitions", "4294967296", 2, 2},
	} {
		if got := policy.WishedPartition(withHold(tt.hold), tt.inForce); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestWishedPaused(t *testing.T) {
	for _, tt := range []struct {
		name, hold    string
		inForce, want bool
	}{
		{"not held", notHeld, false, false},
		{"not held, and paused", notHeld, true, true},
		{"held", "false", true, false},
		{"held for a user who paused", "true", true, true},
		{"a hold that cannot be read", "nonsense", true, false},
	} {
		if got := policy.WishedPaused(withHold(tt.hold), tt.inForce); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}
