// Package pods watches and writes the pods of workloads whose rollout is in
// flight. It is the only place that writes pods.
package pods

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// wroteTTL bounds how long our own write may be newer than what the watch has
// brought. It is long because nothing is lost by keeping it: the watch wins as
// soon as it has the same or a later version.
const wroteTTL = time.Hour

// Watch keeps the pods of one workload, from the start of its rollout to its
// end, so that the cost grows with the rollouts in flight and not with the
// cluster. What was written is visible at once, before the watch brings it.
type Watch struct {
	namespace string
	informer  cache.SharedIndexInformer
	newest    cache.MutationCache
	stop      context.CancelFunc
}

// NewWatch starts to watch the pods of namespace that selector matches. It calls
// changed after every change, and once when the first list is complete.
func NewWatch(ctx context.Context, client kubernetes.Interface, namespace, selector string, changed func()) (*Watch, error) {
	informer := coreinformers.NewFilteredPodInformer(client, namespace, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		func(o *metav1.ListOptions) { o.LabelSelector = selector })
	if err := informer.SetTransform(Strip); err != nil {
		return nil, fmt.Errorf("stripping watched pods: %w", err)
	}
	newest := cache.NewIntegerResourceVersionMutationCacheWithOptions(klog.FromContext(ctx), informer.GetStore(),
		cache.MutationCacheOptions{Indexer: informer.GetIndexer(), TTL: wroteTTL, MaxCacheSize: 1000})
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	}); err != nil {
		return nil, fmt.Errorf("handling pod events: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	go informer.RunWithContext(ctx)
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			changed()
		}
	}()
	return &Watch{namespace: namespace, informer: informer, newest: newest, stop: cancel}, nil
}

// Strip removes from a watched object what nothing here reads: all of
// managedFields but what tells which sizes are ours.
func Strip(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(slices.DeleteFunc(o.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return !resize.Ours(e) }))
	}
	return obj, nil
}

// HasSynced tells whether the first list is complete.
func (w *Watch) HasSynced() bool { return w.informer.HasSynced() }

// List returns the pods. They are shared: do not change them.
func (w *Watch) List() ([]*corev1.Pod, error) {
	objects, err := w.newest.ByIndex(cache.NamespaceIndex, w.namespace)
	if err != nil {
		return nil, fmt.Errorf("listing watched pods: %w", err)
	}
	pods := make([]*corev1.Pod, 0, len(objects))
	for _, object := range objects {
		if pod, ok := object.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// Wrote makes a pod that we have just written visible to List.
func (w *Watch) Wrote(pod runtime.Object) { w.newest.Mutation(pod) }

// Stop ends the watch.
func (w *Watch) Stop() { w.stop() }
