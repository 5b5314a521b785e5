package simulated

import (
	"fmt"
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Does fails the test where there is no plan, or it does another thing than is wanted.
func Does(t *testing.T, p rollout.Plan, err error, got, want string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("does %q, want %q; condition %+v", got, want, p.Condition)
	}
}

// Says fails the test where the condition that the plan justifies says anything else.
func Says(t *testing.T, p rollout.Plan, message string, complete bool) {
	t.Helper()
	if p.Condition.Message() != message || p.Condition.Complete != complete {
		t.Errorf("says %+v, want %q, complete %t", p.Condition, message, complete)
	}
}

// Read returns a plan as it is. It panics if the condition is read as another one than was meant.
func Read(p rollout.Plan, err error) (rollout.Plan, error) {
	means := p.Condition
	if says := rollout.Parse(means.Complete, means.Reason, means.Message()); says != means {
		panic(fmt.Sprintf("what means %+v is read as %+v", means, says))
	}
	return p, err
}

// InWords names what a plan does: what others do not name, and those writes of one kind together
// that follow each other.
func InWords(p rollout.Plan, others func(w rollout.Write, say func(does string, names ...string))) string {
	var parts []string
	say := func(does string, names ...string) {
		if last := len(parts) - 1; last >= 0 && strings.HasPrefix(parts[last], does+" ") {
			parts[last] += " " + strings.Join(names, " ")
			return
		}
		parts = append(parts, strings.TrimSpace(does+" "+strings.Join(names, " ")))
	}
	for _, write := range p.Writes {
		switch w := write.(type) {
		case rollout.ResizePod:
			say("resize", w.Member.Name)
		case rollout.MarkPod:
			say("mark", w.Member.Name)
		case rollout.DeletePod:
			say("delete", w.Restart.Member.Name)
		case rollout.Release:
			say("release")
			if w.HandOver != "" {
				say("hand over:", w.HandOver)
			}
		default:
			others(write, say)
		}
	}
	return strings.Join(parts, ", ")
}
