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

// spelledOut bounds how many waits a message spells out.
const spelledOut = 3

// Condition of a workload whose rollout is not complete. The first wait that is
// more than progress names the reason. Pods that their size may have harmed come first.
func (s Step) Condition() Condition {
	c := Condition{Reason: ReasonProgressing, Message: fmt.Sprintf("%d of %d pods resized", s.Updated, s.Total)}
	waits := slices.Clone(s.Waits)
	slices.SortStableFunc(waits, func(a, b Wait) int {
		return asInt(b.Reason == ReasonNotReadyAfterResize) - asInt(a.Reason == ReasonNotReadyAfterResize)
	})
	for i, w := range waits {
		if c.Reason == ReasonProgressing {
			c.Reason = w.Reason
		}
		if i < spelledOut {
			c.Message += fmt.Sprintf("; %s: %s", w.Member.Name, w.Message)
		}
	}
	if more := len(s.Waits) - spelledOut; more > 0 {
		c.Message += fmt.Sprintf("; and %d more", more)
	}
	return c
}

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
