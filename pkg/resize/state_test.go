package resize_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestObserve starts each case from a pod whose spec has the wanted size and
// whose status shows it applied, and takes one proof away.
func TestObserve(t *testing.T) {
	older := build.Size(t, "requests: {cpu: 100m, memory: 100Mi}, limits: {cpu: 200m, memory: 200Mi}")
	newer := build.Size(t, "requests: {cpu: 155m, memory: 150Mi}, limits: {cpu: 255m, memory: 250Mi}")
	old := older.Spec.Containers[0].Resources
	app := func(f func(*corev1.ContainerStatus)) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { f(&pod.Status.ContainerStatuses[0]) }
	}
	tests := []struct {
		name   string
		change []func(*corev1.Pod)
		want   resize.State
	}{
		{"everything shows the new size", nil, resize.Actuated},
		{"the spec has the old size", []func(*corev1.Pod){build.WithSize(older)}, resize.Unsent},
		{"the kubelet has not observed the spec", []func(*corev1.Pod){func(p *corev1.Pod) { p.Generation++ }}, resize.InProgress},
		{"no condition is there, but the old requests are allocated", []func(*corev1.Pod){app(func(s *corev1.ContainerStatus) { s.AllocatedResources = old.Requests })}, resize.InProgress},
		{"no condition is there, but the old limits are applied", []func(*corev1.Pod){app(func(s *corev1.ContainerStatus) { s.Resources = &old })}, resize.InProgress},
		{"the container never started", []func(*corev1.Pod){app(func(s *corev1.ContainerStatus) { s.Resources, s.AllocatedResources = nil, nil })}, resize.InProgress},
		{"the container has no status", []func(*corev1.Pod){func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }}, resize.InProgress},
		{"the systemd driver rounded the cpu limit up to 10m", []func(*corev1.Pod){app(func(s *corev1.ContainerStatus) {
			s.Resources.Limits[corev1.ResourceCPU] = resource.MustParse("260m")
		})}, resize.Actuated},
		{"a cpu limit that is off by more than the rounding", []func(*corev1.Pod){app(func(s *corev1.ContainerStatus) {
			s.Resources.Limits[corev1.ResourceCPU] = resource.MustParse("270m")
		})}, resize.InProgress},
		{"extended resources are missing from the status", []func(*corev1.Pod){func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("1")
		}}, resize.Actuated},
		{"an injected container lags behind", []func(*corev1.Pod){func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "injected", Resources: old})
		}}, resize.Actuated},
		{"the pod is not Ready", []func(*corev1.Pod){build.NotReady}, resize.Unready},
		{"deferred", []func(*corev1.Pod){build.Condition(corev1.PodResizePending, corev1.PodReasonDeferred, "no room")}, resize.Deferred},
		{"pending for a reason we do not know counts as deferred", []func(*corev1.Pod){build.Condition(corev1.PodResizePending, "Moonphase", "")}, resize.Deferred},
		{"infeasible", []func(*corev1.Pod){build.Condition(corev1.PodResizePending, corev1.PodReasonInfeasible, "never")}, resize.Infeasible},
		{"infeasible, said of an older spec", []func(*corev1.Pod){
			build.Condition(corev1.PodResizePending, corev1.PodReasonInfeasible, "never"), func(p *corev1.Pod) { p.Generation++ },
		}, resize.InProgress},
		{"infeasible, from a kubelet that does not tell of which spec", []func(*corev1.Pod){
			build.Condition(corev1.PodResizePending, corev1.PodReasonInfeasible, "never"),
			func(p *corev1.Pod) { p.Status.Conditions[1].ObservedGeneration = 0 },
		}, resize.Infeasible},
		{"in progress", []func(*corev1.Pod){build.Condition(corev1.PodResizeInProgress, "", "")}, resize.InProgress},
		{"in progress with an error", []func(*corev1.Pod){build.Condition(corev1.PodResizeInProgress, corev1.PodReasonError, "memory in use")}, resize.Failing},
		{"in progress with an error, and a newer resize pending", []func(*corev1.Pod){
			build.Condition(corev1.PodResizeInProgress, corev1.PodReasonError, "memory in use"),
			build.Condition(corev1.PodResizePending, corev1.PodReasonDeferred, "no room"),
		}, resize.Deferred},
		{"a condition that is False says nothing", []func(*corev1.Pod){
			build.Condition(corev1.PodResizePending, corev1.PodReasonInfeasible, ""),
			func(p *corev1.Pod) { p.Status.Conditions[1].Status = corev1.ConditionFalse },
		}, resize.Actuated},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := build.Pod("web-0", older, append([]func(*corev1.Pod){build.Resized(newer)}, tt.change...)...)
			got, message := target(t, pod, older, newer).Observe()
			if got != tt.want {
				t.Errorf("got %s (%s), want %s", got, message, tt.want)
			}
		})
	}
}

