// Package controller is the engine for every kind of workload. It watches opted-in
// workloads, keeps a session for each whose rollout is in flight, and syncs it (sync.go). It
// asks for resizes, and records what happens in conditions, events and metrics. What may
// happen next is decided by package rollout. What Kubernetes does differently for a kind is
// in the kind's own package, behind [Kind] (kind.go).
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/mutationcache"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// maxRetryInterval bounds the time between tries of a step that fails. When the obstacle is
// gone, a rollout goes on after that time at the latest.
const maxRetryInterval = 30 * time.Second

// Nodes is a cache of the nodes that pods may run on.
type Nodes interface {
	// List returns the nodes. They are shared: do not change them.
	List() []*corev1.Node
	// OnChange has f called whenever a node comes, goes, or may hold what it could not hold
	// before.
	OnChange(f func())
	// HasSynced reports whether the first list is complete.
	HasSynced() bool
}

// Controller rolls out resources-only edits of the opted-in workloads of one kind in place.
type Controller[W Workload, K KindState] struct {
	kind     Kind[W, K]
	access   Access[W]
	client   kubernetes.Interface
	recorder Recorder
	clock    clock.PassiveClock
	nodes    Nodes
	options  Options
	metrics  kindMetrics
	informer cache.SharedIndexInformer
	newest   cache.MutationCache
	queue    workqueue.TypedRateLimitingInterface[cache.ObjectName]

	mu       sync.Mutex
	sessions map[cache.ObjectName]*Session[W, K]
	memories map[cache.ObjectName]*memory // of those that have a session, or had one that was put away
	awaited  map[cache.ObjectName]acknowledgement
	opening  map[bool]*opening // of those that are held, and of others
	messages map[cache.ObjectName]message
	// unanswered are workloads as they were held, of which a request to let go has had no answer.
	unanswered map[cache.ObjectName]W
	withdrawn  map[cache.ObjectName]time.Time // when our conditions were taken from workloads that had been opted out
	rolling    sets.Set[cache.ObjectName]     // with a rollout whose end is not counted yet
}

// New returns a controller of kind that writes through client and records through recorder.
func New[W Workload, K KindState](ctx context.Context, kind Kind[W, K], client kubernetes.Interface, recorder Recorder, nodes Nodes, options Options) (*Controller[W, K], error) {
	access := kind.Access()
	c := &Controller[W, K]{
		client: client, recorder: recorder, options: options, clock: options.Clock, nodes: nodes,
		kind: kind, access: access,
		informer: access.NewInformer(options.Namespace, func(o *metav1.ListOptions) { o.LabelSelector = labels.Set{api.EnabledLabel: "true"}.String() }),
		sessions: map[cache.ObjectName]*Session[W, K]{},
		memories: map[cache.ObjectName]*memory{},
		awaited:  map[cache.ObjectName]acknowledgement{},
		messages: map[cache.ObjectName]message{}, unanswered: map[cache.ObjectName]W{},
		withdrawn: map[cache.ObjectName]time.Time{},
		rolling:   sets.Set[cache.ObjectName]{},
	}
	if c.clock == nil {
		c.clock = clock.RealClock{}
	}
	if c.options.Ledger == nil {
		c.options.Ledger = capacity.NewLedger()
	}
	if c.options.LeftOut == nil {
		c.options.LeftOut = func(string) bool { return false }
	}
	c.options.Sessions = cmp.Or(options.Sessions, DefaultSessions)
	most := maxOpening(c.options.Sessions)
	c.opening = map[bool]*opening{true: newOpening(most, c.expected), false: newOpening(most, c.expected)}
	c.queue = newQueue(strings.ToLower(access.Kind), c.held)
	context.AfterFunc(ctx, c.queue.ShutDown) // else one that never runs would stay, with all that it has
	if err := c.informer.SetTransform(mutationcache.Strip[W](c.strip).Transform); err != nil {
		return nil, fmt.Errorf("stripping watched %ss: %w", access.Kind, err)
	}
	// What the watch has brought, too, goes at the next look: only what it has not counts.
	c.newest = cache.NewIntegerResourceVersionMutationCacheWithOptions(klog.FromContext(ctx), c.informer.GetStore(),
		cache.MutationCacheOptions{TTL: time.Hour, MaxCacheSize: 1000})
	enqueue := func(obj any) {
		if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			c.queue.Add(name)
		}
	}
	// A watch that begins anew may bring older versions once more. What was seen stays until a newer one comes.
	update := func(old, obj any) {
		c.newest.Mutation(old)
		enqueue(obj)
	}
	_, err := c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: update, DeleteFunc: enqueue})
	if err != nil {
		return nil, fmt.Errorf("handling %s events: %w", access.Kind, err)
	}
	nodes.OnChange(c.enqueueInFlight)
	c.metrics = options.Metrics.of(access.Kind, c.collect)
	return c, nil
}

