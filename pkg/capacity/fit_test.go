package capacity_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/test/build"
)

func node(name, cpu string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"disk": "ssd"}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("8Gi"),
		}},
	}
	for _, f := range change {
		f(n)
	}
	return n
}

func TestCandidates(t *testing.T) {
	const pod = "containers: [{name: app, resources: {requests: {cpu: 3, memory: 1Gi}}}]"
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	tainted := func(effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: effect}} }
	}
	local := func(host string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "disk", Operator: corev1.NodeSelectorOpIn, Values: []string{host}},
			}}},
		}}}}
	}
	tests := []struct {
		name    string
		pod     string
		volumes []*corev1.PersistentVolume
		nodes   []*corev1.Node
		want    string
	}{
		{name: "one node is large enough", pod: pod, nodes: []*corev1.Node{node("a", "2"), node("b", "4")}},
		{name: "just large enough", pod: pod, nodes: []*corev1.Node{node("a", "3")}},
		{name: "all are too small", pod: pod, nodes: []*corev1.Node{node("a", "2"), node("b", "2500m")},
			want: "no node of the 2 open to the pod can hold cpu 3 (at most 2500m)"},
		{name: "the large one is cordoned", pod: pod, nodes: []*corev1.Node{node("a", "2"), node("b", "4", cordoned)},
			want: "no node of the 1 open to the pod can hold cpu 3 (at most 2)"},
		{name: "a toleration of cordoned nodes", pod: "{tolerations: [{key: node.kubernetes.io/unschedulable, operator: Exists, effect: NoSchedule}], containers: [{name: app, resources: {requests: {cpu: 3}}}]}",
			nodes: []*corev1.Node{node("a", "4", cordoned)}},
		{name: "a toleration of everything", pod: "{tolerations: [{operator: Exists}], containers: [{name: app, resources: {requests: {cpu: 3}}}]}", nodes: []*corev1.Node{node("a", "4", cordoned)}},
		{name: "a toleration of another effect on cordoned nodes", nodes: []*corev1.Node{node("a", "4", cordoned)}, want: "none of 1 nodes is open to the pod",
			pod: "{tolerations: [{key: node.kubernetes.io/unschedulable, operator: Exists, effect: NoExecute}], containers: [{name: app}]}"},
		{name: "a taint that is not tolerated", pod: pod, nodes: []*corev1.Node{node("a", "4", tainted(corev1.TaintEffectNoSchedule))},
			want: "none of 1 nodes is open to the pod"},
		{name: "a taint that only prefers", pod: pod, nodes: []*corev1.Node{node("a", "4", tainted(corev1.TaintEffectPreferNoSchedule))}},
		{name: "a taint that is tolerated", pod: "{tolerations: [{key: gpu, operator: Exists}], containers: [{name: app, resources: {requests: {cpu: 3}}}]}",
			nodes: []*corev1.Node{node("a", "4", tainted(corev1.TaintEffectNoExecute))}},
		{name: "another node selector", pod: "{nodeSelector: {disk: hdd}, containers: [{name: app}]}", nodes: []*corev1.Node{node("a", "4")},
			want: "none of 1 nodes is open to the pod"},
		{name: "the required node affinity", pod: `{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
			{matchExpressions: [{key: disk, operator: In, values: [ssd]}]}]}}}, containers: [{name: app, resources: {requests: {cpu: 5}}}]}`,
			nodes: []*corev1.Node{node("a", "4"), node("b", "8", func(n *corev1.Node) { n.Labels = nil })},
			want:  "no node of the 1 open to the pod can hold cpu 5 (at most 4)"},
		{name: "a resource that no node has", pod: "containers: [{name: app, resources: {requests: {cpu: 1, example.com/gpu: 1}}}]",
			nodes: []*corev1.Node{node("a", "4")}, want: "no node of the 1 open to the pod can hold example.com/gpu 1 (at most 0)"},
		{name: "a device of a class, which no node lists", pod: "containers: [{name: app, resources: {requests: {cpu: 1, deviceclass.resource.kubernetes.io/gpu: 1}}}]",
			nodes: []*corev1.Node{node("a", "4")}},
		{name: "cpu on one node, memory on another", pod: "containers: [{name: app, resources: {requests: {cpu: 4, memory: 16Gi}}}]",
			nodes: []*corev1.Node{node("a", "4"), node("b", "2", func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse("16Gi") })},
			want:  "no node of the 2 open to the pod can hold cpu 4 (at most 4), memory 16Gi (at most 16Gi)"},
		{name: "what init containers request counts", pod: "{initContainers: [{name: setup, resources: {requests: {cpu: 6}}}], containers: [{name: app}]}",
			nodes: []*corev1.Node{node("a", "4")}, want: "no node of the 1 open to the pod can hold cpu 6 (at most 4)"},
		{name: "volumes that are everywhere, and here", pod: pod, volumes: []*corev1.PersistentVolume{{}, local("ssd")}, nodes: []*corev1.Node{node("a", "4")}},
		{name: "one of the volumes is elsewhere", pod: pod, volumes: []*corev1.PersistentVolume{{}, local("hdd")}, nodes: []*corev1.Node{node("a", "4")},
			want: "none of 1 nodes is open to the pod"},
		{name: "no nodes at all", pod: pod, want: "none of 0 nodes is open to the pod"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			nodes, err := Candidates(t.Context(), &corev1.Pod{Spec: build.Template(t, tt.pod).Spec}, tt.volumes, tt.nodes)
			if got := message(err); got != tt.want || (len(nodes) > 0) != (err == nil) {
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
		found, err := Candidates(t.Context(), pod, nil, nodes)
		for _, node := range found {
			if !Beside(pod, node, nil) {
				t.Errorf("%s could hold the pod, and has no room when it is empty", node.Name)
			}
		}
		return message(err)
	}
	if got := could(node("a", "4")); got != "no node of the 1 open to the pod can hold example.com/gpu 2 (at most 0)" {
		t.Errorf("not known as a device: %q", got)
	}
	other := pod.DeepCopy()
	pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
		RequestMappings: []corev1.ContainerExtendedResourceRequest{{ContainerName: "app", ResourceName: gpu, RequestName: "container-0-request-0"}},
	}
	for n, want := range map[string]string{"": "", "0": "", "1": "no node of the 1 open to the pod can hold example.com/gpu 2 (at most 1)", "2": ""} {
		of := node("a", "4")
		if n != "" {
			lists(n)(of)
		}
		if got := could(of); got != want {
			t.Errorf("a node that lists %q: %q, want %q", n, got, want)
		}
	}
	if Alike(pod, other) {
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
		if got := Alike(&corev1.Pod{Spec: a.Spec}, &corev1.Pod{Spec: b.Spec}); got != tt.want {
			t.Errorf("%s and %s are alike: %t, want %t", tt.from, tt.to, got, tt.want)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestBeside(t *testing.T) {
	pod := func(uid types.UID, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{Spec: build.Template(t, "containers: [{name: app, resources: {requests: {cpu: "+cpu+"}}}]").Spec}
		p.UID = uid
		for _, f := range change {
			f(p)
		}
		return p
	}
	priority := func(n int32) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.Priority = &n } }
	gentle := func(p *corev1.Pod) { p.Spec.PreemptionPolicy = ptr.To(corev1.PreemptNever) }
	port := func(ip string, port int32, protocol corev1.Protocol) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, corev1.ContainerPort{ContainerPort: 80, HostIP: ip, HostPort: port, Protocol: protocol})
		}
	}
	over := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	shrinking := func(p *corev1.Pod) { // the kubelet has not carried it out yet
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "app", AllocatedResources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")},
			Resources: &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}},
		}}
	}
	full := func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("1") }
	tests := []struct {
		name   string
		pod    *corev1.Pod
		node   *corev1.Node
		others []*corev1.Pod
		want   bool
	}{
		{name: "an empty node", pod: pod("a", "4"), node: node("n", "4"), want: true},
		{name: "just enough is left", pod: pod("a", "1"), node: node("n", "4"), others: []*corev1.Pod{pod("b", "2"), pod("c", "1")}, want: true},
		{name: "not enough is left", pod: pod("a", "1"), node: node("n", "4"), others: []*corev1.Pod{pod("b", "2"), pod("c", "1001m")}},
		{name: "the pod itself makes room", pod: pod("a", "3"), node: node("n", "4"), others: []*corev1.Pod{pod("a", "3"), pod("b", "1")}, want: true},
		{name: "pods that are over take none", pod: pod("a", "3"), node: node("n", "4"), others: []*corev1.Pod{pod("b", "4", over)}, want: true},
		{name: "what a pod still has counts", pod: pod("a", "2"), node: node("n", "4"), others: []*corev1.Pod{pod("b", "1", shrinking)}},
		{name: "a pod of lower priority makes room", pod: pod("a", "3", priority(5)), node: node("n", "4"), others: []*corev1.Pod{pod("b", "4", priority(4))}, want: true},
		{name: "one of the same does not", pod: pod("a", "3", priority(5)), node: node("n", "4"), others: []*corev1.Pod{pod("b", "4", priority(5))}},
		{name: "nor where the pod preempts none", pod: pod("a", "3", priority(5), gentle), node: node("n", "4"), others: []*corev1.Pod{pod("b", "4", priority(4))}},
		{name: "there may be one pod only", pod: pod("a", "1"), node: node("n", "4", full), others: []*corev1.Pod{pod("b", "1")}},
		{name: "and it is this one", pod: pod("a", "1"), node: node("n", "4", full), others: []*corev1.Pod{pod("a", "1")}, want: true},
		{name: "the same host port", pod: pod("a", "1", port("", 80, "TCP")), node: node("n", "4"), others: []*corev1.Pod{pod("b", "1", port("10.0.0.1", 80, ""))}},
		{name: "the pod's own host port", pod: pod("a", "1", port("", 80, "")), node: node("n", "4"), others: []*corev1.Pod{pod("a", "1", port("", 80, ""))}, want: true},
		{name: "the same one of another address", pod: pod("a", "1", port("10.0.0.2", 80, "")), node: node("n", "4"), others: []*corev1.Pod{pod("b", "1", port("10.0.0.1", 80, ""))}, want: true},
		{name: "the same one of another protocol", pod: pod("a", "1", port("", 80, "UDP")), node: node("n", "4"), others: []*corev1.Pod{pod("b", "1", port("", 80, "TCP"))}, want: true},
		{name: "no host ports", pod: pod("a", "1", port("", 0, "")), node: node("n", "4"), others: []*corev1.Pod{pod("b", "1", port("", 0, ""))}, want: true},
		{name: "a node that is promised too much has nothing left", pod: pod("a", "0"), node: node("n", "4"), others: []*corev1.Pod{pod("b", "5")}, want: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Beside(tt.pod, tt.node, tt.others); got != tt.want {
				t.Errorf("got %t, want %t", got, tt.want)
			}
		})
	}
}

// TestOnNode asks what the API server asks before a resize: cpu and memory, and no more.
func TestOnNode(t *testing.T) {
	for _, tt := range []struct{ requests, want string }{
		{"cpu: 4, memory: 8Gi", ""},
		{"cpu: 1, ephemeral-storage: 1Gi, example.com/gpu: 1", ""},
		{"cpu: 5", "node a is too small: cpu, requested: 5, allocatable: 4"},
		{"memory: 9Gi, cpu: 4500m", "node a is too small: cpu, requested: 4500m, allocatable: 4; memory, requested: 9Gi, allocatable: 8Gi"},
	} {
		pod := &corev1.Pod{Spec: build.Template(t, "containers: [{name: app, resources: {requests: {"+tt.requests+"}}}]").Spec}
		if got := message(OnNode(pod, node("a", "4"))); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.requests, got, tt.want)
		}
	}
}
