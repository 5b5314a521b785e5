package resize_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// told is a managedFields entry of a kubelet's write, seconds after build.Start.
func told(seconds int) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: "kubelet", Subresource: "status", Time: at(seconds),
		FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:containerStatuses":{}}}`),
	}
}

func at(seconds int) *metav1.Time {
	t := metav1.NewTime(build.Start.Add(time.Duration(seconds) * time.Second))
	return &t
}

// TestObserveSilent starts each case from a pod that was asked for its size at second 10, of a
// kubelet that says no generation and wrote at second 12 that it has applied all. It is second 15.
func TestObserveSilent(t *testing.T) {
	older := build.Size(t, "requests: {cpu: 100m, memory: 100Mi}, limits: {cpu: 200m, memory: 200Mi}")
	sizes := map[string]*corev1.PodTemplateSpec{
		"all":           build.Size(t, "requests: {cpu: 150m, memory: 150Mi}, limits: {cpu: 250m, memory: 250Mi}"),
		"requests only": build.Size(t, "requests: {cpu: 150m, memory: 150Mi}, limits: {cpu: 200m, memory: 200Mi}"),
		"limits only":   build.Size(t, "requests: {cpu: 100m, memory: 100Mi}, limits: {cpu: 250m, memory: 250Mi}"),
		"memory limit":  build.Size(t, "requests: {cpu: 100m, memory: 100Mi}, limits: {cpu: 200m, memory: 250Mi}"),
	}
	old := older.Spec.Containers[0].Resources
	status := func(f func(*corev1.ContainerStatus)) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { f(&pod.Status.ContainerStatuses[0]) }
	}
	allocated := status(func(s *corev1.ContainerStatus) { s.AllocatedResources = old.Requests })
	applied := status(func(s *corev1.ContainerStatus) { s.Resources = &old })
	wrote := func(seconds int) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.ManagedFields[len(pod.ManagedFields)-1] = told(seconds) }
	}
	says := func(kind corev1.PodConditionType, reason string, seconds int) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
				Type: kind, Status: corev1.ConditionTrue, Reason: reason, LastProbeTime: *at(seconds),
			})
		}
	}
	infeasible := func(seconds int) func(*corev1.Pod) {
		return says(corev1.PodResizePending, corev1.PodReasonInfeasible, seconds)
	}
	deferred := func(seconds int) func(*corev1.Pod) {
		return says(corev1.PodResizePending, corev1.PodReasonDeferred, seconds)
	}
	debugged := func(p *corev1.Pod) { // by an ephemeral container: the condition stays as it is
		p.Status.Conditions[len(p.Status.Conditions)-1].ObservedGeneration = p.Generation
		p.Generation++
		p.Status.ObservedGeneration = p.Generation
	}
	silent := func(now int) resize.Kubelet { return resize.Kubelet{Silent: true, Now: at(now).Time} }
	current := func(now int) resize.Kubelet { return resize.Kubelet{Now: at(now).Time} }
	tests := []struct {
		name    string
		size    string // all
		change  []func(*corev1.Pod)
		kubelet resize.Kubelet // silent at second 15
		want    resize.State
	}{
		{name: "everything shows the new size", want: resize.Actuated},
		{name: "the version of the kubelet is not known", kubelet: resize.Kubelet{Now: at(15).Time}, want: resize.InProgress},
		{name: "the version is not known, however late", kubelet: resize.Kubelet{Now: at(1e6).Time}, want: resize.InProgress},
		{name: "the old requests are allocated", change: []func(*corev1.Pod){allocated}, want: resize.InProgress},
		{name: "the old limits are applied", change: []func(*corev1.Pod){applied}, want: resize.InProgress},
		{name: "the old limits are applied, however late", change: []func(*corev1.Pod){applied}, kubelet: silent(1e6), want: resize.InProgress},
		{name: "requests only, applied", size: "requests only", want: resize.Actuated},
		{name: "requests only, not allocated", size: "requests only", change: []func(*corev1.Pod){allocated}, want: resize.InProgress},
		{name: "limits only, applied", size: "limits only", want: resize.Actuated},
		{name: "limits only, not applied", size: "limits only", change: []func(*corev1.Pod){applied}, want: resize.InProgress},
		{name: "a memory limit, applied", size: "memory limit", want: resize.Actuated},
		{name: "a memory limit, not applied", size: "memory limit", change: []func(*corev1.Pod){applied}, want: resize.InProgress},
		{name: "not Ready", change: []func(*corev1.Pod){build.NotReady}, want: resize.Unready},
		{name: "written in the second of the request", change: []func(*corev1.Pod){wrote(10)}, want: resize.Actuated},
		{name: "written before the request, as where an edit was taken back", change: []func(*corev1.Pod){wrote(9)}, want: resize.InProgress},
		{name: "written before the request, and the kubelet must have looked", change: []func(*corev1.Pod){wrote(9)}, kubelet: silent(130), want: resize.Actuated},
		{name: "written before the request, and it need not have looked", change: []func(*corev1.Pod){wrote(9)}, kubelet: silent(129), want: resize.InProgress},
		{name: "somebody else wrote the status", change: []func(*corev1.Pod){wrote(9), func(p *corev1.Pod) {
			gate := told(12)
			gate.FieldsV1 = metav1.NewFieldsV1(`{"f:status":{"f:conditions":{}}}`)
			p.ManagedFields = append(p.ManagedFields, gate)
		}}, want: resize.InProgress},
		{name: "somebody else asked for the size", change: []func(*corev1.Pod){build.ResizedBy("vpa", at(13).Time, "{}")}, want: resize.InProgress},
		{name: "nobody ever asked for a size", change: []func(*corev1.Pod){func(p *corev1.Pod) { p.ManagedFields = nil }}, want: resize.Actuated},
		{name: "infeasible", change: []func(*corev1.Pod){infeasible(12)}, want: resize.Infeasible},
		{name: "infeasible, said before the request", change: []func(*corev1.Pod){infeasible(9)}, want: resize.InProgress},
		{name: "infeasible, said before, and still so", change: []func(*corev1.Pod){infeasible(9)}, kubelet: silent(130), want: resize.Infeasible},
		{name: "deferred", change: []func(*corev1.Pod){deferred(12)}, want: resize.Deferred},
		{name: "deferred, said before the request", change: []func(*corev1.Pod){deferred(9)}, want: resize.InProgress},
		{name: "deferred, of a kubelet that is not known", change: []func(*corev1.Pod){deferred(9)}, kubelet: resize.Kubelet{Now: at(15).Time}, want: resize.Deferred},
		{name: "in progress", change: []func(*corev1.Pod){says(corev1.PodResizeInProgress, "", 12)}, want: resize.InProgress},
		{name: "failing", change: []func(*corev1.Pod){says(corev1.PodResizeInProgress, corev1.PodReasonError, 12)}, want: resize.Failing},
		{name: "it says a generation after all, and an old one", change: []func(*corev1.Pod){func(p *corev1.Pod) { p.Status.ObservedGeneration = 1 }}, want: resize.InProgress},
		{name: "it says a generation after all", change: []func(*corev1.Pod){wrote(9), func(p *corev1.Pod) { p.Status.ObservedGeneration = 2 }}, want: resize.Actuated},
		{name: "infeasible, said of an older spec", change: []func(*corev1.Pod){infeasible(9), debugged}, kubelet: current(129), want: resize.InProgress},
		{name: "infeasible, and somebody debugs it", change: []func(*corev1.Pod){infeasible(12), debugged}, kubelet: current(130), want: resize.Infeasible},
		{name: "failing, and somebody debugs it", change: []func(*corev1.Pod){says(corev1.PodResizeInProgress, corev1.PodReasonError, 12), debugged}, kubelet: current(130), want: resize.Failing},
		{name: "infeasible, and it has not seen what somebody does", change: []func(*corev1.Pod){infeasible(12), debugged, func(p *corev1.Pod) { p.Status.ObservedGeneration = 2 }}, kubelet: current(1e6), want: resize.InProgress},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			newer, kubelet := sizes["all"], silent(15)
			if tt.size != "" {
				newer = sizes[tt.size]
			}
			if !tt.kubelet.Now.IsZero() {
				kubelet = tt.kubelet
			}
			pod := build.Pod("web-0", older, append([]func(*corev1.Pod){
				build.Resized(newer), build.Ours("{}"), func(p *corev1.Pod) {
					p.Status.ObservedGeneration = 0
					p.ManagedFields[0].Time = at(10)
					p.ManagedFields = append(p.ManagedFields, told(12))
				},
			}, tt.change...)...)
			target := target(t, pod, older, newer).By(kubelet)
			got, message := target.Observe()
			must.Equal(t, got, tt.want, "what is observed, %s", message)
			must.Equal(t, resize.Busy(pod, kubelet), tt.want == resize.InProgress, "busy, where it is %s", tt.want)
			pod.ManagedFields = resize.Kept(pod)
			if stripped, _ := target.Observe(); stripped != got {
				t.Errorf("with what is kept of managedFields: %s, want %s", stripped, got)
			}
		})
	}
}

