package rollout

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// Member is the place of one pod in a workload.
type Member struct {
	// Name of the pod.
	Name string
	// Index of the place, from 0.
	Index int
	// Pod is nil while the place is empty.
	Pod *corev1.Pod
	// Updated tells that the pod counts as one of the newest revision, and that no edit
	// that was given up has left anything in it.
	Updated bool
	// Labelled tells that the built-in controller takes the pod for updated.
	Labelled bool
	// Available as the built-in controller means it: Ready for minReadySeconds and not terminating.
	Available bool
	// Differs tells what besides cpu and memory differs between the revision of the
	// pod (for an empty place: of the pod that is born there next) and the newest
	// one; empty if nothing does.
	Differs string
	// Brings tells what the newest revision changes of cpu and memory; empty if the pod
	// is updated or Differs is not empty.
	Brings string
	// Refusal is what the API server said when it refused this resize; empty if it did not.
	Refusal string
	// Final tells that the refusal is for good; otherwise the resize is asked for again.
	Final bool
	// Target is the size that the pod must have; of pods that exist and are not terminating.
	Target resize.Target
}

// gone tells whether the place is, or is about to be, empty.
func (m Member) gone() bool { return m.Pod == nil || m.Pod.DeletionTimestamp != nil }

// RestartReason tells why only a new pod can have the newest template, or is empty.
func (m Member) RestartReason() string {
	switch {
	case m.Updated:
		return ""
	case m.Differs != "":
		return m.Differs
	case m.gone():
		return ""
	case len(m.Target.Obstacles) > 0:
		return strings.Join(m.Target.Obstacles, ", ")
	case m.Final:
		return m.Refusal
	}
	if state, message := m.Target.Observe(); state == resize.Infeasible {
		return "infeasible: " + message
	}
	return ""
}

// Wait says what one place of a workload is waiting for.
type Wait struct {
	Member          Member
	Reason, Message string // Reason is one of the condition's
}

// Step is what may be done now, and what has to be waited for.
type Step struct {
	// Resize these pods.
	Resize []Member
	// Settle these: they have the new size and are only not counted as updated yet.
	Settle []Member
	// Restart these: only new pods can have the new template, and every pod before
	// them is done.
	Restart []Member
	// RestartNow are those of them that the limit lets be under way now.
	RestartNow []Member
	// LiveLeft tells that some pod, or one about to be born, can still be resized live.
	LiveLeft bool
	// Waits, in the order of the members.
	Waits []Wait
	// Updated pods, of Total.
	Updated, Total int
}

// Next goes through members in the order in which they are to be rolled, and
// lets up to limit of them be under way at once: being resized, not available,
// or about to be restarted. With passRestarts, pods that need a restart hold up
// nobody, because somebody else decides when it happens (OnDelete).
//
// With limit 1 and places 2, 1, 0, where 2 is resized but not Ready yet, nothing
// is done and 2 is waited for; once it is settled and available, 1 is resized.
func Next(members []Member, limit int, passRestarts bool) Step {
	s := Step{Total: len(members)}
	for _, m := range members {
		if m.Updated {
			s.Updated++
		}
		reason := m.RestartReason()
		switch {
		case reason != "" && passRestarts:
			s.Waits = append(s.Waits, Wait{m, ReasonWaitingForDelete, "restarts when it is deleted: " + reason})
		case reason != "":
			if !s.LiveLeft {
				s.Restart = append(s.Restart, m)
				if limit > 0 {
					s.RestartNow = append(s.RestartNow, m)
				}
				s.Waits = append(s.Waits, Wait{m, ReasonProgressing, "restarting: " + reason})
			}
			limit--
		case !s.one(m, limit > 0):
			limit--
		}
	}
	return s
}

// one takes its share of the step for a member that needs no restart, and tells
// whether the next one may go ahead.
func (s *Step) one(m Member, mayStart bool) bool {
	if !m.Updated {
		s.LiveLeft = true
	}
	if m.gone() {
		s.wait(m, ReasonProgressing, "waiting for the pod to be created")
		return false
	}
	if m.Updated {
		if !m.Available {
			s.wait(m, ReasonProgressing, "waiting for the pod to become available")
		}
		return m.Available
	}
	if !mayStart {
		return false
	}
	state, message := m.Target.Observe()
	switch state {
	case resize.Unsent:
		s.Resize = append(s.Resize, m)
		if m.Refusal != "" {
			s.wait(m, ReasonResizeError, m.Refusal)
		} else {
			s.wait(m, ReasonProgressing, "resizing: "+resize.Describe(m.Target.Changes))
		}
	case resize.Actuated:
		s.Settle = append(s.Settle, m)
		return m.Available
	case resize.Deferred:
		s.wait(m, ReasonDeferred, "deferred: "+message)
	case resize.Failing:
		s.wait(m, ReasonResizeError, message)
	default:
		s.wait(m, ReasonProgressing, message)
	}
	return false
}

func (s *Step) wait(m Member, reason, message string) {
	s.Waits = append(s.Waits, Wait{m, reason, message})
}

// toldWaits bounds how many waits a message spells out.
const toldWaits = 3

// Condition of a workload whose rollout is not complete. The first wait that is
// more than progress names the reason.
func (s Step) Condition() Condition {
	c := Condition{Reason: ReasonProgressing, Message: fmt.Sprintf("%d of %d pods resized", s.Updated, s.Total)}
	for i, w := range s.Waits {
		if c.Reason == ReasonProgressing {
			c.Reason = w.Reason
		}
		if i < toldWaits {
			c.Message += fmt.Sprintf("; %s: %s", w.Member.Name, w.Message)
		}
	}
	if more := len(s.Waits) - toldWaits; more > 0 {
		c.Message += fmt.Sprintf("; and %d more", more)
	}
	return c
}
