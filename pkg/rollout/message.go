package rollout

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
)

// How much a message spells out: so many waits that are not alike, and so many names of pods
// that wait like another one.
const (
	spelledOut = 3
	namedToo   = 4
)

// Condition of a workload whose rollout is not complete. The first wait that is
// more than progress names the reason. Pods that their size may have harmed come first.
func (s Step) Condition() Condition {
	c := s.progress()
	c.Reason, c.Details = Spell(s.Waits)
	c.Details += s.faults()
	c.Next = ofClass(s.Waits, c.Reason)
	return s.guardedCondition(c)
}

// ofClass is what a person does where only pods that never restart for it lack the size of their node's class; empty if others wait for
// the same.
func ofClass(waits []Wait, reason string) string {
	others := func(w Wait) bool { return w.Reason == reason && !w.Member.InPlaceOnly }
	if reason != judge.ReasonInfeasible && reason != judge.ReasonUnsupportedByNode || slices.ContainsFunc(waits, others) {
		return ""
	}
	return "Choose another size for the class, in the annotation " + api.NodeResourcesAnnotation
}

// Spell returns the reason that the waits name, and spells them out for the details of a condition.
// Those for the same are named together; where that leaves more than is spelled out, also those
// that differ only in numbers, such as how much of its node is in use.
func Spell(all []Wait) (reason, text string) {
	reason = judge.ReasonProgressing
	waits := harmedFirst(all)
	for _, w := range waits {
		if reason == judge.ReasonProgressing {
			reason = w.Reason
		}
	}
	groups := group(waits, nameless)
	if len(groups) > spelledOut {
		groups = group(waits, func(w *Wait) string { return Numberless(nameless(w)) })
	}
	var spelled strings.Builder
	more := 0
	for i, g := range groups {
		if i < spelledOut {
			spelled.WriteString("; " + g.String())
		} else {
			more += g.count()
		}
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
		return asInt(b.Reason == judge.ReasonNotReadyAfterResize) - asInt(a.Reason == judge.ReasonNotReadyAfterResize)
	})
	return waits
}

// alike are waits for the same.
type alike []*Wait

// group puts those waits together that have the same reason and text, in the order of the first.
func group(waits []*Wait, text func(*Wait) string) []alike {
	var groups []alike
	at := map[string]int{}
	for _, w := range waits {
		key := w.Reason + ": " + text(w)
		i, found := at[key]
		if !found {
			i, at[key] = len(groups), len(groups)
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], w)
	}
	return groups
}

// count is how many places wait.
func (a alike) count() (n int) {
	for _, w := range a {
		n += w.Member.Count()
	}
	return n
}

// String says of the first what it waits for, and names the others: with their nodes, if that
// is about a node, and theirs is another one.
func (a alike) String() string {
	first := a[0].Member.Node()
	text := a[0].Member.Name + ": " + a[0].Message
	if a.count() == 1 {
		return text
	}
	var names []string
	for _, w := range a[1:min(len(a), 1+namedToo)] {
		name := w.Member.Name
		if node := w.Member.Node(); node != first && strings.Contains(a[0].Message, judge.OnNode(first)) {
			name += " on " + judge.OnNode(node)
		}
		names = append(names, name)
	}
	if more := a.count() - 1 - len(names); more > 0 && len(names) > 0 {
		names[len(names)-1] += fmt.Sprintf(" and %d more", more)
	} else if more > 0 {
		names = []string{fmt.Sprintf("%d more", more)}
	}
	return text + "; likewise " + strings.Join(names, ", ")
}

func nameless(w *Wait) string { return Nameless(w.Message, w.Member.Name, w.Member.Node()) }

// Nameless returns a text about a pod without its name and that of its node: two pods are in the
// same case if that is the same of both.
func Nameless(text, pod, node string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, pod, "…"), judge.OnNode(node), judge.OnNode("…"))
}

// Numberless returns the text without its digits.
func Numberless(text string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, text)
}

// EditBack is what is rolled out where the pods were made from this very template.
const EditBack = "an edit back"

// Changes describes what the newest revision brings to the first pod that lacks it.
func Changes(verdicts []*judge.Verdict) string {
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

// OldUntilRestart lists what of pods of the template does not follow the new size, for the end of a message: environment variables
// that show it, and volumes in memory. It is empty if there is nothing.
func OldUntilRestart(verdicts []*judge.Verdict, template *corev1.PodTemplateSpec) string {
	var variables, volumes []string
	for _, v := range verdicts {
		variables, volumes = Joined(variables, v.OldEnvironment), Joined(volumes, v.Member.Target.OldVolumes(template))
	}
	return after("; environment variables that show the old size until a restart: ", strings.Join(variables, ", ")) +
		after("; volumes in memory that keep their size until a restart: ", strings.Join(volumes, ", "))
}

// Absent returns the containers of the template that pods lack, because an injector has dropped or renamed them.
func Absent(verdicts []*judge.Verdict) []string {
	var absent []string
	for _, v := range verdicts {
		absent = Joined(absent, v.Member.Target.Absent)
	}
	return absent
}

// Joined returns what is listed, with those of more that are not.
func Joined(listed, more []string) []string {
	for _, one := range more {
		if !slices.Contains(listed, one) {
			listed = append(listed, one)
		}
	}
	return listed
}

// Classed says, for the details of a condition, how many pods have the size of a class, or
// had it before. It is empty only if none has anything of a class.
func Classed(verdicts []*judge.Verdict) (said string) {
	have, all, back := 0, 0, 0
	for _, v := range verdicts {
		switch m := &v.Member; {
		case judge.Gone(m.Pod):
		case m.Class != "":
			all++
			have += asInt(m.Updated && m.ClassSizeUnavailable == "")
		default:
			back += asInt(m.InPlaceOnly && !m.Updated)
		}
	}
	switch {
	case all == 0:
	case have == all:
		said = fmt.Sprintf("; %d of them %s", have, classSize(have))
	default:
		said = fmt.Sprintf("; %d of %d %s", have, all, classSize(have))
	}
	switch {
	case back == 1:
		said += "; 1 of them has yet to go back to the template's size"
	case back > 1:
		said += fmt.Sprintf("; %d of them have yet to go back to the template's size", back)
	}
	return said
}

func classSize(pods int) string {
	if pods == 1 {
		return "has the size of its node's class"
	}
	return "have the size of their node's class"
}

// faults spells out, for the details of a condition, what faults of kubelets the resizes of the step may meet.
func (s Step) faults() string {
	var members []*judge.Member
	for _, v := range s.Verdicts {
		if v.MayMeetFault {
			members = append(members, &v.Member)
		}
	}
	var spelled strings.Builder
	for _, f := range judge.Faults(members) {
		spelled.WriteString("; " + f.String())
	}
	return spelled.String()
}
