package judge

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// Past is how a pod was when it was asked for its size, and how often its containers had restarted by the time at which
// the resize was seen done.
type Past struct {
	// Unready: it was not Ready.
	Unready bool `json:"unready,omitempty"`
	// Containers that had restarted, or ended, by their name.
	Containers map[string]ContainerPast `json:"containers,omitempty"`
}

// ContainerPast is how one container was.
type ContainerPast struct {
	// Restarts by the time at which the resize was seen done.
	Restarts int32 `json:"restarts,omitempty"`
	// Ended is when the last run was over by then, and Killed when the size was asked for; zero if none was.
	Ended  *metav1.Time `json:"ended,omitempty"`
	Killed *metav1.Time `json:"killed,omitempty"`
	// Loops: the container ended again and again, for that reason, after runs of so many seconds. It is empty if the container had
	// been well for more than twice as long.
	Loops string `json:"loops,omitempty"`
	After int64  `json:"after,omitempty"`
	// Unproved: it did so with a size that was not proved, either. That excuses the runs that had begun when the resize was seen done,
	// and no later one.
	Unproved bool `json:"unproved,omitempty"`
}

// PastOf returns how a pod is that is asked now. Since tried, sizes were asked for that were not proved; it is zero if there are none.
// How a container ended once before the pod got its size says nothing of that: A→B→A, where B has it OOMKilled, is no loop with A.
// Nor is a pod not Ready before the edit that is so since B only.
func PastOf(pod *corev1.Pod, now, tried time.Time) Past {
	p, sized := Past{Unready: !podutils.IsPodReady(pod) && (tried.IsZero() || DownBefore(pod, tried))}, resize.LastAsked(pod)
	unproved := !tried.IsZero() && !slices.MaxFunc([]time.Time{sized, pod.CreationTimestamp.Time}, time.Time.Compare).Before(tried)
	for s := range statusesOf(pod) {
		last := lastRun(s)
		if last == nil && s.RestartCount == 0 {
			continue
		}
		c := ContainerPast{Restarts: s.RestartCount}
		if last != nil {
			c.Ended, c.Killed = &last.FinishedAt, &last.FinishedAt
			running := s.State.Running
			with := sized.IsZero() || !last.FinishedAt.Time.Before(sized.Add(resize.ClockSkew)) || s.RestartCount > 1 && !unproved
			if ran := length(last); with && ran >= 0 && (running == nil || now.Sub(running.StartedAt.Time) <= 2*ran) {
				c.Loops, c.After, c.Unproved = last.Reason, int64(ran.Seconds()), unproved
			}
		}
		p.set(s.Name, c)
	}
	return p
}

// HasEnded reports whether a container of the pod has ever ended.
func HasEnded(pod *corev1.Pod) bool { return len(PastOf(pod, time.Time{}, time.Time{}).Containers) > 0 }

func (p *Past) set(container string, c ContainerPast) {
	if p.Containers == nil {
		p.Containers = map[string]ContainerPast{}
	}
	p.Containers[container] = c
}

// WhenDone notes what has happened by the time at which the resize was seen done. That a container restarts until then says nothing of
// the size: it may do so for it.
func (p Past) WhenDone(pod *corev1.Pod) Past {
	seen := Past{Unready: p.Unready}
	for name, c := range PastOf(pod, time.Time{}, time.Time{}).Containers {
		before := p.Containers[name]
		before.Restarts, before.Ended = c.Restarts, c.Ended
		seen.set(name, before)
	}
	return seen
}

// unseen returns what is known of a pod that has its size, by a controller that has not seen it before. What has ended since the
// resize, by the clocks of its kubelet and the API server, counts: nobody knows better.
func unseen(pod *corev1.Pod, resized time.Time) Past {
	p := Past{}
	for name, c := range PastOf(pod, time.Time{}, time.Time{}).Containers {
		c.Loops = ""
		if c.Killed != nil && !c.Killed.Time.Before(resized) { // both in whole seconds: it stops rather once too often
			c.Killed = nil
		}
		p.set(name, c)
	}
	return p
}

// Health is what is known of a pod that is asked for its size, or has it: how it was before, and since when it has the size.
type Health struct {
	Past

	// Asked is when the size was asked for, and Done when that was seen done, by the controller's clock; zero if it is not known.
	Asked, Done time.Time

	born  bool      // it was made with its size, and not asked for it
	tried time.Time // since when sizes were asked for that were not proved; zero if there are none
}

// Of returns what is known of a pod that is looked at now, whose resize, of that time, is in that state. Since tried, sizes were asked
// for that were not proved.
func (h *Health) Of(pod *corev1.Pod, state resize.State, resized, now, tried time.Time) *Health {
	switch done := Done(state); {
	case h != nil && !done && !h.tried.Equal(tried): // it comes from another rollout
		from := *h
		from.tried = tried
		return &from
	case h != nil && (!done || !h.Done.IsZero()):
		return h
	case h != nil:
		return &Health{Past: h.WhenDone(pod), Asked: h.Asked, Done: now}
	case !done:
		return &Health{Past: PastOf(pod, now, tried), tried: tried}
	case resized.IsZero():
		return &Health{Done: now, born: true}
	default:
		return &Health{Past: unseen(pod, resized), Done: now}
	}
}

