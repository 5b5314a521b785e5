package resize_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestNothingIsChanged: pods and templates are shared with whoever else watches them.
func TestNothingIsChanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCase(t)
		pod, older, newer := c.pod.DeepCopy(), c.older.DeepCopy(), c.newer.DeepCopy()
		for _, look := range c.looks() {
			target := must.Get(look())(t)
			askAll(t, target)
		}
		resize.Busy(c.pod, resize.Kubelet{})
		resize.Between(c.older, c.newer)
		resize.Defaulted(c.newer)
		if !equality.Semantic.DeepEqual(pod, c.pod) {
			t.Errorf("the pod was changed:\n got %+v\nwant %+v", c.pod, pod)
		}
		if !equality.Semantic.DeepEqual(older, c.older) || !equality.Semantic.DeepEqual(newer, c.newer) {
			t.Error("a template was changed")
		}
	})
}

// askAll asks a target for everything that it can say.
func askAll(t *rapid.T, target resize.Target) {
	must.Get(target.Patch())(t)
	if back := target.Back(); len(back.Changes) > 0 {
		must.Get(back.Patch())(t)
	}
	resize.WithOwnLists(target.Spec())
	target.Newborn(false)
	target.Newborn(true)
	target.Observe()
	target.Wanted()
	target.Applied()
	target.OldEnvironment()
	target.Clean()
	target.Restarts()
	target.GivesRoom()
	target.Nowhere()
	target.Unreported()
}

// TestPatchLeadsToSpec: the request brings the pod to the size that the target says, and then
// nothing is left to do.
func TestPatchLeadsToSpec(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawOf(t) // made of the older template or of the newer one, as [resize.For] wants it
		target := must.Get(resize.For(c.pod, c.older, c.newer))(t)
		patch := must.Get(target.Patch())(t)
		resized := c.pod.DeepCopy()
		if patch != nil {
			resized = patched(t, c.pod, patch)
		}
		record(resized, target.Changes)
		if !equality.Semantic.DeepEqual(&resized.Spec, target.Spec()) {
			t.Errorf("the patch %s leads to\n%+v, want\n%+v", patch, resized.Spec, target.Spec())
		}
		again := must.Get(resize.For(resized, c.older, c.newer))(t)
		if len(again.Changes) > 0 && len(target.Obstacles) == 0 { // with an obstacle, nothing is asked for
			t.Errorf("after the patch %s there is left: %s", patch, resize.Describe(again.Changes))
		}
	})
}

// patched returns the pod as the API server makes it of a strategic merge patch.
func patched(t *rapid.T, pod *corev1.Pod, patch []byte) *corev1.Pod {
	before := must.Get(json.Marshal(pod))(t)
	after := must.Get(strategicpatch.StrategicMergePatch(before, patch, corev1.Pod{}))(t)
	resized := &corev1.Pod{}
	must.Do(t, json.Unmarshal(after, resized))
	return resized
}

// record notes in managedFields, as the API server does, that we have made the changes.
func record(pod *corev1.Pod, changes []resize.Change) {
	set := fieldpath.NewSet()
	for _, c := range changes {
		path := fieldpath.MakePathOrDie("spec")
		if c.Container != "" {
			list := "containers"
			if slices.ContainsFunc(pod.Spec.InitContainers, func(init corev1.Container) bool { return init.Name == c.Container }) {
				list = "initContainers"
			}
			path = append(path, fieldpath.MakePathOrDie(list, fieldpath.KeyByFields("name", c.Container))...)
		}
		set.Insert(append(path, fieldpath.MakePathOrDie("resources", string(c.Side)+"s", string(c.Resource))...))
	}
	fields, err := set.ToJSON()
	if err != nil {
		panic(err)
	}
	build.Ours(string(fields))(pod)
}

// drawnCase is a pod of one template that is to become one of another.
type drawnCase struct {
	pod          *corev1.Pod
	older, newer *corev1.PodTemplateSpec
}

