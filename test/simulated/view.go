package simulated

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/mutationcache"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
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

// Eyes are a controller of a kind whose watches see something new only when the simulation lets
// them.
type Eyes[W interface {
	comparable
	controller.Workload
}, K controller.KindState] struct {
	Kind *Kind[W, K]
	// Seen is what the watches have seen.
	Seen struct {
		Workload W
		Pods     map[string]*corev1.Pod
	}

	driver     *Driver
	cluster    *Cluster
	view       View
	controller *controller.Controller[W, K]
}

// Open puts a new controller in the place of the one that there is.
func (e *Eyes[W, K]) Open(d *Driver, c *Cluster, kind controller.Kind[W, K], client *fake.Clientset, nodes *Nodes, defaults policy.Defaults) {
	var none W
	e.driver, e.cluster, e.view = d, c, NewView()
	e.Kind = &Kind[W, K]{Kind: seeing[W, K]{kind, e}, Pods: e.view}
	var err error
	e.controller, err = controller.New(d.Renew(), e.Kind, client, &record.FakeRecorder{}, nodes,
		controller.Options{Defaults: defaults, Ready: func() error { return nil }, Clock: c.Clock})
	d.NoError(err)
	e.Seen.Workload, e.Seen.Pods = none, nil
}

// See lets the watch of workloads catch up.
func (e *Eyes[W, K]) See(now W) {
	e.cluster.Looks(deploy.User, "workload")
	if e.Seen.Workload == now {
		return
	}
	e.Seen.Workload = now
	e.driver.Notice()
	e.driver.NoError(e.Kind.Workloads.Show(now))
}

// SeePods lets the watch of pods catch up.
func (e *Eyes[W, K]) SeePods() {
	e.cluster.Looks(deploy.User, "pods")
	if maps.Equal(e.Seen.Pods, e.cluster.Pods) {
		return
	}
	e.Seen.Pods = maps.Clone(e.cluster.Pods)
	e.driver.Notice()
	var list []any
	for _, pod := range e.cluster.Pods {
		list = append(list, pod)
	}
	e.driver.NoError(e.view.Show(list))
}

// Sync has the controller take one step.
func (e *Eyes[W, K]) Sync() (time.Duration, error) {
	e.Kind.Planned = e.Seen.Workload
	return e.controller.Sync(e.driver.t.Context(), Web)
}

// seeing is the kind, whose sessions watch what the eyes see.
type seeing[W interface {
	comparable
	controller.Workload
}, K controller.KindState] struct {
	controller.Kind[W, K]
	eyes *Eyes[W, K]
}

// Open has a new watch begin with what there is: mutationcache.Newest asks for it.
func (k seeing[W, K]) Open(ctx context.Context, w W, changed func()) (K, error) {
	k.eyes.SeePods()
	return k.Kind.Open(ctx, w, changed)
}
