package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/kubectl/pkg/util/qos"
	"sigs.k8s.io/json"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// Classes are the sizes that the pods of a DaemonSet have by the class of their node.
type Classes []Class

// Class is one class of nodes, and what its pods have otherwise than the template says.
type Class struct {
	nodes      labels.Set // that a node of the class has
	containers map[string]corev1.ResourceRequirements
}

// classesForm is what the annotation must look like.
const classesForm = `must be a JSON list of {"nodeSelector": {LABEL: VALUE, …}, "containers": {NAME: {"requests": {"cpu": …, "memory": …}, "limits": {…}}, …}}`

// ReadClasses reads the annotation that says them. It is strict: a word that is not known, or
// said twice, is an error, so that no size is silently another one than the user means.
func ReadClasses(annotations map[string]string) (Classes, error) {
	if !HasClasses(annotations) {
		return nil, nil
	}
	classes, err := parseClasses(annotations[api.NodeResourcesAnnotation])
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", api.NodeResourcesAnnotation, err)
	}
	return classes, nil
}

// writtenClass is a class as the user writes it. What is null is nil, and so is refused.
type writtenClass struct {
	NodeSelector map[string]*string     `json:"nodeSelector"`
	Containers   map[string]writtenSize `json:"containers"`
}

type writtenSize struct {
	Requests map[corev1.ResourceName]*resource.Quantity `json:"requests"`
	Limits   map[corev1.ResourceName]*resource.Quantity `json:"limits"`
}

func parseClasses(value string) (Classes, error) {
	var written []writtenClass
	strict, err := json.UnmarshalStrict([]byte(value), &written)
	if err = errors.Join(append(strict, err)...); err != nil {
		return nil, fmt.Errorf("%s: %.200s", classesForm, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if written == nil {
		return nil, errors.New(classesForm)
	}
	classes := make(Classes, len(written))
	for i, w := range written {
		if classes[i], err = w.class(); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, err)
		}
	}
	return classes, nil
}

func (w writtenClass) class() (Class, error) {
	c := Class{nodes: labels.Set{}, containers: map[string]corev1.ResourceRequirements{}}
	if len(w.NodeSelector) == 0 {
		return c, errors.New("nodeSelector must name a label; the size for all other nodes is the template's")
	}
	for _, label := range slices.Sorted(maps.Keys(w.NodeSelector)) {
		value := w.NodeSelector[label]
		if value == nil {
			return c, fmt.Errorf("nodeSelector: label %.100q has no value", label)
		}
		if wrong := append(validation.IsQualifiedName(label), validation.IsValidLabelValue(*value)...); len(wrong) > 0 {
			return c, fmt.Errorf("nodeSelector: %.100q: %.100q is not a valid label: %s", label, *value, wrong[0])
		}
		c.nodes[label] = *value
	}
	if len(w.Containers) == 0 {
		return c, errors.New("containers must name a container")
	}
	for _, name := range slices.Sorted(maps.Keys(w.Containers)) {
		size, err := w.Containers[name].size()
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
			err = errors.New("this is not a name of a container: " + wrong[0])
		}
		if err != nil {
			return c, fmt.Errorf("container %.100q: %w", name, err)
		}
		c.containers[name] = size
	}
	return c, nil
}

func (w writtenSize) size() (size corev1.ResourceRequirements, err error) {
	if len(w.Requests)+len(w.Limits) == 0 {
		return size, errors.New("requests or limits must set cpu or memory")
	}
	if size.Requests, err = listOf(w.Requests); err != nil {
		return size, fmt.Errorf("requests: %w", err)
	}
	if size.Limits, err = listOf(w.Limits); err != nil {
		return size, fmt.Errorf("limits: %w", err)
	}
	return size, beyondLimit(size)
}

func listOf(written map[corev1.ResourceName]*resource.Quantity) (corev1.ResourceList, error) {
	list := corev1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(written)) {
		q := written[name]
		switch {
		case name != corev1.ResourceCPU && name != corev1.ResourceMemory:
			return nil, fmt.Errorf("%.100q: only cpu and memory can be resized", name)
		case q == nil || q.Sign() <= 0:
			return nil, fmt.Errorf("%s must be more than 0", name)
		}
		quantity := q.DeepCopy()
		quantity.RoundUp(resource.Milli) // as the API server does
		if name == corev1.ResourceMemory && !quantity.Equal(roundedUp(quantity)) {
			return nil, fmt.Errorf("memory %s must be a whole number of bytes", q)
		}
		list[name] = quantity
	}
	return list, nil
}

