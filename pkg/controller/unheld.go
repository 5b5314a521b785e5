package controller

import (
	"strings"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Unheld is what a workload's status says of a rollout that nobody holds.
type Unheld struct {
	// Condition that the status justifies.
	Condition rollout.Condition
	// Of is how the message ends of a condition that says Complete of this revision, and of the
	// pods that are to have it.
	Of string
	// Stale: the built-in controller counts pods of an older revision, which there must not be
	// if the workload is Complete.
	Stale bool
	// Counted: the built-in controller counts every pod as updated that is to be.
	Counted bool
	// AllThere: there are as many pods as are wanted.
	AllThere bool
	// LeftTo begins the messages of conditions of a rollout that the built-in controller makes, and
	// Rollout goes on with which rollout it is.
	LeftTo, Rollout string
	// NotHeld is why an edit is not held; empty if there is nothing to say about that.
	NotHeld string
	// Standing: pods may have to be resized though nothing is rolled out. So the session stays open.
	Standing bool
	// BuiltIn: the built-in controller makes a rollout that nobody holds.
	BuiltIn bool
}

// AtRest reports whether nothing in the workload is ours to do now: its condition says Complete
// already, or the built-in controller makes its rollout. The plan p then has the condition that
// is to be written, and nothing else. held is whether the workload is held, and have is its
// condition, or nil.
//
// Complete is believed only of the revision and the pods that it was said of: a workload may
// have been edited while it was opted out. The counts in the message do not matter: a pod that
// is lost or scaled away later is no rollout. If there are stale pods, the workload may have
// been edited, and edited back, so that its pods have to be looked at.
func (u Unheld) AtRest(held bool, have *Condition) (p rollout.Plan, atRest bool) {
	p.Passing = true // another condition is about to come
	if held {
		// Complete was said before this hold. Admission takes it back when the status is next
		// written. That may not be soon: a lower partition makes no new generation where
		// ordinals do not start at 0.
		p.Condition = rollout.Condition{Reason: rollout.ReasonPending, Message: "waiting for inplace-rollout to look at this hold"}
		return p, have.Complete()
	}
	p.Condition = u.Condition
	said, others := "", ""
	if have.Complete() {
		said, others = cutOthers(have.Message)
	}
	if !have.Complete() || u.Stale || !strings.HasSuffix(said, u.Of) {
		if u.NotHeld != "" && u.begins(have) {
			p.HandedOver = u.LeftTo + u.Rollout + ": " + u.NotHeld
		}
		return p, u.BuiltIn && !u.Counted
	}
	p.Condition.Message += others
	p.Passing = !u.Counted || !u.AllThere
	return p, true
}

// begins reports whether the built-in controller's rollout is another one than the condition speaks of.
func (u Unheld) begins(have *Condition) bool {
	return have == nil || have.pending() || have.Complete() ||
		strings.HasPrefix(have.Message, u.LeftTo) && !strings.HasPrefix(have.Message, u.LeftTo+u.Rollout)
}
