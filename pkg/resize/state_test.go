package resize_test

import (
	"strings"
	"testing"
	"time"

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
			must.Equal(t, got, tt.want, "what is observed, %s", message)
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

// TestOverhead: what the kubelet says of a pod as a whole has the overhead of its RuntimeClass, and is rounded with it.
func TestOverhead(t *testing.T) {
	older := build.Template(t, "{resources: {requests: {cpu: 1}, limits: {cpu: 2, memory: 1G}}, containers: [{name: app}]}")
	newer := build.Template(t, "{resources: {requests: {cpu: 1100m}, limits: {cpu: 2, memory: 1G}}, containers: [{name: app}]}")
	pod := build.Pod("web-0", older, build.ResizedAt(build.Start), func(pod *corev1.Pod) {
		pod.Spec.Overhead = *build.Parsed[corev1.ResourceList](t, "{cpu: 7m, memory: 1M}")
		build.Actuate(pod)
		pod.Status.Resources.Limits = *build.Parsed[corev1.ResourceList](t, "{cpu: 2010m, memory: 1000996864}")
	})
	if got, message := target(t, pod, older, older).Observe(); got != resize.Actuated || resize.Busy(pod, resize.Kubelet{}) {
		t.Errorf("carried out: got %s (%s), busy: %t", got, message, resize.Busy(pod, resize.Kubelet{}))
	}
	must.Equal(t, resize.Describe(target(t, pod, older, newer).Effects), "pod: cpu request 1→1100m", "what another size changes")
}

func target(t *testing.T, pod *corev1.Pod, older, newer *corev1.PodTemplateSpec) resize.Target {
	t.Helper()
	return must.Get(resize.For(pod, older, newer))(t)
}

func TestOldEnvironment(t *testing.T) {
	const env = "env: [{name: GOMAXPROCS, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}, {name: HEAP, valueFrom: {resourceFieldRef: {resource: requests.memory}}}, {name: OTHER, value: x}]"
	tests := []struct {
		name, containers string
		cpu, memory      string // the new limit of cpu, and request of memory
		want             []string
	}{
		{"nothing changes", "{name: app, " + env + "}", "1", "1Gi", nil},
		{"cpu changes", "{name: app, " + env + "}", "2", "1Gi", []string{"app: GOMAXPROCS"}},
		{"both change", "{name: app, " + env + "}", "2", "2Gi", []string{"app: GOMAXPROCS", "app: HEAP"}},
		{"no variable shows it", "{name: app}", "2", "2Gi", nil},
		{"another container shows it", "{name: app}, {name: side, env: [{name: APP_CPU, valueFrom: {resourceFieldRef: {containerName: app, resource: limits.cpu}}}]}", "2", "1Gi", []string{"side: APP_CPU"}},
		{"the container restarts for it", "{name: app, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}], " + env + "}", "2", "2Gi", nil},
		{"it restarts for what does not change", "{name: app, resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}], " + env + "}", "2", "1Gi", []string{"app: GOMAXPROCS"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			older := build.Template(t, "containers: ["+tt.containers+"]")
			newer := older.DeepCopy()
			for template, size := range map[*[2]string]string{{"1", "1Gi"}: "older", {tt.cpu, tt.memory}: "newer"} {
				sized := build.Size(t, "limits: {cpu: "+template[0]+", memory: 4Gi}, requests: {cpu: 500m, memory: "+template[1]+"}").Spec.Containers[0].Resources
				if size == "older" {
					older.Spec.Containers[0].Resources = sized
				} else {
					newer.Spec.Containers[0].Resources = sized
				}
			}
			target := must.Get(resize.For(build.Pod("web-0", older), older, newer))(t)
			must.EqualLists(t, target.OldEnvironment(), tt.want, "the old environment")
		})
	}
}

func TestNewborn(t *testing.T) {
	filled := func(entries string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{"kubernetes.io/limit-ranger": "LimitRanger plugin set: " + entries}
		}
	}
	tests := []struct {
		name              string
		older, newer, pod string // the containers
		change            func(*corev1.Pod)
		kept, unfilled    string // the containers of a new pod: with what LimitRanges have filled into this one, and without
	}{
		{
			name: "what the template says", older: "[{name: app, resources: {requests: {cpu: 1}}}]", newer: "[{name: app, resources: {requests: {cpu: 2}}}]",
			kept: "[{name: app, resources: {requests: {cpu: 2}}}]", unfilled: "[{name: app, resources: {requests: {cpu: 2}}}]",
		},
		{
			name: "not what it says no more", older: "[{name: app, resources: {requests: {cpu: 1}, limits: {cpu: 1}}}]", newer: "[{name: app, resources: {requests: {cpu: 2}}}]",
			kept: "[{name: app, resources: {requests: {cpu: 2}}}]", unfilled: "[{name: app, resources: {requests: {cpu: 2}}}]",
		},
		{
			name: "what was injected", older: "[{name: app, resources: {requests: {cpu: 1}}}]", newer: "[{name: app, resources: {requests: {cpu: 2}}}]",
			pod:  "[{name: app, resources: {requests: {cpu: 1}, limits: {cpu: 3}}}, {name: log, resources: {requests: {cpu: 1}, limits: {cpu: 1}}}]",
			kept: "[{name: app, resources: {requests: {cpu: 2}, limits: {cpu: 3}}}, {name: log, resources: {requests: {cpu: 1}, limits: {cpu: 1}}}]", unfilled: "[{name: app, resources: {requests: {cpu: 2}, limits: {cpu: 3}}}, {name: log, resources: {requests: {cpu: 1}, limits: {cpu: 1}}}]",
		},
		{
			name: "what a LimitRange fills in is another's to say", older: "[{name: app, resources: {requests: {cpu: 1}}}]", newer: "[{name: app, resources: {requests: {cpu: 2}}}]",
			pod:    "[{name: app, resources: {requests: {cpu: 1, memory: 1Mi}, limits: {cpu: 3, memory: 2Mi}}}, {name: log, resources: {requests: {cpu: 1}, limits: {cpu: 1}}}]",
			change: filled("memory request for container app; cpu, memory limit for container app; cpu request for container log; cpu limit for container log; cpu limit for container gone; cpu limit for init container app"),
			kept:   "[{name: app, resources: {requests: {cpu: 2, memory: 1Mi}, limits: {cpu: 3, memory: 2Mi}}}, {name: log, resources: {requests: {cpu: 1}, limits: {cpu: 1}}}]", unfilled: "[{name: app, resources: {requests: {cpu: 2}}}, {name: log}]",
		},
		{
			name: "unless the template says it by now", older: "[{name: app, resources: {requests: {cpu: 1}}}]", newer: "[{name: app, resources: {requests: {cpu: 1}, limits: {cpu: 4}}}]",
			pod: "[{name: app, resources: {requests: {cpu: 1}, limits: {cpu: 3}}}]", change: filled("cpu limit for container app"),
			kept: "[{name: app, resources: {requests: {cpu: 1}, limits: {cpu: 4}}}]", unfilled: "[{name: app, resources: {requests: {cpu: 1}, limits: {cpu: 4}}}]",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			older, newer := build.Template(t, "containers: "+tt.older), build.Template(t, "containers: "+tt.newer)
			made := older
			if tt.pod != "" {
				made = build.Template(t, "containers: "+tt.pod)
			}
			pod := build.Pod("web-0", made)
			if tt.change != nil {
				tt.change(pod)
			}
			target := must.Get(resize.For(pod, older, newer))(t)
			for unfilled, containers := range map[bool]string{false: tt.kept, true: tt.unfilled} {
				got, want := target.Newborn(unfilled), build.Template(t, "containers: "+containers)
				if changes := resize.Between(&corev1.PodTemplateSpec{Spec: *got}, want); len(changes) > 0 {
					t.Errorf("unfilled %t: want %s", unfilled, resize.Describe(changes))
				}
			}
		})
	}
}