// looks are all that can be asked of a case.
func (c drawnCase) looks() map[string]func() (resize.Target, error) {
	return map[string]func() (resize.Target, error){
		"For":      func() (resize.Target, error) { return resize.For(c.pod, c.older, c.newer) },
		"ForBut":   func() (resize.Target, error) { return resize.ForBut(c.pod, c.older, c.newer) },
		"Leftover": func() (resize.Target, error) { return resize.Leftover(c.pod, c.newer) },
		"ForKeeping": func() (resize.Target, error) {
			return resize.ForKeeping(c.pod, c.older, c.newer, c.older, func(_ resize.Change, otherwise bool) bool { return otherwise })
		},
		"Sized":      func() (resize.Target, error) { return resize.Sized(c.pod, c.older, c.newer) },
		"SizedSince": func() (resize.Target, error) { return resize.SizedSince(c.pod, c.older, c.newer, build.Start) },
	}
}

// drawCase draws a pod that may have been made of a third template, too.
func drawCase(t *rapid.T) drawnCase { return drawOf(t, drawTemplate(t)) }

func drawOf(t *rapid.T, others ...*corev1.PodTemplateSpec) drawnCase {
	older := drawTemplate(t)
	newer := older.DeepCopy()
	if drawResources(t, newer); often(t) {
		newer = drawTemplate(t) // of other containers, too
	}
	made := rapid.SampledFrom(append(others, older, newer)).Draw(t, "made from")
	pod := build.Pod("web-0", made)
	if rarely(t) {
		pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	}
	drawAdmission(t, pod)
	drawStatus(t, pod)
	for range rapid.IntRange(0, 3).Draw(t, "resized by so many") {
		if fields := drawFields(t); often(t) {
			build.Ours(fields)(pod)
		} else {
			at := build.Start.Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, "hours")) * time.Hour)
			build.ResizedBy(rapid.SampledFrom([]string{"updater", "hand"}).Draw(t, "manager"), at, fields)(pod)
		}
	}
	return drawnCase{pod, older, newer}
}

func often(t *rapid.T) bool  { return rapid.IntRange(0, 2).Draw(t, "often") == 0 }
func rarely(t *rapid.T) bool { return rapid.IntRange(0, 19).Draw(t, "rarely") == 0 }

func drawTemplate(t *rapid.T) *corev1.PodTemplateSpec {
	template := &corev1.PodTemplateSpec{}
	for _, name := range []string{"setup", "proxy"} {
		if often(t) {
			c := drawContainer(t, name)
			if name == "proxy" {
				c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			}
			template.Spec.InitContainers = append(template.Spec.InitContainers, c)
		}
	}
	template.Spec.Containers = append(template.Spec.Containers, drawContainer(t, "app"))
	if often(t) {
		template.Spec.Containers = append(template.Spec.Containers, drawContainer(t, "log"))
	}
	if rarely(t) {
		template.Spec.OS = &corev1.PodOS{Name: corev1.Windows}
	}
	drawResources(t, template)
	return template
}

func drawContainer(t *rapid.T, name string) corev1.Container {
	c := corev1.Container{Name: name}
	for _, of := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if often(t) {
			policy := rapid.SampledFrom([]corev1.ResourceResizeRestartPolicy{corev1.NotRequired, corev1.RestartContainer}).Draw(t, "resizePolicy")
			c.ResizePolicy = append(c.ResizePolicy, corev1.ContainerResizePolicy{ResourceName: of, RestartPolicy: policy})
		}
	}
	if often(t) {
		c.Env = append(c.Env, corev1.EnvVar{Name: "CPU", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}})
	}
	return c
}

// drawResources draws new resources for the template and its containers.
func drawResources(t *rapid.T, template *corev1.PodTemplateSpec) {
	for _, list := range [][]corev1.Container{template.Spec.InitContainers, template.Spec.Containers} {
		for i := range list {
			list[i].Resources = drawRequirements(t)
		}
	}
	template.Spec.Resources = drawPodRequirements(t)
}

func drawPodRequirements(t *rapid.T) *corev1.ResourceRequirements {
	if !often(t) {
		return nil
	}
	r := drawRequirements(t)
	delete(r.Requests, "example.com/device")
	delete(r.Limits, "example.com/device")
	return &r
}

var quantities = map[corev1.ResourceName][]string{
	corev1.ResourceCPU:    {"", "0", "100m", "105m", "1000m", "1", "2"},
	corev1.ResourceMemory: {"", "0", "100Mi", "1Gi", "1024Mi", "2Gi", "644245094401m"},
	"example.com/device":  {"", "", "", "1"},
}

