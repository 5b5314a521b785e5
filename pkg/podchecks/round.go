package podchecks

import (
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

// batch is what one query asks about: a check of pods of one workload, so that what Prometheus cannot evaluate for its series concerns no other.
type batch struct {
	check *check
	of    *workload
	name  string // the workload's
	asks  []*ask
}

// round asks once about all that is ready.
func (r *Runner) round(ctx context.Context) {
	round := &round{Runner: r, gaveUp: map[string]error{}}
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

type round struct {
	*Runner

	mu     sync.Mutex
	gaveUp map[string]error // the checks that Prometheus does not answer, and how
}

// batches are what is ready to be asked.
func (r *Runner) batches(now time.Time) (all []batch) {
	if r.prometheus == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, w := range r.workloads {
		ready := map[*check][]*ask{}
		for _, a := range w.asks {
			if c := r.checks[a.check]; c != nil && !r.ready(a, c).After(now) {
				ready[c] = append(ready[c], a)
			}
		}
		for c, asks := range ready {
			for some := range slices.Chunk(asks, r.options.Batch) {
				all = append(all, batch{c, w, name, some})
			}
		}
	}
	return all
}

// ask asks about a batch, and notes what comes of it.
func (r *round) ask(ctx context.Context, b batch) {
	found, ahead, err := r.query(ctx, b, time.Time{})
	var before []values
	if err == nil {
		before, err = r.before(ctx, b, found, ahead)
	}
	if ctx.Err() == nil {
		r.note(b, err, found, before)
	}
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

// expression asks about the batch's pods.
func (b batch) expression() string {
	var namespaces, pods, containers []string
	for _, a := range b.asks {
		namespaces, pods = append(namespaces, a.of.Namespace), append(pods, a.of.Name)
		containers = append(containers, b.check.containers(a.of)...)
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
		of := a.of
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
		if _, open := b.check.judge(a.of, found[i], before[i]); open {
			missing[a.of.before()] = append(missing[a.of.before()], i)
		}
	}
	r.Runner.mu.Unlock()
	for _, at := range slices.SortedFunc(maps.Keys(missing), time.Time.Compare) {
		part := batch{check: b.check, of: b.of, name: b.name}
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
func (r *round) note(b batch, err error, found measured, before []values) {
	now, changed := time.Now(), changes{}
	r.Runner.mu.Lock()
	for i, a := range b.asks {
		if r.workloads[b.name] != b.of || b.of.asks[key{a.of.UID, a.check}] != a || r.checks[a.check] != b.check {
			continue // it is asked no more, or otherwise
		}
		if found == nil {
			r.unknown(b.of, a, unanswered, "", explain(err), now, changed)
			continue
		}
		if before[i] != nil {
			a.before, a.query = before[i], b.check.text
		}
		switch j, open := b.check.judge(a.of, found[i], before[i]); {
		case open && j.state != Failed:
			r.unknown(b.of, a, unanswered, "", "its value from before the resize is unknown: "+explain(err), now, changed)
		case j.state == Unknown:
			r.unknown(b.of, a, unanswered, j.container, j.message, now, changed)
		default:
			r.answered(b.of, a, j, now, changed)
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
