package webhook

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/daemonset"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/pkg/statefulset"
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

// beside are the condition c, and what else stands in messages beside it: details, others, and that it is False.
func beside(c rollout.Condition) []rollout.Condition {
	more, others := c, c
	more.Details += "; 1 of them has the size of its node's class"
	others.Others = "updater"
	unfit := more
	unfit.Complete, unfit.Reason = false, rollout.ReasonInfeasible
	unfit.Details += "; web-1: infeasible on node a"
	return []rollout.Condition{c, more, others, unfit}
}

// while are conditions of rollouts that are not over.
func while(handedOver rollout.Condition) []rollout.Condition {
	step := rollout.Step{Total: 3, Waits: []rollout.Wait{{Reason: rollout.ReasonDeferred, Message: "deferred on node a"}}}
	return []rollout.Condition{step.Condition(), handedOver.Because("1 of 3 pods updated, 3 available"), rollout.Unavailable("3 of 3 pods updated"), rollout.Invalid(fmt.Errorf("no number"))}
}

// checkTakenBack checks what a policy makes of a condition when a built-in controller writes the status.
func checkTakenBack(t *testing.T, p *Policies, resource string, old, written runtime.Object, c rollout.Condition, taken bool) {
	t.Helper()
	raw := func(object runtime.Object) runtime.RawExtension {
		encoded, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: encoded}
	}
	kind := written.GetObjectKind().GroupVersionKind()
	now := admitted(t, p, "inplace-rollout-pending-"+resource, &admissionv1.AdmissionRequest{
		UID: "1", Operation: admissionv1.Update, Namespace: "default", Name: "web", SubResource: "status",
		Kind:      metav1.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind},
		Resource:  metav1.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: resource},
		UserInfo:  authenticationv1.UserInfo{Username: "system:serviceaccount:kube-system:built-in"},
		OldObject: raw(old), Object: raw(written),
	})
	is, _ := conditionsOf(t, now)
	if is == nil {
		t.Fatalf("it is %s", now)
	}
	if is.Pending() != taken || is.Pending() && is.Complete() || !is.Pending() && is.Says() != c {
		t.Errorf("%+v is taken back: %t, want %t; it is %+v\nnow %s", c, is.Pending(), taken, is.Says(), raw(written).Raw)
	}
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
	if err := json.Unmarshal(object, &got); err != nil {
		t.Fatalf("it is %s: %v", object, err)
	}
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

