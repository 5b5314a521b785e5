package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
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

// Namespaces take turns at being looked at.
func TestOpeningInTurns(t *testing.T) {
	e := newEngine(t, Options{})
	for i := range maxOpening + 100 {
		e.mayOpen(cache.ObjectName{Namespace: "many", Name: fmt.Sprint(i)}, true)
	}
	one := cache.ObjectName{Namespace: "few", Name: "one"}
	if e.mayOpen(one, true) {
		t.Fatal("there is no bound for those that are held")
	}
	for i := range 2 {
		e.openNext(cache.ObjectName{Namespace: "many", Name: fmt.Sprint(i)})
	}
	var next []cache.ObjectName
	for e.queue.Len() > 0 {
		name, _ := e.queue.Get()
		next = append(next, name)
	}
	if len(next) > 3 || !slices.Contains(next, one) {
		t.Errorf("next are %v, want %s among them", next, one)
	}
}

// A workload that was edited a moment ago waits for its turn like others: many may be edited at once.
func TestPrepareInTurn(t *testing.T) {
	e := newEngine(t, Options{Ready: func() error { return nil }})
	e.kind.unobserved = true
	if err := e.informer.GetStore().Add(e.w); err != nil {
		t.Fatal(err)
	}
	for i := range maxOpening {
		e.mayOpen(cache.ObjectName{Namespace: "many", Name: fmt.Sprint(i)}, true)
	}
	if _, err := e.Sync(t.Context(), e.session.name); err != nil {
		t.Fatal(err)
	}
	if len(e.sessions) > 0 || e.opening[true].waiting.Len() != 1 {
		t.Errorf("there are %d sessions, and %d wait for one", len(e.sessions), e.opening[true].waiting.Len())
	}
}

// When there are as many sessions as there may be, one of the namespace with most of them ends,
// and none that is being synced.
func TestMakeRoom(t *testing.T) {
	e := newEngine(t, Options{})
	add := func(namespace string, number int, idleFor time.Duration) cache.ObjectName {
		name := cache.ObjectName{Namespace: namespace, Name: fmt.Sprint(number)}
		s := &Session[*appsv1.ReplicaSet, plainOwn]{controller: e.Controller, name: name, stop: func() {}}
		if idleFor > 0 {
			s.idleSince = time.Now().Add(-idleFor)
		}
		e.sessions[name] = s
		return name
	}
	for i := range maxSessions - 6 {
		add("many", i, time.Minute)
	}
	for i := range 3 {
		add("few", i, time.Hour)
	}
	add("many", 1001, 0) // is being synced
	e.makeRoom()
	if len(e.sessions) != maxSessions-2 {
		t.Fatalf("%d sessions are left, though there is room", len(e.sessions))
	}
	longest := add("many", 1002, 10*time.Minute)
	add("many", 1003, time.Second)
	e.makeRoom()
	if len(e.sessions) != maxSessions-1 || e.sessions[longest] != nil {
		t.Errorf("%d sessions are left; the one that has waited longest of the largest namespace is among them: %t", len(e.sessions), e.sessions[longest] != nil)
	}
	e.sessions[add("few", 5, time.Second)].standing = true
	e.makeRoom()
	if e.sessions[cache.ObjectName{Namespace: "few", Name: "5"}] != nil {
		t.Error("one that only stands is left, and one with a rollout has ended")
	}
	for _, s := range e.sessions {
		s.idleSince = time.Time{}
	}
	add("few", 4, 0)
	e.makeRoom()
	if len(e.sessions) != maxSessions {
		t.Errorf("one that is being synced has lost its session")
	}
}

// TestForget: a session that stands does not grow with the pods that come and go.
func TestForget(t *testing.T) {
	e := newEngine(t, Options{})
	s := e.session
	var members []*rollout.Verdict
	for i := range 1000 {
		pod := build.Pod(fmt.Sprint(i), build.Size(t, ""))
		v := &rollout.Verdict{Member: rollout.Member{Place: rollout.Place{Pod: pod}}}
		members = append(members[max(0, len(members)-9):], v)
		s.seen.See(members)
		s.refused.Add(pod.UID, "", rollout.Refusal{Reason: "too large"}, time.Now())
		s.recorded[pod.UID], s.asked[pod.UID], s.contests[pod.UID] = "Infeasible", request{}, 1
		s.forget(members)
	}
	for what, n := range map[string]int{"sightings": len(s.seen.pods), "refusals": len(s.refused.known), "backoffs": len(s.refused.backoffs), "events": len(s.recorded), "requests": len(s.asked), "contests": len(s.contests)} {
		if n < 10 || n > 20+fewNotes {
			t.Errorf("%d %s are kept of 10 pods", n, what)
		}
	}
}
