package capacity

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// Limits are the LimitRanges of a namespace. The zero value limits nothing.
type Limits struct {
	Ranges []corev1.LimitRange
	// Unknown: they may not be read, and a pod keeps what they may have filled in.
	Unknown bool
}

// admit returns a spec as the API server makes it of one that is created, or resized, and why
// it refuses that; empty if it does not. First the LimitRanges fill in what is missing. Then
// the sizes are compared with the LimitRanges (plugin/pkg/admission/limitranger of
// Kubernetes) and with each other (validateResourceRequirements in pkg/apis/core/validation
// of Kubernetes).
//
// Of a container that requests 600m of cpu and has no limit, where a LimitRange has the
// default limit 500m: "app: the cpu request 600m is above the limit 500m, which
// LimitRange limits fills in".
//
// What is returned may share everything with the spec: do not change it.
func (l Limits) admit(spec *corev1.PodSpec) (admitted *corev1.PodSpec, refusal string) {
	if admitted = spec; len(l.Ranges) > 0 {
		admitted = resize.WithOwnLists(spec)
	}
	filled := map[string]string{}
	for i := range l.Ranges {
		fill(admitted, &l.Ranges[i], filled)
	}
	said := disorder(admitted, filled)
	for i := range l.Ranges {
		for _, broken := range violations(admitted, &l.Ranges[i]) {
			said = append(said, fmt.Sprintf("%s (LimitRange %s)", broken, l.Ranges[i].Name))
		}
	}
	return admitted, strings.Join(said, ", ")
}

