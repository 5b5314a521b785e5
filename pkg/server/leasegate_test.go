package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// gateWorld is a gate with both of its sides played: the Lease, and the API server.
type gateWorld struct {
	t     *testing.T
	gate  *leaseGate
	lock  resourcelock.Interface
	took  time.Duration // how long a write of the Lease takes
	fails error         // what it answers

	record *resourcelock.LeaderElectionRecord // the Lease; nil if there is none

	connecting time.Duration // how long a request waits for its connection
	answering  time.Duration // and then for its answer
	arrived    int           // requests that the API server got
}

// RoundTrip answers a request as the API server, and the network before it, do.
func (w *gateWorld) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(w.connecting)
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	if r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	w.arrived++
	select {
	case <-time.After(w.answering):
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// playedLock is a Lease that nobody else wants.
type playedLock struct {
	resourcelock.Interface
	*gateWorld
}

func (l playedLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if l.record == nil {
		return nil, nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), "lease")
	}
	return l.record, nil, nil
}

func (playedLock) Identity() string { return "a" }

func (l playedLock) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	time.Sleep(l.took)
	return l.fails
}

func inGateWorld(t *testing.T, f func(*testing.T, *gateWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &gateWorld{t: t, gate: newLeaseGate(renewDeadline), record: &resourcelock.LeaderElectionRecord{HolderIdentity: "a"}}
		w.lock = &gatedLock{Interface: playedLock{gateWorld: w}, gate: w.gate}
		f(t, w)
	})
}

func (w *gateWorld) renew() {
	_ = w.lock.Update(w.t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "a"})
}

func (w *gateWorld) giveBack() error {
	if _, _, err := w.lock.Get(w.t.Context()); err != nil {
		return err
	}
	return w.lock.Update(w.t.Context(), resourcelock.LeaderElectionRecord{})
}

