package simulated

import (
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/test/build"
)

// Version is one of the templates that users of a simulation choose from. A pod
// with a memory limit cannot be resized to a version without. The container of image 3
// restarts for another memory limit. From image 4 on there is a container proxy beside it, and both have limits of
// cpu: with image 5 all limits are the requests.
type Version struct{ Image, CPU, Memory int }

func (v Version) String() string { return fmt.Sprintf("i%dc%dm%d", v.Image, v.CPU, v.Memory) }

// Templates makes those of all versions: five images, three requests of cpu, and
// no limit of memory or one of two.
func Templates() map[Version]*corev1.PodTemplateSpec {
	t, templates := NoTest{}, map[Version]*corev1.PodTemplateSpec{}
	for i := range 5 * 3 * 3 {
		v := Version{1 + i/9, 1 + i/3%3, i % 3}
		limits := ""
		if v.Memory > 0 {
			limits = fmt.Sprintf("limits: {memory: %dMi}, ", v.Memory)
		}
		restarts := ""
		if v.Image == restarting {
			restarts = "resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}], "
		}
		if v.Image >= Proxied {
			templates[v] = proxied(t, v)
			continue
		}
		templates[v] = build.Template(t, fmt.Sprintf("containers: [{name: app, image: 'app:%d', %sresources: {%srequests: {cpu: %dm}}}]", v.Image, restarts, limits, v.CPU))
		templates[v].Labels = map[string]string{"app": "web"}
	}
	return templates
}

// NoTest is for what is made before there is a test: it panics.
type NoTest struct{ testing.TB }

// Helper does nothing.
func (NoTest) Helper() {}

// Fatal panics.
func (NoTest) Fatal(why ...any) { panic(fmt.Sprint(why...)) }

// Fatalf panics.
func (NoTest) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Proxied is the first image with a container proxy beside it.
const Proxied = 4

func proxied(t testing.TB, v Version) *corev1.PodTemplateSpec {
	t.Helper()
	limit, more := v.CPU, ""
	if v.Image == Proxied {
		limit = 4 * v.CPU
	}
	if v.Memory > 0 {
		more = fmt.Sprintf(", memory: %dMi", v.Memory)
	}
	says := fmt.Sprintf("resources: {limits: {cpu: %dm%s}, requests: {cpu: %dm}}", limit, more, v.CPU)
	template := build.Template(t, fmt.Sprintf("containers: [{name: app, image: 'app:%d', %s}, {name: %s, image: 'proxy:1', %s}]", v.Image, says, proxy, says))
	template.Labels = map[string]string{"app": "web"}
	return template
}

// restarting is the image whose container restarts for another memory limit.
const restarting = 3

// Restarts reports whether the kubelet restarts the pod's container, which runs, to bring it to v.
func Restarts(pod *corev1.Pod, v Version) bool {
	return len(pod.Status.ContainerStatuses) > 0 && VersionOf(&pod.Spec).Image == restarting && AppliedSize(pod).Memory != v.Memory
}

// VersionOf is the version that the spec of a pod or template is of.
func VersionOf(spec *corev1.PodSpec) Version {
	v := sized(&spec.Containers[0].Resources)
	v.Image, _ = strconv.Atoi(spec.Containers[0].Image[len("app:"):])
	return v
}

// SizeOf is the cpu and memory that the pod's spec asks for; the image is 0.
func SizeOf(pod *corev1.Pod) Version { return sized(&pod.Spec.Containers[0].Resources) }

// AppliedSize is the cpu and memory that the kubelet has given the pod.
func AppliedSize(pod *corev1.Pod) Version {
	if len(pod.Status.ContainerStatuses) == 0 {
		return Version{}
	}
	return sized(pod.Status.ContainerStatuses[0].Resources)
}

func sized(r *corev1.ResourceRequirements) Version {
	if r == nil {
		return Version{}
	}
	return Version{CPU: int(r.Requests.Cpu().MilliValue()), Memory: int(r.Limits.Memory().Value() >> 20)}
}

// Policies are what users of the model say may not be resized live.
var Policies = []string{"", "cpu=RestartOnly", "cpu:decrease=RestartOnly"}

// Forbids reports whether a policy does not let the pod be resized live: the cpu that it
// has in force changes.
func Forbids(list string, pod *corev1.Pod, want Version) bool {
	have := AppliedSize(pod)
	if len(pod.Status.ContainerStatuses) == 0 { // it has yet to start
		have = SizeOf(pod)
	}
	switch list {
	case "cpu=RestartOnly":
		return have.CPU != want.CPU
	case "cpu:decrease=RestartOnly":
		return have.CPU > want.CPU
	default:
		return false
	}
}

func asInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
