package invariant

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// checkOptedIn checks that what the controller writes belongs to an opted-in workload. What a
// rollout has left behind is put in order after the workload has been opted out, too.
func (h *history) checkOptedIn(w Write) {
	var work *workload
	switch resource := w.ObjectRef.Resource; {
	case isWorkload(resource):
		for _, work := range h.workloads { // there may have been one of this name before
			since := w.Since
			if w.withdraws() {
				since = work.versions[0].at
			}
			if work.name == w.ObjectRef.Name && resources[work.kind] == w.ObjectRef.Resource && work.deleted.IsZero() && work.any(since, version.enabled) {
				return
			}
		}
	case resource == "pods":
		p := h.named(w.ObjectRef.Name)
		if p == nil {
			return // it has gone meanwhile
		}
		for i := range p.versions { // it may have been left without an owner
			if work, _ = h.workload(p.versions[i].Pod); work != nil && work.any(work.versions[0].at, version.enabled) {
				return
			}
		}
	case resource == "replicasets":
		if w.Verb == "create" {
			return // see checkFence
		}
		for _, set := range h.sets {
			if work = h.workloads[set.owner]; set.name == w.ObjectRef.Name && work != nil && work.any(work.versions[0].at, version.enabled) {
				return
			}
		}
	default:
		return
	}
	h.violate(w, OptedIn, w.ObjectRef.Resource+"/"+w.ObjectRef.Name, "%s wrote it (%s), and it is not opted in", w.User.Username, w.Verb)
}

// withdraws reports whether the write leaves no condition of ours in the status of a workload.
func (w Write) withdraws() bool {
	v, ok := workloadOf(w)
	return ok && w.ObjectRef.Subresource == "status" && !v.conditioned
}

// checkFence checks that the controller writes what a rollout needs, and nothing else.
func (h *history) checkFence(w Write) {
	ref := w.ObjectRef
	object := ref.Resource + "/" + ref.Name
	switch {
	case ref.Resource == "pods" && w.Verb == "create" && ref.Subresource == "",
		isWorkload(ref.Resource) && (w.Verb == "create" || w.Verb == "delete"),
		w.Verb == "deletecollection":
		h.violate(w, Fence, object, "%s made a %s", w.User.Username, w.Verb)
	case ref.Resource == "pods" && w.Verb == "delete":
		if p := h.named(ref.Name); p != nil {
			if work, _ := h.workload(p.last()); work != nil && work.kind == "Deployment" && ready(p.last()) {
				h.violate(w, Fence, object, "%s deleted it past the PodDisruptionBudgets", w.User.Username)
			}
		}
	case w.Object == nil:
	case isWorkload(ref.Resource):
		h.fenceWorkload(w, object)
	case ref.Resource == "replicasets":
		h.fenceReplicaSet(w, object)
	case ref.Resource == "pods" && ref.Subresource == "":
		if stored := w.pod(); stored != nil {
			if p := h.pods[stored.UID]; p != nil && !equality.Semantic.DeepEqual(p.last().Spec, stored.Spec) && p.last().Spec.NodeName != "" {
				h.violate(w, Fence, object, "%s changed its spec", w.User.Username)
			}
			if metav1.GetControllerOf(stored) == nil {
				h.violate(w, Fence, object, "%s left it to the garbage collector: it has the owners %v", w.User.Username, stored.OwnerReferences)
			}
		}
	}
}

