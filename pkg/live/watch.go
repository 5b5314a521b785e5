// Package live watches what belongs to one workload while its rollout is in flight: its
// pods, its ReplicaSets.
package live

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// wroteTTL is how long our own write is shown while the watch has only brought an older
// version. It may be long: the watch wins as soon as it has the same version, or a later one.
const wroteTTL = time.Hour

// Watch is a cache of objects of one workload, from the start of a rollout to its end. So
// the cost grows with the rollouts in flight, and not with the cluster. What we have written
// is visible at once, before the watch brings it.
type Watch[T runtime.Object] struct {
	namespace string
	strip     Strip[T]
	informer  cache.SharedIndexInformer
	newest    cache.MutationCache
}

// Strip returns what is kept in memory of an object: without what nothing reads of it. It takes
// objects as they come from the API server, and also what it has returned. It fails if obj is
// something else.
type Strip[T any] func(obj any) (T, error)

// Transform strips what an informer watches, before it is kept. What cannot be read is kept as
// it is, so that whoever needs it can say why.
func (strip Strip[T]) Transform(obj any) (any, error) {
	if stripped, err := strip(obj); err == nil {
		return stripped, nil
	}
	return obj, nil
}

// NewWatch runs the informer, which must be indexed by namespace, until ctx is done. The
// watch shows the informer's objects in the namespace, stripped. It calls changed after every
// change, and once when the first list is complete.
func NewWatch[T runtime.Object](ctx context.Context, informer cache.SharedIndexInformer, namespace string, strip Strip[T], changed func()) (*Watch[T], error) {
	if err := informer.SetTransform(strip.Transform); err != nil {
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
	return &Watch[T]{namespace: namespace, strip: strip, informer: informer, newest: newest}, nil
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
		t, stripped := object.(T)
		if !stripped {
			if t, err = w.strip(object); err != nil {
				return nil, err
			}
		}
		list = append(list, t)
	}
	return list, nil
}

// Wrote makes an object that we have just written visible to List.
func (w *Watch[T]) Wrote(object T) {
	if stripped, err := w.strip(object); err == nil {
		w.newest.Mutation(stripped)
	}
}