func TestObserveRestartContainer(t *testing.T) {
	older := build.Template(t, "containers: [{name: app, resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}], resources: {requests: {memory: 100Mi}}}]")
	newer := build.Template(t, "containers: [{name: app, resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}], resources: {requests: {memory: 200Mi}}}]")
	pod := build.Pod("web-0", older, build.Resized(newer), func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].Resources = &older.Spec.Containers[0].Resources
	})
	if got, _ := target(t, pod, older, newer).Observe(); got != resize.InProgress {
		t.Errorf("before the container restarts: got %s, want %s", got, resize.InProgress)
	}
	build.Actuate(pod)
	if got, message := target(t, pod, older, newer).Observe(); got != resize.Actuated {
		t.Errorf("after the container restarted: got %s (%s), want %s", got, message, resize.Actuated)
	}
}

func TestObserveOtherParts(t *testing.T) {
	older := build.Template(t, "{resources: {limits: {cpu: 1}}, initContainers: [{name: setup, resources: {limits: {cpu: 10m}}}, {name: proxy, restartPolicy: Always, resources: {limits: {cpu: 10m}}}], containers: [{name: app}]}")
	newer := build.Template(t, "{resources: {limits: {cpu: 2}}, initContainers: [{name: setup, resources: {limits: {cpu: 20m}}}, {name: proxy, restartPolicy: Always, resources: {limits: {cpu: 20m}}}], containers: [{name: app}]}")
	sized := build.Pod("web-0", older)
	sized.Spec = *build.Pod("web-0", newer).Spec.DeepCopy()
	sized.Generation++
	build.ResizedAt(build.Start)(sized)
	// What the API server fills in for the pod: the sum of what its containers request.
	sized.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m")}
	old := build.Pod("web-0", older).Status

	build.Actuate(sized)
	if got, message := target(t, sized, older, newer).Observe(); got != resize.Actuated {
		t.Fatalf("everything applied: got %s (%s), want %s", got, message, resize.Actuated)
	}
	sized.Status.InitContainerStatuses[0] = old.InitContainerStatuses[0]
	done, _ := target(t, sized, older, newer).Observe()
	sized.Status.InitContainerStatuses[1] = old.InitContainerStatuses[1]
	lagging, _ := target(t, sized, older, newer).Observe()
	if done != resize.Actuated || lagging != resize.InProgress {
		t.Errorf("a finished init container: got %s, want %s; a sidecar: got %s, want %s", done, resize.Actuated, lagging, resize.InProgress)
	}
	build.Actuate(sized)
	sized.Status.Resources = old.Resources
	if got, _ := target(t, sized, older, newer).Observe(); got != resize.InProgress {
		t.Errorf("the pod's own limit not applied: got %s, want %s", got, resize.InProgress)
	}
}

// TestObservePages: the kernel grants whole pages.
func TestObservePages(t *testing.T) {
	older := build.Template(t, "{resources: {requests: {memory: 1M}, limits: {memory: 1Gi}}, containers: [{name: app}]}")
	newer := build.Template(t, "{resources: {requests: {memory: 1M}, limits: {memory: 620M}}, containers: [{name: app}]}")
	for shown, want := range map[string]resize.State{
		"620M": resize.Actuated, "619999232": resize.Actuated, "619986944": resize.Actuated, "619970560": resize.Actuated, "619995136": resize.InProgress, "1Gi": resize.InProgress,
	} {
		pod := build.Pod("web-0", newer, build.ResizedAt(build.Start))
		build.Actuate(pod)
		pod.Status.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(shown)}
		if got, message := target(t, pod, older, newer).Observe(); got != want {
			t.Errorf("the limit is shown as %s: got %s (%s), want %s", shown, got, message, want)
		}
	}
}

func target(t *testing.T, pod *corev1.Pod, older, newer *corev1.PodTemplateSpec) resize.Target {
	t.Helper()
	return must.Get(resize.For(pod, older, newer))(t)
}
