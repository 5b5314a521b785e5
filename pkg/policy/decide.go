package policy

import "github.com/inplace-rollout/inplace-rollout/pkg/resize"

// Strategy is who restarts pods: the type of the workload's update strategy.
type Strategy string

// The strategies. Deployments are RollingUpdate.
const (
	OnDelete      Strategy = "OnDelete"
	RollingUpdate Strategy = "RollingUpdate"
)

// Decision is what to do about one pod.
type Decision string

// The decisions.
const (
	// Resize the pod, or ask for it again.
	Resize Decision = "Resize"
	// Wait for the kubelet.
	Wait Decision = "Wait"
	// MarkUpdated: count the pod as updated, for it has the new size.
	MarkUpdated Decision = "MarkUpdated"
	// RestartByController: make a new pod in its place.
	RestartByController Decision = "RestartByController"
	// WaitForDelete: the new pod comes when the user deletes this one.
	WaitForDelete Decision = "WaitForDelete"
	// Leave the pod as it is, and go on with the others.
	Leave Decision = "Leave"
)

// Decide is the proposal's table, for one pod:
//
//	policy (action)                                | OnDelete                     | RollingUpdate
//	RestartOnly, or action Restart                 | restart on delete            | restart by the controller
//	LiveResizeable (LiveResize)                    | live only                    | live only
//	LiveResizeable (LiveResizePreferred, or none)  | live; else restart on delete | live; else restart by the controller
//
// A pod that has the new size already needs nothing in any of the cells.
func Decide(p Policy, a Action, s Strategy, state resize.State) Decision {
	switch {
	case state == resize.Actuated:
		return MarkUpdated
	case p == RestartOnly || a == Restart:
		return restart(s)
	case a == LiveResize:
		return live(state, Leave)
	default:
		return live(state, restart(s))
	}
}

// restart is the decision that the pod is restarted, by whoever does that.
func restart(s Strategy) Decision {
	if s == OnDelete {
		return WaitForDelete
	}
	return RestartByController
}

// live is the decision how a live resize goes on; otherwise is the one if it cannot.
func live(state resize.State, otherwise Decision) Decision {
	switch state {
	case resize.Unsent, resize.Refused:
		return Resize
	case resize.DeferredTooLong, resize.FailingTooLong, resize.Infeasible, resize.Unresizable, resize.Disruptive:
		return otherwise
	default: // InProgress, Deferred, Failing, Unready; what nobody knows may yet come, too
		return Wait
	}
}
