package simulated

import (
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
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

// Outcomes draws what becomes of resizes.
func Outcomes(t *rapid.T) []Outcome {
	return rapid.SliceOfN(rapid.SampledFrom([]Outcome{
		{}, {Slow: 2}, {Deferred: 3}, {Deferred: 1, Slow: 1}, {Infeasible: true}, {Refused: true}, {Unready: true}, {Slow: 1, Unready: true},
	}), 0, 7).Draw(t, "outcomes")
}

// OutcomesOfRoom draws what becomes of resizes where many wait for room, which comes.
func OutcomesOfRoom(t *rapid.T) []Outcome {
	return rapid.SliceOfN(rapid.SampledFrom([]Outcome{{}, {Deferred: 1, Slow: 1}, {Deferred: 3}, {Refused: true}}), 1, 5).Draw(t, "outcomes")
}

// OutcomesOfHands draws what becomes of resizes where others have a hand in them.
func OutcomesOfHands(t *rapid.T) []Outcome {
	return rapid.SliceOfN(rapid.SampledFrom([]Outcome{{}, {}, {Slow: 2}, {Deferred: 1, Slow: 1}, {Infeasible: true}}), 0, 5).Draw(t, "outcomes")
}

// OfHands has users edit sizes and lose pods, and do nothing else.
func OfHands(often map[string]int) map[string]int {
	often = maps.Clone(often)
	maps.DeleteFunc(often, func(do string, _ int) bool { return slices.Contains(ofUsers, do) })
	maps.Copy(often, map[string]int{"edit cpu": 3, "edit memory": 3, "first template": 1, "delete": 1, "time": 2})
	return often
}

// ofUsers is what users do, and what becomes of nodes.
var ofUsers = []string{
	"edit image", "action", "policy", "opt", "release", "abandon", "strategy", "scale", "partition", "undo", "limit", "pause", "resume", "history", "crash",
	"join", "leave", "away", "back", "taint", "cordon", "shrink", "collide", "orphan", "budget", "quota",
}

// Meanwhile is the step that has the controller sync while others do what follows it.
const Meanwhile = "sync meanwhile"

// Edited is the version of a template after the step, if it is one that edits it; the users
// began with the first.
func (s Step) Edited(v, first Version) Version {
	switch s.Do {
	case "edit cpu":
		v.CPU = 1 + s.Arg%3
	case "edit memory":
		v.Memory = s.Arg % 3
	case "edit image":
		v.Image = 1 + s.Arg%2
		if first.Image >= Proxied {
			v.Image = Proxied + s.Arg%2
		}
	case "first template":
		v = first
	}
	return v
}

// Annotate has the annotations of a workload say what the step has its users say.
func (s Step) Annotate(annotations map[string]string) {
	switch s.Do {
	case "action":
		annotations[api.ResizeActionAnnotation] = []string{"", string(policy.Restart), string(policy.LiveResizePreferred)}[s.Arg%3]
	case "policy":
		annotations[api.ResizePolicyAnnotation] = Policies[s.Arg%len(Policies)]
	}
}
