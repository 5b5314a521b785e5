package main

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// measurement is what the watches have seen of one edit of one subject.
type measurement struct {
	before, after *state

	replaced  int           // pods that are not those of before, or were not for a while
	restarts  int           // by the containers' restartCount
	started   int           // containers that were not running before, restarted or in new pods
	notReady  int           // pods that were not Ready, or not there, at some time
	short     time.Duration // the longest time with fewer Ready pods than replicas
	shortAll  time.Duration // all such times together
	edited    time.Time
	completed bool
	took      time.Duration // from the edit until it was complete
	used      int           // ReplicaSets that had pods at some time

	// Only visitors of a real node know these.
	visits    int
	lost      int   // visits that were not answered
	forgotten int64 // counts that no pod remembers
}

// measure looks at what happened to a subject from moment from on, until the end of
// the history.
func measure(history []moment, from int, of subject) measurement {
	m := measurement{before: replay(history[:from], of), after: replay(history[:from], of)}
	w := newWitness(m.before)
	for _, moment := range history[from:] {
		if moment.subject() != of {
			continue
		}
		m.after.apply(moment)
		w.look(moment.at, m.after)
		if v, ok := moment.object.(*visit); ok {
			w.visited(v)
		}
		if m.edited.IsZero() && !equality.Semantic.DeepEqual(m.before.template(), m.after.template()) {
			m.edited = moment.at
		}
		if !m.edited.IsZero() && !m.completed && m.after.settled() {
			m.completed, m.took = true, moment.at.Sub(m.edited)
		}
	}
	w.end()
	m.replaced, m.notReady, m.started, m.used = len(w.replaced), len(w.notReady), len(w.started), len(w.used)
	m.restarts = restarts(m.after) - restarts(m.before)
	m.short, m.shortAll = w.longest, w.all
	m.visits, m.lost, m.forgotten = w.visits, w.lost, w.forgotten
	for uid, count := range w.counts {
		if !slices.ContainsFunc(slices.Collect(maps.Values(m.after.pods)), func(pod *corev1.Pod) bool { return pod.UID == uid }) {
			m.forgotten += count
		}
	}
	return m
}

// witness remembers what has ever been true of the pods.
type witness struct {
	uids       map[string]types.UID
	containers map[string]bool // by ID

	replaced, notReady, started, used map[string]bool

	since, last  time.Time // since when there are too few Ready pods, or zero; the last look
	longest, all time.Duration

	visits, lost int
	forgotten    int64
	counts       map[types.UID]int64 // what each pod has said last
}

func newWitness(before *state) *witness {
	w := &witness{
		uids: map[string]types.UID{}, containers: map[string]bool{},
		replaced: map[string]bool{}, notReady: map[string]bool{}, started: map[string]bool{}, used: map[string]bool{},
		counts: map[types.UID]int64{},
	}
	for uid, seen := range before.visits {
		w.counts[uid] = seen.count
	}
	for name, pod := range before.pods {
		w.uids[name] = pod.UID
		for _, id := range containerIDs(pod) {
			w.containers[id] = true
		}
	}
	return w
}

func (w *witness) look(at time.Time, s *state) {
	w.last = at
	for name, uid := range w.uids {
		pod := s.pods[name]
		if pod == nil || pod.UID != uid {
			w.replaced[name] = true
		}
		if !ready(pod) {
			w.notReady[name] = true
		}
	}
	for _, pod := range s.pods {
		for _, id := range containerIDs(pod) {
			if !w.containers[id] {
				w.started[id] = true
			}
		}
	}
	for _, name := range s.active() {
		w.used[name] = true
	}
	switch short := s.ready() < s.replicas(); {
	case short && w.since.IsZero():
		w.since = at
	case !short:
		w.end()
	}
}

func (w *witness) visited(v *visit) {
	w.visits++
	if v.err != nil {
		w.lost++
		return
	}
	if last := w.counts[v.UID]; v.count <= last {
		w.forgotten += last + 1 - v.count
	}
	w.counts[v.UID] = v.count
}

// end ends a time with too few Ready pods, if it is such a time.
func (w *witness) end() {
	if w.since.IsZero() {
		return
	}
	short := w.last.Sub(w.since)
	w.longest, w.all, w.since = max(w.longest, short), w.all+short, time.Time{}
}

func containerIDs(pod *corev1.Pod) []string {
	var ids []string
	for _, c := range pod.Status.ContainerStatuses {
		if c.ContainerID != "" {
			ids = append(ids, c.ContainerID)
		}
	}
	return ids
}

func restarts(s *state) int {
	n := 0
	for _, pod := range s.pods {
		n += restartsOf(pod)
	}
	return n
}

func restartsOf(pod *corev1.Pod) int {
	n := 0
	for _, c := range pod.Status.ContainerStatuses {
		n += int(c.RestartCount)
	}
	return n
}

// wrongSize tells which pods have another size than the template wants, in spec or
// status, or are still being resized.
func wrongSize(s *state) []string {
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		if !hasSize(s.pods[name], s.template().Spec.Containers) {
			wrong = append(wrong, name)
		}
	}
	return wrong
}

func hasSize(pod *corev1.Pod, template []corev1.Container) bool {
	if resizing(pod) != "" || len(pod.Spec.Containers) != len(template) {
		return false
	}
	for i, c := range template {
		status := containerStatus(pod, c.Name)
		if !equality.Semantic.DeepEqual(pod.Spec.Containers[i].Resources, c.Resources) ||
			status.Resources == nil || !equality.Semantic.DeepEqual(*status.Resources, c.Resources) ||
			!equality.Semantic.DeepEqual(status.AllocatedResources, c.Resources.Requests) {
			return false
		}
	}
	return true
}

func containerStatus(pod *corev1.Pod, name string) corev1.ContainerStatus {
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == name {
			return c
		}
	}
	return corev1.ContainerStatus{}
}

// resizing tells how far the kubelet is with a resize, or is empty.
func resizing(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == corev1.PodResizePending:
			return strings.ToLower(c.Reason)
		case c.Type == corev1.PodResizeInProgress && c.Reason != "":
			return strings.ToLower(c.Reason)
		case c.Type == corev1.PodResizeInProgress:
			return "in progress"
		}
	}
	return ""
}
