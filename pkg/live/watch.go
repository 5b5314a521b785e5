// Package live watches what belongs to one workload while its rollout is in flight: its
// pods, its ReplicaSets.
package live

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// Watch is a cache of objects of one workload, from the start of a rollout to its end. So
// the cost grows with the rollouts in flight, and not with the cluster. What we have written
// is visible at once, before the watch brings it.
type Watch[T Object] struct {
	strip    Strip[T]
	informer cache.SharedIndexInformer

	mu      sync.Mutex
	written map[cache.ObjectName]T // by us, as long as the watch has not brought it
	failed  error                  // why the last list or watch has ended
}

// Object is what can be watched.
type Object interface {
	metav1.Object
	runtime.Object
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

// NewWatch runs the informer until ctx is done. The watch shows the informer's objects, stripped.
// It calls changed after every change, and once when the first list is complete.
func NewWatch[T Object](ctx context.Context, informer cache.SharedIndexInformer, strip Strip[T], changed func()) (*Watch[T], error) {
	if err := informer.SetTransform(strip.Transform); err != nil {
		return nil, fmt.Errorf("stripping what is watched: %w", err)
	}
	w := &Watch[T]{strip: strip, informer: informer, written: map[cache.ObjectName]T{}}
	if err := informer.SetWatchErrorHandlerWithContext(w.fail); err != nil {
		return nil, fmt.Errorf("handling failures: %w", err)
	}
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
	return w, nil
}

// fail notes why a list or a watch has ended, and leaves out the address: a selector in it may be long.
func (w *Watch[T]) fail(ctx context.Context, r *cache.Reflector, err error) {
	if in := (*url.Error)(nil); errors.As(err, &in) {
		err = fmt.Errorf("failed to watch: %w", in.Err)
	}
	cache.DefaultWatchErrorHandler(ctx, r, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = err
}

// HasSynced reports whether the first list is complete.
func (w *Watch[T]) HasSynced() bool { return w.informer.HasSynced() }

// Err returns why there is no complete list yet; nil if there is one, or nothing has failed.
func (w *Watch[T]) Err() error {
	if w.HasSynced() {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// List returns the objects. They are shared: do not change them.
func (w *Watch[T]) List() ([]T, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	objects, unseen := w.informer.GetStore().List(), len(w.written)
	list := make([]T, 0, len(objects))
	for _, object := range objects {
		t, stripped := object.(T)
		if !stripped {
			var err error
			if t, err = w.strip(object); err != nil {
				return nil, err
			}
		}
		if unseen > 0 {
			t = w.newest(t)
		}
		list = append(list, t)
	}
	return list, nil
}

// newest returns what we have written of the object if that is newer, and else forgets it.
func (w *Watch[T]) newest(watched T) T {
	name := cache.MetaObjectToName(watched)
	written, is := w.written[name]
	if !is {
		return watched
	}
	if order, err := resourceversion.CompareResourceVersion(written.GetResourceVersion(), watched.GetResourceVersion()); err == nil && order > 0 {
		return written
	}
	delete(w.written, name)
	return watched
}

// Wrote makes an object that we have just written visible to List. One that is not there, or no
// more, stays so.
func (w *Watch[T]) Wrote(object T) {
	if stripped, err := w.strip(object); err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.written[cache.MetaObjectToName(stripped)] = stripped
	}
}