// Done reports whether the pod runs with the size of its spec.
func Done(state resize.State) bool { return state == resize.Actuated || state == resize.Unready }

// String is what is known, for comparing.
func (h *Health) String() string {
	if h == nil {
		return "unknown"
	}
	return fmt.Sprint(h.Done, h.Past)
}

// failure returns what has become of the containers since the size was seen done; empty if nothing has, or it was as bad before: a
// run that was over for the same reason as in the loop that the container was in, and half as long or longer, says nothing against
// the size, but one that was under way at the resize and has lasted more than twice as long.
//
// Of a container that was OOMKilled every hour, a run of 50 minutes is none, and one of 20 s is, and so is one of 30 days.
func (h *Health) failure(pod *corev1.Pod, now time.Time) string {
	if h == nil || h.Done.IsZero() {
		return ""
	}
	for s := range statusesOf(pod) {
		if what := h.failureOf(pod, s, now); what != "" {
			return "failed: container " + s.Name + " " + what
		}
	}
	return ""
}

// failureOf is failure for one container.
func (h *Health) failureOf(pod *corev1.Pod, s *corev1.ContainerStatus, now time.Time) string {
	last, before := lastRun(s), h.Containers[s.Name]
	begunBefore := s.RestartCount == before.Restarts || s.RestartCount == before.Restarts+1 && s.State.Running != nil
	if last == nil || before.usual(last, h.Asked) && (begunBefore || !before.Unproved) {
		return ""
	}
	ran, restarts := length(last), s.RestartCount-before.Restarts
	if straddles(last, h.Asked) {
		ran = min(ran, now.Sub(h.Asked))
	}
	after := ""
	if ran >= 0 {
		after = " after " + ran.Round(time.Second).String()
	}
	since := "its resize"
	if h.born {
		since = "the pod was made"
	}
	switch {
	case last.Reason == reasonOOMKilled && !is(last, before.Killed):
		return "was OOMKilled" + after + atLimit(pod, s.Name)
	case restarts >= 2 && !is(last, before.Ended):
		return fmt.Sprintf("has restarted %d times since %s, last with exit code %d%s", restarts, since, last.ExitCode, after)
	default:
		return ""
	}
}

// is reports whether a run was over at that time.
func is(run *corev1.ContainerStateTerminated, ended *metav1.Time) bool {
	return ended != nil && run.FinishedAt.Equal(ended)
}

// straddles reports whether the run was under way when the size was asked for.
func straddles(run *corev1.ContainerStateTerminated, asked time.Time) bool {
	return !asked.IsZero() && !run.StartedAt.IsZero() && run.StartedAt.Time.Before(asked)
}

// usual reports whether the run ended as those of the loop did that the container was in.
func (c ContainerPast) usual(run *corev1.ContainerStateTerminated, asked time.Time) bool {
	ran, loop := length(run), time.Duration(c.After)*time.Second
	return c.Loops != "" && c.Loops == run.Reason && ran >= loop/2 && (!straddles(run, asked) || ran <= 2*loop)
}

// DownBefore reports whether the pod has not been Ready since before that time, by the clock of its kubelet, which may differ.
func DownBefore(pod *corev1.Pod, at time.Time) bool {
	return !podutils.IsPodReady(pod) && readyOrNotSince(pod).Add(resize.ClockSkew).Before(at)
}

// readyOrNotSince returns since when a pod is Ready, or is not, by the clock of its kubelet.
func readyOrNotSince(pod *corev1.Pod) time.Time {
	if c := ConditionReady(pod); c != nil {
		return c.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}

// reasonOOMKilled is how container runtimes call the end of a container that has reached its memory limit.
const reasonOOMKilled = "OOMKilled"

// atLimit says what the container may use at most, which is what it used when it was OOMKilled.
func atLimit(pod *corev1.Pod, container string) string {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if limit, is := c.Resources.Limits[corev1.ResourceMemory]; is && c.Name == container {
			return ", at its memory limit of " + limit.String()
		}
	}
	return ""
}

// lastRun returns how the container ended last; nil if it never did.
func lastRun(s *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if s.State.Terminated != nil {
		return s.State.Terminated
	}
	return s.LastTerminationState.Terminated
}

// length returns how long the run was; negative if the kubelet does not say when it began, as of one that never did.
func length(run *corev1.ContainerStateTerminated) time.Duration {
	if run.StartedAt.IsZero() {
		return -1
	}
	return run.FinishedAt.Sub(run.StartedAt.Time)
}

// Failed returns what was seen of the pod since its resize, or of a canary that was made with its size, that makes it a failure; empty if
// nothing was, or it was the same before.
func (v *Verdict) Failed(canary bool, notReady time.Duration, o Terms) string {
	m := &v.Member
	if what := m.Before.failure(m.Pod, o.Now); what != "" {
		return what
	}
	asked := canary && v.Settled() || !m.Target.Resized.IsZero()
	if v.Observed == resize.Unready && asked && !m.Cure && !m.Since.IsZero() && notReady > 0 && !o.Now.Before(m.Since.Add(notReady)) && m.Lost == "" {
		return fmt.Sprintf("was not Ready at its new size for more than %s", notReady)
	}
	return ""
}
