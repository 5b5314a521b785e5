package webhook

import (
	"encoding/json"
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/daemonset"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/pkg/statefulset"
)

// opted is what a workload has that is opted in, and held if held is set.
func opted(held bool, annotations map[string]string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: "web", Namespace: "default", Labels: map[string]string{api.EnabledLabel: "true"}, Annotations: map[string]string{}}
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
	more.Details += "; 1 of them have the size of their node's class"
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
	var got struct {
		Status struct{ Conditions []rollout.StoredCondition }
	}
	if err := json.Unmarshal(now, &got); err != nil || len(got.Status.Conditions) != 1 {
		t.Fatalf("it is %s: %v", now, err)
	}
	is := &got.Status.Conditions[0]
	if is.Pending() != taken || is.Pending() && is.Complete() || !is.Pending() && is.Says() != c {
		t.Errorf("%+v is taken back: %t, want %t; it is %+v\nnow %s", c, is.Pending(), taken, is.Says(), raw(written).Raw)
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
// the set is held, or has no partition any more.
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
					written := func(c rollout.Condition) *appsv1.StatefulSet {
						s, stored := set(held, onDelete, 0, revision), c.Stored(metav1.Time{})
						s.Status.Conditions = []appsv1.StatefulSetCondition{{Type: api.ConditionComplete, Status: stored.Status, Reason: stored.Reason, Message: stored.Message}}
						return s
					}
					old := set(held, onDelete, 0, "web-1")
					for _, c := range append(beside(u.Over), while(u.HandedOver)...) {
						checkTakenBack(t, p, "statefulsets", old, written(c), c, revision != "web-1" || c.Complete && (held || onDelete && c.Partition > 0))
					}
				}
			}
		}
	}
}
