// Package tally counts tests by what `go test -v` prints.
package tally

import (
	"regexp"
	"strings"
)

// Tests is how many tests have passed, were skipped and have failed, those within tests too.
type Tests struct {
	Passed, Skipped, Failed int

	rest string // of the last line
}

var ended = regexp.MustCompile(`^\s*--- (PASS|SKIP|FAIL): `)

// Write takes in what is printed, wherever it is cut.
func (t *Tests) Write(p []byte) (int, error) {
	lines := strings.Split(t.rest+string(p), "\n")
	t.rest = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		if m := ended.FindStringSubmatch(line); m != nil {
			*map[string]*int{"PASS": &t.Passed, "SKIP": &t.Skipped, "FAIL": &t.Failed}[m[1]]++
		}
	}
	return len(p), nil
}
