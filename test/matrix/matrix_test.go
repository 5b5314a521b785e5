package main

import (
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/matrix/cell"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/tally"
)

// TestFill keeps the rows of cells that were not run, and knows those that never were.
func TestFill(t *testing.T) {
	first, second := cell.All[0], cell.All[1]
	table := fill("", first, result{kubernetes: "1.37.1", kubelet: "simulated", Tests: tally.Tests{Passed: 7}})
	table = fill(table, second, result{kubernetes: "1.37.1", kubelet: "simulated", Tests: tally.Tests{Passed: 5, Skipped: 1, Failed: 2}})
	lines := strings.Split(strings.TrimSpace(table), "\n")
	if len(lines) != len(cell.All)+2 {
		t.Fatalf("the table has not one row for each cell:\n%s", table)
	}
	for i, want := range []string{
		"| `" + first.Name() + "` | 1.37.1 | simulated | 7 | 0 | 0 |",
		"| `" + second.Name() + "` | 1.37.1 | simulated | 5 | 1 | 2 |",
		"| `" + cell.All[2].Name() + "` | " + cell.All[2].Version + " | simulated | not run | | |",
	} {
		must.Equal(t, lines[i+2], want, "row %d", i)
	}
}
