// Package pods lists, watches and writes the pods of workloads. Nothing else writes pods.
package pods

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/mutationcache"
)

// NewInformer returns an informer of the pods of namespace that selector matches, for [mutationcache.New].
func NewInformer(client kubernetes.Interface, namespace, selector string) cache.SharedIndexInformer {
	return coreinformers.NewFilteredPodInformer(client, namespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.LabelSelector = selector
		mutationcache.Newest(o)
	})
}

// pageSize is how many pods one answer of the API server has at the most. A page of large pods
// is a few MiB.
const pageSize = 500

// List lists pods of a namespace, or of all if it is empty, from the API server. It asks for one
// page after the other, all of one moment; without that where the options want what is cached.
func List(ctx context.Context, client coreclient.PodsGetter, namespace string, options metav1.ListOptions) ([]*corev1.Pod, error) {
	var all []*corev1.Pod
	options.Limit = pageSize
	for {
		list, err := client.Pods(namespace).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("listing pods: %w", err)
		}
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return all, nil
		}
		options.ResourceVersion = "" // the continuation names it
	}
}

// First lists the first pods of all namespaces that the options select: n at the most.
func First(ctx context.Context, client coreclient.PodsGetter, n int64, options metav1.ListOptions) ([]*corev1.Pod, error) {
	options.Limit = n
	list, err := client.Pods(metav1.NamespaceAll).List(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	all := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return all, nil
}
