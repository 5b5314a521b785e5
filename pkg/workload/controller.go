// Package workload is what the controllers of StatefulSets and Deployments share:
// watching opted-in workloads, keeping a session for each whose rollout is in
// flight, asking for resizes, and telling what happens. What a rollout does next
// is decided by package rollout; how it is done, by the kind's own package.
package workload

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// maxRetryInterval bounds the waits between tries of a step that fails. It is how
// long after an obstacle is gone, such as a quota, a rollout goes on at the latest.
const maxRetryInterval = 30 * time.Second

// Workload is an object of one kind of workload.
type Workload interface {
	metav1.Object
	runtime.Object
}

// Kind is what Kubernetes does differently for one kind of workload W. X is what is
// kept of a workload of this kind while its rollout is in flight.
type Kind[W Workload, X any] interface {
	// Name of the kind, such as StatefulSet.
	Name() string
	// NewInformer watches the workloads of a namespace, or of all, that tweak selects.
	NewInformer(namespace string, tweak func(*metav1.ListOptions)) cache.SharedIndexInformer
	// Decode reads what the informer keeps, and what Patch returns.
	Decode(obj any) (W, error)
	// Patch writes a workload, or a subresource of it.
	Patch(ctx context.Context, w W, kind types.PatchType, patch []byte, subresources ...string) (runtime.Object, error)
	// Selector of the workload's pods.
	Selector(w W) *metav1.LabelSelector
	// Condition inplace-rollout.io/Complete, or nil.
	Condition(w W) *Condition
	// NewCondition is a condition, written now, as this kind has it.
	NewCondition(c Condition, now metav1.Time) any
	// Open returns what is kept of w; it lasts until ctx is done. Whenever it changes it calls changed.
	Open(ctx context.Context, w W, changed func()) (X, error)
	// Sync takes the next step of an opted-in workload, and tells when to look again at the latest.
	Sync(ctx context.Context, w W) (time.Duration, error)
	// Leave puts in order what a rollout has left behind in a workload that is not opted in any more.
	Leave(ctx context.Context, name cache.ObjectName) error
}

// Controller rolls out resources-only edits of the opted-in workloads of one kind in place.
type Controller[W Workload, X any] struct {
	// Client writes.
	Client kubernetes.Interface
	// Recorder takes the events.
	Recorder record.EventRecorder
	// Clock of the plans.
	Clock clock.PassiveClock
	// Options of all controllers.
	Options Options
	// Nodes that pods may run on.
	Nodes *Nodes

	kind     Kind[W, X]
	metrics  kindMetrics
	informer cache.SharedIndexInformer
	newest   cache.MutationCache
	queue    workqueue.TypedRateLimitingInterface[cache.ObjectName]

	mu       sync.Mutex
	sessions map[cache.ObjectName]*Session[X]
	told     map[cache.ObjectName]message
	rolling  sets.Set[cache.ObjectName] // with a rollout that is not counted yet
}

// New returns a controller of kind that writes through client and tells through recorder.
func New[W Workload, X any](ctx context.Context, kind Kind[W, X], client kubernetes.Interface, recorder record.EventRecorder, nodes *Nodes, options Options) (*Controller[W, X], error) {
	c := &Controller[W, X]{
		Client: client, Recorder: recorder, Options: options, Clock: clock.RealClock{}, Nodes: nodes,
		kind:     kind,
		informer: kind.NewInformer(options.Namespace, func(o *metav1.ListOptions) { o.LabelSelector = labels.Set{api.EnabledLabel: "true"}.String() }),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](50*time.Millisecond, maxRetryInterval),
			workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Name: strings.ToLower(kind.Name())}),
		sessions: map[cache.ObjectName]*Session[X]{},
		told:     map[cache.ObjectName]message{},
		rolling:  sets.Set[cache.ObjectName]{},
	}
	if err := c.informer.SetTransform(pods.Strip); err != nil {
		return nil, fmt.Errorf("stripping watched %ss: %w", kind.Name(), err)
	}
	c.newest = cache.NewIntegerResourceVersionMutationCache(klog.FromContext(ctx), c.informer.GetStore(), c.informer.GetIndexer(), time.Hour, false)
	enqueue := func(obj any) {
		if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			c.queue.Add(name)
		}
	}
	_, err := c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }, DeleteFunc: enqueue,
	})
	if err != nil {
		return nil, fmt.Errorf("handling %s events: %w", kind.Name(), err)
	}
	nodes.onChange(c.enqueueInFlight)
	c.metrics = options.Metrics.of(kind.Name(), c.collect)
	return c, nil
}

