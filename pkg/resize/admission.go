package resize

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Admission is what is known of what admission gives to new pods of a template. The zero value knows nothing.
type Admission struct {
	// Made is a pod that was made of the template; nil if there is none yet.
	Made *corev1.Pod
	// Filled returns what LimitRanges make of a new pod, where there is none to be seen; nil if that is nothing, or not known.
	// It may be nil.
	Filled func() *corev1.PodSpec
}

// giving returns what says what new pods have of a value that their template does not say, and whether that is known. A value
// that somebody has set by a resize shows nothing of a pod's birth.
func (a Admission) giving() func(Change) (given *resource.Quantity, known bool) {
	var set owners
	var made []part
	readable := false
	if a.Made != nil {
		var err error
		set, err = ownersOf(a.Made)
		made, readable = parts(&a.Made.Spec), err == nil
	}
	return func(c Change) (given *resource.Quantity, known bool) {
		if readable {
			have := counterpart(made, part{name: c.Container})
			if have == nil || set.in(*have).of(c.Side, c.Resource) == (owner{}) {
				return valueOf(have, c), true
			}
		}
		if a.Filled != nil {
			if filled := a.Filled(); filled != nil {
				given = valueOf(counterpart(parts(filled), part{name: c.Container}), c)
			}
		}
		return given, given != nil
	}
}

func valueOf(p *part, c Change) *resource.Quantity {
	if p == nil {
		return nil
	}
	return p.value(c.Side, c.Resource)
}

// Shows says what the pod that was made of the template has of what that does not say: no plan depends on anything else
// of it.
func (a Admission) Shows(template *corev1.PodTemplateSpec) string {
	if a.Made == nil {
		return "nothing"
	}
	var shows strings.Builder
	says, gives := parts(&template.Spec), Admission{Made: a.Made}.giving()
	for _, p := range parts(&a.Made.Spec) {
		said := counterpart(says, p)
		for _, name := range resizable {
			for _, side := range sides {
				c := Change{Container: p.name, Resource: name, Side: side}
				if said == nil || said.wanted(side, name) == nil {
					given, known := gives(c)
					fmt.Fprint(&shows, p.name, name, side, known, quantity(given), ";")
				}
			}
		}
	}
	return shows.String()
}

// Knowing returns the target without the obstacles that are none by what is known of admission: that a value is removed
// which a new pod would have, too, as where a LimitRange has a default for it, or a webhook.
func (t Target) Knowing(a Admission) Target {
	if len(t.removed) == 0 {
		return t
	}
	given, unproved, gives := []Change{}, 0, a.giving()
	for _, c := range t.removed {
		switch value, known := gives(c); {
		case same(value, c.From):
			given = append(given, c)
		case !known:
			unproved++
		}
	}
	if len(given) > 0 {
		isGiven := func(c Change) bool { return c.To == nil && slices.ContainsFunc(given, c.of) }
		t.Effects = slices.DeleteFunc(slices.Clone(t.Effects), isGiven)
		t.born = slices.DeleteFunc(slices.Clone(t.born), isGiven)
		t.removed = slices.DeleteFunc(slices.Clone(t.removed), isGiven)
		t.Obstacles = slices.DeleteFunc(slices.Clone(t.Obstacles), func(said string) bool {
			return slices.ContainsFunc(given, func(c Change) bool { return said == isRemoved(c) })
		})
	}
	t.Unproved = unproved > 0 && unproved == len(t.Obstacles)
	return t
}

// isRemoved is the obstacle that the template says a value no more.
func isRemoved(c Change) string {
	return fmt.Sprintf("%s: the %s %s is removed", cmp.Or(c.Container, "pod"), c.Resource, c.Side)
}
