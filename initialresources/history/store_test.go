package history

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// answering is a store that asks a server that answers so.
func answering(t testing.TB, answer http.HandlerFunc, change ...func(*Options)) (*Store, *httptest.Server) {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	o := Defaults()
	o.URL = server.URL
	for _, f := range change {
		f(&o)
	}
	store := must.Get(New(o))(t)
	return store, server
}

func saying(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// TestAnswers: whatever answers, the error says what it was, and what to do where we know. More answers are tried in pkg/promapi.
func TestAnswers(t *testing.T) {
	const empty = `{"status":"success","data":{"resultType":"vector","result":[]}`
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"no token":       {saying(401, "who are you"), "--prometheus-bearer-token-file"},
		"other path":     {saying(404, "404 page not found"), "there is no Prometheus at http://127.0.0.1"},
		"one store less": {saying(200, empty+`,"warnings":["store 10.0.0.1 is not there"]}`), "might be incomplete: store 10.0.0.1 is not there"},
		"no history":     {saying(200, empty+`}`), "check that kube-state-metrics is scraped"},
	} {
		t.Run(name, func(t *testing.T) {
			store, _ := answering(t, c.answer)
			err := store.Refresh(t.Context(), time.Now())
			must.Fails(t, "a read", err, c.want)
			if store.Complete() || !store.Until().IsZero() {
				t.Error("something was read")
			}
			must.Equal(t, store.length, time.Hour, "what is read at once (less is no remedy)")
		})
	}
}

func TestUnreachable(t *testing.T) {
	store, server := answering(t, saying(200, ""))
	server.Close()
	must.Fails(t, "a read", store.Refresh(t.Context(), time.Now()), server.URL)
}

// TestSilence: a server that does not answer in time is asked for less the next time.
func TestSilence(t *testing.T) {
	store, _ := answering(t, func(_ http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm() // only then it is noticed that the client has gone
		<-r.Context().Done()
	})
	store.client.Grace = time.Millisecond - store.Timeout
	if err := store.Refresh(t.Context(), time.Now()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is %v", err)
	}
	must.Equal(t, store.length, time.Hour/2, "what is read at once")
}

// limited answers range queries up to so many steps, and refuses larger ones.
func limited(steps int, status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		value := func(name string) float64 {
			f, _ := strconv.ParseFloat(r.FormValue(name), 64)
			return f
		}
		labels := `{"namespace":"n","pod":"p","container":"c","image":"i"}`
		switch asked := int((value("end")-value("start"))/60) + 1; {
		case strings.HasSuffix(r.URL.Path, "/query"):
			_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":%s,"value":[1,"1"]}]}}`, labels)
		case asked > steps:
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		default:
			var values []string
			for i := range asked {
				values = append(values, fmt.Sprintf(`[%.0f,"1"]`, value("start")+float64(i*60)))
			}
			_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":%s,"values":[%s]}]}}`, labels, strings.Join(values, ","))
		}
	}
}

// TestRefusals: whoever refuses much at once, and however they say so, all is read once.
func TestRefusals(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"too many samples":  limited(7, 422, `{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory in query execution"}`),
		"too many points":   limited(7, 400, `{"status":"error","errorType":"bad_data","error":"exceeded maximum resolution of 11,000 points per timeseries"}`),
		"too long":          limited(7, 503, `{"status":"error","errorType":"timeout","error":"query timed out in expression evaluation"}`),
		"a proxy's limit":   limited(7, 413, "Request Entity Too Large"),
		"a proxy's timeout": limited(7, 504, "Gateway Time-out"),
	} {
		t.Run(name, func(t *testing.T) {
			store, _ := answering(t, answer, func(o *Options) { o.Window = 7 * time.Hour })
			now := time.Unix(1_800_000_000, 0)
			if err := store.Refresh(t.Context(), now); err != nil || !store.Complete() {
				t.Fatalf("complete: %v, error: %v", store.Complete(), err)
			}
			keys := store.Keys()
			if len(keys) != 1 {
				t.Fatalf("keys: %v", keys)
			}
			window := time.Duration(store.window.to-store.window.from) * time.Second
			must.Equal(t, store.Samples(time.Time{}, keys[0], "memory").Count(), window.Minutes(), "samples in %s", window)
		})
	}
	t.Run("even one", func(t *testing.T) {
		store, _ := answering(t, limited(0, 422, `{"status":"error","errorType":"execution","error":"too many"}`))
		err := store.Refresh(t.Context(), time.Now())
		must.Fails(t, "a read", err, "--query.max-samples")
		must.Fails(t, "a read", err, "too many")
	})
}

