package rollout_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// What stands in workloads is this text. Of guarded rollouts, admission policies match it, and releases before and after
// this one read it.
var conditions = map[string]rollout.Condition{
	"all pods are of revision web-5d4b648cbf":                                                     rollout.Over(rollout.RevisionNamed("web-5d4b648cbf"), 0),
	"the pods from 2 on are of revision web-5d4b648cbf; partition 2 keeps the others as they are": rollout.Over(rollout.RevisionNamed("web-5d4b648cbf"), 2),
	"all pods are of the newest revision":                                                         rollout.Over("", 0),
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
		must.Equal(t, c.Message(), want, "what %+v says", c)
	}
	must.Equal(t, rollout.Paused("2 pods").Stored(metav1.Time{}).Message, "paused by the user: 2 pods. `kubectl rollout resume` has it go on", "what is stored")
	must.Equal(t, rollout.Invalid(errors.New("no number")), rollout.Condition{Reason: judge.ReasonInvalidPolicy, Why: "no number"}, "what is invalid")
}

// What is written of a condition for machines is read as what it was, unless admission has taken the condition back.
func TestSpoken(t *testing.T) {
	late, held := rollout.Over("", 0), rollout.Condition{Phase: rollout.PhaseResizing, Version: rollout.RevisionNamed("web-1")}
	late.Late = rollout.EditNamed("42")
	classes := rollout.Over(rollout.TemplateGeneration("4"), 0)
	classes.Details = "; 1 of them has the size of its node's class"
	spokenBy := func(c *rollout.StoredCondition, said string) rollout.Spoken {
		w := &metav1.ObjectMeta{Annotations: map[string]string{api.SaidOfAnnotation: said}}
		return rollout.CompleteOf(w, func(*metav1.ObjectMeta, string) *rollout.StoredCondition { return c }).SpeaksOf()
	}
	for want, c := range map[string]rollout.Condition{
		"Over;revision web-1;":               rollout.Over(rollout.RevisionNamed("web-1"), 0),
		"Over;revision web-1;2":              rollout.Over(rollout.RevisionNamed("web-1"), 2),
		"Over;template generation 4;classes": classes,
		"HandedOver;template generation 4;":  rollout.HandedOver("DaemonSet", rollout.TemplateGeneration("4"), "1 of 2"),
		"Late;edit 42;":                      late,
		"":                                   held,
	} {
		must.Equal(t, c.Of().String(), want, "what %+v speaks of", c)
		stored, pending := c.Stored(metav1.Time{}), &rollout.StoredCondition{Reason: judge.ReasonPending}
		of := stored.Of
		stored.Of = rollout.Spoken{}
		if got := spokenBy(&stored, want); got != of || spokenBy(pending, want) != (rollout.Spoken{}) {
			t.Errorf("%q is read as %+v, want %+v", want, got, of)
		}
		must.Equal(t, of.Over(rollout.Over(c.Version, c.Partition)), c.Phase == rollout.PhaseOver && c.Late == "", "%+v says that it is over", of)
	}
	if spokenBy(nil, "Over;revision web-1;") != (rollout.Spoken{}) {
		t.Error("a condition that is not there speaks")
	}
}

// TestUnplaceableMembers: a pod of 100m cpu is to become one of 150m by a restart. The only node
// is not open to the pod, or it is, and had no room at the last look.
func TestUnplaceableMembers(t *testing.T) {
	older, newer := build.Size(t, "requests: {cpu: 100m}"), build.Size(t, "requests: {cpu: 150m}")
	closed := judge.Refusal{Reason: "no node that is Ready matches the node selector, affinity and tolerations of the pod", Kind: judge.ReasonNoNodeFits}
	later := build.Start.Add(time.Second)
	for _, tt := range []struct {
		name   string
		closed bool
		change func(*judge.Place)
		full   string // the revision whose size was found to have no room
		until  time.Time
		want   judge.Refusal
	}{
		{name: "it may not run there", closed: true, want: closed},
		{name: "it may not run there, which was full, too", closed: true, full: "b", until: later, want: closed},
		{name: "the node was full", full: "b", until: later, want: judge.Refusal{Reason: "full", Until: later}},
		{name: "the node was full long ago", full: "b", until: build.Start},
		{name: "the node was full for another edit", full: "a", until: later},
		{name: "it has its size", closed: true, change: func(p *judge.Place) { p.Updated = true }},
		{name: "another template is handed over", closed: true, change: func(p *judge.Place) { p.Differs = "image" }},
		{name: "it is not there", closed: true, change: func(p *judge.Place) { p.Pod, p.Target = nil, resize.Target{} }},
		{name: "it goes", closed: true, change: func(p *judge.Place) { build.Terminating(p.Pod) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := build.Pod("web-0", older)
			target := must.Get(resize.For(pod, older, newer))(t)
			place := judge.Place{Name: pod.Name, Pod: pod, Target: target}
			if tt.change != nil {
				tt.change(&place)
			}
			size := rollout.Revision{Name: tt.full}.Size(target.Changes)
			if tt.want.Reason == "full" {
				tt.want.Of = size
			}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: corev1.NodeSpec{Unschedulable: tt.closed}}
			node.Status.Allocatable = pod.Spec.Containers[0].Resources.Requests.DeepCopy()
			node.Status.Allocatable[corev1.ResourceCPU] = *target.Changes[0].To
			facts := rollout.Facts{
				Places: capacity.NewPlaces([]*corev1.Node{node}, false, capacity.Limits{}), Defaults: policy.Standard, Now: build.Start,
				Notes: &judge.PodNotes{Foreseen: true},
			}
			facts.Notes.Note(pod.UID).Room = &judge.Refused{Refusal: judge.Refusal{Of: size, Reason: "full", Until: tt.until}}
			must.Equal(t, facts.Members([]judge.Place{place}, rollout.Revision{Name: "b", Template: newer})[0].Unplaceable, tt.want, "why it is unplaceable")
		})
	}
}

