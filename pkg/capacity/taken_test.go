package capacity

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/test/build"
)

func TestFits(t *testing.T) {
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
			if err := (&Room{}).fits(tt.pod, tt.node, tt.others); (err == nil) != tt.want || err != nil && !isNo(err) {
				t.Errorf("got %v, want room: %t", err, tt.want)
			}
		})
	}
}
