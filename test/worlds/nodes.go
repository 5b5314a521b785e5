package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

// Labels of the nodes of DaemonSets.
const (
	worldLabel = "example.com/world" // the namespace
	poolLabel  = "example.com/pool"  // selected by the DaemonSet; it is the key of a taint, too
	zoneLabel  = "example.com/zone"  // even or odd
)

// enough cpu for all pods of a workload.
const enough = "8"

// ownNodes is how many a workload has whose pods have little room.
const ownNodes = 2

// poolOf is the name of a DaemonSet's nodes.
func poolOf(namespace string, w Workload) string { return namespace + "." + w.Name }

// addNode adds the n-th node of a DaemonSet, or of a workload that has nodes of its own. Its name begins with the namespace, by which the audit
// log is read.
func (p *player) addNode(ctx context.Context, w Workload, n int, cpu string) error {
	pool := poolOf(p.namespace, w)
	node := controlplane.Node{
		CPU: cpu, Memory: "16Gi", Taints: []corev1.Taint{{Key: poolLabel, Value: pool, Effect: corev1.TaintEffectNoSchedule}},
		Labels: map[string]string{worldLabel: p.namespace, poolLabel: pool, zoneLabel: []string{"even", "odd"}[n%2]},
	}
	if class := []string{"small", "large", ""}[n%3]; class != "" {
		node.Labels[classLabel] = class
	}
	err := p.retried(ctx, func() error { return p.cp.AddNode(ctx, fmt.Sprintf("%s.%d", pool, n), node) })
	if apierrors.IsAlreadyExists(err) { // an answer was lost
		return nil
	}
	return err
}

// crowd has a pod of somebody else take room on the nodes of a workload.
func (p *player) crowd(ctx context.Context, w Workload, requests map[string]any) error {
	cpu, err := resource.ParseQuantity(fmt.Sprint(requests["cpu"]))
	if err != nil {
		return fmt.Errorf("parsing what others take: %w", err)
	}
	p.added++
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("others-%d", p.added)}, Spec: corev1.PodSpec{
		NodeSelector: map[string]string{poolLabel: poolOf(p.namespace, w)},
		Tolerations:  []corev1.Toleration{{Key: poolLabel, Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{Name: "app", Image: "other:1", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: cpu},
		}}},
	}}
	err = p.retried(ctx, func() error {
		_, err := p.people.CoreV1().Pods(p.namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	if apierrors.IsAlreadyExists(err) { // an answer was lost
		return nil
	}
	return err
}

// eachNode does something with each node of the world whose name begins so.
func (p *player) eachNode(ctx context.Context, prefix string, do func(corev1.Node) error) error {
	var list *corev1.NodeList
	if err := p.retried(ctx, func() (err error) {
		list, err = p.admin.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: worldLabel + "=" + p.namespace})
		return err
	}); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for _, node := range list.Items {
		if strings.HasPrefix(node.Name, prefix) {
			if err := p.retried(ctx, func() error { return do(node) }); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	return nil
}

// node has something happen to nodes of a DaemonSet. What they are numbered by wraps around.
func (p *player) node(ctx context.Context, e Edit) error {
	w := p.Workloads[e.Workload]
	var names []string
	if err := p.eachNode(ctx, poolOf(p.namespace, w)+".", func(node corev1.Node) error {
		names = append(names, node.Name)
		return nil
	}); err != nil {
		return err
	}
	if e.Mode == "add" {
		p.added++
		return p.addNode(ctx, w, 100+p.added, enough)
	}
	slices.Sort(names)
	chosen := map[string]bool{}
	for _, n := range e.Pods {
		if len(names) > 0 {
			chosen[names[n%len(names)]] = true
		}
	}
	return p.eachNode(ctx, poolOf(p.namespace, w)+".", func(node corev1.Node) error {
		if !chosen[node.Name] {
			return nil
		}
		return p.change(ctx, node, e.Mode)
	})
}

// change makes a change to a node.
func (p *player) change(ctx context.Context, node corev1.Node, mode string) error {
	nodes := p.people.CoreV1().Nodes()
	if mode == "remove" {
		return nodes.Delete(ctx, node.Name, metav1.DeleteOptions{})
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now, err := nodes.Get(ctx, node.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		before := now.DeepCopy()
		taint := func(effect corev1.TaintEffect) {
			now.Spec.Taints = slices.DeleteFunc(now.Spec.Taints, func(t corev1.Taint) bool { return t.Key == worldLabel })
			if effect != "" {
				now.Spec.Taints = append(now.Spec.Taints, corev1.Taint{Key: worldLabel, Effect: effect})
			}
		}
		pool := node.Name[:strings.LastIndex(node.Name, ".")]
		switch mode {
		case "cordon":
			now.Spec.Unschedulable = true
		case "uncordon":
			now.Spec.Unschedulable = false
		case "taint": // its pod stays, and is one too many
			taint(corev1.TaintEffectNoSchedule)
		case "drain": // its pod goes
			taint(corev1.TaintEffectNoExecute)
		case "untaint":
			taint("")
		case "leave":
			delete(now.Labels, poolLabel)
		case "join":
			now.Labels[poolLabel] = pool
		case "small", "large":
			now.Labels[classLabel] = mode
		case "classless":
			delete(now.Labels, classLabel)
		case "heal":
			now.Spec.Unschedulable = false
			taint("")
			now.Labels[poolLabel] = pool
		default:
			return fmt.Errorf("nobody knows how a node can %q", mode)
		}
		if equality.Semantic.DeepEqual(before, now) {
			return nil
		}
		_, err = nodes.Update(ctx, now, metav1.UpdateOptions{FieldManager: "people"})
		return err
	})
}
