package webhook

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/daemonset"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/pkg/statefulset"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// opted is what a workload has that is opted in, and held if held is set.
func opted(held bool, annotations map[string]string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: "web", Namespace: "default", Generation: 9, Labels: map[string]string{api.EnabledLabel: "true"}, Annotations: map[string]string{}}
	for name, value := range annotations {
		m.Annotations[name] = value
	}
	if held {
		m.Annotations[api.HoldAnnotation] = "0"
	}
	return m
}

// beside are the condition c, and what else stands beside it: details, and that it is False.
func beside(c rollout.Condition) []rollout.Condition {
	more := c
	more.Details += "; 1 of them has the size of its node's class"
	unfit := more
	unfit.Complete, unfit.Reason = false, judge.ReasonInfeasible
	unfit.Details += "; web-1: infeasible on node a"
	return []rollout.Condition{c, more, unfit}
}

// while are conditions of rollouts that are not over.
func while(handedOver rollout.Condition) []rollout.Condition {
	step := rollout.Step{Total: 3, Waits: []rollout.Wait{{Reason: judge.ReasonDeferred, Message: "deferred on node a"}}}
	return []rollout.Condition{step.Condition(), handedOver.Because("1 of 3 pods updated, 3 available"), rollout.Unavailable("3 of 3 pods updated"), rollout.Invalid(fmt.Errorf("no number"))}
}

// checkTakenBack checks what a policy makes of a condition that stands in the status that a built-in controller writes.
func checkTakenBack(t *testing.T, p *Policies, kind string, old, written runtime.Object, c rollout.Condition, taken bool) {
	t.Helper()
	before, u, stored := build.Stored(t, old), build.Stored(t, written), c.Stored(metav1.Time{})
	condition := map[string]any{"type": api.ConditionComplete, "status": string(stored.Status), "reason": stored.Reason, "message": stored.Message}
	must.Do(t, unstructured.SetNestedSlice(u.Object, []any{condition}, "status", "conditions"))
	if of := stored.Of.String(); of != "" {
		for _, o := range []*unstructured.Unstructured{before, u} {
			must.Do(t, unstructured.SetNestedField(o.Object, of, "metadata", "annotations", api.SaidOfAnnotation))
		}
	}
	now := stores(t, p, builtIn, kind, encoded(t, before), encoded(t, u))
	is, _ := conditionsOf(t, now)
	if is == nil {
		t.Fatalf("it is %s", now)
	}
	if is.Pending() != taken || is.Pending() && is.Complete() || !is.Pending() && is.Message != stored.Message {
		t.Errorf("%+v is taken back: %t, want %t; it is %+v\nnow %s", c, is.Pending(), taken, is, encoded(t, u))
	}
}

func encoded(t *testing.T, object any) string {
	t.Helper()
	text := must.Get(json.Marshal(object))(t)
	return string(text)
}

// conditionsOf returns what the conditions of an object say; nil and 0 if it has none.
func conditionsOf(t *testing.T, object []byte) (complete *rollout.StoredCondition, observed rollout.Observed) {
	t.Helper()
	var got struct {
		Status struct {
			Conditions []struct {
				Type string
				rollout.StoredCondition
			}
		}
	}
	must.Do(t, json.Unmarshal(object, &got))
	for i, c := range got.Status.Conditions {
		switch c.Type {
		case api.ConditionComplete:
			complete = &got.Status.Conditions[i].StoredCondition
		case api.ConditionObserved:
			observed = rollout.ParseObserved(c.Message)
		}
	}
	return complete, observed
}

const builtIn = "system:serviceaccount:kube-system:built-in"

// withStatus is a workload of a kind in generation 9, opted in, in YAML.
func withStatus(kind, annotations, spec, status string) string {
	return fmt.Sprintf("{apiVersion: apps/v1, kind: %s, metadata: {name: web, namespace: default, generation: 9, labels: {%s: %q}, annotations: {%s}}, spec: %s, status: {%s}}",
		kind, api.EnabledLabel, "true", annotations, spec, status)
}

