package history

import (
	"bufio"
	"fmt"
	"net/http"
	"reflect"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// end of what is read here.
const end = 1_800_000_000

// busy answers as a server does where so many containers run, two in each pod, and none is killed.
// It holds nothing of that. Asked is told of each range query.
func busy(containers int, asked func(query string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		query, kind := r.Form.Get("query"), "vector"
		first, _ := strconv.ParseInt(r.Form.Get("start"), 10, 64) // there are none in other queries
		last, _ := strconv.ParseInt(r.Form.Get("end"), 10, 64)
		if ranged := last > 0; ranged {
			kind = "matrix"
			asked(query)
		}
		if strings.Contains(query, "OOMKilled") {
			containers = 0
		}
		out := bufio.NewWriter(w)
		defer func() { _ = out.Flush() }() // whoever asked may have gone
		_, _ = fmt.Fprintf(out, `{"status":"success","data":{"resultType":%q,"result":[`, kind)
		comma := ""
		for i := range containers {
			pod := i / 2
			_, _ = fmt.Fprintf(out, `%s{"metric":{"namespace":"team-%d","pod":"app-%d-7d9c6b5f4-x2v%d","container":"c%d"`, comma, pod%500, pod%1000, pod, i%2)
			if comma = ","; kind == "vector" {
				_, _ = fmt.Fprintf(out, `,"image_spec":"registry.example/team/app-%d:1.%d"},"value":[0,"1"]}`, pod%1000, i%2)
				continue
			}
			_, _ = fmt.Fprint(out, `},"values":[`)
			for at := first; at <= last; at += 60 {
				_, _ = fmt.Fprintf(out, `%s[%d,"0.0%d%d"]`, comma[:min(int(at-first), 1)], at, i%1000, at%3600)
			}
			_, _ = fmt.Fprint(out, `]}`)
		}
		_, _ = fmt.Fprint(out, `]}}`)
	}
}

// TestParts asks for little at once where there are many containers, and finds the same.
func TestParts(t *testing.T) {
	var found [2]map[bin][3]float64
	for i, samples := range []int{samplesAtOnce, 3 * 7} {
		asked := map[string]int{}
		store, _ := answering(t, busy(3, func(query string) { asked[query]++ }))
		store.samples = samples
		harvest := must.Get(store.reader.read(t.Context(), span{end - 3600, end}, true))(t)
		want := []int{1, 9}[i] // 60 samples of each container, seven at once
		for query, times := range asked {
			must.Equal(t, times, want, "how often it has asked %s", query)
		}
		must.Equal(t, len(asked), 3, "questions %v", asked)
		found[i] = map[bin][3]float64{}
		for of, g := range harvest {
			found[i][of] = [3]float64{g.cpu.GetCount(), g.memory.GetCount(), g.memory.GetSum()}
			must.Equal(t, g.cpu.GetCount(), 60, "samples of %v", of)
		}
	}
	if len(found[0]) != 3 || !reflect.DeepEqual(found[0], found[1]) {
		t.Errorf("in parts it finds %v, at once %v", found[1], found[0])
	}
}

// BenchmarkMemory says how much memory it takes at most to read an hour of 50,000 pods with two
// containers each: what was in use when garbage had been collected, with the estimator's settings.
func BenchmarkMemory(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	store, _ := answering(b, busy(100_000, func(string) {}))
	most, done, sampled := uint64(0), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sampled)
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		for {
			metrics.Read(live)
			most = max(most, live[0].Value.Uint64())
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	for range b.N {
		found := must.Get(store.reader.read(b.Context(), span{end - 3600, end}, true))(b)
		runtime.KeepAlive(found)
	}
	close(done)
	<-sampled
	b.ReportMetric(float64(most)/(1<<20), "MiB-at-most")
}