// While a set is held, its status says an older generation than the one that is observed, and the condition Observed says
// which one that is.
func TestObservedGeneration(t *testing.T) {
	p := load(t)
	const builtIn = "system:serviceaccount:kube-system:built-in"
	type says struct{ field, condition int64 }
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
				as := func(field, condition int64, omits bool) string {
					text := fmt.Sprintf(`
apiVersion: apps/v1
kind: %s
metadata: {name: web, namespace: default, generation: 9, labels: {%s: "true"}, annotations: {%s}}
spec: {updateStrategy: {type: RollingUpdate}}
status:
  observedGeneration: %d
  conditions:
  - {type: Other, status: "True"}`, kind, api.EnabledLabel, annotations, field)
					if !omits {
						if condition > 0 {
							text += fmt.Sprintf("\n  - {type: %s, status: %q, reason: Held, message: %s}", api.ConditionObserved, "True", rollout.Observed(condition))
						}
						text += fmt.Sprintf("\n  - {type: %s, status: %q, reason: Deferred, message: web-1}", api.ConditionComplete, "False")
					}
					return text
				}
				request := update(t, "status", cmp.Or(tt.user, builtIn), as(tt.writes, tt.stored.condition, tt.omits))
				request.OldObject = raw(t, as(tt.stored.field, tt.stored.condition, false))
				resource := strings.ToLower(kind) + "s"
				request.Kind.Kind, request.Resource.Resource = kind, resource
				now := admitted(t, p, "inplace-rollout-pending-"+resource, request)
				var got struct {
					Status struct {
						ObservedGeneration int64
						Conditions         []struct{ Type string }
					}
				}
				if err := json.Unmarshal(now, &got); err != nil {
					t.Fatal(err)
				}
				complete, observed := conditionsOf(t, now)
				if is := (says{got.Status.ObservedGeneration, int64(observed)}); is != tt.want {
					t.Errorf("it says %+v, want %+v\n%s", is, tt.want, now)
				}
				if got.Status.Conditions[0].Type != "Other" || (complete == nil || complete.Reason != "Deferred") != (tt.omits && kind != "StatefulSet") {
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
	const builtIn = "system:serviceaccount:kube-system:statefulset-controller"
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
		kind := "StatefulSet"
		as := func(generation int64, condition bool) string {
			text := fmt.Sprintf(`
apiVersion: apps/v1
kind: %s
metadata: {name: web, namespace: default, generation: 9, labels: {%s: "true"}, annotations: {%s: %q}}
spec: {replicas: 3}
status:
  observedGeneration: %d
  readyReplicas: %d
  conditions:
  - {type: %s, status: "False", reason: NotReadyAfterResize, message: web-1}`, kind, api.EnabledLabel, api.HoldAnnotation, tt.hold, generation, tt.ready, api.ConditionComplete)
			if condition && tt.condition > 0 {
				text += fmt.Sprintf("\n  - {type: %s, status: %q, reason: Held, message: %s}", api.ConditionObserved, "True", rollout.Observed(tt.condition))
			}
			return text
		}
		for _, kind = range []string{"StatefulSet", "Deployment"} {
			if tt.hold == "OnDelete" && kind == "Deployment" {
				continue
			}
			request := update(t, "status", tt.user, as(tt.ask, true))
			request.OldObject = raw(t, as(tt.stored, true))
			request.Kind.Kind, request.Resource.Resource = kind, strings.ToLower(kind)+"s"
			now := admitted(t, p, "inplace-rollout-pending-"+strings.ToLower(kind)+"s", request)
			var got struct {
				Status struct{ ObservedGeneration int64 }
			}
			if err := json.Unmarshal(now, &got); err != nil {
				t.Fatal(err)
			}
			if _, observed := conditionsOf(t, now); got.Status.ObservedGeneration != tt.want || observed != 9 {
				t.Errorf("%s, %s: it says %d, and that %d is observed, want %d\n%s", kind, tt.what, got.Status.ObservedGeneration, observed, tt.want, now)
			}
		}
	}
}

