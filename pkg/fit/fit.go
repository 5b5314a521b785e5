// Package fit tells whether a pod could run on any node at all. It asks what the
// scheduler asks first, and much less: a size that no node can ever hold is no
// reason to give up a pod that runs. Everything here is pure.
package fit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// AnyNode returns nil if the pod could be scheduled to one of the nodes when it
// is empty, or an error that says why not: nodes that are cordoned, whose taints
// the pod does not tolerate, or that its node selector or required node affinity
// excludes do not count, and the others must be able to allocate what the pod
// requests. Other pods, volumes and topology are not looked at, so nil is no
// promise.
func AnyNode(ctx context.Context, pod *corev1.Pod, nodes []*corev1.Node) error {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
	allowed, largest := 0, corev1.ResourceList{}
	for _, node := range nodes {
		if matches, err := affinity.Match(node); err != nil || !matches || !open(ctx, pod, node) {
			continue
		}
		allowed++
		if holds(node, requests) {
			return nil
		}
		for name := range requests {
			if q := node.Status.Allocatable[name]; q.Cmp(largest[name]) > 0 {
				largest[name] = q
			}
		}
	}
	if allowed == 0 {
		return fmt.Errorf("none of %d nodes is open to the pod", len(nodes))
	}
	return fmt.Errorf("no node of the %d open to the pod can hold %s", allowed, describe(requests, largest))
}

// OnNode returns nil if the node is large enough for the pod when it has no other,
// or the error with which the API server refuses a resize to such a size
// (PodResizeValidator in plugin/pkg/admission/podresize of Kubernetes).
func OnNode(pod *corev1.Pod, node *corev1.Node) error {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	var lacking []string
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		request, has := requests[name], node.Status.Allocatable[name]
		if request.Cmp(has) > 0 {
			lacking = append(lacking, fmt.Sprintf("%s, requested: %s, allocatable: %s", name, request.String(), has.String()))
		}
	}
	if len(lacking) > 0 {
		return fmt.Errorf("node %s is too small: %s", node.Name, strings.Join(lacking, "; "))
	}
	return nil
}

// open tells whether the scheduler may place the pod on the node.
func open(ctx context.Context, pod *corev1.Pod, node *corev1.Node) bool {
	if node.Spec.Unschedulable {
		return false
	}
	_, tainted := schedulinghelper.FindMatchingUntoleratedTaint(klog.FromContext(ctx), node.Spec.Taints, pod.Spec.Tolerations,
		func(t *corev1.Taint) bool {
			return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
		}, false)
	return !tainted
}

func holds(node *corev1.Node, requests corev1.ResourceList) bool {
	for name, request := range requests {
		if request.Cmp(node.Status.Allocatable[name]) > 0 {
			return false
		}
	}
	return true
}

// describe names what is requested beside the most that an open node has of it:
// `cpu 100 (at most 8)`. Where each resource alone would fit on some node, all are
// named.
func describe(requests, largest corev1.ResourceList) string {
	var all, lacking []string
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		request, most := requests[name], largest[name]
		said := fmt.Sprintf("%s %s (at most %s)", name, request.String(), most.String())
		all = append(all, said)
		if request.Cmp(most) > 0 {
			lacking = append(lacking, said)
		}
	}
	if len(lacking) > 0 {
		all = lacking
	}
	return strings.Join(all, ", ")
}
