package rollout

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Complete is believed only of what it was said of; what nobody holds may be the built-in controller's.
func TestAtRest(t *testing.T) {
	is := func(status corev1.ConditionStatus, c Condition) *StoredCondition {
		return &StoredCondition{Status: status, Message: c.Message()}
	}
	over := func(updated int, revision string) Condition {
		return Over(updated, 2, RevisionNamed(revision), 0)
	}
	resized := func(c Condition) Condition {
		c.Others = "updater"
		return c
	}
	complete, now := is(corev1.ConditionTrue, over(2, "b")), over(1, "b")
	u := BuiltInStatus{Condition: now, Over: now, Counted: true, AllThere: true}
	with := func(change func(*BuiltInStatus)) BuiltInStatus {
		changed := u
		change(&changed)
		return changed
	}
	notCounted := func(u *BuiltInStatus) { u.Counted = false }
	builtIn := func(u *BuiltInStatus) { u.BuiltIn, u.Counted = true, false }
	stale := func(u *BuiltInStatus) { u.Stale = true }
	for _, tt := range []struct {
		name    string
		status  BuiltInStatus
		held    bool
		have    *StoredCondition
		rests   bool
		passing bool
		says    Condition
	}{
		{"Complete", u, false, complete, true, false, now},
		{"Complete, and others resize", u, false, is(corev1.ConditionTrue, resized(over(2, "b"))), true, false, resized(now)},
		{"Complete, and not counted yet", with(notCounted), false, complete, true, true, now},
		{"Complete, and a pod is lost", with(func(u *BuiltInStatus) { u.AllThere = false }), false, complete, true, true, now},
		{"Complete of another revision", u, false, is(corev1.ConditionTrue, over(2, "a")), false, true, Condition{}},
		{"Complete, and stale pods are counted", with(stale), false, complete, false, true, Condition{}},
		{"held", u, true, is(corev1.ConditionFalse, Condition{}), false, true, Condition{}},
		{"held, and Complete is of before", u, true, complete, true, true, UnseenHold()},
		{"nothing is said yet", u, false, nil, false, true, Condition{}},
		{"the built-in controller is at it", with(builtIn), false, nil, true, true, now},
		{"the built-in controller is at it, and Complete is of before", with(builtIn), false, is(corev1.ConditionTrue, Condition{Why: "a"}), true, true, now},
		{"the built-in controller is done", with(func(u *BuiltInStatus) { u.BuiltIn = true }), false, nil, false, true, Condition{}},
	} {
		p, rests := tt.status.AtRest(tt.held, tt.have)
		if rests != tt.rests || (p.Urgency == Later) != tt.passing || rests && p.Condition != tt.says {
			t.Errorf("%s: at rest: %t, want %t; passing: %t, want %t; says %+v, want %+v", tt.name, rests, tt.rests, (p.Urgency == Later), tt.passing, p.Condition, tt.says)
		}
	}
}
