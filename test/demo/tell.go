package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/inplace-rollout/inplace-rollout/test/cgroup"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// while does something, and meanwhile tells what changes in some subjects from a moment on, in a line for each change.
func (d *demo) while(ctx context.Context, from int, subjects []measure.Subject, do func() error) error {
	ctx, stop := context.WithCancel(ctx)
	told := make(chan struct{})
	go func() {
		defer close(told)
		d.tell(ctx, from, subjects)
	}()
	err := do()
	stop()
	<-told
	return err
}

func (d *demo) tell(ctx context.Context, from int, subjects []measure.Subject) {
	history, _ := d.recorder.From(0)
	states := map[measure.Subject]*measure.State{}
	for _, of := range subjects {
		states[of] = measure.Replay(history[:from], of)
	}
	for begin := time.Now(); ; {
		moments, changed := d.recorder.From(from)
		from += len(moments)
		for _, m := range moments {
			s := states[m.Subject()]
			if s == nil {
				continue
			}
			name, facts := d.about(m, s)
			before := facts()
			s.Apply(m)
			if news := d.news(before, facts()); news != "" {
				d.say("+%5.1f s  %-12s  %-21s  %s", max(0, m.At.Sub(begin).Seconds()), m.Object.GetNamespace(), name, news)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// about is whom a change is about, and what there is to tell of it.
func (d *demo) about(m measure.Moment, s *measure.State) (name string, facts func() []string) {
	name = m.Object.GetName()
	switch m.Object.(type) {
	case *corev1.Pod, *measure.Visit:
		return name, func() []string { return d.ofPod(s, s.Pods[name]) }
	default:
		return m.Subject().Name, func() []string { return ofWorkload(s) }
	}
}

// news are the facts that were none before.
func (d *demo) news(before, after []string) string {
	switch {
	case len(before) == 0 && len(after) > 0:
		return d.paint(red, "NEW: ") + strings.Join(after, ", ")
	case len(before) > 0 && len(after) == 0:
		return d.paint(red, "GONE")
	}
	var news []string
	for _, fact := range after {
		if slices.Contains(before, fact) {
			continue
		}
		if slices.ContainsFunc(bad, func(begin string) bool { return strings.HasPrefix(fact, begin) }) {
			fact = d.paint(red, fact)
		}
		news = append(news, fact)
	}
	return strings.Join(news, ", ")
}

// bad is how facts begin that nobody wants.
var bad = []string{"not Ready", "ends", "restarts", "container", "does not answer"}

// ofPod is what there is to tell of a pod, or nothing if there is none.
func (d *demo) ofPod(s *measure.State, pod *corev1.Pod) []string {
	if pod == nil {
		return nil
	}
	container := pod.Spec.Containers[0]
	status := measure.ContainerStatus(pod, container.Name)
	facts := []string{"wants " + amounts(container.Resources.Requests), fmt.Sprintf("restarts: %d", measure.Restarts(pod))}
	if status.Resources != nil {
		facts = append(facts, "has "+amounts(status.Resources.Requests))
	}
	if measure.Ready(pod) {
		facts = append(facts, "Ready")
	} else {
		facts = append(facts, "not Ready")
	}
	if pod.DeletionTimestamp != nil {
		facts = append(facts, "ends")
	}
	if resizing := measure.Resizing(pod); resizing != "" {
		facts = append(facts, "resize "+resizing)
	}
	if revision := s.Revision(pod); revision != "" {
		facts = append(facts, "revision "+revision)
	}
	if t := ended(status); t != nil {
		facts = append(facts, "container was "+t.Reason)
	}
	switch seen := s.Visits[pod.UID]; {
	case d.Node == nil:
	case seen == nil:
		facts = append(facts, "does not answer")
	default:
		facts = append(facts, "answers", "kernel grants "+granted(seen.Kernel), "program reads "+granted(seen.Reads))
	}
	return facts
}

// ended is how a container has ended, if it has.
func ended(c corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if c.State.Terminated != nil {
		return c.State.Terminated
	}
	return c.LastTerminationState.Terminated
}

// ofWorkload is what the workload itself says, and its ReplicaSets.
func ofWorkload(s *measure.State) []string {
	field, value := s.HoldField()
	facts := []string{fmt.Sprintf("updated %d of %d", s.Updated(), s.Replicas()), field + " " + value}
	if s.IsHeld() {
		facts[1] = fmt.Sprintf("held: %s, user's %s", facts[1], s.Held())
	}
	if status, reason := s.Complete(); status != "" {
		facts = append(facts, fmt.Sprintf("Complete: %s (%s)", status, reason))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Sets)) {
		facts = append(facts, fmt.Sprintf("pods in %s: %d", name, s.Sets[name].Status.Replicas))
	}
	return facts
}

// amounts are cpu and memory.
func amounts(list corev1.ResourceList) string {
	return list.Cpu().String() + " / " + list.Memory().String()
}

// size is what the template of a workload requests.
func size(s *measure.State) string {
	return amounts(s.Template().Spec.Containers[0].Resources.Requests)
}

// granted are limits, written as sizes are.
func granted(l cgroup.Limits) string {
	if l.CPU == 0 {
		return "no limit / " + inBytes(l.Memory)
	}
	return resource.NewMilliQuantity(l.CPU, resource.DecimalSI).String() + " / " + inBytes(l.Memory)
}

// otherwise names the pods whose kernel or program has shown other limits than the template has, or nothing yet.
func otherwise(s *measure.State) []string {
	limits := s.Template().Spec.Containers[0].Resources.Limits
	want := cgroup.Limits{CPU: limits.Cpu().MilliValue(), Memory: limits.Memory().Value()}
	return slices.DeleteFunc(s.PodNames(), func(name string) bool {
		seen := s.Visits[s.Pods[name].UID]
		return seen != nil && seen.Kernel == want && seen.Reads == want
	})
}