// What a startup booster is about to put back is read from what it has noted on the pod, and counts where
// an edit has changed it.
func TestPutBack(t *testing.T) {
	const boost, vertical = "autoscaling.x-k8s.io/startup-cpu-boost", "vpaCpuStartupBoost/app"
	edited := build.Size(t, "requests: {cpu: 150m, memory: 100Mi}, limits: {cpu: 300m}")
	for _, tt := range []struct {
		name, key, note string
		size            *corev1.PodTemplateSpec // of the pod, where that is not the edited one
		want            string
	}{
		{name: "nobody", key: "example.com/note", note: "{}"},
		{name: "the request", key: boost, note: `{"state":"Active","timestamp":"2026-01-01T00:00:00Z","initCPURequests":{"app":"100m"}}`, want: "app: cpu request 150m→100m"},
		{name: "request and limit", key: boost, note: `{"state":"Active","initCPURequests":{"app":"100m"},"initCPULimits":{"app":"200m"}}`,
			want: "app: cpu request 150m→100m, app: cpu limit 300m→200m"},
		{name: "an older one, which notes no state", key: boost, note: `{"initCPURequests":{"app":"100m"}}`, want: "app: cpu request 150m→100m"},
		{name: "it is done", key: boost, note: `{"state":"Reverted","initCPURequests":{"app":"100m"}}`},
		{name: "what the template says by now, too", key: boost, note: `{"state":"Active","initCPURequests":{"app":"0.15"},"initCPULimits":{"app":"300m"}}`},
		{name: "of another container", key: boost, note: `{"state":"Active","initCPURequests":{"sidecar":"100m"}}`},
		{name: "not readable", key: boost, note: `{"state":`},
		{name: "by the Vertical Pod Autoscaler", key: vertical, note: `{"requests":{"cpu":"100m","memory":"100Mi"},"limits":{}}`, want: "app: cpu request 150m→100m"},
		{name: "by that, and memory with it", key: vertical, note: `{"requests":{"cpu":"150m","memory":"50Mi"},"limits":{"cpu":"300m"}}`, want: "app: memory request 100Mi→50Mi"},
		{name: "by that, in another container", key: "vpaCpuStartupBoost/sidecar", note: `{"requests":{"cpu":"100m"}}`},
		{name: "by that, not readable", key: vertical, note: `100m`},
		{name: "somebody else has the say about the pod", key: boost, note: `{"state":"Active","initCPURequests":{"app":"100m"}}`,
			size: build.Size(t, "requests: {cpu: 170m, memory: 100Mi}, limits: {cpu: 300m}")},
		{name: "the template says nothing of it", key: vertical, note: `{"requests":{"cpu":"150m"},"limits":{"cpu":"300m","memory":"1Gi"}}`},
	} {
		if tt.size == nil {
			tt.size = edited
		}
		pod := build.Pod("web-0", tt.size, func(pod *corev1.Pod) { pod.Annotations = map[string]string{tt.key: tt.note} })
		target := must.Get(resize.Leftover(pod, edited))(t)
		must.Equal(t, resize.Describe(target.PutBack(edited)), tt.want, "%s", tt.name)
	}
}

