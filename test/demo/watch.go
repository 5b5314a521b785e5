package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// moment is one change that a watch has brought, of a pod or of a set.
type moment struct {
	at      time.Time
	pod     *corev1.Pod
	set     *appsv1.StatefulSet
	deleted bool
}

// namespace of what has changed.
func (m moment) namespace() string {
	if m.pod != nil {
		return m.pod.Namespace
	}
	return m.set.Namespace
}

// recorder keeps everything that watches of pods and StatefulSets bring.
type recorder struct {
	mu      sync.Mutex
	history []moment
	changed chan struct{} // closed at the next change
}

// record starts to record. A watch that ends early is told to fail, because every
// number of the demo would be in doubt.
func record(ctx context.Context, client kubernetes.Interface, fail func(error)) (*recorder, error) {
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	sets, err := client.AppsV1().StatefulSets(metav1.NamespaceAll).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		pods.Stop()
		return nil, fmt.Errorf("watching StatefulSets: %w", err)
	}
	r := &recorder{changed: make(chan struct{})}
	for what, watched := range map[string]watch.Interface{"pods": pods, "StatefulSets": sets} {
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
	m := moment{at: time.Now(), deleted: event.Type == watch.Deleted}
	switch object := event.Object.(type) {
	case *corev1.Pod:
		m.pod = object
	case *appsv1.StatefulSet:
		m.set = object
	default:
		return
	}
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

// await waits until the set of every namespace is as wanted, at most a minute.
func (r *recorder) await(ctx context.Context, what string, wanted func(*state) bool, namespaces ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		history, changed := r.from(0)
		if !slices.ContainsFunc(namespaces, func(ns string) bool { return !wanted(replay(history, ns)) }) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, context.Cause(ctx))
		}
	}
}

// state is what there is in one namespace at one time.
type state struct {
	set  *appsv1.StatefulSet
	pods map[string]*corev1.Pod
}

// replay returns the state of a namespace after a history.
func replay(history []moment, namespace string) *state {
	s := &state{pods: map[string]*corev1.Pod{}}
	for _, m := range history {
		if m.namespace() == namespace {
			s.apply(m)
		}
	}
	return s
}

func (s *state) apply(m moment) {
	switch {
	case m.set != nil && m.deleted:
		s.set = nil
	case m.set != nil:
		s.set = m.set
	case m.deleted:
		delete(s.pods, m.pod.Name)
	default:
		s.pods[m.pod.Name] = m.pod
	}
}

// replicas that the set must have.
func (s *state) replicas() int {
	if s.set == nil {
		return 0
	}
	return int(ptr.Deref(s.set.Spec.Replicas, 1))
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

// settled tells whether the StatefulSet controller counts the newest revision as
// rolled out and, where inplace-rollout is in charge, whether that agrees.
func (s *state) settled() bool {
	if s.set == nil {
		return false
	}
	n, status := int32(s.replicas()), s.set.Status
	agreed := status.ObservedGeneration == s.set.Generation && status.UpdatedReplicas == n &&
		status.ReadyReplicas == n && status.CurrentRevision == status.UpdateRevision
	return agreed && (!s.optedIn() || s.complete() && !s.held())
}

func (s *state) optedIn() bool { return s.set.Labels[api.EnabledLabel] == "true" }

func (s *state) held() bool {
	_, held := s.set.Annotations[api.HoldAnnotation]
	return held
}

// condition returns the set's condition inplace-rollout.io/Complete, empty if there is none.
func (s *state) condition() appsv1.StatefulSetCondition {
	for _, c := range s.set.Status.Conditions {
		if c.Type == api.ConditionComplete {
			return c
		}
	}
	return appsv1.StatefulSetCondition{}
}

func (s *state) complete() bool { return s.condition().Status == corev1.ConditionTrue }

// partition in force.
func (s *state) partition() int32 {
	if r := s.set.Spec.UpdateStrategy.RollingUpdate; r != nil {
		return ptr.Deref(r.Partition, 0)
	}
	return 0
}