func (w *gateWorld) do(ctx context.Context, method, path string) error {
	r := must.Get(http.NewRequestWithContext(ctx, method, "https://server"+path, strings.NewReader("{}")))(w.t)
	response, err := w.gate.transport(w).RoundTrip(r)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func (w *gateWorld) write() error {
	return w.do(w.t.Context(), http.MethodPatch, "/api/v1/namespaces/a/pods/web-0")
}

// want checks whether a write that is made now arrives.
func (w *gateWorld) want(when string, arrives bool) {
	w.t.Helper()
	before := w.arrived
	err := w.write()
	if arrives != (err == nil) || !arrives && !errors.Is(err, errNotLeading) {
		w.t.Errorf("%s a write ends with %v", when, err)
	}
	if arrived := w.arrived > before; arrived != arrives {
		w.t.Errorf("%s a write arrives: %t, want %t", when, arrived, arrives)
	}
}

func TestLeaseGateIsOpenForATermFromWhenTheRenewalWasSent(t *testing.T) {
	inGateWorld(t, func(_ *testing.T, w *gateWorld) {
		w.want("before the first Lease", false)
		w.took = 3 * time.Second
		w.renew()
		w.want("with the Lease", true)
		time.Sleep(6900 * time.Millisecond)
		w.want("at the end of the term", true)
		time.Sleep(200 * time.Millisecond)
		w.want("after the term", false)
		w.fails = errors.New("conflict")
		w.renew()
		w.want("after a renewal that failed", false)
		w.fails, w.took = nil, 11*time.Second
		w.renew()
		w.want("after a renewal that came too late", false)
		w.took = 0
		w.renew()
		w.want("after the next one", true)
	})
}

func TestLeaseGateIsShutAfterASuspension(t *testing.T) {
	inGateWorld(t, func(_ *testing.T, w *gateWorld) {
		w.renew()
		w.gate.wall = w.gate.wall.Add(-renewDeadline) // which only the clock on the wall has seen pass
		w.want("after a suspension", false)
		w.renew()
		w.want("with the Lease again", true)
	})
}

func TestLeaseGateLetsReadsReviewsAndDryRunsThrough(t *testing.T) {
	inGateWorld(t, func(t *testing.T, w *gateWorld) {
		for method, path := range map[string]string{
			http.MethodGet:   "/api/v1/pods",
			http.MethodPost:  "/apis/authentication.k8s.io/v1/tokenreviews",
			http.MethodPatch: "/api/v1/pods/a?dryRun=All&fieldManager=b",
		} {
			must.Fails(t, method+" "+path, w.do(t.Context(), method, path), "")
		}
		for _, path := range []string{"/api/v1/pods/a?dryRun=", "/api/v1/pods/a?fieldManager=dryRun=All"} {
			if err := w.do(t.Context(), http.MethodPatch, path); !errors.Is(err, errNotLeading) {
				t.Errorf("%s ends with %v", path, err)
			}
		}
	})
}

func TestLeaseGateCallsOffWhatIsUnderWay(t *testing.T) {
	inGateWorld(t, func(t *testing.T, w *gateWorld) {
		w.renew()
		w.answering = time.Minute
		begin := time.Now()
		if err := w.write(); !errors.Is(err, errNotLeading) || time.Since(begin) != renewDeadline {
			t.Errorf("a write that has no answer ends after %s with %v", time.Since(begin), err)
		}
	})
}

// A renewal while a write is under way is one for it, too.
func TestLeaseGateLetsALongWriteEndIfTheLeaseIsRenewed(t *testing.T) {
	inGateWorld(t, func(t *testing.T, w *gateWorld) {
		w.renew()
		w.answering = 15 * time.Second
		go func() { time.Sleep(8 * time.Second); w.renew() }()
		w.want("a long one:", true)
	})
}

// A process that stops does so most likely where it waits: here for a connection.
func TestLeaseGateLooksAgainBeforeAWriteIsSent(t *testing.T) {
	inGateWorld(t, func(_ *testing.T, w *gateWorld) {
		w.renew()
		w.gate.expiry.Stop() // while a process is stopped, its timers are, too
		w.connecting = 20 * time.Second
		w.want("after a long connect", false)
	})
}

func TestLeaseGateGivesTheLeaseBackAfterTheLastAnswer(t *testing.T) {
	inGateWorld(t, func(t *testing.T, w *gateWorld) {
		w.renew()
		w.answering = 2 * time.Second
		ctx, stop := context.WithCancel(t.Context())
		var ended time.Time
		go func() {
			must.Fails(t, "the write under way", w.do(ctx, http.MethodPatch, "/api/v1/namespaces/a/pods/web-0"), "")
			ended = time.Now()
		}()
		synctest.Wait()
		stop() // the process is told to end
		must.Fails(t, "giving it back", w.giveBack(), "")
		synctest.Wait()
		if time.Now() != ended {
			t.Errorf("given back at %s, the last write had its answer at %s", time.Now(), ended)
		}
		w.answering = 0
		w.want("after the Lease was given back", false)
	})
}

// What still waits for its connection at the end is called off by itself.
func TestLeaseGateWaitsForWhatWasSent(t *testing.T) {
	inGateWorld(t, func(t *testing.T, w *gateWorld) {
		w.renew()
		w.answering = 5 * time.Second
		begin := time.Now()
		go func() {
			must.Fails(t, "the write that was sent", w.write(), "")
		}()
		synctest.Wait()
		w.connecting = 2 * time.Second
		go func() {
			if err := w.write(); !errors.Is(err, errNotLeading) {
				t.Errorf("the write that was not sent ends with %v", err)
			}
		}()
		synctest.Wait()
		must.Fails(t, "giving it back", w.giveBack(), "")
		if after := time.Since(begin); after != 5*time.Second {
			t.Errorf("the Lease is given back after %s, want after the last answer", after)
		}
	})
}

// TestLeaseTakenAway: somebody deletes or empties the Lease, or puts another name into it. Nobody takes it as long as its
// holder may go on writing, and the holder stops as soon as it reads of another one.
func TestLeaseTakenAway(t *testing.T) {
	held := func(by string) *resourcelock.LeaderElectionRecord {
		return &resourcelock.LeaderElectionRecord{HolderIdentity: by, LeaseDurationSeconds: int(leaseDuration / time.Second)}
	}
	back := &resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}
	const never, atOnce = -1, 0
	for _, tt := range []struct {
		name    string
		leading time.Duration                        // since when this process has the Lease; never: it has not
		read    []*resourcelock.LeaderElectionRecord // a second apart; nil: there is none
		after   time.Duration                        // the last of them is there for the elector
	}{
		{"there has been none", never, []*resourcelock.LeaderElectionRecord{nil}, atOnce},
		{"another one has it", never, []*resourcelock.LeaderElectionRecord{held("b")}, atOnce},
		{"another one has given it back", never, []*resourcelock.LeaderElectionRecord{held("b"), back}, atOnce},
		{"that of another one is deleted", never, []*resourcelock.LeaderElectionRecord{held("b"), nil}, leaseDuration},
		{"that of another one is deleted, and emptied", never, []*resourcelock.LeaderElectionRecord{held("b"), nil, held("")}, leaseDuration - time.Second},
		{"that of another one is deleted, and it takes it again", never, []*resourcelock.LeaderElectionRecord{held("b"), nil, held("b")}, atOnce},
		{"that of another one is emptied", never, []*resourcelock.LeaderElectionRecord{held("b"), held("")}, leaseDuration},
		{"that of another one is made ours", never, []*resourcelock.LeaderElectionRecord{held("b"), held("a")}, leaseDuration},
		{"ours", 0, []*resourcelock.LeaderElectionRecord{held("a")}, atOnce},
		{"ours is deleted", 0, []*resourcelock.LeaderElectionRecord{nil}, atOnce},
		{"ours is emptied", 0, []*resourcelock.LeaderElectionRecord{held("")}, atOnce},
		{"ours was not renewed in time", renewDeadline, []*resourcelock.LeaderElectionRecord{held("a")}, atOnce},
		{"ours was not renewed in time, and is deleted", renewDeadline, []*resourcelock.LeaderElectionRecord{nil}, leaseDuration},
		{"ours is made that of another one", 0, []*resourcelock.LeaderElectionRecord{held("b")}, atOnce},
		{"ours is made that of another one, and is deleted", 0, []*resourcelock.LeaderElectionRecord{held("b"), nil}, leaseDuration},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inGateWorld(t, func(t *testing.T, w *gateWorld) {
				if tt.leading != never {
					w.renew()
					time.Sleep(tt.leading)
				}
				var err error
				for i, record := range tt.read {
					if i > 0 {
						time.Sleep(time.Second)
					}
					w.record = record
					_, _, err = w.lock.Get(t.Context())
				}
				last := tt.read[len(tt.read)-1]
				if other := last != nil && last.HolderIdentity == "b"; other {
					w.want("while another one has the Lease", false)
				}
				begin := time.Now()
				for err != nil && !apierrors.IsNotFound(err) && time.Since(begin) < time.Minute {
					w.want("while the holder may go on", false)
					time.Sleep(time.Second)
					_, _, err = w.lock.Get(t.Context())
				}
				if after := time.Since(begin); after != tt.after {
					t.Errorf("the elector has it after %s, want %s", after, tt.after)
				}
				if last != nil && err != nil || last == nil && !apierrors.IsNotFound(err) {
					t.Errorf("it ends with %v", err)
				}
			})
		})
	}
}

