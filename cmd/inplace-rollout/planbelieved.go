package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
)

// believe has pods of a rollout under way be foreseen as its condition says, where that rests on nodes that whoever asks may not see:
// those that it names, or else all that are not done. A node that is lost says nothing of what comes later.
func believe(u *unstructured.Unstructured, pods []judge.PodForecast) {
	condition := completeOf(u)
	reason := fmt.Sprint(condition["reason"])
	if !policy.Enabled(u) || judge.Acts[reason].Rests != judge.OnNodes || reason == judge.ReasonNodeLost {
		return
	}
	message := fmt.Sprint(condition["message"])
	says, all := saidOf(message)
	var open, named []int
	for i, f := range pods {
		if !slices.Contains([]judge.Forecast{judge.Live, judge.Deferred, judge.ContainerRestart, judge.PodRestart}, f.Forecast) {
			continue
		}
		open = append(open, i)
		if says[f.Member.Name] != "" && says[f.Member.Name] != f.Message { // else the plan sees the same
			named = append(named, i)
		}
	}
	if !all && len(named) > 0 {
		open = named
	}
	for _, i := range open {
		text := message
		if slices.Contains(named, i) {
			text = says[pods[i].Member.Name]
		}
		pods[i].Forecast, pods[i].Reason = judge.Infeasible, "the condition says "+reason+": "+text
	}
}

// andMore is how a condition says that it does not name all.
var andMore = regexp.MustCompile(`(^| )and \d+ more$`)

// saidOf returns what the message of a condition says of pods, by their names, and whether it leaves some out.
func saidOf(message string) (says map[string]string, more bool) {
	says = map[string]string{}
	last := ""
	for part := range strings.SplitSeq(message, "; ") {
		more = more || andMore.MatchString(part)
		if others, likewise := strings.CutPrefix(part, "likewise "); likewise {
			for name := range strings.SplitSeq(others, ", ") {
				name, _, _ = strings.Cut(name, " ")
				says[name] = last
			}
		} else if name, text, named := strings.Cut(part, ": "); named {
			last, says[name] = text, text
		}
	}
	return says, more
}
