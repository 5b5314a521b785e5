package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// sink is an API server that keeps events. It fails with err, as often as fails says.
type sink struct {
	record.EventSink

	mu               sync.Mutex
	created, patched []*corev1.Event
	err              error
	fails            int
}

func (s *sink) Create(event *corev1.Event) (*corev1.Event, error) {
	return s.take(event, &s.created)
}

func (s *sink) Patch(event *corev1.Event, _ []byte) (*corev1.Event, error) {
	return s.take(event, &s.patched)
}

func (s *sink) take(event *corev1.Event, to *[]*corev1.Event) (*corev1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails > 0 {
		s.fails--
		return nil, s.err
	}
	*to = append(*to, event)
	return event, nil
}

// writes is how many writes have been carried out.
func (s *sink) writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.created) + len(s.patched)
}

func newRecorder(t *testing.T) *Recorder {
	t.Helper()
	klog.SetLogger(klog.Logger{}) // each dropped event is logged
	t.Cleanup(klog.ClearLogger)
	return NewRecorder("test", prometheus.NewRegistry())
}

func pod(i int) *corev1.Pod {
	name := fmt.Sprintf("web-%d", i)
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
}

func set(i int) *appsv1.StatefulSet {
	name := fmt.Sprintf("web-%d", i)
	return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
}

// settle runs the recorder until each of the events is either written or dropped, and returns
// how many were dropped, by the reason.
func (r *Recorder) settle(t *testing.T, s *sink, recorded int) map[string]int {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx, s)
	}()
	defer func() {
		stop()
		<-done
	}()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		dropped, all := map[string]int{}, 0
		for _, reason := range []string{queueFull, rateLimited, notWritten} {
			var m dto.Metric
			must.Do(t, r.dropped.WithLabelValues(reason).Write(&m))
			if n := int(m.Counter.GetValue()); n > 0 {
				dropped[reason] = n
				all += n
			}
		}
		if s.writes()+all == recorded {
			return dropped
		}
		if s.writes()+all > recorded || time.Now().After(deadline) {
			t.Fatalf("of %d events %d are written and %d dropped", recorded, s.writes(), all)
		}
	}
}

// An event is of its object, as kubectl asks for it. What is said again is counted.
func TestRecorder(t *testing.T) {
	r, s := newRecorder(t), &sink{}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "set"}}
	r.Event(set, corev1.EventTypeWarning, "ResizeDeferred", "web-1: no room")
	r.Event(set, corev1.EventTypeWarning, "ResizeDeferred", "web-1: no room")
	if dropped := r.settle(t, s, 2); len(dropped) > 0 {
		t.Errorf("dropped %v", dropped)
	}
	if len(s.created) != 1 || len(s.patched) != 1 || s.patched[0].Count != 2 || s.patched[0].Name != s.created[0].Name {
		t.Fatalf("created %v, and patched %v, want one event that is counted twice", s.created, s.patched)
	}
	got := s.created[0]
	of := corev1.ObjectReference{APIVersion: "apps/v1", Kind: "StatefulSet", Namespace: "default", Name: "web", UID: "set"}
	if got.InvolvedObject != of || got.Namespace != "default" || got.Source.Component != "test" || got.ReportingController != "test" ||
		got.Type != "Warning" || got.Reason != "ResizeDeferred" || got.Message != "web-1: no room" || got.FirstTimestamp.IsZero() || got.LastTimestamp.IsZero() {
		t.Errorf("the event is %+v", got)
	}
}

// While the sink is slow, more events are recorded than fit: those that were dropped are counted,
// and all others are written.
func TestMoreThanTheQueuesHold(t *testing.T) {
	r, s := newRecorder(t), &sink{}
	const recorded = Writers*waiting + 2000
	for i := range recorded {
		r.Event(pod(i), corev1.EventTypeNormal, "PodResized", "resized in place")
	}
	if dropped := r.settle(t, s, recorded); dropped[queueFull] < 2000 || len(dropped) > 1 {
		t.Errorf("dropped %v, want at least 2000 that do not fit", dropped)
	}
}

// While so many pods tell of success that not all fit, no warning is lost, and nothing that a workload tells.
func TestWarningsFit(t *testing.T) {
	r, s := newRecorder(t), &sink{}
	const successes, warnings = 2 * Writers * waiting, Writers * waiting / 16
	for i := range successes {
		r.Event(pod(i), corev1.EventTypeNormal, "PodResized", "resized in place")
	}
	for i := range warnings {
		r.Event(pod(successes+i), corev1.EventTypeWarning, "ResizeDeferred", "no room")
		r.Event(set(successes+i), corev1.EventTypeNormal, "RolloutComplete", "all pods are resized")
	}
	r.settle(t, s, successes+2*warnings)
	of := map[string]int{}
	for _, event := range s.created {
		of[event.Reason]++
	}
	if of["ResizeDeferred"] != warnings || of["RolloutComplete"] != warnings || of["PodResized"] >= successes {
		t.Errorf("written are %v, want all %d of the others", of, warnings)
	}
}

