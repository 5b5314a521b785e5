package simulated

import (
	"context"
	"slices"

	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/mutationcache"
)

// View is an informer that shows what the simulation puts into it, in a fixed order, and
// stripped as the controller wants it.
type View struct {
	cache.SharedIndexInformer
	sorted

	strip   *cache.TransformFunc
	all     *[]any // that the simulation has put into it
	handler *cache.ResourceEventHandler
}

type sorted struct{ cache.Indexer }

// NewView returns one that shows nothing yet.
func NewView() View {
	keep := cache.TransformFunc(func(obj any) (any, error) { return obj, nil })
	return View{
		sorted: sorted{cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})},
		strip:  &keep, all: &[]any{}, handler: new(cache.ResourceEventHandler),
	}
}

// Show has the view show these, and nothing else, and tells of it.
func (v View) Show(all []any) error {
	*v.all = all
	stripped := make([]any, len(all))
	for i, obj := range all {
		var err error
		if stripped[i], err = (*v.strip)(obj); err != nil {
			return err
		}
	}
	before := v.List()
	if err := v.Replace(stripped, ""); err != nil {
		return err
	}
	v.tell(before)
	return nil
}

// tell tells the handler what is shown, and what of before is not any more.
func (v View) tell(before []any) {
	if *v.handler == nil {
		return
	}
	for _, obj := range before {
		if _, still, _ := v.Get(obj); !still {
			(*v.handler).OnDelete(obj)
		}
	}
	for _, obj := range v.List() {
		(*v.handler).OnUpdate(obj, obj)
	}
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

// AddEventHandler tells the handler at once what is shown, and then of each change: it takes the place of the one before.
func (v View) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	*v.handler = handler
	v.tell(nil)
	return told{}, nil
}

// told is the registration of a handler that has been told of everything.
type told struct{}

var _ cache.ResourceEventHandlerRegistration = told{}

// HasSynced is always true.
func (told) HasSynced() bool { return true }

// HasSyncedChecker returns itself.
func (t told) HasSyncedChecker() cache.DoneChecker { return t }

// Name returns what is waited for.
func (told) Name() string { return "view" }

// Done returns a closed channel.
func (told) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// Watch returns what a controller watches a namespace with, and sees what the view shows.
func Watch[T mutationcache.Object](v View, strip mutationcache.Strip[T]) (*mutationcache.Cache[T], error) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	return mutationcache.New(ctx, v, strip, func() {})
}
