package judge

import (
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// Claim is what the budget counts one member as. It is worked out once for each verdict: a
// step counts the claims of all members.
type Claim struct {
	// Missing: there is no pod. Down: there is none that is available.
	Missing, Down bool
	// Share: it takes a share of the limits before anything is done to it in this step.
	Share bool
	// Busy, Idle, Proved and Pending are those of the budget.
	Busy, Idle, Proved, Pending bool
	// Ready: the pod is Ready. Runs: a container of it does.
	Ready, Runs bool
	// Owes: it is available, and busy only until its kubelet answers, or has not for too long.
	Owes bool
	// GoesDown: its resize restarts a container. GivesRoom: it asks for less than before.
	GoesDown, GivesRoom bool
	// ComesBack: it has had the size before. Shows: its successor will show whether those of others need not come.
	ComesBack, Shows bool
}

func (v *Verdict) claims(o Terms) Claim {
	m := v.Member
	return Claim{
		Missing: m.Pod == nil, Down: m.Down(), Share: v.takesShare(o),
		Busy: m.busy(), Owes: !m.Down() && m.busy() && resize.Owes(m.Pod, m.Kubelet), Idle: v.idle(o), Proved: v.proved(), Pending: v.pending(o),
		Ready: m.Pod != nil && podutils.IsPodReady(m.Pod), Runs: m.Runs(),
		GoesDown: m.Target.Restarts(), GivesRoom: m.Target.GivesRoom(), ComesBack: m.comesBack(), Shows: v.Cause == CauseUnresizable && m.Target.Unproved,
	}
}

// takesShare reports whether the pod takes a share before anything is done to it in this step.
func (v *Verdict) takesShare(o Terms) bool {
	return v.Member.Down() || v.Member.busy() || v.Decision == policy.Wait && !v.passed(o) || v.Unproved()
}

// passed reports whether nobody is to wait for the pod while it waits for room on its node: it is
// available, and so it will be when its kubelet finds room for it and for others at once. Of a size
// that has less of something, nobody knows that: its limit may be too small.
func (v *Verdict) passed(o Terms) bool {
	return o.PassDeferred && v.State == resize.Deferred && !v.Member.Down() &&
		!v.Member.Target.WillRestart() && !v.Member.Target.Takes()
}

// Idle reports whether the pod is down until others have been resized, or until its node comes
// back, for which nobody is to wait.
func (v *Verdict) idle(o Terms) bool {
	m := v.Member
	if m.Lost != "" && o.PassLost {
		return true
	}
	restarts := !Gone(m.Pod) && !podutils.IsPodReady(m.Pod) && m.Lost == "" && m.Unplaceable.Reason == "" &&
		(v.Decision == policy.RestartByController || v.Decision == policy.WaitForDelete)
	return m.Down() && (restarts || m.waitsForRoom() || m.Pod == nil && m.Remade)
}

// Proved reports whether the pod has the size, and is well with it.
func (v *Verdict) proved() bool {
	return (v.Member.Updated || v.Decision == policy.MarkUpdated) && !v.Member.Down() && !v.Member.busy() && !v.Unproved()
}

// Pending reports whether the pod has been asked for the size, and has yet to prove it. One
// that was not Ready when it was asked has lost nothing by it, and proves nothing.
func (v *Verdict) pending(o Terms) bool {
	m := v.Member
	switch {
	case Gone(m.Pod) || m.Lost != "" || m.Differs != "" || len(m.Target.Changes) > 0 || m.Cure && m.Down() || m.waitsForRoom():
		return false
	case m.Updated || v.Decision == policy.MarkUpdated:
		return v.Unproved() || !m.Available && !m.Target.Resized.IsZero()
	default:
		return v.Decision == policy.Wait && !v.passed(o)
	}
}
