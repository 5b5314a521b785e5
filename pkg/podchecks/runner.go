package podchecks

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
)

// Querier evaluates an expression of PromQL at one time, or now, by its own clock, if there is none. It is told which check that is. [promapi.Client] is one.
type Querier interface {
	Instant(ctx context.Context, check, expression string, at time.Time) (model.Vector, error)
}

// ConfigMaps are those of the controller's namespace. CoreV1().ConfigMaps of a client is one.
type ConfigMaps interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.ConfigMap, error)
}

// OnUnknown is what it counts as that an outcome is unknown for too long.
type OnUnknown string

// What that may count as.
const (
	OnUnknownHold OnUnknown = "Hold"
	OnUnknownPass OnUnknown = "Pass"
)

// Options of a Runner. What is zero has the default that is named.
type Options struct {
	// Timeout is how long an outcome may be unknown that could be known: 10m.
	Timeout time.Duration
	// OnUnknown is what it counts as then: OnUnknownHold.
	OnUnknown OnUnknown
	// Interval between two times that a check is asked about all its pods, at least: 30s.
	Interval time.Duration
	// Margin is what must have passed, besides the window, before an answer counts: 30s. The clocks of
	// nodes differ, and a scrape may be under way.
	Margin time.Duration
	// QueryTimeout is how long a query may take: 30s.
	QueryTimeout time.Duration
	// Batch is how many pods of a workload are asked about at once: 100.
	Batch int
	// Parallel is how many queries are under way: 4.
	Parallel int
	// PerMinute is how many queries are begun in a minute: 120, and at most Parallel at once.
	PerMinute int
	// Metrics to count in; nil counts nothing.
	Metrics *Metrics
}

// DefaultTimeout is that of Options.
const DefaultTimeout = 10 * time.Minute

// reread is how old what is known of the ConfigMap may be.
const reread = time.Minute

// Runner asks in the background.
type Runner struct {
	configMaps ConfigMaps
	prometheus Querier
	options    Options
	pace       flowcontrol.RateLimiter
	wake       chan struct{}

	mu        sync.Mutex
	workloads map[string]*workload
	checks    map[string]*check
	broken    map[string]broken
	unread    error // why nothing is known of the ConfigMap
	known     bool  // the ConfigMap has been read
	readAt    time.Time
}

// broken is what is no check, and why.
type broken struct {
	text string
	err  error
}

// workload is one that has named checks.
type workload struct {
	changed func()
	asks    map[key]*ask
	more    bool     // it names more checks than are asked
	shown   Outcomes // of asks; nothing if one has changed since
}

// ask is what is asked of one pod. All but the subject and the check's name is the Runner's, under its lock.
type ask struct {
	of      Subject
	check   string
	outcome Outcome
	why     why
	// unknownFrom is since when it is not known, though it could be.
	unknownFrom time.Time
	// tried: there has been an answer, or an error, since it could be known.
	tried bool
	// before is what was measured before the resize, where that was needed, by which query.
	before values
	query  string
}

// why nothing is known.
type why int

const (
	known      why = iota
	pending        // the time has not come
	undefined      // there is no such check, or it is no check
	unanswered     // Prometheus does not answer, or has no data
)

// New makes a Runner. Without a Querier every outcome is unknown.
func New(configMaps ConfigMaps, prometheus Querier, options Options) *Runner {
	o := options
	o.Timeout, o.OnUnknown = cmp.Or(o.Timeout, DefaultTimeout), cmp.Or(o.OnUnknown, OnUnknownHold)
	o.Interval, o.Margin, o.QueryTimeout = cmp.Or(o.Interval, 30*time.Second), cmp.Or(o.Margin, 30*time.Second), cmp.Or(o.QueryTimeout, 30*time.Second)
	o.Batch, o.Parallel, o.PerMinute = cmp.Or(o.Batch, 100), cmp.Or(o.Parallel, 4), cmp.Or(o.PerMinute, 120)
	r := &Runner{
		configMaps: configMaps, prometheus: prometheus, options: o, wake: make(chan struct{}, 1), workloads: map[string]*workload{},
		pace: flowcontrol.NewTokenBucketRateLimiter(float32(o.PerMinute)/60, o.Parallel),
	}
	o.Metrics.watch(r.count)
	return r
}

// MostChecks is how many checks a workload may name. An annotation could have a hundred thousand names.
const MostChecks = 10