// What somebody else has given a pod, at its birth or later, is displaced by an edit, and when they put back what the
// older template says, that is undone once more.
func TestAgain(t *testing.T) {
	older, newer := build.Size(t, "requests: {cpu: 100m}"), build.Size(t, "requests: {cpu: 150m}")
	boosted := build.Size(t, "requests: {cpu: 500m}")
	began := build.Start.Add(time.Minute)
	for _, tt := range []struct {
		name   string
		before []func(*corev1.Pod) // the edit
		after  []func(*corev1.Pod)
		want   string
	}{
		{name: "born with more, and put back", before: []func(*corev1.Pod){build.Resized(boosted)},
			after: []func(*corev1.Pod){build.Resized(older), build.ResizedBy("manager", began, build.CPURequest)}, want: "app: cpu request 100m→150m"},
		{name: "resized to more, and put back", before: []func(*corev1.Pod){build.Resized(boosted), build.ResizedBy("manager", build.Start, build.CPURequest)},
			after: []func(*corev1.Pod){build.Resized(older), build.ResizedBy("manager", began, build.CPURequest)}, want: "app: cpu request 100m→150m"},
		{name: "set to something else", before: []func(*corev1.Pod){build.Resized(boosted)},
			after: []func(*corev1.Pod){build.Resized(boosted), build.ResizedBy("manager", began, build.CPURequest)}},
		{name: "not put back", before: []func(*corev1.Pod){build.Resized(boosted)},
			after: []func(*corev1.Pod){build.Resized(newer), build.Ours(build.CPURequest)}},
		{name: "put back by an edit of ours", before: []func(*corev1.Pod){build.Resized(boosted)},
			after: []func(*corev1.Pod){build.Resized(older), build.Ours(build.CPURequest)}},
		{name: "nobody had given it anything", after: []func(*corev1.Pod){build.Resized(older), build.ResizedBy("manager", began, build.CPURequest)}},
		{name: "of an edit that was given up", before: []func(*corev1.Pod){build.Resized(boosted), build.Ours(build.CPURequest)},
			after: []func(*corev1.Pod){build.Resized(older), build.ResizedBy("manager", began, build.CPURequest)}},
	} {
		edit := must.Get(resize.For(build.Pod("web-0", older, tt.before...), older, newer))(t)
		pod := build.Pod("web-0", newer, tt.after...)
		again := must.Get(resize.Again(pod, edit.Displaced))(t)
		must.Equal(t, resize.Describe(again.Changes), tt.want, "%s", tt.name)
		if patch, err := again.Patch(); err != nil || tt.want != "" && !strings.Contains(string(patch), `"cpu":"150m"`) {
			t.Errorf("%s: the patch is %s, %v", tt.name, patch, err)
		}
	}
}
