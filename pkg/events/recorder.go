// Package events writes events in the background, and counts those that are lost on the way.
//
// The broadcaster of client-go has a queue of 1,000 events and writes one at a time. It drops
// what does not fit, and tells nobody. Here several are written at a time, more may wait, and
// each that is dropped is counted. How similar events become one is client-go's.
package events

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/client-go/tools/reference"
	"k8s.io/klog/v2"
)

const (
	// Writers is how many events are written at the same time. Those of one object are written
	// one after the other. With sixteen, a busy API server made 100 rollouts take a tenth longer.
	Writers = 4
	// waiting bounds the events that wait for each writer.
	waiting = 2500
	// Successes bounds those of them that pods tell of success: while the API server is slow, warnings and what
	// workloads tell still get through.
	Successes = waiting * 3 / 4
)

// maxRetryTime bounds the time for which the writing of an event is tried. Those behind it wait.
const maxRetryTime = 2 * time.Minute

// Why events are dropped.
const (
	queueFull   = "queue_full"   // too many wait
	rateLimited = "rate_limited" // too many of one object
	notWritten  = "not_written"  // the API server refuses it, or is away
)

// Recorder records events of objects.
type Recorder struct {
	component string
	seed      maphash.Seed
	queues    [Writers]chan queued
	dropped   *prometheus.CounterVec
	retryTime time.Duration
}

// queued is an event that waits to be written.
type queued struct {
	*corev1.Event

	once bool // another one of that name is no other one
}

// NewRecorder returns a recorder for the component, and registers its metric.
func NewRecorder(component string, registry prometheus.Registerer) *Recorder {
	r := &Recorder{component: component, seed: maphash.MakeSeed(), retryTime: maxRetryTime,
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "inplace_rollout_events_dropped_total", Help: "Events that could not be written, by the reason.",
		}, []string{"reason"})}
	for i := range r.queues {
		r.queues[i] = make(chan queued, waiting)
	}
	for _, reason := range []string{queueFull, rateLimited, notWritten} {
		r.dropped.WithLabelValues(reason)
	}
	registry.MustRegister(r.dropped)
	return r
}

// Event records an event of the object. It does not wait: if too many events do, it drops this one.
func (r *Recorder) Event(object runtime.Object, eventType, reason, message string) {
	event, err := r.newEvent(object, eventType, reason, message)
	r.record(queued{Event: event}, reason, message, err)
}

// Once is like Event, for what an object is told once: as long as its event is kept, another one
// by this component is none, whoever records it.
func (r *Recorder) Once(object runtime.Object, eventType, reason, message string) {
	event, err := r.newEvent(object, eventType, reason, message)
	if err == nil {
		event.Name = onceName(r.component, event)
	}
	r.record(queued{event, true}, reason, message, err)
}

// onceName is the same for all events of an object that a component tells it once.
func onceName(component string, event *corev1.Event) string {
	const longest = 200 // with the hash it is short enough for a name
	of, hash := event.InvolvedObject.Name, sha256.Sum256([]byte(component+"/"+string(event.InvolvedObject.UID)))
	return fmt.Sprintf("%s.%x", strings.TrimRight(of[:min(len(of), longest)], "-."), hash[:8])
}

func (r *Recorder) record(event queued, reason, message string, err error) {
	if err != nil {
		r.drop(klog.Background(), notWritten, &corev1.Event{Reason: reason, Message: message}, err)
		return
	}
	queue := r.queues[maphash.String(r.seed, string(event.InvolvedObject.UID))%Writers]
	success := event.Type == corev1.EventTypeNormal && event.InvolvedObject.Kind == "Pod"
	if !success || len(queue) < Successes {
		select {
		case queue <- event:
			return
		default:
		}
	}
	r.drop(klog.Background(), queueFull, event.Event, nil)
}

func (r *Recorder) newEvent(object runtime.Object, eventType, reason, message string) (*corev1.Event, error) {
	of, err := reference.GetReference(scheme.Scheme, object)
	if err != nil {
		return nil, fmt.Errorf("referring to the object of an event: %w", err)
	}
	now := metav1.Now()
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: of.Namespace, Name: util.GenerateEventName(of.Name, now.UnixNano())},
		InvolvedObject: *of, Type: eventType, Reason: reason, Message: message,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source: corev1.EventSource{Component: r.component}, ReportingController: r.component,
	}, nil
}

// Run writes events to the sink until ctx is done. Those that wait then are lost.
func (r *Recorder) Run(ctx context.Context, sink record.EventSink) {
	var all sync.WaitGroup
	for _, queue := range r.queues {
		all.Go(func() { r.write(ctx, sink, queue) })
	}
	all.Wait()
}

// write writes the events of one queue.
//
// Many pods of a workload may have something to tell at once: the 25 events for each object
// that client-go lets pass are too few.
func (r *Recorder) write(ctx context.Context, sink record.EventSink, queue <-chan queued) {
	correlator := record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{BurstSize: 1000, QPS: 1})
	for {
		select {
		case <-ctx.Done():
			if left := len(queue); left > 0 {
				klog.FromContext(ctx).Info("Stopped before all events were written", "left", left)
			}
			return
		case event := <-queue:
			if why, err := r.writeOne(ctx, sink, correlator, event); why != "" {
				r.drop(klog.FromContext(ctx), why, event.Event, err)
			}
		}
	}
}

// writeOne writes an event. If that cannot be done, it returns why.
func (r *Recorder) writeOne(ctx context.Context, sink record.EventSink, correlator *record.EventCorrelator, event queued) (why string, err error) {
	if event.once {
		if _, err := r.send(ctx, sink, &record.EventCorrelateResult{Event: event.Event}); err != nil {
			return notWritten, fmt.Errorf("writing an event: %w", err)
		}
		return "", nil
	}
	result, err := correlator.EventCorrelate(event.Event)
	if err != nil {
		return notWritten, fmt.Errorf("comparing an event with others: %w", err)
	}
	if result.Skip {
		return rateLimited, nil
	}
	written, err := r.send(ctx, sink, result)
	if err != nil {
		return notWritten, fmt.Errorf("writing an event: %w", err)
	}
	correlator.UpdateState(written)
	return "", nil
}

// send writes an event, or counts one more where it is there already. It tries again while the
// API server is away or has too much to do.
func (r *Recorder) send(ctx context.Context, sink record.EventSink, result *record.EventCorrelateResult) (*corev1.Event, error) {
	event := result.Event
	again := backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond), backoff.WithMaxInterval(10*time.Second), backoff.WithMaxElapsedTime(r.retryTime))
	return backoff.RetryWithData(func() (written *corev1.Event, err error) {
		if event.Count > 1 {
			written, err = sink.Patch(event, result.Patch)
		}
		if event.Count == 1 || apierrors.IsNotFound(err) { // events are kept for a while only
			event.ResourceVersion = ""
			written, err = sink.Create(event)
		}
		if apierrors.IsAlreadyExists(err) { // an earlier try was carried out
			return event, nil
		}
		if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Code < 500 && !apierrors.IsTooManyRequests(err) {
			return nil, backoff.Permanent(err)
		}
		return written, err
	}, backoff.WithContext(again, ctx))
}

func (r *Recorder) drop(logger klog.Logger, why string, event *corev1.Event, err error) {
	r.dropped.WithLabelValues(why).Inc()
	logger.Error(err, "Dropped an event", "why", why, "kind", event.InvolvedObject.Kind, "object", klog.KRef(event.InvolvedObject.Namespace, event.InvolvedObject.Name),
		"reason", event.Reason, "message", event.Message)
}
