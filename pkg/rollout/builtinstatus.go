package rollout

import (
	"slices"

	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
)

// BuiltInStatus is what a workload's status says of a rollout that nobody holds.
type BuiltInStatus struct {
	// Condition that the status justifies.
	Condition Condition
	// Over is the condition when the rollout of this revision, to the pods that are to have it, is
	// over.
	Over Condition
	// HandedOver is the condition while the built-in controller makes this rollout.
	HandedOver Condition
	// Stale: the built-in controller counts pods of an older revision, which there must not be
	// if the workload is Complete.
	Stale bool
	// Counted: the built-in controller counts every pod as updated that is to be.
	Counted bool
	// NotHeld is why an edit is not held; empty if there is nothing to say about that.
	NotHeld string
	// Standing: pods may have to be resized though nothing is rolled out. So the session stays open.
	Standing bool
	// BuiltIn: the built-in controller makes a rollout that nobody holds.
	BuiltIn bool
}

// AtRest reports whether nothing in the workload is ours to do now: its condition says Complete
// already, or the built-in controller makes its rollout. The plan p then has the condition that
// is to be written, if there is anything new to say, and nothing else. held is whether the workload is held, and have is its
// condition, or nil. Where pods may have to be resized though nothing is rolled out, the workload is never at rest.
//
// Complete is believed only of the revision and the pods that it was said of: a workload may
// have been edited while it was opted out. A Deployment's names none: where pods are of an older one, they are counted
// as stale. If there are stale pods, the workload may have been edited, and edited back, so that its pods have to be looked at.
func (u BuiltInStatus) AtRest(held bool, have *StoredCondition) (p Plan, atRest bool) {
	p.Defer() // another condition is about to come
	if held {
		// Complete was said before this hold. Admission takes it back when the status is next
		// written. That may not be soon: a lower partition makes no new generation where
		// ordinals do not start at 0.
		p.Condition = UnseenHold()
		return p, have.Complete()
	}
	if !u.complete(have) || u.Stale {
		p.Condition = u.Condition
		if u.NotHeld != "" && u.begins(have) {
			p.HandedOver = u.HandedOver.Because(u.NotHeld).Message()
		}
		return p, u.BuiltIn && !u.Counted && !u.Standing
	}
	return p, !u.Standing
}

// Rolls reports whether the built-in controller makes the rollout of a workload, and is not done. Held is whether that is held.
func (u BuiltInStatus) Rolls(held bool) bool { return !held && u.BuiltIn && !u.Condition.Complete }

// complete reports whether a condition says Complete of this revision, and that no pod is an exception but by the partition.
func (u BuiltInStatus) complete(have *StoredCondition) bool {
	return have.Complete() && have.Of == u.Over.Of()
}

// begins reports whether the built-in controller's rollout is another one than the condition speaks of.
func (u BuiltInStatus) begins(have *StoredCondition) bool {
	of := have.SpeaksOf()
	return have == nil || have.Pending() || have.Complete() || of.Phase == PhaseHandedOver && of != u.HandedOver.Of()
}

// Plan turns the plan for a workload into the one for a workload that nobody holds. Pods that count
// as updated may have the size of an edit that was given up, as where the hold was let go without
// us. They need no hold: the built-in controller does not touch them. If there is a pod that it does
// touch, it makes the rollout, and nothing is planned but sizes for which no pod is restarted.
func (u BuiltInStatus) Plan(p Plan, have *StoredCondition) (notHeld Plan, remove []Restart) {
	done := !p.Guarding
	for _, v := range p.Verdicts {
		m := &v.Member
		if u.BuiltIn && !m.Labelled && !judge.Gone(m.Pod) {
			return u.leave(p, have, m.Name+" is of an older revision"), nil
		}
		done = done && (m.Updated || m.InPlaceOnly)
	}
	if done {
		return u.done(p, have), nil
	}
	if u.BuiltIn {
		p.Condition = p.Condition.NotHeld()
	}
	for _, r := range p.Restart {
		if r.Now && u.BuiltIn && !judge.Gone(r.Member.Pod) {
			remove = append(remove, r)
		}
	}
	return p, remove
}

// done completes the plan where nothing is rolled out any more.
func (u BuiltInStatus) done(p Plan, have *StoredCondition) Plan {
	p.Started = ""
	// It may say False all the same, because pods cannot have a size for which they are not restarted.
	over, unfit := have.SpeaksOf().Over(u.Over), unfit(p)
	// Once Complete, a workload stays so when it is scaled, or a pod is lost.
	if over || have.Complete() || len(p.Waits) == len(unfit) {
		p.Condition, p.repeatsComplete = u.Condition, over && have.Complete() && u.Standing
	}
	if p.Condition.Complete && len(unfit) > 0 {
		reason, details := Spell(unfit)
		p.Condition.Complete, p.Condition.Reason = false, reason
		p.Condition.Details += details
		p.Condition.Next = ofClass(unfit, reason)
	}
	// Whoever reads that it is Complete, and no more, does not look for such sizes to take back.
	if u.complete(have) && slices.ContainsFunc(p.Resize, func(m judge.Member) bool { return m.InPlaceOnly }) {
		p.Resize, p.Urgency = nil, AtOnce
	}
	return p
}

// leave returns the plan that leaves the rollout to the built-in controller.
func (u BuiltInStatus) leave(p Plan, have *StoredCondition, why string) Plan {
	rest, _ := u.AtRest(false, have)
	left := Plan{Revision: p.Revision, Resized: p.Resized, Found: p.Found, Condition: u.HandedOver.Because(why), HandedOver: rest.HandedOver}
	left.RequeueAfter = p.RequeueAfter
	for _, m := range p.Resize {
		if m.InPlaceOnly {
			left.Resize = append(left.Resize, m)
		}
	}
	return left
}

// unfit returns what pods wait for that cannot have a size for which they are not restarted. Where
// pods are not Ready since they were resized, that counts if others wait for them.
func unfit(p Plan) []Wait {
	waiting := len(p.Resize) == 0 && slices.ContainsFunc(p.Verdicts, func(v *judge.Verdict) bool {
		return v.Member.InPlaceOnly && v.Decision == policy.Resize && podutils.IsPodReady(v.Member.Pod)
	})
	var unfit []Wait
	for _, w := range p.Waits {
		harmless := w.Reason == judge.ReasonProgressing || w.Reason == judge.ReasonNodeLost || w.Reason == judge.ReasonNotReadyAfterResize && !waiting
		if w.Member.InPlaceOnly && !harmless {
			unfit = append(unfit, w)
		}
	}
	return unfit
}
