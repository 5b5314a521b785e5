package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// planReport is what a rollout does to one workload.
type planReport struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// New tells that it does not exist yet: the pods are those that it adopts, and all others will be new.
	New bool `json:"new,omitempty"`
	// OptedIn tells whether the rollout is in place at all.
	OptedIn bool `json:"optedIn"`
	// HandOver tells why the built-in controller makes the rollout; empty if it does not.
	HandOver string        `json:"handOver,omitempty"`
	Pods     []podForecast `json:"pods"`
	// OldEnvironment lists environment variables that will go on showing the old size, as `app: GOMAXPROCS`.
	OldEnvironment []string `json:"oldEnvironment,omitempty"`
	// RoomUnknown tells why it is not known what room the nodes have; empty if it is.
	RoomUnknown string      `json:"roomUnknown,omitempty"`
	Summary     planSummary `json:"summary"`

	restarts bool
}

type podForecast struct {
	Name   string       `json:"name"`
	Node   string       `json:"node,omitempty"`
	Fate   rollout.Fate `json:"fate"`
	Reason string       `json:"reason,omitempty"`
	// Late is the fate of a Deferred pod if its node has no room until the deadline.
	Late    rollout.Fate `json:"late,omitempty"`
	Changes []change     `json:"changes,omitempty"`
	Room    []room       `json:"room,omitempty"`
}

type change struct {
	Container string `json:"container,omitempty"` // none: of the pod as a whole
	Resource  string `json:"resource"`
	Side      string `json:"side"`
	From      string `json:"from,omitempty"` // none: it had none
	To        string `json:"to"`
}

// room is what a node has of a resource that a pod's edit changes.
type room struct {
	Resource    string `json:"resource"`
	Allocatable string `json:"allocatable"`
	Requested   string `json:"requested"` // by all pods on the node, as they are now
	Enough      bool   `json:"enough"`    // for the edit, as things stand
}

type planSummary struct {
	Live             int `json:"live"`
	ContainerRestart int `json:"containerRestart"`
	Deferred         int `json:"deferred"`
	Restart          int `json:"restart"`
	Impossible       int `json:"impossible"`
	KeptBack         int `json:"keptBack"`
	New              int `json:"new"`
	ScaledIn         int `json:"scaledIn"`
	Unchanged        int `json:"unchanged"`
}

// newPlanReport tells of the rollout of a workload, which is as the edit leaves it.
func newPlanReport(after *unstructured.Unstructured, foreseen rollout.RolloutForecast, world capacity.Cluster) planReport {
	r := planReport{
		Kind: after.GetKind(), Namespace: after.GetNamespace(), Name: after.GetName(),
		OptedIn: policy.Enabled(after), HandOver: foreseen.HandOver, Pods: []podForecast{}, RoomUnknown: world.RoomUnknown,
	}
	space := newSpace(world)
	for _, f := range foreseen.Pods {
		f, rooms := space.judge(f)
		r.Pods = append(r.Pods, newPodForecast(f, rooms))
		r.Summary.count(f.Fate)
		r.restarts = r.restarts || f.Restarts()
		if f.Fate == rollout.Live || f.Fate == rollout.Deferred || f.Fate == rollout.ContainerRestart {
			for _, variable := range f.Member.Target.OldEnvironment() {
				if !slices.Contains(r.OldEnvironment, variable) {
					r.OldEnvironment = append(r.OldEnvironment, variable)
				}
			}
		}
	}
	return r
}

func newPodForecast(f rollout.Forecast, rooms []room) podForecast {
	p := podForecast{Name: f.Member.Name, Fate: f.Fate, Reason: f.Reason, Room: rooms}
	if f.Fate == rollout.Deferred {
		p.Late = f.Late
	}
	if f.Member.Pod != nil {
		p.Node = f.Member.Pod.Spec.NodeName
	}
	if f.Fate == rollout.ScaledIn {
		return p
	}
	for _, c := range f.Member.Target.Changes {
		said := change{Container: c.Container, Resource: string(c.Resource), Side: string(c.Side), To: c.To.String()}
		if c.From != nil {
			said.From = c.From.String()
		}
		p.Changes = append(p.Changes, said)
	}
	return p
}

func (s *planSummary) count(f rollout.Fate) {
	switch f {
	case rollout.Live:
		s.Live++
	case rollout.ContainerRestart:
		s.ContainerRestart++
	case rollout.Deferred:
		s.Deferred++
	case rollout.PodRestart, rollout.AfterDelete:
		s.Restart++
	case rollout.Refused:
		s.Impossible++
	case rollout.KeptBack:
		s.KeptBack++
	case rollout.New:
		s.New++
	case rollout.ScaledIn:
		s.ScaledIn++
	case rollout.Unchanged:
		s.Unchanged++
	}
}

// space is what nodes have of cpu and memory.
type space map[string]*nodeSpace

type nodeSpace struct {
	allocatable corev1.ResourceList
	requested   corev1.ResourceList // by the pods on the node now
	promised    corev1.ResourceList // more, to pods whose turn came before
}

// newSpace sums up what the pods of each node request, as the scheduler does. It has no
// nodes if not all of that is known.
func newSpace(world capacity.Cluster) space {
	s := space{}
	if world.RoomUnknown != "" {
		return s
	}
	for _, node := range world.Nodes {
		s[node.Name] = &nodeSpace{node.Status.Allocatable, corev1.ResourceList{}, corev1.ResourceList{}}
	}
	for _, pod := range world.Pods {
		if n := s[pod.Spec.NodeName]; n != nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			add(n.requested, resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true}))
		}
	}
	return s
}