func drawRequirements(t *rapid.T) corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{}
	for _, list := range []*corev1.ResourceList{&r.Requests, &r.Limits} {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, "example.com/device"} {
			quantity := rapid.SampledFrom(quantities[name]).Draw(t, string(name))
			if quantity == "" {
				continue
			}
			if *list == nil {
				*list = corev1.ResourceList{}
			}
			(*list)[name] = resource.MustParse(quantity)
		}
	}
	for name, limit := range r.Limits { // the API server takes no request above its limit
		if request, set := r.Requests[name]; set && request.Cmp(limit) > 0 {
			r.Requests[name] = limit
		}
	}
	return r
}

// drawAdmission draws what admission has done to the pod when it was made or resized.
func drawAdmission(t *rapid.T, pod *corev1.Pod) {
	for i := range pod.Spec.Containers {
		if often(t) {
			pod.Spec.Containers[i].Resources = drawRequirements(t)
		}
	}
	if often(t) {
		pod.Spec.Resources = drawPodRequirements(t)
	}
	if often(t) {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "injected", Resources: drawRequirements(t)})
	}
	if often(t) {
		entries := rapid.SliceOfN(rapid.SampledFrom([]string{
			"cpu, memory request for container app", "cpu limit for container app", "memory limit for container injected", "cpu limit for init container setup", "cpu limit for container gone",
		}), 1, 3).Draw(t, "filled in")
		pod.Annotations = map[string]string{"kubernetes.io/limit-ranger": "LimitRanger plugin set: " + strings.Join(entries, "; ")}
	}
}

// drawStatus draws how far the kubelet has come.
func drawStatus(t *rapid.T, pod *corev1.Pod) {
	if often(t) {
		build.Actuate(pod)
	}
	if often(t) {
		pod.Generation++
	}
	if rarely(t) {
		build.Unschedulable(pod)
	}
	if rarely(t) {
		build.NotReady(pod)
	}
	if rarely(t) {
		build.Condition(corev1.PodResizePending, corev1.PodReasonDeferred, "no room")(pod)
	}
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; often(t) {
			applied := drawRequirements(t)
			s.Resources, s.AllocatedResources = &applied, applied.Requests
		} else if rarely(t) {
			s.Resources, s.AllocatedResources = nil, nil
		}
	}
}

// drawFields draws the values that a managedFields entry lists.
func drawFields(t *rapid.T) string {
	values := func() string {
		var drawn []string
		for _, value := range []string{`"f:limits":{"f:cpu":{}}`, `"f:requests":{"f:cpu":{},"f:memory":{}}`} {
			if often(t) {
				drawn = append(drawn, value)
			}
		}
		return fmt.Sprintf(`{"f:resources":{%s}}`, strings.Join(drawn, ","))
	}
	return fmt.Sprintf(`{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":%s,"k:{\"name\":\"log\"}":%s},"f:initContainers":{"k:{\"name\":\"proxy\"}":%s},"f:resources":{"f:limits":{"f:cpu":{}}}}}`,
		values(), values(), values())
}

// allOurs are all values of the containers that drawTemplate draws.
const allOurs = `{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":%[1]s,"k:{\"name\":\"log\"}":%[1]s},"f:initContainers":{"k:{\"name\":\"setup\"}":%[1]s,"k:{\"name\":\"proxy\"}":%[1]s},"f:resources":%[2]s}}`

const allValues = `{"f:limits":{"f:cpu":{},"f:memory":{}},"f:requests":{"f:cpu":{},"f:memory":{}}}`

// FuzzFor: a resize never touches what no template says, leads to a size at which nothing is left
// to do, and on the way from A over C to D it leaves nothing of C.
func FuzzFor(f *testing.F) {
	build.AddSeeds(f)
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		c := drawCase(t)
		there, first := resized(t, c.pod, c.older, c.newer)
		assertUntouched(t, c.pod, there, c.newer)
		if _, again := resized(t, there, c.older, c.newer); len(first.Obstacles) == 0 && len(again.Changes) > 0 { // else nothing is asked
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
