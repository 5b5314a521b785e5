package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// Of many workloads, so many are looked at at once. The others follow, also where one of them
// turns out to need no look.
func TestOpening(t *testing.T) {
	e := newEngine(t, Options{})
	maxOpening := maxOpening(DefaultSessions)
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
	namespaces := []string{"many", "more"}
	for i := range maxOpening(DefaultSessions) + 100 {
		e.mayOpen(cache.ObjectName{Namespace: namespaces[i%2], Name: fmt.Sprint(i / 2)}, true)
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

// Where watches never begin, the others have their turn after a while; those of another namespace at
// once, as long as it has no more than half of the turns.
func TestOpeningEnds(t *testing.T) {
	e := newEngine(t, Options{})
	most := maxOpening(DefaultSessions)
	ask := func(namespace string, number int) (opened int) {
		for i := range number {
			if e.mayOpen(cache.ObjectName{Namespace: namespace, Name: fmt.Sprint(i)}, true) {
				opened++
			}
		}
		return opened
	}
	queued := func() map[string]int {
		t.Helper()
		count := map[string]int{}
		for e.queue.Len() > 0 {
			name, _ := e.queue.Get()
			e.queue.Done(name)
			if count[name.Namespace]++; !e.mayOpen(name, true) {
				t.Errorf("%s has its turn, and may not be opened", name)
			}
		}
		return count
	}
	if opened := ask("bad", most+10); opened != most {
		t.Errorf("%d of the first namespace are opened, want %d", opened, most)
	}
	if opened := ask("few", 1); opened != 1 {
		t.Error("one of another namespace waits for more than half of all")
	}
	e.pass(time.Second)
	if opened := ask("worse", most); opened != most/2-1 {
		t.Errorf("%d of a third namespace are opened, want %d", opened, most/2-1)
	}
	if opened := e.opening[true].opens("bad"); opened != most/2 {
		t.Errorf("%d of the first namespace are being opened still, want %d", opened, most/2)
	}
	if opened := ask("late", 1); opened != 0 {
		t.Error("there is no bound")
	}
	nobody := cache.ObjectName{Namespace: "nobody"}
	e.pass(openingTime - time.Second)
	e.openNext(nobody) // some sync has ended
	if got, want := queued(), map[string]int{"bad": 9, "worse": 1, "late": 1}; got["late"] != 1 || got["bad"]+got["worse"] != most/2 {
		t.Errorf("their turn have %v, want %v", got, want)
	}
	e.pass(openingTime)
	e.openNext(nobody)
	if len(e.opening[true].now) > most || e.queue.Len() == 0 {
		t.Errorf("%d are being opened, and %d have their turn", len(e.opening[true].now), e.queue.Len())
	}
}

// Why the pods of a workload cannot be watched is told, without the address: the selector in it may
// be very long.
func TestNeverWatched(t *testing.T) {
	e := newEngine(t, Options{Ready: func() error { return nil }})
	e.kind.watched = &url.Error{Op: "Get", URL: "https://api/pods?labelSelector=" + strings.Repeat("x", 1<<20), Err: errors.New("the request is too large")}
	must.Do(t, e.informer.GetStore().Add(e.w))
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		_, err := e.Sync(t.Context(), e.session.name)
		if err == nil && time.Now().Before(deadline) {
			continue // it has not tried yet
		}
		if err == nil || err.Error() != "failed to watch: the request is too large" {
			t.Errorf("the sync returns %.200v", err)
		}
		return
	}
}

// A workload that was edited a moment ago waits for its turn like others: many may be edited at once.
func TestPrepareInTurn(t *testing.T) {
	e := newEngine(t, Options{Ready: func() error { return nil }})
	e.kind.unobserved = true
	must.Do(t, e.informer.GetStore().Add(e.w))
	for i := range maxOpening(DefaultSessions) {
		e.mayOpen(cache.ObjectName{Namespace: e.w.Namespace, Name: fmt.Sprint(i)}, true)
	}
	must.Get(e.Sync(t.Context(), e.session.name))(t)
	if len(e.sessions) > 0 || e.opening[true].waits.Len() != 1 {
		t.Errorf("there are %d sessions, and %d wait for one", len(e.sessions), e.opening[true].waits.Len())
	}
}

// When there are as many sessions as there may be, one of the namespace with most of them ends,
// and none that is being synced.
func TestMakeRoom(t *testing.T) {
	e := newEngine(t, Options{})
	add := func(namespace string, number int, idleFor time.Duration) cache.ObjectName {
		name := cache.ObjectName{Namespace: namespace, Name: fmt.Sprint(number)}
		s := &Session[*appsv1.ReplicaSet, plainState]{memory: newMemory(""), controller: e.Controller, name: name, stop: func() {}, weight: 1}
		if idleFor > 0 {
			s.idleSince = e.clock.Now().Add(-idleFor)
		}
		e.sessions[name] = s
		return name
	}
	for i := range DefaultSessions - 6 {
		add("many", i, time.Minute)
	}
	for i := range 3 {
		add("few", i, time.Hour)
	}
	add("many", 1001, 0) // is being synced
	e.makeRoom(1)
	if len(e.sessions) != DefaultSessions-2 {
		t.Fatalf("%d sessions are left, though there is room", len(e.sessions))
	}
	longest := add("many", 1002, 10*time.Minute)
	add("many", 1003, time.Second)
	e.makeRoom(1)
	if len(e.sessions) != DefaultSessions-1 || e.sessions[longest] != nil {
		t.Errorf("%d sessions are left; the one that has waited longest of the largest namespace is among them: %t", len(e.sessions), e.sessions[longest] != nil)
	}
	e.sessions[add("few", 5, time.Second)].standing = true
	e.makeRoom(1)
	if e.sessions[cache.ObjectName{Namespace: "few", Name: "5"}] != nil {
		t.Error("one that only stands is left, and one with a rollout has ended")
	}
	for _, s := range e.sessions {
		s.idleSince = time.Time{}
	}
	add("few", 4, 0)
	e.makeRoom(1)
	if len(e.sessions) != DefaultSessions {
		t.Errorf("one that is being synced has lost its session")
	}
}

// TestHeavySessions: what many workloads with large templates take of memory is bounded. One after the other has its turn, nobody else
// waits for them, and a session that has turned out to be large has others make room.
func TestHeavySessions(t *testing.T) {
	e := newEngine(t, Options{Ready: func() error { return nil }})
	workload := func(name string) *appsv1.ReplicaSet {
		w := e.w.DeepCopy()
		w.Name, w.UID = name, types.UID(name)
		must.Do(t, e.informer.GetStore().Add(w))
		return w
	}
	opened := func(namespace string) (n int) {
		for i := range 120 {
			if w := workload(fmt.Sprint(namespace, i)); e.mayOpen(cache.MetaObjectToName(w), true) {
				n++
			}
		}
		return n
	}
	e.kind.size = 12 << 20
	if n := opened("large"); n != 1 {
		t.Errorf("%d are opened at once, want 1", n)
	}
	if !e.mayOpen(cache.ObjectName{Namespace: "other", Name: "small"}, true) {
		t.Error("another namespace waits for it")
	}
	e.kind.size = 0
	for i := range 5 {
		must.Get(e.Controller.session(t.Context(), workload(fmt.Sprint("small", i))))(t)
		e.openNext(cache.ObjectName{Namespace: "default", Name: fmt.Sprint("small", i)})
	}
	large := must.Get(e.Controller.session(t.Context(), workload("large5")))(t)
	e.watches(t, large, fake.NewClientset())
	must.Do(t, wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return large.hasSynced(), nil }))
	large.KindState.size = 12 << 20
	e.openNext(large.name)
	if n := len(e.sessions); n != 6 {
		t.Errorf("beside a large one, %d sessions are left, want 6", n)
	}
	e.kind.size = 12 << 20
	must.Get(e.Controller.session(t.Context(), workload("large6")))(t)
	if e.sessions[large.name] != nil {
		t.Error("there are two large sessions")
	}
}