func (h *history) fenceWorkload(w Write, object string) {
	after, ok := workloadOf(w)
	if !ok {
		return
	}
	known := h.workloads[after.meta.UID]
	if known == nil {
		return
	}
	before := known.last()
	for _, set := range h.sets {
		if d, is := w.Object.(*appsv1.Deployment); is && before.switched && !after.held && !d.Spec.Paused && h.workloads[set.owner] == known && set.replicas > 0 &&
			(!differOnlyInSize(set.template, after.template) || !equality.Semantic.DeepEqual(sizeOf(set.template), sizeOf(after.template))) {
			h.violate(w, Availability, object, "%s let go, so that all pods of ReplicaSet %s go at once, and the edit came with another strategy", w.User.Username, set.name)
		}
	}
	if mutated := !equality.Semantic.DeepEqual(before.template, after.template) && after.held; mutated {
		return // by a webhook: it is held as an edit
	}
	letGo := known.kind == "DaemonSet" && within(h.options.Gaps, w.at) // in two writes, where no policy makes one of them
	if !letGo && spelled(before.spec) != spelled(after.spec) {
		h.violate(w, Fence, object, "%s changed its spec", w.User.Username)
	} else if !maps.Equal(before.meta.Labels, after.meta.Labels) {
		h.violate(w, Fence, object, "%s changed its labels", w.User.Username)
	}
}

// spelled is an object as it is written.
func spelled(object any) string {
	raw, _ := json.Marshal(object) // what has been read can be written
	return string(raw)
}

func (h *history) fenceReplicaSet(w Write, object string) {
	after, is := w.Object.(*appsv1.ReplicaSet)
	if !is || w.Verb == "delete" {
		if set := h.namedSet(w.ObjectRef.Name); set != nil && set.replicas > 0 {
			h.violate(w, Fence, object, "%s deleted it with %d replicas", w.User.Username, set.replicas)
		}
		return
	}
	if w.Verb == "create" {
		owner := metav1.GetControllerOf(after)
		if owner == nil || h.workloads[owner.UID] == nil || !h.workloads[owner.UID].any(w.Since, version.enabled) {
			h.violate(w, Fence, object, "%s created it for no opted-in Deployment", w.User.Username)
		} else if ptr.Deref(after.Spec.Replicas, 1) != 0 {
			h.violate(w, Fence, object, "%s created it with replicas", w.User.Username)
		}
		return
	}
	before := h.sets[after.UID]
	if before == nil {
		return
	}
	work := h.workloads[before.owner]
	switch replicas := ptr.Deref(after.Spec.Replicas, 1); {
	case replicas != before.replicas:
		h.violate(w, Fence, object, "%s scaled it from %d to %d", w.User.Username, before.replicas, replicas)
	case replicas > 0 && !differOnlyInSize(before.template, after.Spec.Template):
		h.violate(w, Fence, object, "%s changed more than the size in its template", w.User.Username)
	case work != nil && replicas > 0 && !equality.Semantic.DeepEqual(sizeOf(before.template), sizeOf(after.Spec.Template)) &&
		!work.any(w.Since, func(v version) bool {
			return v.recreate || v.guarded() && before.had(after.Spec.Template) || equality.Semantic.DeepEqual(sizeOf(v.template), sizeOf(after.Spec.Template))
		}):
		h.violate(w, Fence, object, "%s gave it a size that its Deployment does not have", w.User.Username)
	}
}

// had reports whether the ReplicaSet has had a size.
func (s *replicaSet) had(t corev1.PodTemplateSpec) bool {
	return slices.ContainsFunc(s.versions, func(v setVersion) bool { return equality.Semantic.DeepEqual(sizeOf(v.template), sizeOf(t)) })
}

func (h *history) namedSet(name string) *replicaSet {
	for _, set := range h.sets {
		if set.name == name && set.deletedBy == "" {
			return set
		}
	}
	return nil
}