// TestStandby: another replica leads if it is seen to renew its Lease. That of one which was killed says nothing.
func TestStandby(t *testing.T) {
	inGateWorld(t, func(t *testing.T, w *gateWorld) {
		election, start := &LeaderElection{gate: w.gate}, metav1.Now()
		heldBy := func(holder string, renewed time.Duration) *resourcelock.LeaderElectionRecord {
			return &resourcelock.LeaderElectionRecord{HolderIdentity: holder, RenewTime: metav1.NewTime(start.Add(renewed))}
		}
		for i, tt := range []struct {
			read  *resourcelock.LeaderElectionRecord
			after time.Duration
			leads bool
		}{
			{nil, 0, false},
			{heldBy("b", 0), 0, false},
			{heldBy("b", 0), 2 * time.Second, false},
			{heldBy("b", time.Second), 2 * time.Second, true},
			{heldBy("b", time.Second), leaseDuration, true}, // this one is about to take over
			{heldBy("b", time.Second), 2 * leaseDuration, false},
		} {
			time.Sleep(tt.after)
			w.record = tt.read
			_, _, _ = w.lock.Get(t.Context())
			// One that has just begun has seen no renewal yet, whoever leads.
			if err := election.Standby(); (err == nil) != tt.leads || err != nil && !strings.HasPrefix(err.Error(), "no replica is seen to lead yet: ") {
				t.Errorf("%d: another one leads: %v, want %t", i, err, tt.leads)
			}
		}
	})
}

func TestLeaseGateKeepsDeadlines(t *testing.T) {
	inGateWorld(t, func(t *testing.T, w *gateWorld) {
		w.renew()
		w.answering = time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.do(ctx, http.MethodPost, "/api/v1/namespaces/a/pods/web-0/eviction"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it ends with %v", err)
		}
	})
}

// TestLeaseOfAnother: a process that ends gives its Lease back, and not the one that another process has taken
// meanwhile, though client-go's elector takes itself for the holder until it tries to renew.
func TestLeaseOfAnother(t *testing.T) {
	for name, holder := range map[string]string{"ours": "", "taken over": "b"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leases := fake.NewClientset().CoordinationV1()
				lock := &resourcelock.LeaseLock{
					LeaseMeta: metav1.ObjectMeta{Namespace: "default", Name: "lease"}, Client: leases, LockConfig: resourcelock.ResourceLockConfig{Identity: "a"},
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				elector := must.Get(leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
					Lock:          &gatedLock{Interface: lock, gate: newLeaseGate(renewDeadline)},
					LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: renewDeadline / 2, ReleaseOnCancel: true,
					Callbacks: leaderelection.LeaderCallbacks{
						OnStartedLeading: func(context.Context) {
							defer stop()
							time.Sleep(time.Second) // between two renewals
							if holder == "" {
								return
							}
							if _, err := leases.Leases("default").Patch(t.Context(), "lease", types.MergePatchType, []byte(`{"spec": {"holderIdentity": "`+holder+`"}}`), metav1.PatchOptions{}); err != nil {
								t.Error(err)
							}
						},
						OnStoppedLeading: func() {},
					},
				}))(t)
				elector.Run(ctx)
				if followed := (&LeaderElection{lock: lock}).Followed(t.Context()); followed != (holder != "") {
					t.Errorf("another one leads: %t", followed)
				}
				lease := must.Get(leases.Leases("default").Get(t.Context(), "lease", metav1.GetOptions{}))(t)
				if got := ptr.Deref(lease.Spec.HolderIdentity, ""); got != holder {
					t.Errorf("the Lease is held by %q in the end, want %q", got, holder)
				}
			})
		})
	}
}
