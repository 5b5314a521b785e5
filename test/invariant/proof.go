package invariant

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// checkProof checks that a Ready pod is asked for a size that it has not had only while fewer than the
// limit are down, or were asked before it for this template and are without proof; and that first one is, then as many
// more as have proved it. One that has become Ready within the lag may not be known to be, nor that the node of one is not lost any more.
func (h *history) checkProof(w Write) {
	p := h.named(w.ObjectRef.Name)
	if !w.resized || p == nil || !p.readySince(w.Since) {
		return
	}
	work, _ := h.workload(p.last())
	if work == nil {
		return
	}
	versions := work.since(w.Since)
	most, least := versions[0].most, versions[0].minReady
	for _, v := range versions {
		most, least = max(most, v.most), min(least, v.minReady)
	}
	of := work.ofTemplate()
	if p.hasHad(of[0].template) {
		return
	}
	var unproved []*pod
	down, proved, back := 0, 0, work.goesBack()
	for _, other := range h.members(work) {
		on := nodeOf(other.last())
		switch {
		case other == p || !other.there() || work.last().surplus(other.last()) || h.node(on).gone || h.node(on).lost:
		case !slices.Contains(h.options.Misreporting, on) && h.unproved(other, of[0], w, least-slack):
			unproved = append(unproved, other)
		case back && lacks(other.last(), of[0].template) == "": // it has the size that was proved, which does not help it
			proved++
		case other.down(w.Since) && !h.changed(on, w.Since) && !h.outdated(work, other, w) && h.obstacle(work, other, w) == "" && !slices.ContainsFunc(of, restarts):
			down++
		case h.has(other, other.last(), of[0]) || h.isNewest(work, other):
			proved++
		}
	}
	if len(unproved)+down < int(max(most, 1)) && (len(unproved) <= proved || proved >= int(most)) {
		return
	}
	h.judgments = append(h.judgments, func() { // when the log has shown whether it lacks a write
		if !slices.ContainsFunc(unproved, func(other *pod) bool { return other.lacked(w.at) }) {
			h.violate(w, Proof, p.ref(), "it was asked while %d pods that were asked before had not been Ready at their size for %s, %d had been, %d were down, and %d may be under way",
				len(unproved), least, proved, down, max(most, 1))
		}
	})
}

// outdated reports whether the pod is of another template, sizes aside: it is down until its restart, which may come after the resizes.
func (h *history) outdated(work *workload, p *pod, by Write) bool {
	of, known := h.template(p.last())
	return known && work.any(by.Since, func(v version) bool { return !differOnlyInSize(of, v.template) })
}

// readySince reports whether the pod was Ready at that time, and has been since.
func (p *pod) readySince(then time.Time) bool {
	later := slices.IndexFunc(p.versions, func(v podVersion) bool { return v.at.After(then) })
	switch later {
	case -1:
		return ready(p.last())
	case 0: // it is new
		return false
	}
	return !slices.ContainsFunc(p.versions[later-1:], func(v podVersion) bool { return !ready(v.Pod) })
}

// has reports whether a pod lacks nothing of what a version of its workload says, but for what admission has made of it.
func (h *history) has(p *pod, is *corev1.Pod, of version) bool {
	if made, known := h.made(p); known {
		of.template = admitted(of.template, &p.versions[0].Spec, &made.Spec, &is.Spec)
	}
	return of.lackedBy(is) == ""
}

// isNewest reports whether a pod is of the newest template, or has been brought to it.
func (h *history) isNewest(work *workload, p *pod) bool {
	made, known := h.template(p.last())
	return known && equality.Semantic.DeepEqual(sizeOf(made), sizeOf(work.last().template))
}

// down reports whether the pod has not been Ready since.
func (p *pod) down(since time.Time) bool {
	was := p.at(since)
	return was != nil && !ready(was) && !slices.ContainsFunc(p.versions, func(v podVersion) bool { return v.at.After(since) && ready(v.Pod) })
}

// lacked reports whether a write of the pod's status may have been made about that time which is not in
// the log, as one is not if the API server was killed before it could log it.
func (p *pod) lacked(at time.Time) bool {
	return slices.ContainsFunc(p.gaps, func(g gap) bool { return !g.from.After(at) && g.to.After(at) })
}

// lackedReady reports whether the pod was Ready at that time by a write that is not in the log: the
// status that a later write shows says since when it is.
func (p *pod) lackedReady(at time.Time) bool {
	return slices.ContainsFunc(p.gaps, func(g gap) bool {
		return !g.from.After(at) && g.to.After(at) && slices.ContainsFunc(g.shown, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && !c.LastTransitionTime.After(at)
		})
	})
}