// observedAs is the condition Observed in YAML, with a comma before it; empty for 0.
func observedAs(generation int64) string {
	if generation == 0 {
		return ""
	}
	return fmt.Sprintf(", {type: %s, status: %q, reason: Held, message: %s}", api.ConditionObserved, "True", rollout.Observed(generation))
}

// incomplete is the condition Complete in YAML, with a comma before it.
func incomplete(reason string) string {
	return fmt.Sprintf(", {type: %s, status: %q, reason: %s, message: web-1}", api.ConditionComplete, "False", reason)
}

// stores returns what is stored when a user writes the status of a workload.
func stores(t *testing.T, p *Policies, user, kind, old, written string) []byte {
	t.Helper()
	request := update(t, "status", user, written)
	request.OldObject = raw(t, old)
	resource := strings.ToLower(kind) + "s"
	request.Kind.Kind, request.Resource.Resource = kind, resource
	return admitted(t, p, "inplace-rollout-status", request)
}

// generations are what a status says of the generation that is observed: in its field, and in the condition.
type generations struct{ field, condition int64 }

func generationsOf(t *testing.T, object []byte) generations {
	t.Helper()
	var got struct {
		Status struct{ ObservedGeneration int64 }
	}
	must.Do(t, json.Unmarshal(object, &got))
	_, observed := conditionsOf(t, object)
	return generations{got.Status.ObservedGeneration, int64(observed)}
}

// While a set is held, its status says an older generation than the one that is observed, and the condition Observed says
// which one that is.
func TestObservedGeneration(t *testing.T) {
	p := load(t)
	type says = generations
	for _, tt := range []struct {
		what   string
		hold   string // empty: none
		user   string // empty: a built-in controller
		stored says
		writes int64
		omits  bool // the conditions of others, as the StatefulSet controller did before 1.37
		want   says
	}{
		{what: "at rest", stored: says{8, 0}, writes: 9, want: says{9, 0}},
		{what: "held", hold: "0", stored: says{8, 0}, writes: 9, want: says{8, 9}},
		{what: "held, and observed before", hold: "0", stored: says{7, 8}, writes: 9, want: says{8, 9}},
		{what: "held, and said before", hold: "0", stored: says{8, 9}, writes: 9, want: says{8, 9}},
		{what: "held, and the writer omits it", hold: "0", stored: says{8, 9}, writes: 9, omits: true, want: says{8, 9}},
		{what: "marked under OnDelete", hold: "OnDelete", stored: says{8, 0}, writes: 9, want: says{8, 9}},
		{what: "a write of more than there is", hold: "0", stored: says{8, 0}, writes: 99, want: says{8, 9}},
		{what: "a write of an older version", hold: "0", stored: says{6, 7}, writes: 8, want: says{8, 8}},
		{what: "a write of an older version than was observed", hold: "0", stored: says{8, 9}, writes: 7, want: says{7, 7}},
		{what: "a write that leaves it as it was", hold: "0", stored: says{8, 9}, writes: 8, want: says{8, 9}},
		{what: "likewise, by a writer that omits conditions", hold: "0", stored: says{8, 9}, writes: 8, omits: true, want: says{8, 9}},
		{what: "likewise, of a hold that is not observed", hold: "0", stored: says{8, 0}, writes: 8, want: says{8, 8}},
		{what: "a condition from long ago", hold: "0", stored: says{9, 3}, writes: 9, want: says{8, 9}},
		{what: "the end of a hold", stored: says{8, 9}, writes: 9, want: says{9, 0}},
		{what: "the end of a hold, seen by an older write", stored: says{7, 8}, writes: 8, want: says{8, 0}},
		{what: "our own write, of a hold without a new generation", hold: "0", user: deploy.User, stored: says{9, 0}, writes: 9, want: says{8, 9}},
		{what: "our own write, of a hold that is not observed", hold: "0", user: deploy.User, stored: says{8, 0}, writes: 8, want: says{8, 0}},
		{what: "our own write of a hold that is", hold: "0", user: deploy.User, stored: says{8, 9}, writes: 8, want: says{8, 9}},
		{what: "our own write at rest", user: deploy.User, stored: says{9, 0}, writes: 9, want: says{9, 0}},
	} {
		for _, kind := range []string{"StatefulSet", "Deployment", "DaemonSet"} {
			t.Run(kind+" "+tt.what, func(t *testing.T) {
				annotations := ""
				if tt.hold != "" {
					annotations = fmt.Sprintf("%s: %q", api.HoldAnnotation, tt.hold)
				}
				as := func(field int64, ours string) string {
					return withStatus(kind, annotations, "{updateStrategy: {type: RollingUpdate}}", fmt.Sprintf(`observedGeneration: %d, conditions: [{type: Other, status: "True"}%s]`, field, ours))
				}
				ours := observedAs(tt.stored.condition) + incomplete("Deferred")
				old := as(tt.stored.field, ours)
				if tt.omits {
					ours = ""
				}
				now := stores(t, p, cmp.Or(tt.user, builtIn), kind, old, as(tt.writes, ours))
				if is := generationsOf(t, now); is != tt.want {
					t.Errorf("it says %+v, want %+v\n%s", is, tt.want, now)
				}
				complete, _ := conditionsOf(t, now)
				if !strings.Contains(string(now), `"conditions":[{"status":"True","type":"Other"}`) || (complete == nil || complete.Reason != "Deferred") != (tt.omits && kind != "StatefulSet") {
					t.Errorf("the other conditions are\n%s", now)
				}
			})
		}
	}
}

