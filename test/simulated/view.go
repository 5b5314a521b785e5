package simulated

import (
	"context"
	"slices"

	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/live"
)

// View is an informer that shows what the simulation puts into it, in a fixed order, and
// stripped as the controller wants it.
type View struct {
	cache.SharedIndexInformer
	sorted

	strip *cache.TransformFunc
	all   *[]any // that the simulation has put into it
}

type sorted struct{ cache.Indexer }

// NewView returns one that shows nothing yet.
func NewView() View {
	keep := cache.TransformFunc(func(obj any) (any, error) { return obj, nil })
	return View{
		sorted: sorted{cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})},
		strip:  &keep, all: &[]any{},
	}
}

// Show has the view show these, and nothing else.
func (v View) Show(all []any) error {
	*v.all = all
	stripped := make([]any, len(all))
	for i, obj := range all {
		var err error
		if stripped[i], err = (*v.strip)(obj); err != nil {
			return err
		}
	}
	return v.Replace(stripped, "")
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

// SetWatchErrorHandlerWithContext does nothing: no watch fails.
func (View) SetWatchErrorHandlerWithContext(cache.WatchErrorHandlerWithContext) error { return nil }

// SetTransform strips what is shown, and what will be.
func (v View) SetTransform(strip cache.TransformFunc) error {
	*v.strip = strip
	return v.Show(*v.all)
}

// AddEventHandler does nothing, likewise.
func (View) AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return nil, nil
}

// Watch returns what a controller watches a namespace with, and sees what the view shows.
func Watch[T live.Object](v View, strip live.Strip[T]) (*live.Watch[T], error) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	return live.NewWatch(ctx, v, strip, func() {})
}
