package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// errNotLeading is the error of a write that is not made, because another replica may lead by now.
var errNotLeading = errors.New("the Lease was not renewed in time: another replica might be the leader")

// givenBack is the leaseDurationSeconds of a Lease that its holder has given back (tryRelease of client-go's leaderelection.go).
const givenBack = 1

// leaseGate keeps the writes of a process that may not be the leader any more from the API server.
// The leader election alone cannot: a process that was stopped, suspended or starved, for longer than the
// Lease goes on where it was, and learns later that another one leads.
//
// Writes are let through for a term from the moment at which the last renewal was sent that the
// API server has confirmed: the Lease is no younger than that. The term is shorter than the Lease,
// and what is under way at its end is called off, so it is done before another replica leads.
type leaseGate struct {
	term time.Duration

	mu    sync.Mutex
	until time.Time
	// wall is the same without Go's monotonic clock, which stands still while the machine is suspended. The clock on the wall may be
	// set back, so each alone ends the term. Nothing here tells of a hypervisor that stops both. Nor can a policy that compares the writer
	// with the heartbeat: its parameter lags, so it would let the old leader through and refuse the new one, and a refusal decides what
	// becomes of a pod. But a write carries the version that was read, and the elector looks at the Lease within seconds.
	wall   time.Time
	expiry *time.Timer
	// others is until when another replica leads, as far as it was seen to renew its Lease.
	others   time.Time
	underway map[*http.Request]context.CancelCauseFunc
	idle     chan struct{} // closed when nothing is under way; nil if nobody waits for that
}

func newLeaseGate(term time.Duration) *leaseGate {
	g := &leaseGate{term: term, underway: map[*http.Request]context.CancelCauseFunc{}}
	g.expiry = time.AfterFunc(term, g.callOff)
	return g
}

// renewed opens the gate for a term from begin on.
func (g *leaseGate) renewed(begin time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.until = begin.Add(g.term)
	g.wall = g.until.Round(0)
	g.expiry.Reset(time.Until(g.until))
}

// end ends the term: another one may lead. What is under way is called off.
func (g *leaseGate) end() {
	g.mu.Lock()
	g.until = time.Time{}
	g.mu.Unlock()
	g.callOff()
}

// leads reports whether the term lasts.
func (g *leaseGate) leads() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open()
}

// othersLead reports whether another replica was seen to renew its Lease a moment ago.
func (g *leaseGate) othersLead() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Now().Before(g.others)
}

// sawRenewal notes that another replica has just renewed its Lease. If it dies now, one takes over before its heartbeat runs out.
func (g *leaseGate) sawRenewal() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.others = time.Now().Add(2 * leaseDuration)
}

// callOff cancels the writes that are under way, if the term has ended.
func (g *leaseGate) callOff() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open() {
		return
	}
	for _, cancel := range g.underway {
		cancel(errNotLeading)
	}
}

// open reports whether writes may go out. The lock must be held.
func (g *leaseGate) open() bool {
	now := time.Now()
	return now.Before(g.until) && now.Round(0).Before(g.wall)
}

// shut ends the term, and waits for the answers to what is under way.
func (g *leaseGate) shut(ctx context.Context) error {
	g.mu.Lock()
	g.until = time.Time{}
	idle := make(chan struct{})
	if len(g.underway) == 0 {
		close(idle)
	} else {
		g.idle = idle
	}
	g.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enter lets a write through, and returns it as it is to be sent. It ends with leave.
func (g *leaseGate) enter(r *http.Request) (*http.Request, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.open() {
		return nil, errNotLeading
	}
	// It has an answer even if the process is to end: the Lease is given back after that.
	ctx, release := context.WithoutCancel(r.Context()), func() {}
	if deadline, is := r.Context().Deadline(); is {
		ctx, release = context.WithDeadline(ctx, deadline)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	// The process may stop between the look at the clock and the sending, longest while it connects.
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		if !g.leads() {
			cancel(errNotLeading)
		}
	}})
	r = r.WithContext(ctx)
	g.underway[r] = func(cause error) { cancel(cause); release() }
	return r, nil
}

