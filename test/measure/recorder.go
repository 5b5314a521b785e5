package measure

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// Subject is a workload. Everything that belongs to it, and itself, has the label app with its name.
type Subject = types.NamespacedName

// Moment is one change that a watch has brought, of a pod or a workload, or a [Visit].
type Moment struct {
	At      time.Time
	Object  metav1.Object
	Deleted bool
}

// Subject that has changed.
func (m Moment) Subject() Subject {
	return Subject{Namespace: m.Object.GetNamespace(), Name: m.Object.GetLabels()["app"]}
}

// Recorder keeps everything that the watches bring.
type Recorder struct {
	mu      sync.Mutex
	history []Moment
	changed chan struct{} // closed at the next change
}

// Record starts to record what happens in a namespace, or in all, until the context is done. A watch that
// ends by itself is told to fail, because every number would be in doubt.
func Record(ctx context.Context, client kubernetes.Interface, namespace string, fail func(error)) (*Recorder, error) {
	r := &Recorder{changed: make(chan struct{})}
	for what, objects := range map[string]interface {
		Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
	}{
		"pods":         client.CoreV1().Pods(namespace),
		"StatefulSets": client.AppsV1().StatefulSets(namespace),
		"Deployments":  client.AppsV1().Deployments(namespace),
		"DaemonSets":   client.AppsV1().DaemonSets(namespace),
	} {
		watched, err := objects.Watch(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("watching %s: %w", what, err)
		}
		go func() {
			defer watched.Stop()
			for event := range watched.ResultChan() {
				r.add(event)
			}
			if ctx.Err() == nil {
				fail(fmt.Errorf("the watch of %s ended, the measurement would be incomplete", what))
			}
		}()
	}
	return r, nil
}

func (r *Recorder) add(event watch.Event) {
	object, ok := event.Object.(metav1.Object)
	if !ok {
		return
	}
	r.note(Moment{At: time.Now(), Object: object, Deleted: event.Type == watch.Deleted})
}

func (r *Recorder) note(m Moment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = append(r.history, m)
	close(r.changed)
	r.changed = make(chan struct{})
}

// From returns the history from its nth moment on, and a channel that is closed at
// the next change.
func (r *Recorder) From(n int) ([]Moment, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clip(r.history[n:]), r.changed
}

// Now is the number of moments so far.
func (r *Recorder) Now() int {
	history, _ := r.From(0)
	return len(history)
}

// Await waits until all subjects are as wanted, at most a minute.
func (r *Recorder) Await(ctx context.Context, what string, wanted func(*State) bool, subjects ...Subject) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	states, seen := map[Subject]*State{}, 0
	for _, of := range subjects {
		states[of] = newState()
	}
	for {
		moments, changed := r.From(seen)
		seen += len(moments)
		for _, m := range moments {
			if s := states[m.Subject()]; s != nil {
				s.Apply(m)
			}
		}
		if !slices.ContainsFunc(subjects, func(of Subject) bool { return !wanted(states[of]) }) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, context.Cause(ctx))
		}
	}
}