// While pods of a held StatefulSet or Deployment are not Ready, our controller may have its generation seen: then it is, until the write that
// brings the last Ready pod, or the next edit.
func TestShownGeneration(t *testing.T) {
	p := load(t)
	for _, tt := range []struct {
		what                   string
		user                   string
		hold                   string
		stored, condition, ask int64
		ready                  int
		want                   int64
	}{
		{what: "we show it", user: deploy.User, hold: "0", stored: 8, condition: 9, ask: 9, ready: 2, want: 9},
		{what: "we show what is not observed", user: deploy.User, hold: "0", stored: 8, condition: 8, ask: 9, ready: 2, want: 8},
		{what: "all are Ready by now", user: deploy.User, hold: "0", stored: 8, condition: 9, ask: 9, ready: 3, want: 8},
		{what: "another write of ours", user: deploy.User, hold: "0", stored: 9, condition: 9, ask: 9, ready: 2, want: 9},
		{what: "it stays", user: builtIn, hold: "0", stored: 9, condition: 9, ask: 9, ready: 2, want: 9},
		{what: "the last pod becomes Ready", user: builtIn, hold: "0", stored: 9, condition: 9, ask: 9, ready: 3, want: 8},
		{what: "nobody has shown it", user: builtIn, hold: "0", stored: 8, condition: 9, ask: 9, ready: 2, want: 8},
		{what: "an edit has come", user: builtIn, hold: "0", stored: 8, condition: 8, ask: 9, ready: 2, want: 8},
		{what: "a hold without a new generation", user: builtIn, hold: "0", stored: 9, condition: 0, ask: 9, ready: 2, want: 8},
		{what: "an operator under OnDelete would delete pods", user: deploy.User, hold: "OnDelete", stored: 8, condition: 9, ask: 9, ready: 2, want: 8},
	} {
		for _, kind := range []string{"StatefulSet", "Deployment"} {
			if tt.hold == "OnDelete" && kind == "Deployment" {
				continue
			}
			as := func(generation int64) string {
				return withStatus(kind, fmt.Sprintf("%s: %q", api.HoldAnnotation, tt.hold), "{replicas: 3}",
					fmt.Sprintf("observedGeneration: %d, readyReplicas: %d, conditions: [%s]", generation, tt.ready, strings.TrimPrefix(incomplete("NotReadyAfterResize")+observedAs(tt.condition), ", ")))
			}
			now := stores(t, p, tt.user, kind, as(tt.stored), as(tt.ask))
			if is := generationsOf(t, now); is != (generations{tt.want, 9}) {
				t.Errorf("%s, %s: it says %+v, want %d, and that 9 is observed\n%s", kind, tt.what, is, tt.want, now)
			}
		}
	}
}

