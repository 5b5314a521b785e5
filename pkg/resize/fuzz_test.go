package resize_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// allOurs are all values of the containers that drawTemplate draws.
const allOurs = `{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":%[1]s,"k:{\"name\":\"log\"}":%[1]s},"f:initContainers":{"k:{\"name\":\"setup\"}":%[1]s,"k:{\"name\":\"proxy\"}":%[1]s},"f:resources":%[2]s}}`

const allValues = `{"f:limits":{"f:cpu":{},"f:memory":{}},"f:requests":{"f:cpu":{},"f:memory":{}}}`

// FuzzFor: a resize never touches what no template says, leads to a size at which nothing is left
// to do, and on the way from A over C to D it leaves nothing of C.
func FuzzFor(f *testing.F) {
	build.AddSeeds(f)
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		c := drawCase(t)
		there, _ := resized(t, c.pod, c.older, c.newer)
		assertUntouched(t, c.pod, there, c.newer)
		if _, again := resized(t, there, c.older, c.newer); len(again.Changes) > 0 {
			t.Errorf("after the resize there is left: %s", resize.Describe(again.Changes))
		}
		d := c.newer.DeepCopy()
		drawResources(t, d)
		build.Ours(fmt.Sprintf(allOurs, `{"f:resources":`+allValues+`}`, allValues))(there)
		end, target := resized(t, there, c.older, d)
		assertUntouched(t, there, end, d)
		for _, of := range values(&end.Spec) {
			wanted, said := says(d, of)
			if of.container == "" {
				continue
			}
			switch {
			case said && of.value.Cmp(wanted) != 0:
				t.Errorf("%s is %s, want %s", of.name(), of.value.String(), wanted.String())
			case !said && len(target.Obstacles) == 0:
				if _, left := says(c.newer, of); left {
					t.Errorf("%s is left of an edit that was given up, and nothing is in the way", of.name())
				}
			}
		}
	}))
}

// resized is the pod with the size that leads from one template to the other.
func resized(t *rapid.T, pod *corev1.Pod, older, newer *corev1.PodTemplateSpec) (*corev1.Pod, resize.Target) {
	target := must.Get(resize.For(pod, older, newer))(t)
	pod = pod.DeepCopy()
	pod.Spec = *target.Spec()
	return pod, target
}

// value is one request or limit of a pod.
type value struct {
	container string // empty for the pod's own
	init      bool
	side      resize.Side
	resource  corev1.ResourceName
	value     resource.Quantity
}

func (v value) name() string {
	return fmt.Sprintf("the %s %s of container %q", v.resource, v.side, v.container)
}

// values are all requests and limits of cpu and memory in a pod or template.
func values(spec *corev1.PodSpec) []value {
	var all []value
	add := func(container string, init bool, r *corev1.ResourceRequirements) {
		if r == nil {
			return
		}
		for side, list := range map[resize.Side]corev1.ResourceList{resize.Request: r.Requests, resize.Limit: r.Limits} {
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				if q, there := list[name]; there {
					all = append(all, value{container, init, side, name, q})
				}
			}
		}
	}
	for _, c := range spec.InitContainers {
		add(c.Name, true, &c.Resources)
	}
	for _, c := range spec.Containers {
		add(c.Name, false, &c.Resources)
	}
	add("", false, spec.Resources)
	return all
}

// says returns what the template says of a value. A limit without a request says both.
func says(template *corev1.PodTemplateSpec, of value) (resource.Quantity, bool) {
	var limit *resource.Quantity
	for _, v := range values(&template.Spec) {
		if v.container != of.container || v.init != of.init || v.resource != of.resource {
			continue
		}
		if v.side == of.side {
			return v.value, true
		}
		if v.side == resize.Limit {
			limit = &v.value
		}
	}
	if limit != nil && of.side == resize.Request {
		return *limit, true
	}
	return resource.Quantity{}, false
}

// assertUntouched checks that nothing has changed but what the template says. If it says something
// of the pod as a whole, the rest of that follows from the containers.
func assertUntouched(t *rapid.T, before, after *corev1.Pod, template *corev1.PodTemplateSpec) {
	was, is := values(&before.Spec), values(&after.Spec)
	follows := func(v value) bool { return v.container == "" && template.Spec.Resources != nil }
	for _, v := range is {
		if _, said := says(template, v); !said && !follows(v) && !containsValue(was, v) {
			t.Errorf("%s has become %s, and the template does not say it", v.name(), v.value.String())
		}
	}
	for _, v := range was {
		if _, said := says(template, v); !said && !follows(v) && !containsValue(is, v) {
			t.Errorf("%s was %s, and has gone", v.name(), v.value.String())
		}
	}
	if a, b := sizeless(before), sizeless(after); !equality.Semantic.DeepEqual(a, b) {
		t.Errorf("more than cpu and memory has changed:\n%+v\n%+v", a, b)
	}
}

func containsValue(all []value, v value) bool {
	for _, other := range all {
		if quantity := other.value; quantity.Cmp(v.value) == 0 {
			if other.container == v.container && other.init == v.init && other.side == v.side && other.resource == v.resource {
				return true
			}
		}
	}
	return false
}

// sizeless is the spec of a pod without cpu and memory.
func sizeless(pod *corev1.Pod) *corev1.PodSpec {
	spec := pod.Spec.DeepCopy()
	drop := func(r *corev1.ResourceRequirements) {
		for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
			delete(list, corev1.ResourceCPU)
			delete(list, corev1.ResourceMemory)
		}
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			drop(&list[i].Resources)
		}
	}
	spec.Resources = nil
	return spec
}
