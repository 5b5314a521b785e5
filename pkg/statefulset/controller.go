// Package statefulset carries resources-only edits of StatefulSets into their
// running pods. Each sync gathers what there is (observe.go), plans the next
// step from it (plan.go) and carries it out (apply.go); nothing is remembered
// that a restarted controller could not read back or find out again.
package statefulset

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
)

// maxRetryInterval bounds the waits between tries of a step that fails. It is how
// long after an obstacle is gone, such as a quota, a rollout goes on at the latest.
const maxRetryInterval = 30 * time.Second

// Options of a Controller.
type Options struct {
	// Workers that sync StatefulSets at the same time; at least 1.
	Workers int
	// DryRun plans and logs, and writes nothing.
	DryRun bool
	// Defaults where a workload says nothing.
	Defaults Defaults
	// Ready gates every sync: while it returns an error, nothing is touched.
	Ready func() error
}

// Controller rolls out resources-only edits of opted-in StatefulSets in place.
type Controller struct {
	client   kubernetes.Interface
	recorder record.EventRecorder
	clock    clock.PassiveClock
	options  Options

	informer cache.SharedIndexInformer
	nodes    cache.SharedIndexInformer
	sets     cache.MutationCache
	queue    workqueue.TypedRateLimitingInterface[cache.ObjectName]

	mu       sync.Mutex
	sessions map[cache.ObjectName]*session
	told     map[cache.ObjectName]time.Time // when the condition was last written
}

// session is what is kept of one set while its rollout is in flight: a cache,
// which can be lost at any time.
type session struct {
	set       types.UID
	watch     *pods.Watch
	revisions map[string]*revision
	refusals  map[types.UID]*refusal
	told      map[types.UID]string // the reason of the last wait of a pod that an event told of
}

// New returns a controller that writes through client and tells through recorder.
func New(ctx context.Context, client kubernetes.Interface, recorder record.EventRecorder, options Options) (*Controller, error) {
	c := &Controller{
		client: client, recorder: recorder, options: options, clock: clock.RealClock{},
		informer: appsinformers.NewFilteredStatefulSetInformer(client, metav1.NamespaceAll, 0, cache.Indexers{},
			func(o *metav1.ListOptions) { o.LabelSelector = labels.Set{api.EnabledLabel: "true"}.String() }),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](50*time.Millisecond, maxRetryInterval),
			workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Name: "statefulset"}),
		sessions: map[cache.ObjectName]*session{},
		told:     map[cache.ObjectName]time.Time{},
	}
	if err := c.informer.SetTransform(pods.Strip); err != nil {
		return nil, fmt.Errorf("stripping watched StatefulSets: %w", err)
	}
	if err := c.watchNodes(); err != nil {
		return nil, err
	}
	c.sets = cache.NewIntegerResourceVersionMutationCache(klog.FromContext(ctx), c.informer.GetStore(), c.informer.GetIndexer(), time.Hour, false)
	enqueue := func(obj any) {
		if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			c.queue.Add(name)
		}
	}
	_, err := c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }, DeleteFunc: enqueue,
	})
	if err != nil {
		return nil, fmt.Errorf("handling StatefulSet events: %w", err)
	}
	return c, nil
}

// watchNodes watches what decides whether a node could hold a pod, and has the
// rollouts in flight looked at again when that changes.
func (c *Controller) watchNodes() error {
	c.nodes = coreinformers.NewNodeInformer(c.client, 0, cache.Indexers{})
	if err := c.nodes.SetTransform(func(obj any) (any, error) {
		if node, ok := obj.(*corev1.Node); ok {
			return &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels, ResourceVersion: node.ResourceVersion},
				Spec:       corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable, Taints: node.Spec.Taints},
				Status:     corev1.NodeStatus{Allocatable: node.Status.Allocatable},
			}, nil
		}
		return obj, nil
	}); err != nil {
		return fmt.Errorf("stripping watched nodes: %w", err)
	}
	_, err := c.nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { c.enqueueInFlight() },
		UpdateFunc: func(before, after any) {
			was, ok := before.(*corev1.Node)
			is, stillOK := after.(*corev1.Node)
			if !ok || !stillOK || !sameRoom(was, is) {
				c.enqueueInFlight()
			}
		},
	})
	if err != nil {
		return fmt.Errorf("handling node events: %w", err)
	}
	return nil
}

// sameRoom tells whether two versions of a node can hold the same pods.
func sameRoom(a, b *corev1.Node) bool {
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) && equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(a.Status, b.Status)
}

func (c *Controller) enqueueInFlight() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.sessions {
		c.queue.Add(name)
	}
}

// Run works until ctx is done.
func (c *Controller) Run(ctx context.Context) {
	defer c.queue.ShutDown()
	go c.informer.RunWithContext(ctx)
	go c.nodes.RunWithContext(ctx)
	if !cache.WaitForNamedCacheSyncWithContext(ctx, c.informer.HasSynced, c.nodes.HasSynced) {
		return
	}
	var workers sync.WaitGroup
	for range c.options.Workers {
		workers.Go(func() { wait.UntilWithContext(ctx, c.work, time.Second) })
	}
	<-ctx.Done()
	c.queue.ShutDown()
	workers.Wait()
}

// EnqueueAll has every opted-in set looked at again.
func (c *Controller) EnqueueAll() {
	for _, key := range c.informer.GetStore().ListKeys() {
		if name, err := cache.ParseObjectName(key); err == nil {
			c.queue.Add(name)
		}
	}
}

func (c *Controller) work(ctx context.Context) {
	for c.workOne(ctx) {
	}
}

