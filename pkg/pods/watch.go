// Package pods watches and writes the pods of workloads whose rollout is in
// flight. It is the only place that writes pods.
package pods

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/live"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// Watch starts to watch the pods of namespace that selector matches, until ctx is
// done or the watch is stopped. It calls changed after every change.
func Watch(ctx context.Context, client kubernetes.Interface, namespace, selector string, changed func()) (*live.Watch[*corev1.Pod], error) {
	informer := coreinformers.NewFilteredPodInformer(client, namespace, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		func(o *metav1.ListOptions) { o.LabelSelector = selector })
	if err := informer.SetTransform(Strip); err != nil {
		return nil, fmt.Errorf("stripping watched pods: %w", err)
	}
	watch, err := live.NewWatch[*corev1.Pod](ctx, informer, namespace, changed)
	if err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	return watch, nil
}

// Strip removes from a watched object what nothing here reads: all of
// managedFields but what tells who has set which sizes.
func Strip(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(slices.DeleteFunc(o.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return !resize.Recorded(e) }))
	}
	return obj, nil
}
