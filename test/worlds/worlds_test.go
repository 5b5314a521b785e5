//go:build around

package main

import (
	"os"
	"strings"
	"testing"
)

// TestWorlds plays a few random worlds; `make soak` plays many. It alone has faults and edits that nobody
// has thought of beside each other.
func TestWorlds(t *testing.T) {
	if err := soak(t.Context(), options{seed: 11, worlds: 20, atOnce: 10, out: os.Stdout}); err != nil {
		t.Fatal(err)
	}
}

// TestTrouble: the rounds of a soak have each kind of trouble, and it is shown.
func TestTrouble(t *testing.T) {
	o, said := options{atOnce: 10, restarts: true}, ""
	for seed := uint64(1); seed < 300; seed += 10 {
		said += o.trouble(seed).String() + "\n"
	}
	for _, what := range []string{"10 % of", "30 % of", "2 controllers", "etcd", "the heartbeat comes and goes", "all controllers are killed", "others start later", "all policies are deleted"} {
		if n := strings.Count(said, what); n < 3 || n > 30 {
			t.Errorf("%q is said %d times, in\n%s", what, n, said)
		}
	}
	o.calm = true
	if got := o.trouble(1).String(); got != "nothing" {
		t.Errorf("without faults, there is: %s", got)
	}
}

// TestWorldOfASeed: a seed always makes the same world.
func TestWorldOfASeed(t *testing.T) {
	for seed := range uint64(100) {
		if first, again := newWorld(seed), newWorld(seed); first.String() != again.String() {
			t.Errorf("world %d is not the same again", seed)
		}
	}
}
