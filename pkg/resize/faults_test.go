package resize_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/build"
)

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
				var got []string
				for _, f := range target.By(resize.Kubelet{Version: kubelet}).Faults() {
					got = append(got, f.Issue)
				}
				want := "[]"
				if slices.Contains(has, kubelet) {
					want = "[" + tt.want + "]"
				}
				if fmt.Sprint(got) != want {
					t.Errorf("%q: got %v, want %v", kubelet, got, want)
				}
			}
		})
	}
	if got := (resize.Target{}).Faults(); got != nil {
		t.Errorf("without a pod: %v", got)
	}
}
