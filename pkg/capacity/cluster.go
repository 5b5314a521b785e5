package capacity

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Cluster is what a forecast needs to know besides the workload.
type Cluster struct {
	// Nodes are none if they are not known: then nothing depends on them.
	Nodes []*corev1.Node
	Pods  []*corev1.Pod
	// Limits and Quotas of the namespaces that are asked about, as far as they may be read.
	Limits map[string]Limits
	Quotas map[string][]corev1.ResourceQuota
	// Volumes are those that claims are bound to, by the claim's name.
	Volumes map[types.NamespacedName]*corev1.PersistentVolume
	// RoomUnknown is why not all of this is known that decides what room the nodes have;
	// empty if it is.
	RoomUnknown string
}

// Extent is how much of a cluster is read for forecasts of the workloads of some namespaces.
type Extent int

// Each extent has what the one before it has.
const (
	// Pods of the namespaces: what the built-in controllers do depends on no more.
	Pods Extent = iota
	// Sizes besides: the nodes, LimitRanges and quotas that allow a size or do not. Pods of
	// other namespaces are left out, as there may be many: a node may have less room than it
	// seems to have, but not more.
	Sizes
	// All besides: the pods of all namespaces, and volumes.
	All
)

// Read reads so much of the cluster. It fails if the pods of the namespaces may not be read.
// Where something else may not be read that decides what room there is, RoomUnknown says so.
func Read(ctx context.Context, client kubernetes.Interface, extent Extent, namespaces sets.Set[string]) (Cluster, error) {
	c := Cluster{}
	for _, part := range []struct {
		from Extent
		read func(context.Context, kubernetes.Interface, Extent, sets.Set[string]) error
	}{
		{Sizes, c.readNodes}, {Pods, c.readPods}, {Sizes, c.readNamespaces}, {All, c.readVolumes},
	} {
		if extent < part.from {
			continue
		}
		if err := part.read(ctx, client, extent, namespaces); err != nil {
			return c, err
		}
	}
	return c, nil
}

// orUnknown returns the error, unless it is that this may not be read: then why the room is
// unknown is noted, and it is no error.
func (c *Cluster) orUnknown(err error, why string) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	c.RoomUnknown = cmp.Or(c.RoomUnknown, why)
	return nil
}

// readNodes lists all nodes.
func (c *Cluster) readNodes(ctx context.Context, client kubernetes.Interface, _ Extent, _ sets.Set[string]) error {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return c.orUnknown(fmt.Errorf("listing nodes: %w", err), "you may not list nodes")
	}
	for i := range nodes.Items {
		c.Nodes = append(c.Nodes, &nodes.Items[i])
	}
	return nil
}

// readPods lists the pods of all namespaces where that is asked for and allowed, or else of these.
func (c *Cluster) readPods(ctx context.Context, client kubernetes.Interface, extent Extent, namespaces sets.Set[string]) error {
	if extent >= All {
		all, err := pods.List(ctx, client.CoreV1(), metav1.NamespaceAll, metav1.ListOptions{})
		if err == nil {
			c.Pods = all
			return nil
		}
		if err := c.orUnknown(err, "you may not list the pods of all namespaces"); err != nil {
			return err
		}
	}
	for namespace := range namespaces {
		those, err := pods.List(ctx, client.CoreV1(), namespace, metav1.ListOptions{})
		if err != nil {
			return err
		}
		c.Pods = append(c.Pods, those...)
	}
	return nil
}

// readNamespaces lists what the namespaces say about pods that come to them.
func (c *Cluster) readNamespaces(ctx context.Context, client kubernetes.Interface, _ Extent, namespaces sets.Set[string]) error {
	c.Limits, c.Quotas = map[string]Limits{}, map[string][]corev1.ResourceQuota{}
	for namespace := range namespaces {
		var err error
		if c.Limits[namespace], err = ReadLimits(ctx, client, namespace, metav1.ListOptions{}); err != nil {
			return err
		}
		if c.Quotas[namespace], err = readQuotas(ctx, client, namespace); err != nil {
			return err
		}
	}
	return nil
}

// readVolumes lists the volumes that claims of the namespaces are bound to, where a pod that
// has been read has a claim.
func (c *Cluster) readVolumes(ctx context.Context, client kubernetes.Interface, _ Extent, namespaces sets.Set[string]) error {
	const unknown = "you may not list persistent volumes and their claims"
	wanted := sets.New[string]()
	for _, pod := range c.Pods {
		if namespaces.Has(pod.Namespace) && len(claims(pod)) > 0 {
			wanted.Insert(pod.Namespace)
		}
	}
	bound := map[string]types.NamespacedName{}
	for namespace := range wanted {
		stored, err := client.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return c.orUnknown(fmt.Errorf("listing persistent volume claims: %w", err), unknown)
		}
		for _, claim := range stored.Items {
			if claim.Spec.VolumeName != "" {
				bound[claim.Spec.VolumeName] = types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
			}
		}
	}
	if len(bound) == 0 {
		return nil
	}
	volumes, err := client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return c.orUnknown(fmt.Errorf("listing persistent volumes: %w", err), unknown)
	}
	c.Volumes = make(map[types.NamespacedName]*corev1.PersistentVolume, len(bound))
	for i, volume := range volumes.Items {
		if claim, is := bound[volume.Name]; is {
			c.Volumes[claim] = &volumes.Items[i]
		}
	}
	return nil
}

// Of returns the cluster with no pods but those of the namespace.
func (c Cluster) Of(namespace string) Cluster {
	c.Pods = slices.DeleteFunc(slices.Clone(c.Pods), func(pod *corev1.Pod) bool { return pod.Namespace != namespace })
	return c
}

// LimitsOf returns the LimitRanges of a namespace, which are unknown if they have not been read.
func (c Cluster) LimitsOf(namespace string) Limits {
	limits, read := c.Limits[namespace]
	limits.Unknown = limits.Unknown || !read
	return limits
}

// WithoutRoom looks for room for the replacements of the members, in their order, and returns for
// which there is none, and why. Each that has found room has taken it. Where others come first
// (newFirst), they need no room on nodes, unless each can come to one node only.
func (c Cluster) WithoutRoom(ctx context.Context, members []rollout.Member, revision rollout.Revision, newFirst bool) map[types.UID]rollout.Refusal {
	full := map[types.UID]rollout.Refusal{}
	var room *Room
	for _, m := range members {
		if m.Pod == nil || m.Differs != "" || m.Pod.DeletionTimestamp != nil || m.Pod.Spec.NodeName == "" || m.Unplaceable.Reason != "" {
			continue
		}
		if room == nil {
			room = c.room(m.Pod.Namespace)
		}
		why, err := room.Replace(ctx, m, c.LimitsOf(m.Pod.Namespace), newFirst)
		if err != nil {
			why = rollout.Refusal{Reason: err.Error(), Kind: rollout.ReasonNoNodeFits}
		}
		if why.Reason != "" {
			why.Of, why.Until = revision.Size(m.Target.Changes), time.Now().Add(time.Hour)
			full[m.Pod.UID] = why
		}
	}
	return full
}

// room is what the nodes and the quotas of a namespace have now.
func (c Cluster) room(namespace string) *Room {
	quotas := newQuotas(c.Quotas[namespace], c.Of(namespace).Pods, time.Now())
	room := newRoom(newSnapshot(c), c.Nodes, len(c.Nodes), quotas, nil, nil)
	room.nodesUnknown = c.RoomUnknown != "" || len(c.Nodes) == 0
	return room
}
