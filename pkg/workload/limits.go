package workload

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
)

// limitsAge is how long LimitRanges that were read are believed: nobody watches them.
const limitsAge = 10 * time.Second

// Limits are the LimitRanges of the namespace; right now, if a pod may be given up for
// what they say.
func (c *Controller[W, X]) Limits(ctx context.Context, s *Session[X], namespace string, rightNow bool) (capacity.Limits, error) {
	now := c.Clock.Now()
	if !rightNow && now.Sub(s.limitsRead) < limitsAge {
		return s.limits, nil
	}
	options := metav1.ListOptions{ResourceVersion: "0"}
	if rightNow {
		options.ResourceVersion = ""
	}
	limits, err := readLimits(ctx, c.Client, namespace, options)
	if err != nil {
		return capacity.Limits{}, err
	}
	s.limits, s.limitsRead = limits, now
	return limits, nil
}

func readLimits(ctx context.Context, client kubernetes.Interface, namespace string, options metav1.ListOptions) (capacity.Limits, error) {
	list, err := client.CoreV1().LimitRanges(namespace).List(ctx, options)
	if apierrors.IsForbidden(err) {
		klog.FromContext(ctx).V(2).Info("Cannot tell what LimitRanges say", "reason", err.Error())
		return capacity.Limits{Unknown: true}, nil
	}
	if err != nil {
		return capacity.Limits{}, fmt.Errorf("listing LimitRanges: %w", err)
	}
	return capacity.Limits{Ranges: list.Items}, nil
}

// quotas count what the ResourceQuotas of the namespace have left right now.
func (c *Controller[W, X]) quotas(ctx context.Context, namespace string) (*capacity.Quotas, error) {
	list, err := readQuotas(ctx, c.Client, namespace)
	if err != nil {
		return nil, err
	}
	var pods []*corev1.Pod
	if len(list) > 0 {
		if pods, err = listPods(ctx, c.Client, namespace, metav1.ListOptions{}); err != nil {
			return nil, err
		}
	}
	return capacity.NewQuotas(list, pods, c.Clock.Now()), nil
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
