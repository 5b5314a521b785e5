package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"
)

// options of a soak.
type options struct {
	seed           uint64
	worlds, atOnce int
	given          []World // instead of those of seeds
	calm, restarts bool
	flaps          bool // in each round
	absences       bool // in each round
	shrink         time.Duration
	bin            string
	out            io.Writer
}

// soak plays worlds, round after round, and fails if a promise was broken in any.
func soak(ctx context.Context, o options) error {
	begun := time.Now()
	a, err := newArena(ctx, o.bin, o.out)
	if err != nil {
		return err
	}
	failed, err := a.soak(ctx, o)
	a.tally.print(o.out, time.Since(begun))
	if err == nil && len(failed) > 0 {
		err = fmt.Errorf("promises were broken in %d of %d worlds", len(failed), a.tally.worlds)
		a.report(ctx, o, failed)
	}
	if err != nil {
		a.cp.KeepLogs()
	}
	return errors.Join(err, a.close())
}

// soak plays all worlds, and returns those in which a promise was broken.
func (a *arena) soak(ctx context.Context, o options) (failed []outcome, err error) {
	worlds := o.given
	for i := range o.worlds {
		if o.given == nil {
			worlds = append(worlds, newWorld(o.seed+uint64(i)))
		}
	}
	bar := newBar(o.out, len(worlds))
	for chunk := range slices.Chunk(worlds, o.atOnce) {
		outcomes, err := a.round(ctx, chunk, o.trouble(chunk[0].Seed))
		if err != nil {
			return failed, err
		}
		for _, one := range outcomes {
			if one.err != nil {
				return failed, fmt.Errorf("playing world %d: %w", one.Seed, one.err)
			}
			if len(one.violations) > 0 {
				failed = append(failed, one)
				a.tally.violations += len(one.violations)
				a.tell(o.out, one)
			}
		}
		bar.advance(len(chunk), len(failed))
	}
	bar.end()
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

// report prints the smallest world in which a promise is broken that was broken in one of these.
func (a *arena) report(ctx context.Context, o options, failed []outcome) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(o.out, format, args...) }
	if o.shrink == 0 {
		return
	}
	say("\nmaking world %d smaller …\n", failed[0].Seed)
	smallest := a.smaller(ctx, o, failed[0])
	file := filepath.Join(a.cp.Dir(), fmt.Sprintf("smallest-%d.yaml", smallest.Seed))
	text := smallest.String()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		say("%v\n", err)
	}
	say("%s", text)
	for _, v := range smallest.violations {
		say("# %s\n", v)
	}
	say("# go run ./test/worlds run --seed %d\n# go run ./test/worlds run --world %s\n", smallest.Seed, file)
}

// bar shows on a terminal how far a soak is; elsewhere it says so line by line.
type bar struct {
	out       io.Writer
	live      bool
	done, all int
	begun     time.Time
}

func newBar(out io.Writer, all int) *bar {
	file, is := out.(*os.File)
	return &bar{out: out, all: all, live: is && term.IsTerminal(int(file.Fd())), begun: time.Now()}
}

func (b *bar) advance(n, failed int) {
	b.done += n
	const width = 40
	text := fmt.Sprintf("%d of %d worlds, %d failed, %s", b.done, b.all, failed, time.Since(b.begun).Round(time.Second))
	if !b.live {
		_, _ = fmt.Fprintln(b.out, text)
		return
	}
	full := width * b.done / b.all
	_, _ = fmt.Fprintf(b.out, "\r[%s%s] %s\x1b[K", strings.Repeat("█", full), strings.Repeat(" ", width-full), text)
}

func (b *bar) end() {
	if b.live {
		_, _ = fmt.Fprintln(b.out)
	}
}
