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
type event struct{ Action, Package, Test, Output string }

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
		test := e.Package + " " + e.Test
		switch e.Action {
		case "output":
			if said[test] == nil {
				said[test] = &strings.Builder{}
			}
			said[test].WriteString(e.Output)
		case "pass":
			ended[test] = e.Action
			delete(said, test)
		case "fail", "skip":
			ended[test] = e.Action
			if said[test] != nil {
				_, _ = io.WriteString(log, said[test].String())
			}
		}
	}
	return count(ended), nil
}

// count counts the tests that have no parts. A package is a test without a name.
func count(ended map[string]string) result {
	var r result
	names := make([]string, 0, len(ended))
	for name := range ended {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		hasParts := slices.ContainsFunc(names[i+1:], func(other string) bool { return strings.HasPrefix(other, name+"/") })
		if strings.HasSuffix(name, " ") || hasParts {
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
