package invariant

// checkRecreate checks a new pod of a Deployment whose strategy is Recreate. While the controller holds
// it, the Deployment controller scales without waiting for pods that go. So none may be there then that
// is of another template, or that goes for a rollout.
func (h *history) checkRecreate(w Write) {
	came := w.pod()
	if came == nil {
		return
	}
	work, set := h.workload(came)
	if work == nil || set == nil || !work.last().held || work.any(w.Since, func(v version) bool { return !v.enabled() }) {
		return
	}
	replicas := work.last().replicas
	for _, other := range h.members(work) {
		_, of := h.workload(other.last())
		if of == nil || detached(other.last()) || other.ended() ||
			work.any(other.versions[0].at, func(v version) bool { return !v.recreate }) {
			continue
		}
		switch {
		case !differOnlyInSize(set.template, of.template):
			h.violate(w, Apart, "pods/"+came.Name, "it came while %s was there, which is of another template, and the Deployment is held", other.last().Name)
			return
		case other.by == replicaSets && !work.any(other.since, func(v version) bool { return v.replicas != replicas }):
			h.violate(w, Apart, "pods/"+came.Name, "it came while %s was there, which was going for a rollout, and the Deployment is held", other.last().Name)
			return
		}
	}
}
