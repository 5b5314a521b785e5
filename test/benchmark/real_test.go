//go:build e2e

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/realnode"
)

// TestReal measures two pods of a real node, once each way.
func TestReal(t *testing.T) {
	if missing := realnode.Missing(); missing != "" {
		if os.Getenv("E2E") == "required" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	file := filepath.Join(t.TempDir(), "benchmark.json")
	if err := run(t.Context(), []string{"real", "--bin", "../../bin/k8s", "--shape", "statefulset:1x2", "--rounds", "1", "--json", file}); err != nil {
		t.Fatal(err)
	}
	all, err := load(file)
	if err != nil || len(all.Real) != 2 {
		t.Fatalf("%d results, want one of each way: %v", len(all.Real), err)
	}
	if r := all.Real[0]; r.Replaced != 0 || r.LeastReady != 2 || r.Short != 0 || r.Kubelet.P50 <= 0 {
		t.Errorf("in place: %+v", r)
	}
	// Two pods, one after the other, take five seconds each to become ready.
	if r := all.Real[1]; r.Replaced != 2 || r.LeastReady != 1 || r.Short < 10 || r.Wall < r.Short {
		t.Errorf("built in: %+v", r)
	}
}
