package invariant

import (
	"slices"
	"strings"
	"time"
)

// glance is how old may be what an operator has read of a set when it deletes a pod.
const glance = 500 * time.Millisecond

// operator reports whether a write is that of an operator.
func (h *history) operator(w Write) bool {
	name := w.User.Username
	if w.ImpersonatedUser != nil {
		name = w.ImpersonatedUser.Username
	}
	return h.options.Operators != "" && strings.HasPrefix(name, h.options.Operators)
}

// checkOperator checks that an operator, which goes by the set's generation, has found no pod to delete that may
// still be resized. Nothing is promised unless a controller was there since the edit, nor of a set that is new,
// that has had no pods, or that was not under OnDelete then. And the operator waits no longer than the deadlines.
func (h *history) checkOperator(w Write, p *pod) {
	work, _ := h.workload(p.last())
	if work == nil || work.kind != "StatefulSet" {
		return
	}
	asked, of := w.at, work.ofTemplate()
	if received := w.RequestReceivedTimestamp.Time; !received.IsZero() {
		asked = received
	}
	last, edited := of[len(of)-1], of[0].at
	made, known := h.template(p.last())
	switch {
	case h.scaledDown(p, w), len(of) == len(work.versions), asked.Sub(edited) < glance, !h.thereSince(edited, w.at):
	case work.any(edited.Add(-slack), func(v version) bool {
		return !v.enabled() || !v.onDelete || v.released || v.replicas == 0 || v.meta.DeletionTimestamp != nil
	}):
	case !known, !differOnlyInSize(made, last.template), !p.resized.IsZero(), slices.ContainsFunc(of, restarts):
	case h.obstacle(work, p, w) != "", asked.Sub(h.tried(of))+slack >= h.patience(of):
	default:
		h.violate(w, HandOver, p.ref(), "%s deleted it, and it may still be resized", h.options.Operators)
	}
}

// tried returns when the last edit came, or the last retry of it.
func (h *history) tried(of []version) time.Time {
	tried := of[0].at
	for i, v := range of {
		if i > 0 && v.annotation("retry") != of[i-1].annotation("retry") {
			tried = v.at
		}
	}
	return tried
}

// patience is for how long an operator waits at least, if no pod gets its size.
func (h *history) patience(of []version) time.Duration {
	deferred, minReady := h.options.DeferredTimeout, of[0].minReady
	for _, v := range of {
		if said, err := time.ParseDuration(v.annotation("deferred-timeout")); err == nil {
			deferred = min(deferred, said)
		}
		minReady = min(minReady, v.minReady)
	}
	return max(deferred, h.options.ErrorTimeout) + minReady
}

// thereSince reports whether the log shows that a controller was there, and all policies, from one moment until another.
func (h *history) thereSince(from, until time.Time) bool {
	from = from.Add(-unheard)
	if slices.ContainsFunc(slices.Concat(h.options.Gaps, h.options.Doubts), func(s Span) bool { return s.From.Before(until) && s.To.After(from) }) {
		return false
	}
	covered := false
	for i, b := range h.beats {
		end := until
		if i+1 < len(h.beats) && h.beats[i+1].at.Before(until) {
			end = h.beats[i+1].at
		}
		switch {
		case end.Before(from) || b.at.After(until):
		case !covered && b.at.After(from), !b.holds && b.until.Before(end.Add(slack)):
			return false
		default:
			covered = true
		}
	}
	return covered
}
