//go:build integration

package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
)

// TestWorlds plays a few random worlds; `make soak` plays many. It alone has faults and edits that nobody
// has thought of beside each other.
func TestWorlds(t *testing.T) {
	if err := soak(t.Context(), options{seed: 11, worlds: 20, atOnce: 10, shrink: time.Minute, out: os.Stdout}); err != nil {
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

// TestWorldIsAValue: a seed always makes the same world, which can be written down and read again.
func TestWorldIsAValue(t *testing.T) {
	for seed := range uint64(100) {
		w := newWorld(seed)
		file := t.TempDir() + "/world.yaml"
		if err := os.WriteFile(file, []byte(w.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := readWorld(file)
		if err != nil {
			t.Fatal(err)
		}
		if !equality.Semantic.DeepEqual(newWorld(seed), w) || again.String() != w.String() {
			t.Errorf("world %d is not the same again", seed)
		}
		for _, less := range w.smaller() {
			if less.size() >= w.size() {
				t.Errorf("world %d was to become smaller than %d, and has %d", seed, w.size(), less.size())
			}
		}
	}
}
