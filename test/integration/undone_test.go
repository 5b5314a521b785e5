//go:build around

package integration

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// undoesAnnotation is what a policy does that takes the hold's annotation away.
const undoesAnnotation = `(!object.metadata.?annotations[?"inplace-rollout.io/hold"].hasValue() ? [] :
	[JSONPatch{op: "remove", path: "/metadata/annotations/" + jsonpatch.escapeKey("inplace-rollout.io/hold")}])`

// TestPolicyUndoesTheHold: policies have no order among themselves. So one of somebody else that undoes the hold,
// and is asked again, has the last word in some writes and not in others. Either the write is refused
// then, or nothing rolls; no pod is lost. No controller is there to mend anything. A Deployment or a DaemonSet
// whose hold has lost its annotation alone looks as if its user had paused it, or wanted OnDelete. It alone
// proves that of policies: it tries a dozen orders of them, and each takes effect after a second.
func TestPolicyUndoesTheHold(t *testing.T) {
	if way := controller.Hold(cp); way != prerequisite.Policy {
		t.Skipf("policies of somebody else have no turn beside ours where %s holds", way)
	}
	t.Run("StatefulSet", func(t *testing.T) {
		t.Parallel()
		newWorkload(t, options{}).testUndone(t, `[JSONPatch{op: "add", path: "/spec/updateStrategy/rollingUpdate/partition", value: 0}]`, func(s *appsv1.StatefulSet) bool {
			return held(s) && ptr.Deref(s.Spec.UpdateStrategy.RollingUpdate.Partition, 0) == math.MaxInt32
		})
	})
	t.Run("Deployment", func(t *testing.T) {
		t.Parallel()
		newDeployment(t, options{}).testUndone(t, `[JSONPatch{op: "add", path: "/spec/paused", value: false}]`, func(d *appsv1.Deployment) bool { return d.Spec.Paused })
	})
	t.Run("DaemonSet", func(t *testing.T) {
		t.Parallel()
		newDaemonSet(t, options{}).testUndone(t, `[JSONPatch{op: "add", path: "/spec/updateStrategy/type", value: "RollingUpdate"}]`, func(d *appsv1.DaemonSet) bool {
			return d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
		})
	})
}

// testUndone edits again and again, beside a policy that undoes the hold's annotation, its value, or both.
func (s *sandbox[W]) testUndone(t *testing.T, undoesValue string, holds func(W) bool) {
	t.Helper()
	before := s.uids()
	ways := []string{undoesAnnotation, undoesValue, undoesAnnotation + " + " + undoesValue}
	update := s.undoingPolicy(t, ways[0])
	eventually(t, "the other policy to be in force", func() (bool, string) {
		out := s.kubectl("annotate", s.ref, "a=b", "--dry-run=server", "--output=yaml")
		return strings.Contains(out, "example.com/undoes"), out
	})
	refused, accepted := 0, 0
	for i := range 12 {
		// API servers order policies anew when one of them changes.
		update(ways[i%len(ways)])
		time.Sleep(time.Second)
		err := s.try(t, "set", "resources", s.ref, "--containers=app", fmt.Sprintf("--requests=cpu=%dm", 110+i))
		got := s.get()
		switch {
		case err != nil && strings.Contains(err.Error(), "inplace-rollout-guard"):
			refused++
		case err != nil:
			t.Errorf("edit %d: %v", i, err)
		case !holds(got):
			t.Errorf("edit %d is neither refused, nor does anything hold it: %v", i, got)
		default:
			accepted++
		}
		if now := s.uids(); fmt.Sprint(now) != fmt.Sprint(before) {
			t.Fatalf("after edit %d the pods were %v and are %v", i, before, now)
		}
	}
	t.Logf("%d writes were refused, and %d held", refused, accepted)
	time.Sleep(3 * time.Second) // for which a built-in controller would have been let loose
	if now := s.uids(); fmt.Sprint(now) != fmt.Sprint(before) {
		t.Errorf("the pods were %v and are %v", before, now)
	}
}

// undoingPolicy is one of somebody else that does this to whatever workload is written in the
// sandbox, and marks it. It returns what has it do something else.
func (s *sandbox[W]) undoingPolicy(t *testing.T, does string) (update func(does string)) {
	t.Helper()
	expression := func(does string) string {
		return does + ` + [JSONPatch{op: "add", path: "/metadata/labels/example.com~1undoes", value: "yes"}]`
	}
	name, round := s.namespace+"-undoes", 0
	otherPolicy(t, s.namespace, name, expression(does), func(*admissionv1.MutatingAdmissionPolicySpec) {})
	return func(does string) {
		t.Helper()
		round++
		patch := fmt.Sprintf(`{"metadata": {"labels": {"round": "%d"}}, "spec": {"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": %q}}]}}`, round, expression(does))
		must.Get(client.AdmissionregistrationV1().MutatingAdmissionPolicies().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(t)
	}
}

// otherPolicy is one that some other program has for the workloads of a namespace, whenever they are updated.
func otherPolicy(t *testing.T, namespace, name, mutation string, change func(*admissionv1.MutatingAdmissionPolicySpec)) {
	t.Helper()
	policies, bindings := client.AdmissionregistrationV1().MutatingAdmissionPolicies(), client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	policy := &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"statefulsets", "deployments", "daemonsets"}},
				}}},
			},
			Mutations:     []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: mutation}}},
			FailurePolicy: ptr.To(admissionv1.Fail), ReinvocationPolicy: admissionv1.IfNeededReinvocationPolicy,
		},
	}
	change(&policy.Spec)
	must.Get(policies.Create(t.Context(), policy, metav1.CreateOptions{}))(t)
	must.Get(bindings.Create(t.Context(), &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		if err := errors.Join(
			bindings.Delete(context.Background(), name, metav1.DeleteOptions{}),
			policies.Delete(context.Background(), name, metav1.DeleteOptions{}),
		); err != nil {
			t.Error(err)
		}
	})
}
