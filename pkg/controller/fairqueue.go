package controller

import (
	"slices"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// fairQueue is a queue in which namespaces take turns, so that the many workloads of one do not
// delay the few of another. Those that are held come before others, such as those that are
// opted in and were not edited; but one of patience has its turn in any case.
type fairQueue struct {
	held   func(cache.ObjectName) bool
	queued map[cache.ObjectName]bool // whether each is held
	lines  map[bool]*line            // of those that are held, and of others
	passed int                       // how many others have been passed by, one after the other
}

// patience is after how many workloads that are held one that is not has its turn.
const patience = 8

func newFairQueue(held func(cache.ObjectName) bool) *fairQueue {
	return &fairQueue{held: held, queued: map[cache.ObjectName]bool{}, lines: map[bool]*line{true: newLine(), false: newLine()}}
}

var _ workqueue.Queue[cache.ObjectName] = &fairQueue{}

// Push adds a workload that is not queued.
func (q *fairQueue) Push(name cache.ObjectName) {
	held := q.held(name)
	q.queued[name] = held
	q.lines[held].push(name)
}

// Touch is called when a workload is added again that is queued: it may have been edited.
func (q *fairQueue) Touch(name cache.ObjectName) {
	if before, is := q.queued[name]; is && !before && q.held(name) {
		q.queued[name] = true
		q.lines[true].push(name) // the place in the other line is passed by
	}
}

// Len returns how many are queued.
func (q *fairQueue) Len() int { return len(q.queued) }

// Pop takes out the next one. There must be one.
func (q *fairQueue) Pop() cache.ObjectName {
	for {
		held := q.lines[true].len() > 0 && (q.passed < patience || q.lines[false].len() == 0)
		name := q.lines[held].pop(nil)
		if is, queued := q.queued[name]; !queued || is != held {
			continue // it has gone to the other line
		}
		if q.passed++; !held {
			q.passed = 0
		}
		delete(q.queued, name)
		return name
	}
}

// line is a queue in which namespaces take turns.
type line struct {
	namespaces []string // with a turn to come, in this order
	names      map[string][]cache.ObjectName
}

func newLine() *line { return &line{names: map[string][]cache.ObjectName{}} }

func (l *line) len() int { return len(l.namespaces) }

func (l *line) push(name cache.ObjectName) {
	waiting := l.names[name.Namespace]
	if len(waiting) == 0 {
		l.namespaces = append(l.namespaces, name.Namespace)
	}
	l.names[name.Namespace] = append(waiting, name)
}

// pop takes out the next one: of the first namespace that may, or of the first if none may, or may is
// nil. There must be one.
func (l *line) pop(may func(namespace string) bool) cache.ObjectName {
	first := 0
	if may != nil {
		first = max(slices.IndexFunc(l.namespaces, may), 0)
	}
	namespace := l.namespaces[first]
	waiting := l.names[namespace]
	l.namespaces = slices.Delete(l.namespaces, first, first+1)
	if len(waiting) == 1 {
		delete(l.names, namespace)
	} else {
		l.names[namespace] = waiting[1:]
		l.namespaces = append(l.namespaces, namespace)
	}
	return waiting[0]
}
