package estimator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/watchdog"
)

// History is what containers have used: [history.Store].
type History interface {
	estimate.Source
	// Refresh reads what is missing up to now. It may be called again after an error.
	Refresh(ctx context.Context, now time.Time) error
	// Complete reports whether all has been read that estimates are made from, and Tried whether
	// all of it up to the last Refresh has been, but for what cannot be read.
	Complete() bool
	Tried() bool
	// Missing is how much has not been read.
	Missing() time.Duration
	// Until is up to when it has been read.
	Until() time.Time
	// Keys are those that there are samples of.
	Keys() []estimate.Key
}

// Recorder records events of objects.
type Recorder interface {
	Event(object runtime.Object, eventType, reason, message string)
	// Once records an event that an object gets once, whoever records it again.
	Once(object runtime.Object, eventType, reason, message string)
}

// Options of an Estimator.
type Options struct {
	// Ladder that the estimates come from. Where its scopes have the cluster, namespaces are
	// told of images that are new to them.
	Ladder estimate.Ladder
	// MaxImages is of how many.
	MaxImages int
	// RoomBound is one of [RoomBounds]; a namespace may say otherwise.
	RoomBound string
	// Roles tells containers of the same image apart by their names.
	Roles bool
	// Refresh is how often the history is read.
	Refresh time.Duration
	// Publish is the least time between two writes of the same table.
	Publish time.Duration
	// RoomInterval is the least time between a write of a table and one for nothing but the room that
	// nodes have, which changes all the time.
	RoomInterval time.Duration
	// Afterwards says how pods are resized as evidence grows; nil if they are not.
	Afterwards *Afterwards
	Metrics    *Metrics
	// Watchdog is told of what is under way; nil hears nothing. Whoever makes the History notes
	// progress of [Reading] there at each answer.
	Watchdog *watchdog.Watchdog
	// Clock is that of the machine if it is nil.
	Clock clock.PassiveClock
}

const (
	// workers is how many namespaces are looked at the same time.
	workers = 4
	// writesPerSecond bounds how many tables are written, and writesAtOnce in a burst.
	writesPerSecond, writesAtOnce = 10, 20
	// patience is how long what fails waits before it is tried again, at first and at most.
	patience, mostPatience = time.Second, time.Minute
)

// What may be under way, for the watchdog.
const (
	Reading    = "reading the history"
	resizing   = "resizing pods"
	publishing = "publishing the estimates for namespace "
)

// Tests want less of these.
var (
	// settleTime is how long a change waits for others that come with it.
	settleTime = 200 * time.Millisecond
	// roomInterval is how often it is looked how much room nodes have.
	roomInterval = 2 * time.Second
)

// Estimator publishes estimates.
type Estimator struct {
	options  Options
	client   kubernetes.Interface
	history  History
	recorder Recorder
	clock    clock.PassiveClock
	metrics  *Metrics
	watched  *watched
	queue    workqueue.TypedRateLimitingInterface[string]
	// writes and resizes bound how much is written.
	writes, resizes flowcontrol.RateLimiter

	mu    sync.Mutex
	book  *book // nil before all of the history has been tried
	room  capacity.Load
	stale bool // the room; before the first look, too: who handles changes may be told of them after it
	// autoscaled: a node autoscaler is in sight.
	autoscaled bool
	tables     map[string]*tableState
	// told are the pods that have been told of. It is for the goroutine that handles changes of pods.
	told map[types.UID]struct{}
	// refused are the pods that the API server would not resize, and since when. It is for the
	// goroutine that reads the history.
	refused map[types.UID]time.Time
}

// New returns an Estimator; Run starts it.
func New(client kubernetes.Interface, history History, recorder Recorder, options Options) (*Estimator, error) {
	w, err := newWatched(client)
	if err != nil {
		return nil, err
	}
	e := &Estimator{
		options: options, client: client, history: history, recorder: recorder, clock: options.Clock, metrics: options.Metrics, watched: w,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](patience, mostPatience),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "estimates"}),
		writes:  flowcontrol.NewTokenBucketRateLimiter(writesPerSecond, writesAtOnce),
		resizes: flowcontrol.NewTokenBucketRateLimiter(resizesPerSecond, 1),
		stale:   true, tables: map[string]*tableState{}, told: map[types.UID]struct{}{}, refused: map[types.UID]time.Time{},
	}
	if e.clock == nil {
		e.clock = clock.RealClock{}
	}
	return e, e.handle()
}

// handle has what changes in the cluster looked at.
func (e *Estimator) handle() error {
	w := e.watched
	for _, informer := range []cache.SharedIndexInformer{w.namespaces, w.limits, w.quotas, w.tables} {
		if err := onChange(informer, func(before, after any) { e.changed(before, after) }); err != nil {
			return err
		}
	}
	w.nodes.OnChange(e.roomChanged)
	return onChange(w.pods, e.podChanged)
}

// onChange has f called with what was there before and what is there now, one of which may be nil.
func onChange(informer cache.SharedIndexInformer, f func(before, after any)) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(after any) { f(nil, after) },
		UpdateFunc: f,
		DeleteFunc: func(before any) {
			if unknown, is := before.(cache.DeletedFinalStateUnknown); is {
				before = unknown.Obj
			}
			f(before, nil)
		},
	})
	if err != nil {
		return fmt.Errorf("handling changes: %w", err)
	}
	return nil
}

