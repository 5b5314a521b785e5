package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// readyAnnotation, "false" from birth, keeps a simulated pod from being Ready.
const readyAnnotation = "sim.inplace-rollout.io/ready"

// playProbes plays the readiness probes that the simulated kubelet does not run: a
// pod becomes Ready when it has run for its probes' initialDelaySeconds. It returns
// at once; what goes wrong later is told to fail.
func playProbes(ctx context.Context, client kubernetes.Interface, fail func(error)) error {
	watched, err := client.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	go func() {
		defer watched.Stop()
		started := map[types.UID]bool{}
		for event := range watched.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || event.Type == watch.Deleted || pod.Status.Phase != corev1.PodRunning || started[pod.UID] {
				continue
			}
			started[pod.UID] = true
			time.AfterFunc(probeDelay(pod), func() {
				if err := succeed(ctx, client, pod); err != nil {
					fail(err)
				}
			})
		}
		fail(errors.New("the watch of the readiness probes ended"))
	}()
	return nil
}

// probeDelay is the longest initialDelaySeconds among the pod's readiness probes.
func probeDelay(pod *corev1.Pod) time.Duration {
	longest := int32(0)
	for _, c := range pod.Spec.Containers {
		if c.ReadinessProbe != nil {
			longest = max(longest, c.ReadinessProbe.InitialDelaySeconds)
		}
	}
	return time.Duration(longest) * time.Second
}

// succeed lets the pod become Ready, if it is still there.
func succeed(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "annotations": map[string]any{readyAnnotation: nil},
	}})
	if err != nil {
		return fmt.Errorf("encoding the success of a probe: %w", err)
	}
	_, err = client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if gone := apierrors.IsNotFound(err) || apierrors.IsConflict(err) || ctx.Err() != nil; err != nil && !gone {
		return fmt.Errorf("playing the probe of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
