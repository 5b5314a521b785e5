package controller

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
)

// openingShare of the sessions are opened at once: 50 of 300. When thousands of workloads are opted in
// or edited together, each is looked at once, and each look needs watches. The same goes for a
// controller that is started where thousands are held.
const openingShare = 6

// maxOpening bounds how many of so many sessions are opened at once.
func maxOpening(sessions int) int { return max(sessions/openingShare, 2) }

// openingTime is for how long a session may be opened before another one has its turn. Its watches go
// on: one may have much to list, or ask for what the API server never answers, such as by a selector
// that is too long for a request.
const openingTime = 30 * time.Second

// heavy is how many bytes of templates a session counts as one more for. In memory they take some 2.3 times as much, so those of
// [DefaultSessions] take up to 44 MiB.
const heavy = 64 << 10

// weight is as how many a session counts that keeps templates of so many bytes.
func weight(size int) int { return 1 + size/heavy }

// opening are workloads whose sessions are being opened, and those that wait for their turn.
type opening struct {
	most    int                             // at once
	weight  func(name cache.ObjectName) int // as how many one counts
	now     map[cache.ObjectName]time.Time  // since when
	waits   sets.Set[cache.ObjectName]
	waiting *line
}

func newOpening(most int, weight func(cache.ObjectName) int) *opening {
	return &opening{most, weight, map[cache.ObjectName]time.Time{}, sets.Set[cache.ObjectName]{}, newLine()}
}

// opens returns of how many workloads of a namespace sessions are being opened; of all if it is empty.
func (o *opening) opens(namespace string) (number int) {
	for name := range o.now {
		if namespace == "" || name.Namespace == namespace {
			number += o.weight(name)
		}
	}
	return number
}

// full reports whether no more may be opened for now.
func (o *opening) full() bool { return o.opens("") >= o.most }

// mayTurn reports whether a namespace may have one more turn while another one waits: then none has
// more than half of them.
func (o *opening) mayTurn(namespace string) bool { return o.opens(namespace) < o.most/2 }

// takeBack ends a turn, if there are as many as there may be, for the sake of a workload of the
// namespace: the longest of a namespace that has more than half of them.
func (o *opening) takeBack(namespace string) {
	if !o.full() || !o.mayTurn(namespace) {
		return
	}
	var longest cache.ObjectName
	for name, since := range o.now {
		if o.opens(name.Namespace) > o.most/2 && (longest.Name == "" || since.Before(o.now[longest])) {
			longest = name
		}
	}
	delete(o.now, longest)
}

// wait puts a workload into the line, if it is not there.
func (o *opening) wait(name cache.ObjectName) {
	if !o.waits.Has(name) {
		o.waits.Insert(name)
		o.waiting.push(name)
	}
}

// next takes out of the line whose turn it is now; false if nobody's.
func (o *opening) next() (name cache.ObjectName, is bool) {
	if o.full() || o.waiting.len() == 0 {
		return name, false
	}
	name = o.waiting.pop(o.mayTurn)
	o.waits.Delete(name)
	return name, true
}

// mayOpen reports whether the session of a workload may be opened now. If not, the workload is
// queued again when it has its turn. Those that are held do not wait for those that are not.
func (c *Controller[W, K]) mayOpen(name cache.ObjectName, held bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.opening[held]
	if _, has := o.now[name]; has || c.sessions[name] != nil {
		return true
	}
	if o.takeBack(name.Namespace); o.full() {
		o.wait(name)
		return false
	}
	c.turn(o, name)
	return true
}

// mayFollow reports whether a workload whose rollout the built-in controller makes has a session, or one may be opened for it,
// and none is put away for that.
func (c *Controller[W, K]) mayFollow(name cache.ObjectName) bool {
	room := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.sessions[name] != nil || c.load()+c.expected(name) <= c.options.Sessions
	}
	return room() && c.mayOpen(name, false)
}

// turn begins a workload's turn. It is looked at again when that is over. The caller has locked c.mu.
func (c *Controller[W, K]) turn(o *opening, name cache.ObjectName) {
	o.now[name] = c.clock.Now()
	c.queue.AddAfter(name, openingTime)
}

// openNext gives those that wait their turn, after a sync of the workload of that name.
func (c *Controller[W, K]) openNext(name cache.ObjectName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, now := c.sessions[name], c.clock.Now()
	if s != nil {
		if s.hasSynced() {
			s.weight = weight(s.KindState.Size())
			c.makeRoom(0)
		}
		s.idleSince = now
	}
	for _, o := range c.opening {
		if s == nil || s.hasSynced() {
			delete(o.now, name)
		}
		maps.DeleteFunc(o.now, func(_ cache.ObjectName, since time.Time) bool { return now.Sub(since) >= openingTime })
		for next, is := o.next(); is; next, is = o.next() {
			c.turn(o, next)
			c.queue.Add(next)
		}
	}
}

// expected is as how many the session of a workload is likely to count.
func (c *Controller[W, K]) expected(name cache.ObjectName) int {
	w, exists, err := c.decode(c.informer.GetStore().GetByKey(name.String()))
	if err != nil || !exists {
		return weight(0)
	}
	return min(weight(c.access.Size(w)), c.options.Sessions)
}

// load is as how many all sessions count. The caller has locked c.mu.
func (c *Controller[W, K]) load() (load int) {
	for _, s := range c.sessions {
		load += s.weight
	}
	return load
}

// makeRoom puts sessions away until there is room for one that counts as so many, or all are being synced: there are no more of these
// than workers. The caller has locked c.mu.
func (c *Controller[W, K]) makeRoom(weight int) {
	for c.load()+weight > c.options.Sessions && c.evictIdleSession() {
	}
}

// evictIdleSession puts one session away: one that only stands if there is, of the namespace that has most of them, the one that has
// waited longest. What is remembered of its workload stays, and that is looked at again soon. It reports whether there was one. The
// caller has locked c.mu.
func (c *Controller[W, K]) evictIdleSession() bool {
	idle := map[string]int{}
	for name, s := range c.sessions {
		if !s.idleSince.IsZero() {
			idle[name.Namespace] += s.weight
		}
	}
	var longest *Session[W, K]
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
	if longest == nil {
		return false
	}
	longest.stop()
	delete(c.sessions, longest.name)
	c.queue.AddAfter(longest.name, maxRetryInterval)
	return true
}
