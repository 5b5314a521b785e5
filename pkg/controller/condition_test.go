package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
)

// TestBeganByTheirClock: what others have set since the rollout began is told from what they set
// before, however far ahead the clock of the API server is, or behind.
func TestBeganByTheirClock(t *testing.T) {
	template, others := build.Size(t, "requests: {cpu: 100m}"), build.Size(t, "requests: {cpu: 130m}")
	for _, ahead := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		e := newEngine(t, Options{})
		theirs := func(after time.Duration) time.Time { return build.Start.Add(ahead + after) }
		e.w.ManagedFields = []metav1.ManagedFieldsEntry{
			{Manager: "kubectl", Time: ptr.To(metav1.NewTime(theirs(0)))}, {Manager: "cron", Time: ptr.To(metav1.NewTime(theirs(-time.Hour)))}, {Manager: "someone"},
		}
		w, err := e.strip(e.w)
		if err != nil {
			t.Fatal(err)
		}
		progressing := rollout.Plan{Condition: rollout.Condition{Reason: rollout.ReasonProgressing}}
		if _, err := e.writeCondition(t.Context(), w, progressing); err != nil {
			t.Fatal(err)
		}
		for after, overruled := range map[time.Duration]bool{-time.Minute: false, time.Minute: true} {
			pod := build.Pod("web-0", template, build.Resized(others), build.ResizedBy("vpa", theirs(after),
				`{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:requests":{"f:cpu":{}}}}}}}`))
			f := rollout.Facts{Places: capacity.NewPlaces(nil, true, capacity.Limits{}), Now: build.Start.Add(time.Minute), Defaults: policy.Standard}
			target, err := f.Leftover(pod, rollout.Revision{Template: template}, e.kind.condition, true)
			if err != nil || target.Overrules != overruled {
				t.Errorf("the clock is %s ahead: what was set %s after the edit is overruled: %t, %v", ahead, after, target.Overrules, err)
			}
		}
	}
}
