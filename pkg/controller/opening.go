package controller

import (
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
)

// maxOpening bounds how many sessions are opened at once. When thousands of workloads are opted
// in together, each is looked at once, and each look needs watches. The same goes for a
// controller that is started where thousands are held. A workload that was edited a moment ago
// does not count: its session opens at once (see prepare).
const maxOpening = 50

// opening are workloads whose sessions are being opened, and those that wait for their turn.
type opening struct{ now, waiting sets.Set[cache.ObjectName] }

func newOpening() opening {
	return opening{sets.Set[cache.ObjectName]{}, sets.Set[cache.ObjectName]{}}
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
		o.waiting.Insert(name)
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
	for _, o := range c.opening {
		if s == nil || s.hasSynced() {
			o.now.Delete(name)
		}
		for range maxOpening - o.now.Len() {
			if next, waits := o.waiting.PopAny(); waits {
				c.queue.Add(next)
			}
		}
	}
}
