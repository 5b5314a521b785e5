package podchecks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	promapiv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/promapi"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// world is a Prometheus and an API server that do what a test says, by a clock of its own.
type world struct {
	t *testing.T
	*Runner

	mu      sync.Mutex
	data    map[string]string
	err     error // of the API server
	gets    int
	queries []query
	answer  func(ctx context.Context, q query) (model.Vector, error)
	flying  int
	most    int // that were under way at once
	took    time.Duration
	told    int
	ahead   time.Duration // the clock of the Prometheus
}

// query is one that was asked.
type query struct {
	check, text string
	at, asked   time.Time
}

// value is a sample of the pod shop/web-0, container app.
func value(v float64) model.Vector { return valueOf("shop", "web-0", v) }

func valueOf(namespace, pod string, v float64) model.Vector {
	return model.Vector{{Metric: model.Metric{"namespace": model.LabelValue(namespace), "pod": model.LabelValue(pod), "container": "app"}, Value: model.SampleValue(v)}}
}

var definitions = map[string]string{
	"throttling": text(selector, "message: throttled in $value of its periods", `unit: "%"`, "above: 50", "timesBefore: 2", "window: 5m"),
	"memory":     text(selector, "message: uses $value", "above: 95", "window: 1m"),
	"broken":     "window: 5 minutes",
}

// in runs a test in a world whose clock is its own, with a Runner that runs.
func in(t *testing.T, options Options, f func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, data: maps.Clone(definitions), answer: func(context.Context, query) (model.Vector, error) { return value(1), nil }}
		w.Runner = New(w, w, options)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			w.Run(ctx)
			close(ended)
		}()
		f(w)
		cancel()
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("it does not end with its context")
		}
	})
}

func (w *world) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.ConfigMap, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gets++
	if name != ConfigMapName {
		w.t.Errorf("the ConfigMap %s is read", name)
	}
	return &corev1.ConfigMap{Data: maps.Clone(w.data)}, w.err
}

func (w *world) Instant(ctx context.Context, check, expression string, at time.Time) (model.Vector, error) {
	w.mu.Lock()
	q := query{check, expression, at, time.Now()}
	if at.IsZero() {
		q.at = time.Now().Add(w.ahead)
	}
	w.queries = append(w.queries, q)
	w.flying++
	w.most = max(w.most, w.flying)
	answer, took := w.answer, w.took
	w.mu.Unlock()
	select {
	case <-time.After(took):
	case <-ctx.Done():
	}
	vector, err := answer(ctx, q)
	dated := build.Each(vector, func(sample *model.Sample) *model.Sample {
		return &model.Sample{Metric: sample.Metric, Value: sample.Value, Timestamp: model.TimeFromUnixNano(q.at.UnixNano())}
	})
	w.mu.Lock()
	w.flying--
	w.mu.Unlock()
	return dated, err
}

// answers has the Prometheus answer so from now on.
func (w *world) answers(answer func(ctx context.Context, q query) (model.Vector, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

func (w *world) says(vector model.Vector, err error) {
	w.answers(func(context.Context, query) (model.Vector, error) { return vector, err })
}

// asks asks about the pod shop/web-0, whose resize is seen done now.
func (w *world) asks(checks ...string) Subject {
	s := one("app")
	s.Since = time.Now()
	w.Ask("sts/web", checks, []Subject{s}, w.tell)
	return s
}

func (w *world) tell() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told++
}

// log has the queries until now.
func (w *world) log() []query {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.queries)
}

// tells is how many changes have been told.
func (w *world) tells() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.told
}

// reads is how often the ConfigMap was read.
func (w *world) reads() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gets
}

// edit changes the world.
func (w *world) edit(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// after lets time pass.
func (w *world) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) wants(when, check string, state State, effect Effect, message string) {
	w.t.Helper()
	o := w.Outcomes("sts/web").Of("u", check)
	if o.State != state || o.Effect != effect || !strings.Contains(o.Message, message) {
		w.t.Errorf("%s %s is %+v, want %s, %s, …%s…", when, check, o, state, effect, message)
	}
}

