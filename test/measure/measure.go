package measure

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// Measurement is what the watches have seen of one edit of one subject.
type Measurement struct {
	Before, After *State

	Replaced  int           // pods that are not those of before, or were not for a while
	Started   int           // containers that were not running before, restarted or in new pods
	NotReady  int           // pods that were not Ready, or not there, at some time
	Short     time.Duration // the longest time with fewer Ready pods than replicas
	ShortAll  time.Duration // all such times together
	Edited    time.Time
	Completed bool
	Took      time.Duration // from the edit until it was complete

	// Only visitors of a real node know these.
	Visits    int
	Lost      int    // visits that were not answered
	Why       string // the first of them was not
	Forgotten int64  // counts that no pod remembers
}

// Edit looks at what happened to a subject from moment from on, until the end of the history: usually one edit.
func Edit(history []Moment, from int, of Subject) Measurement {
	m := Measurement{Before: Replay(history[:from], of), After: Replay(history[:from], of)}
	w := newWitness(m.Before)
	for _, moment := range history[from:] {
		if moment.Subject() != of {
			continue
		}
		m.After.Apply(moment)
		w.look(moment.At, m.After)
		if v, ok := moment.Object.(*Visit); ok {
			w.visited(v)
		}
		if m.Edited.IsZero() && !equality.Semantic.DeepEqual(m.Before.Template(), m.After.Template()) {
			m.Edited = moment.At
		}
		if !m.Edited.IsZero() && !m.Completed && m.After.Settled() {
			m.Completed, m.Took = true, moment.At.Sub(m.Edited)
		}
	}
	w.short.end()
	m.Replaced, m.NotReady, m.Started = len(w.replaced), len(w.notReady), len(w.started)
	m.Short, m.ShortAll = w.short.longest, w.short.all
	m.Visits, m.Lost, m.Why, m.Forgotten = w.visits, w.lost, w.why, w.forgotten
	for uid, count := range w.counts {
		if !slices.ContainsFunc(slices.Collect(maps.Values(m.After.Pods)), func(pod *corev1.Pod) bool { return pod.UID == uid }) {
			m.Forgotten += count
		}
	}
	return m
}

// witness remembers what has ever been true of the pods.
type witness struct {
	uids       map[string]types.UID
	containers map[string]bool // by ID

	replaced, notReady, started map[string]bool

	short shortage

	visits, lost int
	why          string
	forgotten    int64
	counts       map[types.UID]int64 // what each pod has said last
}

func newWitness(before *State) *witness {
	w := &witness{
		uids: map[string]types.UID{}, containers: map[string]bool{},
		replaced: map[string]bool{}, notReady: map[string]bool{}, started: map[string]bool{},
		counts: map[types.UID]int64{},
	}
	for uid, seen := range before.Visits {
		w.counts[uid] = seen.Count
	}
	for name, pod := range before.Pods {
		w.uids[name] = pod.UID
		for _, id := range containerIDs(pod) {
			w.containers[id] = true
		}
	}
	return w
}

func (w *witness) look(at time.Time, s *State) {
	for name, uid := range w.uids {
		pod := s.Pods[name]
		if pod == nil || pod.UID != uid {
			w.replaced[name] = true
		}
		if !Ready(pod) {
			w.notReady[name] = true
		}
	}
	for _, pod := range s.Pods {
		for _, id := range containerIDs(pod) {
			if !w.containers[id] {
				w.started[id] = true
			}
		}
	}
	w.short.look(at, s.Ready() < s.Replicas())
}

func (w *witness) visited(v *Visit) {
	w.visits++
	if v.Err != nil {
		w.lost++
		w.why = cmp.Or(w.why, v.Err.Error())
		return
	}
	if last := w.counts[v.UID]; v.Count <= last {
		w.forgotten += last + 1 - v.Count
	}
	w.counts[v.UID] = v.Count
}

// shortage is for how long there were fewer Ready pods than there should be.
type shortage struct {
	since, last  time.Time // since when there are too few, or zero; the last look
	longest, all time.Duration
}

// look takes in whether there are too few from now on.
func (s *shortage) look(at time.Time, short bool) {
	s.last = at
	switch {
	case short && s.since.IsZero():
		s.since = at
	case !short:
		s.end()
	}
}

// end ends a time with too few Ready pods, if it is such a time.
func (s *shortage) end() {
	if s.since.IsZero() {
		return
	}
	lasted := s.last.Sub(s.since)
	s.longest, s.all, s.since = max(s.longest, lasted), s.all+lasted, time.Time{}
}
