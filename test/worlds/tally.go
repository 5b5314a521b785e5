package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// tally is what has happened, in numbers.
type tally struct {
	worlds, violations           int
	edits, refused, helped       map[string]int
	faults, restarts, absences   map[string]int
	kills, pauses, slowed, flaps int
	resized                      int // pods
}

func newTally() tally {
	return tally{edits: map[string]int{}, refused: map[string]int{}, helped: map[string]int{}, faults: map[string]int{}, restarts: map[string]int{}, absences: map[string]int{}}
}

// add adds what was counted in one world.
func (t *tally) add(other tally) {
	t.worlds++
	for _, pair := range [][2]map[string]int{{t.edits, other.edits}, {t.refused, other.refused}, {t.helped, other.helped}} {
		for key, n := range pair[1] {
			pair[0][key] += n
		}
	}
	t.resized += other.resized
}

// print writes the summary.
func (t *tally) print(w io.Writer, took time.Duration) {
	line := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(w, "%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("worlds", "%d", t.worlds)
	line("edits", "%d (%s)", sum(t.edits), listed(t.edits))
	line("refused", "%d of them (%s)", sum(t.refused), listed(t.refused))
	line("faults", "%d (%s)", sum(t.faults), listed(t.faults))
	line("controllers", "killed %d times, paused %d times; the built-in ones paused %d times", t.kills, t.pauses, t.slowed)
	line("heartbeat", "taken away or brought back %d times", t.flaps)
	line("absences", "%d (%s)", sum(t.absences), listed(t.absences))
	line("restarts", "%d (%s)", sum(t.restarts), listed(t.restarts))
	line("helped", "%d that waited for people (%s)", sum(t.helped), listed(t.helped))
	line("pods", "%d resized", t.resized)
	line("violations", "%d", t.violations)
	line("took", "%s", took.Round(time.Second))
}

func sum(counts map[string]int) int {
	total := 0
	for _, n := range counts {
		total += n
	}
	return total
}

func listed(counts map[string]int) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%s %d", key, counts[key]))
	}
	return strings.Join(all, ", ")
}
