package main

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// lane is how one pod of a StatefulSet went, by its name, for some time from an edit of its memory limit on.
type lane struct {
	pod       string
	stretches []stretch
	kills     []time.Duration // by the kernel
	asked     bool            // for the new limit, or made with it

	visits, lost int
	why          error // the first visit was not answered
	jobs, failed int
}

// stretch is a time in which nothing changed, until some time after the edit.
type stretch struct {
	until time.Duration
	what  condition
}

type condition string

const (
	former condition = "former" // it answers, and has its limit from before
	edited condition = "edited" // it answers, and has the limit of the edit
	down   condition = "down"   // it does not answer
)

// newLane is how the pod of a name went. Its limit was the former one until an edit, at which the history begins.
func newLane(history []measure.Moment, of measure.Subject, name string, limit resource.Quantity, edit, end time.Time, visits, jobs []call) lane {
	visits, jobs = between(visits, edit, end), between(jobs, edit, end)
	l := lane{pod: name, visits: len(visits), jobs: len(jobs)}
	l.lost, l.why = unanswered(visits)
	l.failed, _ = unanswered(jobs)
	type change struct {
		at   time.Time
		down bool // to this, or else
		has  *resource.Quantity
	}
	var changes []change
	for _, v := range visits {
		changes = append(changes, change{at: v.at, down: v.err != nil})
	}
	var killed []time.Time
	ids := sets.New[string]()
	for _, m := range history {
		pod, is := m.Object.(*corev1.Pod)
		if !is || m.Subject() != of || pod.Name != name || m.Deleted || m.At.After(end) {
			continue
		}
		l.asked = l.asked || pod.Spec.Containers[0].Resources.Limits.Memory().Cmp(limit) == 0
		changes = append(changes, change{at: m.At, has: applied(pod)})
		for _, t := range killings(pod) {
			if !ids.Has(t.ContainerID) {
				ids.Insert(t.ContainerID)
				killed = append(killed, t.FinishedAt.Time)
			}
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return a.at.Compare(b.at) })
	isDown, isEdited := false, false
	what := func() condition {
		switch {
		case isDown:
			return down
		case isEdited:
			return edited
		default:
			return former
		}
	}
	for _, c := range changes {
		was := what()
		if c.has == nil {
			isDown = c.down
		} else {
			isEdited = c.has.Cmp(limit) == 0
		}
		if what() != was {
			l.stretches = append(l.stretches, stretch{c.at.Sub(edit), was})
		}
	}
	l.stretches = append(l.stretches, stretch{end.Sub(edit), what()})
	for _, at := range killed {
		l.kills = append(l.kills, l.noticed(at.Sub(edit)))
	}
	return l
}

// applied is the memory limit that the kubelet tells of a pod, or else the one that it is to have.
func applied(pod *corev1.Pod) *resource.Quantity {
	c := pod.Spec.Containers[0]
	if told := measure.ContainerStatus(pod, c.Name).Resources; told != nil {
		return told.Limits.Memory()
	}
	return c.Resources.Limits.Memory()
}

// killings are those of a pod's containers that the kernel has ended, as far as its status tells.
func killings(pod *corev1.Pod) []*corev1.ContainerStateTerminated {
	var all []*corev1.ContainerStateTerminated
	for _, c := range pod.Status.ContainerStatuses {
		for _, state := range []corev1.ContainerState{c.LastTerminationState, c.State} {
			if t := state.Terminated; t != nil && t.Reason == "OOMKilled" {
				all = append(all, t)
			}
		}
	}
	return all
}

// noticed is when visitors noticed what the kubelet tells of to the second: from then on the pod did not answer.
func (l *lane) noticed(at time.Duration) time.Duration {
	begin, found := time.Duration(0), at
	for _, s := range l.stretches {
		if s.what == down && begin <= at+time.Second {
			found = begin
		}
		begin = s.until
	}
	return found
}

// fewest is how many of the pods answered when fewest did.
func fewest(lanes []lane) int {
	least := len(lanes)
	var times []time.Duration
	for _, l := range lanes {
		for _, s := range l.stretches {
			times = append(times, s.until-1)
		}
	}
	for _, at := range times {
		n := 0
		for _, l := range lanes {
			if l.at(at) != down {
				n++
			}
		}
		least = min(least, n)
	}
	return least
}

func (l *lane) at(after time.Duration) condition {
	for _, s := range l.stretches {
		if after < s.until {
			return s.what
		}
	}
	return l.stretches[len(l.stretches)-1].what
}
