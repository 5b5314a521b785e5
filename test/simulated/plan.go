package simulated

import (
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Does fails the test where there is no plan, or it does another thing than is wanted.
func Does(t *testing.T, p rollout.Plan, err error, got, want string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("does %q, want %q; condition %+v", got, want, p.Condition)
	}
}

// Says fails the test where the condition that the plan justifies says anything else.
func Says(t *testing.T, p rollout.Plan, message string, complete bool) {
	t.Helper()
	if p.Condition.Message != message || p.Condition.Complete != complete {
		t.Errorf("says %+v, want %q, complete %t", p.Condition, message, complete)
	}
}