// TestSilentKubeletByOurClock: a kubelet that says no generation has looked at a size two minutes
// after that was first seen, whatever the API server's clock says.
func TestSilentKubeletByOurClock(t *testing.T) {
	older, newer := build.Size(t, "requests: {cpu: 100m}"), build.Size(t, "requests: {cpu: 150m}")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	node.Status.NodeInfo.KubeletVersion = "v1.33.5"
	for _, ahead := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		pod := build.Pod("web-0", older, build.Resized(newer), build.ResizedAt(build.Start.Add(ahead)))
		pod.Status.ObservedGeneration = 0
		notes := &judge.PodNotes{}
		for _, tt := range []struct {
			after time.Duration
			want  resize.State
		}{{0, resize.InProgress}, {119 * time.Second, resize.InProgress}, {2 * time.Minute, resize.Actuated}} {
			f := rollout.Facts{Now: build.Start.Add(tt.after), Places: capacity.NewPlaces([]*corev1.Node{node}, false, capacity.Limits{}), Notes: notes}
			target := must.Get(f.Target(pod, older, newer))(t)
			if state, says := target.Observe(); state != tt.want {
				t.Errorf("the clock is %s ahead: after %s it is %s: %s", ahead, tt.after, state, says)
			}
			notes.Look(f.Now, pod)
		}
	}
}

// TestUnsupportedMember: what the node does not support counts as refused.
func TestUnsupportedMember(t *testing.T) {
	older, newer := build.Size(t, "limits: {memory: 2Gi}"), build.Size(t, "limits: {memory: 1Gi}")
	node, pod := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, build.Pod("web-0", older)
	node.Status.NodeInfo.KubeletVersion = "v1.33.5"
	target := must.Get(resize.For(pod, older, newer))(t)
	f := rollout.Facts{Places: capacity.NewPlaces([]*corev1.Node{node}, false, capacity.Limits{}), Defaults: policy.Standard, Now: build.Start, Notes: &judge.PodNotes{}}
	place := judge.Place{Name: pod.Name, Pod: pod, Target: target}
	must.Equal(t, f.Members([]judge.Place{place}, rollout.Revision{Name: "b", Template: newer})[0].Refusal.Kind, judge.ReasonUnsupportedByNode, "the refusal")
}

// TestRested: a workload was at rest until the edit that admission says of that nobody has looked at it.
func TestRested(t *testing.T) {
	for _, tt := range []struct {
		status corev1.ConditionStatus
		reason string
		of     string
		want   bool
	}{
		{corev1.ConditionTrue, judge.ReasonComplete, "Over;revision web-1;0", true},
		{corev1.ConditionFalse, judge.ReasonPending, "Over;revision web-1;0", true},
		{corev1.ConditionFalse, judge.ReasonPending, "Canary;revision web-1;", false},
		{corev1.ConditionFalse, judge.ReasonPending, "", false},
		{corev1.ConditionFalse, judge.ReasonProgressing, "Over;revision web-1;0", false},
	} {
		w := &metav1.ObjectMeta{Annotations: map[string]string{api.SaidOfAnnotation: tt.of}}
		must.Equal(t, rollout.Rested(w, &rollout.StoredCondition{Status: tt.status, Reason: tt.reason}), tt.want, "%+v", tt)
	}
	if rollout.Rested(&metav1.ObjectMeta{}, nil) {
		t.Error("what has no condition is at rest")
	}
}

// TestTold: what to do next follows the message, whichever way that ends.
func TestTold(t *testing.T) {
	c := rollout.Condition{Reason: judge.ReasonInfeasible, Why: "no room", Details: "; as an API server says."}
	if got := c.Told(); !strings.HasPrefix(got, "no room; as an API server says. Choose another size, or allow restarts") {
		t.Error(got)
	}
}
