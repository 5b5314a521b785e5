package invariant

import (
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

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
