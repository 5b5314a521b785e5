package rollout

import (
	"fmt"
	"slices"
	"strings"
)

// Condition is what the workload's condition inplace-rollout.io/Complete must say.
type Condition struct {
	Complete        bool
	Reason, Message string
}

// Invalid is the condition of a workload whose annotations cannot be understood: it
// stays as it is until they are mended.
func Invalid(err error) Condition {
	return Condition{Reason: ReasonInvalidPolicy, Message: err.Error()}
}

// How much a message spells out: so many waits that are not alike, and so many names of pods
// that wait like another one.
const (
	spelledOut = 3
	namedToo   = 4
)

// Condition of a workload whose rollout is not complete. The first wait that is
// more than progress names the reason. Pods that their size may have harmed come first, and
// those that wait for the same are named together.
func (s Step) Condition() Condition {
	reason, text := Spell(s.Waits)
	return Condition{Reason: reason, Message: fmt.Sprintf("%d of %d pods resized", s.Updated, s.Total) + text}
}

// Spell returns the reason that the waits name, and spells them out for the end of a message.
func Spell(waits []Wait) (reason, text string) {
	reason = ReasonProgressing
	var groups []*alike
	found, more := map[string]*alike{}, 0
	for _, w := range harmedFirst(waits) {
		if reason == ReasonProgressing {
			reason = w.Reason
		}
		what := w.Reason + ": " + w.Member.nameless(w.Message)
		switch group := found[what]; {
		case group != nil:
			group.others = append(group.others, w)
		case len(groups) == spelledOut:
			more++
		default:
			found[what] = &alike{first: w}
			groups = append(groups, found[what])
		}
	}
	var spelled strings.Builder
	for _, group := range groups {
		spelled.WriteString("; " + group.String())
	}
	if more > 0 {
		fmt.Fprintf(&spelled, "; and %d more", more)
	}
	return reason, spelled.String()
}

// harmedFirst returns the waits in their order, but those of pods first that their size may
// have harmed.
func harmedFirst(all []Wait) []*Wait {
	waits := make([]*Wait, len(all))
	for i := range all {
		waits[i] = &all[i]
	}
	slices.SortStableFunc(waits, func(a, b *Wait) int {
		return asInt(b.Reason == ReasonNotReadyAfterResize) - asInt(a.Reason == ReasonNotReadyAfterResize)
	})
	return waits
}

// alike is a wait, and the others for the same.
type alike struct {
	first  *Wait
	others []*Wait
}

// String says of the first what it waits for, and names the others: with their nodes, if that
// is about a node, and theirs is another one.
func (a alike) String() string {
	first := a.first.Member.node()
	text := a.first.Member.Name + ": " + a.first.Message
	if len(a.others) == 0 {
		return text
	}
	var names []string
	for _, w := range a.others[:min(len(a.others), namedToo)] {
		name := w.Member.Name
		if node := w.Member.node(); node != first && strings.Contains(a.first.Message, onNode(first)) {
			name += " on " + onNode(node)
		}
		names = append(names, name)
	}
	text += "; likewise " + strings.Join(names, ", ")
	if more := len(a.others) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// nameless is a text about the member without its name and that of its node: two members are in
// the same case if it is the same of both.
func (m Member) nameless(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, m.Name, "…"), onNode(m.node()), onNode("…"))
}

func onNode(name string) string { return "node " + name }

// EditBack is what is rolled out where the pods were made from this very template.
const EditBack = "an edit back"

// Changes describes what the newest revision brings to the first pod that lacks it.
func Changes(verdicts []*Verdict) string {
	for _, v := range verdicts {
		m := &v.Member
		if !m.Updated && m.Pod != nil && m.Differs+m.Brings != "" {
			if m.Labelled {
				return EditBack + ": " + m.Brings
			}
			return m.Differs + m.Brings
		}
	}
	return EditBack + ": the pods have this size, or come back to it"
}

// OldEnvironment lists the environment variables that will not show the new size, for
// the end of a message; empty if there are none.
func OldEnvironment(verdicts []*Verdict) string {
	var found []string
	for _, v := range verdicts {
		for _, variable := range v.OldEnvironment {
			if !slices.Contains(found, variable) {
				found = append(found, variable)
			}
		}
	}
	if len(found) == 0 {
		return ""
	}
	return "; environment variables that show the old size until a restart: " + strings.Join(found, ", ")
}
