package main

import (
	"strings"
	"testing"
)

// TestRead counts parts in place of their test, and a part that was skipped as no pass. Tests of two
// packages may have the same name.
func TestRead(t *testing.T) {
	const events = `{"Action":"start"}
{"Action":"pass","Package":"other","Test":"TestA"}
{"Action":"pass","Package":"other"}
{"Action":"output","Test":"TestA","Output":"fine\n"}
{"Action":"pass","Test":"TestA"}
{"Action":"pass","Test":"TestAB"}
{"Action":"output","Test":"TestB/one","Output":"not applicable\n"}
{"Action":"skip","Test":"TestB/one"}
{"Action":"pass","Test":"TestB/two"}
{"Action":"pass","Test":"TestB"}
{"Action":"output","Test":"TestC/one","Output":"it is broken\n"}
{"Action":"fail","Test":"TestC/one"}
{"Action":"fail","Test":"TestC"}
{"Action":"output","Output":"exit status 1\n"}
{"Action":"fail"}
`
	var log strings.Builder
	got, err := read(strings.NewReader(events), &log)
	if err != nil {
		t.Fatal(err)
	}
	if want := (result{passed: 4, skipped: 1, failed: 1}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	if want := "not applicable\nit is broken\nexit status 1\n"; log.String() != want {
		t.Errorf("printed %q, want %q", log.String(), want)
	}
}

// TestFill keeps the rows of cells that were not run, and knows those that never were.
func TestFill(t *testing.T) {
	first, second := cells[0], cells[1]
	table := fill("", first, result{kubernetes: "1.37.1", kubelet: "simulated", passed: 7})
	table = fill(table, second, result{kubernetes: "1.37.1", kubelet: "simulated", passed: 5, skipped: 1, failed: 2})
	lines := strings.Split(strings.TrimSpace(table), "\n")
	if len(lines) != len(cells)+2 {
		t.Fatalf("the table has not one row for each cell:\n%s", table)
	}
	for i, want := range []string{
		"| `" + first.name() + "` | 1.37.1 | simulated | 7 | 0 | 0 |",
		"| `" + second.name() + "` | 1.37.1 | simulated | 5 | 1 | 2 |",
		"| `" + cells[2].name() + "` | " + cells[2].version + " | simulated | not run | | |",
	} {
		if lines[i+2] != want {
			t.Errorf("row %d is %q, want %q", i, lines[i+2], want)
		}
	}
}
