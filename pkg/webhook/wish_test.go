package webhook_test

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/daemonset"
	"github.com/inplace-rollout/inplace-rollout/pkg/deployment"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/statefulset"
	"github.com/inplace-rollout/inplace-rollout/pkg/webhook"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// notHeld is a workload without the annotation.
const notHeld = "not held"

// row is a workload, what Go says that its user wants, and what the controller would write itself if no
// policy brought that back.
type row struct {
	kind       string
	workload   runtime.Object
	hold       string
	wish       any
	field      []string // that holds it
	unrestored func(t *testing.T, written *unstructured.Unstructured) map[string]any
}

func meta(hold string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: "default", Name: "web", ResourceVersion: "7", Generation: 2, Labels: map[string]string{api.EnabledLabel: "true"}, Annotations: map[string]string{}}
	if hold != notHeld {
		m.Annotations[api.HoldAnnotation] = hold
	}
	return m
}

func as[W any](t *testing.T, u *unstructured.Unstructured) *W {
	t.Helper()
	w := new(W)
	must.Do(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, w))
	return w
}

func statefulSetRows() (rows []row) {
	for _, hold := range []string{notHeld, "", "0", "3", "007", "000000000000003", "2147483647", "2147483648", "4294967296", "99999999999", "-1", "+3", " 3", "3.0", "0x3", "1_0", "nonsense"} {
		for _, inForce := range []int32{0, 2, 3, 5, math.MaxInt32 - 1, math.MaxInt32} {
			set := &appsv1.StatefulSet{ObjectMeta: meta(hold)}
			set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{
				Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To(inForce)},
			}
			rows = append(rows, row{"StatefulSet", set, hold, int64(policy.WishedPartition(set, int(inForce))), []string{"spec", "updateStrategy", "rollingUpdate", "partition"},
				func(t *testing.T, written *unstructured.Unstructured) map[string]any {
					return statefulset.Kind{}.Unrestored(set, as[appsv1.StatefulSet](t, written))
				}})
		}
	}
	return rows
}

func deploymentRows() (rows []row) {
	for _, hold := range []string{notHeld, "", "true", "false", "True", "nonsense"} {
		for _, paused := range []bool{true, false} {
			d := &appsv1.Deployment{ObjectMeta: meta(hold), Spec: appsv1.DeploymentSpec{Paused: paused}}
			rows = append(rows, row{"Deployment", d, hold, policy.WishedPaused(d, paused), []string{"spec", "paused"},
				func(t *testing.T, written *unstructured.Unstructured) map[string]any {
					return deployment.Kind{}.Unrestored(&deployment.Deployment{Deployment: d}, &deployment.Deployment{Deployment: as[appsv1.Deployment](t, written)})
				}})
		}
	}
	return rows
}

func daemonSetRows() (rows []row) {
	for _, hold := range []string{notHeld, "", "RollingUpdate", "OnDelete", "nonsense"} {
		for _, strategy := range []appsv1.DaemonSetUpdateStrategyType{appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType} {
			for _, limits := range []*appsv1.RollingUpdateDaemonSet{nil, {}} {
				set := &appsv1.DaemonSet{ObjectMeta: meta(hold)}
				set.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: strategy, RollingUpdate: limits}
				rows = append(rows, row{"DaemonSet", set, hold, string(policy.WishedStrategy(set, strategy)), []string{"spec", "updateStrategy", "type"},
					func(t *testing.T, written *unstructured.Unstructured) map[string]any {
						if hold == notHeld {
							return nil // nobody asks then
						}
						return daemonset.Kind{}.Unrestored(set, as[appsv1.DaemonSet](t, written))
					}})
			}
		}
	}
	return rows
}

// TestWish: of each workload, held or not, Go and the policy say the same: what its user wants comes back
// when the controller lets go, and it is the same where the policy is gone and the controller writes it.
func TestWish(t *testing.T) {
	policies := load(t, deploy.User)
	for _, rows := range [][]row{statefulSetRows(), deploymentRows(), daemonSetRows()} {
		for _, r := range rows {
			fields := must.Get(runtime.DefaultUnstructuredConverter.ToUnstructured(r.workload))(t)
			old := &unstructured.Unstructured{Object: fields}
			old.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: r.kind})
			must.Do(t, unstructured.SetNestedSlice(old.Object, []any{map[string]any{"name": "app"}}, "spec", "template", "spec", "containers"))
			before, _, _ := unstructured.NestedFieldNoCopy(old.Object, r.field...)
			what := fmt.Sprintf("%s, hold %q, with %v %v", r.kind, r.hold, r.field[len(r.field)-1], before)
			asks := old.DeepCopy()
			asks.SetAnnotations(map[string]string{})

			after := admit(t, policies, webhook.Write{Object: asks, Old: old, User: deploy.User, FieldManager: api.FieldManager})
			if policy.Held(after) {
				t.Errorf("%s: the policy keeps the hold", what)
			}
			if got := valueOf(after, r); got != r.wish {
				t.Errorf("%s: the policy brings back %v, and Go says %v", what, got, r.wish)
			}
			if fields := r.unrestored(t, after); fields["spec"] != nil {
				t.Errorf("%s: after the policy, the controller wants %v", what, fields)
			}
			if got := valueOf(merged(t, asks, r.unrestored(t, asks)), r); got != r.wish {
				t.Errorf("%s: without the policy, the controller brings back %v, and Go says %v", what, got, r.wish)
			}
		}
	}
}

// valueOf is the field that holds; what is left out is what Kubernetes takes it for.
func valueOf(u *unstructured.Unstructured, r row) any {
	value, has, _ := unstructured.NestedFieldNoCopy(u.Object, r.field...)
	if !has && r.kind == "Deployment" {
		return false
	}
	return value
}

// merged is u after a merge patch of these fields.
func merged(t *testing.T, u *unstructured.Unstructured, fields map[string]any) *unstructured.Unstructured {
	t.Helper()
	if fields == nil {
		return u
	}
	patch := must.Get(json.Marshal(fields))(t)
	after := &unstructured.Unstructured{}
	must.Do(t, after.UnmarshalJSON(must.Get(jsonpatch.MergePatch(must.Get(u.MarshalJSON())(t), patch))(t)))
	return after
}
