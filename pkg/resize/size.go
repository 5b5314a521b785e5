package resize

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Size is what the parts of a pod request, and to what they are limited, of what can be resized.
type Size []PartSize

// PartSize is the size of a container, or of the pod as a whole.
type PartSize struct {
	Container string              `json:"container,omitempty"` // none: of the pod as a whole
	Requests  corev1.ResourceList `json:"requests,omitempty"`
	Limits    corev1.ResourceList `json:"limits,omitempty"`
}

// Wanted is the target's size.
func (t Target) Wanted() Size {
	size, sized := Size{}, parts(t.Spec())
	for _, p := range t.named {
		if now := counterpart(sized, p); now != nil {
			size = size.with(p, *now.requirements)
		}
	}
	return size
}

// Applied is what is in force, as the kubelet reports it.
func (t Target) Applied() Size {
	size := Size{}
	for _, p := range t.named {
		_, applied := t.reported(p)
		size = size.with(p, applied)
	}
	return size
}

// with has the size of one more part, unless that says nothing.
func (s Size) with(p part, r corev1.ResourceRequirements) Size {
	of := PartSize{p.name, resizableOf(r.Requests), resizableOf(r.Limits)}
	if of.Requests == nil && of.Limits == nil {
		return s
	}
	return append(s, of)
}

func resizableOf(list corev1.ResourceList) corev1.ResourceList {
	var found corev1.ResourceList
	for _, name := range resizable {
		if q := lookup(list, name); q != nil && found == nil {
			found = corev1.ResourceList{name: *q}
		} else if q != nil {
			found[name] = *q
		}
	}
	return found
}

// String spells the size out, requests before limits: `app: cpu 100m/200m, memory 1Gi/2Gi`. It is
// "-" if that is nothing.
func (s Size) String() string {
	if len(s) == 0 {
		return "-"
	}
	parts := make([]string, len(s))
	for i, p := range s {
		parts[i] = p.String()
	}
	return strings.Join(parts, "; ")
}

func (p PartSize) String() string {
	label := p.Container
	if label == "" {
		label = "pod"
	}
	var values []string
	for _, name := range resizable {
		request, limit := lookup(p.Requests, name), lookup(p.Limits, name)
		if request != nil || limit != nil {
			values = append(values, fmt.Sprintf("%s %s/%s", name, quantity(request), quantity(limit)))
		}
	}
	return label + ": " + strings.Join(values, ", ")
}
