package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// errNotLeading is the error of a write that is not made, because another replica may lead by now.
var errNotLeading = errors.New("the Lease was not renewed in time: another replica may be the leader")

// fence keeps the writes of a process that may not be the leader any more from the API server.
// The leader election alone cannot: a process that was stopped, or starved, for longer than the
// Lease goes on where it was, and learns later that another one leads.
//
// Writes are let through for a term from the moment at which the last renewal was sent that the
// API server has confirmed: the Lease is no younger than that. The term is shorter than the Lease,
// and what is under way at its end is called off, so it is done before another replica leads.
type fence struct {
	term time.Duration

	mu       sync.Mutex
	until    time.Time
	expiry   *time.Timer
	underway map[*http.Request]context.CancelCauseFunc
	idle     chan struct{} // closed when nothing is under way; nil if nobody waits for that
}

func newFence(term time.Duration) *fence {
	f := &fence{term: term, underway: map[*http.Request]context.CancelCauseFunc{}}
	f.expiry = time.AfterFunc(term, f.callOff)
	return f
}

// renewed opens the fence for a term from begin on.
func (f *fence) renewed(begin time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until = begin.Add(f.term)
	f.expiry.Reset(time.Until(f.until))
}

// callOff cancels the writes that are under way, if the term has ended.
func (f *fence) callOff() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open() {
		return
	}
	for _, cancel := range f.underway {
		cancel(errNotLeading)
	}
}

// open reports whether writes may go out. The lock must be held.
func (f *fence) open() bool { return time.Now().Before(f.until) }

// shut ends the term, and waits for the answers to what is under way.
func (f *fence) shut(ctx context.Context) error {
	f.mu.Lock()
	f.until = time.Time{}
	idle := make(chan struct{})
	if len(f.underway) == 0 {
		close(idle)
	} else {
		f.idle = idle
	}
	f.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enter lets a write through, and returns it as it is to be sent. It ends with leave.
func (f *fence) enter(r *http.Request) (*http.Request, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.open() {
		return nil, errNotLeading
	}
	// It has an answer even if the process is to end: the Lease is given back after that.
	ctx, release := context.WithoutCancel(r.Context()), func() {}
	if deadline, is := r.Context().Deadline(); is {
		ctx, release = context.WithDeadline(ctx, deadline)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	// The process may stop between the look at the clock and the sending, longest while it connects.
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { f.callOff() }})
	r = r.WithContext(ctx)
	f.underway[r] = func(cause error) { cancel(cause); release() }
	return r, nil
}

func (f *fence) leave(r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if cancel, is := f.underway[r]; is {
		cancel(nil)
		delete(f.underway, r)
	}
	if len(f.underway) == 0 && f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
}

// fencedTransport is a transport behind the fence.
type fencedTransport struct {
	*fence
	next http.RoundTripper
}

// transport puts the fence before a transport.
func (f *fence) transport(next http.RoundTripper) http.RoundTripper {
	return fencedTransport{fence: f, next: next}
}

func (t fencedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if writesNothing(r) {
		return t.next.RoundTrip(r)
	}
	write, err := t.enter(r)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a transport must, and nobody waits for the result
		}
		return nil, err
	}
	response, err := t.next.RoundTrip(write)
	if err != nil {
		if cause := context.Cause(write.Context()); errors.Is(cause, errNotLeading) {
			err = cause
		}
		t.leave(write)
		return nil, err
	}
	response.Body = leavingBody{ReadCloser: response.Body, leave: func() { t.leave(write) }}
	return response, nil
}

// writesNothing reports whether a request reads, or asks for a review.
func writesNothing(r *http.Request) bool {
	return r.Method == http.MethodGet ||
		strings.HasPrefix(r.URL.Path, "/apis/authentication.k8s.io/") || strings.HasPrefix(r.URL.Path, "/apis/authorization.k8s.io/")
}

// leavingBody is that of an answer. With its end the request is over.
type leavingBody struct {
	io.ReadCloser
	leave func()
}

func (b leavingBody) Close() error {
	defer b.leave()
	return b.ReadCloser.Close()
}

// fencedLock tells the fence what becomes of the Lease.
type fencedLock struct {
	resourcelock.Interface
	fence *fence
}

// Create creates the Lease.
func (l fencedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

// Update takes, renews or gives back the Lease.
func (l fencedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Update)
}

func (l fencedLock) write(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	if record.HolderIdentity != l.Identity() { // it is given back
		if err := l.fence.shut(ctx); err != nil {
			return err
		}
		return write(ctx, record)
	}
	begin := time.Now()
	err := write(ctx, record)
	if err == nil {
		l.fence.renewed(begin)
	}
	return err
}
