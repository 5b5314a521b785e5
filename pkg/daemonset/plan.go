package daemonset

import (
	"fmt"
	"slices"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// plan is the next step of a DaemonSet's rollout, while it is made.
type plan struct {
	rollout.Plan

	// remove these pods: the DaemonSet controller makes a new one on the same node. With maxSurge it makes
	// that first, of a pod that it does not take for updated.
	remove []rollout.Restart
	// release lets go of the hold: the user's strategy comes back.
	release bool
}

// complete returns the plan with all that is to be written.
func (p plan) complete(o observation) rollout.Plan {
	for _, m := range p.MarkUpdated {
		p.Writes = append(p.Writes, rollout.MarkPod{Member: m, Label: o.newest.hash, Revision: o.newest.name})
	}
	p.Writes = append(p.Writes, rollout.Resizes(p.Resize)...)
	surge, _ := bounds(o.set)
	for _, r := range p.remove {
		if surge > 0 {
			if refused := r.Member.Relabel; o.Now.Before(refused.Until) {
				p.RequeueWithin(refused.Until.Sub(o.Now))
			} else {
				p.Writes = append(p.Writes, unmark{r.Member, o.unmarked(r.Member.Pod)})
			}
			continue
		}
		p.Writes = append(p.Writes, rollout.DeletePod{Restart: r})
	}
	p.Replaced = p.remove
	if p.release {
		p.Replaced = p.Restart
		p.Writes = append(p.Writes, p.LetGo(kindName))
		p.Condition = rollout.Condition{} // what there is to say then, its status says
	}
	if surge > 0 {
		p.Replaced = rollout.NewFirst(p.Replaced)
	}
	return p.Plan
}

// Plan plans for a set that is held, whose strategy is OnDelete, or whose pods the DaemonSet
// controller counts as updated while nobody has looked at their sizes yet.
//
// A held set has the strategy OnDelete: the DaemonSet controller makes pods for nodes that lack one,
// of the newest revision, and deletes none for its revision. So pods that only a restart helps are
// deleted here, each by itself, within maxUnavailable. Where nothing is left that can be resized
// live, or must be kept, the hold is let go, and the DaemonSet controller restarts the rest at its
// own pace. With maxSurge it makes the new pod first, which it cannot while the set is held; so
// there restarts come last, and a pod that it takes for updated is unmarked first.
func (o observation) Plan(f rollout.Facts) (rollout.Plan, error) {
	o.Facts = f
	o.sortByNode()
	if err := o.readSizes(); err != nil {
		return rollout.Plan{Condition: rollout.Invalid(err)}, nil
	}
	options := o.options()
	if former := o.revisions[options.Guard.Former()]; options.Guard.Reverts() && former != nil {
		back, err := o.reverting(former)
		if err != nil {
			return rollout.Plan{}, err
		}
		return rollout.GoBack(options, o.judge, back.judge, back.revision(), former.hash)
	}
	o.Facts = o.known()
	verdicts, _, found, err := o.judge(options)
	if err != nil {
		return rollout.Plan{}, err
	}
	p := plan{Plan: rollout.Plan{Step: rollout.Next(verdicts, options), Revision: o.revision(), Found: found}}
	p.nameDelays(o)
	p.Condition = p.Step.Condition()
	for _, v := range verdicts {
		if v.Member.Class != "" && v.Member.Updated {
			p.Resized = append(p.Resized, &v.Member)
		}
	}
	if slices.ContainsFunc(verdicts, func(v *judge.Verdict) bool {
		return !v.Member.InPlaceOnly && (!v.Member.Updated || judge.Gone(v.Member.Pod))
	}) {
		p.Started = fmt.Sprintf("revision %s: %s%s", p.Revision.Name, rollout.Changes(verdicts), rollout.OldUntilRestart(verdicts, p.Revision.Template))
	}
	if policy.Held(o.set) {
		p.letGo(o)
	} else {
		u := builtInStatus(o.set)
		u.Condition.Details += rollout.Classed(p.Verdicts)
		p.Plan, p.remove = u.Plan(p.Plan, condition(o.set))
	}
	return p.complete(o), nil
}

// nameDelays says of pods that the DaemonSet controller restarts with maxSurge why they still wait: admission refuses every write of the
// labels by which it takes one for updated; or the set stays held, for them or for others.
func (p *plan) nameDelays(o observation) {
	if surge, _ := bounds(o.set); surge == 0 {
		return
	}
	restarts := make(map[string]rollout.Restart, len(p.Restart))
	for _, r := range p.Restart {
		restarts[r.Member.Name] = r
	}
	held := policy.Held(o.set) && p.staysHeld(o)
	for i, w := range p.Waits {
		r, is := restarts[w.Member.Name]
		refused := r.Member.Relabel
		switch {
		case !is:
		case ours(r) && refused.Reason != "":
			p.Waits[i].Reason, p.Waits[i].Message = refused.Kind, w.Message+"; its labels cannot be changed: "+refused.Reason
		case !ours(r) && held:
			p.Waits[i].Message = "waits for its restart: " + r.Reason
		}
	}
}

// ours reports whether the restart is of a pod that the DaemonSet controller takes for updated, and so would never restart.
func ours(r rollout.Restart) bool { return r.Member.Labelled }

// staysHeld reports whether the hold is kept: for what can be resized, for what is kept, for what is to show something first, or for restarts
// of our own. With maxSurge the DaemonSet controller makes the new pods, so that none can be a canary, or show what it has before others go.
func (p *plan) staysHeld(o observation) bool {
	surge, _ := bounds(o.set)
	return p.Hold || p.Unready || p.Shows() && surge == 0 || slices.ContainsFunc(p.Restart, ours)
}

// letGo decides which pods of a held set are given up.
func (p *plan) letGo(o observation) {
	if surge, _ := bounds(o.set); p.staysHeld(o) {
		for _, r := range p.Restart {
			if r.Now && (surge == 0 || ours(r)) {
				p.remove = append(p.remove, r)
			}
		}
		return
	}
	switch counts, wait := o.doubt(); {
	case !counts:
		p.AwaitCount(kindName) // before letting it loose
	case wait > 0:
		p.RequeueWithin(wait)
	case len(p.Restart) == 0 && o.settles() > 0:
		p.Started = "" // nothing is rolled out
		p.Defer()
		p.RequeueWithin(o.settles())
	default:
		p.release = true
	}
}
