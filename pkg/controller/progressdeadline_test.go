package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// TestAdvance: only what has not been reached before is news.
func TestAdvance(t *testing.T) {
	plan := func(updated, asked, yet int) (p rollout.Plan) {
		p.Updated = updated
		for i := range asked + yet {
			m := judge.Member{Place: judge.Place{Pod: &corev1.Pod{}}}
			if i >= asked {
				m.Target.Changes = []resize.Change{{}}
			}
			p.Verdicts = append(p.Verdicts, &judge.Verdict{Member: m})
		}
		return p
	}
	proving := func(p rollout.Plan) rollout.Plan {
		p.Canary = true
		return p
	}
	var m movement
	for i, tt := range []struct {
		what string
		edit string
		p    rollout.Plan
		want bool
	}{
		{"it begins", "2;", plan(0, 0, 3), true},
		{"nothing happens", "2;", plan(0, 0, 3), false},
		{"a pod is asked", "2;", plan(0, 1, 2), true},
		{"it is to be asked once more", "2;", plan(0, 0, 3), false},
		{"it is", "2;", plan(0, 1, 2), false},
		{"it has the size", "2;", plan(1, 1, 2), true},
		{"it goes", "2;", plan(0, 0, 2), false},
		{"another one comes", "2;", plan(1, 1, 2), false},
		{"another edit", "3;", plan(0, 0, 3), true},
		{"begins anew", "3;", plan(0, 1, 2), true},
		{"it is to be tried again", "3;1", plan(0, 1, 2), true},
		{"a canary proves itself", "3;1", proving(plan(1, 1, 2)), true},
		{"still", "3;1", proving(plan(1, 1, 2)), true},
		{"it has proved itself since", "3;1", plan(1, 1, 2), true},
		{"nobody asks the others", "3;1", plan(1, 1, 2), false},
	} {
		if got := m.advance(tt.edit, tt.p); got != tt.want {
			t.Errorf("%d: %s: moved %t, want %t", i, tt.what, got, tt.want)
		}
	}
}
