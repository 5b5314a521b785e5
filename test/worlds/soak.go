package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// options of a soak.
type options struct {
	seed           uint64
	worlds, atOnce int
	calm, restarts bool
	flaps          bool // in each round
	absences       bool // in each round
	bin            string
	out            io.Writer
}

// soak plays worlds, round after round, and fails if a promise was broken in any.
func soak(ctx context.Context, o options) error {
	a, err := newArena(ctx, o.bin, o.out)
	if err != nil {
		return err
	}
	failed, err := a.soak(ctx, o)
	for _, what := range slices.Sorted(maps.Keys(a.tally)) {
		_, _ = fmt.Fprintf(o.out, "%7d %s\n", a.tally[what], what)
	}
	if err == nil && failed > 0 {
		err = fmt.Errorf("promises were broken in %d of %d worlds", failed, o.worlds)
	}
	if err != nil {
		a.cp.KeepLogs()
	}
	return errors.Join(err, a.close())
}

// soak plays all worlds, and returns in how many a promise was broken.
func (a *arena) soak(ctx context.Context, o options) (failed int, err error) {
	begun := time.Now()
	for done := 0; done < o.worlds; {
		var worlds []World
		for range min(o.atOnce, o.worlds-done) {
			worlds = append(worlds, newWorld(o.seed+uint64(done)))
			done++
		}
		outcomes, err := a.round(ctx, worlds, o.trouble(worlds[0].Seed))
		if err != nil {
			return failed, err
		}
		for _, one := range outcomes {
			if one.err != nil {
				return failed, fmt.Errorf("playing world %d: %w", one.Seed, one.err)
			}
			if len(one.violations) > 0 {
				failed++
				a.tell(o.out, one)
			}
		}
		_, _ = fmt.Fprintf(o.out, "%d of %d worlds, %d failed, %s\n", done, o.worlds, failed, time.Since(begun).Round(time.Second))
	}
	return failed, nil
}

// trouble of the round whose first world has that seed.
func (o options) trouble(seed uint64) trouble {
	t := trouble{seed: seed, replicas: 1}
	if o.calm {
		return t
	}
	t.blows, t.restarts = true, o.restarts
	round := seed / uint64(o.atOnce)
	t.rate = []float64{0.05, 0.1, 0.2}[round%3]
	t.watchRate = []float64{0.3, 0.6}[round%2]
	t.flaps = o.flaps || round%4 == 3
	t.absences = o.absences || round%4 == 2
	if round%5 == 4 || t.absences && round%8 == 2 {
		t.replicas = 2
	}
	return t
}

// String says in words what happens.
func (t trouble) String() string {
	if !t.blows {
		return "nothing"
	}
	all := []string{
		fmt.Sprintf("%g %% of the controller's requests fail, and %g %% of its watches", 100*t.rate, 100*t.watchRate),
		"controllers are killed and paused", "the built-in ones are paused",
	}
	if t.replicas > 1 {
		all[1] = fmt.Sprintf("%d controllers, of which one leads, are killed and paused", t.replicas)
	}
	if t.restarts {
		all = append(all, "the API server and etcd are killed and started again")
	}
	if t.flaps {
		all = append(all, "the heartbeat comes and goes")
	}
	if t.absences {
		all = append(all, "all controllers are killed and come back later, when their heartbeat is out of date",
			"all controllers end and others start later", "all policies are deleted and applied again later")
	}
	return strings.Join(all, "; ")
}

// tell prints at once what was broken in a world: the rest of the soak may never end.
func (a *arena) tell(out io.Writer, one outcome) {
	_, _ = fmt.Fprintf(out, "\nworld %d (%s):\n", one.Seed, filepath.Join(a.cp.Dir(), one.namespace+".yaml"))
	for _, v := range one.violations {
		_, _ = fmt.Fprintf(out, "  %s\n", v)
	}
}

// tally is how often what has happened.
type tally map[string]int