// Of a held Deployment that has not moved in time the generation counts as observed, so that whoever waits looks at what its
// conditions say. A newer edit is not late.
func TestObservedLateDeployment(t *testing.T) {
	p := load(t)
	for _, tt := range []struct {
		what, user, late string
		stored           generations
		want             generations
	}{
		{what: "the edit is late", late: "42", stored: generations{8, 9}, want: generations{9, 9}},
		{what: "it was before", late: "42", stored: generations{9, 9}, want: generations{9, 9}},
		{what: "in our write", user: deploy.User, late: "42", stored: generations{9, 9}, want: generations{9, 9}},
		{what: "in our write, which is fenced", user: deploy.User, late: "42", stored: generations{9, 0}, want: generations{9, 0}},
		{what: "another edit was", late: "41", stored: generations{8, 8}, want: generations{8, 9}},
	} {
		as := func(field int64) string {
			return withStatus("Deployment", fmt.Sprintf(`%s: "false", %s: "42", %s: "Late;edit %s;"`, api.HoldAnnotation, api.EditAnnotation, api.SaidOfAnnotation, tt.late), "{}", fmt.Sprintf(
				`observedGeneration: %d, updatedReplicas: 2, conditions: [{type: Progressing, status: "False", reason: ProgressDeadlineExceeded}%s]`, field, observedAs(tt.stored.condition)))
		}
		now := stores(t, p, cmp.Or(tt.user, builtIn), "Deployment", as(tt.stored.field), as(9))
		if is := generationsOf(t, now); is != tt.want {
			t.Errorf("%s: it says %v, want %v\n%s", tt.what, is, tt.want, now)
		}
		var got appsv1.Deployment
		must.Do(t, json.Unmarshal(now, &got))
		if ours := tt.user != ""; (got.Status.UpdatedReplicas == 0) == ours {
			t.Errorf("%s: %d replicas are updated\n%s", tt.what, got.Status.UpdatedReplicas, now)
		}
	}
}

// The StatefulSet controller writes all conditions as it has seen them. What we have said since then stays, so that none
// of us has a reason to write once more.
func TestConditionOfAnOlderStatus(t *testing.T) {
	p := load(t)
	as := func(reason string) string {
		return withStatus("StatefulSet", api.HoldAnnotation+`: "0"`, "{updateStrategy: {type: RollingUpdate}}",
			fmt.Sprintf(`observedGeneration: 9, updateRevision: web-2, conditions: [{type: Other, status: "True"}%s]`, incomplete(reason)))
	}
	for user, want := range map[string]string{builtIn: "Progressing", deploy.User: "Deferred"} {
		now := stores(t, p, user, "StatefulSet", as("Progressing"), as("Deferred"))
		if complete, _ := conditionsOf(t, now); complete == nil || complete.Reason != want {
			t.Errorf("%s: the condition is %+v, want %s\n%s", user, complete, want, now)
		}
	}
}

