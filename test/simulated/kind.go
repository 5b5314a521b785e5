package simulated

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Kind is a kind of workload that lets a test see, and choose, what its controller sees.
type Kind[W controller.Workload, K controller.KindState] struct {
	controller.Kind[W, K]

	// Workloads and Pods are what the controller watches; a test may set the pods before.
	Workloads *Workloads
	Pods      cache.SharedIndexInformer
	// Session, Planned and Watched are those of the last plan: Watched are its pods as the
	// watch has them, the controller's own writes included.
	Session *controller.Session[W, K]
	Planned W
	Watched []*corev1.Pod
	// KindState is what the last session keeps.
	KindState K

	mu   sync.Mutex
	open context.Context
}

// Workloads is an informer that shows also what a test puts into it, stripped as the controller
// wants it.
type Workloads struct {
	cache.SharedIndexInformer

	strip cache.TransformFunc
}

// SetTransform strips what is shown.
func (w *Workloads) SetTransform(strip cache.TransformFunc) error {
	w.strip = strip
	return w.SharedIndexInformer.SetTransform(strip)
}

// Show has the workload be shown as it is now.
func (w *Workloads) Show(workload any) error {
	stripped, err := w.strip(workload)
	if err != nil {
		return err
	}
	return w.GetStore().Update(stripped)
}

// informed is an informer of which is known what it has told the controller.
type informed struct {
	cache.SharedIndexInformer

	mu       sync.Mutex
	synced   func() bool
	versions map[string]string // of the pods, by name
}

// AddEventHandler notes what the handler is told.
func (i *informed) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	registration, err := i.SharedIndexInformer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			handler.OnAdd(obj, false)
			i.note(obj)
		},
		UpdateFunc: func(old, obj any) {
			handler.OnUpdate(old, obj)
			i.note(obj)
		},
		DeleteFunc: func(obj any) {
			handler.OnDelete(obj)
			i.mu.Lock()
			defer i.mu.Unlock()
			if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
				delete(i.versions, name.Name)
			}
		},
	})
	if err == nil {
		i.synced = registration.HasSynced
	}
	return registration, err
}

func (i *informed) note(obj any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	pod := obj.(*corev1.Pod)
	i.versions[pod.Name] = pod.ResourceVersion
}

// has reports whether the controller has been told of just these pods.
func (i *informed) has(pods map[string]*corev1.Pod) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	same := func(version string, pod *corev1.Pod) bool { return version == pod.ResourceVersion }
	return i.synced() && maps.EqualFunc(i.versions, pods, same)
}

// Access is that of controller.Kind.
func (k *Kind[W, K]) Access() controller.Access[W] {
	access := k.Kind.Access()
	newInformer, newPodInformer := access.NewInformer, access.NewPodInformer
	access.NewInformer = func(namespace string, tweak func(*metav1.ListOptions)) cache.SharedIndexInformer {
		k.Workloads = &Workloads{SharedIndexInformer: newInformer(namespace, tweak)}
		return k.Workloads
	}
	access.NewPodInformer = func(namespace, selector string) cache.SharedIndexInformer {
		if _, chosen := k.Pods.(View); chosen {
			return k.Pods
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.Pods = &informed{SharedIndexInformer: newPodInformer(namespace, selector), versions: map[string]string{}}
		return k.Pods
	}
	return access
}

// Open is that of controller.Kind.
func (k *Kind[W, K]) Open(ctx context.Context, w W, changed func()) (K, error) {
	own, err := k.Kind.Open(ctx, w, changed)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.KindState, k.open = own, ctx
	return own, err
}

// InFlight reports whether a session is open.
func (k *Kind[W, K]) InFlight() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.open != nil && k.open.Err() == nil
}

// Gather is that of controller.Kind.
func (k *Kind[W, K]) Gather(ctx context.Context, s *controller.Session[W, K], w W, list controller.ListPods, live bool) (rollout.Observation, error) {
	k.Session, k.Planned = s, w
	o, err := k.Kind.Gather(ctx, s, w, func() ([]*corev1.Pod, error) {
		pods, err := list()
		if !live {
			k.Watched = pods
		}
		return pods, err
	}, live)
	return twice{o}, err
}

