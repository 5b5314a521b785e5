package invariant

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// Span is a stretch of time.
type Span struct{ From, To time.Time }

// within reports whether a moment is in one of the spans.
func within(spans []Span, at time.Time) bool {
	return slices.ContainsFunc(spans, func(s Span) bool { return !at.Before(s.From) && !at.After(s.To) })
}

// unheard is for how long the API server may not know a heartbeat that is stored.
const unheard = 2 * time.Second

// beat is what the heartbeat says, from a moment on.
type beat struct {
	at    time.Time
	until time.Time // zero if it says that no controller is there
	holds bool      // all the same
}

// storeBeat takes a write of the heartbeat of a controller into the history.
func (h *history) storeBeat(w Write) {
	account, is := w.Object.(*corev1.ServiceAccount)
	if !is || w.ObjectRef.Name != "inplace-rollout-heartbeat" || !slices.ContainsFunc(h.options.Controllers, func(user string) bool {
		return strings.HasPrefix(user, "system:serviceaccount:"+w.ObjectRef.Namespace+":")
	}) {
		return
	}
	until, err := time.Parse(time.RFC3339, account.Annotations["inplace-rollout.io/ready-until"])
	if err != nil {
		until = time.Time{}
	}
	h.beats = append(h.beats, beat{w.at, until, account.Annotations["inplace-rollout.io/when-absent"] == "Hold"})
}

// known are the beats that the API server may have known during a write; none if the log does not show them all.
func (h *history) known(w Write) []beat {
	began := w.at
	if received := w.RequestReceivedTimestamp.Time; !received.IsZero() {
		began = received
	}
	began = began.Add(-unheard)
	if within(h.options.Doubts, began) || within(h.options.Doubts, w.at) {
		return nil
	}
	var known []beat
	for i, b := range h.beats {
		last := i+1 == len(h.beats) || !h.beats[i+1].at.Before(began) // that was there then
		if b.at.Before(began) && last || len(known) > 0 && b.at.Before(w.at.Add(slack)) {
			known = append(known, b)
		}
	}
	return known
}

// mayBeAbsent reports whether no controller may have been there during a write, as far as the log tells of controllers.
func (h *history) mayBeAbsent(w Write) bool {
	known := h.known(w)
	return len(h.beats) > 0 && len(known) == 0 || slices.ContainsFunc(known, func(b beat) bool { return !b.holds && b.until.Before(w.at.Add(slack)) })
}

// checkHeld checks that a write of somebody else is held exactly if a controller is there, or the action in force is LiveResize.
func (h *history) checkHeld(w Write) {
	after, ok := workloadOf(w)
	if !ok || w.ObjectRef.Subresource != "" || h.ours(w.User.Username) || w.Verb == "delete" || within(h.options.Gaps, w.at) {
		return
	}
	work := h.workloads[after.meta.UID]
	if work == nil || !after.enabled() {
		return
	}
	_, left := after.meta.Annotations["inplace-rollout.io/not-held"]
	if left && after.live() {
		h.violate(w, Held, work.ref(), "%s wrote it, which is not held, and the action in force is LiveResize", w.User.Username)
	}
	if after.live() {
		return
	}
	// An edit tells the policies the time, unless it only takes fields away.
	timed := !equality.Semantic.DeepEqual(work.last().template, after.template) && !takesAway(w)
	h.judgments = append(h.judgments, func() { // a write that changes nothing is told of before what was stored since the last change
		beats := h.known(w)
		there, absent := len(beats) > 0, len(beats) > 0
		for _, b := range beats {
			there = there && (b.holds || b.until.After(w.at.Add(slack)))
			absent = absent && !b.holds && (b.until.IsZero() || timed && b.until.Before(w.at.Add(-unheard-slack)))
		}
		switch {
		case left && there:
			h.violate(w, Held, work.ref(), "%s wrote it, which is not held, and a controller is there", w.User.Username)
		case after.held && absent:
			h.violate(w, Held, work.ref(), "%s wrote it, which is held, and no controller is there", w.User.Username)
		}
	})
}

// takesAway reports whether a write may do nothing else than to remove fields.
func takesAway(w Write) bool {
	return w.RequestObject == nil || strings.Contains(string(w.RequestObject.Raw), "null") || strings.Contains(string(w.RequestObject.Raw), `"remove"`)
}

// counts reports whether the DaemonSet controller takes a pod for updated whatever it was made of, as of a set that was deleted and
// created again, which counts its templates from 1.
func (v version) counts(p *corev1.Pod) bool {
	generation := v.meta.Annotations["deprecated.daemonset.template.generation"]
	return v.kind == "DaemonSet" && generation != "" && p.Labels["pod-template-generation"] == generation
}

// leavesAlone reports whether the built-in controller does nothing about a pod: the workload is held, only its user restarts pods,
// or the pod counts as updated.
func (h *history) leavesAlone(work *workload, p *pod, w Write) bool {
	made, known := h.template(p.last())
	if _, set := h.workload(p.last()); set != nil {
		made = set.template
	}
	return !known || work.any(w.Since, func(v version) bool {
		return v.held || v.onDelete || equality.Semantic.DeepEqual(sizeOf(made), sizeOf(v.template)) || v.counts(p.last())
	})
}

// checkHalf checks that no pod is brought to a template by us while the built-in controller is at it: only pods of a workload that
// is held are, or that nobody but its user rolls out.
func (h *history) checkHalf(w Write) {
	p := h.named(w.ObjectRef.Name)
	if !w.resized || p == nil || unchanged(w, p.last()) {
		return
	}
	work, _ := h.workload(p.last())
	if work == nil || h.leavesAlone(work, p, w) {
		return
	}
	h.violate(w, Held, p.ref(), "%s resized it, and %s is not held", w.User.Username, work.ref())
}
