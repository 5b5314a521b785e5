package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
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

// Ports below the ephemeral ones, in blocks. Each process that starts control planes has a block to itself.
const (
	portBlocks = 60
	blockSize  = 200
)

var (
	// ownBlock is this process's block.
	ownBlock = sync.OnceValues(claimBlock)
	// portsTaken counts what this process has asked for.
	portsTaken atomic.Uint32
)

// block is one of ports, which its process has to itself while it listens on the first of them.
type block struct {
	first int
	claim net.Listener
}

// FreePort returns a port of 127.0.0.1 on which nobody listens. It is below the ephemeral ports: the kernel
// gives those to connections and to whoever listens on port 0, at any time before the port is used.
func FreePort() (string, error) {
	own, err := ownBlock()
	if err != nil {
		return "", err
	}
	for range blockSize - 1 {
		port := strconv.Itoa(own.first + 1 + int(portsTaken.Add(1)%(blockSize-1)))
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			continue
		}
		return port, listener.Close()
	}
	return "", errors.New("finding a free port: somebody listens on each that was tried")
}

// claimBlock claims a block that no other process has: a port that is free when one asks would be another's before it is used.
// The claim ends with the process, and leaves nothing behind.
func claimBlock() (b block, err error) {
	for _, i := range rand.Perm(portBlocks) {
		b.first = firstEphemeralPort() - (i+1)*blockSize
		if b.claim, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(b.first))); err == nil {
			return b, nil
		}
	}
	return block{}, fmt.Errorf("finding a free port: no block could be claimed, the last one by: %w", err)
}

// firstEphemeralPort is where ip_local_port_range begins, or Linux' default where that cannot be read.
func firstEphemeralPort() int {
	first := 32768
	said, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return first
	}
	var configured int
	if _, err := fmt.Sscan(string(said), &configured); err != nil || configured <= portBlocks*blockSize+1024 {
		return first
	}
	return configured
}
