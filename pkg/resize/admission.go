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
	// Made are pods that were made of the template.
	Made Witnesses
	// Filled returns what LimitRanges make of a new pod, where there is none to be seen; nil if that is nothing, or not known.
	// It may be nil.
	Filled func() *corev1.PodSpec
	// Before are pods of other templates. What they have of what neither template says, new pods will have, too: an edit changes
	// nothing in that.
	Before Witnesses
}

// Witnesses are pods that show what admission gives at birth: of those that tell of the same values, the youngest.
type Witnesses []Witness

// Witness is a pod that does.
type Witness struct {
	Pod *corev1.Pod
	// Said is the template that the pod was made of; nil where that is the one in question.
	Said *corev1.PodTemplateSpec

	set string // what resizes have set, of which the pod does not tell
}

// Add adds a pod, unless a younger one tells of the same.
func (w *Witnesses) Add(pod *corev1.Pod, said *corev1.PodTemplateSpec) {
	set := ""
	for _, entry := range pod.ManagedFields {
		if Recorded(entry) && entry.FieldsV1 != nil {
			set += entry.FieldsV1.GetRawString()
		}
	}
	i := slices.IndexFunc(*w, func(other Witness) bool { return other.Said == said && other.set == set })
	switch {
	case i < 0:
		*w = append(*w, Witness{pod, said, set})
	case (*w)[i].Pod.CreationTimestamp.Before(&pod.CreationTimestamp):
		(*w)[i].Pod = pod
	}
}

// show returns what says what the youngest of the pods that tell of a value has, and whether there is one.
func (w Witnesses) show() func(Change) (has *resource.Quantity, known bool) {
	all := make([]func(Change) (*resource.Quantity, bool), len(w))
	for i, of := range w {
		all[i] = of.born()
	}
	return func(c Change) (has *resource.Quantity, known bool) {
		var youngest *corev1.Pod
		for i, of := range w {
			if value, is := all[i](c); is && (youngest == nil || youngest.CreationTimestamp.Before(&of.Pod.CreationTimestamp)) {
				youngest, has = of.Pod, value
			}
		}
		return has, youngest != nil
	}
}

// born returns what says what the pod has from its birth, and whether it tells of that. It does not of a value that somebody has
// set by a resize, or that its template says.
func (w Witness) born() func(Change) (has *resource.Quantity, known bool) {
	set, err := ownersOf(w.Pod)
	if err != nil {
		return func(Change) (*resource.Quantity, bool) { return nil, false }
	}
	all := parts(&w.Pod.Spec)
	var said []part
	if w.Said != nil { // what follows for the pod as a whole is said, too
		said = parts(Defaulted(w.Said))
	}
	return func(c Change) (has *resource.Quantity, known bool) {
		have, says := counterpart(all, part{name: c.Container}), counterpart(said, part{name: c.Container})
		switch {
		case w.Said != nil && (says == nil || says.wanted(c.Side, c.Resource) != nil):
			return nil, false
		case have != nil && set.in(*have).of(c.Side, c.Resource) != (owner{}):
			return nil, false
		default:
			return valueOf(have, c), true
		}
	}
}

