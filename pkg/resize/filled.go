package resize

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// LimitRangerAnnotation is where the LimitRanger admission plugin notes what it has
// filled in when the pod was made (plugin/pkg/admission/limitranger of Kubernetes).
const LimitRangerAnnotation = "kubernetes.io/limit-ranger"

// filled returns the changes that take out of a pod what LimitRanges have filled in, but for
// what the template says by now. It reads that from the annotation, as in `LimitRanger plugin
// set: cpu, memory request for container app; cpu limit for container app; cpu limit for init
// container log`. There are none if the pod has no such annotation.
func filled(pod *corev1.Pod, mine, template []part) []Change {
	note, annotated := strings.CutPrefix(pod.Annotations[LimitRangerAnnotation], "LimitRanger plugin set: ")
	if !annotated {
		return nil
	}
	var changes []Change
	for entry := range strings.SplitSeq(note, "; ") {
		what, of, _ := strings.Cut(entry, " for ")
		name := strings.TrimPrefix(strings.TrimPrefix(of, "init "), "container ")
		side := Request
		names, requests := strings.CutSuffix(what, " "+string(Request))
		if !requests {
			names, side = strings.TrimSuffix(what, " "+string(Limit)), Limit
		}
		have := counterpart(mine, part{name: name})
		if have == nil {
			continue
		}
		says := counterpart(template, *have)
		for resource := range strings.SplitSeq(names, ", ") {
			if filled := corev1.ResourceName(resource); says == nil || says.wanted(side, filled) == nil {
				changes = append(changes, Change{name, filled, side, have.value(side, filled), nil})
			}
		}
	}
	return changes
}