func newQueue(name string, held func(cache.ObjectName) bool) workqueue.TypedRateLimitingInterface[cache.ObjectName] {
	type workload = cache.ObjectName
	fair := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[workload]{Name: name, Queue: newFairQueue(held)})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[workload]{Name: name, Queue: fair})
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[workload](50*time.Millisecond, maxRetryInterval),
		workqueue.TypedRateLimitingQueueConfig[workload]{Name: name, DelayingQueue: delaying})
}

// held reports whether the rollout of a workload is held, as far as the watch has shown.
func (c *Controller[W, K]) held(name cache.ObjectName) bool {
	obj, exists, err := c.informer.GetStore().GetByKey(name.String())
	w, is := obj.(metav1.Object)
	return err == nil && exists && is && policy.Held(w)
}

func (c *Controller[W, K]) enqueueInFlight() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.sessions {
		c.queue.Add(name)
	}
}

// Run syncs workloads until ctx is done. It waits for the nodes, which the caller runs.
func (c *Controller[W, K]) Run(ctx context.Context) {
	defer c.queue.ShutDown()
	go c.informer.RunWithContext(ctx)
	if c.access.Watch != nil {
		if err := c.access.Watch(ctx, c.queue.Add); err != nil {
			klog.FromContext(ctx).Error(err, "Could not begin to watch", "kind", c.access.Kind)
			return
		}
	}
	if !cache.WaitForNamedCacheSyncWithContext(ctx, c.informer.HasSynced, c.nodes.HasSynced) {
		return
	}
	c.options.Ledger.Await(c.promised()...)
	c.options.Ledger.Forget(c.access.Kind)
	var workers sync.WaitGroup
	for range c.options.Workers {
		workers.Go(func() { wait.UntilWithContext(ctx, c.work, time.Second) })
	}
	workers.Go(func() { c.findOptedOut(ctx) })
	<-ctx.Done()
	c.queue.ShutDown()
	workers.Wait()
}

// promised are the accounts of the workloads of which somebody may have decided restarts that do not show yet: their rollout is held, or was
// handed over and is not done.
func (c *Controller[W, K]) promised() []string {
	var accounts []string
	for _, obj := range c.informer.GetStore().List() {
		w, err := c.access.Decode(obj)
		if err == nil && policy.Enabled(w) && !c.options.LeftOut(w.GetNamespace()) && (policy.Held(w) || c.kind.BuiltInStatus(w).Rolls(false)) {
			accounts = append(accounts, c.account(w))
		}
	}
	return accounts
}

// EnqueueAll requeues every opted-in workload.
func (c *Controller[W, K]) EnqueueAll() {
	for _, key := range c.informer.GetStore().ListKeys() {
		if name, err := cache.ParseObjectName(key); err == nil {
			c.queue.Add(name)
		}
	}
}

func (c *Controller[W, K]) work(ctx context.Context) {
	for c.workOne(ctx) {
	}
}

// syncOf names a sync for the watchdog.
func (c *Controller[W, K]) syncOf(name cache.ObjectName) string {
	return "the sync of " + c.access.Kind + " " + name.String()
}

