package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// Guard is what the annotations of a workload say about a guarded rollout: a wrong size stops at the first pods.
type Guard struct {
	// Canary is how many pods get the size first; nil if there is no canary. See [Guard.Canaries].
	Canary *intstr.IntOrString
	// Duration is for how long they have to be well with it; 0 where the annotation says nothing.
	Duration time.Duration
	// Manual: the others wait until somebody promotes the rollout.
	Manual bool
	// Revert: the pods that have the size go back when one of them has failed. Otherwise the rollout is held.
	Revert bool
	// Checks are the names of those that a pod has to pass.
	Checks []string
}

// What happens when a pod has failed.
const (
	OnFailureHold   = "Hold"
	OnFailureRevert = "Revert"
)

// Manual is the duration of a canary that somebody has to promote.
const Manual = "manual"

// maxCanaries bounds the canaries: each is recorded, in an annotation of a bounded size.
const maxCanaries = 50

// Canaries returns how many of so many pods get the size first: a percentage is rounded up. They are 50 at most.
//
// 10% of 15 pods are 2.
func (g Guard) Canaries(pods int) int {
	if g.Canary == nil {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(g.Canary, pods, true)
	if err != nil { // readGuard has made sure that it is a percentage
		return 1
	}
	return min(max(n, 1), maxCanaries)
}

// The forms of the values. deploy/cluster/validate-annotations.yaml has the same.
var canaryForm = regexp.MustCompile(`^([1-9][0-9]{0,5}|([1-9][0-9]?|100)%)$`)

// maxChecks is how many checks one workload may have Prometheus asked.
const maxChecks = 10

// readGuard reads the annotations of a guarded rollout. It returns nil if none of them is there.
func readGuard(annotations map[string]string) (*Guard, error) {
	value := func(annotation string) string { return strings.TrimSpace(annotations[annotation]) }
	g := &Guard{}
	canary, duration, onFailure, checks := value(api.CanaryAnnotation), value(api.CanaryDurationAnnotation), value(api.OnFailureAnnotation), value(api.ChecksAnnotation)
	if canary+onFailure+checks == "" && duration == "" {
		return nil, nil
	}
	var err error
	if g.Canary, err = parseCanary(canary); err != nil {
		return nil, err
	}
	if g.Duration, g.Manual, err = parseCanaryDuration(duration); err != nil {
		return nil, err
	}
	if onFailure != "" && onFailure != OnFailureHold && onFailure != OnFailureRevert {
		return nil, fmt.Errorf(`annotation %s: "%.100s" must be Hold or Revert`, api.OnFailureAnnotation, onFailure)
	}
	g.Revert = onFailure == OnFailureRevert
	if g.Checks, err = parseChecks(checks); err != nil {
		return nil, err
	}
	if g.Canary == nil && onFailure+checks == "" { // a duration alone guards nothing
		return nil, nil
	}
	return g, nil
}

func parseCanary(value string) (*intstr.IntOrString, error) {
	if value == "" {
		return nil, nil
	}
	if !canaryForm.MatchString(value) {
		return nil, fmt.Errorf(`annotation %s: "%.100s" must be a number of pods such as 1, or a percentage from 1%% to 100%%`, api.CanaryAnnotation, value)
	}
	canary := intstr.FromString(value)
	if n, err := strconv.Atoi(value); err == nil {
		canary = intstr.FromInt(n)
	}
	return &canary, nil
}

func parseCanaryDuration(value string) (duration time.Duration, manual bool, err error) {
	if value == "" || value == Manual {
		return 0, value == Manual, nil
	}
	duration, err = time.ParseDuration(value)
	if err != nil || duration <= 0 {
		return 0, false, fmt.Errorf(`annotation %s: "%.100s" must be manual, or a positive duration such as 90s, 5m or 1h30m`, api.CanaryDurationAnnotation, value)
	}
	return duration, false, nil
}

func parseChecks(list string) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	var checks []string
	for i, name := range strings.Split(list, ",") {
		name = strings.TrimSpace(name)
		if len(validation.IsDNS1123Label(name)) > 0 || i >= maxChecks {
			return nil, fmt.Errorf(`annotation %s: "%.100s" must be the name of a check, of lower case letters, digits and dashes; commas separate names, at most %d`,
				api.ChecksAnnotation, name, maxChecks)
		}
		if !slices.Contains(checks, name) {
			checks = append(checks, name)
		}
	}
	return checks, nil
}
