package controller

import (
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
)

// maxOpening bounds how many sessions of workloads that nobody holds are opened at once. When
// thousands are opted in together, each is looked at once, and each look needs watches. A
// rollout does not wait for that.
const maxOpening = 50

// opening are the workloads that nobody holds whose sessions are being opened, and those that
// wait for their turn.
type opening struct{ now, waiting sets.Set[cache.ObjectName] }

func newOpening() opening {
	return opening{sets.Set[cache.ObjectName]{}, sets.Set[cache.ObjectName]{}}
}

// mayOpen reports whether the session of a workload that nobody holds may be opened now. If
// not, the workload is queued again when it has its turn.
func (c *Controller[W, X]) mayOpen(name cache.ObjectName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.sessions[name] != nil:
	case c.opening.now.Len() >= maxOpening:
		c.opening.waiting.Insert(name)
		return false
	default:
		c.opening.now.Insert(name)
	}
	return true
}

// openNext gives those that wait their turn, after a sync of the workload of that name.
func (c *Controller[W, X]) openNext(name cache.ObjectName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.sessions[name]; s == nil || s.hasSynced() {
		c.opening.now.Delete(name)
	}
	for range maxOpening - c.opening.now.Len() {
		if next, waits := c.opening.waiting.PopAny(); waits {
			c.queue.Add(next)
		}
	}
}
