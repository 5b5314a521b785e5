package prerequisite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const (
	// proofValidity is how long a dry run counts, while nothing of what is installed changes: an API server may be restarted
	// with other flags, and others may install policies, too.
	proofValidity = 5 * time.Minute
	// webhookValidity is that where a webhook holds: nothing that is read changes when its image does.
	webhookValidity = time.Minute
	// twiceValidity is for how long somebody may need who goes from one way to hold to another.
	twiceValidity = 10 * time.Minute
	// settling is how long API servers may take to apply what is installed.
	settling = 5 * time.Second
	// firstRetry is for the first dry run after one that has not shown what it should; each next one waits twice as long.
	firstRetry = 250 * time.Millisecond
)

// Gate holds the newest results of [Cluster.Check] and [Cluster.Holding]. It is closed until there are some.
type Gate struct {
	mu      sync.Mutex
	is      state
	checked bool
	wake    chan struct{}
}

// state is what a gate knows.
type state struct {
	way     Way
	leftOut []string // namespaces
	missing error
	twice   time.Time // since when rollouts are held twice
	proved  bool      // there is a result of the dry runs
	holding Holding
}

// closed returns why nothing may be touched.
func (s state) closed() error {
	if s.missing != nil {
		return s.missing
	}
	return join(s.holding.Broken)
}

// notReady returns why edits are not held.
func (s state) notReady() error {
	if err := s.closed(); err != nil {
		return err
	}
	return join(s.holding.Unattended)
}

// NewGate returns a closed one.
func NewGate() *Gate {
	return &Gate{is: state{missing: errors.New("not checked yet")}, wake: make(chan struct{}, 1)}
}

// Err returns why nothing may be touched: what is missing, or which policy is not in force; nil if nothing is.
func (g *Gate) Err() error { return g.state().closed() }

// Attends returns why no controller would go on with what is held, so that edits are not to be held; nil if one does. While
// rollouts are held twice, nothing is touched, but somebody is about to remove one of the two: for ten minutes what is held waits
// for that.
func (g *Gate) Attends() error {
	s := g.state()
	err := s.closed()
	if errors.Is(err, errHeldTwice) && time.Since(s.twice) < twiceValidity {
		return nil
	}
	return err
}

// Ready returns why edits are not held: that, or that no controller is there for the policies; nil if they are.
func (g *Gate) Ready() error { return g.state().notReady() }

// Way returns the way in which rollouts were held at the last check; "" if in none.
func (g *Gate) Way() Way { return g.state().way }

// LeftOut are the namespaces in which nothing is held, because others have narrowed the namespaceSelector of the webhooks.
func (g *Gate) LeftOut() []string { return g.state().leftOut }

// LeavesOut reports whether a namespace was one of them at the last check.
func (g *Gate) LeavesOut(namespace string) bool {
	_, is := slices.BinarySearch(g.state().leftOut, namespace)
	return is
}

// Held reports whether a dry run has shown that edits of a kind of workloads are held.
func (g *Gate) Held(kind string) bool {
	s := g.state()
	return s.missing == nil && s.proved && s.holding.Broken[kind] == nil && s.holding.Unattended[kind] == nil
}

func (g *Gate) state() state {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.is
}

// Wake has [Gate.Watch] find out at once whether edits are held: a controller has begun to say that it is there.
func (g *Gate) Wake() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// Watch checks every interval until ctx is done, or where the cluster is watched, when something has changed, and finds out by dry runs whether edits are held: when what is installed
// has changed, once more when API servers apply it, every few minutes, and soon again as long as they are not. It logs each
// change, and calls opened whenever the last missing thing has come, or other namespaces are left out. A controller that writes
// nothing makes no dry run.
func (g *Gate) Watch(ctx context.Context, cluster *Cluster, interval time.Duration, opened func()) {
	l := lookout{cluster: cluster, interval: interval, check: time.Now(), retry: firstRetry}
	var told <-chan struct{}
	if cluster.Metadata != nil {
		l.watches = newWatches(cluster.Metadata)
		told = l.watches.changed
	}
	for {
		l.look(ctx)
		l.prove(ctx)
		if ctx.Err() != nil {
			return
		}
		g.set(ctx, l.is, opened)
		select {
		case <-ctx.Done():
			return
		case <-g.wake:
			l.woken, l.retry = true, firstRetry
		case <-told:
			l.check = earlier(l.check, time.Now().Add(fewest))
		case <-time.After(l.wait()):
		}
	}
}

