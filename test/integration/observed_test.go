//go:build integration

package integration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// TestObservedAgain: whoever ends a hold, and also where that changes nothing of the spec, the built-in controller says
// soon afterwards that it has observed the generation. There is no controller of ours to help.
func TestObservedAgain(t *testing.T) {
	for _, by := range []string{"release", "the controller", "opting out"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			o := options{Replicas: 1, Meta: liveOnly}
			observedAgain(t, newDeployment(t, o).sandbox, by)
			observedAgain(t, newDaemonSet(t, o).sandbox, by)
			o.Spec = "updateStrategy: {rollingUpdate: {partition: 2147483647}}" // the one that holds
			observedAgain(t, newWorkload(t, o).sandbox, by)
		})
	}
}

func observedAgain[W metav1.Object](t *testing.T, s *sandbox[W], by string) {
	t.Helper()
	isReal := func(w W) bool { return statusOf(w).ObservedGeneration == w.GetGeneration() }
	s.waitFor("the generation to be observed", isReal)
	s.setResources("cpu=110m", "")
	s.waitFor("the hold to be observed, and not to count", func(w W) bool { return held(w) && observed(w) && !isReal(w) })
	switch by {
	case "release":
		if got := s.run("release", s.ref, "--yes"); got.code != 0 {
			t.Fatal(got.stderr)
		}
	case "the controller":
		s.kubectl(append(as, "annotate", s.ref, api.HoldAnnotation+"-")...)
	case "opting out":
		s.kubectl("label", s.ref, enabled+"-")
	}
	s.waitFor("the generation to be observed after it", func(w W) bool { return !held(w) && isReal(w) })
	for _, c := range statusOf(s.get()).Conditions {
		if c.Type == api.ConditionObserved && by != "opting out" { // then the controller takes it away, in its own time
			t.Errorf("%s: the condition still says %s", s.kind, rollout.ParseObserved(c.Message))
		}
	}
}
