package controller

import (
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
)

// What one tenant can make the controller do at once is bounded.
const (
	// maxOpening bounds how many sessions are opened at once. When thousands of workloads are opted
	// in or edited together, each is looked at once, and each look needs watches. The same goes for
	// a controller that is started where thousands are held.
	maxOpening = 50

	// maxSessions bounds how many sessions of a kind there are at once. Each has two watches; 500
	// sessions of one pod each took 80 MiB, and deploy/ gives 256 to all.
	maxSessions = 300
)

// opening are workloads whose sessions are being opened, and those that wait for their turn.
type opening struct {
	now     sets.Set[cache.ObjectName]
	waiting *turns
}

func newOpening() opening {
	return opening{sets.Set[cache.ObjectName]{}, newTurns(func(cache.ObjectName) bool { return true })}
}

// mayOpen reports whether the session of a workload may be opened now. If not, the workload is
// queued again when it has its turn. Those that are held do not wait for those that are not.
func (c *Controller[W, X]) mayOpen(name cache.ObjectName, held bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.opening[held]
	switch {
	case c.sessions[name] != nil:
	case o.now.Len() >= maxOpening:
		if _, waits := o.waiting.queued[name]; !waits {
			o.waiting.Push(name)
		}
		return false
	default:
		o.now.Insert(name)
	}
	return true
}

// openNext gives those that wait their turn, after a sync of the workload of that name.
func (c *Controller[W, X]) openNext(name cache.ObjectName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[name]
	if s != nil {
		s.idleSince = time.Now()
	}
	for _, o := range c.opening {
		if s == nil || s.hasSynced() {
			o.now.Delete(name)
		}
		for range min(maxOpening-o.now.Len(), o.waiting.Len()) {
			c.queue.Add(o.waiting.Pop())
		}
	}
}

// makeRoom ends one session if there are as many as there may be: one that only stands if there is,
// of the namespace that has most of them, the one that has waited longest. It is a cache, and its
// workload is looked at again soon. The caller has locked c.mu.
func (c *Controller[W, X]) makeRoom() {
	if len(c.sessions) < maxSessions {
		return
	}
	idle := map[string]int{}
	for name, s := range c.sessions {
		if !s.idleSince.IsZero() {
			idle[name.Namespace]++
		}
	}
	var longest *Session[W, X]
	for name, s := range c.sessions {
		if s.idleSince.IsZero() {
			continue
		}
		switch {
		case longest == nil || s.standing && !longest.standing:
			longest = s
		case s.standing != longest.standing:
		case idle[name.Namespace] > idle[longest.name.Namespace],
			name.Namespace == longest.name.Namespace && s.idleSince.Before(longest.idleSince):
			longest = s
		}
	}
	if longest == nil { // all are being synced: there are no more of these than workers
		return
	}
	longest.stop()
	delete(c.sessions, longest.name)
	c.queue.AddAfter(longest.name, maxRetryInterval)
}
