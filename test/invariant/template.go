package invariant

import (
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/kubectl/pkg/util/qos"
	"k8s.io/utils/ptr"
)

// sizes are the resources that a resize may change.
var sizes = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// differOnlyInSize reports whether two templates are the same but for cpu and memory.
func differOnlyInSize(a, b corev1.PodTemplateSpec) bool {
	return equality.Semantic.DeepEqual(sizeless(a), sizeless(b))
}

func sizeless(t corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	t = *t.DeepCopy()
	t.CreationTimestamp.Reset()
	delete(t.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	for _, c := range containers(&t.Spec) {
		for _, size := range sizes {
			delete(c.Resources.Requests, size)
			delete(c.Resources.Limits, size)
		}
		c.ResizePolicy = slices.DeleteFunc(c.ResizePolicy, func(p corev1.ContainerResizePolicy) bool { return p.RestartPolicy == corev1.NotRequired })
	}
	if t.Spec.Resources != nil {
		for _, size := range sizes {
			delete(t.Spec.Resources.Requests, size)
			delete(t.Spec.Resources.Limits, size)
		}
	}
	return t
}

// containers of a pod or template, init containers among them.
func containers(spec *corev1.PodSpec) map[string]*corev1.Container {
	all := map[string]*corev1.Container{}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			all[list[i].Name] = &list[i]
		}
	}
	return all
}

// lacks returns the name of a container of the pod that does not have the size that a template
// says, or "". What no template says does not count: admission may have filled it in. One that is not in the pod
// was dropped or renamed by an injector.
func lacks(p *corev1.Pod, t corev1.PodTemplateSpec) string {
	have := containers(&p.Spec)
	want := containers(&t.Spec)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if have[name] != nil && (!covers(have[name].Resources.Requests, want[name].Resources.Requests) ||
			!covers(have[name].Resources.Limits, want[name].Resources.Limits)) {
			return name
		}
	}
	return ""
}

// admitted returns a template with what admission has made of its values at the birth of a pod, as far as that is so still:
// it stays where no edit changes it.
func admitted(t corev1.PodTemplateSpec, born, made, now *corev1.PodSpec) corev1.PodTemplateSpec {
	t = *t.DeepCopy()
	was, said, is := containers(born), containers(made), containers(now)
	for name, c := range containers(&t.Spec) {
		if was[name] == nil || said[name] == nil || is[name] == nil {
			continue
		}
		for _, side := range []struct {
			want            *corev1.ResourceList
			born, made, now corev1.ResourceList
		}{
			{&c.Resources.Requests, was[name].Resources.Requests, said[name].Resources.Requests, is[name].Resources.Requests},
			{&c.Resources.Limits, was[name].Resources.Limits, said[name].Resources.Limits, is[name].Resources.Limits},
		} {
			for _, size := range sizes {
				made, says := side.made[size]
				born, had := side.born[size]
				now, has := side.now[size]
				switch {
				case !says || had && born.Cmp(made) == 0 || had != has || has && now.Cmp(born) != 0:
				case !has:
					delete(*side.want, size)
				default:
					(*side.want)[size] = now
				}
			}
		}
	}
	return t
}

func covers(have, want corev1.ResourceList) bool {
	for _, size := range sizes {
		if w, said := want[size]; said {
			if h, there := have[size]; !there || h.Cmp(w) != 0 {
				return false
			}
		}
	}
	return true
}

// actuated reports whether the kubelet says that the pod's containers have what its spec says.
func actuated(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
			return false
		}
	}
	spec := containers(&p.Spec)
	for _, s := range p.Status.ContainerStatuses {
		if c := spec[s.Name]; c != nil && s.Resources != nil && !covers(s.Resources.Requests, c.Resources.Requests) {
			return false
		}
	}
	return true
}

