package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// moment is one change that a watch has brought, of a pod, a ReplicaSet or a workload,
// or a visit.
type moment struct {
	at      time.Time
	object  metav1.Object
	deleted bool
}

// subject that has changed.
func (m moment) subject() subject {
	return subject{Namespace: m.object.GetNamespace(), Name: m.object.GetLabels()["app"]}
}

// recorder keeps everything that the watches bring.
type recorder struct {
	mu      sync.Mutex
	history []moment
	changed chan struct{} // closed at the next change
}

// record starts to record. A watch that ends early is told to fail, because every
// number of the demo would be in doubt.
func record(ctx context.Context, client kubernetes.Interface, fail func(error)) (*recorder, error) {
	r := &recorder{changed: make(chan struct{})}
	for what, objects := range map[string]interface {
		Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
	}{
		"pods":         client.CoreV1().Pods(metav1.NamespaceAll),
		"ReplicaSets":  client.AppsV1().ReplicaSets(metav1.NamespaceAll),
		"StatefulSets": client.AppsV1().StatefulSets(metav1.NamespaceAll),
		"Deployments":  client.AppsV1().Deployments(metav1.NamespaceAll),
		"DaemonSets":   client.AppsV1().DaemonSets(metav1.NamespaceAll),
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
			fail(fmt.Errorf("the watch of %s ended, the measurement would be incomplete", what))
		}()
	}
	return r, nil
}

func (r *recorder) add(event watch.Event) {
	object, ok := event.Object.(metav1.Object)
	if !ok {
		return
	}
	r.note(moment{at: time.Now(), object: object, deleted: event.Type == watch.Deleted})
}

func (r *recorder) note(m moment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = append(r.history, m)
	close(r.changed)
	r.changed = make(chan struct{})
}

// from returns the history from its nth moment on, and a channel that is closed at
// the next change.
func (r *recorder) from(n int) ([]moment, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clip(r.history[n:]), r.changed
}

// now is the number of moments so far.
func (r *recorder) now() int {
	history, _ := r.from(0)
	return len(history)
}

// await waits until all subjects are as wanted, at most a minute.
func (r *recorder) await(ctx context.Context, what string, wanted func(*state) bool, subjects ...subject) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	states, seen := map[subject]*state{}, 0
	for _, of := range subjects {
		states[of] = newState()
	}
	for {
		moments, changed := r.from(seen)
		seen += len(moments)
		for _, m := range moments {
			if s := states[m.subject()]; s != nil {
				s.apply(m)
			}
		}
		if !slices.ContainsFunc(subjects, func(of subject) bool { return !wanted(states[of]) }) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, context.Cause(ctx))
		}
	}
}

// state is what there is of a subject at one time.
type state struct {
	owner
	sets   map[string]*appsv1.ReplicaSet
	pods   map[string]*corev1.Pod
	visits map[types.UID]*visit // the last one to each pod, if it was answered
}

func newState() *state {
	return &state{sets: map[string]*appsv1.ReplicaSet{}, pods: map[string]*corev1.Pod{}, visits: map[types.UID]*visit{}}
}

// replay returns the state of a subject after a history.
func replay(history []moment, of subject) *state {
	s := newState()
	for _, m := range history {
		if m.subject() == of {
			s.apply(m)
		}
	}
	return s
}

func (s *state) apply(m moment) {
	switch object := m.object.(type) {
	case *appsv1.StatefulSet:
		s.owner = statefulSet{object}
	case *appsv1.Deployment:
		s.owner = deployment{object}
	case *appsv1.DaemonSet:
		s.owner = daemonSet{object}
	case *appsv1.ReplicaSet:
		put(s.sets, object, m.deleted)
	case *corev1.Pod:
		put(s.pods, object, m.deleted)
	case *visit:
		s.visits[object.UID] = object
		if object.err != nil {
			delete(s.visits, object.UID)
		}
	}
}

func put[T metav1.Object](objects map[string]T, object T, deleted bool) {
	if deleted {
		delete(objects, object.GetName())
	} else {
		objects[object.GetName()] = object
	}
}

// ready is how many pods are Ready and stay.
func (s *state) ready() int {
	n := 0
	for _, pod := range s.pods {
		if ready(pod) {
			n++
		}
	}
	return n
}

func ready(pod *corev1.Pod) bool {
	return pod != nil && pod.DeletionTimestamp == nil && podutils.IsPodReady(pod)
}

// settled reports whether the built-in controller counts the newest revision as rolled
// out and, where inplace-rollout is in charge, whether that agrees.
func (s *state) settled() bool {
	if s.owner == nil {
		return false
	}
	agreed := s.rolledOut() && len(s.pods) == s.replicas() && s.ready() == s.replicas()
	return agreed && (!s.optedIn() || s.isComplete() && !s.isHeld())
}

func (s *state) optedIn() bool { return s.GetLabels()[api.EnabledLabel] == "true" }

func (s *state) isHeld() bool {
	_, held := s.GetAnnotations()[api.HoldAnnotation]
	return held
}

// held is what the user wants of the field that holds the rollout, if it is held.
func (s *state) held() string {
	if s.isHeld() {
		return s.GetAnnotations()[api.HoldAnnotation]
	}
	return "none"
}

func (s *state) isComplete() bool {
	status, _ := s.complete()
	return status == corev1.ConditionTrue
}

// active are the ReplicaSets that have pods, or are to have some.
func (s *state) active() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.sets)) {
		if set := s.sets[name]; *set.Spec.Replicas > 0 || set.Status.Replicas > 0 {
			names = append(names, name)
		}
	}
	return names
}
