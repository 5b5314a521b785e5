package simulated

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/live"
)

// View is an informer that shows what the simulation puts into it, in a fixed order.
type View struct {
	cache.SharedIndexInformer
	sorted
}

type sorted struct{ cache.Indexer }

// NewView returns one that shows nothing yet.
func NewView() View {
	return View{sorted: sorted{cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})}}
}

func (s sorted) List() []any {
	keys := s.ListKeys()
	slices.Sort(keys)
	list := make([]any, 0, len(keys))
	for _, key := range keys {
		if obj, exists, _ := s.GetByKey(key); exists {
			list = append(list, obj)
		}
	}
	return list
}

// GetStore returns what the view shows.
func (v View) GetStore() cache.Store { return v.sorted }

// GetIndexer returns what the view shows.
func (v View) GetIndexer() cache.Indexer { return v.sorted }

// HasSynced is always true.
func (View) HasSynced() bool { return true }

// RunWithContext does nothing: the simulation itself decides what is seen when.
func (View) RunWithContext(context.Context) {}

// SetTransform does nothing: what is shown is stripped already.
func (View) SetTransform(cache.TransformFunc) error { return nil }

// AddEventHandler does nothing, likewise.
func (View) AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return nil, nil
}

// Watch returns what a controller watches a namespace with, and sees what the view shows.
func Watch[T live.Object](v View) (*live.Watch[T], error) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	return live.NewWatch[T](ctx, v, func() {})
}

// Stripped are the pods as they are watched.
func Stripped(all map[string]*corev1.Pod) []any {
	list := make([]any, 0, len(all))
	for _, pod := range all {
		watched := *pod
		watched.ManagedFields = slices.Clone(pod.ManagedFields)
		_, _ = live.Strip(&watched)
		list = append(list, &watched)
	}
	return list
}
