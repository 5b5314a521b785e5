//go:build integration

package integration

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/webhook"
)

// waitNotReady waits until a controller is not ready and says this.
func waitNotReady(t *testing.T, process *controller.Process, want string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the controller to say %q", want), func() (bool, string) {
		err := process.Ready(t.Context())
		return strings.Contains(must.Said(err), want), must.Said(err)
	})
}

// assertEditsHeld checks of which kinds the metric says that edits are held.
func assertEditsHeld(t *testing.T, process *controller.Process, want func(kind string) bool) {
	t.Helper()
	eventually(t, "the metrics to say which edits are held", func() (bool, string) { // a dry run without an answer shows nothing
		metrics, err := process.Metrics(t.Context())
		if err != nil {
			return false, err.Error()
		}
		for _, kind := range prerequisite.HeldKinds {
			is := 0
			if want(kind) {
				is = 1
			}
			if line := fmt.Sprintf("inplace_rollout_edits_held{kind=%q} %d", kind, is); !strings.Contains(metrics, line+"\n") {
				return false, "they lack " + line
			}
		}
		return true, ""
	})
}

func everyKind(string) bool { return true }

// interfere serves a webhook in the namespace of the controller, of which nobody there knows, and waits until it is asked.
func interfere(t *testing.T, ask []string, mutate webhook.Mutate) (stop func()) {
	t.Helper()
	var asked atomic.Bool
	end := must.Get(webhook.Start(t.Context(), client, webhook.Options{
		Namespace: controller.Namespace, Again: true, Mutate: func(r *admissionv1.AdmissionRequest, object *unstructured.Unstructured) {
			asked.Store(true)
			mutate(r, object)
		},
	}))(t)
	stop = func() {
		t.Helper()
		must.Do(t, end(t.Context()))
	}
	eventually(t, "the webhook to be asked", func() (bool, string) {
		administer(t, append(ask, "--dry-run=server", "-n", controller.Namespace)...)
		return asked.Load(), ""
	})
	return stop
}

// TestHeldIsUndone: everything is installed, and a webhook of somebody else takes the hold of one kind away. A controller
// finds that out at its start, and when something of its own has changed.
func TestHeldIsUndone(t *testing.T) {
	letsGo(t)
	process := ownController(t, letGo)
	assertEditsHeld(t, process, everyKind)
	for kind, undo := range map[string]struct {
		path  []string
		value any
	}{
		"StatefulSet": {[]string{"spec", "updateStrategy", "rollingUpdate", "partition"}, int64(0)},
		"Deployment":  {[]string{"spec", "paused"}, false},
		"DaemonSet":   {[]string{"spec", "updateStrategy", "type"}, "RollingUpdate"},
	} {
		stop := interfere(t, []string{"create", "deployment", "some", "--image=some"}, func(_ *admissionv1.AdmissionRequest, object *unstructured.Unstructured) {
			if object.GetKind() == kind {
				_ = unstructured.SetNestedField(object.Object, undo.value, undo.path...)
			}
		})
		want := "edits of " + kind + "s are not held: another policy or a mutating webhook removes the hold"
		others := func(other string) bool { return other != kind }
		fresh := must.Get(launch(letGo))(t)
		waitNotReady(t, fresh, want)
		assertEditsHeld(t, fresh, others)
		fresh.Stop()
		administer(t, "annotate", "validatingadmissionpolicy", "inplace-rollout-guard", "--overwrite", "example.com/for="+kind)
		waitNotReady(t, process, want)
		assertEditsHeld(t, process, others)
		stop()
		must.Do(t, process.WaitReady(t.Context()))
		assertEditsHeld(t, process, everyKind)
	}
}

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
