package invariant

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// checkAction checks that no pod is resized where what is in force says that it restarts.
func (h *history) checkAction(w Write) {
	p, after := h.named(w.ObjectRef.Name), w.pod()
	if !w.resized || p == nil || after == nil {
		return
	}
	work, _ := h.workload(p.last())
	if work == nil || work.any(w.Since, func(v version) bool { return !v.forbids(p.last(), after) }) {
		return
	}
	h.violate(w, Action, p.ref(), "%s resized it, and what is in force says that it restarts", w.User.Username)
}

// forbids reports whether what is in force does not let a pod be resized so. Of several policies, one may be an exception to
// another: then it is not known. What the pod was asked for before, and its kubelet has not applied yet, is not of this write.
func (v version) forbids(before, after *corev1.Pod) bool {
	action, list := v.inForce("resource-resize-action"), v.inForce("resource-resize-policy")
	of, only := strings.CutSuffix(list, "=RestartOnly")
	if action == "Restart" || !only || strings.Contains(of, "=") {
		return action == "Restart"
	}
	container, size, one := strings.Cut(of, "/")
	if !one {
		container, size = "", of
	}
	size, direction, _ := strings.Cut(size, ":")
	was := map[string]*corev1.ResourceRequirements{}
	for _, s := range slices.Concat(before.Status.InitContainerStatuses, before.Status.ContainerStatuses) {
		was[s.Name] = s.Resources
	}
	asked := containers(&before.Spec)
	for name, c := range containers(&after.Spec) {
		has := was[name]
		if container != "" && name != container || has == nil || asked[name] == nil {
			continue
		}
		is, want := has.Requests[corev1.ResourceName(size)], c.Resources.Requests[corev1.ResourceName(size)]
		switch order := want.Cmp(is); {
		case want.Cmp(asked[name].Resources.Requests[corev1.ResourceName(size)]) == 0:
		case order < 0 && direction != "increase", order > 0 && direction != "decrease":
			return true
		}
	}
	return false
}

// checkPartition checks that a pod is not touched which the user's partition keeps back.
func (h *history) checkPartition(w Write, p *pod) {
	work, _ := h.workload(p.last())
	if work == nil || work.any(w.Since, func(v version) bool { return !v.keepsBack(p.last()) || !v.enabled() || v.released }) {
		return
	}
	h.violate(w, Partition, p.ref(), "%s touched it, and its user's partition keeps it back", w.User.Username)
}

// checkLabel checks that a pod which gets the label of a revision has its size.
func (h *history) checkLabel(w Write) {
	p, after := h.named(w.ObjectRef.Name), w.pod()
	if p == nil || after == nil || w.ObjectRef.Subresource != "" || w.Verb == "delete" {
		return
	}
	label := after.Labels[appsv1.ControllerRevisionHashLabelKey]
	work, set := h.workload(after)
	if work == nil || set != nil || label == "" || label == p.last().Labels[appsv1.ControllerRevisionHashLabelKey] {
		return
	}
	of := work.last()
	made, known := h.template(p.versions[0].Pod)
	template, is := work.revisions[label]
	if !known || !is || !p.resized.IsZero() {
		return
	}
	of.template = admitted(template, &p.versions[0].Spec, &made.Spec, &after.Spec)
	if name := of.lackedBy(after); name != "" && lacks(p.versions[0].Pod, made) == "" {
		h.violate(w, Complete, p.ref(), "%s labelled it %s, and it lacks the size of container %s", w.User.Username, label, name)
	} else if after.Spec.NodeName != "" && after.Status.Phase == corev1.PodRunning && !actuated(after) && !slices.Contains(h.options.Misreporting, nodeOf(after)) {
		h.violate(w, Complete, p.ref(), "%s labelled it %s, and it has not been given what its spec says", w.User.Username, label)
	}
}

// checkReturn checks that a pod which was restarted for its size does not come again of the older one.
func (h *history) checkReturn(w Write) {
	came := w.pod()
	if came == nil {
		return
	}
	work, _ := h.workload(came)
	made, known := h.template(came)
	if work == nil || !known || equality.Semantic.DeepEqual(sizeOf(made), sizeOf(work.last().template)) {
		return
	}
	var before *pod
	for _, other := range h.pods {
		if owner, _ := h.workload(other.last()); owner == work && other.last().Name == came.Name && (before == nil || other.going.After(before.going)) {
			before = other
		}
	}
	if before == nil || !before.restart || before.since.Before(work.ofTemplate()[0].at) {
		return
	}
	of, known := h.template(before.last())
	if known && equality.Semantic.DeepEqual(sizeOf(made), sizeOf(of)) && !work.any(before.since, func(v version) bool { return v.keepsBack(came) || v.released || v.stopped() || !v.enabled() }) {
		h.violate(w, Once, "pods/"+came.Name, "it was restarted for its size, and comes of the older one again")
	}
}

