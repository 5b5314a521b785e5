package rollout_test

import (
	"errors"
	"math/rand"
	"reflect"
	"strings"
	"testing"
	"testing/quick"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// What stands in workloads, and what admission policies match, is this text: releases before and after
// this one read it, too.
var conditions = map[string]rollout.Condition{
	"3 of 3 pods are of revision web-5d4b648cbf":                                    rollout.Over(3, 3, rollout.RevisionNamed("web-5d4b648cbf"), 0),
	"1 of 3 pods are of revision web-5d4b648cbf; partition 2 keeps back the others": rollout.Over(1, 3, rollout.RevisionNamed("web-5d4b648cbf"), 2),
	"0 of 0 pods are of revision ":                                                  rollout.Over(0, 0, rollout.RevisionNamed(""), 0),
	"2 of 2 pods are of template generation 7; 1 of them have the size of their node's class; web-1: infeasible; also resized by updater, vpa": {
		Reason: rollout.ReasonInfeasible, Phase: rollout.PhaseOver, Updated: 2, Total: 2, Version: rollout.TemplateGeneration("7"),
		Details: "; 1 of them have the size of their node's class; web-1: infeasible", Others: "updater, vpa",
	},
	"1 of 3 pods resized": {Reason: rollout.ReasonProgressing, Phase: rollout.PhaseResizing, Updated: 1, Total: 3},
	"1 of 3 pods resized; web-1: deferred on node a: no room; likewise web-0": {
		Reason: rollout.ReasonDeferred, Phase: rollout.PhaseResizing, Updated: 1, Total: 3, Details: "; web-1: deferred on node a: no room; likewise web-0",
	},
	"left to the Deployment controller":                                                           rollout.HandedOver("Deployment", "", ""),
	"left to the StatefulSet controller: 1 of 3 pods updated, 2 available":                        rollout.HandedOver("StatefulSet", "", "1 of 3 pods updated, 2 available"),
	"left to the StatefulSet controller, revision web-1: web-0: infeasible":                       rollout.HandedOver("StatefulSet", rollout.RevisionNamed("web-1"), "").Because("web-0: infeasible"),
	"left to the DaemonSet controller, template generation 12: 1 of 3 pods updated, 2 available":  rollout.HandedOver("DaemonSet", rollout.TemplateGeneration("12"), "1 of 3 pods updated, 2 available"),
	"left to the Deployment controller: pod a is of another template; 0 of 1 pods resized; b: no": rollout.HandedOver("Deployment", "", "pod a is of another template").And(rollout.Condition{Reason: rollout.ReasonInfeasible, Phase: rollout.PhaseResizing, Total: 1, Details: "; b: no"}),
	"waiting for pods to become available: 3 of 3 pods updated, 2 available":                      rollout.Unavailable("3 of 3 pods updated, 2 available"),
	"paused by the user: pod a has the size of an edit that was given up":                         rollout.Paused("pod a has the size of an edit that was given up"),
	"waiting for inplace-rollout to look at this hold":                                            rollout.UnseenHold(),
	"annotation x: it is 1; it must be 2; also resized by updater":                                {Reason: rollout.ReasonInvalidPolicy, Why: "annotation x: it is 1; it must be 2", Others: "updater"},
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

// Each condition is read as it was said.
func TestConditionIsReadAsItWasSaid(t *testing.T) {
	values := func(args []reflect.Value, random *rand.Rand) { args[0] = reflect.ValueOf(anyCondition(random)) }
	read := func(c rollout.Condition) bool {
		stored := c.Stored(metav1.Now())
		return stored.Says() == c
	}
	if err := quick.Check(read, &quick.Config{MaxCount: 20000, Values: values}); err != nil {
		t.Error(err)
	}
}

// anyCondition returns one of those that can be made. What others say, such as kubelets, comes in it as well.
func anyCondition(random *rand.Rand) rollout.Condition {
	words := []string{"web-0", "1", "of", "3", "pods", "pods resized", "are of revision", "controller", "left to the", ": ", ", ", "µ", "paused by the user", "partition 2"}
	some := func(least int) string {
		said := make([]string, least+random.Intn(5))
		for i := range said {
			said[i] = words[random.Intn(len(words))]
		}
		return strings.Join(said, " ")
	}
	versions := []rollout.Version{rollout.RevisionNamed("web-1"), rollout.RevisionNamed(""), rollout.TemplateGeneration("2")}
	kind, version := []string{"StatefulSet", "Deployment", "DaemonSet"}[random.Intn(3)], versions[random.Intn(3)]
	resizing := rollout.Condition{Phase: rollout.PhaseResizing, Updated: random.Intn(9), Total: random.Intn(200)}
	c := []rollout.Condition{
		resizing, rollout.Over(random.Intn(9), random.Intn(200), version, random.Intn(3)), rollout.HandedOver(kind, "", some(0)),
		rollout.HandedOver(kind, version, some(0)), rollout.HandedOver(kind, "", some(0)).And(resizing),
		rollout.Unavailable(some(0)), rollout.Paused(some(0)), rollout.UnseenHold(), rollout.Invalid(errors.New("annotation: " + some(1))),
	}[random.Intn(9)]
	c.Complete, c.Reason = random.Intn(2) == 0, []string{rollout.ReasonProgressing, rollout.ReasonDeferred}[random.Intn(2)]
	for c.Phase != "" && random.Intn(2) == 0 {
		c.Details += "; web-1: " + some(1)
	}
	if random.Intn(3) == 0 {
		c.Others = some(1)
	}
	return c
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
