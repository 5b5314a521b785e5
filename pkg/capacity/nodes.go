package capacity

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Nodes watches what decides whether a node could hold a pod, and whether it is there.
type Nodes struct {
	informer cache.SharedIndexInformer

	mu      sync.Mutex
	listed  []*corev1.Node // nil after a change that matters
	changed []func()
}

// NewNodes returns the watch of all nodes; Run starts it.
func NewNodes(client kubernetes.Interface) (*Nodes, error) {
	n := &Nodes{informer: coreinformers.NewNodeInformer(client, 0, cache.Indexers{})}
	if err := n.informer.SetTransform(func(obj any) (any, error) {
		if node, ok := obj.(*corev1.Node); ok {
			return &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels, ResourceVersion: node.ResourceVersion, CreationTimestamp: node.CreationTimestamp},
				Spec:       corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable, Taints: node.Spec.Taints},
				Status: corev1.NodeStatus{
					Allocatable: node.Status.Allocatable, Conditions: readiness(node), DeclaredFeatures: node.Status.DeclaredFeatures,
					NodeInfo: corev1.NodeSystemInfo{KubeletVersion: node.Status.NodeInfo.KubeletVersion},
				},
			}, nil
		}
		return obj, nil
	}); err != nil {
		return nil, fmt.Errorf("stripping watched nodes: %w", err)
	}
	_, err := n.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { n.notify() },
		DeleteFunc: func(any) { n.notify() },
		UpdateFunc: func(before, after any) {
			was, ok := before.(*corev1.Node)
			is, stillOK := after.(*corev1.Node)
			if !ok || !stillOK || !sameRoom(was, is) {
				n.notify()
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("handling node events: %w", err)
	}
	return n, nil
}

// sameRoom reports whether two versions of a node can hold the same pods, and look after them.
func sameRoom(a, b *corev1.Node) bool {
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) && equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(a.Status, b.Status)
}

// readiness is the node's condition Ready without its times: a heartbeat changes nothing.
func readiness(node *corev1.Node) []corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return nil
}

// OnChange has f called whenever nodes may hold what they could not hold before, come or go.
func (n *Nodes) OnChange(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changed = append(n.changed, f)
}

func (n *Nodes) notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listed = nil
	for _, f := range n.changed {
		f()
	}
}

// Run watches until ctx is done.
func (n *Nodes) Run(ctx context.Context) { n.informer.RunWithContext(ctx) }

// HasSynced reports whether the first list is complete.
func (n *Nodes) HasSynced() bool { return n.informer.HasSynced() }

// List returns the nodes. They are shared: do not change them. It is the same list until a node
// changes in what matters here: a heartbeat makes no other one. They are sorted by name.
func (n *Nodes) List() []*corev1.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listed == nil {
		objects := n.informer.GetStore().List()
		n.listed = make([]*corev1.Node, 0, len(objects))
		for _, obj := range objects {
			if node, ok := obj.(*corev1.Node); ok {
				n.listed = append(n.listed, node)
			}
		}
		slices.SortFunc(n.listed, compareNames)
	}
	return n.listed
}

// byName returns the nodes by their names.
func byName(nodes []*corev1.Node) map[string]*corev1.Node {
	named := make(map[string]*corev1.Node, len(nodes))
	for _, node := range nodes {
		named[node.Name] = node
	}
	return named
}
