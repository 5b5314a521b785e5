//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestSpelling: who spells the same size otherwise restarts nothing. The StatefulSet controller
// makes a new revision of that, though it is the same for the API server. What CEL takes for equal
// depends on whether a policy with a condition was asked before ours, so there are many.
func TestSpelling(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Resources: "{requests: {cpu: 100m, memory: 128Mi}, limits: {cpu: 200m, memory: 256Mi}}"})
	w.waitComplete()
	const others = 8
	for i := range others {
		otherPolicy(t, w.namespace, i)
	}
	eventually(t, "the other policies to be in force", func() (bool, string) {
		out := w.kubectl("patch", w.ref, "--patch", `{"spec": {"replicas": 101}}`, "--dry-run=server", "--output=yaml")
		return strings.Count(out, "example.com/large-") >= others, out
	})
	uids := w.uids()
	for _, limit := range []string{"268435456", "256Mi"} {
		before := w.get().Status.UpdateRevision
		w.patch(fmt.Sprintf(`{"spec": {"template": {"spec": {"containers": [{"name": "app", "resources": {"limits": {"memory": %q}}}]}}}}`, limit))
		w.waitFor("a new revision to be rolled out", func(set *appsv1.StatefulSet) bool {
			status, _, _ := complete(set)
			return set.Status.UpdateRevision != before && status == corev1.ConditionTrue && !held(set)
		})
		if now := w.uids(); !maps.Equal(uids, now) {
			t.Fatalf("with memory %s the pods were %v and are %v", limit, uids, now)
		}
	}
}

// otherPolicy is one that some other program has in the cluster.
func otherPolicy(t *testing.T, namespace string, n int) {
	t.Helper()
	name := fmt.Sprintf("%s-%d", namespace, n)
	policies, bindings := client.AdmissionregistrationV1().MutatingAdmissionPolicies(), client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	if _, err := policies.Create(t.Context(), &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"statefulsets"}},
				}}},
			},
			MatchConditions: []admissionv1.MatchCondition{{Name: "is-large", Expression: "object.spec.replicas > 100"}},
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{
					Expression: fmt.Sprintf(`[JSONPatch{op: "add", path: "/metadata/labels/example.com~1large-%d", value: ""}]`, n),
				},
			}},
			FailurePolicy: ptr.To(admissionv1.Ignore), ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := bindings.Create(t.Context(), &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(
			bindings.Delete(context.Background(), name, metav1.DeleteOptions{}),
			policies.Delete(context.Background(), name, metav1.DeleteOptions{}),
		); err != nil {
			t.Error(err)
		}
	})
}