func roundedUp(q resource.Quantity) resource.Quantity {
	q = q.DeepCopy()
	q.RoundUp(0)
	return q
}

// beyondLimit fails if a request is more than its limit.
func beyondLimit(size corev1.ResourceRequirements) error {
	for _, name := range slices.Sorted(maps.Keys(size.Requests)) {
		request := size.Requests[name]
		if limit, limited := size.Limits[name]; limited && request.Cmp(limit) > 0 {
			return fmt.Errorf("the %s request %s is more than the limit %s", name, &request, &limit)
		}
	}
	return nil
}

// WithinLimits reports whether no container requests more than its limit.
func WithinLimits(spec *corev1.PodSpec) bool {
	beyond := func(c corev1.Container) bool { return beyondLimit(c.Resources) != nil }
	return !slices.ContainsFunc(spec.InitContainers, beyond) && !slices.ContainsFunc(spec.Containers, beyond)
}

// HasClasses reports whether the annotation says sizes by class of node, well or badly.
func HasClasses(annotations map[string]string) bool {
	return strings.TrimSpace(annotations[api.NodeResourcesAnnotation]) != ""
}

// Sizes are those of the pods of one template, by the class of their node.
type Sizes struct {
	template *corev1.PodTemplateSpec
	classes  Classes
	known    map[*Class]Size
}

// Size is that of the pods of one class: the template with the values of the class, which is nil for
// pods that have none. Where no pod can have it, Unavailable says why.
type Size struct {
	Class       *Class
	Template    *corev1.PodTemplateSpec
	Unavailable error
}

// Sizes returns the sizes of the pods of a template.
func (c Classes) Sizes(template *corev1.PodTemplateSpec) Sizes {
	return Sizes{template: template, classes: c, known: map[*Class]Size{}}
}

// On returns the size of a pod on the node, which is nil if it is not known. Several goroutines must
// not ask at the same time.
func (s Sizes) On(node *corev1.Node) Size {
	var class *Class
	if node != nil {
		class = s.classes.Of(node.Labels)
	}
	size, is := s.known[class]
	if !is {
		size.Class = class
		size.Template, size.Unavailable = class.Size(s.template)
		s.known[class] = size
	}
	return size
}

// Of returns the first class that a node with these labels is of, or nil.
func (c Classes) Of(node map[string]string) *Class {
	for i := range c {
		if labels.SelectorFromSet(c[i].nodes).Matches(labels.Set(node)) {
			return &c[i]
		}
	}
	return nil
}

// String is how messages call the class: `pool=large,zone=a`. Pods without a class have none: "".
func (c *Class) String() string {
	if c == nil {
		return ""
	}
	return c.nodes.String()
}

// Size returns a copy of the template with the values of the class; nil as the class is the
// template's own. It fails where no pod of the template can have them in place.
func (c *Class) Size(template *corev1.PodTemplateSpec) (*corev1.PodTemplateSpec, error) {
	if c == nil {
		return template, nil
	}
	sized := *template
	sized.Spec = *resize.WithOwnLists(&template.Spec)
	missing := maps.Clone(c.containers)
	for _, list := range [][]corev1.Container{sized.Spec.InitContainers, sized.Spec.Containers} {
		for i := range list {
			name, has := list[i].Name, &list[i].Resources
			has.Requests = overlaid(has.Requests, missing[name].Requests)
			has.Limits = overlaid(has.Limits, missing[name].Limits)
			if err := beyondLimit(*has); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			delete(missing, name)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("the template has no container %s", strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
	}
	before, after := born(template), born(&sized)
	if before, after := qosOf(before), qosOf(after); before != after {
		return nil, fmt.Errorf("the QoS class would change from %s to %s", before, after)
	}
	for _, change := range resize.Between(before, after) {
		if change.From == nil { // nobody can take it out of a running pod again
			return nil, fmt.Errorf("%s: the template has no %s %s. Set it there, too: what only a class sets could not be removed without a restart",
				change.Container, change.Resource, change.Side)
		}
	}
	return &sized, nil
}

// born returns the template with what the API server fills in on its pods.
func born(template *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{Spec: *resize.Defaulted(template)}
}

// overlaid returns the list with the values of another one. It may change the list.
func overlaid(list, with corev1.ResourceList) corev1.ResourceList {
	if list == nil && len(with) > 0 {
		list = corev1.ResourceList{}
	}
	maps.Copy(list, with)
	return list
}

func qosOf(born *corev1.PodTemplateSpec) corev1.PodQOSClass {
	return qos.ComputePodQOS(&corev1.Pod{Spec: born.Spec})
}
