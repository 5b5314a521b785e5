package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/mutationcache"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// KindState is what only one kind of workload keeps in a session.
type KindState interface {
	// HasSynced reports whether everything that is watched has been listed.
	HasSynced() bool
	// Size is how many bytes of templates there are in it.
	Size() int
}

// Session is what is watched of one workload while its rollout is in flight, and what was found
// there. It is a cache that can be lost at any time. A kind's Apply writes the workload and records
// events through it.
type Session[W Workload, K KindState] struct {
	// State that goes with the session, and is watched, read or found again by the next one.

	// Pods of the workload's selector.
	Pods *mutationcache.Cache[*corev1.Pod]
	// KindState is what only this kind of workload keeps.
	KindState K
	cached

	// unanswered: a pod may have been resized by a request that nobody has answered.
	unanswered bool

	// State that stays when the session is put away for room.
	*memory

	// What tells which session may be put away for room.

	idleSince time.Time // the last sync has ended then; none while one is under way
	weight    int       // as how many it counts
	follows   bool      // the built-in controller makes the rollout: the next hold begins with a list of its own
	standing  bool      // nothing is rolled out: see rollout.BuiltInStatus.Standing

	// Wiring: it stays the same for as long as there is the session.

	controller *Controller[W, K]
	name       cache.ObjectName
	stop       func()
}

// cached is what was read or found for one plan, and spares the next ones from looking again.
type cached struct {
	verdicts   rollout.VerdictCache // on the pods
	unseen     []*judge.Verdict     // fresh ones that are not noted yet
	shown      []*corev1.Pod        // that the sightings have been shown
	limits     capacity.Limits      // of the namespace
	limitsRead time.Time
	version    string // of the workload, when it was looked at last
	since      time.Time
	room       *capacity.Places // of the nodes and the limits
	nodes      []*corev1.Node   // of room
}

// session returns the session of w, and opens it if there is none.
func (c *Controller[W, K]) session(ctx context.Context, w W) (opened *Session[W, K], err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := cache.MetaObjectToName(w)
	s, m := c.sessions[name], c.memories[name]
	if s != nil && s.workload == w.GetUID() && (!s.follows || !policy.Held(w)) {
		s.idleSince = time.Time{}
		return s, nil
	}
	if s != nil || m != nil && m.workload != w.GetUID() { // of a rollout that nobody held, or of a workload that had this name before
		c.forget(name)
	}
	expected := c.expected(name)
	c.makeRoom(expected)
	selector, err := metav1.LabelSelectorAsSelector(c.access.Selector(w))
	if err != nil {
		return nil, fmt.Errorf("reading the selector: %w", err)
	}
	if m = c.memories[name]; m == nil {
		m = newMemory(w.GetUID())
		m.Notes.Rested = rollout.Rested(w, c.access.Condition(w))
	}
	ctx, stop := context.WithCancel(ctx)
	defer func() {
		if opened == nil { // it has failed, or panicked
			stop()
		}
	}()
	changed := func() { c.queue.Add(name) }
	s = &Session[W, K]{memory: m, controller: c, name: name, stop: stop, weight: expected}
	if s.Pods, err = mutationcache.New(ctx, c.access.NewPodInformer(w.GetNamespace(), selector.String()), pods.Strip, changed); err == nil {
		s.KindState, err = c.kind.Open(ctx, w, changed)
	}
	if err != nil {
		return nil, err
	}
	c.sessions[name], c.memories[name] = s, m
	return s, nil
}

// endSession ends the session of the workload, if it has one, and forgets all that is remembered of it.
func (c *Controller[W, K]) endSession(name cache.ObjectName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(name)
}

// forget ends what goes on for the workload that had the name last, and forgets it. The caller has locked c.mu.
func (c *Controller[W, K]) forget(name cache.ObjectName) {
	if s := c.sessions[name]; s != nil {
		s.stop()
		delete(c.sessions, name)
	}
	if m := c.memories[name]; m != nil && m.checks {
		c.options.Checks.Ask(c.checked(name), nil, nil, nil)
	}
	delete(c.memories, name)
	delete(c.awaited, name)
}

func (s *Session[W, K]) hasSynced() bool { return s.Pods.HasSynced() && s.KindState.HasSynced() }

// retry has everything that was refused, put off or left tried again at once, if the retry annotation
// of the workload has a new value.
func (s *Session[W, K]) retry(w metav1.Object) {
	if s.memory.retry(w.GetAnnotations()[api.RetryAnnotation]) {
		s.limitsRead = time.Time{}
	}
}

// Limits returns those of the namespace, as they were read last.
func (s *Session[W, K]) Limits() capacity.Limits { return s.limits }

// Requeue has the workload synced again at once, after a write that no watch shows in time.
func (s *Session[W, K]) Requeue() { s.controller.queue.Add(s.name) }

// Now returns the time by the clock of the plans.
func (s *Session[W, K]) Now() time.Time { return s.controller.clock.Now() }

// countWaits counts, for the metrics, the pods by the reason that they wait for.
func (s *Session[W, K]) countWaits(waits []rollout.Wait) {
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
