package resize

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
)

// resizable are the resources that the kubelet can change in a running pod.
var resizable = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// kind is the list of a pod's spec (and status) in which a part stands.
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

// sidecar reports whether the part is a restartable init container (KEP-753).
func (p part) sidecar() bool {
	return p.kind == initContainer && ptr.Deref(p.container.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways
}

// restartsFor reports whether the kubelet restarts the container for a change of
// the named resource (KEP-1287, resizePolicy).
func (p part) restartsFor(name corev1.ResourceName) bool {
	return p.container != nil && slices.Contains(p.container.ResizePolicy,
		corev1.ContainerResizePolicy{ResourceName: name, RestartPolicy: corev1.RestartContainer})
}

// restartedFor reports whether the kubelet restarts the container p, one of all parts of a pod, for values that change
// (computePodResizeAction in pkg/kubelet/kuberuntime of Kubernetes).
func (p part) restartedFor(all []part, changes func(part, Side, corev1.ResourceName) bool) bool {
	return slices.ContainsFunc(resizable, func(name corev1.ResourceName) bool {
		return p.restartsFor(name) && (changes(p, Request, name) || changes(p.limiter(all, name), Limit, name))
	})
}

// limiter returns the part whose limit of the resource the container p, one of all parts of a pod, has: p, or the pod as a whole if p says
// none. That limit the kubelet sets for the container, and shows in its environment (KEP-5419: GetLimits in pkg/kubelet/util of
// Kubernetes; defaultPodLimitsForDownwardAPI in pkg/kubelet).
func (p part) limiter(all []part, name corev1.ResourceName) part {
	if own := p.value(Limit, name); (own == nil || own.IsZero()) && all[0].kind == podLevel {
		return all[0]
	}
	return p
}

// parts lists where spec has resources, in the order of the spec. The parts
// point into spec, so that what is changed through them changes spec.
func parts(spec *corev1.PodSpec) []part {
	all := make([]part, 0, 1+len(spec.InitContainers)+len(spec.Containers))
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

// value returns what the part says; nil if it says nothing.
func (p part) value(side Side, name corev1.ResourceName) *resource.Quantity {
	return lookup(*side.of(p.requirements), name)
}

// wanted returns what a pod of the template that p is of gets; nil if that is nothing. A
// container's limit stands in for its missing request.
func (p part) wanted(side Side, name corev1.ResourceName) *resource.Quantity {
	q := p.value(side, name)
	if q == nil && side == Request && p.kind != podLevel {
		return p.value(Limit, name)
	}
	return q
}

// counterpart returns the part of the same name, or nil. Names are unique among all containers of a pod, and an
// injector may have moved one to another list: a template's istio-proxy is a sidecar in its pods.
func counterpart(all []part, of part) *part {
	i := slices.IndexFunc(all, func(p part) bool { return p.name == of.name })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// RoundUp rounds quantities below milli up, as the API server does when it reads them
// (SetDefaults_ResourceList in pkg/apis/core/v1/defaults.go of Kubernetes): a manifest
// that says cpu 100.5m makes pods of 101m.
func RoundUp(spec *corev1.PodSpec) {
	for _, p := range parts(spec) {
		for _, side := range sides {
			list := *side.of(p.requirements)
			for name, quantity := range list {
				quantity.RoundUp(resource.Milli)
				list[name] = quantity
			}
		}
	}
}

// WithOwnLists returns a copy of the spec whose sizes can be changed. It shares everything else.
func WithOwnLists(spec *corev1.PodSpec) *corev1.PodSpec {
	own := *spec
	own.Containers, own.InitContainers = slices.Clone(spec.Containers), slices.Clone(spec.InitContainers)
	if spec.Resources != nil {
		own.Resources = ptr.To(*spec.Resources)
	}
	for _, p := range parts(&own) {
		p.requirements.Requests, p.requirements.Limits = maps.Clone(p.requirements.Requests), maps.Clone(p.requirements.Limits)
	}
	return &own
}

// withChanges returns the spec as it is after the changes. It is shared: do not change it.
func withChanges(spec *corev1.PodSpec, changes ...Change) *corev1.PodSpec {
	if len(changes) == 0 {
		return spec
	}
	own := WithOwnLists(spec)
	if own.Resources == nil && slices.ContainsFunc(changes, func(c Change) bool { return c.Container == "" }) {
		own.Resources = &corev1.ResourceRequirements{}
	}
	for _, p := range parts(own) {
		for _, c := range changes {
			switch list := c.Side.of(p.requirements); {
			case c.Container != p.name:
			case c.To == nil:
				delete(*list, c.Resource)
			default:
				setValue(list, c.Resource, *c.To)
			}
		}
	}
	return own
}

// Defaulted returns the spec of the pods that template makes, with the values that the
// API server fills in on pods but never on templates. A container's limit stands in for its
// missing request (SetDefaults_Pod in pkg/apis/core/v1/defaults.go of Kubernetes). What the
// pod's own resources do not say follows from the containers.
func Defaulted(template *corev1.PodTemplateSpec) *corev1.PodSpec {
	spec := template.Spec.DeepCopy()
	setDefaults(spec)
	return spec
}

// setDefaults is Defaulted in place.
func setDefaults(spec *corev1.PodSpec) {
	defaultContainers(spec)
	defaultPod(spec)
}

func defaultContainers(spec *corev1.PodSpec) {
	for _, p := range parts(spec) {
		if p.kind != podLevel {
			fill(&p.requirements.Requests, p.requirements.Limits)
		}
	}
}

// defaultPod fills in what the pod's own resources do not say, if they say anything
// (DefaultPodLevelResources in pkg/api/pod/util.go of Kubernetes 1.37). It fills in the
// limits of huge pages first, then the requests. The limits of cpu and memory come last, and
// only where every container has one.
//
// For containers of cpu 100m/200m and 100m/300m, a pod that requests memory 1Gi and
// nothing else gets cpu 200m/500m.
//
// Kubernetes before 1.37 filled in no limit of cpu or memory, and requests only in a pod
// with limits of its own.
func defaultPod(spec *corev1.PodSpec) {
	r := spec.Resources
	if r == nil || len(r.Requests)+len(r.Limits) == 0 {
		return
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: spec.Containers, InitContainers: spec.InitContainers}}
	requested := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	limited := resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{})
	fill(&r.Limits, only(limited, func(name corev1.ResourceName) bool { return hugePages(name) && lookup(r.Requests, name) == nil }))
	fill(&r.Requests, only(requested, allowsOvercommit))
	fill(&r.Requests, only(r.Limits, resourcehelper.IsSupportedPodLevelResource))
	limits := only(limited, func(name corev1.ResourceName) bool {
		return lookup(r.Requests, name) != nil && resourcehelper.IsSupportedPodLevelResource(name) && allLimit(spec, name)
	})
	for name, limit := range limits {
		if request := r.Requests[name]; request.Cmp(limit) > 0 {
			limits[name] = request
		}
	}
	fill(&r.Limits, limits)
}

// allowsOvercommit reports whether a pod as a whole may have the resource, and a request of
// it that is below its limit. That is cpu and memory, but not huge pages.
func allowsOvercommit(name corev1.ResourceName) bool {
	return resourcehelper.IsSupportedPodLevelResource(name) && !hugePages(name)
}

func hugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// allLimit reports whether every container, init containers too, has a limit of the resource.
func allLimit(spec *corev1.PodSpec, name corev1.ResourceName) bool {
	return !slices.ContainsFunc(parts(spec), func(p part) bool {
		return p.kind != podLevel && lookup(p.requirements.Limits, name) == nil
	})
}

// only returns a copy of list with the wanted resources.
func only(list corev1.ResourceList, wanted func(corev1.ResourceName) bool) corev1.ResourceList {
	found := corev1.ResourceList{}
	for name, quantity := range list {
		if wanted(name) {
			found[name] = quantity
		}
	}
	return found
}

// fill adds to list those resources of from that it lacks.
func fill(list *corev1.ResourceList, from corev1.ResourceList) {
	for name, quantity := range from {
		if _, has := (*list)[name]; !has {
			setValue(list, name, quantity)
		}
	}
}

func setValue(list *corev1.ResourceList, name corev1.ResourceName, quantity resource.Quantity) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = quantity.DeepCopy()
}