// The rollouts that are in flight at once have fewer events than fit, however slow the sink is.
func TestQueuesHoldManyRollouts(t *testing.T) {
	r, s := newRecorder(t), &sink{}
	const recorded = 2000 * 11 / 10
	for i := range recorded {
		r.Event(pod(i), corev1.EventTypeNormal, "PodResized", "resized in place")
	}
	if dropped := r.settle(t, s, recorded); len(dropped) > 0 {
		t.Errorf("dropped %v", dropped)
	}
}

// Events of one object are written in their order; too many of one object are not.
func TestManyOfOneObject(t *testing.T) {
	r, s := newRecorder(t), &sink{}
	const recorded = waiting
	for i := range recorded {
		r.Event(pod(0), corev1.EventTypeWarning, "ResizeError", fmt.Sprint(i))
	}
	if dropped := r.settle(t, s, recorded); dropped[rateLimited] == 0 || len(dropped) > 1 {
		t.Errorf("dropped %v, want some because there are too many", dropped)
	}
	if !slices.IsSortedFunc(s.created, func(a, b *corev1.Event) int { return len(a.Message) - len(b.Message) }) {
		t.Error("the events were written in another order than they were recorded in")
	}
}

func TestFailingSink(t *testing.T) {
	const recorded = 20
	for _, tt := range []struct {
		name    string
		err     error
		fails   int
		dropped int
	}{
		{"is away for a moment", errors.New("connection refused"), 3, 0},
		{"has too much to do", apierrors.NewTooManyRequests("later", 1), 3, 0},
		{"cannot reach etcd", apierrors.NewInternalError(errors.New("etcd is away")), 3, 0},
		{"refuses some", apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "web", errors.New("the namespace is terminating")), 3, 3},
		{"is away", errors.New("connection refused"), 1 << 20, recorded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, s := newRecorder(t), &sink{err: tt.err, fails: tt.fails}
			if tt.dropped == recorded {
				r.retryTime = time.Millisecond
			}
			for i := range recorded {
				r.Event(pod(i), corev1.EventTypeNormal, "PodResized", "resized in place")
			}
			if dropped := r.settle(t, s, recorded); dropped[notWritten] != tt.dropped || len(dropped) > 1 {
				t.Errorf("dropped %v, want %d that are not written", dropped, tt.dropped)
			}
		})
	}
}

// What is no object of a known kind can have no event.
func TestNoObject(t *testing.T) {
	r, s := newRecorder(t), &sink{}
	r.Event(struct{ *corev1.Pod }{pod(0)}, corev1.EventTypeNormal, "PodResized", "resized in place")
	if dropped := r.settle(t, s, 1); dropped[notWritten] != 1 {
		t.Errorf("dropped %v", dropped)
	}
}

// TestOnce: an event that is told once has one name, whoever records it, and another one of that
// name is no failure.
func TestOnce(t *testing.T) {
	long := pod(0)
	long.Name = strings.Repeat("a", 199) + "-." + strings.Repeat("b", 50)
	first, s := newRecorder(t), &sink{}
	for _, p := range []*corev1.Pod{pod(0), pod(1), long} {
		first.Once(p, corev1.EventTypeNormal, "Born", "hello")
	}
	if dropped := first.settle(t, s, 3); len(dropped) > 0 {
		t.Errorf("dropped %v", dropped)
	}
	names := map[string]string{}
	for _, e := range s.created {
		names[e.Name] = e.InvolvedObject.Name
		must.EqualLists(t, validation.IsDNS1123Subdomain(e.Name), nil, "what is wrong with the name %s", e.Name)
	}
	must.Equal(t, len(names), 3, "how many names there are: %v", names)

	again, s := newRecorder(t), &sink{}
	again.Once(pod(0), corev1.EventTypeNormal, "Born", "hello again")
	again.Once(pod(0), corev1.EventTypeNormal, "Born", "hello again")
	if dropped := again.settle(t, s, 2); len(dropped) > 0 || len(s.patched) > 0 {
		t.Errorf("dropped %v, counted %v", dropped, s.patched)
	}
	for _, e := range s.created {
		must.Equal(t, names[e.Name], "web-0", "what another recorder calls %s", e.Name)
	}

	there := &sink{err: apierrors.NewAlreadyExists(corev1.Resource("events"), "a"), fails: 1}
	last := newRecorder(t)
	last.Once(pod(0), corev1.EventTypeNormal, "Born", "hello")
	last.Event(pod(1), corev1.EventTypeNormal, "Grown", "hello") // so that there is something to wait for
	if dropped := last.settle(t, there, 1); len(dropped) > 0 {
		t.Errorf("one that is there already is dropped: %v", dropped)
	}
}
