package rollout

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
)

// Reverted is the condition of a rollout whose pods go back, or have gone back, to the size from before.
func (s Step) Reverted(g *Guard) Condition {
	c := s.progress()
	waits := slices.Clone(s.Waits)
	for i, w := range waits {
		for _, r := range s.Restart {
			if r.Member.Name == w.Member.Name {
				waits[i].Reason, waits[i].Message = ReasonInfeasible, "left as it is, because only a restart would bring it back: "+r.Reason
			}
		}
	}
	_, c.Details = Spell(waits)
	c.Reason, c.Phase, c.Version, c.Why = ReasonResizeFailed, PhaseReverted, g.Record.Of, g.Record.Failed
	if len(s.Resize)+len(s.MarkUpdated)+s.Unmarked == 0 && !slices.ContainsFunc(s.Verdicts, func(v *Verdict) bool { return v.Decision == policy.Wait || v.Decision == policy.Resize }) {
		c.Reason = ReasonReverted
	}
	return c
}

// Reverting returns those of the verdicts on the way back that are about pods which have the size that has failed, by the verdicts on
// the way forth, or have gone back already. What was asked last comes first. A pod that has yet another size was never asked.
func Reverting(back, forth []*Verdict) []*Verdict {
	failed := sets.Set[types.UID]{}
	for _, v := range forth {
		if v.hasSize() {
			failed.Insert(v.Member.Pod.UID)
		}
	}
	back = slices.DeleteFunc(back, func(v *Verdict) bool {
		return Gone(v.Member.Pod) || v.Member.Differs != "" || len(v.Member.Target.Changes) > 0 && !failed.Has(v.Member.Pod.UID)
	})
	slices.SortStableFunc(back, func(a, b *Verdict) int { return b.Member.Target.Resized.Compare(a.Member.Target.Resized) })
	return back
}

// Back returns the options of the way back: nothing is restarted for it, and nothing guards it. Where the user wants no resizes,
// pods stay as they are.
func (o Options) Back() Options {
	if o.Action != policy.Restart {
		o.Action = policy.LiveResize
	}
	o.Lost = o.Guard.losses.Why() // of those that have gone back
	o.Guard, o.Strategy, o.Rejected = nil, policy.RollingUpdate, nil
	return o
}
