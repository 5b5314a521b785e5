package resize

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
)

// resizable are the resources that the kubelet can change in a running pod.
var resizable = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// kind tells in which list of a pod's spec (and status) a part stands.
type kind int

const (
	podLevel kind = iota
	initContainer
	regularContainer
)

// part is one place of a pod's spec that has resources: the pod as a whole, or
// one of its containers.
type part struct {
	kind         kind
	name         string // of the container; "" for the pod as a whole
	requirements *corev1.ResourceRequirements
	container    *corev1.Container // nil for the pod as a whole
}

// label is how events and messages call the part.
func (p part) label() string {
	if p.kind == podLevel {
		return "pod"
	}
	return p.name
}

// sidecar tells whether the part is a restartable init container (KEP-753).
func (p part) sidecar() bool {
	return p.kind == initContainer && ptr.Deref(p.container.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways
}

// restartsFor tells whether the kubelet restarts the container for a change of
// the named resource (KEP-1287, resizePolicy).
func (p part) restartsFor(name corev1.ResourceName) bool {
	return p.container != nil && slices.Contains(p.container.ResizePolicy,
		corev1.ContainerResizePolicy{ResourceName: name, RestartPolicy: corev1.RestartContainer})
}

// parts lists where spec has resources, in the order of the spec. The parts
// point into spec, so that what is changed through them changes spec.
func parts(spec *corev1.PodSpec) []part {
	var all []part
	if spec.Resources != nil {
		all = append(all, part{kind: podLevel, requirements: spec.Resources})
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		all = append(all, part{initContainer, c.Name, &c.Resources, c})
	}
	for i := range spec.Containers {
		c := &spec.Containers[i]
		all = append(all, part{regularContainer, c.Name, &c.Resources, c})
	}
	return all
}

// counterpart returns the part of the same kind and name, or nil.
func counterpart(all []part, of part) *part {
	i := slices.IndexFunc(all, func(p part) bool { return p.kind == of.kind && p.name == of.name })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// Defaulted returns the spec of the pods that template makes, with the requests that the API server
// fills in on pods but never on templates (SetDefaults_Pod and defaultPodRequests
// in pkg/apis/core/v1/defaults.go of Kubernetes): a container's limit stands in
// for its missing request; the pod's missing request is the sum of what its
// containers request, or else the pod's limit.
func Defaulted(template *corev1.PodTemplateSpec) *corev1.PodSpec {
	spec := template.Spec.DeepCopy()
	for _, p := range parts(spec) {
		if p.kind != podLevel {
			fillRequests(p.requirements, p.requirements.Limits)
		}
	}
	if spec.Resources != nil && len(spec.Resources.Limits) > 0 {
		sum := resourcehelper.AggregateContainerRequests(&corev1.Pod{Spec: *spec}, resourcehelper.PodResourcesOptions{})
		for name := range sum {
			if !resourcehelper.IsSupportedPodLevelResource(name) {
				delete(sum, name)
			}
		}
		fillRequests(spec.Resources, sum)
		fillRequests(spec.Resources, spec.Resources.Limits)
	}
	return spec
}

func fillRequests(r *corev1.ResourceRequirements, from corev1.ResourceList) {
	for name, quantity := range from {
		if _, said := r.Requests[name]; !said {
			setValue(&r.Requests, name, quantity)
		}
	}
}

func setValue(list *corev1.ResourceList, name corev1.ResourceName, quantity resource.Quantity) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = quantity.DeepCopy()
}