func add(to, more corev1.ResourceList) {
	for name, q := range more {
		sum := to[name]
		if sum.IsZero() {
			sum.Format = q.Format
		}
		sum.Add(q)
		to[name] = sum
	}
}

// judge looks whether there is room for a pod that is to be resized, and defers it if not.
func (s space) judge(f rollout.Forecast) (rollout.Forecast, []room) {
	if f.Fate != rollout.Live && f.Fate != rollout.ContainerRestart && f.Fate != rollout.Deferred {
		return f, nil
	}
	rooms := s.take(f.Member)
	if slices.ContainsFunc(rooms, func(r room) bool { return !r.Enough }) {
		f.Fate, f.Reason = rollout.Deferred, "there is no room on the node now"
	}
	if f.Fate == rollout.Deferred {
		f.Reason += late[f.Late]
	}
	return f, rooms
}

// late says what becomes of a pod that is deferred until the deadline.
var late = map[rollout.Fate]string{
	rollout.PodRestart:  "; restarted if that lasts until the deadline",
	rollout.AfterDelete: "; restarted when you delete it",
	rollout.Refused:     "; it waits as long as that lasts",
}

// take tells what the member's node has of the resources whose requests change, and
// promises it to the member if it is enough.
func (s space) take(m rollout.Member) []room {
	if m.Pod == nil || s[m.Pod.Spec.NodeName] == nil || len(m.Target.Changes) == 0 {
		return nil
	}
	node, options := s[m.Pod.Spec.NodeName], resourcehelper.PodResourcesOptions{}
	before := resourcehelper.PodRequests(&corev1.Pod{Spec: m.Pod.Spec}, options)
	after := resourcehelper.PodRequests(&corev1.Pod{Spec: *m.Target.Spec()}, options)
	var rooms []room
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		more := after[name]
		more.Sub(before[name])
		if more.IsZero() {
			continue
		}
		allocatable, requested := node.allocatable[name], node.requested[name]
		wanted := requested.DeepCopy()
		wanted.Add(node.promised[name])
		wanted.Add(more)
		enough := more.Sign() < 0 || wanted.Cmp(allocatable) <= 0 // what gets smaller needs no room
		if enough {
			add(node.promised, corev1.ResourceList{name: more})
		}
		rooms = append(rooms, room{string(name), allocatable.String(), requested.String(), enough})
	}
	return rooms
}

// table is the report for people.
func (r planReport) table(out io.Writer) error {
	name := strings.ToLower(r.Kind) + "/" + r.Name
	if r.New && len(r.Pods) == 0 {
		_, err := fmt.Fprintf(out, "%s: it does not exist yet, so every pod will be new\n", name)
		return err
	}
	rows := [][]string{{"POD", "NODE", "FATE", "CHANGES", "ROOM", "REASON"}}
	for _, p := range r.Pods {
		rows = append(rows, []string{p.Name, p.Node, string(p.Fate), p.describe(), p.roomText(), p.Reason})
	}
	if err := columns(out, rows...); err != nil {
		return err
	}
	if r.New {
		name += ": it does not exist yet, and adopts these pods"
	}
	if _, err := fmt.Fprintf(out, "%s: %s\n", name, r.Summary); err != nil {
		return err
	}
	if len(r.OldEnvironment) > 0 {
		if _, err := fmt.Fprintf(out, "Environment variables that show the old size until a restart: %s.\n", strings.Join(r.OldEnvironment, ", ")); err != nil {
			return err
		}
	}
	if r.RoomUnknown == "" {
		return nil
	}
	_, err := fmt.Fprintf(out, "The room on the nodes is not known: %s.\n", r.RoomUnknown)
	return err
}

// String is the summary in one line, as in `5 live, 1 restart, 0 impossible`.
func (s planSummary) String() string {
	parts := []string{fmt.Sprintf("%d live", s.Live)}
	if s.ContainerRestart > 0 {
		parts = append(parts, fmt.Sprintf("%d container restart", s.ContainerRestart))
	}
	if s.Deferred > 0 {
		parts = append(parts, fmt.Sprintf("%d deferred", s.Deferred))
	}
	parts = append(parts, fmt.Sprintf("%d restart", s.Restart), fmt.Sprintf("%d impossible", s.Impossible))
	if s.New > 0 {
		parts = append(parts, fmt.Sprintf("%d new", s.New))
	}
	if s.ScaledIn > 0 {
		parts = append(parts, fmt.Sprintf("%d scaled in", s.ScaledIn))
	}
	if s.KeptBack > 0 {
		parts = append(parts, fmt.Sprintf("%d kept back", s.KeptBack))
	}
	if s.Unchanged > 0 {
		parts = append(parts, fmt.Sprintf("%d unchanged", s.Unchanged))
	}
	return strings.Join(parts, ", ")
}

// describe names the changes as events do, a container's together.
func (p podForecast) describe() string {
	var said []string
	for i, c := range p.Changes {
		container := ""
		if i == 0 || p.Changes[i-1].Container != c.Container {
			if container = "pod: "; c.Container != "" {
				container = c.Container + ": "
			}
		}
		from := c.From
		if from == "" {
			from = "none"
		}
		said = append(said, fmt.Sprintf("%s%s %s %s→%s", container, c.Resource, c.Side, from, c.To))
	}
	return strings.Join(said, ", ")
}

func (p podForecast) roomText() string {
	said := make([]string, len(p.Room))
	for i, r := range p.Room {
		said[i] = fmt.Sprintf("%s: %s of %s requested", r.Resource, r.Requested, r.Allocatable)
	}
	return strings.Join(said, ", ")
}
