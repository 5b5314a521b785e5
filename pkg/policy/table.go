package policy

// Strategy is who restarts pods: the type of the workload's update strategy.
type Strategy string

// The strategies. Deployments are RollingUpdate.
const (
	OnDelete      Strategy = "OnDelete"
	RollingUpdate Strategy = "RollingUpdate"
)

// Outcome is how far the live resize of one pod has come.
type Outcome string

// The outcomes.
const (
	// Untried: not asked for yet.
	Untried Outcome = "Untried"
	// InProgress: asked for, and nothing speaks against it.
	InProgress Outcome = "InProgress"
	// Actuated: the pod has the new size.
	Actuated Outcome = "Actuated"
	// Deferred: the node has no room now; the kubelet tries again.
	Deferred Outcome = "Deferred"
	// DeferredTooLong: deferred until the deadline.
	DeferredTooLong Outcome = "DeferredTooLong"
	// Failing: the kubelet cannot carry it out yet; it tries again.
	Failing Outcome = "Failing"
	// FailingTooLong: failing until the deadline.
	FailingTooLong Outcome = "FailingTooLong"
	// Infeasible: refused for good, by the node or by the API server.
	Infeasible Outcome = "Infeasible"
	// Refused for now, by a quota, a LimitRange or a webhook; asking again may help.
	Refused Outcome = "Refused"
	// Impossible: something known before any request stands in the way.
	Impossible Outcome = "Impossible"
	// Disruptive: it would take the pod down, and none may be; not where nothing but a
	// live resize is wanted.
	Disruptive Outcome = "Disruptive"
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
	// Leave the pod as it is, go on with the others, and say so.
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
func Decide(p Policy, a Action, s Strategy, o Outcome) Decision {
	switch {
	case o == Actuated:
		return MarkUpdated
	case p == RestartOnly || a == Restart:
		return restart(s)
	case a == LiveResize:
		return live(o, Leave)
	default:
		return live(o, restart(s))
	}
}

// restart tells who restarts the pod.
func restart(s Strategy) Decision {
	if s == OnDelete {
		return WaitForDelete
	}
	return RestartByController
}

// live tells how a live resize goes on, or what to do instead if it cannot.
func live(o Outcome, otherwise Decision) Decision {
	switch o {
	case Untried, Refused:
		return Resize
	case DeferredTooLong, FailingTooLong, Infeasible, Impossible, Disruptive:
		return otherwise
	default: // InProgress, Deferred, Failing; what nobody knows may yet come, too
		return Wait
	}
}
