package rollout_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// What stands in workloads, and what admission policies match, is this text: releases before and after
// this one read it, too.
var conditions = map[string]rollout.Condition{
	"3 of 3 pods are of revision web-5d4b648cbf":                                    rollout.Over(3, 3, rollout.RevisionNamed("web-5d4b648cbf"), 0),
	"1 of 3 pods are of revision web-5d4b648cbf; partition 2 keeps back the others": rollout.Over(1, 3, rollout.RevisionNamed("web-5d4b648cbf"), 2),
	"0 of 0 pods are of revision ":                                                  rollout.Over(0, 0, rollout.RevisionNamed(""), 0),
	"2 of 2 pods are of template generation 7; 1 of them has the size of its node's class; web-1: infeasible; also resized by updater, vpa": {
		Reason: rollout.ReasonInfeasible, Phase: rollout.PhaseOver, Updated: 2, Total: 2, Version: rollout.TemplateGeneration("7"),
		Details: "; 1 of them has the size of its node's class; web-1: infeasible", Others: "updater, vpa",
	},
	"1 of 3 pods resized": {Reason: rollout.ReasonProgressing, Phase: rollout.PhaseResizing, Updated: 1, Total: 3},
	"1 of 3 pods resized; web-1: deferred on node a: no room; likewise web-0": {
		Reason: rollout.ReasonDeferred, Phase: rollout.PhaseResizing, Updated: 1, Total: 3, Details: "; web-1: deferred on node a: no room; likewise web-0",
	},
	"left to the Deployment controller":                                                          rollout.HandedOver("Deployment", "", ""),
	"left to the StatefulSet controller: 1 of 3 pods updated, 2 available":                       rollout.HandedOver("StatefulSet", "", "1 of 3 pods updated, 2 available"),
	"left to the StatefulSet controller, revision web-1: web-0: infeasible":                      rollout.HandedOver("StatefulSet", rollout.RevisionNamed("web-1"), "").Because("web-0: infeasible"),
	"left to the DaemonSet controller, template generation 12: 1 of 3 pods updated, 2 available": rollout.HandedOver("DaemonSet", rollout.TemplateGeneration("12"), "1 of 3 pods updated, 2 available"),
	"left to the Deployment controller: pod a has another template; 0 of 1 pods resized; b: no":  rollout.HandedOver("Deployment", "", "pod a has another template").And(rollout.Condition{Reason: rollout.ReasonInfeasible, Phase: rollout.PhaseResizing, Total: 1, Details: "; b: no"}),
	"waiting for pods to become available: 3 of 3 pods updated, 2 available":                     rollout.Unavailable("3 of 3 pods updated, 2 available"),
	"paused by the user: pod a has the size of an abandoned edit":                                rollout.Paused("pod a has the size of an abandoned edit"),
	"waiting for inplace-rollout to look at this hold":                                           rollout.UnseenHold(),
	"annotation x: it is 1; it must be 2; also resized by updater":                               {Reason: rollout.ReasonInvalidPolicy, Why: "annotation x: it is 1; it must be 2", Others: "updater"},
	"canary of revision web-1: 1 of 3 pods resized; the others wait until it is promoted": {
		Reason: rollout.ReasonProgressing, Phase: rollout.PhaseCanary, Updated: 1, Total: 3, Version: rollout.RevisionNamed("web-1"), Details: "; the others wait until it is promoted",
	},
	"stopped at 1 of 3 pods of template generation 2: web-2 failed: container app was OOMKilled after 4s; web-1: infeasible": {
		Reason: rollout.ReasonResizeFailed, Phase: rollout.PhaseStopped, Updated: 1, Total: 3, Version: rollout.TemplateGeneration("2"),
		Why: "web-2 failed: container app was OOMKilled after 4s", Details: "; web-1: infeasible",
	},
	"reverted edit 7, 3 of 3 pods have their size from before: web-2 failed the check cpu-throttling: throttled in 83 %; also resized by updater": {
		Reason: rollout.ReasonReverted, Phase: rollout.PhaseReverted, Updated: 3, Total: 3, Version: "edit 7",
		Why: "web-2 failed the check cpu-throttling: throttled in 83 %", Others: "updater",
	},
	"": {},
}

func TestMessage(t *testing.T) {
	for want, c := range conditions {
		if got := said(t, c); got != want {
			t.Errorf("%+v says\n%q, want\n%q", c, got, want)
		}
	}
	if got, want := rollout.Invalid(errors.New("no number")), (rollout.Condition{Reason: rollout.ReasonInvalidPolicy, Why: "no number"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// said returns the text of a condition, and fails the test where that is read as another one.
func said(t *testing.T, c rollout.Condition) string {
	t.Helper()
	message := c.Message()
	if got := rollout.Parse(c.Complete, c.Reason, message); got != c {
		t.Errorf("%q is read as\n%+v, want\n%+v", message, got, c)
	}
	return message
}

// FuzzParse: whoever has written a condition, its text stays the same.
func FuzzParse(f *testing.F) {
	for message := range conditions {
		f.Add(message)
	}
	for _, message := range []string{
		"; also resized by ", "x; also resized by a; also resized by ", "01 of 2 pods resized", "1 of 2 pods resized, or so", "1 of 2 pods resized;",
		"-1 of 2 pods resized", "9999999999999999999 of 2 pods resized", "all pods are of revision web-a", "1 of 2 pods are of revision a; partition 0 keeps back the others",
		"1 of 2 pods are of revision a; partition x", "left to the", "left to the X controllers: ", "left to the  controller, : ", "paused by the user: ", "paused by the users",
		"canary of : 1 of 2 pods resized", "canary of revision a: 1 of 2 pods", "canary of revision a: b: 1 of 2 pods resized", "stopped at 1 of 2 pods of ", "stopped at 1 pods of a: b",
		"stopped at -1 of 2 pods of a: ", "reverted a, 1 of 2 pods have their size from before: ", "reverted a, b, 1 of 2 pods have their size from before", "reverted , 01 of 2 pods",
	} {
		f.Add(message)
	}
	f.Fuzz(func(t *testing.T, message string) {
		stored := rollout.StoredCondition{Status: corev1.ConditionTrue, Reason: "r", Message: message}
		c := stored.Says()
		if got := c.Message(); got != message || !c.Complete || c.Reason != "r" {
			t.Errorf("%q is read as %+v, which says %q", message, c, got)
		}
		if again := rollout.Parse(true, "r", c.Message()); again != c {
			t.Errorf("%q is read as %+v, and then as %+v", message, c, again)
		}
	})
}
