package rollout

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Complete is believed only of what it was said of; what nobody holds may be the built-in controller's.
func TestAtRest(t *testing.T) {
	is := func(status corev1.ConditionStatus, c Condition) *StoredCondition {
		return &StoredCondition{Status: status, Of: c.Of()}
	}
	now := Over(RevisionNamed("b"), 0)
	complete := is(corev1.ConditionTrue, now)
	u := BuiltInStatus{Condition: now, Over: now, Counted: true}
	with := func(change func(*BuiltInStatus)) BuiltInStatus {
		changed := u
		change(&changed)
		return changed
	}
	notCounted := func(u *BuiltInStatus) { u.Counted = false }
	builtIn := func(u *BuiltInStatus) { u.BuiltIn, u.Counted = true, false }
	stale := func(u *BuiltInStatus) { u.Stale = true }
	for _, tt := range []struct {
		name   string
		status BuiltInStatus
		held   bool
		have   *StoredCondition
		rests  bool
		says   Condition
	}{
		{"Complete", u, false, complete, true, Condition{}},
		{"Complete, and not counted yet", with(notCounted), false, complete, true, Condition{}},
		{"Complete of another revision", u, false, is(corev1.ConditionTrue, Over(RevisionNamed("a"), 0)), false, Condition{}},
		{"Complete of a partition", u, false, is(corev1.ConditionTrue, Over(RevisionNamed("b"), 1)), false, Condition{}},
		{"Complete of a version before, which has not noted of what", u, false, is(corev1.ConditionTrue, Condition{}), false, Condition{}},
		{"Complete of a Deployment", with(func(u *BuiltInStatus) { u.Over = Over("", 0) }), false, is(corev1.ConditionTrue, Condition{}), true, Condition{}},
		{"Complete, and stale pods are counted", with(stale), false, complete, false, Condition{}},
		{"held", u, true, is(corev1.ConditionFalse, Condition{}), false, Condition{}},
		{"held, and Complete is of before", u, true, complete, true, UnseenHold()},
		{"nothing is said yet", u, false, nil, false, Condition{}},
		{"the built-in controller is at it", with(builtIn), false, nil, true, now},
		{"the built-in controller is at it, and Complete is of before", with(builtIn), false, is(corev1.ConditionTrue, Condition{Why: "a"}), true, now},
		{"the built-in controller is done", with(func(u *BuiltInStatus) { u.BuiltIn = true }), false, nil, false, Condition{}},
	} {
		p, rests := tt.status.AtRest(tt.held, tt.have)
		if rests != tt.rests || rests && p.Condition != tt.says {
			t.Errorf("%s: at rest: %t, want %t; says %+v, want %+v", tt.name, rests, tt.rests, p.Condition, tt.says)
		}
	}
}