// saysAround has the Prometheus say one thing of what was until then, and another one of what was after.
func (w *world) saysAround(at time.Time, before, after float64) {
	w.answers(func(_ context.Context, q query) (model.Vector, error) {
		if q.at.After(at) {
			return value(after), nil
		}
		return value(before), nil
	})
}

// TestWindow: nothing counts that looks at what was before the resize.
func TestWindow(t *testing.T) {
	in(t, Options{}, func(w *world) {
		since := w.asks("throttling", "memory").Since
		w.wants("at first", "memory", Unknown, Wait, "")
		w.after(time.Second)
		w.wants("after a look", "memory", Unknown, Wait, "its window of 1m starts after the resize, so the query runs from "+since.Add(90*time.Second).UTC().Format("15:04:05 MST")+" on")
		w.after(88 * time.Second)
		if len(w.log()) > 0 {
			t.Errorf("after %s it asks %v", time.Since(since), w.log())
		}
		w.after(32 * time.Second)
		w.wants("after the window", "memory", Passed, GoOn, "uses 1, not more than 95")
		w.wants("after the window of another", "throttling", Unknown, Wait, "its window of 5m")
		w.after(5 * time.Minute)
		w.wants("after both", "throttling", Passed, GoOn, "throttled in 1 % of its periods, not more than 50 %")
		for _, q := range w.log() {
			if window := map[string]time.Duration{"throttling": 5 * time.Minute, "memory": time.Minute}[q.check]; q.at.Add(-window).Before(since.Add(30 * time.Second)) {
				t.Errorf("%s is asked at %s after the resize", q.check, q.at.Sub(since))
			}
		}
		w.says(value(96), nil)
		w.after(30 * time.Second)
		w.wants("when it gets worse", "memory", Failed, Fail, "uses 96, more than 95")
	})
}

// TestBefore: what a pod had before its resize is asked for once, only if it matters, and at a time before it was asked for.
func TestBefore(t *testing.T) {
	in(t, Options{}, func(w *world) {
		asked := time.Now()
		w.after(90 * time.Second)
		s := one("app")
		s.Asked, s.Since = asked, time.Now()
		w.saysAround(asked, 60, 83)
		w.Ask("sts/web", []string{"throttling"}, []Subject{s}, w.tell)
		w.after(10 * time.Minute)
		w.wants("as throttled as before", "throttling", Passed, GoOn, "but not more than 2 times the 60 % before its resize")
		before := 0
		for _, q := range w.log() {
			if q.at.Before(s.Since) {
				before++
				if want := asked.Truncate(time.Minute); !q.at.Equal(want) {
					t.Errorf("what was before is asked at %s, want %s", q.at, want)
				}
			}
		}
		if before != 1 {
			t.Errorf("what was before is asked %d times", before)
		}
		w.saysAround(time.Now(), 0, 83)
		w.asks("throttling") // another resize
		w.after(10 * time.Minute)
		w.wants("throttled by the resize", "throttling", Failed, Fail, "more than 2 times the 0 % before its resize")
	})
}

// TestClocks: series are looked at by the clock that has written them, however wrong it is, or ours.
func TestClocks(t *testing.T) {
	for _, ahead := range []time.Duration{0, 20 * time.Minute, -20 * time.Minute} {
		in(t, Options{}, func(w *world) {
			w.edit(func() { w.ahead = ahead })
			since := w.asks("throttling").Since
			w.saysAround(since.Add(ahead), 60, 83)
			w.after(10 * time.Minute)
			w.wants("with a clock that is "+ahead.String()+" ahead", "throttling", Passed, GoOn, "but not more than 2 times the 60 % before its resize")
			for _, q := range w.log() {
				if from := q.at.Add(-5 * time.Minute).Sub(since.Add(ahead)); q.at.After(since.Add(ahead)) && from < 30*time.Second || q.at.Add(time.Minute).Before(since.Add(ahead)) {
					t.Errorf("with a clock that is %s ahead a query is of %s after the resize", ahead, q.at.Sub(since.Add(ahead)))
				}
			}
		})
	}
}