// TestLengthen: after a while, more is read at once again, but not more than at first.
func TestLengthen(t *testing.T) {
	store, _ := answering(t, limited(60, 422, ""), func(o *Options) { o.Window = 2 * 24 * time.Hour })
	store.length = time.Minute
	must.Do(t, store.Refresh(t.Context(), time.Now()))
	must.Equal(t, store.length, time.Hour, "what is read at once")
}

func TestOptions(t *testing.T) {
	for want, change := range map[string]func(*Options){
		`"" is not a URL`:                  func(o *Options) { o.URL = "" },
		`"prometheus:9090" is not a URL`:   func(o *Options) { o.URL = "prometheus:9090" },
		`"http://" is not a URL`:           func(o *Options) { o.URL = "http://" },
		"no-such-ca":                       func(o *Options) { o.CAFile = "no-such-ca" },
		`"cluster" is not a matcher`:       func(o *Options) { o.Matchers = []string{"cluster"} },
		`"a=~\"(\"" is not a matcher`:      func(o *Options) { o.Matchers = []string{`a=~"("`} },
		`"a=\"b\"} or b" is not a matcher`: func(o *Options) { o.Matchers = []string{`a="b"} or b`} },
		`"job" is not a matcher`:           func(o *Options) { o.CAdvisor = []string{"job"} },
		`"kubelet" is not a matcher`:       func(o *Options) { o.StateMetrics = []string{"kubelet"} },
		`"rate(x)" is not a name`:          func(o *Options) { o.CPU = "rate(x)" },
		"the resolution is 7m0s":           func(o *Options) { o.Resolution = 7 * time.Minute },
		"the resolution is 0s":             func(o *Options) { o.Resolution = 0 },
		"the range is 30s":                 func(o *Options) { o.Range = 30 * time.Second },
		"positive window (0s)":             func(o *Options) { o.Window = 0 },
	} {
		o := Defaults()
		o.URL = "http://prometheus"
		must.Get(New(o))(t)
		change(&o)
		_, err := New(o)
		must.Fails(t, "options", err, want)
	}
}

// TestMatchers: they come to every metric as Prometheus writes them.
func TestMatchers(t *testing.T) {
	o := Defaults()
	o.URL, o.Namespaces = "http://prometheus", []string{"a", "b.c"}
	o.Matchers = []string{`cluster=eu-1`, `tier!~"a|\"b"`}
	o.CAdvisor, o.StateMetrics = []string{"", "job=node"}, []string{`job="states"`, "tenant=us"}
	r := must.Get(newReader(o))(t)
	const node, states = `,job="node"`, `,job="states",tenant="us"`
	for expression, source := range map[string]string{
		r.runners(time.Hour, r.narrow): states, r.cpu(r.narrow): node, r.memory(r.narrow): node, r.kills(r.narrow): states,
	} {
		metrics := strings.Count(expression, "{")
		if n := strings.Count(expression, `{cluster="eu-1",tier!~"a|\"b"`+source); n != metrics || n == 0 {
			t.Errorf("%d of %d have the matchers: %s", n, metrics, expression)
		}
		must.Equal(t, strings.Count(expression, `,namespace=~"a|b\\.c"`), metrics, "metrics that have the namespaces in %s", expression)
	}
}

func TestImageOf(t *testing.T) {
	for _, c := range []struct {
		metric model.Metric
		want   string
	}{
		{model.Metric{"image": "docker.io/library/nginx:1.25"}, "docker.io/library/nginx:1.25"},
		{model.Metric{"image": "sha256:0123", "image_spec": "nginx"}, "docker.io/library/nginx:latest"},
		{model.Metric{"image": "sha256:0123"}, ""},
		{model.Metric{"image": ""}, ""},
		{model.Metric{}, ""},
	} {
		image, ok := imageOf(c.metric)
		if ok != (c.want != "") || ok && image.String() != c.want {
			t.Errorf("%v: %v, %v; want %q", c.metric, image, ok, c.want)
		}
	}
}

// patchy answers as limited does, but not about a time in which it does so in its own way.
func patchy(dead *span, asked *int, unable http.HandlerFunc) http.HandlerFunc {
	able := limited(24*60, 0, "")
	return func(w http.ResponseWriter, r *http.Request) {
		at := func(name string) int64 {
			f, _ := strconv.ParseFloat(r.FormValue(name), 64)
			return int64(f)
		}
		from, to := at("time")-3600, at("time")
		if strings.HasSuffix(r.URL.Path, "/query_range") {
			from, to = at("start"), at("end")
		}
		if from < dead.to && to > dead.from {
			*asked++
			unable(w, r)
			return
		}
		able(w, r)
	}
}

