package rollout

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
)

// Fate is what a rollout does to one pod.
type Fate string

// The fates of a pod.
const (
	// Unchanged: the pod has what the template says already.
	Unchanged Fate = "Unchanged"
	// Live: the pod is resized, and nothing restarts.
	Live Fate = "Live"
	// Deferred: its node has no room for the new size now, and the pod waits for it.
	Deferred Fate = "Deferred"
	// ContainerRestart: the pod is resized, and the kubelet restarts containers for it.
	ContainerRestart Fate = "ContainerRestart"
	// PodRestart: a new pod comes in its place.
	PodRestart Fate = "PodRestart"
	// AfterDelete: a new pod comes when the user deletes this one.
	AfterDelete Fate = "AfterDelete"
	// Refused: neither is possible, or allowed. The pod stays as it is.
	Refused Fate = "Refused"
	// KeptBack: the user's partition keeps the pod back.
	KeptBack Fate = "KeptBack"
	// New: the place is empty, or about to be, whatever the rollout does; a new pod comes.
	New Fate = "New"
	// ScaledIn: there are to be fewer pods, and this one goes.
	ScaledIn Fate = "ScaledIn"
)

// Forecast is what is to come of one place of a workload, as far as it can be foreseen.
type Forecast struct {
	Member Member
	Fate   Fate
	// Reason for anything but Live and Unchanged.
	Reason string
	// Late is the fate of a pod that is to be resized if its node has no room until the
	// deadline; it says nothing about others.
	Late Fate
}

// Restarts tells whether the pod or a container restarts, now or when the user
// deletes the pod, as things stand.
func (f Forecast) Restarts() bool {
	fate := f.Fate
	if fate == Deferred {
		fate = f.Late
	}
	return fate == PodRestart || fate == AfterDelete || fate == ContainerRestart
}

// Foresee tells for each member what [Next] will do to it in the end, if nothing
// happens that cannot be seen now. What a kubelet will say to a resize cannot be
// seen; what the API server will say to one larger than the pod's node can
// (PodResizeValidator), and the caller puts it into the member's Refusal.
func Foresee(members []Member, o Options) []Forecast {
	forecasts := make([]Forecast, len(members))
	for i, m := range members {
		forecasts[i] = m.foresee(o)
	}
	return forecasts
}

func (m Member) foresee(o Options) Forecast {
	switch {
	case Gone(m.Pod) && m.Pod != nil && (m.Updated || m.Differs == ""):
		return Forecast{Member: m, Fate: New, Reason: "the pod is about to go, whatever is edited"}
	case m.Pod == nil && (m.Updated || m.Differs == ""):
		return Forecast{Member: m, Fate: New, Reason: "there is no pod now"}
	case m.Updated:
		return Forecast{Member: m, Fate: Unchanged}
	case m.Differs != "":
		return m.restarts(o, m.Differs)
	}
	judged := m.judge(o)
	switch policy.Decide(m.Policy, o.Action, o.Strategy, judged.outcome) {
	case policy.RestartByController, policy.WaitForDelete:
		return m.restarts(o, judged.why(m, o))
	case policy.Leave:
		return Forecast{Member: m, Fate: Refused, Reason: judged.message}
	case policy.MarkUpdated:
		return Forecast{Member: m, Fate: Unchanged}
	}
	return m.resized(o, judged)
}

// resized foresees the resize of a pod of which this has come so far.
func (m Member) resized(o Options, judged judgement) Forecast {
	f := Forecast{Member: m, Fate: Live, Late: Refused}
	if policy.Decide(m.Policy, o.Action, o.Strategy, policy.DeferredTooLong) != policy.Leave {
		f.Late = m.restarts(o, "").Fate
	}
	switch {
	case m.Target.Restarts():
		f.Fate, f.Reason = ContainerRestart, "its resizePolicy is "+string(corev1.RestartContainer)
	case judged.outcome == policy.Deferred:
		f.Fate, f.Reason = Deferred, judged.message
	case judged.reason != ReasonProgressing:
		f.Reason = judged.message
	}
	return f
}

func (m Member) restarts(o Options, reason string) Forecast {
	switch {
	case m.Unplaceable.Kind == ReasonInvalid:
		return Forecast{Member: m, Fate: Refused, Reason: m.invalid(o)}
	case o.Strategy == policy.OnDelete:
		return Forecast{Member: m, Fate: AfterDelete, Reason: reason}
	case m.Unplaceable.Reason != "":
		return Forecast{Member: m, Fate: Refused, Reason: m.Unplaceable.Reason + ": " + reason}
	default:
		return Forecast{Member: m, Fate: PodRestart, Reason: reason}
	}
}

// RolloutForecast is what is to come of a rollout.
type RolloutForecast struct {
	// Pods in the order in which the rollout comes to them.
	Pods []Forecast
	// HandOver is why the built-in controller makes all of the rollout; empty if it does not.
	HandOver string
	// Stale names the pods that the built-in controller would restart if it were let go now.
	Stale []string
}
