package judge

import (
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
)

// awaitBooster keeps the rollout open for a pod that has its size, and that a startup booster is about
// to take away from it: when that has come, the pod is asked once more. Otherwise Complete would stand above the
// size from before the edit. Nobody waits for the pod meanwhile: it is well with the size that it has.
func (v *Verdict) awaitBooster(o Terms) {
	m, since := v.Member, v.Member.Proof.Since
	if !m.Updated || m.PutBack == "" || v.Reason != "" {
		return
	}
	if since.IsZero() { // nobody has looked, as for a forecast
		since = m.Target.Resized
	}
	if until := since.Add(o.BoosterTimeout); until.After(o.Now) {
		v.Decision, v.Reason, v.Message = policy.Wait, ReasonProgressing, "waiting for its startup booster to put back "+m.PutBack
		v.changesAt(until, o)
	}
}