// Ask says what is to be asked for a workload from now on, in place of what was said before. No names or no pods end it. What is known of the same
// pod since the same resize stays known. When an outcome has changed, changed is called; it must not wait.
func (r *Runner) Ask(name string, checks []string, pods []Subject, changed func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(checks) == 0 || len(pods) == 0 {
		delete(r.workloads, name)
		return
	}
	w := r.workloads[name]
	if w == nil {
		w = &workload{}
		r.workloads[name] = w
	}
	w.changed = changed
	checks, most := checks[:min(len(checks), MostChecks)], len(checks) > MostChecks
	before, anew := w.asks, w.more != most
	w.more = most
	w.asks = make(map[key]*ask, len(checks)*len(pods))
	for _, of := range pods {
		for _, check := range checks {
			k := key{of.UID, check}
			a := before[k]
			if a == nil || !a.of.equal(of) {
				a, anew = &ask{of: of, check: check, outcome: Outcome{State: Unknown, Effect: Wait, Message: notYet, At: time.Now()}}, true
			}
			w.asks[k] = a
		}
	}
	if anew || len(before) != len(w.asks) {
		w.shown = Outcomes{}
	}
	if anew {
		select {
		case r.wake <- struct{}{}:
		default: // it will look
		}
	}
}

// Outcomes are those of a workload, as they are now.
func (r *Runner) Outcomes(name string) Outcomes {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.workloads[name]
	if w == nil {
		return Outcomes{}
	}
	if w.shown.of == nil {
		w.shown = Outcomes{of: make(map[key]Outcome, len(w.asks)), more: w.more}
		for k, a := range w.asks {
			w.shown.of[k] = a.outcome
		}
	}
	return w.shown
}

// count says how many outcomes there are of each state.
func (r *Runner) count() map[State]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	states := map[State]int{}
	for _, w := range r.workloads {
		for _, a := range w.asks {
			states[a.outcome.State]++
		}
	}
	return states
}

// calm is the time between two looks at what is new.
const calm = time.Second

// Run asks until the context ends.
func (r *Runner) Run(ctx context.Context) {
	for next := time.Now(); ; {
		r.read(ctx)
		idle := reread
		if r.asked() {
			r.review(time.Now())
			if now := time.Now(); !now.Before(next) {
				next = now.Add(r.options.Interval)
				r.round(ctx)
			}
			idle = time.Until(next)
		}
		if !sleep(ctx, calm, nil) || !sleep(ctx, idle, r.wake) {
			return
		}
	}
}

// sleep reports whether it was not the context that ended it.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// asked reports whether there is anything to ask.
func (r *Runner) asked() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.workloads) > 0
}

// read reads the ConfigMap, if that is due. One that cannot be read now is as it was.
func (r *Runner) read(ctx context.Context) {
	if r.readAt.Add(reread).After(time.Now()) {
		return
	}
	limited, cancel := context.WithTimeout(ctx, r.options.QueryTimeout)
	defer cancel()
	configMap, err := r.configMaps.Get(limited, ConfigMapName, metav1.GetOptions{})
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readAt = time.Now()
	switch {
	case apierrors.IsNotFound(err):
		r.checks, r.broken, r.unread, r.known = nil, nil, fmt.Errorf("there is no ConfigMap %s in the controller's namespace", ConfigMapName), true
	case err != nil:
		r.unread = fmt.Errorf("the ConfigMap %s cannot be read: %w", ConfigMapName, err)
	case err == nil:
		r.parse(ctx, configMap.Data)
	}
}

// parse takes over what the ConfigMap says.
func (r *Runner) parse(ctx context.Context, data map[string]string) {
	before, was := r.checks, r.broken
	r.checks, r.broken, r.unread, r.known = map[string]*check{}, map[string]broken{}, nil, true
	for name, text := range data {
		if old := before[name]; old != nil && old.text == text {
			r.checks[name] = old
			continue
		}
		c, err := parseCheck(name, text)
		if err != nil {
			if r.broken[name] = (broken{text, err}); was[name].text != text {
				klog.FromContext(ctx).Info("Check cannot be read", "check", name, "configMap", ConfigMapName, "reason", err.Error())
			}
			continue
		}
		r.checks[name] = c
	}
}

// Names are those that a workload may name: of all entries of the ConfigMap, also of what is no check; false while they are unknown. There
// are none where nobody could tell the outcome of a check, and that would hold each rollout up.
func (r *Runner) Names() (names []string, known bool) {
	if r.prometheus == nil && r.options.OnUnknown != OnUnknownPass {
		return nil, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.AppendSeq(slices.Collect(maps.Keys(r.checks)), maps.Keys(r.broken)), r.known
}

// Unanswerable is why checks of these names can have no outcome, where that would hold a rollout up; empty if they can, or while that is unknown.
func (r *Runner) Unanswerable(names []string) string {
	switch there, known := r.Names(); {
	case !known || r.options.OnUnknown == OnUnknownPass:
		return ""
	case r.prometheus == nil && len(names) > 0:
		return noPrometheus
	default:
		return lacking(names, there)
	}
}

// UnanswerableBy is that by what the controller tells beside its heartbeat: the names of the checks that workloads may name, and whether
// unknown ones pass.
func UnanswerableBy(there []string, unknownPass bool) func(names []string) string {
	return func(names []string) string {
		switch {
		case unknownPass || len(names) == 0:
			return ""
		case len(there) == 0:
			return "no check can have a result: the controller lacks the flag --checks-prometheus, or the ConfigMap " + ConfigMapName
		default:
			return lacking(names, there)
		}
	}
}

// lacking says which of the names are not there; nothing if all are.
func lacking(names, there []string) string {
	missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(there, name) })
	if len(missing) == 0 {
		return ""
	}
	return "there is no check " + strings.Join(missing, ", ")
}

