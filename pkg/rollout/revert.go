package rollout

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
)

// Evaluator judges the pods of a workload on the way to a revision. Beside them, nonMembers take a share of the limits.
type Evaluator func(Options) (verdicts []*judge.Verdict, nonMembers []judge.Member, found *Found, err error)

// GoBack plans the way back to a revision: of those pods that have the size that has failed, as the way forth tells. The workload stays
// held, and its template is not written. Label is what the pods get for it, empty if they get none.
func GoBack(o Options, forth, back Evaluator, to Revision, label string) (Plan, error) {
	guard := o.Guard
	failed, _, _, err := forth(o)
	if err != nil {
		return Plan{}, err
	}
	o = o.back()
	verdicts, nonMembers, found, err := back(o)
	if err != nil {
		return Plan{}, err
	}
	o.NonMembers = nonMembers
	p := Plan{Step: Next(reverting(verdicts, failed), o), Revision: to, Found: found}
	p.Condition, p.Restart = p.reverted(guard), nil
	record := guard.Record
	if record.Phase = PhaseReverting; p.Condition.Reason == judge.ReasonReverted {
		record.Phase = PhaseReverted
	}
	p.record, p.Urgency = &record, urgentIf(record.Phase != guard.Record.Phase)
	if label != "" {
		for _, m := range p.MarkUpdated {
			p.Writes = append(p.Writes, MarkPod{Member: m, Label: label, Revision: to.Name})
		}
	}
	p.Writes = append(p.Writes, Resizes(p.Resize)...)
	return p, nil
}

// reverted is the condition of a rollout whose pods go back, or have gone back, to the size from before. None is restarted for that.
func (s *Step) reverted(g *Guard) Condition {
	c := s.progress()
	for i, w := range s.Waits {
		for _, r := range s.Restart {
			if r.Member.Name == w.Member.Name {
				s.Waits[i].Reason, s.Waits[i].Message = judge.ReasonInfeasible, "left as it is, because only a restart would bring it back: "+r.Reason
			}
		}
	}
	_, c.Details = Spell(s.Waits)
	c.Reason, c.Phase, c.Version, c.Why = judge.ReasonResizeFailed, PhaseReverted, g.called, g.Record.Failed
	if len(s.Resize)+len(s.MarkUpdated)+s.unmarked == 0 && !slices.ContainsFunc(s.Verdicts, func(v *judge.Verdict) bool { return v.Decision == policy.Wait || v.Decision == policy.Resize }) {
		c.Reason = judge.ReasonReverted
	}
	return c
}

// reverting returns those of the verdicts on the way back that are about pods which have the size that has failed, by the verdicts on
// the way forth, or have gone back already. What was asked last comes first. A pod that has yet another size was never asked.
func reverting(back, forth []*judge.Verdict) []*judge.Verdict {
	failed := sets.Set[types.UID]{}
	for _, v := range forth {
		if v.HasSize() {
			failed.Insert(v.Member.Pod.UID)
		}
	}
	back = slices.DeleteFunc(back, func(v *judge.Verdict) bool {
		return judge.Gone(v.Member.Pod) || v.Member.Differs != "" || len(v.Member.Target.Changes) > 0 && !failed.Has(v.Member.Pod.UID)
	})
	slices.SortStableFunc(back, func(a, b *judge.Verdict) int { return b.Member.Target.Resized.Compare(a.Member.Target.Resized) })
	return back
}

// back returns the options of the way back: nothing is restarted for it, and nothing guards it. Where the user wants no resizes,
// pods stay as they are.
func (o Options) back() Options {
	if o.Action != policy.Restart {
		o.Action = policy.LiveResize
	}
	o = o.toProved()
	o.Lost = o.Guard.losses.Why() // of those that have gone back
	o.Guard, o.Strategy, o.Rejected = nil, policy.RollingUpdate, nil
	return o
}

// toProved has the pods go back to a size that was proved.
func (o Options) toProved() Options {
	o.Back, o.edited, o.patience = true, o.Guard.Record.Began.Time, o.Guard.NotReadyTimeout
	return o
}

// undoing returns the options of an edit to the size from before: its pods go back, too.
func (o Options) undoing() Options {
	if o.Guard != nil && o.Guard.Back {
		return o.toProved()
	}
	return o
}