// Of a held Deployment that has not moved in time the generation counts as observed, so that whoever waits looks at what its
// conditions say. A newer edit is not late.
func TestObservedLateDeployment(t *testing.T) {
	p := load(t)
	as := func(field, condition int64, late string) string {
		text := fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default, generation: 9, labels: {%s: "true"}, annotations: {%s: "false", %s: "42"}}
status:
  observedGeneration: %d
  updatedReplicas: 2
  conditions:
  - {type: Progressing, status: "False", reason: ProgressDeadlineExceeded, message: "The edit of version %s has made no progress for 5s."}`,
			api.EnabledLabel, api.HoldAnnotation, api.EditAnnotation, field, late)
		if condition > 0 {
			text += fmt.Sprintf("\n  - {type: %s, status: %q, reason: Held, message: %s}", api.ConditionObserved, "True", rollout.Observed(condition))
		}
		return text
	}
	for _, tt := range []struct {
		what, user, late string
		stored           [2]int64 // the field, and the condition
		writes           int64
		want             [2]int64
	}{
		{what: "the edit is late", late: "42", stored: [2]int64{8, 9}, writes: 9, want: [2]int64{9, 9}},
		{what: "it was before", late: "42", stored: [2]int64{9, 9}, writes: 9, want: [2]int64{9, 9}},
		{what: "in our write", user: deploy.User, late: "42", stored: [2]int64{9, 9}, writes: 9, want: [2]int64{9, 9}},
		{what: "in our write, which is fenced", user: deploy.User, late: "42", stored: [2]int64{9, 0}, writes: 9, want: [2]int64{9, 0}},
		{what: "another edit was", late: "41", stored: [2]int64{8, 8}, writes: 9, want: [2]int64{8, 9}},
	} {
		t.Run(tt.what, func(t *testing.T) {
			request := update(t, "status", cmp.Or(tt.user, "system:serviceaccount:kube-system:deployment-controller"), as(tt.writes, tt.stored[1], tt.late))
			request.OldObject = raw(t, as(tt.stored[0], tt.stored[1], tt.late))
			request.Kind.Kind, request.Resource.Resource = "Deployment", "deployments"
			now := admitted(t, p, "inplace-rollout-pending-deployments", request)
			var got appsv1.Deployment
			if err := json.Unmarshal(now, &got); err != nil {
				t.Fatal(err)
			}
			_, observed := conditionsOf(t, now)
			if is := [2]int64{got.Status.ObservedGeneration, int64(observed)}; is != tt.want {
				t.Errorf("it says %v, want %v\n%s", is, tt.want, now)
			}
			if ours := tt.user != ""; (got.Status.UpdatedReplicas == 0) == ours {
				t.Errorf("%d replicas are updated\n%s", got.Status.UpdatedReplicas, now)
			}
		})
	}
}

// The StatefulSet controller writes all conditions as it has seen them. What we have said since then stays, so that none
// of us has a reason to write once more.
func TestConditionOfAnOlderStatus(t *testing.T) {
	p := load(t)
	as := func(message string) string {
		return fmt.Sprintf(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web, namespace: default, generation: 9, labels: {%s: "true"}, annotations: {%s: "0"}}
spec: {updateStrategy: {type: RollingUpdate}}
status:
  observedGeneration: 9
  updateRevision: web-2
  conditions:
  - {type: %s, status: "False", reason: %s, message: waits}
  - {type: Other, status: "True"}`, api.EnabledLabel, api.HoldAnnotation, api.ConditionComplete, message)
	}
	for user, want := range map[string]string{"system:serviceaccount:kube-system:statefulset-controller": "Progressing", deploy.User: "Deferred"} {
		request := update(t, "status", user, as("Deferred"))
		request.OldObject = raw(t, as("Progressing"))
		now := admitted(t, p, "inplace-rollout-pending-statefulsets", request)
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
					written := func(c rollout.Condition) *appsv1.DaemonSet {
						s, stored := set(held, "2", observed, updated), c.Stored(metav1.Time{})
						s.Status.Conditions = []appsv1.DaemonSetCondition{{Type: api.ConditionComplete, Status: stored.Status, Reason: stored.Reason, Message: stored.Message}}
						return s
					}
					old := set(held, "2", 1, 3)
					for _, c := range beside(u.Over) {
						checkTakenBack(t, p, "daemonsets", old, written(c), c, held || observed > 1 && updated < 3 || of != "2")
					}
					for _, c := range while(u.HandedOver) {
						checkTakenBack(t, p, "daemonsets", old, written(c), c, false)
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
						written := func(c rollout.Condition) *appsv1.StatefulSet {
							s, stored := set(held, onDelete, now, revision), c.Stored(metav1.Time{})
							s.Status.Conditions = []appsv1.StatefulSetCondition{{Type: api.ConditionComplete, Status: stored.Status, Reason: stored.Reason, Message: stored.Message}}
							return s
						}
						old := set(held, onDelete, now, "web-1")
						for _, c := range append(beside(u.Over), while(u.HandedOver)...) {
							other := c.Partition > 0 && (onDelete || c.Partition != int(now))
							checkTakenBack(t, p, "statefulsets", old, written(c), c, revision != "web-1" || c.Complete && (held || other))
						}
					}
				}
			}
		}
	}
}

// A Deployment's Complete is taken back where the Deployment controller has seen a newer generation, and pods are not of its
// template. What says that it was not held, may have gone by then.
func TestTakenBackOfDeployments(t *testing.T) {
	p := load(t)
	set := func(observed int64, updated int32) *appsv1.Deployment {
		return &appsv1.Deployment{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			ObjectMeta: opted(false, nil),
			Spec:       appsv1.DeploymentSpec{Replicas: ptr.To(int32(3))},
			Status:     appsv1.DeploymentStatus{ObservedGeneration: observed, Replicas: 3, UpdatedReplicas: updated, AvailableReplicas: 3},
		}
	}
	complete := rollout.Condition{Complete: true, Reason: rollout.ReasonComplete, Details: "3 of 3 pods are of revision 1"}
	stored := complete.Stored(metav1.Time{})
	for _, observed := range []int64{1, 2} {
		for _, updated := range []int32{0, 2, 3} {
			written := set(observed, updated)
			written.Status.Conditions = []appsv1.DeploymentCondition{{Type: api.ConditionComplete, Status: stored.Status, Reason: stored.Reason, Message: stored.Message}}
			checkTakenBack(t, p, "deployments", set(1, 3), written, stored.Says(), observed > 1 && updated < 3)
		}
	}
}
