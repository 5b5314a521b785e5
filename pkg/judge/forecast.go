package judge

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// Forecast is what a rollout does to one pod in the end.
type Forecast string

// The forecasts for a pod.
const (
	// Unchanged: the pod has what the template says already.
	Unchanged Forecast = "Unchanged"
	// Live: the pod is resized, and nothing restarts.
	Live Forecast = "Live"
	// Deferred: its node, or a quota, has no room for the new size now, and the pod waits for it.
	Deferred Forecast = "Deferred"
	// ContainerRestart: the pod is resized, and the kubelet restarts containers for it.
	ContainerRestart Forecast = "ContainerRestart"
	// PodRestart: a new pod comes in its place.
	PodRestart Forecast = "PodRestart"
	// AfterDelete: a new pod comes when the user deletes this one.
	AfterDelete Forecast = "AfterDelete"
	// Infeasible: neither is possible, or allowed. The pod stays as it is.
	Infeasible Forecast = "Infeasible"
	// KeptBack: the user's partition keeps the pod back, or the rollout was stopped.
	KeptBack Forecast = "KeptBack"
	// New: the place is empty, or about to be, whatever the rollout does; a new pod comes.
	New Forecast = "New"
	// ScaledIn: there are to be fewer pods, and this one goes.
	ScaledIn Forecast = "ScaledIn"
)

// forecastOf are those that follow from what is decided about a pod.
var forecastOf = map[policy.Decision]Forecast{
	"": Unchanged, policy.MarkUpdated: Unchanged, policy.Resize: Live, policy.Wait: Live,
	policy.RestartByController: PodRestart, policy.WaitForDelete: AfterDelete, policy.Leave: Infeasible,
}

// PodForecast is what is to come of one place of a workload, as far as it can be foreseen.
type PodForecast struct {
	Member Member
	// Observed and Says are those of the verdict.
	Observed resize.State
	Says     string
	// ProvedAt is that of the verdict.
	ProvedAt time.Time
	// Waits and Message are the reason and the message of the verdict.
	Waits, Message string
	// Forecast for the pod.
	Forecast Forecast
	// Reason for it; empty for Unchanged, and for Live if nothing is in the way.
	Reason string
	// Late is the forecast if the pod is to be resized, and its node has no room, or its kubelet fails, until the
	// deadline; Deferred if it goes on waiting, and empty for others.
	Late Forecast
	// Failing: the kubelet fails to resize the pod, or should have answered by now.
	Failing bool
}

// Lasts returns what becomes of the pod if what is in its way lasts until the deadline; empty if nothing is.
func (f PodForecast) Lasts() Forecast {
	if f.Forecast == Deferred || f.Forecast == Live && f.Failing {
		return f.Late
	}
	return ""
}

// Moves reports whether the pod is resized or restarted without a person.
func (f PodForecast) Moves() bool {
	return f.Forecast == Live || f.Forecast == Deferred || f.Forecast == ContainerRestart || f.Forecast == PodRestart
}

// Restarts reports whether the pod or a container restarts, now or when the user
// deletes the pod, as things stand.
func (f PodForecast) Restarts() bool {
	end := cmp.Or(f.Lasts(), f.Forecast)
	return end == PodRestart || end == AfterDelete || end == ContainerRestart
}

// Forecasts returns for each verdict what rollout.Next will do to the pod in the end, if nothing
// happens that cannot be seen now. What a kubelet will say to a resize cannot be
// seen; what the API server will say to one larger than the pod's node can
// (PodResizeValidator), and the caller puts it into the member's Refusal. Now is when the verdicts are made.
func Forecasts(verdicts []*Verdict, now time.Time) []PodForecast {
	forecasts := make([]PodForecast, len(verdicts))
	for i, v := range verdicts {
		forecasts[i] = forecastFor(v, now)
	}
	return forecasts
}

func forecastFor(v *Verdict, now time.Time) PodForecast {
	m := v.Member
	f := PodForecast{Member: m, Observed: v.Observed, Says: v.Says, ProvedAt: v.ProvedAt, Waits: v.Reason, Message: v.Message, Forecast: forecastOf[v.Decision]}
	switch born := m.Updated || m.Differs == ""; {
	case born && m.Pod == nil:
		f.Forecast, f.Reason = New, "there is no pod now"
	case born && Gone(m.Pod):
		f.Forecast, f.Reason = New, "the pod is about to go, whatever is edited"
	case m.ClassSizeUnavailable != "" && (m.Updated || f.Forecast == Live): // with the template's size, or on its way back to it
		f.Forecast, f.Reason = Infeasible, m.ClassSizeUnavailable
	case m.Updated:
		f.Forecast = Unchanged // it may still wait for a node
	case f.Forecast == Live:
		if f.Late = forecastOf[v.late]; v.late == policy.Leave {
			f.Late = Deferred
		}
		f.resize(v, now)
	default:
		f.Reason = v.Why
	}
	return f
}

// resize completes the forecast for a pod that is to be resized, or is being resized.
func (f *PodForecast) resize(v *Verdict, now time.Time) {
	why, fails := v.fails(now)
	switch {
	case v.Member.Target.Restarts():
		f.Forecast, f.Reason = ContainerRestart, "its resizePolicy is "+string(corev1.RestartContainer)
	case v.State == resize.Deferred:
		f.Forecast, f.Reason = Deferred, v.Why
	case v.State == resize.Refused: // which has no deadline
		f.Forecast, f.Reason, f.Late = Deferred, v.Why, Deferred
	case fails:
		if f.Failing, f.Reason = true, why; v.late == policy.Leave {
			f.Late = Infeasible
		}
	case v.Reason != ReasonProgressing:
		f.Reason = v.Why
	}
}

// answerTime is within which kubelets answer, also those that look only now and then.
const answerTime = 3 * time.Minute

// fails reports whether the kubelet fails to resize the pod, or should have answered by now, and why.
func (v *Verdict) fails(now time.Time) (why string, fails bool) {
	m := &v.Member
	answer, lacks := m.Target.Answer()
	switch at := m.Target.Resized; {
	case v.State == resize.Failing:
		return v.Why, true
	case v.State != resize.InProgress || v.Observed != resize.InProgress || m.Lost != "" || answer != resize.Unanswered:
		return "", false
	default:
		return m.onNode("no answer from the kubelet") + ": " + lacks, !at.IsZero() && now.After(at.Add(answerTime))
	}
}

// BuiltIn returns what the built-in controller by itself does to a pod, for this reason, with the
// strategy.
func BuiltIn(m *Member, strategy policy.Strategy, why string) (comes Forecast, reason string) {
	switch {
	case Gone(m.Pod):
		return New, "there is no pod now, or it is about to go"
	case m.Labelled:
		return Unchanged, ""
	case strategy == policy.OnDelete:
		return AfterDelete, why
	default:
		return PodRestart, why
	}
}
