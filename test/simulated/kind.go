package simulated

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
)

// Kind is a kind of workload that lets a test see, and choose, what its controller sees.
type Kind[W controller.Workload, X controller.Own] struct {
	controller.Kind[W, X]

	// Workloads and Pods are what the controller watches; a test may set the pods before.
	Workloads *Workloads
	Pods      cache.SharedIndexInformer
	// Session, Planned and Watched are those of the last plan: Watched are its pods as the
	// watch has them, the controller's own writes included.
	Session *controller.Session[W, X]
	Planned W
	Watched []*corev1.Pod
	// Own is what the last session keeps.
	Own X

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

// NewInformer is that of controller.Kind.
func (k *Kind[W, X]) NewInformer(namespace string, tweak func(*metav1.ListOptions)) cache.SharedIndexInformer {
	k.Workloads = &Workloads{SharedIndexInformer: k.Kind.NewInformer(namespace, tweak)}
	return k.Workloads
}

// NewPodInformer is that of controller.Kind.
func (k *Kind[W, X]) NewPodInformer(namespace, selector string) cache.SharedIndexInformer {
	if _, chosen := k.Pods.(View); chosen {
		return k.Pods
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.Pods = k.Kind.NewPodInformer(namespace, selector)
	return k.Pods
}

// Open is that of controller.Kind.
func (k *Kind[W, X]) Open(ctx context.Context, w W, changed func()) (X, error) {
	own, err := k.Kind.Open(ctx, w, changed)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.Own, k.open = own, ctx
	return own, err
}

// InFlight reports whether a session is open.
func (k *Kind[W, X]) InFlight() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.open != nil && k.open.Err() == nil
}

// Gather is that of controller.Kind.
func (k *Kind[W, X]) Gather(ctx context.Context, s *controller.Session[W, X], w W, list controller.ListPods, live bool) (controller.Observation, error) {
	k.Session, k.Planned = s, w
	return k.Kind.Gather(ctx, s, w, func() ([]*corev1.Pod, error) {
		pods, err := list()
		if !live {
			k.Watched = pods
		}
		return pods, err
	}, live)
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
