//go:build around

package main

import (
	"os"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestWorlds plays a few random worlds; `make soak` plays many. It alone has faults and edits that nobody
// has thought of beside each other.
func TestWorlds(t *testing.T) {
	must.Do(t, soak(t.Context(), options{seed: 11, worlds: 20, atOnce: 10, out: os.Stdout}))
}

// TestWorldOfASeed: a seed always makes the same world.
func TestWorldOfASeed(t *testing.T) {
	for seed := range uint64(100) {
		if first, again := newWorld(seed), newWorld(seed); first.String() != again.String() {
			t.Errorf("world %d is not the same again", seed)
		}
	}
}