// changed has the namespace looked at that an object is in, or is.
func (e *Estimator) changed(before, after any) {
	object := after
	if object == nil {
		object = before
	}
	switch o := object.(type) {
	case *corev1.Namespace:
		e.enqueue(o.Name)
	case *corev1.LimitRange:
		e.enqueue(o.Namespace)
	case *corev1.ConfigMap:
		e.enqueue(o.Namespace)
	case *corev1.ResourceQuota:
		e.enqueue(o.Namespace)
	}
}

// podChanged looks at what a pod takes of its node, whether it opts in, and what is to be told.
func (e *Estimator) podChanged(before, after any) {
	was, _ := before.(*pod)
	is, _ := after.(*pod)
	if was == nil || is == nil || was.node != is.node || was.load != is.load {
		e.roomChanged()
	}
	if one, other := optsInItself(was), optsInItself(is); one != other {
		e.enqueue(cmp.Or(is, was).Namespace)
	}
	if is == nil {
		delete(e.told, was.UID)
		return
	}
	e.tell(is)
}

func (e *Estimator) enqueue(namespace string) { e.queue.AddAfter(namespace, settleTime) }

// enqueueAll has all namespaces looked at.
func (e *Estimator) enqueueAll() {
	for _, namespace := range e.watched.namespaces.GetStore().ListKeys() {
		e.enqueue(namespace)
	}
}

func (e *Estimator) roomChanged() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stale = true
}

// Ready returns an error while it runs and not all has been listed yet that decides what is
// published. One that waits for its turn is ready.
func (e *Estimator) Ready() error {
	if e.metrics.leads() && !e.watched.synced() {
		return errors.New("not everything that estimates depend on has been listed yet")
	}
	return nil
}

// Run works until ctx is done.
func (e *Estimator) Run(ctx context.Context) {
	defer e.metrics.lead(e)()
	var all sync.WaitGroup
	defer all.Wait()
	defer e.queue.ShutDown()
	all.Go(func() { e.watched.run(ctx) })
	all.Go(func() { e.refresh(ctx) })
	err := wait.PollUntilContextCancel(ctx, settleTime, true, func(context.Context) (bool, error) { return e.watched.synced(), nil })
	if err != nil {
		return // it is to end
	}
	e.lookForAutoscaler(ctx)
	e.lookForRoom()
	e.enqueueAll()
	for range workers {
		all.Go(func() { e.work(ctx) })
	}
	all.Go(func() {
		wait.UntilWithContext(ctx, func(context.Context) { e.lookForRoom() }, roomInterval)
	})
	all.Go(func() { wait.UntilWithContext(ctx, e.lookForAutoscaler, autoscalerInterval) })
	<-ctx.Done()
}

// refresh reads the history again and again.
func (e *Estimator) refresh(ctx context.Context) {
	failed := wait.Backoff{Duration: patience, Factor: 2, Steps: 30, Cap: min(mostPatience, e.options.Refresh)}
	again := failed
	for ctx.Err() == nil {
		now := e.clock.Now()
		e.options.Watchdog.Progress(Reading)
		err := e.history.Refresh(ctx, now)
		e.options.Watchdog.Done(Reading)
		next := e.options.Refresh
		tried := e.history.Tried()
		if tried {
			e.open(ctx, newBook(e.history, e.options.Ladder, e.options.MaxImages, now))
		}
		switch {
		case err == nil:
			again = failed
		case tried:
			klog.FromContext(ctx).Error(err, "Could not read some of the history. Estimates that were made from more of it stay", "missing", e.history.Missing().String(), "again", next.String())
		case ctx.Err() == nil: // the book stays: what has aged meanwhile is not replaced by anything newer
			next = again.Step()
			klog.FromContext(ctx).Error(err, "Could not read the history", "again", next.String())
		}
		select {
		case <-ctx.Done():
		case <-time.After(next):
		}
	}
}

// open has what a new book says published, and pods resized by it.
func (e *Estimator) open(ctx context.Context, b *book) {
	e.mu.Lock()
	if e.book == nil {
		klog.FromContext(ctx).Info("The history has been read", "images", b.images, "missing", e.history.Missing().String())
	}
	e.book = b
	e.mu.Unlock()
	e.enqueueAll()
	if e.options.Afterwards != nil && e.watched.synced() {
		e.resizeAll(ctx)
	}
}

// lookForRoom has all tables brought up to date if nodes have more room than before, or less.
func (e *Estimator) lookForRoom() {
	e.mu.Lock()
	stale := e.stale
	e.stale = false
	e.mu.Unlock()
	if !stale {
		return
	}
	room := largest(e.watched.nodes.List(), loads(typed[*pod](e.watched.pods.GetStore().List())))
	e.mu.Lock()
	same := room == e.room
	e.room = room
	e.mu.Unlock()
	if !same {
		for _, namespace := range e.watched.allOptedIn() {
			e.enqueue(namespace)
		}
	}
}

// current is what is known now, apart from what is watched.
func (e *Estimator) current() (b *book, room capacity.Load) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.book, e.room
}