func (g *leaseGate) leave(r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if cancel, is := g.underway[r]; is {
		cancel(nil)
		delete(g.underway, r)
	}
	if len(g.underway) == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// gatedTransport is a transport behind the gate.
type gatedTransport struct {
	*leaseGate
	next http.RoundTripper
}

// transport puts the gate before a transport.
func (g *leaseGate) transport(next http.RoundTripper) http.RoundTripper {
	return gatedTransport{leaseGate: g, next: next}
}

func (t gatedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
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

// writesNothing reports whether a request reads, asks for a review, or is a dry run.
func writesNothing(r *http.Request) bool {
	return r.Method == http.MethodGet || slices.Equal(r.URL.Query()["dryRun"], []string{metav1.DryRunAll}) ||
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

// gatedLock tells the gate what becomes of the Lease. The elector, which is one goroutine, reads the Lease before it
// takes it or gives it back, and the API server takes no other version than that.
//
// Whoever finds the Lease given back takes it at once: its holder has stopped writing. But somebody may have deleted or
// emptied it, or put another name into it, and its holder goes on until it looks again, or until its term ends. So for
// everyone else such a Lease has a holder for as long as one that is not renewed. A process that has never seen the Lease
// takes a missing one at once, as after the installation.
type gatedLock struct {
	resourcelock.Interface
	gate *leaseGate

	holder  string      // of the Lease as it was last read
	renewal metav1.Time // of that
	ours    bool        // this process has taken it, and has not read since that another one has
	known   bool        // the Lease has been there
	// orphaned is since when the Lease has had no holder, though nobody has given it back.
	orphaned time.Time
}

// Get reads the Lease. It is an error if its holder may go on without it.
func (l *gatedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, nil, err
	}
	before := l.renewal
	if l.holder, l.renewal = "", (metav1.Time{}); err == nil {
		l.holder, l.renewal = record.HolderIdentity, record.RenewTime
	}
	if l.holder != "" && l.holder != l.Identity() {
		l.ours = false
		l.gate.end()
		if l.known && !l.renewal.Equal(&before) { // the first one may be of a process that is gone
			l.gate.sawRenewal()
		}
	}
	switch {
	case l.free(record):
		l.orphaned = time.Time{}
	case l.orphaned.IsZero():
		l.orphaned = time.Now()
	}
	l.known = l.known || err == nil
	if left := leaseDuration - time.Since(l.orphaned); !l.orphaned.IsZero() && left > 0 {
		return nil, nil, fmt.Errorf("the Lease was taken from its holder, which might go on: waiting for %s", left.Round(time.Second))
	}
	return record, raw, err
}

// free reports whether the elector decides by itself what becomes of the Lease, which is nil if there is none.
func (l *gatedLock) free(record *resourcelock.LeaderElectionRecord) bool {
	switch {
	case record == nil:
		return !l.known || l.ours && l.gate.leads()
	case record.HolderIdentity == "":
		return record.LeaseDurationSeconds == givenBack || l.ours && l.gate.leads()
	case record.HolderIdentity == l.Identity():
		return l.ours
	default:
		return true // it expires
	}
}

// Create creates the Lease.
func (l *gatedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

// Update takes, renews or gives back the Lease.
func (l *gatedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == l.Identity() {
		return l.write(ctx, record, l.Interface.Update)
	}
	if err := l.gate.shut(ctx); err != nil {
		return err
	}
	// A process that was stopped for longer than the Lease still takes itself for its holder here (tryRelease of
	// client-go's leaderelection.go looks at what it has observed before, not at what it has just read).
	// Giving it back would have a third one lead beside the one that leads by now.
	if l.holder != l.Identity() {
		return nil
	}
	err := l.Interface.Update(ctx, record)
	l.ours = l.ours && err != nil
	return err
}

func (l *gatedLock) write(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	begin := time.Now()
	err := write(ctx, record)
	if err == nil {
		l.ours, l.known = true, true
		l.gate.renewed(begin)
	}
	return err
}
