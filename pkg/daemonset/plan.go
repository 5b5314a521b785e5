package daemonset

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
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
	for _, r := range p.remove {
		p.Writes = append(p.Writes, rollout.DeletePod{Restart: r})
	}
	p.Replaced = p.remove
	if p.release {
		p.Replaced = p.Restart
		p.Writes = append(p.Writes, release{p.handOver, p.Revision.Name})
		p.Condition = rollout.Condition{} // what there is to say then, its status says
	}
	surge, _ := bounds(o.set)
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
func (o observation) Plan(f controller.Facts) (rollout.Plan, error) {
	o.Facts = f
	if err := o.readSizes(); err != nil {
		return rollout.Plan{Condition: rollout.Invalid(err)}, nil
	}
	options := o.options()
	verdicts, err := o.verdicts(o.look(options))
	if err != nil {
		return rollout.Plan{}, err
	}
	p := plan{Plan: rollout.Plan{Step: rollout.Next(verdicts, options), Revision: o.revision()}}
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
		p.unheld(o)
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
		p.Passing = true // wait for its status before letting it loose
	case wait > 0:
		p.RequeueWithin(wait)
	default:
		p.release = true
		if len(p.Restart) > 0 {
			p.handOver = p.Restart[0].Reason
		}
	}
}

// unheld plans for a set that is not held. Pods that count as updated may have the size of an edit
// that was given up, as where the hold was let go without us. They need no hold: the DaemonSet
// controller does not touch them. If there is a pod that it does touch, it makes the rollout, and
// nothing is planned but sizes of classes.
func (p *plan) unheld(o observation) {
	set, done := o.set, true
	still := saysComplete(set)
	for _, v := range p.Verdicts {
		m := &v.Member
		if rolling(set) && !m.Labelled && !rollout.Gone(m.Pod) {
			p.leave(set, m.Name+" is of an older revision")
			return
		}
		done = done && (m.Updated || still && m.InPlaceOnly)
	}
	if done {
		p.Started = "" // nothing is rolled out
		// Once Complete, a set stays so when nodes come and go, or a pod is lost.
		if !p.unfit() && (condition(set).Complete() || len(p.Waits) == 0) {
			p.Condition, p.Still = unheldCondition(set), still
			p.Condition.Message += p.classed()
		}
		return
	}
	for _, r := range p.Restart {
		if r.Now && rolling(set) && !rollout.Gone(r.Member.Pod) {
			p.remove = append(p.remove, r)
		}
	}
}

// leave leaves the rollout to the DaemonSet controller. Only pods that are to have the size of their
// node's class are resized.
func (p *plan) leave(set *appsv1.DaemonSet, why string) {
	rest, _ := Kind{}.Unheld(set).AtRest(false, condition(set))
	left := plan{Plan: rollout.Plan{Revision: p.Revision, Resized: p.Resized, Condition: builtIn(set, why), HandedOver: rest.HandedOver}}
	left.RequeueAfter = p.RequeueAfter
	for _, m := range p.Resize {
		if m.InPlaceOnly {
			left.Resize = append(left.Resize, m)
		}
	}
	*p = left
}