const noPrometheus = "the controller has no Prometheus to ask: set its flag --checks-prometheus"

// find returns a check by its name, or why there is none.
func (r *Runner) find(name string) (*check, string) {
	switch err := r.broken[name].err; {
	case r.checks[name] != nil:
		return r.checks[name], ""
	case r.unread != nil:
		return nil, r.unread.Error()
	case err != nil:
		return nil, fmt.Sprintf("ConfigMap %s: entry %s is not a valid check: %s", ConfigMapName, name, err)
	}
	there := strings.Join(slices.Sorted(maps.Keys(r.checks)), ", ")
	return nil, fmt.Sprintf("there is no check %.80q; the ConfigMap %s has %s", name, ConfigMapName, cmp.Or(shorten(there), "none"))
}

// review sees to what is known without asking Prometheus.
func (r *Runner) review(now time.Time) {
	r.mu.Lock()
	changed := changes{}
	for _, w := range r.workloads {
		for _, a := range w.asks {
			switch c, reason := r.find(a.check); {
			case c == nil:
				r.unknown(w, a, undefined, "", reason, now, changed)
			case r.prometheus == nil:
				r.unknown(w, a, unanswered, "", noPrometheus, now, changed)
			case r.ready(a, c).After(now):
				message := fmt.Sprintf("its window of %s starts after the resize, so the query runs from %s on", model.Duration(c.window), r.ready(a, c).UTC().Format("15:04:05 MST"))
				r.unknown(w, a, pending, "", message, now, changed)
			case a.outcome.State == Unknown && a.tried: // it may have become too long
				r.unknown(w, a, a.why, a.outcome.Container, "", now, changed)
			}
		}
	}
	r.mu.Unlock()
	changed.tell()
}

// ready is when all that a check looks at is from after the resize.
func (r *Runner) ready(a *ask, c *check) time.Time {
	at := a.of.Since.Add(r.options.Margin)
	if c != nil {
		at = at.Add(c.window)
	}
	return at
}

// changes are the workloads that are to be told.
type changes map[*workload]func()

func (c changes) tell() {
	for _, tell := range c {
		tell()
	}
}

// unknown notes that nothing is known, and what that counts as; without a message it is still so.
func (r *Runner) unknown(w *workload, a *ask, why why, container, message string, now time.Time, changed changes) {
	if a.outcome.State == Failed && why != undefined {
		return // it has failed, as far as is known
	}
	switch a.tried = why != pending; {
	case why == pending:
		a.unknownFrom = time.Time{}
	case a.unknownFrom.IsZero():
		a.unknownFrom = now // a controller that has just begun waits anew: what it meets first may be over at once
		if ready := r.ready(a, r.checks[a.check]); ready.After(now) {
			a.unknownFrom = ready
		}
	}
	o := Outcome{State: Unknown, Effect: Wait, Container: container, Message: shorten(message), At: now}
	late := ""
	if why != pending && !now.Before(a.unknownFrom.Add(r.options.Timeout)) {
		o.Effect = Hold
		if r.options.OnUnknown == OnUnknownPass {
			o.Effect = GoOn
		}
		late = fmt.Sprintf("; unknown for more than %s (--check-timeout), which counts as %s (--on-unknown-check)", model.Duration(r.options.Timeout), r.options.OnUnknown)
	}
	if message == "" {
		o.Message, _, _ = strings.Cut(a.outcome.Message, "; unknown for more than")
	}
	o.Message += late
	a.why = why
	w.set(a, o, changed)
}

// set notes an outcome, if it is another one than before. A number that is a little different is none.
func (w *workload) set(a *ask, o Outcome, changed changes) {
	was := a.outcome
	if was.State == o.State && was.Effect == o.Effect && was.Container == o.Container && digitless(was.Message) == digitless(o.Message) {
		return
	}
	a.outcome, w.shown = o, Outcomes{}
	if w.changed != nil {
		changed[w] = w.changed
	}
}

func digitless(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) || r == '.' {
			return -1
		}
		return r
	}, text)
}

// shorten keeps what a condition can say.
func shorten(text string) string {
	const most = 400
	if text = strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "?"); len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
