package simulated

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// Does fails the test where there is no plan, or it does another thing than is wanted.
func Does(t *testing.T, p rollout.Plan, err error, got, want string) {
	t.Helper()
	must.Do(t, err)
	must.Equal(t, got, want, "what it does, with the condition %+v", p.Condition)
}

// Says fails the test where the condition that the plan justifies says anything else.
func Says(t *testing.T, p rollout.Plan, message string, complete bool) {
	t.Helper()
	if p.Condition.Message() != message || p.Condition.Complete != complete {
		t.Errorf("says %+v, want %q, complete %t", p.Condition, message, complete)
	}
}

// Read returns a plan as it is. It panics if what the condition speaks of is read as something else.
func Read(p rollout.Plan, err error) (rollout.Plan, error) {
	of := p.Condition.Of()
	w := &metav1.ObjectMeta{Annotations: map[string]string{api.SaidOfAnnotation: of.String()}}
	said := rollout.CompleteOf(w, func(*metav1.ObjectMeta, string) *rollout.StoredCondition { return &rollout.StoredCondition{} })
	if said.Of != of {
		panic(fmt.Sprintf("%+v is read as %+v", of, said.Of))
	}
	return p, err
}

// Planned returns the plan that a workload with these annotations gets once the record of its guarded rollout is written.
func Planned(f rollout.Facts, o rollout.Observation, annotations map[string]string) (p rollout.Plan, err error) {
	for range 3 {
		p, err = Read(f.Plan(o, annotations))
		if err != nil || len(p.Writes) != 1 {
			return p, err
		}
		keep, is := p.Writes[0].(rollout.Keep)
		if !is || keep.After == nil {
			return p, err
		}
		annotations = maps.Clone(annotations)
		annotations[api.RolloutAnnotation] = keep.After.String()
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

// Looks checks after which time a plan looks again, where that is not 0; and fails the test where it does anything but what these words
// say, or has a container restart, and does not look at the API server before that; or looks in vain.
func Looks(t *testing.T, p rollout.Plan, after time.Duration, does string, harmless ...string) {
	t.Helper()
	if after != 0 && p.RequeueAfter != after {
		t.Errorf("looks again after %s, want %s", p.RequeueAfter, after)
	}
	serious := slices.ContainsFunc(strings.Split(does, ", "), func(one string) bool {
		return one != "" && !slices.ContainsFunc(harmless, func(word string) bool { return strings.HasPrefix(one, word) })
	})
	serious = serious || slices.ContainsFunc(p.Resize, func(m judge.Member) bool { return m.Target.Restarts() })
	must.Equal(t, p.NeedsLiveRead(), serious, "it looks at the API server first")
}
