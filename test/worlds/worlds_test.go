//go:build around

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestWorlds plays a few random worlds; `make soak` plays many. It alone has faults and edits that nobody
// has thought of beside each other.
func TestWorlds(t *testing.T) {
	must.Do(t, soak(t.Context(), options{seed: 11, worlds: 20, atOnce: 10, out: os.Stdout}))
}

// TestWorldOfASeed: a seed always makes the same world, and some have canaries.
func TestWorldOfASeed(t *testing.T) {
	canaries := false
	for seed := range uint64(100) {
		first, again := newWorld(seed), newWorld(seed)
		must.Equal(t, first.String(), again.String(), "world %d, once more", seed)
		canaries = canaries || strings.Contains(first.String(), api.CanaryAnnotation+": ")
	}
	if !canaries {
		t.Error("there is no canary")
	}
}
