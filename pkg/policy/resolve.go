package policy

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// direction of a change.
type direction string

const (
	increase direction = "increase"
	decrease direction = "decrease"
)

// directionOf compares by what the container may have: no request is the least
// request, and no limit is the highest limit.
func directionOf(c resize.Change) direction {
	var grows bool
	switch {
	case c.From == nil:
		grows = c.Side == resize.Request
	case c.To == nil:
		grows = c.Side == resize.Limit
	default:
		grows = c.To.Cmp(*c.From) > 0
	}
	if grows {
		return increase
	}
	return decrease
}

// Resolve returns the policy for an edit that makes these changes to pods of the template.
// For RestartOnly it also returns the reason: the changes that want it, and what says so.
//
// Only what changes counts, and RestartOnly dominates for the whole pod: with
// `cpu=LiveResizeable, memory=RestartOnly` a change of cpu alone is live, a change
// of both restarts the pod.
func (s Settings) Resolve(changes []resize.Change, template *corev1.PodTemplateSpec, byDefault Policy) (Policy, string) {
	var reasons []string
	for _, c := range changes {
		policy, source := s.forChange(c, template, byDefault)
		if policy != RestartOnly {
			continue
		}
		owner := c.Container
		if owner == "" {
			owner = "the pod"
		}
		reason := fmt.Sprintf("%s of %s: %s (%s)", c.Resource, owner, policy, source)
		if !slices.Contains(reasons, reason) { // request and limit often change together
			reasons = append(reasons, reason)
		}
	}
	if len(reasons) > 0 {
		return RestartOnly, strings.Join(reasons, ", ")
	}
	return LiveResizeable, ""
}

// forChange returns the policy for one change, and what says so. The most specific entry counts.
func (s Settings) forChange(c resize.Change, template *corev1.PodTemplateSpec, byDefault Policy) (policy Policy, source string) {
	towards := directionOf(c)
	for _, k := range []key{
		{c.Container, c.Resource, towards},
		{c.Container, c.Resource, ""},
		{"", c.Resource, towards},
		{"", c.Resource, ""},
	} {
		if policy, given := s.entries[k]; given {
			return policy, "annotation " + k.String()
		}
	}
	if hasResizePolicy(template, c.Container, c.Resource) {
		return LiveResizeable, "resizePolicy"
	}
	return byDefault, "default"
}

// hasResizePolicy reports whether the container has a resizePolicy for the resource.
// Either value means in place: with RestartContainer the kubelet restarts that
// container, and the pod stays.
func hasResizePolicy(template *corev1.PodTemplateSpec, container string, name corev1.ResourceName) bool {
	return slices.ContainsFunc(slices.Concat(template.Spec.InitContainers, template.Spec.Containers), func(c corev1.Container) bool {
		return c.Name == container && slices.ContainsFunc(c.ResizePolicy, func(p corev1.ContainerResizePolicy) bool {
			return p.ResourceName == name
		})
	})
}