// lookout is when a gate looks at a cluster, and what it has seen.
type lookout struct {
	cluster  *Cluster
	interval time.Duration
	watches  *watches // nil if what is installed is read only

	is              state
	versions        string    // of what is installed
	changed, proved time.Time // when they have changed, and when dry runs were made last
	check           time.Time // when the next check is due
	retry           time.Duration
	woken           bool // dry runs are to be made at once
}

// look checks what is installed, if it is time.
func (l *lookout) look(ctx context.Context) {
	if time.Now().Before(l.check) {
		return
	}
	l.is = l.is.looked(ctx, l.cluster)
	l.check = time.Now().Add(l.interval)
	if l.watches != nil {
		l.watches.start(ctx, l.cluster.served)
		if l.is.missing == nil && !l.cluster.labels && l.watches.trusted() {
			l.check = time.Now().Add(watchedValidity)
		}
	}
	if l.cluster.versions != l.versions {
		l.versions, l.changed, l.retry = l.cluster.versions, time.Now(), firstRetry
		l.is.proved = false
	}
}

// prove finds out by dry runs whether edits are held, if it is time.
func (l *lookout) prove(ctx context.Context) {
	switch {
	case l.is.missing != nil:
		l.is.proved, l.is.holding = false, Holding{}
	case !l.cluster.DryRun && (l.woken || !time.Now().Before(l.is.due(l.changed, l.proved))):
		l.is.holding, l.is.proved, l.proved = l.cluster.Holding(ctx, l.is.way), true, time.Now()
	}
	l.woken = false
}

// wait returns for how long there is nothing to do. It waits longer each time that edits are not held.
func (l *lookout) wait() time.Duration {
	wait := time.Until(l.check)
	if l.is.missing == nil && l.is.notReady() != nil {
		wait, l.retry = min(wait, l.retry), min(2*l.retry, l.interval)
		return wait
	}
	l.retry = firstRetry
	if l.is.missing == nil && !l.cluster.DryRun {
		wait = min(wait, time.Until(l.is.due(l.changed, l.proved)))
	}
	return wait
}

// earlier returns the first of both.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// looked returns what is known after a check of what is installed.
func (s state) looked(ctx context.Context, cluster *Cluster) state {
	twice := errors.Is(s.missing, errHeldTwice)
	s.way, s.missing = cluster.Check(ctx)
	s.leftOut = cluster.leftOut
	if !twice && errors.Is(s.missing, errHeldTwice) {
		s.twice = time.Now()
	}
	return s
}

// due returns when dry runs are to be made, given when what is installed has changed, and when the last ones were: at once, or
// when API servers apply the change, or when those do not count any more.
func (s state) due(changed, proved time.Time) time.Time {
	if !s.proved || s.notReady() != nil {
		return time.Time{}
	}
	validity := proofValidity
	if s.way == Webhook {
		validity = webhookValidity
	}
	at, settled := proved.Add(validity), changed.Add(settling)
	if proved.Before(settled) {
		at = earlier(at, settled)
	}
	return at
}

// set takes over what is known now.
func (g *Gate) set(ctx context.Context, now state, opened func()) {
	g.mu.Lock()
	before, first := g.is, !g.checked
	g.is, g.checked = now, true
	g.mu.Unlock()
	closed, why := now.closed(), now.notReady()
	others := !slices.Equal(before.leftOut, now.leftOut)
	logger := klog.FromContext(ctx)
	if unasked := now.holding.Unasked; unasked != nil && fmt.Sprint(before.holding.Unasked) != unasked.Error() {
		logger.Info("It is unknown whether edits are held through each API server", "why", unasked.Error())
	}
	if !first && !others && before.way == now.way && fmt.Sprint(before.notReady()) == fmt.Sprint(why) {
		return
	}
	switch {
	case closed != nil:
		logger.Error(closed, "Not ready: nothing is touched")
		return
	case why != nil:
		logger.Info("Not ready yet: edits are not held", "why", why.Error())
	default:
		logger.Info("Ready: the cluster has what is needed", "hold", now.way)
	}
	if others {
		logger.Info("Namespaces in which edits are not held, because the namespaceSelector of the webhooks excludes them", "namespaces", now.leftOut)
	}
	if first || others || before.closed() != nil || before.way != now.way {
		opened()
	}
}