func containers(spec *corev1.PodSpec) func(yield func(*corev1.Container) bool) {
	return func(yield func(*corev1.Container) bool) {
		for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// fill gives each container the defaults of a LimitRange, and notes where a limit comes from.
func fill(spec *corev1.PodSpec, from *corev1.LimitRange, filled map[string]string) {
	for _, item := range from.Spec.Limits {
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		for c := range containers(spec) {
			for name := range missing(c.Resources.Limits, item.Default) {
				filled[limitOf(c, name)] = ", which LimitRange " + from.Name + " fills in"
			}
			c.Resources.Limits = complete(c.Resources.Limits, item.Default)
			c.Resources.Requests = complete(c.Resources.Requests, item.DefaultRequest)
		}
	}
}

func limitOf(c *corev1.Container, name corev1.ResourceName) string {
	return c.Name + "/" + string(name)
}

// missing are the defaults that list lacks.
func missing(list, defaults corev1.ResourceList) corev1.ResourceList {
	lacks := maps.Clone(defaults)
	maps.DeleteFunc(lacks, func(name corev1.ResourceName, _ resource.Quantity) bool {
		_, has := list[name]
		return has
	})
	return lacks
}

func complete(list, defaults corev1.ResourceList) corev1.ResourceList {
	lacks := missing(list, defaults)
	if list == nil {
		return lacks
	}
	maps.Copy(list, lacks)
	return list
}

// disorder names the requests that are above their limits.
func disorder(spec *corev1.PodSpec, filled map[string]string) []string {
	var said []string
	for c := range containers(spec) {
		for _, name := range sorted(c.Resources.Requests) {
			request := c.Resources.Requests[name]
			if limit, has := c.Resources.Limits[name]; has && request.Cmp(limit) > 0 {
				said = append(said, fmt.Sprintf("%s: the %s request %s is above the limit %s%s", c.Name, name, &request, &limit, filled[limitOf(c, name)]))
			}
		}
	}
	if spec.Resources == nil {
		return said
	}
	sum := resourcehelper.AggregateContainerRequests(&corev1.Pod{Spec: *spec}, resourcehelper.PodResourcesOptions{})
	for _, name := range sorted(spec.Resources.Requests) {
		request, ofContainers := spec.Resources.Requests[name], sum[name]
		if limit, has := spec.Resources.Limits[name]; has && request.Cmp(limit) > 0 {
			said = append(said, fmt.Sprintf("the pod's %s request %s is above its limit %s", name, &request, &limit))
		}
		if ofContainers.Cmp(request) > 0 {
			said = append(said, fmt.Sprintf("the containers' %s requests of %s are above the pod's %s", name, &ofContainers, &request))
		}
	}
	for _, c := range spec.Containers {
		for _, name := range sorted(c.Resources.Limits) {
			limit := c.Resources.Limits[name]
			if ofPod, has := spec.Resources.Limits[name]; has && limit.Cmp(ofPod) > 0 {
				said = append(said, fmt.Sprintf("%s: the %s limit %s is above the pod's %s", c.Name, name, &limit, &ofPod))
			}
		}
	}
	return said
}

func sorted(list corev1.ResourceList) []corev1.ResourceName { return slices.Sorted(maps.Keys(list)) }

// violations are what of a LimitRange the sizes do not keep to.
func violations(spec *corev1.PodSpec, of *corev1.LimitRange) []string {
	var said []string
	for _, item := range of.Spec.Limits {
		switch item.Type {
		case corev1.LimitTypeContainer:
			for c := range containers(spec) {
				said = append(said, broken(item, c.Name+": ", c.Resources.Requests, c.Resources.Limits)...)
			}
		case corev1.LimitTypePod:
			pod, options := &corev1.Pod{Spec: *spec}, resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
			said = append(said, broken(item, "", resourcehelper.PodRequests(pod, options), resourcehelper.PodLimits(pod, options))...)
		}
	}
	return said
}

// broken are the constraints of one item that these requests and limits do not keep to.
func broken(item corev1.LimitRangeItem, whose string, requests, limits corev1.ResourceList) []string {
	var said []string
	say := func(name corev1.ResourceName, format string, args ...any) {
		said = append(said, fmt.Sprintf("%s%s per %s %s", whose, name, item.Type, fmt.Sprintf(format, args...)))
	}
	for _, name := range sorted(item.Min) {
		request, requested := requests[name]
		limit, limited := limits[name]
		switch least := item.Min[name]; {
		case !requested:
			say(name, "must be requested, at least %s", &least)
		case request.Cmp(least) < 0:
			say(name, "must be at least %s, and %s is requested", &least, &request)
		case limited && limit.Cmp(least) < 0:
			say(name, "must be at least %s, and the limit is %s", &least, &limit)
		}
	}
	for _, name := range sorted(item.Max) {
		request := requests[name]
		limit, limited := limits[name]
		switch most := item.Max[name]; {
		case !limited:
			say(name, "must have a limit, at most %s", &most)
		case limit.Cmp(most) > 0:
			say(name, "must be at most %s, and the limit is %s", &most, &limit)
		case request.Cmp(most) > 0:
			say(name, "must be at most %s, and %s is requested", &most, &request)
		}
	}
	for _, name := range sorted(item.MaxLimitRequestRatio) {
		request, limit, most := requests[name], limits[name], item.MaxLimitRequestRatio[name]
		switch {
		case request.IsZero() || limit.IsZero():
			say(name, "must have a request and a limit, at most %s times as high", &most)
		case exceeds(limit, request, most):
			say(name, "must have a limit of at most %s times the request, and they are %s and %s", &most, &limit, &request)
		}
	}
	return said
}

// exceeds reports whether the limit is more than so many times the request, in the very steps of limitRequestRatioConstraint in
// plugin/pkg/admission/limitranger of Kubernetes: 270m is not more than 3 times 90m, but 0.27 is in floating point, of 0.09.
func exceeds(limit, request, times resource.Quantity) bool {
	l, r := limit.Value(), request.Value()
	if max(l, r) <= resource.MaxMilliValue {
		l, r = limit.MilliValue(), request.MilliValue()
	}
	return float64(l)/float64(r)*1000 > float64(times.MilliValue())
}
