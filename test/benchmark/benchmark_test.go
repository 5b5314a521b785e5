//go:build around

package main

import (
	"path/filepath"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/measure"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestRollouts measures three small shapes, once each way. It alone proves what `make bench` measures: each shape has
// a cluster of its own.
func TestRollouts(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "benchmark.json")
	err := run(t.Context(), []string{
		"rollouts", "--bin", "../../bin/k8s", "--controller", "../../bin/inplace-rollout", "--resize", "150ms", "--rounds", "1",
		"--shapes", "statefulset:2x3,deployment:1x4,daemonset:1x4:2", "--json", file,
	})
	must.Do(t, err)
	all, err := load(file)
	if err != nil || len(all.Rollouts) != 9 {
		t.Fatalf("%d results, want one of each shape and way: %v", len(all.Rollouts), err)
	}
	for _, r := range all.Rollouts {
		s := must.Get(parseShape(r.Shape))(t)
		resizes := r.written(func(w measure.Write) bool { return r.carries(w) && w.Resource == "pods/resize" })
		restarts := r.written(func(w measure.Write) bool { return r.carries(w) && w.Resource == "pods" && w.Verb == "delete" })
		want := [3]int{0, s.all(), s.all()} // replaced, Ready, resized
		if r.Way == builtIn {
			want = [3]int{s.all(), r.LeastReady, 0}
		}
		if got := [3]int{r.Replaced, r.LeastReady, int(resizes)}; got != want {
			t.Errorf("%s, %s: %d pods replaced, at least %d Ready, %d resized; want %d", r.Shape, r.Way, got[0], got[1], got[2], want)
		}
		if int(restarts) < r.Replaced {
			t.Errorf("%s, %s: %d pods replaced, but only %v deleted", r.Shape, r.Way, r.Replaced, restarts)
		}
		if labels := r.written(func(w measure.Write) bool { return r.carries(w) && w.Resource == "pods" && w.Verb == "patch" }); r.Way == floored && (r.Conflicts+r.Refusals > 0 || s.kind != "Deployment" && int(labels) != s.all()) {
			t.Errorf("%s: the floor program has labelled %v of %d pods, with %d conflicts and %d refusals", r.Shape, labels, s.all(), r.Conflicts, r.Refusals)
		}
		if r.CPU[r.carrier()] <= 0 || r.CPU[apiServer] <= 0 || r.Wall <= 0 {
			t.Errorf("%s, %s: took nothing: %+v", r.Shape, r.Way, r)
		}
		// The floor program may see an edit before that is answered.
		if r.Way != builtIn && (r.Wall < 0.15 || r.PeakRSS < 10<<20 || r.Way == inPlace && r.First.P99 <= 0) {
			t.Errorf("%s: faster than possible, or from nothing: %+v", r.Shape, r)
		}
	}
}
