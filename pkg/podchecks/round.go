package podchecks

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/promapi"
)

// batch is what one query asks about.
type batch struct {
	check *check
	asks  []placed
}

// placed is an ask, and whose it is.
type placed struct {
	*ask
	of *workload
	in string // the workload's name
}

// round asks once about all that is ready.
func (r *Runner) round(ctx context.Context) {
	round := &round{Runner: r, splits: splits}
	var group errgroup.Group
	group.SetLimit(r.options.Parallel)
	for _, b := range r.batches(time.Now()) {
		group.Go(func() error {
			round.ask(ctx, b)
			return nil
		})
	}
	_ = group.Wait() // none has an error
}

// splits is how many batches a round may cut in two because their query fails.
const splits = 64

type round struct {
	*Runner

	mu     sync.Mutex
	gaveUp map[string]error // the checks whose queries fail, and how
	splits int
}

// batches are what is ready to be asked, the checks by turns, so that none waits for all of another.
func (r *Runner) batches(now time.Time) []batch {
	if r.prometheus == nil {
		return nil
	}
	r.mu.Lock()
	ready := map[*check][]placed{}
	for name, w := range r.workloads {
		for _, a := range w.asks {
			if c := r.checks[a.check]; c != nil && !r.ready(a, c).After(now) {
				ready[c] = append(ready[c], placed{a, w, name})
			}
		}
	}
	r.mu.Unlock()
	var turns [][]batch
	for _, c := range slices.SortedFunc(maps.Keys(ready), func(a, b *check) int { return cmp.Compare(a.name, b.name) }) {
		slices.SortFunc(ready[c], func(a, b placed) int {
			return cmp.Or(cmp.Compare(a.ask.of.Namespace, b.ask.of.Namespace), cmp.Compare(a.ask.of.Name, b.ask.of.Name), cmp.Compare(a.ask.of.UID, b.ask.of.UID), cmp.Compare(a.in, b.in))
		})
		for i, asks := range slices.Collect(slices.Chunk(ready[c], r.options.Batch)) {
			if i == len(turns) {
				turns = append(turns, nil)
			}
			turns[i] = append(turns[i], batch{c, asks})
		}
	}
	return slices.Concat(turns...)
}

// ask asks about a batch, and notes what comes of it. What fails by the series of one namespace is not the others' fault: where there are
// several, the batch is cut in two between them.
func (r *round) ask(ctx context.Context, b batch) {
	found, ahead, err := r.query(ctx, b, time.Time{})
	if ctx.Err() != nil {
		return
	}
	if cut := b.cut(); err != nil && promapi.OfSeries(err) && cut > 0 && r.maySplit() {
		r.ask(ctx, batch{b.check, b.asks[:cut]})
		r.ask(ctx, batch{b.check, b.asks[cut:]})
		return
	}
	if err != nil {
		r.note(b, err, nil)
		return
	}
	before, err := r.before(ctx, b, found, ahead)
	if ctx.Err() == nil {
		r.note(b, err, found, before...)
	}
}

func (r *round) maySplit() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.splits--
	return r.splits >= 0
}

// cut is where a namespace begins, next to the middle; 0 if there is but one.
func (b batch) cut() int {
	best, middle := 0, len(b.asks)/2
	for i := 1; i < len(b.asks); i++ {
		if b.asks[i].ask.of.Namespace != b.asks[i-1].ask.of.Namespace && (best == 0 || max(i-middle, middle-i) < max(best-middle, middle-best)) {
			best = i
		}
	}
	return best
}

// measured is what was measured of each ask, in their order.
type measured []values

// query asks what is, or was at a time. Now is what the server takes for it: its clock may be another than ours, and by that it has written
// its series. How far it is ahead is returned, too. Once a query of a check has failed, no other is asked in this round: by a server that hangs, the other
// checks would wait for all of them.
func (r *round) query(ctx context.Context, b batch, at time.Time) (found measured, ahead time.Duration, err error) {
	r.mu.Lock()
	err = r.gaveUp[b.check.name]
	r.mu.Unlock()
	if err != nil {
		return nil, 0, err
	}
	if err := r.pace.Wait(ctx); err != nil {
		return nil, 0, err
	}
	limited, cancel := context.WithTimeout(ctx, r.options.QueryTimeout)
	defer cancel()
	vector, err := r.prometheus.Instant(limited, b.check.name, b.expression(), at)
	if ctx.Err() != nil {
		return nil, 0, ctx.Err()
	}
	r.options.Metrics.queried(err)
	if err == nil {
		return b.take(vector), clockOf(vector), nil
	}
	klog.FromContext(ctx).V(2).Info("Check has no answer", "check", b.check.name, "pods", len(b.asks), "reason", err.Error())
	if !promapi.OfSeries(err) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.gaveUp == nil {
			r.gaveUp = map[string]error{}
		}
		r.gaveUp[b.check.name] = err
	}
	return nil, 0, err
}

