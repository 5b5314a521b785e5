package daemonset

import (
	"fmt"
	"slices"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// plan is the next step of a DaemonSet's rollout, while it is made.
type plan struct {
	rollout.Plan

	// remove these pods: the DaemonSet controller makes a new one on the same node.
	remove []rollout.Restart
	// release lets go of the hold: the user's strategy comes back.
	release bool
	// handOver is why a release leaves the rest to the DaemonSet controller; empty if there is no
	// rest.
	handOver string
}

// complete returns the plan with all that is to be written.
func (p plan) complete(o observation) rollout.Plan {
	for _, m := range p.MarkUpdated {
		p.Writes = append(p.Writes, rollout.MarkPod{Member: m, Label: o.newest.hash, Revision: o.newest.name})
	}
	p.Writes = append(p.Writes, rollout.Resizes(p.Resize)...)
	surge, _ := bounds(o.set)
	if surge > 0 && len(p.remove) > 1 { // as restarts come last then, the step has not counted them
		p.remove = p.remove[:1]
	}
	for _, r := range p.remove {
		p.Writes = append(p.Writes, rollout.DeletePod{Restart: r})
	}
	p.Replaced = p.remove
	if p.release {
		p.Replaced = p.Restart
		p.Writes = append(p.Writes, rollout.Release{HandOver: p.handOver, To: rollout.HandedOver(kindName, rollout.RevisionNamed(p.Revision.Name), "")})
		p.Condition = rollout.Condition{} // what there is to say then, its status says
	}
	p.NewFirst = p.release && surge > 0
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
// there restarts come last.
func (o observation) Plan(f rollout.Facts) (rollout.Plan, error) {
	o.Facts = f
	if err := o.readSizes(); err != nil {
		return rollout.Plan{Condition: rollout.Invalid(err)}, nil
	}
	options := o.options()
	look := o.look(options)
	verdicts, err := o.verdicts(look)
	if err != nil {
		return rollout.Plan{}, err
	}
	p := plan{Plan: rollout.Plan{Step: rollout.Next(verdicts, options), Revision: o.revision(), Found: look.Found()}}
	p.Condition = p.Step.Condition()
	for _, v := range verdicts {
		if v.Member.Class != "" && v.Member.Updated {
			p.Resized = append(p.Resized, &v.Member)
		}
	}
	if slices.ContainsFunc(verdicts, func(v *rollout.Verdict) bool {
		return !v.Member.InPlaceOnly && (!v.Member.Updated || rollout.Gone(v.Member.Pod))
	}) {
		p.Started = fmt.Sprintf("revision %s: %s%s", p.Revision.Name, rollout.Changes(verdicts), rollout.OldEnvironment(verdicts))
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

// letGo decides which pods of a held set are given up.
func (p *plan) letGo(o observation) {
	// The DaemonSet controller would never restart a pod that it takes for updated.
	ours := func(r rollout.Restart) bool { return r.Member.Labelled }
	if p.Hold || p.Unready || slices.ContainsFunc(p.Restart, ours) {
		surge, _ := bounds(o.set)
		for _, r := range p.Restart {
			if r.Now && (surge == 0 || ours(r)) {
				p.remove = append(p.remove, r)
			}
		}
		return
	}
	switch counts, wait := o.doubt(); {
	case !counts:
		p.Transient = true // wait for its status before letting it loose
	case wait > 0:
		p.RequeueWithin(wait)
	default:
		p.release = true
		if len(p.Restart) > 0 {
			p.handOver = p.Restart[0].Reason
		}
	}
}
