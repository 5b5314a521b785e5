// Package live watches what belongs to one workload while its rollout is in flight: its
// pods, its ReplicaSets.
package live

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// wroteTTL is how long our own write is shown while the watch has only brought an older
// version. It may be long: the watch wins as soon as it has the same version, or a later one.
const wroteTTL = time.Hour

// Watch is a cache of objects of one workload, from the start of a rollout to its end. So
// the cost grows with the rollouts in flight, and not with the cluster. What we have written
// is visible at once, before the watch brings it.
type Watch[T runtime.Object] struct {
	namespace string
	informer  cache.SharedIndexInformer
	newest    cache.MutationCache
}

// NewWatch runs the informer, which must be indexed by namespace, until ctx is done. The
// watch shows the informer's objects in the namespace, stripped ([Strip]). It calls changed
// after every change, and once when the first list is complete.
func NewWatch[T runtime.Object](ctx context.Context, informer cache.SharedIndexInformer, namespace string, changed func()) (*Watch[T], error) {
	if err := informer.SetTransform(Strip); err != nil {
		return nil, fmt.Errorf("stripping what is watched: %w", err)
	}
	newest := cache.NewIntegerResourceVersionMutationCacheWithOptions(klog.FromContext(ctx), informer.GetStore(),
		cache.MutationCacheOptions{Indexer: informer.GetIndexer(), TTL: wroteTTL, MaxCacheSize: 1000})
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	}); err != nil {
		return nil, fmt.Errorf("handling events: %w", err)
	}
	go informer.RunWithContext(ctx)
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			changed()
		}
	}()
	return &Watch[T]{namespace: namespace, informer: informer, newest: newest}, nil
}

// HasSynced reports whether the first list is complete.
func (w *Watch[T]) HasSynced() bool { return w.informer.HasSynced() }

// List returns the objects. They are shared: do not change them.
func (w *Watch[T]) List() ([]T, error) {
	objects, err := w.newest.ByIndex(cache.NamespaceIndex, w.namespace)
	if err != nil {
		return nil, fmt.Errorf("listing what is watched: %w", err)
	}
	list := make([]T, 0, len(objects))
	for _, object := range objects {
		if t, ok := object.(T); ok {
			list = append(list, t)
		}
	}
	return list, nil
}

// Wrote makes an object that we have just written visible to List.
func (w *Watch[T]) Wrote(object T) { w.newest.Mutation(object) }

// Strip removes from a watched object what nothing reads of it: all of managedFields but the
// entries of the resize subresource. What is no object stays as it is. It never fails.
func Strip(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(slices.DeleteFunc(o.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return !resize.Recorded(e) }))
	}
	return obj, nil
}