// giving returns what says what new pods have of a value that their template does not say, and whether that is known.
func (a Admission) giving() func(Change) (given *resource.Quantity, known bool) {
	made, before := a.Made.show(), a.Before.show()
	return func(c Change) (given *resource.Quantity, known bool) {
		if given, known = made(c); known {
			return given, true
		}
		if a.Filled != nil {
			if filled := a.Filled(); filled != nil {
				given = valueOf(counterpart(parts(filled), part{name: c.Container}), c)
			}
		}
		if given == nil {
			given, _ = before(c)
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

// Shows says what the pods that are known have otherwise than the template says: no plan depends on anything else of them.
func (a Admission) Shows(template *corev1.PodTemplateSpec) string {
	a.Filled = nil
	var shows strings.Builder
	says, gives := parts(&template.Spec), a.giving()
	var named []string
	for _, of := range slices.Concat(a.Made, a.Before) {
		for _, p := range parts(&of.Pod.Spec) {
			if slices.Contains(named, p.name) {
				continue
			}
			named = append(named, p.name)
			said := counterpart(says, p)
			for _, name := range resizable {
				for _, side := range sides {
					given, known := gives(Change{Container: p.name, Resource: name, Side: side})
					if said == nil || said.wanted(side, name) == nil || known && !same(given, said.wanted(side, name)) {
						fmt.Fprint(&shows, p.name, name, side, known, quantity(given), ";")
					}
				}
			}
		}
	}
	return shows.String()
}

// Knowing returns the target as it is by what is known of admission. A value that the template says no more is no obstacle where a
// new pod would have one, too, as where a LimitRange has a default for it, or a webhook: it is to be the same. Nor is anything set in
// place of what an edit has asked for that was given up, where a new pod would have what is in force.
func (t Target) Knowing(a Admission) Target {
	if len(t.removed)+len(t.back) == 0 {
		return t
	}
	var given, otherwise []Change
	unproved, gives := 0, a.giving()
	for _, c := range t.back {
		t = t.leaving(c, gives)
	}
	for _, c := range t.removed {
		switch value, known := gives(c); {
		case same(value, c.From):
			given = append(given, c)
		case value != nil && c.Container != "":
			c.To = value
			otherwise = append(otherwise, c)
		case !known:
			unproved++
		}
	}
	t = t.keeping(given)
	if set := t.keeping(otherwise).setting(otherwise); !aboveLimit(set.Spec(), "", "") {
		t = set
	}
	t.Unproved = unproved > 0 && unproved == len(t.Obstacles)
	return t
}

// keeping returns the target in which these values are not removed.
func (t Target) keeping(values []Change) Target {
	if len(values) == 0 {
		return t
	}
	isKept := func(c Change) bool { return c.To == nil && slices.ContainsFunc(values, c.of) }
	t.Effects = slices.DeleteFunc(slices.Clone(t.Effects), isKept)
	t.born = slices.DeleteFunc(slices.Clone(t.born), isKept)
	t.removed = slices.DeleteFunc(slices.Clone(t.removed), isKept)
	t.Obstacles = slices.DeleteFunc(slices.Clone(t.Obstacles), func(said string) bool {
		return slices.ContainsFunc(values, func(c Change) bool { return said == isRemoved(c) })
	})
	return t
}

// setting returns the target in which these values are set, too.
func (t Target) setting(values []Change) Target {
	if len(values) == 0 {
		return t
	}
	t.Changes, t.Effects = slices.Clip(t.Changes), slices.Clip(t.Effects)
	for _, c := range values {
		t.change(*counterpart(t.named, part{name: c.Container}), value{Change: c})
	}
	t.Obstacles = slices.DeleteFunc(t.Obstacles, func(said string) bool { return strings.HasPrefix(said, classChange) })
	t.checkPod()
	return t
}

// leaving returns the target in which a value that is taken back is the one in force, if new pods have the same.
func (t Target) leaving(c Change, gives func(Change) (*resource.Quantity, bool)) Target {
	i := slices.IndexFunc(t.Effects, c.of)
	if i < 0 {
		return t
	}
	inForce := t.Effects[i].From
	if value, known := gives(c); !known || inForce == nil || !same(value, inForce) {
		return t
	}
	t.Effects = slices.Delete(slices.Clone(t.Effects), i, i+1)
	t.Changes = appendChange(slices.DeleteFunc(slices.Clone(t.Changes), c.of), Change{c.Container, c.Resource, c.Side, c.From, inForce})
	return t
}

// isRemoved is the obstacle that the template says a value no more.
func isRemoved(c Change) string {
	return fmt.Sprintf("%s: the %s %s is removed", cmp.Or(c.Container, "pod"), c.Resource, c.Side)
}
