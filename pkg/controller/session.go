package controller

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/live"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Own is what only one kind of workload keeps in a session.
type Own interface {
	// HasSynced reports whether everything that is watched has been listed.
	HasSynced() bool
	// Retry forgets what was refused, so that it is asked for again at once.
	Retry()
}

// Session is what is kept of one workload while its rollout is in flight. It is a cache that
// can be lost at any time. A kind's Apply writes the workload and records events through it.
type Session[W Workload, X Own] struct {
	// Pods of the workload's selector.
	Pods *live.Watch[*corev1.Pod]
	// Own is what only this kind of workload keeps.
	Own X

	controller *Controller[W, X]
	name       cache.ObjectName
	workload   types.UID
	stop       func()
	idleSince  time.Time // the last sync has ended then; none while one is under way
	standing   bool      // nothing is rolled out: see Unheld.Standing

	refused    *Refusals // of sizes, by the API server
	full       *Refusals // of restarts, for lack of room
	seen       *Sightings
	contests   Contests
	kept       *Kept           // of the pods, from plan to plan
	limits     capacity.Limits // of the namespace
	limitsRead time.Time
	room       *capacity.Places      // of the nodes and the limits
	nodes      []*corev1.Node        // of room
	retried    string                // the value of the retry annotation that was obeyed last
	asked      map[types.UID]request // pods that have taken a size of ours, and lack it still
	progress   progress              // that events of the workload have told
	recorded   map[types.UID]string  // the reason of the last wait of a pod that an event was recorded for
	waiting    map[string]int        // pods by the reason that they wait for
	others     sets.Set[string]      // the field managers that resize the pods, too
	mu         sync.Mutex            // guards what writes on pods note: they are made in parallel
	looseAfter time.Time             // until then the built-in controller is not let loose, because admission edited the template
	edits      *backoff.ExponentialBackOff
}

// request is what this controller has asked of a pod.
type request struct {
	changes string    // that the new size makes
	at      time.Time // when it was asked for, by our own clock
}

// session returns the session of w, and opens it if there is none.
func (c *Controller[W, X]) session(ctx context.Context, w W) (*Session[W, X], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := cache.MetaObjectToName(w)
	if s := c.sessions[name]; s != nil {
		if s.workload == w.GetUID() {
			s.idleSince = time.Time{}
			return s, nil
		}
		s.stop() // of a workload that had this name before
		delete(c.sessions, name)
	}
	c.makeRoom()
	selector, err := metav1.LabelSelectorAsSelector(c.kind.Selector(w))
	if err != nil {
		return nil, fmt.Errorf("reading the selector: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	changed := func() { c.queue.Add(name) }
	s := &Session[W, X]{
		controller: c, name: name, workload: w.GetUID(), stop: stop,
		refused: NewRefusals(), full: NewRefusals(), seen: &Sightings{}, contests: Contests{}, kept: &Kept{},
		asked: map[types.UID]request{}, recorded: map[types.UID]string{}, others: sets.Set[string]{},
	}
	if s.Pods, err = live.NewWatch(ctx, c.kind.NewPodInformer(w.GetNamespace(), selector.String()), pods.Strip, changed); err == nil {
		s.Own, err = c.kind.Open(ctx, w, changed)
	}
	if err != nil {
		stop()
		return nil, err
	}
	c.sessions[name] = s
	return s, nil
}

// endSession ends the session of the workload, if it has one.
func (c *Controller[W, X]) endSession(name cache.ObjectName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.sessions[name]; s != nil {
		s.stop()
		delete(c.sessions, name)
	}
}

func (s *Session[W, X]) hasSynced() bool { return s.Pods.HasSynced() && s.Own.HasSynced() }

// retry forgets all refusals if the retry annotation of the workload has a new value. So
// everything that was refused, put off or left is tried again at once. In a new session that
// concerns the kubelets only: it is not known what they were asked, and when.
func (s *Session[W, X]) retry(w metav1.Object) {
	value := w.GetAnnotations()[api.RetryAnnotation]
	if value == s.retried {
		return
	}
	if s.retried = value; value == "" {
		return
	}
	s.refused.Clear()
	s.full.Clear()
	clear(s.contests)
	clear(s.recorded)
	s.limitsRead = time.Time{}
	s.seen.askAgain()
	s.Own.Retry()
}

// forget forgets what was noted of pods that are no members any more, when that is more than what is
// noted of those that are: a session may stand for as long as its workload.
func (s *Session[W, X]) forget(members []*rollout.Verdict) {
	if len(members) == 0 || len(s.seen.pods) <= 2*len(members)+fewNotes {
		return
	}
	there := sets.Set[types.UID]{}
	for _, v := range members {
		if v.Member.Pod != nil {
			there.Insert(v.Member.Pod.UID)
		}
	}
	forget(s.seen.pods, there)
	forget(s.refused.known, there)
	forget(s.refused.backoffs, there)
	forget(s.full.known, there)
	forget(s.full.backoffs, there)
	forget(s.contests, there)
	forget(s.asked, there)
	forget(s.recorded, there)
}

// fewNotes are not worth looking for what can be forgotten.
const fewNotes = 100

func forget[M ~map[types.UID]V, V any](notes M, but sets.Set[types.UID]) {
	maps.DeleteFunc(notes, func(pod types.UID, _ V) bool { return !but.Has(pod) })
}

// Requeue has the workload synced again at once, after a write that no watch shows in time.
func (s *Session[W, X]) Requeue() { s.controller.queue.Add(s.name) }

// Now returns the time by the clock of the plans.
func (s *Session[W, X]) Now() time.Time { return s.controller.clock.Now() }

// countWaits counts, for the metrics, the pods by the reason that they wait for.
func (s *Session[W, X]) countWaits(waits []rollout.Wait) {
	count := map[string]int{}
	for _, wait := range waits {
		if wait.Member.Pod != nil {
			count[wait.Reason]++
		}
	}
	s.controller.mu.Lock()
	defer s.controller.mu.Unlock()
	s.waiting = count
}
