package simulated

import (
	"context"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"
)

// T is a test, by hand or of rapid.
type T interface {
	Helper()
	Logf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Context() context.Context
}

// Step is one thing that happens.
type Step struct {
	Do  string
	Arg int
}

// Steps draws from what may happen, as often as it says.
func Steps(often map[string]int) *rapid.Generator[[][]Step] {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(often)) {
		names = append(names, slices.Repeat([]string{name}, often[name])...)
	}
	return rapid.SliceOf(rapid.SliceOf(rapid.Custom(func(t *rapid.T) Step {
		return Step{rapid.SampledFrom(names).Draw(t, "do"), rapid.IntRange(0, 11).Draw(t, "arg")}
	})))
}

// Meanwhile is the step that has the controller sync while others do what follows it.
const Meanwhile = "sync meanwhile"

// Each does one step after the other. What follows Meanwhile, but for what the controller
// itself does, is handed to sync, to happen while the controller writes.
func Each(list []Step, do func(Step), sync func(meanwhile []Step)) {
	for i := 0; i < len(list); i++ {
		if list[i].Do != Meanwhile {
			do(list[i])
			continue
		}
		rest := list[i+1 : min(i+2+list[i].Arg%3, len(list))]
		i += len(rest)
		sync(slices.DeleteFunc(slices.Clone(rest), func(one Step) bool {
			return strings.HasPrefix(one.Do, "sync") || slices.Contains([]string{"round", "restart"}, one.Do)
		}))
	}
}