func (c *Controller) workOne(ctx context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	logger := klog.FromContext(ctx).WithValues("statefulSet", name)
	again, err := c.sync(klog.NewContext(ctx, logger), name)
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
		c.queue.AddRateLimited(name)
	}
	return true
}

// sync takes the next step of one set, and tells when to look again at the latest.
func (c *Controller) sync(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	if ready := c.options.Ready() == nil; !ready {
		return 0, nil
	}
	set, err := c.get(name)
	if err != nil {
		return 0, err
	}
	if set == nil || !Enabled(set) {
		c.endSession(name)
		c.mu.Lock()
		delete(c.told, name)
		c.mu.Unlock()
		return 0, nil
	}
	if set.Status.ObservedGeneration < set.Generation {
		return 0, nil // its status says nothing about its template yet
	}
	onDelete := set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType
	if !Held(set) && (!onDelete || complete(set)) {
		c.endSession(name)
		return c.tell(ctx, set, plan{Condition: unheldCondition(set)})
	}
	session, err := c.session(ctx, name, set)
	if err != nil || !session.watch.HasSynced() {
		return 0, err // the watch tells when it has
	}
	p, err := c.plan(ctx, session, set)
	if err != nil {
		return 0, err
	}
	return c.apply(ctx, session, set, p)
}

// get returns the newest version of the set that we know, or nil.
func (c *Controller) get(name cache.ObjectName) (*appsv1.StatefulSet, error) {
	obj, exists, err := c.sets.GetByKey(name.String())
	if err != nil || !exists {
		return nil, err
	}
	set, ok := obj.(*appsv1.StatefulSet)
	if !ok {
		return nil, fmt.Errorf("the cache of StatefulSets holds a %T", obj)
	}
	return set, nil
}

func (c *Controller) session(ctx context.Context, name cache.ObjectName, set *appsv1.StatefulSet) (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.sessions[name]; s != nil {
		if s.set == set.UID {
			return s, nil
		}
		s.watch.Stop() // of a set that had this name before
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("reading the selector: %w", err)
	}
	watch, err := pods.NewWatch(ctx, c.client, set.Namespace, selector.String(), func() { c.queue.Add(name) })
	if err != nil {
		return nil, err
	}
	s := &session{set: set.UID, watch: watch, revisions: map[string]*revision{}, refusals: map[types.UID]*refusal{}, told: map[types.UID]string{}}
	c.sessions[name] = s
	return s, nil
}

func (c *Controller) endSession(name cache.ObjectName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.sessions[name]; s != nil {
		s.watch.Stop()
		delete(c.sessions, name)
	}
}

// plan makes the next step from the watched pods. A step that lets the
// StatefulSet controller loose is made again from what the API server has right
// now: a pod that was born a moment ago would be deleted by it.
func (c *Controller) plan(ctx context.Context, s *session, set *appsv1.StatefulSet) (plan, error) {
	watched, err := s.watch.List()
	if err != nil {
		return plan{}, err
	}
	o, err := c.observe(ctx, s, set, watched)
	if err != nil {
		return plan{}, err
	}
	p, err := nextStep(ctx, o)
	if err != nil || !p.movesPartition() {
		return p, err
	}
	list, err := c.client.CoreV1().Pods(set.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(set.Spec.Selector)})
	if err != nil {
		return plan{}, fmt.Errorf("listing pods: %w", err)
	}
	current := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		current[i] = &list.Items[i]
	}
	if o, err = c.observe(ctx, s, set, current); err != nil {
		return plan{}, err
	}
	return nextStep(ctx, o)
}

func (c *Controller) observe(ctx context.Context, s *session, set *appsv1.StatefulSet, all []*corev1.Pod) (observation, error) {
	o := observation{set: set, refusals: s.refusals, defaults: c.options.Defaults, now: c.clock.Now()}
	for _, obj := range c.nodes.GetStore().List() {
		if node, ok := obj.(*corev1.Node); ok {
			o.nodes = append(o.nodes, node)
		}
	}
	names := []string{set.Status.UpdateRevision, set.Status.CurrentRevision}
	for _, pod := range all {
		if metav1.IsControlledBy(pod, set) {
			o.pods = append(o.pods, pod)
			names = append(names, pod.Labels[appsv1.ControllerRevisionHashLabelKey])
		}
	}
	for _, name := range names {
		if _, known := s.revisions[name]; !known {
			if err := c.readRevisions(ctx, s, set); err != nil {
				return observation{}, err
			}
			if _, still := s.revisions[name]; !still {
				s.revisions[name] = nil // gone: do not ask for it again
			}
		}
	}
	if s.revisions[set.Status.UpdateRevision] == nil {
		delete(s.revisions, set.Status.UpdateRevision)
		return observation{}, fmt.Errorf("the set's update revision %q is not in the history", set.Status.UpdateRevision)
	}
	o.revisions = s.revisions
	return o, nil
}

// readRevisions reads the history of the set. The template of a revision never changes.
func (c *Controller) readRevisions(ctx context.Context, s *session, set *appsv1.StatefulSet) error {
	list, err := c.client.AppsV1().ControllerRevisions(set.Namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(set.Spec.Selector)})
	if err != nil {
		return fmt.Errorf("listing ControllerRevisions: %w", err)
	}
	for i := range list.Items {
		stored := &list.Items[i]
		if !metav1.IsControlledBy(stored, set) {
			continue
		}
		if s.revisions[stored.Name], err = newRevision(stored); err != nil {
			return err
		}
	}
	return nil
}