// inTheWay reports whether the API server, or the container itself, does not let the pod have
// the size of the new template in place: an obstacle that the table's last row knows.
func inTheWay(p *corev1.Pod, before, after corev1.PodTemplateSpec) bool {
	if p.Spec.NodeName == "" || p.Status.Phase != corev1.PodRunning {
		return true
	}
	was, is, target := containers(&before.Spec), containers(&after.Spec), p.DeepCopy()
	has := containers(&target.Spec)
	plain := map[string]bool{}
	for _, c := range after.Spec.InitContainers {
		plain[c.Name] = ptr.Deref(c.RestartPolicy, "") != corev1.ContainerRestartPolicyAlways
	}
	for name, c := range is {
		if has[name] == nil { // an injector has dropped or renamed it, and would again
			continue
		}
		if was[name] == nil {
			return true
		}
		changed := !covers(has[name].Resources.Requests, c.Resources.Requests) || !covers(has[name].Resources.Limits, c.Resources.Limits)
		if changed && plain[name] {
			return true
		}
		for _, policy := range c.ResizePolicy {
			if policy.RestartPolicy == corev1.RestartContainer && changed {
				return true
			}
		}
		if removed(was[name].Resources.Requests, c.Resources.Requests) || removed(was[name].Resources.Limits, c.Resources.Limits) {
			return true
		}
		for _, list := range []corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} { // what it does not request is its limit
			set(&has[name].Resources.Requests, list)
		}
		set(&has[name].Resources.Limits, c.Resources.Limits)
	}
	for _, c := range has {
		if above(c.Resources) {
			return true
		}
	}
	return qos.GetPodQOS(p) != qos.ComputePodQOS(target)
}

// above reports whether a request is above its limit.
func above(r corev1.ResourceRequirements) bool {
	return slices.ContainsFunc(sizes, func(size corev1.ResourceName) bool {
		limit, limited := r.Limits[size]
		return limited && limit.Cmp(r.Requests[size]) < 0
	})
}

func removed(before, after corev1.ResourceList) bool {
	return slices.ContainsFunc(sizes, func(size corev1.ResourceName) bool {
		_, had := before[size]
		_, has := after[size]
		return had && !has
	})
}

// keeps reports whether the pod has what one template says and the next one does not.
func keeps(p *corev1.Pod, before, after corev1.PodTemplateSpec) bool {
	was, is := containers(&before.Spec), containers(&after.Spec)
	for name, c := range containers(&p.Spec) {
		if was[name] != nil && is[name] != nil && (left(c.Resources.Requests, was[name].Resources.Requests, is[name].Resources.Requests) ||
			left(c.Resources.Limits, was[name].Resources.Limits, is[name].Resources.Limits)) {
			return true
		}
	}
	return false
}

// left reports whether there is a size that was said before and is not any more.
func left(has, before, after corev1.ResourceList) bool {
	return slices.ContainsFunc(sizes, func(size corev1.ResourceName) bool {
		_, is := has[size]
		_, said := before[size]
		_, says := after[size]
		return is && said && !says
	})
}

func set(list *corev1.ResourceList, want corev1.ResourceList) {
	for _, size := range sizes {
		if q, said := want[size]; said {
			if *list == nil {
				*list = corev1.ResourceList{}
			}
			(*list)[size] = q
		}
	}
}

// edition is a template as it was from a moment on, whatever the sizes.
type edition struct {
	at       time.Time
	since    int64 // the generation that it came with
	template corev1.PodTemplateSpec
	known    []corev1.PodTemplateSpec // to the StatefulSet controller, of each size
}

// edit notes a version's template if it is another one than before in more than its sizes.
func (w *workload) edit(v version) {
	if n := len(w.editions); n == 0 || !differOnlyInSize(w.editions[n-1].template, v.template) {
		w.editions = append(w.editions, edition{at: v.at, since: v.edited, template: v.template})
	}
}

// know notes that the StatefulSet controller has named a template as the newest one, when it had observed that generation.
func (w *workload) know(t corev1.PodTemplateSpec, observed int64) {
	e := &w.editions[len(w.editions)-1]
	if n := len(e.known); observed >= e.since && (n == 0 || !equality.Semantic.DeepEqual(e.known[n-1], t)) {
		e.known = append(e.known, t)
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
	if of < 0 || had <= of || differOnlyInSize(made, work.revisions[revision]) || work.any(work.editions[had].at, func(v version) bool { return v.partition > 0 }) ||
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
