package capacity

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
)

// Cluster is what there is in a cluster at one moment. Each thing is read from the API server when a question first needs it,
// and once. It is for one goroutine.
type Cluster struct {
	client kubernetes.Interface
	now    time.Time
	ledger *Ledger
	extent Extent
	// looks is at how many nodes it looks for one pod, at the most.
	looks int

	nodes      memo[[]*corev1.Node]
	pods       memo[[]*corev1.Pod]
	limits     memo[Limits]
	quotas     memo[[]corev1.ResourceQuota]
	namespaces memo[[]corev1.Namespace] // by what selects them
	byItself   memo[*corev1.Namespace]
	claims     memo[*corev1.PersistentVolumeClaim]
	volumes    memo[*corev1.PersistentVolume]
	allVolumes memo[[]corev1.PersistentVolume]
	classes    memo[*storagev1.StorageClass]
	drivers    memo[*storagev1.CSIDriver]
	csiNodes   memo[*storagev1.CSINode]
	storage    memo[[]storagev1.CSIStorageCapacity]
	accounts   memo[*corev1.ServiceAccount]
	priorities memo[*schedulingv1.PriorityClass]
	runtimes   memo[*nodev1.RuntimeClass]
}

// maxLooks bounds how many nodes are looked at for one pod, each of which costs a request; the next look is at others. It also
// bounds at how many of the pods that wait for a node there is a closer look.
const maxLooks = 100

// maxWaiting bounds how many of the pods that wait for a node are looked at, whoever has made them: some thousands of them would
// take this process's memory, and each is looked at for each node. One beyond that may be faster than the pod that a restart brings.
const maxWaiting = 1000

// Extent is how much of a cluster is looked at.
type Extent int

// Each extent has what the one before it has.
const (
	// Pods of namespaces: what the built-in controllers do depends on no more.
	Pods Extent = iota
	// Sizes besides: the nodes, LimitRanges and quotas that allow a size or do not. Pods of other namespaces are left out, as there
	// may be many.
	Sizes
	// All besides.
	All
)

// New is so much of the cluster that the client reads, at this time.
func New(client kubernetes.Interface, extent Extent, now time.Time) *Cluster {
	return &Cluster{client: client, now: now, ledger: NewLedger(), extent: extent, looks: maxLooks}
}

// At is the cluster of these nodes and of what the ledger has promised.
func At(client kubernetes.Interface, nodes []*corev1.Node, ledger *Ledger, now time.Time) *Cluster {
	c := New(client, All, now)
	c.nodes, c.ledger = memo[[]*corev1.Node]{"": nodes}, ledger
	return c
}

// allNodes are all nodes.
func (c *Cluster) allNodes(ctx context.Context) ([]*corev1.Node, error) {
	return c.nodes.get("", func() ([]*corev1.Node, error) {
		list, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, hidden(err, "list nodes")
		}
		return pointers(list.Items), nil
	})
}

// knownNodes are all nodes; none if they may not be listed, and why.
func (c *Cluster) knownNodes(ctx context.Context) (nodes []*corev1.Node, unknown string, err error) {
	if c.extent < Sizes {
		return nil, "", nil
	}
	if nodes, err = c.allNodes(ctx); isUnknown(err) {
		return nil, err.Error(), nil
	}
	return nodes, "", err
}

func pointers[T any](items []T) []*T {
	to := make([]*T, len(items))
	for i := range items {
		to[i] = &items[i]
	}
	return to
}

// Pods are those of a namespace, right now.
func (c *Cluster) Pods(ctx context.Context, namespace string) ([]*corev1.Pod, error) {
	return c.pods.get(namespace, func() ([]*corev1.Pod, error) {
		return pods.List(ctx, c.client.CoreV1(), namespace, metav1.ListOptions{})
	})
}

// podsOn are the pods of a node, as the API server's cache has them, or the first of those that wait for one if it has no name.
func (c *Cluster) podsOn(ctx context.Context, node string) ([]*corev1.Pod, error) {
	return c.pods.get("on "+node, func() (all []*corev1.Pod, err error) {
		options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()}
		if node == "" { // what is cached is not served in parts
			all, err = pods.First(ctx, c.client.CoreV1(), maxWaiting, options)
		} else {
			options.ResourceVersion = "0"
			all, err = pods.List(ctx, c.client.CoreV1(), metav1.NamespaceAll, options)
		}
		if err != nil {
			return nil, hidden(err, "list the pods of nodes")
		}
		for _, pod := range all { // they may be those of thousands of nodes
			pod.ManagedFields = nil
		}
		return all, nil
	})
}

// forget has the pods of a node be read anew.
func (c *Cluster) forget(node string) { delete(c.pods, "on "+node) }

// podsOf are at least those of the set.
func (c *Cluster) podsOf(ctx context.Context, set podSet) ([]*corev1.Pod, error) {
	return c.pods.get("of "+set.Namespace+"/"+set.String(), func() ([]*corev1.Pod, error) {
		all, err := pods.List(ctx, c.client.CoreV1(), set.Namespace, metav1.ListOptions{LabelSelector: set.String(), ResourceVersion: "0"})
		if err != nil {
			return nil, hidden(err, "list pods of other namespaces")
		}
		return all, nil
	})
}

// namespacesWith are the namespaces whose labels match.
func (c *Cluster) namespacesWith(ctx context.Context, selector labels.Selector) ([]corev1.Namespace, error) {
	return c.namespaces.get(selector.String(), func() ([]corev1.Namespace, error) {
		list, err := c.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
		if err != nil {
			return nil, hidden(err, "list namespaces")
		}
		return list.Items, nil
	})
}

// LimitsOf are the LimitRanges of a namespace, which are unknown if they may not be read.
func (c *Cluster) LimitsOf(ctx context.Context, namespace string) (Limits, error) {
	if c.extent < Sizes {
		return Limits{Unknown: true}, nil
	}
	return c.limits.get(namespace, func() (Limits, error) { return ReadLimits(ctx, c.client, namespace, metav1.ListOptions{}) })
}

// quotasOf are the ResourceQuotas of a namespace right now; none if they may not be read.
func (c *Cluster) quotasOf(ctx context.Context, namespace string) ([]corev1.ResourceQuota, error) {
	if c.extent < Sizes {
		return nil, nil
	}
	return c.quotas.get(namespace, func() ([]corev1.ResourceQuota, error) {
		list, err := c.client.CoreV1().ResourceQuotas(namespace).List(ctx, metav1.ListOptions{})
		if apierrors.IsForbidden(err) {
			klog.FromContext(ctx).V(2).Info("Cannot tell what quotas have left", "reason", err.Error())
			return nil, nil
		}
		if err != nil {
			return nil, hidden(err, "list ResourceQuotas")
		}
		return list.Items, nil
	})
}

// ReadLimits lists the LimitRanges of a namespace. They are unknown if they may not be read.
func ReadLimits(ctx context.Context, client kubernetes.Interface, namespace string, options metav1.ListOptions) (Limits, error) {
	list, err := client.CoreV1().LimitRanges(namespace).List(ctx, options)
	if apierrors.IsForbidden(err) {
		klog.FromContext(ctx).V(2).Info("Cannot tell what LimitRanges say", "reason", err.Error())
		return Limits{Unknown: true}, nil
	}
	if err != nil {
		return Limits{}, hidden(err, "list LimitRanges")
	}
	return Limits{Ranges: list.Items}, nil
}
