package deployment

import (
	"fmt"
	"slices"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// nothingToDo returns the condition of a Deployment that is not held, and whether nothing is to be
// done. Some pods may be of another template: then the Deployment controller makes the rollout, and
// only those that it leaves alone are looked at, if the record of adoption names them. Or the user
// has the Deployment paused: then what an edit that was given up has left is taken back when it is
// resumed. Without pods, only a record of adoption is left to be finished.
func (o observation) nothingToDo(base *replicaSet) (rollout.Condition, bool) {
	d := o.deployment
	if stale := o.stale(); stale != "" {
		return d.incomplete(stale), base == nil || !base.adopted() || d.Spec.Paused || !base.template.Same(d.template)
	}
	switch recorded := o.adopted(); {
	case !d.Spec.Paused:
		return builtInCondition(d), base == nil && recorded == nil
	case recorded != nil:
		return d.incomplete(fmt.Sprintf("ReplicaSet %s has the record of an adoption", recorded.Name)), true
	case base == nil:
		return builtInCondition(d), true
	}
	for _, pod := range o.podsOf(base) {
		if target, err := o.target(base, pod); err != nil || !target.Clean() {
			return d.incomplete(fmt.Sprintf("pod %s has the size of an abandoned edit", pod.Name)), true
		}
	}
	return builtInCondition(d), true
}

// notHeld plans for a Deployment that is not held. Its pods may have the size of an edit that
// was given up, as where the hold was let go without us. They need no hold: the Deployment
// controller does not touch them. Where only new pods help, they are evicted. None is replaced
// before it goes: that needs the hold. Where no old pod may be there beside a new one, the Deployment
// controller is given a reason to replace them all.
func (p *plan) notHeld(o observation, unavailable int) {
	p.Condition = p.Step.Condition().NotHeld()
	stale := o.stale()
	if stale != "" {
		p.Condition = o.deployment.incomplete(stale).And(p.Condition)
	}
	switch {
	case p.Hold || len(p.Resize) > 0:
	case stale != "": // these go first
	case len(p.Restart) > 0 && p.base.lags() && p.base.adopted() && !p.base.adoption.Closed: // see afterAdoption
	case len(p.Restart) > 0:
		p.giveUp(o, nil, 0, unavailable)
		p.Condition = p.Step.Condition() // with what keeps them from going
		if p.write == nil && len(p.evict) == 0 && unavailable == 0 {
			p.leave("maxUnavailable is 0")
		}
	case p.base.adopted():
		p.write = o.endAdoption(p.base)
	default:
		p.done(o)
	}
}

// done completes the plan where nothing is rolled out. Once Complete, a Deployment stays so when it
// is scaled, or a pod is lost. A pod that was rejected keeps none from being restarted then.
func (p *plan) done(o observation) {
	p.Started = ""
	others := func(w rollout.Wait) bool { return w.Reason != judge.ReasonPodRejected }
	if condition(o.deployment).Complete() || !slices.ContainsFunc(p.Waits, others) {
		p.Condition = builtInCondition(o.deployment)
	}
}

// leave says that the pods that only a restart helps are left as they are, and why.
func (p *plan) leave(why string) {
	for i, w := range p.Waits {
		at := slices.IndexFunc(p.Restart, func(r rollout.Restart) bool { return r.Member.Name == w.Member.Name })
		if at >= 0 {
			p.Waits[i].Reason, p.Waits[i].Message = judge.ReasonInfeasible, "left as it is until the next edit: a restart is not possible, because "+why+": "+p.Restart[at].Reason
		}
	}
	p.Restart = nil
	p.Condition = p.Step.Condition()
	p.Condition.Next = "Edit it once more, or allow a pod to be unavailable"
}