// A memory limit shrinks if it is lower than the one in force, and the container runs on.
func TestShrinksMemory(t *testing.T) {
	const limits = "requests: {memory: 100Mi}, limits: {memory: 200Mi}"
	restarting := func(size string) *corev1.PodTemplateSpec {
		return build.Template(t, "containers: [{name: app, resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}], resources: {"+size+"}}]")
	}
	for _, tt := range []struct {
		name         string
		older, newer *corev1.PodTemplateSpec
		change       func(*corev1.Pod)
		want         bool
	}{
		{name: "lower", older: build.Size(t, limits), newer: build.Size(t, "requests: {memory: 100Mi}, limits: {memory: 199Mi}"), want: true},
		{name: "added", older: build.Size(t, "requests: {memory: 100Mi}"), newer: build.Size(t, limits), want: true},
		{name: "higher", older: build.Size(t, limits), newer: build.Size(t, "requests: {memory: 100Mi}, limits: {memory: 201Mi}")},
		{name: "the request is lower", older: build.Size(t, limits), newer: build.Size(t, "requests: {memory: 10Mi}, limits: {memory: 200Mi}")},
		{name: "the cpu limit is lower", older: build.Size(t, "limits: {cpu: 2}"), newer: build.Size(t, "limits: {cpu: 1}")},
		{name: "lower, and the container restarts", older: restarting(limits), newer: restarting("requests: {memory: 100Mi}, limits: {memory: 199Mi}")},
		{
			name: "asked for already", older: build.Size(t, limits), newer: build.Size(t, "requests: {memory: 100Mi}, limits: {memory: 199Mi}"),
			change: build.WithSize(build.Size(t, "requests: {memory: 100Mi}, limits: {memory: 199Mi}")),
		},
		{
			name: "back from one that never came into force", older: build.Size(t, limits), newer: build.Size(t, limits),
			change: build.WithSize(build.Size(t, "requests: {memory: 100Mi}, limits: {memory: 1Gi}")),
		},
		{
			name: "higher than in force, and lower than asked for before", older: build.Size(t, limits), newer: build.Size(t, "requests: {memory: 100Mi}, limits: {memory: 300Mi}"),
			change: build.WithSize(build.Size(t, "requests: {memory: 100Mi}, limits: {memory: 1Gi}")),
		},
		{
			name: "lower than in force, and higher than asked for before", older: build.Size(t, limits), newer: build.Size(t, "requests: {memory: 100Mi}, limits: {memory: 150Mi}"),
			change: build.WithSize(build.Size(t, "requests: {memory: 100Mi}, limits: {memory: 120Mi}")), want: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var change []func(*corev1.Pod)
			if tt.change != nil {
				change = append(change, tt.change)
			}
			must.Equal(t, target(t, build.Pod("web-0", tt.older, change...), tt.older, tt.newer).ShrinksMemory(), tt.want, "it shrinks memory")
		})
	}
}

