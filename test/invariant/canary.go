package invariant

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// checkCanary checks that a Ready pod is asked for a size that it has not had only while fewer than the canary have
// been asked before it for this template, or when so many have been Ready with it for the canary's time. Who has it
// promoted, or asks for no canary within the lag, asks for none.
func (h *history) checkCanary(w Write) {
	p := h.named(w.ObjectRef.Name)
	if !w.resized || p == nil || !p.readySince(w.Since) {
		return
	}
	work, _ := h.workload(p.last())
	if work == nil {
		return
	}
	most, least := 0, time.Duration(math.MaxInt64)
	for _, v := range work.since(w.Since) {
		n, guarded := v.canaries()
		proof, err := time.ParseDuration(v.inForce("canary-duration"))
		if !guarded || err != nil || v.annotation("promote") != "" {
			return
		}
		most, least = max(most, n), min(least, proof)
	}
	of := work.ofTemplate()
	if p.hasHad(of[0].template) {
		return
	}
	var unproved []*pod
	proved := 0
	for _, other := range h.members(work) {
		switch on := h.node(nodeOf(other.last())); {
		case other == p || !other.there() || on.gone || on.lost:
		case h.unproved(other, of[0], w, least-slack):
			unproved = append(unproved, other)
		case lacks(other.last(), of[0].template) == "":
			proved++
		}
	}
	if len(unproved) < most || proved >= most {
		return
	}
	h.judgments = append(h.judgments, func() {
		for _, other := range unproved {
			if other.lacked(w.at) {
				return
			}
		}
		h.violate(w, Canary, p.ref(), "it was asked while %d pods had the size, and %d of them, not %d, had been Ready with it for %s", len(unproved)+proved, proved, most, least)
	})
}

// checkRevert checks a resize that takes the workload's size from a pod. That the
// controller knows the template shows in that it has asked the pod for its size, or the pod was made of it, and it has looked since.
func (h *history) checkRevert(w Write) {
	p, after := h.named(w.ObjectRef.Name), w.pod()
	if !w.resized || p == nil || after == nil {
		return
	}
	work, _ := h.workload(p.last())
	if work == nil {
		return
	}
	// A pod that its kubelet has not given the size is asked for what it has, and then for the size once more.
	had, has := work.last().lackedBy(p.last()) == "" && actuated(p.last()), work.last().lackedBy(after) == ""
	began := work.ofTemplate()[0].at
	born := began.Before(w.Since) && p.versions[0].at.After(began) && work.last().lackedBy(p.versions[0].Pod) == ""
	if had && !has && (born || slices.ContainsFunc(p.asked, func(a ask) bool { return a.code < 300 && a.at.After(began) })) {
		// A class may have had that size until a moment ago.
		newest := work.last().edit
		if work.any(w.Since, func(v version) bool { return v.edit == newest && v.lackedBy(after) == "" }) {
			return
		}
		// On the way to a size that the node's class has otherwise, a pod gets the template's: it could not go back to that from
		// what it has had since its birth, if the class's cannot be had.
		classes := work.any(w.Since, func(v version) bool { return v.annotation("node-resources") != "" })
		if classes && made(p.last(), after, work.last().template) {
			return
		}
		p.reverted = &w
		if !work.any(w.Since, func(v version) bool { return v.inForce("on-failure") == "Revert" }) {
			h.violate(w, Revert, p.ref(), "its workload's size was taken from it, and nobody wants that")
		}
		if work.kind != "DaemonSet" && !slices.ContainsFunc(work.versions, func(v version) bool { return made(p.last(), after, v.template) }) {
			h.violate(w, Revert, p.ref(), "it got a size that its workload never had")
		}
	}
}

// made reports whether every size of a pod that has changed is the template's now.
func made(before, after *corev1.Pod, t corev1.PodTemplateSpec) bool {
	was, want := containers(&before.Spec), containers(&t.Spec)
	for name, c := range containers(&after.Spec) {
		if want[name] == nil { // admission has injected it
			continue
		}
		if !taken(was[name].Resources.Requests, c.Resources.Requests, want[name].Resources.Requests) ||
			!taken(was[name].Resources.Limits, c.Resources.Limits, want[name].Resources.Limits) {
			return false
		}
	}
	return true
}

// taken reports whether what has changed is as it is said, where anything is.
func taken(before, after, said corev1.ResourceList) bool {
	for _, size := range sizes {
		now, had := after[size], before[size]
		if want, is := said[size]; is && now.Cmp(had) != 0 && now.Cmp(want) != 0 {
			return false
		}
	}
	return true
}

// canaries returns how many pods come first, and whether any do.
func (v version) canaries() (n int, guarded bool) {
	said := v.inForce("canary")
	if percent, is := strings.CutSuffix(said, "%"); is {
		n, err := strconv.Atoi(percent)
		return int(math.Ceil(float64(n) * float64(v.replicas) / 100)), err == nil
	}
	n, err := strconv.Atoi(said)
	return n, err == nil
}