func (c *Controller[W, X]) enqueueInFlight() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.sessions {
		c.queue.Add(name)
	}
}

// Run works until ctx is done. The nodes must be running.
func (c *Controller[W, X]) Run(ctx context.Context) {
	defer c.queue.ShutDown()
	go c.informer.RunWithContext(ctx)
	if !cache.WaitForNamedCacheSyncWithContext(ctx, c.informer.HasSynced, c.Nodes.HasSynced) {
		return
	}
	var workers sync.WaitGroup
	for range c.Options.Workers {
		workers.Go(func() { wait.UntilWithContext(ctx, c.work, time.Second) })
	}
	<-ctx.Done()
	c.queue.ShutDown()
	workers.Wait()
}

// EnqueueAll has every opted-in workload looked at again.
func (c *Controller[W, X]) EnqueueAll() {
	for _, key := range c.informer.GetStore().ListKeys() {
		if name, err := cache.ParseObjectName(key); err == nil {
			c.queue.Add(name)
		}
	}
}

// Enqueue has one workload looked at again.
func (c *Controller[W, X]) Enqueue(name cache.ObjectName) { c.queue.Add(name) }

// Waiting is how many workloads wait to be looked at.
func (c *Controller[W, X]) Waiting() int { return c.queue.Len() }

// Store is the cache of the informer.
func (c *Controller[W, X]) Store() cache.Store { return c.informer.GetStore() }

// HasSynced tells whether the first list of workloads is complete.
func (c *Controller[W, X]) HasSynced() bool { return c.informer.HasSynced() }

func (c *Controller[W, X]) work(ctx context.Context) {
	for c.workOne(ctx) {
	}
}

func (c *Controller[W, X]) workOne(ctx context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	logger := klog.FromContext(ctx).WithValues("kind", c.kind.Name(), "workload", name)
	again, err := c.Sync(klog.NewContext(ctx, logger), name)
	switch {
	case err == nil:
		c.queue.Forget(name)
		if again > 0 {
			c.queue.AddAfter(name, again)
		}
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		// Something changed since we looked; its event is on the way, or we look again soon.
		logger.V(4).Info("Looking again", "reason", err.Error())
		c.queue.AddRateLimited(name)
	default:
		logger.Error(err, "Could not take the next step")
		c.metrics.failed()
		c.queue.AddRateLimited(name)
		if c.queue.NumRequeues(name) > untoldFailures {
			c.tellFailure(name, err)
		}
	}
	return true
}

// Sync takes the next step of one workload, and tells when to look again at the latest.
func (c *Controller[W, X]) Sync(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	if ready := c.Options.Ready() == nil; !ready {
		return 0, nil
	}
	w, exists, err := c.Get(name)
	if err != nil {
		return 0, err
	}
	if !exists || !Enabled(w) {
		c.EndSession(name)
		c.mu.Lock()
		delete(c.told, name)
		c.mu.Unlock()
		c.ended(name, resultAbandoned, 0)
		return 0, c.kind.Leave(ctx, name)
	}
	return c.kind.Sync(ctx, w)
}

// Enabled tells whether w is opted in and not about to be deleted.
func Enabled(w metav1.Object) bool {
	return w.GetLabels()[api.EnabledLabel] == "true" && w.GetDeletionTimestamp() == nil
}

// Held tells whether the rollout of w is held.
func Held(w metav1.Object) bool {
	_, held := w.GetAnnotations()[api.HoldAnnotation]
	return held
}

// ErrUnknown tells that the admission policies have taken a write of ours for a user's.
var ErrUnknown = errors.New("the admission policies do not know this controller: it must run as the ServiceAccount inplace-rollout " +
	"of the namespace inplace-rollout, or of the workload's own")

