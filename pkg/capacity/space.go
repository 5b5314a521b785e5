package capacity

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
)

// PodForecast is what is to come of a pod, with what its node has.
type PodForecast struct {
	judge.PodForecast
	// Space is what the node has of the resources whose requests change; none if that is not
	// known, or the pod is not resized.
	Space []Space
}

// Space is what a node has of a resource.
type Space struct {
	Resource    corev1.ResourceName
	Allocatable resource.Quantity
	// Requested by all pods on the node, as they are now.
	Requested resource.Quantity
	// Enough: there is room for the resize, beside those of the pods before.
	Enough bool
}

// OnNodes adds to forecasts, in their order, what the nodes of the pods have, and defers the
// resizes for which that is not enough now. Each that has room has taken it. Unknown is why not all of that is known.
func (c *Cluster) OnNodes(ctx context.Context, forecasts []judge.PodForecast) (pods []PodForecast, unknown string, err error) {
	all, unknown, err := c.knownNodes(ctx)
	if err != nil {
		return nil, unknown, err
	}
	named, nodes := byName(all), spaces{}
	pods = make([]PodForecast, len(forecasts))
	for i, f := range forecasts {
		pods[i].PodForecast = f
		if f.Forecast != judge.Live && f.Forecast != judge.ContainerRestart && f.Forecast != judge.Deferred {
			continue
		}
		switch err := c.sum(ctx, nodes, named[f.Member.Pod.Spec.NodeName]); {
		case isUnknown(err):
			unknown = cmp.Or(unknown, err.Error())
		case err != nil:
			return nil, unknown, err
		}
		pods[i].Space = nodes.take(f.Member)
		if slices.ContainsFunc(pods[i].Space, func(s Space) bool { return !s.Enough }) {
			pods[i].Forecast, pods[i].Reason = judge.Deferred, "the node has no room now"
		}
		pods[i].Reason += atDeadline[pods[i].Lasts()]
	}
	return pods, unknown, nil
}

// atDeadline says what becomes of a pod where what is in its way lasts until the deadline.
var atDeadline = map[judge.Forecast]string{
	judge.PodRestart:  "; the pod is restarted if that lasts until the deadline",
	judge.AfterDelete: "; the pod is restarted when you delete it",
	judge.Deferred:    "; the pod waits until it has",
	judge.Infeasible:  "; the pod is left as it is if that lasts until the deadline",
}

// spaces is what nodes, by name, have of cpu and memory.
type spaces map[string]*nodeSpace

type nodeSpace struct {
	allocatable corev1.ResourceList
	requested   corev1.ResourceList // by the pods on the node now
	promised    corev1.ResourceList // more, to pods whose turn came before
}

// sum sums up what the pods of a node request, as the scheduler does.
func (c *Cluster) sum(ctx context.Context, nodes spaces, node *corev1.Node) error {
	if node == nil || nodes[node.Name] != nil {
		return nil
	}
	there, err := c.podsOn(ctx, node.Name)
	if err != nil {
		return err
	}
	nodes[node.Name] = &nodeSpace{node.Status.Allocatable, corev1.ResourceList{}, corev1.ResourceList{}}
	for _, pod := range there {
		if pod.Spec.NodeName == node.Name && !Over(pod) {
			addTo(nodes[node.Name].requested, Taken(pod))
		}
	}
	return nil
}

func addTo(to, more corev1.ResourceList) {
	for name, q := range more {
		sum := to[name]
		if sum.IsZero() {
			sum.Format = q.Format
		}
		sum.Add(q)
		to[name] = sum
	}
}

// take returns what the member's node has of the resources whose requests change, and
// promises it to the member if it is enough.
func (s spaces) take(m judge.Member) []Space {
	if m.Pod == nil || s[m.Pod.Spec.NodeName] == nil || len(m.Target.Changes) == 0 {
		return nil
	}
	node, options := s[m.Pod.Spec.NodeName], resourcehelper.PodResourcesOptions{}
	before := resourcehelper.PodRequests(&corev1.Pod{Spec: m.Pod.Spec}, options)
	after := resourcehelper.PodRequests(&corev1.Pod{Spec: *m.Target.Spec()}, options)
	var changed []Space
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		more := after[name]
		more.Sub(before[name])
		if more.IsZero() {
			continue
		}
		has := Space{Resource: name, Allocatable: node.allocatable[name], Requested: node.requested[name]}
		wanted := plus(plus(has.Requested, node.promised[name]), more)
		has.Enough = more.Sign() < 0 || wanted.Cmp(has.Allocatable) <= 0 // what gets smaller needs no room
		if has.Enough {
			addTo(node.promised, corev1.ResourceList{name: more})
		}
		changed = append(changed, has)
	}
	return changed
}
