//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// TestHeldWithoutNewGeneration: a partition that is lowered makes no new generation where ordinals do not start at 0. Then
// our own write of the condition has the generation count as not observed.
func TestHeldWithoutNewGeneration(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Spec: "ordinals: {start: 5}\nupdateStrategy: {rollingUpdate: {partition: 2}}"})
	w.waitComplete()
	w.setResources("cpu=150m", "")
	w.waitComplete()
	w.annotatePod("web-5", simDeferred)
	before := w.get().Generation
	w.patch(`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`)
	if after := w.get(); after.Generation != before || !held(after) {
		t.Fatalf("generation %d is %d now, and held: %t", before, after.Generation, held(after))
	}
	w.waitCondition("Deferred", "web-5")
	if err := w.try(t, "rollout", "status", w.ref, "--timeout=1s"); err == nil {
		t.Error("kubectl rollout status has ended, and the rollout is held")
	}
	status := w.rolloutStatus()
	w.annotatePod("web-5", simAccepted)
	<-status.done
	if status.err != nil || held(w.get()) {
		t.Errorf("kubectl rollout status ended with %v; held: %t", status.err, held(w.get()))
	}
	w.waitComplete()
}

// TestObservedAgain: whoever ends a hold, and also where that changes nothing of the spec, the built-in controller says
// soon afterwards that it has observed the generation. There is no controller of ours to help.
func TestObservedAgain(t *testing.T) {
	t.Run("StatefulSet", func(t *testing.T) {
		all := newWorkload(t, options{Replicas: 2, Meta: liveOnly})
		// The partition that holds is the one that the user wants.
		none := newWorkload(t, options{Replicas: 2, Meta: liveOnly, Spec: "updateStrategy: {rollingUpdate: {partition: 2147483647}}"})
		for what, w := range map[string]*workload{"its partition": all, "the partition that holds": none} {
			observedAgain(t, w.sandbox, w == none, what, nil) // under OnDelete it is marked: TestHandOver
		}
	})
	t.Run("Deployment", func(t *testing.T) {
		d := newDeployment(t, options{Replicas: 2, Meta: liveOnly})
		observedAgain(t, d.sandbox, false, "its pause", nil)
	})
	t.Run("DaemonSet", func(t *testing.T) {
		d := newDaemonSet(t, options{Replicas: 1, Meta: liveOnly})
		observedAgain(t, d.sandbox, false, "its strategy", func() { d.patch(`{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`) })
	})
}

func observedAgain[W metav1.Object](t *testing.T, s *sandbox[W], same bool, what string, onDelete func()) {
	t.Helper()
	admin := []string{"--as", controller.User, "--as-group", "system:masters"}
	release := func() {
		if got := s.run("release", s.ref, "--yes"); got.code != 0 {
			t.Fatal(got.stderr)
		}
	}
	type end struct {
		by string
		do func()
	}
	ends := []end{
		{"release", release},
		{"the controller", func() { s.kubectl(append(admin, "annotate", s.ref, api.HoldAnnotation+"-")...) }},
		{"opting out", func() { s.kubectl("label", s.ref, enabled+"-") }},
	}
	if onDelete != nil {
		ends = append(ends, end{"OnDelete by its user", onDelete})
	}
	spec := map[string]any{}
	for i, end := range ends {
		// What is there for the next: opted in, not held, of its own strategy.
		if spec["updateStrategy"] == nil {
			spec["updateStrategy"] = untyped(t, s.kind, s.get()).Object["spec"].(map[string]any)["updateStrategy"]
		}
		restore, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{enabled: "true"}}, "spec": spec})
		if err != nil {
			t.Fatal(err)
		}
		s.kubectl("patch", s.ref, "--type=merge", "--patch", string(restore))
		s.letGo()
		isReal := func(w W) bool {
			return statusOf(w).ObservedGeneration == w.GetGeneration()
		}
		s.waitFor("the generation to be observed", isReal)

		s.setResources(fmt.Sprintf("cpu=%dm", 110+i), "")
		s.waitFor("the hold to be observed, and not to count", func(w W) bool { return held(w) && observed(w) && !isReal(w) })
		before := s.get().GetGeneration()
		end.do()
		s.waitFor("the generation to be observed after "+end.by, func(w W) bool { return !held(w) && isReal(w) })
		if after := s.get().GetGeneration(); same && after != before {
			t.Errorf("%s, %s: generation %d is %d: the test proves less than it says", what, end.by, before, after)
		}
		for _, c := range statusOf(s.get()).Conditions {
			if c.Type == api.ConditionObserved && end.by != "opting out" { // then the controller takes it away, in its own time
				t.Errorf("%s, %s: the condition still says %s", what, end.by, rollout.ParseObserved(c.Message))
			}
		}
	}
}