// clockOf is how far the clock of an answer is ahead of ours. A few seconds are the time that the answer took.
func clockOf(vector model.Vector) time.Duration {
	for _, sample := range vector {
		if sample != nil {
			return time.Until(sample.Timestamp.Time()).Round(10 * time.Second)
		}
	}
	return 0
}

// expression asks about the pods in all the namespaces: also about those of a name that another namespace has, which are left out of the answer.
func (b batch) expression() string {
	var namespaces, pods, containers []string
	for _, a := range b.asks {
		namespaces, pods = append(namespaces, a.ask.of.Namespace), append(pods, a.ask.of.Name)
		containers = append(containers, b.check.containers(a.ask.of)...)
	}
	return b.check.fill(distinct(namespaces), distinct(pods), distinct(containers))
}

func distinct(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// take sorts an answer by whom it is about. What nobody has asked for is left.
func (b batch) take(vector model.Vector) measured {
	type container struct{ namespace, pod, name string }
	wanted, all := map[container][]int{}, make(measured, len(b.asks))
	for i, a := range b.asks {
		of := a.ask.of
		all[i] = values{}
		for _, name := range append([]string{""}, b.check.containers(of)...) {
			c := container{of.Namespace, of.Name, name}
			wanted[c] = append(wanted[c], i)
		}
	}
	for _, sample := range vector {
		if sample == nil {
			continue
		}
		c := container{string(sample.Metric["namespace"]), string(sample.Metric["pod"]), string(sample.Metric["container"])}
		for _, i := range wanted[c] {
			b.check.add(all[i], c.name, float64(sample.Value))
		}
	}
	return all
}

// before asks what was before the resize, for those with which it depends on that, and remembers it. What it returns is by ask; nil where it
// was not needed.
func (r *round) before(ctx context.Context, b batch, found measured, ahead time.Duration) ([]values, error) {
	if b.check.timesBefore == 0 {
		return make([]values, len(b.asks)), nil
	}
	before, missing := make([]values, len(b.asks)), map[time.Time][]int{}
	r.Runner.mu.Lock()
	for i, a := range b.asks {
		if a.query == b.check.text {
			before[i] = a.before
		}
		if _, open := b.check.judge(a.ask.of, found[i], before[i]); open {
			missing[a.ask.of.before()] = append(missing[a.ask.of.before()], i)
		}
	}
	r.Runner.mu.Unlock()
	for _, at := range slices.SortedFunc(maps.Keys(missing), time.Time.Compare) {
		part := batch{check: b.check}
		for _, i := range missing[at] {
			part.asks = append(part.asks, b.asks[i])
		}
		was, _, err := r.query(ctx, part, at.Add(ahead))
		if err != nil {
			return before, err
		}
		for j, i := range missing[at] {
			before[i] = was[j]
		}
	}
	return before, nil
}

// note writes down what is known of each. An error is that of those of which it is not known without.
func (r *round) note(b batch, err error, found measured, before ...values) {
	now, changed := time.Now(), changes{}
	r.Runner.mu.Lock()
	for i, p := range b.asks {
		a := p.ask
		if w := r.workloads[p.in]; w != p.of || w.asks[key{a.of.UID, a.check}] != a || r.checks[a.check] != b.check {
			continue // it is asked no more, or otherwise
		}
		if found == nil {
			r.unknown(p.of, a, unanswered, "", explain(err), now, changed)
			continue
		}
		if before[i] != nil {
			a.before, a.query = before[i], b.check.text
		}
		switch j, open := b.check.judge(a.of, found[i], before[i]); {
		case open && j.state != Failed:
			r.unknown(p.of, a, unanswered, "", "its value from before the resize is unknown: "+explain(err), now, changed)
		case j.state == Unknown:
			r.unknown(p.of, a, unanswered, j.container, j.message, now, changed)
		default:
			r.answered(p.of, a, j, now, changed)
		}
	}
	r.Runner.mu.Unlock()
	changed.tell()
}

// answered notes what has come out.
func (r *Runner) answered(w *workload, a *ask, j judgement, now time.Time, changed changes) {
	a.why, a.tried, a.unknownFrom = known, true, time.Time{}
	effect := GoOn
	if j.state == Failed {
		effect = Fail
	}
	w.set(a, Outcome{State: j.state, Effect: effect, Container: j.container, Message: shorten(j.message), At: now}, changed)
}

// explain says why there is no answer.
func explain(err error) string {
	switch {
	case err == nil:
		return "Prometheus has not been queried"
	case errors.Is(err, context.DeadlineExceeded):
		return "Prometheus does not answer in time"
	}
	return "Prometheus has no answer: " + err.Error()
}