// TestPodLimit: a container without a limit of its own, such as an injected one, has that of the pod as a whole.
func TestPodLimit(t *testing.T) {
	const env, limit = "env: [{name: HEAP, valueFrom: {resourceFieldRef: {resource: limits.memory}}}]", "resources: {limits: {memory: 1Gi}}"
	const restarts = "resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]"
	older := build.Template(t, "{resources: {limits: {memory: 3Gi}}, containers: [{name: app, "+limit+"}]}")
	newer := build.Template(t, "{resources: {limits: {memory: 2Gi}}, containers: [{name: app, "+limit+"}]}")
	for injected, want := range map[string]string{ // restarts, will restart once it was asked, has a lower limit, shows the old one
		env:                                  "false false true [injected: HEAP]",
		restarts + ", " + env:                "true true false []",
		restarts + ", " + env + ", " + limit: "false false false []",
	} {
		pod := build.Pod("web-0", older, func(pod *corev1.Pod) {
			pod.Spec.Containers = append(pod.Spec.Containers, *build.Parsed[corev1.Container](t, "{name: injected, "+injected+"}"))
			build.Actuate(pod)
		})
		edit, asked := target(t, pod, older, newer), pod.DeepCopy()
		asked.Spec = *edit.Spec()
		must.Equal(t, fmt.Sprint(edit.Restarts(), target(t, asked, older, newer).WillRestart(), edit.ShrinksMemory(), edit.OldEnvironment()), want, "%s", injected)
	}
}