// checkOnce checks the restart of a pod for its size by the two rules of [Once]. What others do in between has the
// next restart be one of its own: they ask for it, change what is in force, or have the pod's successor go.
func (h *history) checkOnce(w Write, work *workload, p *pod) {
	of := work.ofTemplate()
	born, began := p.versions[0], of[0].at
	if !p.resized.IsZero() || p.reverted != nil || born.Status.Phase == corev1.PodFailed {
		return
	}
	for i, v := range of {
		if i > 0 && !slices.Equal(asks(of[i-1]), asks(v)) {
			began = v.at
		}
	}
	made, known := h.made(p)
	if known && h.telling(work, born.at, began) && born.at.Add(w.Since.Sub(w.at)).After(began) && equality.Semantic.DeepEqual(sizeOf(made), sizeOf(work.last().template)) {
		h.violate(w, Once, p.ref(), "%s had it go for what its successor has, too: it was made of the newest template", w.User.Username)
		return
	}
	if like := h.successor(work, p, w, began); like != nil {
		h.violate(w, Once, p.ref(), "%s had it go for what its successor has, too: it had what %s was born with", w.User.Username, like.last().Name)
		return
	}
	gone, most := 1, int32(1)
	if work.kind == "StatefulSet" && known && born.at.After(began) && !equality.Semantic.DeepEqual(sizeOf(made), sizeOf(work.last().template)) { // the built-in controller was behind
		most++
	}
	if work.kind == "Deployment" {
		most = 0
		for _, v := range of {
			most = max(most, v.replicas+v.most) // and what an edit that was given up has brought
		}
	}
	for _, other := range h.pods {
		switch owner, _ := h.workload(other.last()); {
		case other == p || owner != work || other.there() && !detached(other.last()) || other.since.Before(began): // it may have gone for the edit before
		case work.kind == "StatefulSet" && other.last().Name != p.last().Name, work.kind == "DaemonSet" && nodeOf(other.last()) != nodeOf(p.last()):
		case other.restart:
			gone++
		default:
			most++
		}
	}
	if gone > int(most) {
		h.violate(w, Once, p.ref(), "%s had it go, the %d. pod of this replica for one edit", w.User.Username, gone)
	}
}

// telling reports whether what comes at a moment is known to be of the newest template: a Deployment's ReplicaSet may just have got
// that, until the first pod is given up for it.
func (h *history) telling(work *workload, at, began time.Time) bool {
	if work.kind != "Deployment" {
		return true
	}
	for _, p := range h.pods {
		if owner, _ := h.workload(p.last()); owner == work && p.restart && !p.since.Before(began) && p.since.Before(at) {
			return true
		}
	}
	return false
}

// successor returns a pod that was born of the newest template, since that began, with just the containers and sizes that a pod has, if
// what is in force lets pods be resized; nil if there is none.
func (h *history) successor(work *workload, p *pod, w Write, began time.Time) *pod {
	is := p.at(w.Since)
	if is == nil || !actuated(is) || slices.Contains(h.options.Misreporting, nodeOf(is)) || work.any(w.Since, restarts) || is.Generation != p.last().Generation {
		return nil
	}
	for _, other := range h.pods {
		born := other.versions[0]
		made, known := h.made(other)
		if owner, _ := h.workload(other.last()); owner == work && other != p && known && born.at.After(began) && h.telling(work, born.at, began) && born.at.Before(w.Since) && born.Status.QOSClass == is.Status.QOSClass &&
			equality.Semantic.DeepEqual(sizeOf(made), sizeOf(work.last().template)) && equality.Semantic.DeepEqual(sizesOf(born.Pod), sizesOf(is)) {
			return other
		}
	}
	return nil
}

func sizesOf(p *corev1.Pod) map[string]corev1.ResourceRequirements {
	return sizeOf(corev1.PodTemplateSpec{Spec: p.Spec})
}

// asks are what a version says of how its template is to be rolled out, and the template as it is spelled: another
// spelling is another revision.
func asks(v version) []string {
	actions, policies := v.said()
	spelled, _ := json.Marshal(v.template) // what has been read can be written
	return slices.Concat(actions, policies, []string{string(spelled), v.annotation("retry"), v.annotation("node-resources"), v.meta.Labels["inplace-rollout.io/enabled"]})
}

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