func (c *Controller[W, K]) workOne(ctx context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	c.options.Watchdog.Progress(c.syncOf(name))
	defer c.options.Watchdog.Done(c.syncOf(name))
	logger := klog.FromContext(ctx).WithValues("kind", c.access.Kind, "workload", name)
	requeueAfter, err := c.syncRecovered(klog.NewContext(ctx, logger), name)
	switch {
	case err == nil:
		c.queue.Forget(name)
		if requeueAfter > 0 {
			c.queue.AddAfter(name, requeueAfter)
		}
	case errors.Is(err, errPanicked):
		// What it has half noted is forgotten, as by a process that begins anew. That it has to open a session first would reset a backoff.
		c.endSession(name)
		logger.Error(err, "Could not take the next step")
		c.metrics.failed()
		c.recordFailure(name, err)
		c.queue.AddAfter(name, maxRetryInterval)
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		// Something changed since we looked. Its event requeues the workload, or the next try does.
		logger.V(4).Info("Looking again", "reason", err.Error())
		c.queue.AddRateLimited(name)
	default:
		logger.Error(err, "Could not take the next step")
		c.metrics.failed()
		c.queue.AddRateLimited(name)
		if c.queue.NumRequeues(name) > unrecordedFailures {
			c.recordFailure(name, err)
		}
	}
	return true
}

// syncRecovered is Sync, where a panic is an error of that workload: one that we cannot cope with must not end the process, and each one
// after it, for all others. So does controller-runtime (RecoverPanic of its Controller).
func (c *Controller[W, K]) syncRecovered(ctx context.Context, name cache.ObjectName) (requeueAfter time.Duration, err error) {
	defer recovered(ctx, &err)
	return c.Sync(ctx, name)
}

var errPanicked = errors.New("internal error, panic")

// recovered, deferred, makes an error of a panic, and logs its stack, as HandleCrash of k8s.io/apimachinery/pkg/util/runtime does before it
// panics again.
func recovered(ctx context.Context, err *error) {
	if r := recover(); r != nil {
		for _, handle := range utilruntime.PanicHandlers {
			handle(ctx, r)
		}
		*err = fmt.Errorf("%w: %v", errPanicked, r)
	}
}

// abandon forgets all that is known of a workload that is gone or opted out, and counts its
// rollout as abandoned.
func (c *Controller[W, K]) abandon(name cache.ObjectName) {
	c.endSession(name)
	c.options.Ledger.Forget(c.access.Kind + " " + name.String())
	c.mu.Lock()
	delete(c.messages, name)
	delete(c.unanswered, name)
	c.mu.Unlock()
	c.ended(name, resultAbandoned, 0)
}

// strip returns what is kept in memory of a workload: no template, which is the larger part, and no annotation that nothing
// reads, which can be as large as 256 KiB. Those of thousands may be held, or wait for somebody.
func (c *Controller[W, K]) strip(obj any) (w W, err error) {
	if w, err = c.access.Decode(obj); err != nil {
		return w, err
	}
	_, atRest := c.atRest(w)
	atRest = atRest && !c.kind.BuiltInStatus(w).Rolls(policy.Held(w))
	w = c.access.Strip(w, atRest)
	keepWritten(w)
	annotations := maps.Clone(w.GetAnnotations())
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		revision := strings.HasPrefix(key, "deployment.kubernetes.io/") || key == appsv1.DeprecatedTemplateGeneration
		return !revision && !strings.HasPrefix(key, "inplace-rollout.io/")
	})
	w.SetAnnotations(annotations)
	return w, nil
}

