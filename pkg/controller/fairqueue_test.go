package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"
)

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
	if err := e.informer.GetStore().Add(e.w); err != nil { // it is held
		t.Fatal(err)
	}
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
