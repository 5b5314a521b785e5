package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// result is what became of a cell's tests. Of a test with parts, the parts count.
type result struct {
	kubernetes, kubelet     string
	passed, skipped, failed int
}

// event is a line of `go test -json`.
type event struct{ Action, Test, Output string }

// read counts the tests, and prints what those say that did not pass.
func read(events io.Reader, log io.Writer) (result, error) {
	ended, said := map[string]string{}, map[string]*strings.Builder{}
	for decoder := json.NewDecoder(events); ; {
		var e event
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return result{}, fmt.Errorf("reading what the tests say: %w", err)
		}
		switch e.Action {
		case "output":
			if said[e.Test] == nil {
				said[e.Test] = &strings.Builder{}
			}
			said[e.Test].WriteString(e.Output)
		case "pass":
			ended[e.Test] = e.Action
			delete(said, e.Test)
		case "fail", "skip":
			ended[e.Test] = e.Action
			if said[e.Test] != nil {
				_, _ = io.WriteString(log, said[e.Test].String())
			}
		}
	}
	return count(ended), nil
}

// count counts the tests that have no parts. The package is the test without a name.
func count(ended map[string]string) result {
	var r result
	names := make([]string, 0, len(ended))
	for name := range ended {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		hasParts := slices.ContainsFunc(names[i+1:], func(other string) bool { return strings.HasPrefix(other, name+"/") })
		if name == "" || hasParts {
			continue
		}
		switch ended[name] {
		case "pass":
			r.passed++
		case "skip":
			r.skipped++
		default:
			r.failed++
		}
	}
	return r
}
