package invariant

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// first reports whether no other pod of the workload has come since it has its template.
func (h *history) first(work *workload, p *pod) bool {
	since := work.ofTemplate()[0].at
	for _, other := range h.pods {
		if owner, _ := h.workload(other.last()); owner == work && other != p && other.versions[0].at.After(since) {
			return false
		}
	}
	return true
}

// asksMore reports whether the newest template asks for more than that of the pod.
func (h *history) asksMore(work *workload, p *pod) bool {
	before, known := h.template(p.last())
	return known && asksMore(before, work.last().template)
}

// asksMore reports whether a container requests more cpu or memory by another template.
func asksMore(before, after corev1.PodTemplateSpec) bool {
	was := containers(&before.Spec)
	for name, c := range containers(&after.Spec) {
		for _, size := range sizes {
			if request := c.Resources.Requests[size]; was[name] == nil || request.Cmp(was[name].Resources.Requests[size]) > 0 {
				return true
			}
		}
	}
	return false
}

// checkRoom checks that the scheduler has found a node for what came in the place of a pod that was
// restarted for its size by the controller itself: it had the pod go, or the built-in one has while the
// workload was held; or by the StatefulSet controller, for a size that asks for more. Once the built-in
// controller has another rollout for itself, room is promised to its first pod only, in the place of one
// that has gone since the edit. A pod that had no node either has lost none. Where pods of others came, or
// became larger, a moment before, the log does not tell whether there was room.
func (h *history) checkRoom(w Write) {
	if w.ObjectRef.Resource != "pods" || w.ObjectRef.Subresource != "status" || w.User.Username != "system:kube-scheduler" || w.pod() == nil {
		return
	}
	p := h.named(w.ObjectRef.Name)
	if p == nil || len(p.versions) > 1 || !unschedulable(w.pod()) {
		return
	}
	work, _ := h.workload(p.last())
	if work == nil || lacks(p.last(), work.last().template) != "" {
		return // admission has made it larger
	}
	for _, before := range h.pods {
		owner, _ := h.workload(before.last())
		if owner != work || before.last().Spec.NodeName == "" || !before.restart || !before.going.Before(w.at) || w.at.Sub(before.going) >= 2*time.Second || before.deleted.IsZero() ||
			work.kind == "StatefulSet" && before.last().Name != p.last().Name || work.kind == "DaemonSet" && nodeOf(before.last()) != nodeOf(p.last()) {
			continue
		}
		promised := before.ours || work.kind == "StatefulSet" && before.more || h.first(work, p) && !before.going.Before(work.ofTemplate()[0].at)
		if !promised || h.crowded(work, before.going.Add(-2*slack), w.at) {
			continue
		}
		h.violate(w, Room, p.ref(), "it came for %s, which ran, and no node can hold it", before.last().Name)
		return
	}
}

func unschedulable(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Reason == corev1.PodReasonUnschedulable })
}

// crowded reports whether pods that are not of this workload came or became larger between two moments,
// the workload was scaled, or a node was changed.
func (h *history) crowded(work *workload, from, to time.Time) bool {
	replicas := work.last().replicas
	if work.any(from, func(v version) bool { return v.replicas != replicas }) {
		return true
	}
	for _, n := range h.nodes {
		if slices.ContainsFunc(n.written, func(at time.Time) bool { return !at.Before(from) }) {
			return true
		}
	}
	for _, p := range h.pods {
		if owner, _ := h.workload(p.last()); owner == work {
			continue
		}
		for i, v := range p.versions {
			if v.at.Before(from) || v.at.After(to) {
				continue
			}
			if i == 0 || asksMore(corev1.PodTemplateSpec{Spec: p.versions[i-1].Spec}, corev1.PodTemplateSpec{Spec: v.Spec}) {
				return true
			}
		}
	}
	return false
}
