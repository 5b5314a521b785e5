package controller

import (
	"strings"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Unheld is what a workload's status says of a rollout that nobody holds.
type Unheld struct {
	// Condition that the status justifies.
	Condition rollout.Condition
	// Of ends the message of a condition that says Complete of what the workload is now: its
	// revision, and which pods are to have it.
	Of string
	// Stale pods are there, by the count of the built-in controller, of which a condition that
	// says Complete knows nothing.
	Stale bool
	// Counted: the built-in controller counts as many pods as updated as are to be.
	Counted bool
	// AllThere: there are as many pods as are wanted.
	AllThere bool
	// BuiltIn: the built-in controller makes a rollout that nobody holds.
	BuiltIn bool
}

// AtRest returns what is to be said of a workload in which nothing is ours to do, and whether
// it is such a one, where held is whether it is held, and have is its condition, or nil: it is Complete already, or the built-in controller makes its rollout.
//
// Complete is believed only of what it was said of: a workload may have been edited while it
// was opted out. What the message counts is no matter, as a pod that is lost or scaled away
// later is no rollout. Where stale pods are counted, the workload may have been edited, and
// edited back: then its pods are looked at.
func (u Unheld) AtRest(held bool, have *Condition) (p rollout.Plan, atRest bool) {
	p.Passing = true // another condition is about to come
	if held {
		// Complete is of the time before this hold. Admission takes it back when the status is
		// next written, which may not be soon: a mere lower partition makes no new generation
		// where ordinals do not start at 0.
		p.Condition = rollout.Condition{Reason: rollout.ReasonPending, Message: "waiting for inplace-rollout to look at this partition"}
		return p, have.Complete()
	}
	p.Condition = u.Condition
	if !have.Complete() || u.Stale {
		return p, u.BuiltIn && !u.Counted
	}
	said, others := cutOthers(have.Message)
	if !strings.HasSuffix(said, u.Of) {
		return p, u.BuiltIn && !u.Counted
	}
	p.Condition.Message += others
	p.Passing = !u.Counted || !u.AllThere
	return p, true
}