func TestFaults(t *testing.T) {
	const (
		oom, panics = "kubernetes#138760", "kubernetes#141100"
		small       = "requests: {cpu: 1, memory: 1Gi}, limits: {memory: 1Gi}"
		large       = "requests: {cpu: 1, memory: 1Gi}, limits: {memory: 2Gi}"
	)
	last := func(reason string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: reason}
		}
	}
	now := func(reason string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason}}
		}
	}
	beside := func(resources string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			other := build.Size(t, resources).Spec.Containers[0]
			other.Name = "injected"
			pod.Spec.Containers = append(pod.Spec.Containers, other)
		}
	}
	resized := func(fields string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			build.Resized(build.Size(t, large))(pod)
			build.Ours(fields)(pod)
		}
	}
	cpu := strings.ReplaceAll(build.MemoryLimit, "memory", "cpu")
	restarting := func(size string) *corev1.PodTemplateSpec {
		return build.Template(t, "containers: [{name: app, resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}], resources: {"+size+"}}]")
	}
	all := func(versions ...string) []string { return versions }
	for _, tt := range []struct {
		name         string
		older, newer *corev1.PodTemplateSpec
		pod          []func(*corev1.Pod)
		want         string   // the fault
		has, has0    []string // versions of kubelets that have it, and that do not; those of the fault if there are none
	}{
		{name: "OOMKilled, and memory goes up", older: build.Size(t, small), newer: build.Size(t, large), pod: []func(*corev1.Pod){last("OOMKilled")}, want: oom,
			has:  all("v1.33.0", "v1.33.13-eks-1a2b", "v1.34.8", "v1.34.10-gke.1", "v1.35.0", "v1.35.8-gke.1117000", "v1.36.0", "v1.36.3+k3s1"),
			has0: all("v1.32.9", "v1.35.9", "v1.35.10-gke.1", "v1.36.4", "v1.36.5-eks-1", "v1.37.0", "v1.38.0", "v2.0.0", "", "unknown")},
		{name: "killed, and not started again yet", older: build.Size(t, small), newer: build.Size(t, large), pod: []func(*corev1.Pod){now("OOMKilled")}, want: oom},
		{name: "ended otherwise", older: build.Size(t, small), newer: build.Size(t, large), pod: []func(*corev1.Pod){last("Error")}},
		{name: "never ended", older: build.Size(t, small), newer: build.Size(t, large)},
		{name: "OOMKilled, and only cpu goes up", older: build.Size(t, small), newer: build.Size(t, "requests: {cpu: 2, memory: 1Gi}, limits: {memory: 1Gi}"), pod: []func(*corev1.Pod){last("OOMKilled")}},
		{name: "OOMKilled, and the memory request goes up", older: build.Size(t, large), newer: build.Size(t, "requests: {cpu: 1, memory: 2Gi}, limits: {memory: 2Gi}"), pod: []func(*corev1.Pod){last("OOMKilled")}},
		{name: "OOMKilled beside a container with a limit", older: build.Size(t, small), newer: build.Size(t, large), pod: []func(*corev1.Pod){last("OOMKilled"), beside(small)}, want: oom},
		{name: "OOMKilled beside a container without: the pod has none", older: build.Size(t, small), newer: build.Size(t, large), pod: []func(*corev1.Pod){last("OOMKilled"), beside("requests: {cpu: 1}")}},
		{name: "raised, and not Ready since", older: build.Size(t, small), newer: build.Size(t, large), pod: []func(*corev1.Pod){resized(build.MemoryLimit), last("OOMKilled"), build.NotReady}, want: oom},
		{name: "raised, and Ready", older: build.Size(t, small), newer: build.Size(t, large), pod: []func(*corev1.Pod){resized(build.MemoryLimit), last("OOMKilled")}},
		{name: "only cpu was resized, and it is not Ready", older: build.Size(t, small), newer: build.Size(t, large), pod: []func(*corev1.Pod){resized(cpu), last("OOMKilled"), build.NotReady}},
		{name: "memory goes down", older: build.Size(t, large), newer: build.Size(t, small), want: panics,
			has:  all("v1.34.0", "v1.34.10", "v1.35.8-gke.1", "v1.36.4", "v1.37.2", "v1.37.9-eks-1"),
			has0: all("v1.33.13", "v1.38.0", "v1.40.1", "", "unknown")},
		{name: "memory goes down with a restart", older: restarting(large), newer: restarting(small)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			target := target(t, build.Pod("web-0", tt.older, tt.pod...), tt.older, tt.newer)
			has, has0 := tt.has, tt.has0
			if tt.want != "" && has == nil {
				has = all("v1.34.8")
			}
			if tt.want == "" {
				has0 = all("v1.33.13", "v1.34.8", "v1.35.8", "v1.36.4", "v1.37.1")
			}
			for _, kubelet := range slices.Concat(has, has0) {
				got := build.Each(target.By(resize.Kubelet{Version: kubelet}).Faults(), func(f resize.Fault) string { return f.Issue })
				want := "[]"
				if slices.Contains(has, kubelet) {
					want = "[" + tt.want + "]"
				}
				must.Equal(t, fmt.Sprint(got), want, "%q", kubelet)
			}
		})
	}
	if got := (resize.Target{}).Faults(); got != nil {
		t.Errorf("without a pod: %v", got)
	}
}
