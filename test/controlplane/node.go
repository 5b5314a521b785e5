package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// nodeAnnotation marks the nodes that kwok manages.
const nodeAnnotation = "kwok.x-k8s.io/node"

// Node describes a simulated node.
type Node struct {
	// CPU and Memory are its capacity, all of which is allocatable.
	CPU, Memory string
	// Labels are added to the name's label.
	Labels map[string]string
	// Taints keep pods away from it, from the beginning.
	Taints []corev1.Taint
	// Unschedulable cordons the node.
	Unschedulable bool
	// Old has it declare no features, as a kubelet does that is too old for them.
	Old bool
	// Kubelet is its version; empty means the control plane's.
	Kubelet string
}

// AddNode creates a node with room for 110 pods and waits until it takes them.
func (c *ControlPlane) AddNode(ctx context.Context, name string, n Node) error {
	node, err := c.newNode(name, n)
	if err != nil {
		return err
	}
	nodes := c.client.CoreV1().Nodes()
	if _, err := nodes.Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating node %s: %w", name, err)
	}
	return c.await(ctx, "node "+name, binaries, func(ctx context.Context) error {
		node, err := nodes.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("getting node: %w", err)
		}
		ready := slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
			return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
		})
		tainted := slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
			return taint.Key == corev1.TaintNodeNotReady
		})
		if !ready || tainted {
			return fmt.Errorf("node is not ready: taints %v", node.Spec.Taints)
		}
		return nil
	})
}

// newNode is the object of a node.
func (c *ControlPlane) newNode(name string, n Node) (*corev1.Node, error) {
	cpu, err := resource.ParseQuantity(n.CPU)
	if err != nil {
		return nil, fmt.Errorf("parsing cpu of node %s: %w", name, err)
	}
	memory, err := resource.ParseQuantity(n.Memory)
	if err != nil {
		return nil, fmt.Errorf("parsing memory of node %s: %w", name, err)
	}
	room := corev1.ResourceList{
		corev1.ResourceCPU:    cpu,
		corev1.ResourceMemory: memory,
		corev1.ResourcePods:   resource.MustParse("110"),

		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
	}
	labels := map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}
	maps.Copy(labels, n.Labels)

	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{nodeAnnotation: "fake"}},
		Spec:       corev1.NodeSpec{Taints: n.Taints, Unschedulable: n.Unschedulable},
		Status: corev1.NodeStatus{
			Capacity:    room,
			Allocatable: room,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: "127.0.0.1"},
				{Type: corev1.NodeHostName, Address: name},
			},
			NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: cmp.Or(n.Kubelet, c.version)},
		},
	}
	if !n.Old { // without these the API server refuses the resizes of the same name
		node.Status.DeclaredFeatures = []string{"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers"}
	}
	return node, nil
}

// OOMKill changes the status of a pod's container as a kubelet does when the kernel has killed it, after it has run for so long, and
// it runs again.
func OOMKill(status *corev1.ContainerStatus, pod types.UID, ran time.Duration) {
	ended := metav1.Now()
	status.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: "OOMKilled", ExitCode: 137, StartedAt: metav1.NewTime(ended.Add(-ran)), FinishedAt: ended,
		ContainerID: fmt.Sprintf("containerd://%s-%d", pod, status.RestartCount),
	}}
	status.RestartCount++
}
