package resize

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Side is the half of a container's resource requirements that a value belongs to.
type Side string

// The two sides, in the words of messages.
const (
	Request Side = "request"
	Limit   Side = "limit"
)

// sides are both, in the order of messages.
var sides = [...]Side{Request, Limit}

// of returns the list of r that the side names.
func (s Side) of(r *corev1.ResourceRequirements) *corev1.ResourceList {
	if s == Limit {
		return &r.Limits
	}
	return &r.Requests
}

// Change is one value that differs between two sizes. From or To is nil where
// the value is absent, which is not the same as zero.
type Change struct {
	// Container that the value belongs to; empty for the pod's own spec.resources.
	Container string
	Resource  corev1.ResourceName
	Side      Side
	From, To  *resource.Quantity
}

// String spells the change out, as in `app: cpu request 100m→150m`.
func (c Change) String() string {
	name := c.Container
	if name == "" {
		name = "pod"
	}
	return name + ": " + string(c.Resource) + " " + string(c.Side) + " " + quantity(c.From) + "→" + quantity(c.To)
}

// of reports whether both are about the same value.
func (c Change) of(other Change) bool {
	return c.Container == other.Container && c.Resource == other.Resource && c.Side == other.Side
}

// lowersMemory reports whether a memory limit gets lower, which it does where there was none, too.
func (c Change) lowersMemory() bool {
	return c.Resource == corev1.ResourceMemory && c.Side == Limit && c.To != nil && (c.From == nil || c.To.Cmp(*c.From) < 0)
}

func quantity(q *resource.Quantity) string {
	if q == nil {
		return "none"
	}
	return q.String()
}

// Describe joins changes for a message: `app: cpu request 100m→150m, app: cpu limit 200m→300m`.
// It returns "" for none.
func Describe(changes []Change) string {
	list := make([]string, len(changes))
	for i, c := range changes {
		list[i] = c.String()
	}
	return strings.Join(list, ", ")
}

// Between returns the changes of cpu and memory from one template to another, in the
// order of the containers of the latter; none if cpu and memory are the same.
func Between(from, to *corev1.PodTemplateSpec) []Change {
	return between(parts(&from.Spec), parts(&to.Spec))
}

// Join returns changes, and those of more that change other values than these do.
func Join(changes, more []Change) []Change {
	joined := slices.Clone(changes)
	for _, c := range more {
		if !slices.ContainsFunc(changes, c.of) {
			joined = append(joined, c)
		}
	}
	return joined
}

func between(from, to []part) []Change {
	var changes []Change
	for _, after := range to {
		before := counterpart(from, after)
		if before == nil {
			before = &part{requirements: &corev1.ResourceRequirements{}}
		}
		changes = append(changes, differing(*before, after)...)
	}
	for _, before := range from {
		if counterpart(to, before) == nil {
			after := before
			after.requirements = &corev1.ResourceRequirements{}
			changes = append(changes, differing(before, after)...)
		}
	}
	return changes
}

func differing(before, after part) []Change {
	var changes []Change
	for _, name := range resizable {
		for _, side := range sides {
			changes = appendChange(changes, Change{after.name, name, side, before.value(side, name), after.value(side, name)})
		}
	}
	return changes
}

// appendChange appends a change, unless both values are the same.
func appendChange(changes []Change, c Change) []Change {
	if same(c.From, c.To) {
		return changes
	}
	return append(changes, c)
}

// lookup returns a copy of the value, or nil where the list does not have it.
func lookup(list corev1.ResourceList, name corev1.ResourceName) *resource.Quantity {
	q, ok := list[name]
	if !ok {
		return nil
	}
	return &q
}

// same reports whether two quantities have the same value: 1000m is 1. nil, which is
// absent, is not 0.
func same(a, b *resource.Quantity) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Cmp(*b) == 0
}
