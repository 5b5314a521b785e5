package resize

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// LimitRangerAnnotation is where the LimitRanger admission plugin notes what it has
// filled in when the pod was made (plugin/pkg/admission/limitranger of Kubernetes).
const LimitRangerAnnotation = "kubernetes.io/limit-ranger"

// filled returns the values that LimitRanges have filled into a pod, but for those that the
// template says by now. It reads them from the annotation, as in `LimitRanger plugin set:
// cpu, memory request for container app; cpu limit for container app; cpu limit for init
// container log`. There are none if the pod has no such annotation.
func filled(pod *corev1.Pod, mine, template []part) []value {
	note, annotated := strings.CutPrefix(pod.Annotations[LimitRangerAnnotation], "LimitRanger plugin set: ")
	if !annotated {
		return nil
	}
	var values []value
	for entry := range strings.SplitSeq(note, "; ") {
		what, of, _ := strings.Cut(entry, " for ")
		kind := regularContainer
		name, ofInit := strings.CutPrefix(of, "init container ")
		if ofInit {
			kind = initContainer
		} else {
			name = strings.TrimPrefix(of, "container ")
		}
		side := Request
		names, requests := strings.CutSuffix(what, " "+string(Request))
		if !requests {
			names, side = strings.TrimSuffix(what, " "+string(Limit)), Limit
		}
		have := counterpart(mine, part{kind: kind, name: name})
		if have == nil {
			continue
		}
		for resource := range strings.SplitSeq(names, ", ") {
			if v := (value{*have, side, corev1.ResourceName(resource), nil}); !v.in(template) {
				values = append(values, v)
			}
		}
	}
	return values
}

// in reports whether one of the parts says a value of this name, whatever it is.
func (v value) in(parts []part) bool {
	p := counterpart(parts, v.part)
	if p == nil {
		return false
	}
	for _, list := range sides(p.requirements) {
		if list.side == v.side {
			return lookup(*list.list, v.name) != nil
		}
	}
	return false
}