// ErrEdited tells that the template has changed in a write of ours that was to let the
// built-in controller go on. The admission policies have held that edit.
var ErrEdited = errors.New("a mutating webhook changed the pod template in this very write of inplace-rollout, which is held as an edit")

// LetGo makes a write that lets the built-in controller go on. If the template is changed
// on the way, the next write comes later and later: with a webhook that does so each
// time, each makes a new revision.
func (c *Controller[W, X]) LetGo(w W, s *Session[X], write func() error) (time.Duration, error) {
	if wait := s.edited.Sub(c.Clock.Now()); wait > 0 {
		return wait, nil
	}
	err := write()
	if errors.Is(err, ErrEdited) {
		if s.edits == nil {
			s.edits = NewBackoff()
		}
		s.edited = c.Clock.Now().Add(s.edits.NextBackOff())
		c.Recorder.Event(w, corev1.EventTypeWarning, rollout.EventStepFailed, "the next step is tried again: "+err.Error())
	}
	return 0, err
}

// Get returns the newest version of the workload that we know.
func (c *Controller[W, X]) Get(name cache.ObjectName) (w W, exists bool, err error) {
	obj, exists, err := c.newest.GetByKey(name.String())
	if err != nil || !exists {
		return w, false, err
	}
	w, err = c.kind.Decode(obj)
	return w, true, err
}

// Session returns the one of w, and opens it if there is none.
func (c *Controller[W, X]) Session(ctx context.Context, w W) (*Session[X], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := nameOf(w)
	if s := c.sessions[name]; s != nil {
		if s.workload == w.GetUID() {
			return s, nil
		}
		s.stop() // of a workload that had this name before
		delete(c.sessions, name)
	}
	selector, err := metav1.LabelSelectorAsSelector(c.kind.Selector(w))
	if err != nil {
		return nil, fmt.Errorf("reading the selector: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	changed := func() { c.queue.Add(name) }
	s := &Session[X]{workload: w.GetUID(), stop: stop, Refusals: Refusals{}, Contests: Contests{}, others: sets.Set[string]{}, Crowded: Refusals{}, Seen: &Sightings{}, asked: map[types.UID]string{}, told: map[types.UID]string{}}
	if s.Pods, err = pods.Watch(ctx, c.Client, w.GetNamespace(), selector.String(), changed); err == nil {
		s.Own, err = c.kind.Open(ctx, w, changed)
	}
	if err != nil {
		stop()
		return nil, err
	}
	c.sessions[name] = s
	return s, nil
}

// InFlight returns the session of the workload, or nil.
func (c *Controller[W, X]) InFlight(name cache.ObjectName) *Session[X] {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sessions[name]
}

// EndSession ends the session of the workload, if it has one.
func (c *Controller[W, X]) EndSession(name cache.ObjectName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.sessions[name]; s != nil {
		s.stop()
		delete(c.sessions, name)
	}
}

// ListPods lists the pods that w's selector matches, from the API server: a step
// that lets the built-in controller loose must not rest on a watch that may be behind.
func (c *Controller[W, X]) ListPods(ctx context.Context, w W) ([]*corev1.Pod, error) {
	return listPods(ctx, c.Client, w.GetNamespace(), metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(c.kind.Selector(w))})
}

// listPods lists pods of namespace, or of all if it is empty, from the API server.
func listPods(ctx context.Context, client kubernetes.Interface, namespace string, options metav1.ListOptions) ([]*corev1.Pod, error) {
	list, err := client.CoreV1().Pods(namespace).List(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	all := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return all, nil
}

// Patch writes w, or a subresource of it, and makes the answer visible to the next sync.
func (c *Controller[W, X]) Patch(ctx context.Context, w W, kind types.PatchType, patch []byte, subresources ...string) (written W, err error) {
	answer, err := c.kind.Patch(ctx, w, kind, patch, subresources...)
	if err != nil {
		return written, err
	}
	c.newest.Mutation(answer)
	return c.kind.Decode(answer)
}

func nameOf(w metav1.Object) cache.ObjectName { return cache.MetaObjectToName(w) }
