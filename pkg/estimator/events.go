package estimator

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/estimate"
)

// Reasons of events.
const (
	reasonSet       = "InitialResourcesSet"       // a pod was created with requests from estimates
	reasonEstimated = "InitialResourcesEstimated" // it is only said what they would be
	reasonSkipped   = "InitialResourcesSkipped"   // nothing was set, and why
	reasonResized   = "InitialResourcesResized"
	reasonRefused   = "InitialResourcesNotResized"
	reasonNotOurs   = "EstimatesNotPublished"
)

// newborn is how old a pod may be that is told of for the first time. Its event is kept for an
// hour, in most clusters: within that it is written once, and later never.
const newborn = 15 * time.Minute

// said is what a pod's annotation says of one resource of a container.
type said struct {
	estimate.Estimate

	// Skipped is why the estimate was not set; empty if it was, or would be.
	Skipped string `json:"skipped"`
	// Resized is when the pod was given this estimate afterwards; nil if it was born with it.
	Resized *time.Time `json:"resized"`
}

// annotation is what a pod's annotation says, by container and resource.
type annotation map[string]map[corev1.ResourceName]said

// readAnnotation reads that of a pod; nil if it has none, or none that can be read.
func readAnnotation(p *corev1.Pod) annotation {
	var a annotation
	if json.Unmarshal([]byte(p.Annotations[api.EstimateAnnotation]), &a) != nil {
		return nil
	}
	return a
}

// each goes through what is said, in the order of the names.
func (a annotation) each(f func(container string, resource corev1.ResourceName, s said)) {
	for _, container := range slices.Sorted(maps.Keys(a)) {
		for _, resource := range estimate.Resources {
			if s, has := a[container][resource]; has {
				s.Resource = resource
				f(container, resource, s)
			}
		}
	}
}

// containerOf is the container of that name, or nil.
func containerOf(spec *corev1.PodSpec, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// isSet reports whether the pod requests what is estimated.
func isSet(p *corev1.Pod, container string, s said) bool {
	c := containerOf(&p.Spec, container)
	if c == nil || s.Skipped != "" {
		return false
	}
	request, has := c.Resources.Requests[s.Resource]
	return has && s.Request.Cmp(request) == 0
}

// news are what there is to tell of a pod, and the reason of the event; empty if nothing is.
func news(p *corev1.Pod, a annotation) (reason, message string) {
	var lines []string
	set, skipped := false, false
	a.each(func(container string, resource corev1.ResourceName, s said) {
		done := isSet(p, container, s)
		set, skipped = set || done, skipped || s.Skipped != ""
		lines = append(lines, fmt.Sprintf("%s: %s %s", container, resource, s.describe(done)))
	})
	switch {
	case len(lines) == 0:
		return "", ""
	case set:
		reason = reasonSet
	case skipped:
		reason = reasonSkipped
	default:
		reason = reasonEstimated
	}
	return reason, strings.Join(lines, ", ")
}

// whySkipped explains what admission says of an estimate that it has not set.
var whySkipped = map[string]string{
	"quota":      "a ResourceQuota has no room for it",
	"room":       "no node has room for it",
	"LimitRange": "a LimitRange does not let the pod request that much",
	"unknown":    "nothing is known of the image",
}

// describe says the estimate and where it comes from.
func (s said) describe(set bool) string {
	text := ""
	if !s.Request.IsZero() {
		text = fmt.Sprintf("%s (percentile %g of %d samples of the %s in %s, in the %s", &s.Request, s.Percentile, s.Samples, s.From, s.Window, s.Scope)
		if s.OOMKills > 0 {
			text += fmt.Sprintf(", and more for %d OOM kills", s.OOMKills)
		}
		if s.Capped != "" {
			text += ", kept within the bounds of the " + s.Capped
		}
		text += ")"
	}
	switch {
	case s.Skipped != "":
		why, known := whySkipped[s.Skipped]
		if !known {
			why = s.Skipped
		}
		return strings.TrimPrefix(text+" not set: "+why, " ")
	case set:
		return text
	default:
		return text + " would be set"
	}
}

// tell tells what has become of a new pod, once.
func (e *Estimator) tell(p *pod) {
	if p.whole == nil || e.clock.Since(p.CreationTimestamp.Time) > newborn {
		return
	}
	if _, done := e.told[p.UID]; done {
		return
	}
	a := readAnnotation(p.whole)
	if a == nil {
		return
	}
	e.told[p.UID] = struct{}{}
	if reason, message := news(p.whole, a); reason != "" {
		e.recorder.Once(p.whole, corev1.EventTypeNormal, reason, message)
	}
	e.metrics.born(p.whole, a)
}

// optsInItself reports whether a pod opts in its namespace.
func optsInItself(p *pod) bool { return p != nil && p.whole != nil && optsIn(p.whole.Labels) }