// twice is an observation that plans with what is kept of the pods, and without.
type twice struct{ rollout.Observation }

// Plan is that of rollout.Observation. It panics if the two plans are not the same.
func (o twice) Plan(f rollout.Facts) (rollout.Plan, error) {
	p, err := Read(o.Observation.Plan(f))
	f.Cache = nil
	afresh, errAfresh := o.Observation.Plan(f)
	if got, want := described(p, err), described(afresh, errAfresh); got != want {
		panic(fmt.Sprintf("with what is kept of the pods, the plan is\n%s\nand without\n%s", got, want))
	}
	return p, err
}

// described is all that follows from a plan. Of the time of the next look, only whether there
// is one: a look that is kept does not put it off.
func described(p rollout.Plan, err error) string {
	said := fmt.Sprintln(p.Condition, p.Urgency, p.Started, p.Revision.Name, p.Hold, p.Updated, p.Total, p.RequeueAfter > 0, p.Unready, p.NothingUnderWay(), err)
	for _, v := range p.Verdicts {
		v := *v
		v.Until, v.Member.Unplaceable.Until = time.Time{}, time.Time{}
		said += fmt.Sprintln(v.Member.Name, v.Member.Index, v.Member.Updated, v.Member.Labelled, v.Member.Available, v.Member.Differs, v.Member.Brings,
			v.Member.Sighting, v.Member.Policy, v.Member.Why, v.Member.Refusal, v.Member.Unplaceable, v.Member.Barred, v.Member.Lost,
			v.Observed, v.Says, v.State, v.Decision, v.Why, v.Cause, v.Reason, v.Message, v.Unready)
	}
	for _, m := range p.Resized {
		said += fmt.Sprintln("resized", m.Name)
	}
	for _, wait := range p.Waits {
		said += fmt.Sprintln(wait.Member.Name, "waits:", wait.Reason, wait.Message)
	}
	for _, r := range slices.Concat(p.Restart, p.Replaced) {
		said += fmt.Sprintln("restart", r.Member.Name, r.Reason, r.Now, r.Cause)
	}
	for _, w := range p.Writes {
		said += fmt.Sprintln(w.String(), rollout.NeedsLiveRead(w))
	}
	return said
}

// Defaults are those of the flags.
var Defaults = policy.Defaults{DeferredTimeout: 5 * time.Minute, ErrorTimeout: 10 * time.Minute, BoosterTimeout: 5 * time.Minute, NotReadyTimeout: time.Minute, ResizePolicy: policy.LiveResizeable}

// LargeNode can hold every pod of the tests.
func LargeNode() *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("16Gi")}
	return node
}

// Nodes are those of a test.
type Nodes struct{ nodes []*corev1.Node }

// NewNodes returns these nodes.
func NewNodes(nodes ...*corev1.Node) *Nodes { return &Nodes{nodes} }

// Set has these be there from now on.
func (n *Nodes) Set(nodes ...*corev1.Node) { n.nodes = nodes }

// List returns the nodes.
func (n *Nodes) List() []*corev1.Node { return n.nodes }

// OnChange does nothing: the test says when to look.
func (*Nodes) OnChange(func()) {}

// HasSynced is always true.
func (*Nodes) HasSynced() bool { return true }

// Deadline is that of controller.Deadlined; there is none where the kind has none.
func (k *Kind[W, K]) Deadline(w W) (time.Duration, bool) {
	if d, is := k.Kind.(controller.Deadlined[W]); is {
		return d.Deadline(w)
	}
	return 0, false
}

// NewDeadline is that of controller.Deadlined.
func (k *Kind[W, K]) NewDeadline(w W, exceeded bool, now metav1.Time) any {
	return k.Kind.(controller.Deadlined[W]).NewDeadline(w, exceeded, now)
}
