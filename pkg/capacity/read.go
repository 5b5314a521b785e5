package capacity

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
)

// ReadLimits lists the LimitRanges of the namespace. They are unknown if they may not be read.
func ReadLimits(ctx context.Context, client kubernetes.Interface, namespace string, options metav1.ListOptions) (Limits, error) {
	list, err := client.CoreV1().LimitRanges(namespace).List(ctx, options)
	if apierrors.IsForbidden(err) {
		klog.FromContext(ctx).V(2).Info("Cannot tell what LimitRanges say", "reason", err.Error())
		return Limits{Unknown: true}, nil
	}
	if err != nil {
		return Limits{}, fmt.Errorf("listing LimitRanges: %w", err)
	}
	return Limits{Ranges: list.Items}, nil
}

// countQuotas counts what the ResourceQuotas of the namespace have left at this time, now.
func countQuotas(ctx context.Context, client kubernetes.Interface, namespace string, now time.Time) (*quotas, error) {
	list, err := readQuotas(ctx, client, namespace)
	if err != nil {
		return nil, err
	}
	var all []*corev1.Pod
	if len(list) > 0 {
		if all, err = pods.List(ctx, client.CoreV1(), namespace, metav1.ListOptions{}); err != nil {
			return nil, err
		}
	}
	return newQuotas(list, all, now), nil
}

// readQuotas lists the ResourceQuotas of the namespace right now; none if they may not be read.
func readQuotas(ctx context.Context, client kubernetes.Interface, namespace string) ([]corev1.ResourceQuota, error) {
	list, err := client.CoreV1().ResourceQuotas(namespace).List(ctx, metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		klog.FromContext(ctx).V(2).Info("Cannot tell what quotas have left", "reason", err.Error())
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing ResourceQuotas: %w", err)
	}
	return list.Items, nil
}
