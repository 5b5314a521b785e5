package controller

import (
	"fmt"
	"testing"

	"k8s.io/client-go/tools/cache"
)

// Of many workloads, so many are looked at at once. The others follow, also where one of them
// turns out to need no look.
func TestOpening(t *testing.T) {
	e := newEngine(t, Options{})
	var now, waiting []cache.ObjectName
	for i := range maxOpening + 3 {
		name := cache.ObjectName{Namespace: "default", Name: fmt.Sprint(i)}
		if e.mayOpen(name, false) {
			now = append(now, name)
		} else {
			waiting = append(waiting, name)
		}
	}
	if len(now) != maxOpening || len(waiting) != 3 || e.queue.Len() > 0 {
		t.Fatalf("%d are opened, %d wait, %d are queued", len(now), len(waiting), e.queue.Len())
	}
	if !e.mayOpen(cache.ObjectName{Namespace: "default", Name: "held"}, true) {
		t.Error("one that is held waits for those that are not")
	}
	e.openNext(waiting[0]) // it has not had its turn
	if e.queue.Len() > 0 {
		t.Fatalf("%d are queued while nothing has changed", e.queue.Len())
	}
	next := func() cache.ObjectName {
		t.Helper()
		if e.queue.Len() != 1 {
			t.Fatalf("%d are queued, want 1", e.queue.Len())
		}
		name, _ := e.queue.Get()
		e.queue.Done(name)
		return name
	}
	e.openNext(now[0]) // it has been looked at
	needsNoLook := next()
	e.openNext(needsNoLook)
	if name := next(); !e.mayOpen(name, false) {
		t.Errorf("%s has its turn, and may not be opened", name)
	}
	e.openNext(now[1])
	if name := next(); !e.mayOpen(name, false) {
		t.Errorf("%s has its turn, and may not be opened", name)
	}
	e.sessions[e.session.name] = e.session
	if !e.mayOpen(e.session.name, false) {
		t.Error("one whose session is there already waits")
	}
}