func names(text string) []cache.ObjectName {
	var all []cache.ObjectName
	for _, word := range strings.Fields(text) {
		namespace, name, _ := strings.Cut(word, "/")
		all = append(all, cache.ObjectName{Namespace: namespace, Name: name})
	}
	return all
}

func TestFairQueue(t *testing.T) {
	for name, tt := range map[string]struct{ pushed, held, edited, touched, want string }{
		"in the order in which they come":     {pushed: "a/1 a/2 a/3", want: "a/1 a/2 a/3"},
		"namespaces take turns":               {pushed: "a/1 a/2 a/3 b/1 c/1 c/2", want: "a/1 b/1 c/1 a/2 c/2 a/3"},
		"those that are held come first":      {pushed: "a/1 a/2 b/1 b/2", held: "b/2 a/2", want: "a/2 b/2 a/1 b/1"},
		"one is edited while it waits":        {pushed: "a/1 a/2 a/3", edited: "a/3", touched: "a/2 a/3", want: "a/3 a/1 a/2"},
		"nobody is passed by for ever":        {pushed: "a/0 b/1 b/2 b/3 b/4 b/5 b/6 b/7 b/8 b/9", held: "b/1 b/2 b/3 b/4 b/5 b/6 b/7 b/8 b/9", want: "b/1 b/2 b/3 b/4 b/5 b/6 b/7 b/8 a/0 b/9"},
		"one that is touched has not changed": {pushed: "a/1 a/2", touched: "a/2", want: "a/1 a/2"},
	} {
		t.Run(name, func(t *testing.T) {
			held := names(tt.held)
			q := newFairQueue(func(name cache.ObjectName) bool { return slices.Contains(held, name) })
			for _, name := range names(tt.pushed) {
				q.Push(name)
			}
			held = append(held, names(tt.edited)...)
			for _, name := range names(tt.touched) {
				q.Touch(name)
			}
			var got []cache.ObjectName
			for q.Len() > 0 {
				got = append(got, q.Pop())
			}
			if want := names(tt.want); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// The controller's queue is one in which namespaces take turns, and those that are held come first.
func TestQueueInTurns(t *testing.T) {
	e := newEngine(t, Options{})
	must.Do(t, e.informer.GetStore().Add(e.w)) // it is held
	for _, name := range append(names("many/1 many/2 many/3 few/1"), e.session.name) {
		e.queue.Add(name)
	}
	var got []cache.ObjectName
	for range 3 {
		name, _ := e.queue.Get()
		got = append(got, name)
	}
	if want := append([]cache.ObjectName{e.session.name}, names("many/1 few/1")...); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v first", got, want)
	}
}

// TestFairQueueProperties: whatever is pushed and edited meanwhile, each workload comes once; and one
// that is held when it is pushed waits for no more than a turn of each other namespace, and for
// those that are not held and have their turn in between.
func TestFairQueueProperties(t *testing.T) {
	const namespaces, each = 4, 30
	rapid.Check(t, func(t *rapid.T) {
		held, queued, waited := map[cache.ObjectName]bool{}, map[cache.ObjectName]bool{}, map[string]int{}
		q := newFairQueue(func(name cache.ObjectName) bool { return held[name] })
		anyOf := rapid.Custom(func(t *rapid.T) cache.ObjectName {
			return cache.ObjectName{Namespace: fmt.Sprint(rapid.IntRange(1, namespaces).Draw(t, "namespace")), Name: fmt.Sprint(rapid.IntRange(1, each).Draw(t, "name"))}
		})
		pop := func(t *rapid.T) {
			before := maps.Clone(q.queued)
			name := q.Pop()
			if !queued[name] {
				t.Fatalf("%s comes, and is not queued", name)
			}
			delete(queued, name)
			waiting := map[string]bool{}
			for other, held := range before {
				waiting[other.Namespace] = waiting[other.Namespace] || held
			}
			for namespace, waits := range waiting {
				if waited[namespace]++; !waits || namespace == name.Namespace && before[name] {
					waited[namespace] = 0
				}
				if waited[namespace] > namespaces+1 {
					t.Fatalf("namespace %s has something that is held, and waits for %d others", namespace, waited[namespace])
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				for _, name := range rapid.SliceOfN(anyOf, 1, 10).Draw(t, "added") {
					if queued[name] {
						q.Touch(name)
					} else {
						queued[name] = true
						q.Push(name)
					}
				}
			},
			"edit": func(t *rapid.T) {
				name := anyOf.Draw(t, "edited")
				if held[name] = rapid.Bool().Draw(t, "held"); queued[name] {
					q.Touch(name)
				}
			},
			"pop": func(t *rapid.T) {
				if len(queued) == 0 {
					t.Skip("nothing is queued")
				}
				pop(t)
			},
			"": func(t *rapid.T) {
				if q.Len() != len(queued) {
					t.Fatalf("%d are queued, want %d", q.Len(), len(queued))
				}
			},
		})
		for q.Len() > 0 {
			pop(t)
		}
	})
}
