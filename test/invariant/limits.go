package invariant

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// limits are the namespace's LimitRanges, by name, from a moment on.
type limits struct {
	at     time.Time
	ranges map[string][]corev1.LimitRangeItem
}

// storeLimits notes a LimitRange as it is now, or that it is gone.
func (h *history) storeLimits(w Write) {
	is := limits{w.at, map[string][]corev1.LimitRangeItem{}}
	if n := len(h.limits); n > 0 {
		maps.Copy(is.ranges, h.limits[n-1].ranges)
	}
	if stored, there := w.Object.(*corev1.LimitRange); there && w.Verb != "delete" {
		is.ranges[w.ObjectRef.Name] = stored.Spec.Limits
	} else {
		delete(is.ranges, w.ObjectRef.Name)
	}
	h.limits = append(h.limits, is)
}

// limited reports whether LimitRanges, as they have been since, have refused the pod the size of the template. It has its own
// size where the template says none.
func (h *history) limited(p *corev1.Pod, template corev1.PodTemplateSpec, since time.Time) bool {
	wants := containers(&template.Spec)
	for name, c := range containers(&p.DeepCopy().Spec) {
		if wants[name] == nil {
			continue
		}
		set(&c.Resources.Requests, wants[name].Resources.Requests)
		set(&c.Resources.Limits, wants[name].Resources.Limits)
		for i, l := range h.limits {
			if i+1 < len(h.limits) && !h.limits[i+1].at.After(since) {
				continue
			}
			for _, items := range l.ranges {
				for _, item := range items {
					if item.Type == corev1.LimitTypeContainer && exceeds(c.Resources, item.Max) {
						return true
					}
				}
			}
		}
	}
	return false
}

// exceeds reports whether a container has more than it may, or no limit where it may not have any size.
func exceeds(r corev1.ResourceRequirements, most corev1.ResourceList) bool {
	for size, q := range most {
		limit, limited := r.Limits[size]
		if request := r.Requests[size]; !limited || limit.Cmp(q) > 0 || request.Cmp(q) > 0 {
			return true
		}
	}
	return false
}