// TestBeforeUnknown: where it matters, and there is no answer, it is not known.
func TestBeforeUnknown(t *testing.T) {
	in(t, Options{}, func(w *world) {
		since := w.asks("throttling").Since
		w.answers(func(_ context.Context, q query) (model.Vector, error) {
			if q.at.Before(since.Add(time.Second)) {
				return nil, errors.New("too long ago")
			}
			return value(83), nil
		})
		w.after(10 * time.Minute)
		w.wants("without an answer", "throttling", Unknown, Wait, "its value from before the resize is unknown: Prometheus has no answer: too long ago")
	})
}

// TestUnknown: what is not known waits, for as long as the flag says, and then counts as the other flag says.
func TestUnknown(t *testing.T) {
	never := func(ctx context.Context, _ query) (model.Vector, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for name, tt := range map[string]struct {
		check   string
		prepare func(*world)
		want    string
	}{
		"no data":            {"memory", func(w *world) { w.says(nil, nil) }, "no data of it"},
		"a refusal":          {"memory", func(w *world) { w.says(nil, errors.New("401 Unauthorized")) }, "Prometheus has no answer: 401 Unauthorized"},
		"silence":            {"memory", func(w *world) { w.answers(never) }, "Prometheus does not answer in time"},
		"no such check":      {"speed", func(*world) {}, `there is no check "speed"; the ConfigMap inplace-rollout-checks has memory, throttling`},
		"a name with quotes": {"a\"'`\n}$pod", func(*world) {}, `there is no check "a\"'` + "`" + `\n}$pod"`},
		"a broken check":     {"broken", func(*world) {}, "ConfigMap inplace-rollout-checks: entry broken is not a valid check: "},
		"no ConfigMap": {"memory", func(w *world) {
			w.edit(func() { w.err = apierrors.NewNotFound(schema.GroupResource{}, ConfigMapName) })
		}, "there is no ConfigMap inplace-rollout-checks"},
		"no right":      {"memory", func(w *world) { w.edit(func() { w.err = errors.New("forbidden") }) }, "cannot be read: forbidden"},
		"no Prometheus": {"memory", func(w *world) { w.prometheus = nil }, "set its flag --checks-prometheus"},
	} {
		for on, effect := range map[OnUnknown]Effect{OnUnknownHold: Hold, OnUnknownPass: GoOn} {
			t.Run(name+" "+string(on), func(t *testing.T) {
				in(t, Options{OnUnknown: on, Timeout: 7 * time.Minute}, func(w *world) {
					tt.prepare(w)
					w.asks(tt.check)
					w.after(2*time.Minute + 40*time.Second)
					w.wants("soon", tt.check, Unknown, Wait, tt.want)
					told := w.tells()
					w.after(4*time.Minute + 49*time.Second) // 7m29s: the timeout begins when it could have been known, 30 or 90 seconds after the resize
					w.wants("before the timeout", tt.check, Unknown, Wait, tt.want)
					if w.tells() != told {
						t.Errorf("%d changes are told while nothing changes", w.tells()-told)
					}
					w.after(2*time.Minute + 30*time.Second)
					w.wants("after it", tt.check, Unknown, effect, tt.want)
					w.wants("after it", tt.check, Unknown, effect, "unknown for more than 7m (--check-timeout), which counts as "+string(on)+" (--on-unknown-check)")
					if w.tells() != told+1 {
						t.Errorf("the end of the wait is told %d times", w.tells()-told)
					}
					if slices.Contains([]string{"no such check", "a name with quotes", "a broken check", "no ConfigMap", "no right", "no Prometheus"}, name) && len(w.log()) > 0 {
						t.Errorf("it asks %v", w.log())
					}
				})
			})
		}
	}
}

// TestBegins: a controller that begins long after the resize waits as long as any other.
func TestBegins(t *testing.T) {
	in(t, Options{OnUnknown: OnUnknownPass}, func(w *world) {
		w.says(nil, errors.New("away"))
		s := one("app")
		s.Since = time.Now().Add(-24 * time.Hour)
		w.Ask("sts/web", []string{"memory"}, []Subject{s}, w.tell)
		w.after(9 * time.Minute)
		w.wants("at first", "memory", Unknown, Wait, "away")
		w.after(2 * time.Minute)
		w.wants("for long", "memory", Unknown, GoOn, "away")
	})
}

// TestRecovers: what is known again counts again, after the wait, too.
func TestRecovers(t *testing.T) {
	in(t, Options{}, func(w *world) {
		w.says(nil, errors.New("away"))
		w.asks("memory")
		w.after(20 * time.Minute)
		w.wants("without an answer", "memory", Unknown, Hold, "away")
		w.says(value(1), nil)
		w.after(time.Minute)
		w.wants("with one", "memory", Passed, GoOn, "uses 1")
		w.says(nil, errors.New("away again"))
		w.after(9 * time.Minute)
		w.wants("without one again", "memory", Unknown, Wait, "away again") // its wait begins anew
		w.after(2 * time.Minute)
		w.wants("for long", "memory", Unknown, Hold, "away again")
	})
}

// TestFailedStays: that Prometheus is gone does not make good what has failed. That the check is gone, or says otherwise, does.
func TestFailedStays(t *testing.T) {
	in(t, Options{OnUnknown: OnUnknownPass}, func(w *world) {
		w.says(value(99), nil)
		w.asks("memory")
		w.after(3 * time.Minute)
		w.wants("at first", "memory", Failed, Fail, "uses 99, more than 95")
		at := w.Outcomes("sts/web").Of("u", "memory").At
		for _, answer := range []error{errors.New("away"), context.DeadlineExceeded, nil} {
			w.says(nil, answer)
			w.after(30 * time.Minute)
			w.wants("without an answer", "memory", Failed, Fail, "uses 99, more than 95")
		}
		told := w.tells()
		w.says(value(98), nil)
		w.after(time.Minute)
		if o := w.Outcomes("sts/web").Of("u", "memory"); !o.At.Equal(at) || w.tells() != told {
			t.Errorf("that it is a little better is told: %+v", o)
		}
		w.edit(func() { w.data["memory"] = strings.Replace(w.data["memory"], "above: 95", "above: 99.5", 1) })
		w.after(3 * time.Minute)
		w.wants("with another threshold", "memory", Passed, GoOn, "uses 98, not more than 99.5")
		w.says(value(100), nil)
		w.after(time.Minute)
		w.edit(func() { delete(w.data, "memory") })
		w.after(3 * time.Minute)
		w.wants("without the check", "memory", Unknown, Wait, "there is no check")
	})
}

// TestNoPrometheus: without one, nobody is to name a check, where that would hold rollouts up.
func TestNoPrometheus(t *testing.T) {
	for on, why := range map[OnUnknown]string{OnUnknownHold: "the controller has no Prometheus to ask", OnUnknownPass: ""} {
		r := New(nil, nil, Options{OnUnknown: on})
		said := r.Unanswerable([]string{"memory"})
		if names, known := r.Names(); len(names) > 0 || known != (why != "") || !strings.HasPrefix(said, why) || (said == "") != (why == "") || r.Unanswerable(nil) != "" {
			t.Errorf("%s: names %v are known: %t; it says %q", on, names, known, said)
		}
	}
}

// TestConfigMap: it is read once in a minute, as admission is to know the names in it. That it cannot be read leaves what is known.
func TestConfigMap(t *testing.T) {
	in(t, Options{}, func(w *world) {
		names := func(when, want string) {
			t.Helper()
			all, known := w.Names()
			slices.Sort(all)
			if got := fmt.Sprint(all, known); got != want {
				t.Errorf("%s the names are %s, want %s", when, got, want)
			}
			if got := w.Unanswerable([]string{"latncy"}); (got == "there is no check latncy") != known {
				t.Errorf("%s it says %q", when, got)
			}
		}
		w.edit(func() { w.err = errors.New("away") })
		names("before it has been read", "[] false")
		w.after(2 * time.Minute)
		names("when it could not be read", "[] false")
		w.edit(func() { w.err = nil })
		w.after(time.Hour)
		if w.reads() < 55 || w.reads() > 63 || len(w.log()) > 0 {
			t.Errorf("nobody asks, and the ConfigMap is read %d times, Prometheus asked %d times", w.reads(), len(w.log()))
		}
		names("when it has been read", "[broken memory throttling] true")
		w.asks("memory")
		began := w.reads()
		w.after(10 * time.Minute)
		if n := w.reads() - began; n < 9 || n > 11 {
			t.Errorf("in ten minutes it is read %d times", n)
		}
		w.edit(func() { w.err = errors.New("away") })
		w.after(10 * time.Minute)
		w.wants("while it cannot be read", "memory", Passed, GoOn, "uses 1")
		w.Ask("sts/web", nil, nil, nil)
		w.after(time.Minute)
		asked := len(w.log())
		w.after(time.Hour)
		if len(w.log()) > asked {
			t.Error("it goes on when nothing is asked any more")
		}
		w.wants("at the end", "memory", Unknown, Wait, "not queried yet")
		names("while it cannot be read", "[broken memory throttling] true")
		w.edit(func() { w.err = apierrors.NewNotFound(schema.GroupResource{}, ConfigMapName) })
		w.after(2 * time.Minute)
		names("without it", "[] true")
	})
}

// TestAsk: what is known of a pod is of one resize, one pod and its checks.
func TestAsk(t *testing.T) {
	in(t, Options{}, func(w *world) {
		s := w.asks("memory")
		w.after(3 * time.Minute)
		w.wants("at first", "memory", Passed, GoOn, "")
		w.Ask("sts/web", []string{"memory", "memory"}, []Subject{s}, w.tell)
		w.wants("asked again", "memory", Passed, GoOn, "")
		other := s
		other.Since = time.Now()
		w.Ask("sts/other", []string{"memory"}, []Subject{other}, w.tell)
		if o := w.Outcomes("sts/other").Of("u", "memory"); o.State != Unknown {
			t.Errorf("another workload's is %+v", o)
		}
		s.Since = time.Now()
		w.Ask("sts/web", []string{"memory"}, []Subject{s}, w.tell)
		w.wants("after another resize", "memory", Unknown, Wait, "")
		w.after(3 * time.Minute)
		w.wants("after its window", "memory", Passed, GoOn, "")
		s.UID, s.Since = "v", time.Now()
		w.Ask("sts/web", []string{"memory"}, []Subject{s}, w.tell)
		w.wants("where another pod has its name", "memory", Unknown, Wait, "")
		many := make([]string, MostChecks+1)
		for i := range many {
			many[i] = fmt.Sprint(i)
		}
		s.UID = "u"
		w.Ask("sts/web", many, []Subject{s}, w.tell)
		w.wants("of too many", many[MostChecks], Unknown, Hold, "more than 10 checks")
		w.wants("of the others", many[MostChecks-1], Unknown, Wait, "")
	})
}

// TestLate: an answer to what is not asked any more is nobody's.
func TestLate(t *testing.T) {
	in(t, Options{}, func(w *world) {
		w.says(value(99), nil)
		w.edit(func() { w.took = 20 * time.Second })
		s := w.asks("memory")
		w.after(100 * time.Second) // the question is under way
		if len(w.log()) != 1 {
			t.Fatalf("there are %d questions", len(w.log()))
		}
		s.Since = time.Now()
		told := w.tells()
		w.Ask("sts/web", []string{"memory"}, []Subject{s}, w.tell)
		w.after(30 * time.Second)
		w.wants("after another resize", "memory", Unknown, Wait, "starts after the resize")
		if w.tells() != told+1 { // that it waits for its window
			t.Errorf("%d changes are told, want 1", w.tells()-told)
		}
	})
}

// TestThousand: a thousand pods of 20 workloads, with two checks, are asked about by one query for each workload and check. A Prometheus
// that is slow, or hangs, gets no more.
func TestThousand(t *testing.T) {
	const workloads, pods, perMinute = 20, 50, 30 // a round has 40 queries
	for name, tt := range map[string]struct {
		took  time.Duration
		hangs bool
	}{"quick": {}, "slow": {took: 7 * time.Second}, "silent": {hangs: true}} {
		t.Run(name, func(t *testing.T) {
			in(t, Options{PerMinute: perMinute}, func(w *world) {
				w.edit(func() { w.took = tt.took })
				w.answers(func(ctx context.Context, q query) (model.Vector, error) {
					if tt.hangs {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return everything(workloads, pods, q), nil
				})
				begin := time.Now()
				for i := range workloads {
					var subjects []Subject
					for p := range pods {
						s := one("app")
						s.Namespace, s.Name, s.UID, s.Since = fmt.Sprintf("team-%03d", i), fmt.Sprintf("web-%d", p), types.UID(fmt.Sprintf("%d-%d", i, p)), begin
						subjects = append(subjects, s)
					}
					w.Ask(fmt.Sprintf("sts/%d", i), []string{"memory", "throttling"}, subjects, w.tell)
				}
				w.after(15 * time.Minute)
				begun := map[int]int{}
				for _, q := range w.log() {
					begun[int(q.asked.Sub(begin)/time.Minute)]++
					if len(q.text) > 10_000 {
						t.Fatalf("a query has %d bytes", len(q.text))
					}
				}
				for minute, n := range begun {
					if n > perMinute+4 {
						t.Errorf("in minute %d there are %d queries", minute, n)
					}
				}
				if w.most > 4 { // nothing is under way now
					t.Errorf("%d queries are under way at once", w.most)
				}
				states := w.count()
				if want := workloads * pods * 2; tt.hangs && states[Unknown] != want || !tt.hangs && states[Passed] != want {
					t.Errorf("the outcomes are %v", states)
				}
				if tt.hangs && len(w.log()) > 15*60/30*2*4 { // in each round, and of each check, those that are under way when the first one ends
					t.Errorf("a Prometheus that hangs is asked %d times", len(w.log()))
				}
				if got := w.Outcomes("sts/7").Of("7-3", "memory"); tt.hangs && (got.Effect != Hold || !strings.Contains(got.Message, "does not answer in time")) {
					t.Errorf("one is %+v", got)
				}
				t.Logf("%d queries in 15 minutes, %d at once, %v", len(w.log()), w.most, perMinute)
			})
		})
	}
}

// everything is a value for all that a query asks about, and for pods of the same names elsewhere.
func everything(workloads, pods int, q query) model.Vector {
	var vector model.Vector
	for i := range workloads {
		if namespace := fmt.Sprintf("team-%03d", i); strings.Contains(q.text, namespace) {
			for p := range pods {
				vector = append(vector, valueOf(namespace, fmt.Sprintf("web-%d", p), 1)...)
			}
		}
	}
	return append(vector, valueOf("elsewhere", "web-0", 100)...)
}

// TestOneWorkloadFails: what Prometheus cannot evaluate for the series of one workload does not concern the others.
func TestOneWorkloadFails(t *testing.T) {
	in(t, Options{}, func(w *world) {
		w.answers(func(_ context.Context, q query) (model.Vector, error) {
			if strings.Contains(q.text, "team-007") {
				return nil, fmt.Errorf("asking: %w", &promapiv1.Error{Type: promapiv1.ErrExec, Msg: "found duplicate series"})
			}
			return everything(20, 1, q), nil
		})
		for i := range 20 {
			s := one("app")
			s.Namespace, s.UID, s.Since = fmt.Sprintf("team-%03d", i), types.UID(fmt.Sprint(i)), time.Now()
			w.Ask(fmt.Sprintf("sts/%d", i), []string{"memory"}, []Subject{s}, w.tell)
		}
		w.after(2 * time.Minute)
		for i := range 20 {
			o := w.Outcomes(fmt.Sprintf("sts/%d", i)).Of(types.UID(fmt.Sprint(i)), "memory")
			if want := map[bool]State{true: Unknown, false: Passed}[i == 7]; o.State != want {
				t.Errorf("of team-%03d it is %+v", i, o)
			}
		}
	})
}

// TestOneCheckFails: a check that Prometheus does not answer is none of the others.
func TestOneCheckFails(t *testing.T) {
	in(t, Options{Parallel: 1}, func(w *world) {
		w.edit(func() { w.data["a"] = w.data["memory"] })
		w.answers(func(ctx context.Context, q query) (model.Vector, error) {
			if q.check == "a" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return value(1), nil
		})
		w.asks("a", "memory")
		w.after(3 * time.Minute)
		w.wants("the one", "a", Unknown, Wait, "does not answer in time")
		w.wants("the other", "memory", Passed, GoOn, "uses 1")
	})
}

// TestLies has a real client ask a server that lies. What comes of each answer is tried in pkg/promapi, and what of each sample in TestTake.
func TestLies(t *testing.T) {
	const vector = `{"status":"success","data":{"resultType":"vector","result":[%s]}}`
	sample := func(labels, value string) string {
		return fmt.Sprintf(`{"metric":{%s},"value":[1,%q]}`, labels, value)
	}
	const ours = `"namespace":"shop","pod":"web-0","container":"app"`
	for name, tt := range map[string]struct {
		status int
		body   string
		want   State
		says   string
		result string
	}{
		"the truth":           {200, fmt.Sprintf(vector, sample(ours, "1")), Passed, "uses 1, not more than 95", resultAnswered},
		"a bad truth":         {200, fmt.Sprintf(vector, sample(ours, "96")), Failed, "uses 96, more than 95", resultAnswered},
		"a number of samples": {200, fmt.Sprintf(vector, strings.Repeat(sample(ours, "1")+",", 20_000)+sample(ours, "1")), Unknown, "more than 1000000 bytes", resultTooLong},
		"HTML":                {200, "<html>Sign in</html>", Unknown, "is no Prometheus: <html>Sign in</html>", resultError},
		"a bad query":         {400, `{"status":"error","errorType":"bad_data","error":"1:4: parse error"}`, Unknown, "parse error", resultBadQuery},
		"who?":                {401, "who?", Unknown, "--checks-http-config", resultError},
		"not here":            {404, "no", Unknown, "--checks-prometheus must be the URL without /api/v1", resultError},
		"an error":            {500, "oops", Unknown, "500", resultError},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				rw.WriteHeader(tt.status)
				_, _ = rw.Write([]byte(tt.body))
			}))
			defer server.Close()
			client := must.Get(promapi.New(Server(server.URL, ""), nil))(t)
			registry := prometheus.NewRegistry()
			w := &world{t: t, data: definitions}
			r := New(w, client, Options{Metrics: NewMetrics(registry)})
			s := one("app")
			s.Since = time.Now().Add(-2 * time.Minute)
			r.Ask("sts/web", []string{"memory"}, []Subject{s}, nil)
			r.read(t.Context())
			r.round(t.Context())
			if o := r.Outcomes("sts/web").Of("u", "memory"); o.State != tt.want || !strings.Contains(o.Message, tt.says) || len(o.Message) > 500 {
				t.Errorf("it is %+v, want %s, …%s…", o, tt.want, tt.says)
			}
			if got := exposed(t, registry); !strings.Contains(got, fmt.Sprintf("inplace_rollout_check_queries_total{result=%q} 1\n", tt.result)) {
				t.Errorf("a query is not counted as %s:\n%s", tt.result, got)
			}
		})
	}
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := New(nil, nil, Options{Metrics: NewMetrics(registry)})
	r.Ask("sts/web", []string{"memory", "throttling"}, []Subject{one("app")}, nil)
	want := `# HELP inplace_rollout_check_queries_total Queries of checks to Prometheus, by result.
# TYPE inplace_rollout_check_queries_total counter
inplace_rollout_check_queries_total{result="answered"} 0
inplace_rollout_check_queries_total{result="bad_query"} 0
inplace_rollout_check_queries_total{result="error"} 0
inplace_rollout_check_queries_total{result="timeout"} 0
inplace_rollout_check_queries_total{result="too_long"} 0
# HELP inplace_rollout_checks Checks of pods that are asked now, by state.
# TYPE inplace_rollout_checks gauge
inplace_rollout_checks{state="failed"} 0
inplace_rollout_checks{state="passed"} 0
inplace_rollout_checks{state="unknown"} 2
`
	got := exposed(t, registry)
	if got != want {
		t.Errorf("the metrics are\n%s\nwant\n%s", got, want)
	}
	if problems, err := promlint.New(strings.NewReader(got)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v, %v", err, problems)
	}
}

// exposed is what a scrape gets.
func exposed(t *testing.T, registry prometheus.Gatherer) string {
	t.Helper()
	families := must.Get(registry.Gather())(t)
	var text strings.Builder
	for _, family := range families {
		must.Get(expfmt.MetricFamilyToText(&text, family))(t)
	}
	return text.String()
}