// keepWritten leaves nothing of managedFields but when the workload was last edited, and when it was written otherwise, and, where its user
// has had a rollout tried again, when that was written, and when our status was.
func keepWritten(w metav1.Object) {
	var keep []metav1.ManagedFieldsEntry
	edits := func(entry metav1.ManagedFieldsEntry) bool { return entry.Subresource == "" }
	if slices.ContainsFunc(w.GetManagedFields(), ofTemplate) {
		edits = ofTemplate
	}
	for _, of := range []string{"", "status"} { // the second for all that edit nothing
		last := metav1.ManagedFieldsEntry{Subresource: of}
		for _, entry := range w.GetManagedFields() {
			if edits(entry) == (of == "") && entry.Time != nil && (last.Time == nil || last.Time.Before(entry.Time)) {
				last.Time = entry.Time
			}
		}
		if last.Time != nil {
			keep = append(keep, last)
		}
	}
	if w.GetAnnotations()[api.RetryAnnotation] != "" {
		for _, entry := range w.GetManagedFields() {
			if isStatus(entry) || asksAgain(entry) {
				entry.FieldsV1 = nil
				keep = append(keep, entry)
			}
		}
	}
	w.SetManagedFields(keep)
}

// ofTemplate reports whether the entry is of somebody who has written fields of the pod template.
func ofTemplate(entry metav1.ManagedFieldsEntry) bool {
	return entry.Subresource == "" && strings.Contains(entry.FieldsV1.GetRawString(), `"f:template"`)
}

// isStatus reports whether the entry is about the status that we write.
func isStatus(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == api.FieldManager && entry.Subresource == "status"
}

// asksAgain reports whether the entry is of the command retry, which writes nothing else.
func asksAgain(entry metav1.ManagedFieldsEntry) bool { return entry.Manager == api.RetryFieldManager }

// askedAgain reports whether the user of the workload has had its rollout tried again since we last wrote its status, by the
// clock of the API server. So a controller that takes over tells whether somebody before it has seen that.
func askedAgain(w metav1.Object) bool {
	last := func(of func(metav1.ManagedFieldsEntry) bool) (at time.Time) {
		for _, entry := range w.GetManagedFields() {
			if of(entry) && entry.Time != nil && entry.Time.After(at) {
				at = entry.Time.Time
			}
		}
		return at
	}
	wrote := last(isStatus)
	return !wrote.IsZero() && last(asksAgain).After(wrote)
}

// written returns when the workload was last written, by the clock of the API server; nil if that is
// not known.
func written(w metav1.Object) (last *metav1.Time) {
	for _, entry := range w.GetManagedFields() {
		if last == nil || entry.Time != nil && last.Before(entry.Time) {
			last = entry.Time
		}
	}
	return last
}

// atRest reports whether nothing in the workload is ours to do now: see [rollout.BuiltInStatus.AtRest].
func (c *Controller[W, K]) atRest(w W) (rollout.Plan, bool) {
	return c.kind.BuiltInStatus(w).AtRest(policy.Held(w), c.access.Condition(w))
}

// get returns the newest version of the workload that we know; the one that is watched, if it is watched up to there.
func (c *Controller[W, K]) get(name cache.ObjectName) (w W, exists bool, err error) {
	w, exists, err = c.decode(c.newest.GetByKey(name.String()))
	if err == nil && exists && mutationcache.Reaches(c.informer.GetStore(), w.GetResourceVersion()) {
		return c.decode(c.informer.GetStore().GetByKey(name.String()))
	}
	return w, exists, err
}

func (c *Controller[W, K]) decode(obj any, exists bool, err error) (w W, is bool, _ error) {
	if err == nil && exists {
		w, err = c.access.Decode(obj)
	}
	return w, exists && err == nil, err
}

// patch writes w, or a subresource of it. It returns what is stored then, which the next sync
// sees too.
func (c *Controller[W, K]) patch(ctx context.Context, w W, kind types.PatchType, patch []byte, subresources ...string) (written W, err error) {
	answer, err := c.access.Patch(ctx, w, kind, patch, subresources...)
	if err != nil {
		return written, err
	}
	stripped, err := c.strip(answer)
	if err != nil {
		return written, err
	}
	c.newest.Mutation(stripped)
	return c.access.Decode(answer)
}
