package estimator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/plural"
)

// Reasons of events.
const (
	reasonSet       = "InitialResourcesSet"       // a pod was created with requests from estimates
	reasonEstimated = "InitialResourcesEstimated" // it is only said what they would be
	reasonSkipped   = "InitialResourcesSkipped"   // nothing was set, and why
	reasonUnknown   = "InitialResourcesUnknown"   // nothing was, as nothing is known of the images
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
	// Was is what was requested before; empty if nothing was.
	Was string `json:"was"`
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
func news(p *pod, a annotation) (reason, message string) {
	var lines []string
	set, skipped := false, false
	a.each(func(container string, resource corev1.ResourceName, s said) {
		done := isSet(p.whole, container, s)
		set, skipped = set || done, skipped || s.Skipped != "" && s.Skipped != toldOnly
		lines = append(lines, fmt.Sprintf("%s: %s %s", container, resource, s.describe(done)))
	})
	switch {
	case set:
		reason = reasonSet
	case skipped:
		reason = reasonSkipped
	case len(lines) > 0:
		reason = reasonEstimated
	case len(p.lacks) > 0:
		reason = reasonUnknown
	}
	for _, l := range p.lacks {
		lines = append(lines, fmt.Sprintf("%s: no %s usage of %s is known", l.container, l.resource, l.image))
	}
	return reason, strings.Join(lines, ", ")
}

// lack is that a container neither requests a resource, nor has a limit of it, nor was told an
// estimate.
type lack struct {
	container, image string
	resource         corev1.ResourceName
}

// lacksOf are those of a pod that might have got estimates. It is not one of a DaemonSet, unless
// it asks for them itself.
func lacksOf(p *corev1.Pod) []lack {
	policy, asked := p.Annotations[api.InitialResourcesLabel]
	_, labelled := p.Labels[api.InitialResourcesLabel]
	owner := metav1.GetControllerOf(p)
	ofDaemonSet := owner != nil && owner.Kind == "DaemonSet"
	_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	if policy == api.InitialResourcesNever || labelled && !optsIn(p.Labels) || ofDaemonSet && !labelled && !asked || mirror || p.Spec.Resources != nil {
		return nil
	}
	var lacks []lack
	known := readAnnotation(p)
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			for _, resource := range estimate.Resources {
				if _, said := known[list[i].Name][resource]; !said && !states(&list[i], resource) {
					lacks = append(lacks, lack{list[i].Name, list[i].Image, resource})
				}
			}
		}
	}
	return lacks
}

// toldOnly is why nothing is set in a namespace, or a pod, that wants to be told only.
const toldOnly = "annotate"

// whySkipped explains what admission says of an estimate that it has not set.
var whySkipped = map[string]string{
	"quota":   "a ResourceQuota has no room for what the pod would request",
	"room":    "no node has room for what the pod would request",
	"pod-max": "a LimitRange does not allow the pod to request as much",
	"pod-min": "a LimitRange does not allow the pod to request as little",
	"changed": "somebody has set another value since",
}

// describe says the estimate and where it comes from.
func (s said) describe(set bool) string {
	where := "the default for the image"
	if s.From != estimate.FromDefault {
		where = fmt.Sprintf("percentile %g of %s of the %s in %s, in the %s", s.Percentile, plural.Of(s.Samples, "sample"), s.From, s.Window, s.Scope)
	}
	text := fmt.Sprintf("%s (%s", &s.Request, where)
	if s.OOMKills > 0 {
		text += ", raised for " + plural.Of(s.OOMKills, "OOM kill")
	}
	if s.Capped != "" {
		text += ", kept within the bounds of the " + s.Capped
	}
	text += ")"
	switch {
	case set && s.Was != "":
		return text + " instead of " + s.Was
	case set:
		return text
	case s.Skipped != "" && s.Skipped != toldOnly:
		return text + " not set: " + cmp.Or(whySkipped[s.Skipped], s.Skipped)
	default:
		return text + " would be set"
	}
}

// tell tells what has become of a new pod, once.
func (e *Estimator) tell(p *pod) {
	if _, done := e.told[p.UID]; done || e.clock.Since(p.CreationTimestamp.Time) > newborn {
		return
	}
	var a annotation
	whole := &corev1.Pod{ObjectMeta: p.ObjectMeta}
	if p.whole != nil {
		whole = p.whole
		a = readAnnotation(whole)
	}
	if a == nil && (len(p.lacks) == 0 || !optsIn(map[string]string{api.InitialResourcesLabel: e.mode(whole)})) {
		return
	}
	e.told[p.UID] = struct{}{}
	if reason, message := news(p, a); reason != "" {
		e.recorder.Once(whole, corev1.EventTypeNormal, reason, message)
	}
	e.metrics.born(p, a)
}

// optsInItself reports whether a pod opts in its namespace.
func optsInItself(p *pod) bool { return p != nil && p.whole != nil && optsIn(p.whole.Labels) }