// checkOrder checks that no pod is asked before one of a higher ordinal that is to be asked, too.
// One that is not available has nothing to lose, and may be asked out of turn. One that has become so
// within the lag may not be known to be. One that was asked before, and not said to be Complete since, counts as
// under way for a controller that has just started. So does one that was resized at a time that is still to come, by the clock of an API
// server that is ahead: nobody can tell whether it has proved that size.
func (h *history) checkOrder(w Write) {
	if !w.resized {
		return
	}
	p := h.named(w.ObjectRef.Name)
	if p == nil {
		return
	}
	work, _ := h.workload(p.last())
	if work == nil || work.kind != "StatefulSet" {
		return
	}
	versions := work.since(w.Since)
	if !p.readySince(w.Since.Add(-versions[0].minReady - slack)) {
		return
	}
	if of := work.ofTemplate(); len(of) > len(versions) {
		versions = of
	}
	template := versions[0].template
	for _, v := range versions { // only where nobody has changed anything since the edit
		if v.parallel || restarts(v) || v.annotation("retry") != "" || v.replicas != versions[0].replicas || v.start != versions[0].start ||
			v.partition != versions[0].partition || !v.enabled() || !equality.Semantic.DeepEqual(v.template, template) {
			return
		}
	}
	begun := versions[0].at
	ahead := func(e metav1.ManagedFieldsEntry) bool {
		return e.Subresource == "resize" && e.Time != nil && e.Time.After(w.at)
	}
	if p.underWay(work, begun) || h.givesRoom(work, p, w) || versions[0].minReady > 0 && slices.ContainsFunc(p.last().ManagedFields, ahead) {
		return
	}
	for _, other := range h.members(work) {
		if ordinal(other.last().Name) <= ordinal(p.last().Name) || versions[0].surplus(other.last()) || !other.there() || other.versions[0].at.After(begun) || h.lacks(other, template) == "" {
			continue
		}
		before, known := h.template(other.last())
		asked := len(other.asked) > 0 && !other.asked[len(other.asked)-1].at.Before(begun)
		if !known || asked || !differOnlyInSize(before, template) || h.obstacle(work, other, w) != "" || other.disturbed(begun) ||
			h.limited(other.last(), template, w.Since) {
			continue
		}
		h.violate(w, Order, p.ref(), "it was asked before %s, which has not been asked for this edit", other.last().Name)
		return
	}
}

// givesRoom reports whether the pod asks for no more than it has while another one is missing, for which it may give room: it waits for
// nobody who waits for that one.
func (h *history) givesRoom(work *workload, p *pod, by Write) bool {
	missing := work.last().replicas
	for _, other := range h.members(work) {
		if other.there() && !other.versions[0].at.After(by.Since) && !work.last().surplus(other.last()) {
			missing--
		}
	}
	return missing > 0 && !asksMore(corev1.PodTemplateSpec{Spec: p.last().Spec}, work.last().template)
}

// underWay reports whether the pod was asked before a moment, and Complete was not said between the two.
func (p *pod) underWay(work *workload, at time.Time) bool {
	return slices.ContainsFunc(p.asked, func(a ask) bool {
		return a.code < 300 && a.at.Before(at) && !work.any(a.at, func(v version) bool { return v.complete && v.at.Before(at) })
	})
}

// disturbed reports whether the pod's spec has changed since, or the pod was not ready at some
// time: then it may have to wait.
func (p *pod) disturbed(since time.Time) bool {
	for i, v := range p.versions {
		if v.at.Before(since) {
			continue
		}
		if !ready(v.Pod) || i > 0 && !equality.Semantic.DeepEqual(p.versions[i-1].Spec, v.Spec) {
			return true
		}
	}
	return false
}

// checkComplete checks a condition that is set True: each pod that may move must have had its size
// and revision at some time within the lag.
func (h *history) checkComplete(w Write) {
	ref := w.ObjectRef
	after, ok := workloadOf(w)
	if !ok || ref.Subresource != "status" {
		return
	}
	work := h.workloads[after.meta.UID]
	if work == nil || !after.complete || work.last().complete {
		return
	}
	from := w.Since
	versions := append([]version{after}, work.since(from)...)
	for _, p := range h.members(work) {
		if !p.there() || p.ended() || h.node(nodeOf(p.last())).gone || after.keepsBack(p.last()) || after.surplus(p.last()) {
			continue
		}
		since, versions, classed := from, versions, h.classed(work, p)
		if classed && p.labelled().at.Before(from) {
			since = p.labelled().at
			versions = append([]version{after}, work.since(since)...)
		}
		why := h.behind(work, p, versions, since)
		if why == "" && !classed && !slices.Contains(h.options.Misreporting, nodeOf(p.last())) && h.unproved(p, work.ofTemplate()[0], w, work.last().minReady-slack) {
			why = "has yet to prove its size"
		}
		if why != "" {
			h.violate(w, Complete, work.ref(), "%s wrote Complete=True, and %s %s", w.User.Username, p.last().Name, why)
		}
	}
}

