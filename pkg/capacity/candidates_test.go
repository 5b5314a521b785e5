package capacity

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

func node(name, cpu string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"disk": "ssd", "name": name}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("8Gi"),
		}},
	}
	for _, f := range change {
		f(n)
	}
	return n
}

// TestCandidates is about the words, and what fits an empty node. Which nodes a pod may run on is compared with the scheduler's own
// plugins in test/scheduler, as are affinity, spread, host ports, priorities and pods that wait.
func TestCandidates(t *testing.T) {
	const pod = "containers: [{name: app, resources: {requests: {cpu: 3, memory: 1Gi}}}]"
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	tainted := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	}
	tests := []struct {
		name  string
		pod   string
		nodes []*corev1.Node
		want  string
	}{
		{name: "one node is large enough", pod: pod, nodes: []*corev1.Node{node("a", "2"), node("b", "4")}},
		{name: "just large enough", pod: pod, nodes: []*corev1.Node{node("a", "3")}},
		{name: "all are too small", pod: pod, nodes: []*corev1.Node{node("a", "2"), node("b", "2500m")},
			want: "it needs 3 cpu; the largest node has 2.5"},
		{name: "one that is meant in cores is spelled so", pod: "containers: [{name: app, resources: {requests: {cpu: 100150m}}}]", nodes: []*corev1.Node{node("a", "2"), node("b", "4")},
			want: "it needs 100.15 cpu; the largest node has 4"},
		{name: "the large one is cordoned", pod: pod, nodes: []*corev1.Node{node("a", "2"), node("b", "4", cordoned)},
			want: "it needs 3 cpu; the only node that it can run on has 2"},
		{name: "a toleration of cordoned nodes", pod: "{tolerations: [{key: node.kubernetes.io/unschedulable, operator: Exists, effect: NoSchedule}], containers: [{name: app}]}",
			nodes: []*corev1.Node{node("a", "4", cordoned)}},
		{name: "a taint that is not tolerated", pod: pod, nodes: []*corev1.Node{node("a", "4", tainted)},
			want: "no node that is Ready matches the node selector, affinity and tolerations of the pod"},
		{name: "another node selector", pod: "{nodeSelector: {disk: hdd}, containers: [{name: app}]}", nodes: []*corev1.Node{node("a", "4")},
			want: "no node that is Ready matches the node selector, affinity and tolerations of the pod"},
		{name: "a resource that no node has", pod: "containers: [{name: app, resources: {requests: {cpu: 1, example.com/gpu: 1}}}]",
			nodes: []*corev1.Node{node("a", "4")}, want: "it needs 1 example.com/gpu; the only node that it can run on has 0"},
		{name: "a device of a class, which no node lists", pod: "containers: [{name: app, resources: {requests: {cpu: 1, deviceclass.resource.kubernetes.io/gpu: 1}}}]",
			nodes: []*corev1.Node{node("a", "4")}},
		{name: "cpu on one node, memory on another", pod: "containers: [{name: app, resources: {requests: {cpu: 4, memory: 16Gi}}}]",
			nodes: []*corev1.Node{node("a", "4"), node("b", "2", func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse("16Gi") })},
			want:  "it needs 4 cpu and 16Gi memory; no node has all of that"},
		{name: "no nodes at all", pod: pod, want: "no node that is Ready matches the node selector, affinity and tolerations of the pod"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			nodes, got := candidates(&corev1.Pod{Spec: build.Template(t, tt.pod).Spec}, nil, tt.nodes)
			if got != tt.want || (len(nodes) > 0) != (got == "") {
				t.Errorf("got %d nodes and %q, want %q", len(nodes), got, tt.want)
			}
		})
	}
}

// TestDevices asks for an extended resource that the status of the running pod says it
// has by a DeviceClass: no node has to list it, but one that does must have enough of it.
func TestDevices(t *testing.T) {
	const gpu = "example.com/gpu"
	pod := &corev1.Pod{Spec: build.Template(t, "containers: [{name: app, resources: {requests: {cpu: 1, "+gpu+": 2}}}]").Spec}
	lists := func(n string) func(*corev1.Node) {
		return func(node *corev1.Node) { node.Status.Allocatable[gpu] = resource.MustParse(n) }
	}
	could := func(nodes ...*corev1.Node) string {
		found, tooLarge := candidates(pod, nil, nodes)
		for _, node := range found {
			if err := beside(pod, node, nil); isNo(err) {
				t.Errorf("%s could hold the pod, and has no room when it is empty", node.Name)
			}
		}
		return tooLarge
	}
	must.Equal(t, could(node("a", "4")), "it needs 2 example.com/gpu; the only node that it can run on has 0", "not known as a device")
	other := pod.DeepCopy()
	pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
		RequestMappings: []corev1.ContainerExtendedResourceRequest{{ContainerName: "app", ResourceName: gpu, RequestName: "container-0-request-0"}},
	}
	for n, want := range map[string]string{"": "", "0": "", "1": "it needs 2 example.com/gpu; the only node that it can run on has 1", "2": ""} {
		of := node("a", "4")
		if n != "" {
			lists(n)(of)
		}
		must.Equal(t, could(of), want, "a node that lists %q", n)
	}
	if alike(pod, other) {
		t.Error("a pod with a device is alike one without")
	}
}

func TestAlike(t *testing.T) {
	const pod = `nodeSelector: {disk: ssd}, affinity: {nodeAffinity: {}}, tolerations: [{key: gpu}], overhead: {cpu: 1}, containers: [{name: app, resources: {requests: {cpu: 1}}}]`
	for _, tt := range []struct {
		from, to string
		want     bool
	}{
		{"cpu: 1", "cpu: 1000m", true},
		{"name: app", "name: other", true},
		{"requests: {cpu: 1}", "requests: {cpu: 2}", false},
		{"overhead: {cpu: 1}", "overhead: {cpu: 2}", false},
		{"disk: ssd", "disk: hdd", false},
		{"affinity: {nodeAffinity: {}}", "affinity: {}", false},
		{"key: gpu", "key: other", false},
	} {
		a, b := build.Template(t, "{"+pod+"}"), build.Template(t, "{"+strings.ReplaceAll(pod, tt.from, tt.to)+"}")
		must.Equal(t, alike(&corev1.Pod{Spec: a.Spec}, &corev1.Pod{Spec: b.Spec}), tt.want, "%s and %s are alike", tt.from, tt.to)
	}
}
