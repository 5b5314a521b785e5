package simulated

import (
	"maps"
	"slices"

	"pgregory.net/rapid"
)

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
