package rollout_test

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// What stands in workloads is this text. Of guarded rollouts, admission policies match it, and releases before and after
// this one read it.
var conditions = map[string]rollout.Condition{
	"all pods are of revision web-5d4b648cbf":                                              rollout.Over(rollout.RevisionNamed("web-5d4b648cbf"), 0),
	"the pods from 2 on are of revision web-5d4b648cbf; partition 2 keeps back the others": rollout.Over(rollout.RevisionNamed("web-5d4b648cbf"), 2),
	"all pods are of the newest revision":                                                  rollout.Over("", 0),
	"all pods are of template generation 7; 1 of them has the size of its node's class; web-1: infeasible; not in the pods, so not sized: istio-proxy; also resized by updater, vpa": {
		Reason: judge.ReasonInfeasible, Phase: rollout.PhaseOver, Version: rollout.TemplateGeneration("7"),
		Details: "; 1 of them has the size of its node's class; web-1: infeasible", Absent: "istio-proxy", Others: "updater, vpa",
	},
	"1 of 3 pods resized": {Reason: judge.ReasonProgressing, Phase: rollout.PhaseResizing, Updated: 1, Total: 3},
	"1 of 3 pods resized; web-1: deferred on node a: no room; likewise web-0": {
		Reason: judge.ReasonDeferred, Phase: rollout.PhaseResizing, Updated: 1, Total: 3, Details: "; web-1: deferred on node a: no room; likewise web-0",
	},
	"left to the Deployment controller":                                                          rollout.HandedOver("Deployment", "", ""),
	"left to the StatefulSet controller: 1 of 3 pods updated, 2 available":                       rollout.HandedOver("StatefulSet", "", "1 of 3 pods updated, 2 available"),
	"left to the StatefulSet controller, revision web-1: web-0: infeasible":                      rollout.HandedOver("StatefulSet", rollout.RevisionNamed("web-1"), "").Because("web-0: infeasible"),
	"left to the DaemonSet controller, template generation 12: 1 of 3 pods updated, 2 available": rollout.HandedOver("DaemonSet", rollout.TemplateGeneration("12"), "1 of 3 pods updated, 2 available"),
	"left to the Deployment controller: pod a has another template; 0 of 1 pods resized; b: no":  rollout.HandedOver("Deployment", "", "pod a has another template").And(rollout.Condition{Reason: judge.ReasonInfeasible, Phase: rollout.PhaseResizing, Total: 1, Details: "; b: no"}),
	"waiting for pods to become available: 3 of 3 pods updated, 2 available":                     rollout.Unavailable("3 of 3 pods updated, 2 available"),
	"paused by the user: pod a has the size of an abandoned edit":                                rollout.Paused("pod a has the size of an abandoned edit"),
	"waiting for inplace-rollout to look at this hold":                                           rollout.UnseenHold(),
	"annotation x: it is 1; it must be 2; also resized by updater":                               {Reason: judge.ReasonInvalidPolicy, Why: "annotation x: it is 1; it must be 2", Others: "updater"},
	"canary of revision web-1: 1 of 3 pods resized; the others wait until it is promoted": {
		Reason: judge.ReasonProgressing, Phase: rollout.PhaseCanary, Updated: 1, Total: 3, Version: rollout.RevisionNamed("web-1"), Details: "; the others wait until it is promoted",
	},
	"stopped at 1 of 3 pods of template generation 2: web-2 failed: container app was OOMKilled after 4s; web-1: infeasible": {
		Reason: judge.ReasonResizeFailed, Phase: rollout.PhaseStopped, Updated: 1, Total: 3, Version: rollout.TemplateGeneration("2"),
		Why: "web-2 failed: container app was OOMKilled after 4s", Details: "; web-1: infeasible",
	},
	"reverted edit 7, 3 of 3 pods have their size from before: web-2 failed the check cpu-throttling: throttled in 83 %; also resized by updater": {
		Reason: judge.ReasonReverted, Phase: rollout.PhaseReverted, Updated: 3, Total: 3, Version: "edit 7",
		Why: "web-2 failed the check cpu-throttling: throttled in 83 %", Details: "; also resized by updater",
	},
	"": {},
}

func TestMessage(t *testing.T) {
	for want, c := range conditions {
		if got := c.Message(); got != want {
			t.Errorf("%+v says\n%q, want\n%q", c, got, want)
		}
	}
	if got, want := rollout.Paused("2 pods").Stored(metav1.Time{}).Message, "paused by the user: 2 pods. `kubectl rollout resume` has it go on"; got != want {
		t.Errorf("stored is %q, want %q", got, want)
	}
	if got, want := rollout.Invalid(errors.New("no number")), (rollout.Condition{Reason: judge.ReasonInvalidPolicy, Why: "no number"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// What is written of a condition for machines is read as what it was, unless admission has taken the condition back.
func TestSpoken(t *testing.T) {
	late, held := rollout.Over("", 0), rollout.Condition{Phase: rollout.PhaseResizing, Version: rollout.RevisionNamed("web-1")}
	late.Late = rollout.EditNamed("42")
	classes := rollout.Over(rollout.TemplateGeneration("4"), 0)
	classes.Details = "; 1 of them has the size of its node's class"
	for want, c := range map[string]rollout.Condition{
		"Over;revision web-1;":               rollout.Over(rollout.RevisionNamed("web-1"), 0),
		"Over;revision web-1;2":              rollout.Over(rollout.RevisionNamed("web-1"), 2),
		"Over;template generation 4;classes": classes,
		"HandedOver;template generation 4;":  rollout.HandedOver("DaemonSet", rollout.TemplateGeneration("4"), "1 of 2"),
		"Late;edit 42;":                      late,
		"":                                   held,
	} {
		if got := c.Of().String(); got != want {
			t.Errorf("%+v speaks of %q, want %q", c, got, want)
		}
		stored, pending := c.Stored(metav1.Time{}), &rollout.StoredCondition{Reason: judge.ReasonPending}
		of := stored.Of
		stored.Of = rollout.Spoken{}
		all := map[string]string{api.SaidOfAnnotation: want}
		if got := stored.SpeakingOf(all).SpeaksOf(); got != of || pending.SpeakingOf(all).SpeaksOf() != (rollout.Spoken{}) {
			t.Errorf("%q is read as %+v, want %+v", want, got, of)
		}
		if got, want := of.Over(rollout.Over(c.Version, c.Partition)), c.Phase == rollout.PhaseOver && c.Late == ""; got != want {
			t.Errorf("%+v says that it is over: %t", of, got)
		}
	}
	if (*rollout.StoredCondition)(nil).SpeakingOf(map[string]string{api.SaidOfAnnotation: "Over;revision web-1;"}).SpeaksOf() != (rollout.Spoken{}) {
		t.Error("a condition that is not there speaks")
	}
}
