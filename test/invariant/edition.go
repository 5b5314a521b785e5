package invariant

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// edition is a template as it was from a moment on, whatever the sizes.
type edition struct {
	at       time.Time
	template corev1.PodTemplateSpec
	known    []corev1.PodTemplateSpec // to the StatefulSet controller, of each size
}

// edit notes a version's template if it is another one than before in more than its sizes.
func (w *workload) edit(v version) {
	if n := len(w.editions); n == 0 || !differOnlyInSize(w.editions[n-1].template, v.template) {
		w.editions = append(w.editions, edition{at: v.at, template: v.template})
	}
}

// know notes that the StatefulSet controller knows a version's template.
func (w *workload) know(v version) {
	e := &w.editions[len(w.editions)-1]
	if n := len(e.known); n == 0 || !equality.Semantic.DeepEqual(e.known[n-1], v.template) {
		e.known = append(e.known, v.template)
	}
}

// edition returns which one a template is, of those that there were at a moment, counted from 0; -1 if the workload has not had it.
// One that came again, by an undo say, is as new as when it came last, if the StatefulSet controller came to know it again: it takes
// one of another size for another one.
func (w *workload) edition(t corev1.PodTemplateSpec, at time.Time) int {
	newest := -1
	same := func(known corev1.PodTemplateSpec) bool { return equality.Semantic.DeepEqual(sizeOf(known), sizeOf(t)) }
	for i, e := range w.editions {
		if (newest < 0 || slices.ContainsFunc(e.known, same)) && !e.at.After(at) && differOnlyInSize(e.template, t) {
			newest = i
		}
	}
	return newest
}

// newest returns the newest edition that the pods of a StatefulSet's name have been of, each as long as it was there, and the
// revision that says so; -1 if there was none.
func (h *history) newest(work *workload, name string) (edition int, revision string) {
	edition = -1
	for _, p := range h.pods {
		if owner, _ := h.workload(p.last()); owner != work || p.last().Name != name {
			continue
		}
		for i, v := range p.versions {
			until := p.deleted
			switch {
			case i+1 < len(p.versions):
				until = p.versions[i+1].at
			case until.IsZero():
				until = work.last().at
			}
			label := v.Labels[appsv1.ControllerRevisionHashLabelKey]
			if had, known := work.revisions[label]; known && work.edition(had, until) > edition {
				edition, revision = work.edition(had, until), label
			}
		}
	}
	return edition, revision
}

// checkTemplate checks what a new pod of a StatefulSet was made of. Its ordinal may have had a newer
// template, sizes aside, only where the user has a partition, where nobody has opted the set in, and
// where the StatefulSet controller did not know the newest template yet: it makes pods in the sync that
// sees an edit, before it writes its status.
func (h *history) checkTemplate(w Write) {
	came := w.pod()
	if came == nil {
		return
	}
	work, _ := h.workload(came)
	made, known := h.template(came)
	if work == nil || work.kind != "StatefulSet" || !known || !work.knows(w.at.Add(-slack/5)) {
		return
	}
	of := work.edition(made, w.at)
	had, revision := h.newest(work, came.Name)
	if of < 0 || had <= of || work.any(work.editions[had].at, func(v version) bool { return v.partition > 0 }) ||
		work.any(w.Since, func(v version) bool { return !v.enabled() }) {
		return
	}
	h.violate(w, Template, "pods/"+came.Name, "it was made of revision %s, and one of its ordinal has been of %s, which is newer and differs in more than its size",
		came.Labels[appsv1.ControllerRevisionHashLabelKey], revision)
}

// knows reports whether the StatefulSet controller had written before that moment which revision the
// newest template has.
func (w *workload) knows(before time.Time) bool {
	return slices.ContainsFunc(w.ofTemplate(), func(v version) bool { return v.updated != "" && v.at.Before(before) })
}