// note notes a gap in the log if the status is another one than at last, and this write did not say so.
func (p *pod) note(w Write, now *corev1.Pod) {
	if n := len(p.versions); n > 0 && w.ObjectRef.Subresource != "status" && !equality.Semantic.DeepEqual(p.last().Status, now.Status) {
		p.gaps = append(p.gaps, gap{p.versions[n-1].at, w.at, now.Status.Conditions})
	}
}

// gap is when a write was made that is not in the log.
type gap struct {
	from, to time.Time
	shown    []corev1.PodCondition // at its end
}

// lackedAt reports whether the pod had another size than the template's after a write of that time.
func (p *pod) lackedAt(at time.Time, t corev1.PodTemplateSpec) bool {
	i := slices.IndexFunc(p.versions, func(v podVersion) bool { return !v.at.Before(at) })
	return i >= 0 && lacks(p.versions[i].Pod, t) != ""
}

// hasHad reports whether the pod has, or has had, the size of a template.
func (p *pod) hasHad(t corev1.PodTemplateSpec) bool {
	return slices.ContainsFunc(p.versions, func(v podVersion) bool { return lacks(v.Pod, t) == "" })
}

// unproved reports whether a pod that was Ready was asked for a size since there is this version of the
// workload, and has not been Ready with it for so long. One does not count whose kubelet has put the resize
// off or fails to do it, or has not done it in time, or that somebody else has resized since: nobody is to
// wait for these. Nor does one that was asked within the lag for a size that this version does not have:
// the controller had not seen the edit. Nor does one that has got its size from before again.
func (h *history) unproved(p *pod, of version, w Write, least time.Duration) bool {
	n := len(p.asked) - 1
	for n >= 0 && (p.asked[n].code >= 300 || p.asked[n].same) {
		n--
	}
	if n < 0 || p.asked[n].at.Before(of.at) || !ready(p.asked[n].before) || p.resized.After(p.asked[n].at) || p.unwilling(w.Since) {
		return false
	}
	asked, now := p.asked[n].at, w.at
	reverted := p.reverted != nil && p.reverted.at.Equal(asked)
	if (reverted || p.asked[n].since.Before(of.at)) && p.lackedAt(asked, of.template) {
		return false
	}
	var begun time.Time // of the stretch in which it is Ready at its size
	var restarts int32
	done := false
	for _, v := range p.versions {
		if !v.at.After(asked) {
			continue
		}
		well := ready(v.Pod) && given(v.Pod)
		done = done || well
		end := v.at
		if end.After(w.Since) { // the controller may not know
			end = now
		}
		switch again := restartsOf(v.Pod); {
		case !begun.IsZero() && end.Sub(begun) >= least:
			return false
		case !well:
			begun = time.Time{}
		case begun.IsZero() || again != restarts:
			begun, restarts = v.at, again
		}
	}
	if !begun.IsZero() && now.Sub(begun) >= least {
		return false
	}
	return done || now.Sub(asked)+slack < min(h.options.DeferredTimeout, h.options.ErrorTimeout)
}

// unchanged reports whether a resize leaves the pod's spec as it was: it was asked for once more.
func unchanged(w Write, before *corev1.Pod) bool {
	after := w.pod()
	return after != nil && equality.Semantic.DeepEqual(before.Spec, after.Spec)
}

// unwilling reports whether the kubelet has said since a moment that it does not resize the pod now,
// or fails to: the controller may not know that it has begun to.
func (p *pod) unwilling(since time.Time) bool {
	for i, v := range p.versions {
		if last := i == len(p.versions)-1; unwilling(v.Pod) && (last || p.versions[i+1].at.After(since)) {
			return true
		}
	}
	return false
}

// unwilling reports whether the kubelet says that it does not resize the pod now, or fails to.
func unwilling(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress && c.Reason == corev1.PodReasonError
	})
}

// given reports whether the kubelet says that the pod's containers have the requests and limits of its spec.
func given(p *corev1.Pod) bool {
	spec := containers(&p.Spec)
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if c := spec[s.Name]; c != nil && s.Resources != nil && !covers(s.Resources.Limits, c.Resources.Limits) {
			return false
		}
	}
	return actuated(p)
}

func restartsOf(p *corev1.Pod) (n int32) {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		n += s.RestartCount
	}
	return n
}