// keepsBack reports whether the user's partition keeps a StatefulSet's pod as it is.
func (v version) keepsBack(p *corev1.Pod) bool {
	return v.kind == "StatefulSet" && ordinal(p.Name) < v.start+v.partition
}

// surplus reports whether a StatefulSet's pod is to go.
func (v version) surplus(p *corev1.Pod) bool {
	return v.kind == "StatefulSet" && (ordinal(p.Name) < v.start || ordinal(p.Name) >= v.start+v.replicas)
}

// behind returns what the pod has lacked at every moment since; "" if there was one at which it
// lacked nothing.
func (h *history) behind(work *workload, p *pod, versions []version, since time.Time) string {
	if p.versions[0].at.After(since) || p.doubt.After(p.versions[len(p.versions)-1].at) {
		return "" // it is new, or the log does not show how it is
	}
	// Nobody fights over the size that somebody else gave it, or admission at its birth, unless it has been asked since.
	template, known := h.made(p)
	born := p.versions[0].Pod
	differs := known && lacks(born, template) != ""
	others := (differs || !p.resized.IsZero()) && !slices.ContainsFunc(p.asked, func(a ask) bool { return a.code < 300 && a.at.After(p.resized) })
	var why string
	for i, v := range p.versions {
		if i+1 < len(p.versions) && !p.versions[i+1].at.After(since) {
			continue
		}
		made, known := h.template(v.Pod)
		if !known {
			return ""
		}
		for _, of := range versions {
			t := of.template
			if differs {
				of.template = admitted(t, &born.Spec, &template.Spec, &v.Spec)
			}
			switch name := of.lackedBy(v.Pod); {
			case name != "" && !others && !h.bornSo(work, v.Pod, t):
				why = "lacks the size of container " + name
			case !differOnlyInSize(made, t):
				why = "is of another template"
			case work.kind != "Deployment" && !equality.Semantic.DeepEqual(sizeOf(made), sizeOf(t)):
				why = "has the label of another revision"
			case !actuated(v.Pod) && !others:
				why = "has not been given what its spec says"
			default:
				return ""
			}
		}
	}
	return why
}

// lacks is what the pod lacks of the template with what admission has made of it at the pod's birth.
func (h *history) lacks(p *pod, t corev1.PodTemplateSpec) string {
	if made, known := h.made(p); known {
		t = admitted(t, &p.versions[0].Spec, &made.Spec, &p.last().Spec)
	}
	return lacks(p.last(), t)
}

// bornSo reports whether each container of the pod has what the template says, or what a pod that is there was born with by it:
// what an edit that was taken back has set stays, if new pods have that, too.
func (h *history) bornSo(work *workload, p *corev1.Pod, t corev1.PodTemplateSpec) bool {
	for name, has := range sizesOf(p) {
		alike := slices.ContainsFunc(h.members(work), func(other *pod) bool {
			made, known := h.made(other)
			return known && equality.Semantic.DeepEqual(sizeOf(made), sizeOf(t)) && equality.Semantic.DeepEqual(sizesOf(other.versions[0].Pod)[name], has)
		})
		want, is := sizeOf(t)[name]
		if is && !alike && (!covers(has.Requests, want.Requests) || !covers(has.Limits, want.Limits)) {
			return false
		}
	}
	return true
}
