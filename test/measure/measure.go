package measure

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/inplace-rollout/inplace-rollout/test/cgroup"
	"github.com/inplace-rollout/inplace-rollout/test/counter"
	"github.com/inplace-rollout/inplace-rollout/test/realnode"
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

// Ready reports whether a pod is there, Ready, and stays.
func Ready(pod *corev1.Pod) bool {
	return pod != nil && pod.DeletionTimestamp == nil && podutils.IsPodReady(pod)
}

// ContainerStatus is what the kubelet tells of a container.
func ContainerStatus(pod *corev1.Pod, name string) corev1.ContainerStatus {
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == name {
			return c
		}
	}
	return corev1.ContainerStatus{}
}

// OtherSize tells where a container of a pod has another size than it should: in its spec, and in what the
// kubelet tells of it.
func OtherSize(pod *corev1.Pod, container string, want corev1.ResourceRequirements) []string {
	var differs []string
	for _, c := range pod.Spec.Containers {
		if c.Name == container && !equality.Semantic.DeepEqual(c.Resources, want) {
			differs = append(differs, fmt.Sprintf("spec %v, want %v", c.Resources, want))
		}
	}
	status := ContainerStatus(pod, container)
	if status.Resources == nil || !equality.Semantic.DeepEqual(*status.Resources, want) {
		differs = append(differs, fmt.Sprintf("status %v, want %v", status.Resources, want))
	}
	if !equality.Semantic.DeepEqual(status.AllocatedResources, want.Requests) {
		differs = append(differs, fmt.Sprintf("allocated %v, want %v", status.AllocatedResources, want.Requests))
	}
	return differs
}

// HasSize reports whether all containers of a pod have the size that a template gives them, and no resize is
// under way.
func HasSize(pod *corev1.Pod, template []corev1.Container) bool {
	return Resizing(pod) == "" && len(pod.Spec.Containers) == len(template) &&
		!slices.ContainsFunc(template, func(c corev1.Container) bool { return len(OtherSize(pod, c.Name, c.Resources)) > 0 })
}

// Resizing tells how far the kubelet is with a resize, or is empty.
func Resizing(pod *corev1.Pod) string {
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

func containerIDs(pod *corev1.Pod) []string {
	var ids []string
	for _, c := range pod.Status.ContainerStatuses {
		if c.ContainerID != "" {
			ids = append(ids, c.ContainerID)
		}
	}
	return ids
}

// WrongSize is how many pods have another size than the template wants, in spec or status, or are still being resized.
func (s *State) WrongSize() (n int) {
	for _, pod := range s.Pods {
		if !HasSize(pod, s.Template().Spec.Containers) {
			n++
		}
	}
	return n
}

// PodNames are the names of the pods, in order.
func (s *State) PodNames() []string { return slices.Sorted(maps.Keys(s.Pods)) }

// Visit is one visit to the program in a pod on a real node.
type Visit struct {
	*corev1.Pod               // as it was then
	Kernel      cgroup.Limits // that the kernel grants its container
	Reads       cgroup.Limits // that its program reads there
	Count       int64         // how many visits the program remembers, this one included
	Err         error         // if it did not answer
}

// Visit sends a visitor to every pod of some namespaces when it becomes Ready, until the context is done. The
// pods run the program of test/images/counter on the node, and each visitor returns after a pause.
func (r *Recorder) Visit(ctx context.Context, node *realnode.Node, pause time.Duration, namespaces ...string) {
	go func() {
		hosts := map[types.UID]*host{}
		for seen := 0; ctx.Err() == nil; {
			moments, changed := r.From(seen)
			seen += len(moments)
			for _, m := range moments {
				pod, is := m.Object.(*corev1.Pod)
				if !is || !slices.Contains(namespaces, pod.Namespace) {
					continue
				}
				h := hosts[pod.UID]
				if h != nil {
					h.pod.Store(pod)
					h.gone.Store(m.Deleted)
				} else if Ready(pod) {
					h = &host{}
					h.pod.Store(pod)
					hosts[pod.UID] = h
					go r.keepVisiting(ctx, node, pause, h)
				}
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}()
}

// host is a pod that is visited.
type host struct {
	pod  atomic.Pointer[corev1.Pod] // as it is now; a container that restarts gets another cgroup
	gone atomic.Bool
}

// keepVisiting visits a pod until it is gone, over one connection as long as that
// lasts. Of visits without an answer the first one counts, until there is one again.
func (r *Recorder) keepVisiting(ctx context.Context, node *realnode.Node, pause time.Duration, h *host) {
	browser := node.HTTP(10 * time.Second)
	defer browser.CloseIdleConnections()
	for answered := true; ; {
		v := visit(ctx, node, browser, h.pod.Load())
		if ctx.Err() != nil {
			return
		}
		if v.Err == nil || answered {
			r.note(Moment{At: time.Now(), Object: v})
		}
		if answered = v.Err == nil; !answered && h.gone.Load() {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func visit(ctx context.Context, node *realnode.Node, browser *http.Client, pod *corev1.Pod) *Visit {
	v := &Visit{Pod: pod}
	granted, err := node.Cgroup(pod, pod.Spec.Containers[0].Name)
	if err == nil {
		v.Kernel, err = granted.Limits()
	}
	if err == nil {
		v.Reads, err = counter.Limits(ctx, browser, pod)
	}
	if err == nil {
		v.Count, err = counter.Add(ctx, browser, pod)
	}
	v.Err = err
	return v
}
