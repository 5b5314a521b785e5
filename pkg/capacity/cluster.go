package capacity

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

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
	// RoomUnknown tells why not all of this is known; empty if it is.
	RoomUnknown string
}

// ReadNodes lists all nodes.
func (c *Cluster) ReadNodes(ctx context.Context, client kubernetes.Interface) error {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for i := range nodes.Items {
		c.Nodes = append(c.Nodes, &nodes.Items[i])
	}
	return nil
}

// ReadPods lists the pods of namespace; or all if it is empty.
func (c *Cluster) ReadPods(ctx context.Context, client kubernetes.Interface, namespace string) error {
	pods, err := ListPods(ctx, client, namespace, metav1.ListOptions{})
	c.Pods = append(c.Pods, pods...)
	return err
}

func (c Cluster) podsOf(namespace string) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(c.Pods), func(pod *corev1.Pod) bool { return pod.Namespace != namespace })
}

// LimitsOf are the LimitRanges of a namespace, which may not have been read.
func (c Cluster) LimitsOf(namespace string) Limits {
	limits, read := c.Limits[namespace]
	limits.Unknown = limits.Unknown || !read
	return limits
}

// ReadNamespaces lists what the namespaces say about pods that come to them.
func (c *Cluster) ReadNamespaces(ctx context.Context, client kubernetes.Interface, namespaces sets.Set[string]) error {
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

// ReadVolumes lists the volumes that claims of the namespaces are bound to, where a
// pod that has been read has one.
func (c *Cluster) ReadVolumes(ctx context.Context, client kubernetes.Interface, namespaces sets.Set[string]) error {
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
			return fmt.Errorf("listing persistent volume claims: %w", err)
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
		return fmt.Errorf("listing persistent volumes: %w", err)
	}
	c.Volumes = make(map[types.NamespacedName]*corev1.PersistentVolume, len(bound))
	for i, volume := range volumes.Items {
		if claim, is := bound[volume.Name]; is {
			c.Volumes[claim] = &volumes.Items[i]
		}
	}
	return nil
}

// Full looks for room for the replacements of the members, in their order, and returns for
// which there is none, and why. Each that has found room has taken it. Where others come first
// (newFirst), no room on nodes is needed.
func (c Cluster) Full(ctx context.Context, members []rollout.Member, revision string, newFirst bool) rollout.Refusals {
	full := rollout.Refusals{}
	var r *Room
	for _, m := range members {
		if m.Pod == nil || m.Differs != "" || m.Pod.DeletionTimestamp != nil || m.Pod.Spec.NodeName == "" || m.Unplaceable.Reason != "" {
			continue
		}
		if r == nil {
			quotas := NewQuotas(c.Quotas[m.Pod.Namespace], c.podsOf(m.Pod.Namespace), time.Now())
			r = NewRoom(newRead(c), c.Nodes, len(c.Nodes), quotas, nil, nil)
			r.Unknown = c.RoomUnknown != "" || len(c.Nodes) == 0
		}
		why, err := r.Replace(ctx, m, c.LimitsOf(m.Pod.Namespace), newFirst)
		if err != nil {
			why = rollout.Refusal{Reason: err.Error(), Kind: rollout.ReasonNoNodeFits}
		}
		if why.Reason != "" {
			why.Of, why.Until = rollout.Size(revision, m.Target.Changes), time.Now().Add(time.Hour)
			full[m.Pod.UID] = why
		}
	}
	return full
}