// checkCanary checks that a Ready pod is asked for a size that it has not had only while fewer than the canary have
// been asked before it for this template, or when so many have been Ready with it for the canary's time. Who has it
// promoted, or goes back, or asks for no canary within the lag, asks for none.
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
	if p.hasHad(of[0].template) || work.goesBack() {
		return
	}
	var unproved []*pod
	proved := 0
	for _, other := range h.pods {
		owner, _ := h.workload(other.last())
		switch on := h.node(nodeOf(other.last())); {
		case owner != work || other == p || work.last().surplus(other.last()) || !other.there() && !other.askedSince(of[0].at): // one that has proved it may go
		case h.unproved(other, of[0], w, least-slack):
			if other.there() && !on.gone && !on.lost {
				unproved = append(unproved, other)
			}
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

// goesBack reports whether the template is that of the last rollout that was complete: its size was proved.
func (w *workload) goesBack() bool {
	of, back := w.ofTemplate(), false
	for i, v := range w.versions[:len(w.versions)-len(of)] {
		if v.complete && i > 0 && !w.versions[i-1].complete {
			back = equality.Semantic.DeepEqual(v.template, of[0].template)
		}
	}
	return back
}

// askedSince reports whether the controller has asked the pod for another size since then.
func (p *pod) askedSince(then time.Time) bool {
	return slices.ContainsFunc(p.asked, func(a ask) bool { return a.code < 300 && !a.same && !a.at.Before(then) })
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

// failure is a version of a workload whose size has failed, as its record has said first at that time.
type failure struct {
	version
	recorded time.Time
}

// stopped reports whether the record says that a size has failed.
func (v version) stopped() bool {
	phase, _, _ := strings.Cut(strings.TrimPrefix(v.annotation("rollout"), `{"phase":"`), `"`)
	return slices.Contains([]string{"Stopped", "Reverting", "Reverted"}, phase)
}

// named reports whether a retry names the rollout that is recorded: it says of@since.
func (v version) named(retry string) bool {
	name, _, _ := strings.Cut(retry, ";")
	of, since, _ := strings.Cut(name, "@")
	return strings.Contains(v.annotation("rollout"), `"of":"`+of+`"`) && strings.Contains(v.annotation("rollout"), `"since":"`+since+`"`)
}

// fail notes whether the size of a version that is stored has failed. A person asks for it all the same by an edit to it, by a retry, by
// letting go, and by opting out. A retry names the rollout. That the record goes, or the hold, lifts nothing.
func (w *workload) fail(v version, by Write, unguarded bool) {
	before := w.last()
	same := func(f failure) bool { return equality.Semantic.DeepEqual(sizeOf(f.template), sizeOf(v.template)) }
	switch {
	case !v.enabled(), unguarded, (before.held || before.annotation("rollout") != "") && strings.Contains(by.RequestURI, "fieldManager=inplace-rollout-release"):
		w.failed = nil
	case v.edit != before.edit, v.annotation("retry") != before.annotation("retry") && before.named(v.annotation("retry")):
		w.failed = slices.DeleteFunc(w.failed, same)
	case v.stopped() && !before.stopped() && !slices.ContainsFunc(w.failed, same):
		w.failed = append(w.failed, failure{v, by.at})
	}
}

// checkFailed checks that a pod which the controller resizes, or a built-in one makes, does not get a size that has failed. Those that
// somebody deletes under OnDelete do, and so do new ones of a DaemonSet, and after another edit those of a StatefulSet that its user's
// partition, or a hold beside that, keeps at the current revision: the StatefulSet controller decides which that is. Who goes back gets
// the size of the revision that it is of.
func (h *history) checkFailed(w Write) {
	stored := w.pod()
	if stored == nil || w.ObjectRef.Resource != "pods" {
		return
	}
	work, _ := h.workload(stored)
	if work == nil {
		return
	}
	p := h.pods[stored.UID]
	made, known := h.template(stored)
	back := known && work.last().stopped() && !equality.Semantic.DeepEqual(sizeOf(made), sizeOf(work.last().template)) && lacks(stored, made) == ""
	for _, f := range work.failed {
		gets := false
		switch {
		case !f.recorded.Before(w.Since):
		case p != nil:
			wanted := func(v version) bool { return v.edit != f.edit && v.lackedBy(stored) == "" }
			gets = !back && w.resized && h.ours(w.User.Username) && f.lackedBy(p.last()) != "" && f.lackedBy(stored) == "" && !work.any(w.Since, wanted)
		case work.kind != "DaemonSet" && !work.any(w.Since, func(v version) bool {
			return v.onDelete || v.partition > 0 && v.edit != f.edit && (v.held || v.keepsBack(stored))
		}):
			gets = known && equality.Semantic.DeepEqual(sizeOf(made), sizeOf(f.template))
		}
		if gets {
			h.violate(w, Failed, "pods/"+stored.Name, "it got a size that had failed at %s", f.recorded.Format(time.TimeOnly))
		}
	}
}
