package controller

import (
	"context"
	"fmt"
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
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Own is what only one kind of workload keeps in a session.
type Own interface {
	// HasSynced reports whether everything that is watched has been listed.
	HasSynced() bool
	// Retry forgets what was refused: it is asked for again at once.
	Retry()
}

// Session is what is kept of one workload while its rollout is in flight: a cache, which can
// be lost at any time. A kind's Apply writes the workload and records events through it.
type Session[W Workload, X Own] struct {
	// Pods of the workload's selector.
	Pods *live.Watch[*corev1.Pod]
	// Own is what only this kind of workload keeps.
	Own X

	controller *Controller[W, X]
	name       cache.ObjectName
	workload   types.UID
	stop       func()

	refused    *Refusals // sizes, by the API server
	full       *Refusals // replacements for which there was no room
	seen       *Sightings
	contests   Contests
	limits     capacity.Limits // of the namespace
	limitsRead time.Time
	retried    string               // what the workload said last of trying again
	asked      map[types.UID]string // pods that have taken a size of ours, and what that changes
	recorded   map[types.UID]string // the reason of the last wait of a pod that an event was recorded for
	waiting    map[string]int       // pods by the reason that they wait for
	others     sets.Set[string]     // who resizes the pods, too
	looseAfter time.Time            // until then nothing is let loose, because admission edited the template when it was
	edits      *backoff.ExponentialBackOff
}

// session returns the one of w, and opens it if there is none.
func (c *Controller[W, X]) session(ctx context.Context, w W) (*Session[W, X], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := cache.MetaObjectToName(w)
	if s := c.sessions[name]; s != nil {
		if s.workload == w.GetUID() {
			return s, nil
		}
		s.stop() // of a workload that had this name before
		delete(c.sessions, name)
	}
	selector, err := metav1.LabelSelectorAsSelector(c.kind.Selector(w))
	if err != nil {
		return nil, fmt.Errorf("reading the selector: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	changed := func() { c.queue.Add(name) }
	s := &Session[W, X]{
		controller: c, name: name, workload: w.GetUID(), stop: stop,
		refused: NewRefusals(), full: NewRefusals(), seen: &Sightings{}, contests: Contests{},
		asked: map[types.UID]string{}, recorded: map[types.UID]string{}, others: sets.Set[string]{},
	}
	if s.Pods, err = live.NewWatch[*corev1.Pod](ctx, c.kind.NewPodInformer(w.GetNamespace(), selector.String()), w.GetNamespace(), changed); err == nil {
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

// retry has everything tried again at once that was refused, put off or left, if the
// workload's annotation has a new value: what is remembered of it is forgotten. A new session
// has nothing to forget, but does not know what kubelets were asked, and when.
func (s *Session[W, X]) retry(w metav1.Object) {
	says := w.GetAnnotations()[api.RetryAnnotation]
	if says == s.retried {
		return
	}
	if s.retried = says; says == "" {
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

// Requeue has the workload synced again, because of a write that no watch tells of in time.
func (s *Session[W, X]) Requeue() { s.controller.queue.Add(s.name) }

// Now is the time by the clock of the plans.
func (s *Session[W, X]) Now() time.Time { return s.controller.clock.Now() }

// TakeAsked returns, once, what the size changes that the pod has taken from this controller;
// asked is false if it has taken none. A controller that is restarted meanwhile does not know.
func (s *Session[W, X]) TakeAsked(pod types.UID) (changes string, asked bool) {
	changes, asked = s.asked[pod]
	delete(s.asked, pod)
	return changes, asked
}

// countWaits keeps what pods wait for, for the metrics.
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
