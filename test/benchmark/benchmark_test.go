//go:build around

package main

import (
	"path/filepath"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/measure"
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
	if err != nil {
		t.Fatal(err)
	}
	all, err := load(file)
	if err != nil || len(all.Rollouts) != 9 {
		t.Fatalf("%d results, want one of each shape and way: %v", len(all.Rollouts), err)
	}
	for _, r := range all.Rollouts {
		s, err := parseShape(r.Shape)
		if err != nil {
			t.Fatal(err)
		}
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
		if r.Way == inPlace && (r.ComingUp == nil || *r.ComingUp > 0) {
			t.Errorf("%s: writes were refused while the workloads came up, or nobody has looked: %v", r.Shape, r.ComingUp)
		}
		if r.CPU[r.carrier()] <= 0 || r.CPU[apiServer] <= 0 || r.Wall <= 0 || r.Busy <= 0 || r.Busy > 1 {
			t.Errorf("%s, %s: took nothing: %+v", r.Shape, r.Way, r)
		}
		// The floor program may see an edit before that is answered.
		if r.Way != builtIn && (r.Wall < r.Floor || r.PeakRSS < 10<<20 || r.Read < uint64(s.all())<<10 || r.Way == inPlace && r.First.P99 <= 0 || r.Complete.P99 <= 0) {
			t.Errorf("%s: faster than possible, or from nothing: %+v", r.Shape, r)
		}
	}
}

// TestFairness measures small rollouts beside one that is larger.
func TestFairness(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "benchmark.json")
	err := run(t.Context(), []string{
		"fairness", "--bin", "../../bin/k8s", "--controller", "../../bin/inplace-rollout", "--resize", "150ms", "--rounds", "1",
		"--large", "statefulset:1x60:5", "--small", "statefulset:5x2", "--json", file,
	})
	if err != nil {
		t.Fatal(err)
	}
	all, err := load(file)
	if err != nil || len(all.Fairness) != 1 {
		t.Fatalf("%d results, want one: %v", len(all.Fairness), err)
	}
	// Two pods, one after the other, take the kubelets 300 ms.
	if r := all.Fairness[0]; r.Alone.P50 < 0.3 || r.Beside.P50 < 0.3 || r.LargeTook < r.Beside.P99 || r.LargeAlone < 12*0.15 {
		t.Errorf("faster than possible: %+v", r)
	}
}

// TestScale measures a few idle workloads, and some of them at once.
func TestScale(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "benchmark.json")
	err := run(t.Context(), []string{
		"scale", "--bin", "../../bin/k8s", "--controller", "../../bin/inplace-rollout", "--resize", "150ms", "--idle", "2s",
		"--workloads", "10", "--others", "5", "--rollouts", "4", "--pods", "2", "--json", file,
	})
	if err != nil {
		t.Fatal(err)
	}
	all, err := load(file)
	if err != nil || all.Scale == nil {
		t.Fatalf("measured nothing: %v", err)
	}
	if s := all.Scale; s.Workloads != 10 || s.Others != 5 || s.Rollouts != 4 || s.Pods != 2 || s.Writes != 0 || s.Idle.RSS < 10<<20 || s.Concurrent.RSS < 10<<20 {
		t.Errorf("measured %+v", *s)
	}
}

// TestWatches measures a few watches, and one of all pods. It runs alone, because it measures this process.
func TestWatches(t *testing.T) {
	file := filepath.Join(t.TempDir(), "benchmark.json")
	err := run(t.Context(), []string{"watches", "--bin", "../../bin/k8s", "--controller", "../../bin/inplace-rollout", "--workloads", "3", "--pods", "2", "--json", file})
	if err != nil {
		t.Fatal(err)
	}
	all, err := load(file)
	if err != nil || len(all.Watches) < 3 {
		t.Fatalf("measured %+v: %v", all.Watches, err)
	}
	none, one := all.Watches[0], all.Watches[len(all.Watches)-1]
	if none.Watches != 0 || one.Watches != 1 || one.Pods != 6 || one.Goroutines <= none.Goroutines || one.Memory == 0 {
		t.Errorf("measured %+v, the last of all pods", all.Watches)
	}
}

// TestTables weighs a tenth of the ConfigMaps. Those that have nothing to do with the policy are cached for it if it takes ConfigMaps.
func TestTables(t *testing.T) {
	t.Parallel()
	w, err := admissionOptions{bin: "../../bin/k8s", policy: "../../deploy/initial-resources/estimate-pods.yaml"}.weigh(t.Context(), 200, 100<<10)
	if err != nil {
		t.Fatal(err)
	}
	own, configMaps := mib(w.ownKind)-mib(w.without), mib(w.configMaps)-mib(w.without)
	t.Logf("%+.0f MiB for a kind of our own, %+.0f MiB for ConfigMaps", own, configMaps)
	if own > 10 || configMaps < own+15 || configMaps > 40 { // 20 MiB of ConfigMaps
		t.Errorf("%+.0f MiB for a kind of our own, %+.0f MiB for ConfigMaps", own, configMaps)
	}
}

// TestAdmission measures a few pods in each way.
func TestAdmission(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "benchmark.json")
	err := run(t.Context(), []string{
		"initial-resources", "--bin", "../../bin/k8s", "--policy", "../../deploy/initial-resources/estimate-pods.yaml", "--rounds", "1", "--pods", "3", "--containers", "2", "--json", file,
	})
	if err != nil {
		t.Fatal(err)
	}
	all, err := load(file)
	if err != nil || len(all.Admission) < 5 {
		t.Fatalf("measured %+v: %v", all.Admission, err)
	}
	for _, r := range all.Admission {
		if r.P50 <= 0 || r.P99 < r.P50 || r.Admission <= 0 {
			t.Errorf("faster than possible: %+v", r)
		}
	}
}