// What a DaemonSet's condition says is taken back where it says of pods what is not true of this template.
func TestTakenBackOfDaemonSets(t *testing.T) {
	p := load(t)
	set := func(held bool, generation string, observed int64, updated int32) *appsv1.DaemonSet {
		return &appsv1.DaemonSet{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
			ObjectMeta: opted(held, map[string]string{appsv1.DeprecatedTemplateGeneration: generation}),
			Spec:       appsv1.DaemonSetSpec{UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType}},
			Status:     appsv1.DaemonSetStatus{ObservedGeneration: observed, UpdatedNumberScheduled: updated, CurrentNumberScheduled: 3, DesiredNumberScheduled: 3, NumberAvailable: 3},
		}
	}
	for _, of := range []string{"1", "2", "12", "21"} {
		u := daemonset.Kind{}.BuiltInStatus(set(false, of, 1, 3))
		if u.Condition != u.Over {
			t.Fatalf("it says %+v", u.Condition)
		}
		for _, held := range []bool{false, true} {
			for _, updated := range []int32{2, 3} {
				for _, observed := range []int64{1, 2} {
					old, written := set(held, "2", 1, 3), set(held, "2", observed, updated)
					for _, c := range beside(u.Over) {
						checkTakenBack(t, p, "DaemonSet", old, written, c, held || observed > 1 && updated < 3 || of != "2")
					}
					for _, c := range while(u.HandedOver) {
						checkTakenBack(t, p, "DaemonSet", old, written, c, false)
					}
				}
			}
		}
	}
}

// What a StatefulSet's condition says is taken back with each revision. Of this one, that is Complete, and
// the set is held, or it is of another partition than there is now.
func TestTakenBackOfStatefulSets(t *testing.T) {
	p := load(t)
	set := func(held, onDelete bool, partition int32, revision string) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"},
			ObjectMeta: opted(held, nil),
			Spec: appsv1.StatefulSetSpec{Replicas: ptr.To(int32(3)), UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
				Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: &partition},
			}},
			Status: appsv1.StatefulSetStatus{Replicas: 3, UpdatedReplicas: 3 - partition, AvailableReplicas: 3, CurrentRevision: revision, UpdateRevision: revision},
		}
		if onDelete {
			s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
		}
		return s
	}
	for _, partition := range []int32{0, 1} {
		u := statefulset.Kind{}.BuiltInStatus(set(false, false, partition, "web-1"))
		if u.Condition != u.Over || u.Over.Partition != int(partition) {
			t.Fatalf("it says %+v", u.Condition)
		}
		for _, held := range []bool{false, true} {
			for _, onDelete := range []bool{false, true} {
				for _, revision := range []string{"web-1", "web-2"} {
					for _, now := range []int32{0, 1, 11} {
						old, written := set(held, onDelete, now, "web-1"), set(held, onDelete, now, revision)
						for _, c := range append(beside(u.Over), while(u.HandedOver)...) {
							other := c.Partition > 0 && (onDelete || c.Partition != int(now))
							checkTakenBack(t, p, "StatefulSet", old, written, c, revision != "web-1" || c.Complete && (held || other))
						}
					}
				}
			}
		}
	}
}

// A Deployment's Complete is taken back where the Deployment controller has seen a newer generation, and pods are not of its
// template. What says that it was not held, may have gone by then; of a scaling after that edit it says nothing.
func TestTakenBackOfDeployments(t *testing.T) {
	p := load(t)
	set := func(observed int64, updated int32, annotations map[string]string) *appsv1.Deployment {
		return &appsv1.Deployment{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			ObjectMeta: opted(false, annotations),
			Spec:       appsv1.DeploymentSpec{Replicas: ptr.To(int32(3))},
			Status:     appsv1.DeploymentStatus{ObservedGeneration: observed, Replicas: 3, UpdatedReplicas: updated, AvailableReplicas: 3},
		}
	}
	for _, observed := range []int64{1, 2} {
		for _, updated := range []int32{0, 2, 3} {
			for mark, takenBack := range map[string]bool{"": false, "1": false, "2": true} { // the generation of an edit that was not held
				annotations := map[string]string{}
				if mark != "" {
					annotations[api.NotHeldAnnotation] = mark
				}
				checkTakenBack(t, p, "Deployment", set(1, 3, annotations), set(observed, updated, annotations), rollout.Over("", 0), observed > 1 && (updated < 3 || takenBack))
			}
		}
	}
}
