package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// tally is what has happened, in numbers.
type tally struct {
	worlds, violations                   int
	edits, refused, helped               map[string]int
	faults, restarts, absences           map[string]int
	kills, pauses, slowed, flaps         int
	resized, inPlace, withRestarts, noop int
}

func newTally() tally {
	return tally{edits: map[string]int{}, refused: map[string]int{}, helped: map[string]int{}, faults: map[string]int{}, restarts: map[string]int{}, absences: map[string]int{}}
}

// add adds what was counted in one world.
func (t *tally) add(other tally) {
	t.worlds++
	for _, pair := range [][2]map[string]int{{t.edits, other.edits}, {t.refused, other.refused}, {t.helped, other.helped}} {
		for key, n := range pair[1] {
			pair[0][key] += n
		}
	}
	t.resized += other.resized
	t.inPlace += other.inPlace
	t.withRestarts += other.withRestarts
	t.noop += other.noop
}

// count counts in the audit log of one namespace how rollouts have ended: a rollout ends when the
// controller writes that it is complete, having said before that it is not.
func (t *tally) count(events []auditv1.Event) {
	type progress struct {
		begun            bool
		resized, renewed int
	}
	workloads := map[string]*progress{}
	of := func(pod string) []*progress {
		var all []*progress
		for name, p := range workloads {
			if _, of, _ := strings.Cut(name, "/"); strings.HasPrefix(pod, of+"-") {
				all = append(all, p)
			}
		}
		return all
	}
	for _, e := range events {
		if e.ResponseStatus == nil || e.ResponseStatus.Code >= 300 {
			continue
		}
		ours := e.User.Username == controller.User
		switch ref := e.ObjectRef; {
		case ref.Resource == "pods" && ref.Subresource == "resize" && ours:
			t.resized++
			for _, p := range of(ref.Name) {
				p.resized++
			}
		case ref.Resource == "pods" && (e.Verb == "delete" || ref.Subresource == "eviction") && e.ImpersonatedUser == nil:
			for _, p := range of(ref.Name) {
				p.renewed++
			}
		case ref.Subresource == "status" && ofWorkload(ref.Resource) && e.ResponseObject != nil:
			var stored struct {
				Status struct {
					Conditions []metav1.Condition
				}
			}
			if json.Unmarshal(e.ResponseObject.Raw, &stored) != nil {
				continue
			}
			name := ref.Resource + "/" + ref.Name
			p := workloads[name]
			if p == nil {
				p = &progress{}
				workloads[name] = p
			}
			for _, c := range stored.Status.Conditions {
				if c.Type != api.ConditionComplete {
					continue
				}
				complete := c.Status == metav1.ConditionTrue
				switch {
				case !complete:
					p.begun = true
					continue
				case !p.begun:
				case p.renewed > 0:
					t.withRestarts++
				case p.resized > 0:
					t.inPlace++
				default:
					t.noop++
				}
				*p = progress{}
			}
		}
	}
}

// ofWorkload reports whether a resource is one of the kinds.
func ofWorkload(resource string) bool {
	for _, k := range kinds {
		if k.resource == resource {
			return true
		}
	}
	return false
}

// print writes the summary.
func (t *tally) print(w io.Writer, took time.Duration) {
	line := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(w, "%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("worlds", "%d", t.worlds)
	line("edits", "%d (%s)", sum(t.edits), listed(t.edits))
	line("refused", "%d of them (%s)", sum(t.refused), listed(t.refused))
	line("faults", "%d (%s)", sum(t.faults), listed(t.faults))
	line("controllers", "killed %d times, paused %d times; the built-in ones paused %d times", t.kills, t.pauses, t.slowed)
	line("heartbeat", "taken away or brought back %d times", t.flaps)
	line("absences", "%d (%s)", sum(t.absences), listed(t.absences))
	line("restarts", "%d (%s)", sum(t.restarts), listed(t.restarts))
	line("rollouts", "%d completed in place, %d with restarts, %d without a pod to change", t.inPlace, t.withRestarts, t.noop)
	line("helped", "%d that waited for people (%s)", sum(t.helped), listed(t.helped))
	line("pods", "%d resized", t.resized)
	line("violations", "%d", t.violations)
	line("took", "%s", took.Round(time.Second))
}

func sum(counts map[string]int) int {
	total := 0
	for _, n := range counts {
		total += n
	}
	return total
}

func listed(counts map[string]int) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%s %d", key, counts[key]))
	}
	return strings.Join(all, ", ")
}