// TestUnreadable: what cannot be read of some time keeps nothing else from being read, whatever the
// reason. It is tried again, one piece at each refresh, and read once it can be.
func TestUnreadable(t *testing.T) {
	const now = 1_800_000_000
	for name, unable := range map[string]http.HandlerFunc{
		"a dead store":    saying(200, `{"status":"success","data":{"resultType":"vector","result":[]},"warnings":["store 10.0.0.1 is not there"]}`),
		"a broken block":  saying(500, "no such chunk"),
		"a failing query": saying(422, `{"status":"error","errorType":"execution","error":"expanding series: no such chunk"}`),
	} {
		t.Run(name, func(t *testing.T) {
			dead, asked := span{now - 20*3600 + 60, now - 15*3600 - 60}, 0
			store, _ := answering(t, patchy(&dead, &asked, unable), func(o *Options) { o.Window = 30 * time.Hour })
			window := func() float64 { return float64(store.window.to-store.window.from) / 60 }
			read := func() float64 {
				var all float64
				for _, key := range store.Keys() {
					all += store.Samples(time.Time{}, key, "memory").Count()
				}
				return all
			}
			err := store.Refresh(t.Context(), time.Unix(now, 0))
			must.Fails(t, "a read", err, "of history are missing, as of 20")
			if missing := store.Missing(); store.Complete() || !store.Tried() || missing < 5*time.Hour || missing > 7*time.Hour {
				t.Errorf("complete: %v, tried: %v, missing: %s", store.Complete(), store.Tried(), missing)
			}
			must.Equal(t, read(), window()-store.Missing().Minutes(), "samples of what is not missing")
			tried := []int64{}
			for i := range 7 { // each piece has its turn
				asked = 0
				err := store.Refresh(t.Context(), time.Unix(now+int64(i)*60, 0))
				if err == nil || !store.Tried() || asked == 0 || asked > 10 {
					t.Errorf("again: %v, tried: %v, asked %d times", err, store.Tried(), asked)
				}
				tried = append(tried, store.retried)
			}
			if slices.Sort(tried); len(slices.Compact(tried)) < 5 {
				t.Errorf("tried again are those before %v", tried)
			}
			dead = span{}
			if err := store.Refresh(t.Context(), time.Unix(now+3600, 0)); err != nil || !store.Complete() || !store.Tried() || store.Missing() != 0 || store.failed != nil {
				t.Errorf("with all there: %v, complete: %v, missing: %s, failed: %v", err, store.Complete(), store.Missing(), store.failed)
			}
			must.Equal(t, read(), window(), "samples")
			// A day later, what is older than the window is forgotten, and where it was all, so is the image.
			if err := store.Refresh(t.Context(), time.Unix(now+24*3600, 0)); err != nil || read() != window() {
				t.Errorf("a day later: %v, %v samples of %v", err, read(), window())
			}
			if store.forget(span{now + 72*3600, now + 73*3600}); len(store.Keys()) > 0 {
				t.Errorf("days later it knows %v", store.Keys())
			}
		})
	}
}

// TestUnreadableNow: without the newest nothing is tried; and of much that fails, little at once.
func TestUnreadableNow(t *testing.T) {
	const now = 1_800_000_000
	dead, asked := span{now - 600, now}, 0
	store, _ := answering(t, patchy(&dead, &asked, saying(500, "oh")), func(o *Options) { o.Window = 30 * time.Hour })
	if err := store.Refresh(t.Context(), time.Unix(now, 0)); err == nil || store.Tried() || asked != 1 || !store.Until().IsZero() {
		t.Errorf("without the newest: %v, tried: %v, asked %d times, until %s", err, store.Tried(), asked, store.Until())
	}
	dead, asked = span{0, now - 3*3600}, 0
	if err := store.Refresh(t.Context(), time.Unix(now, 0)); err == nil || store.Tried() || asked != mostFailures {
		t.Errorf("without most: %v, tried: %v, asked %d times", err, store.Tried(), asked)
	}
	for range 4 {
		_ = store.Refresh(t.Context(), time.Unix(now, 0))
	}
	if !store.Tried() {
		t.Error("not all is tried after a while")
	}
}
