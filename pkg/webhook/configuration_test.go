package webhook

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	registrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/golden"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// The configuration says of each policy what the API server has to know of it.
func TestConfiguration(t *testing.T) {
	hooks := prerequisite.Webhooks()
	for i := range hooks {
		hooks[i].ClientConfig = service
	}
	compare(t, "webhook", `# One entry for each MutatingAdmissionPolicy of deploy/cluster. Do not edit:
# go test ./pkg/webhook -update
#
# The webhook fills in the CAs and the paths itself.
`, hooks)
}

// onlyAnnotates is what says in a condition of the policy that pods of the namespace are only told.
var onlyAnnotates = regexp.MustCompile(`\s*\|\|\s*params\.\?data\[\?"annotate"\]\.hasValue\(\)\s*$`)

// TestInitialResourcesConfiguration does so for the bindings of the policy of deploy/initial-resources.
// What their parameters say, the API server cannot know; but namespaces in which pods are only told have
// an entry of their own.
func TestInitialResourcesConfiguration(t *testing.T) {
	objects := must.Get(deploy.Objects(deploy.InitialResources, deploy.User))(t)
	var policy *registrationv1.MutatingAdmissionPolicy
	var hooks []registrationv1.MutatingWebhook
	for _, object := range objects {
		deploy.SetDefaults(object)
		switch o := object.(type) {
		case *registrationv1.MutatingAdmissionPolicy:
			policy = o
		case *registrationv1.MutatingAdmissionPolicyBinding:
			match := o.Spec.MatchResources
			if len(match.NamespaceSelector.MatchExpressions) == 0 {
				hooks = append(hooks, estimating(t, policy, o.Name, *match, false))
				continue
			}
			for _, mode := range match.NamespaceSelector.MatchExpressions[0].Values {
				match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{api.InitialResourcesLabel: mode}}
				hooks = append(hooks, estimating(t, policy, o.Name+"-"+mode, *match, mode == api.InitialResourcesAnnotate))
			}
		}
	}
	compare(t, "webhook-initial-resources", `# Entries beside those of overlays/webhook, for the policy and the bindings of deploy/initial-resources:
# pods of opted-in namespaces, and those that are opted in themselves. Do not edit:
# go test ./pkg/webhook -update
`, hooks)
}

// estimating is the webhook in place of a binding. Pods do not wait for it long.
func estimating(t *testing.T, policy *registrationv1.MutatingAdmissionPolicy, name string, match registrationv1.MatchResources, annotates bool) registrationv1.MutatingWebhook {
	t.Helper()
	hook := registrationv1.MutatingWebhook{
		Name: name + domain, ClientConfig: service, FailurePolicy: policy.Spec.FailurePolicy, MatchPolicy: policy.Spec.MatchConstraints.MatchPolicy,
		NamespaceSelector: match.NamespaceSelector, ObjectSelector: match.ObjectSelector,
		ReinvocationPolicy: &policy.Spec.ReinvocationPolicy, SideEffects: ptr.To(registrationv1.SideEffectClassNone), TimeoutSeconds: ptr.To[int32](1),
		AdmissionReviewVersions: []string{"v1"},
	}
	for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
		rule.Scope = ptr.To(registrationv1.NamespacedScope)
		hook.Rules = append(hook.Rules, rule.RuleWithOperations)
	}
	for _, c := range policy.Spec.MatchConditions {
		if c.Name == "table-of-the-estimator" || annotates && onlyAnnotates.MatchString(c.Expression) {
			continue
		}
		c.Expression = onlyAnnotates.ReplaceAllString(c.Expression, "\n")
		if strings.Contains(c.Expression, "params") {
			t.Errorf("the condition %s has parameters, which webhooks have not: %s", c.Name, c.Expression)
		}
		hook.MatchConditions = append(hook.MatchConditions, c)
	}
	return hook
}

// service is where the webhook is. The path is not for anybody who reads the manifest: the webhook writes it.
var service = registrationv1.WebhookClientConfig{Service: &registrationv1.ServiceReference{Namespace: "inplace-rollout", Name: "inplace-rollout-webhook"}}

// compare compares the configuration.yaml of an overlay with what it should be, or writes it.
func compare(t *testing.T, overlay, comment string, hooks []registrationv1.MutatingWebhook) {
	t.Helper()
	encoded := must.Get(yaml.Marshal(registrationv1.MutatingWebhookConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingWebhookConfiguration"},
		// So that AKS leaves the namespaceSelectors as they are.
		ObjectMeta: metav1.ObjectMeta{Name: prerequisite.WebhookConfiguration, Annotations: map[string]string{"admissions.enforcer/disabled": "true"}},
		Webhooks:   hooks,
	}))(t)
	for _, hook := range hooks {
		for _, rule := range hook.Rules {
			if ptr.Deref(rule.Scope, registrationv1.AllScopes) != registrationv1.NamespacedScope {
				t.Errorf("%s is asked about objects without a namespace", hook.Name)
			}
		}
	}
	golden.Assert(t, "../../../deploy/overlays/"+overlay+"/configuration.yaml", slices.Concat([]byte(comment), encoded))
}
