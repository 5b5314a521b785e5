package prerequisite

import (
	"errors"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// WebhookConfiguration is the name of the MutatingWebhookConfiguration of deploy/overlays/webhook.
const WebhookConfiguration = "inplace-rollout"

// webhooks are those that it has: one for each policy that holds.
var webhooks = Webhooks()

// Webhooks returns what a MutatingWebhookConfiguration has to say so that the webhook is asked
// whatever the API server would ask the MutatingAdmissionPolicies of deploy/cluster, but for
// clientConfig. Only opted-in workloads are ever sent, because they cannot be written while no
// webhook answers.
func Webhooks() []admissionv1.MutatingWebhook {
	var all []admissionv1.MutatingWebhook
	for _, p := range policies {
		if p.kind != mutating {
			continue
		}
		var spec admissionv1.MutatingAdmissionPolicySpec
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(p.spec, &spec); err != nil {
			panic(err) // it was made from such a spec
		}
		hook := admissionv1.MutatingWebhook{
			Name: p.name + ".inplace-rollout.io", FailurePolicy: spec.FailurePolicy, MatchPolicy: spec.MatchConstraints.MatchPolicy,
			NamespaceSelector: spec.MatchConstraints.NamespaceSelector, ObjectSelector: spec.MatchConstraints.ObjectSelector,
			ReinvocationPolicy: &spec.ReinvocationPolicy, SideEffects: new(admissionv1.SideEffectClassNone), TimeoutSeconds: new(int32(5)),
			AdmissionReviewVersions: []string{"v1"},
		}
		if len(hook.ObjectSelector.MatchLabels)+len(hook.ObjectSelector.MatchExpressions) == 0 {
			hook.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{api.EnabledLabel: "true"}}
		}
		for _, rule := range spec.MatchConstraints.ResourceRules {
			rule.Scope = new(admissionv1.NamespacedScope) // GKE calls a webhook unsafe that may be asked about more
			hook.Rules = append(hook.Rules, rule.RuleWithOperations)
		}
		hook.MatchConditions = append(hook.MatchConditions, spec.MatchConditions...)
		if p.name != HoldPolicy {
			all = append(all, hook)
			continue
		}
		through := *hook.DeepCopy()
		through.Name, through.FailurePolicy = p.name+"-let-go.inplace-rollout.io", new(admissionv1.Ignore)
		const passes = letsGo + " || " + comesUp
		through.MatchConditions = append(through.MatchConditions, admissionv1.MatchCondition{Name: "lets-go", Expression: passes})
		hook.MatchConditions = append(hook.MatchConditions, admissionv1.MatchCondition{Name: "does-not-let-go", Expression: "!(" + passes + ")"})
		all = append(all, hook, through)
	}
	return all
}

// comesUp is the creation of what a cluster may need before it can run a webhook: kube-proxy, or its network. While one answers, it
// is held as any other, in case it adopts pods of another template. That keeps no cluster from coming up: the built-in controller makes
// the pods that a node lacks under OnDelete, too, and from the new template.
const comesUp = `oldObject == null && request.kind.kind == "DaemonSet" && request.namespace == "kube-system"`

// letsGo is a write after which a workload is not held, whatever is in it. It goes through when no webhook answers, too: that
// is the way out then. The workload may still look as if it were held, which `inplace-rollout release` mends.
const letsGo = `oldObject != null && (object.metadata.?labels[?"` + api.EnabledLabel + `"].orValue("") != "true" || ` +
	`has(object.metadata.deletionTimestamp) || request.?options.?fieldManager.orValue("") == "` + api.ReleaseManager + `")`

// caFrom is the annotation by which cert-manager knows whose CA it is to write into the configuration.
const caFrom = "cert-manager.io/inject-ca-from"

// whoWritesCA says who is to write the caBundle of the configuration, and where to look if it is not there, or another one.
func whoWritesCA(have *admissionv1.MutatingWebhookConfiguration) string {
	if from := have.Annotations[caFrom]; from != "" {
		return fmt.Sprintf("cert-manager's cainjector takes it from the Certificate %s, which the annotation %s names: "+
			"check that the Deployment cert-manager-cainjector runs, and that this Certificate is Ready", from, caFrom)
	}
	return "the Deployment inplace-rollout-webhook writes it: check that it runs"
}

// checkWebhook returns where the webhooks are in force, whom they know as the controller, and an
// error that says what is missing. If exact is set, they must be those of the policies that this
// controller was built with.
func checkWebhook(have *admissionv1.MutatingWebhookConfiguration, exact bool) (bound []binding, users sets.Set[string], err error) {
	const kind = "MutatingWebhookConfiguration"
	users = sets.New[string]()
	byName := map[string]*admissionv1.MutatingWebhook{}
	for i := range have.Webhooks {
		byName[have.Webhooks[i].Name] = &have.Webhooks[i]
	}
	var missing []error
	var untrusted []string
	for _, want := range webhooks {
		is := byName[want.Name]
		if is == nil {
			missing = append(missing, fmt.Errorf("%s %s lacks the webhook %s: %s", kind, WebhookConfiguration, want.Name, Webhook.howToInstall(have)))
			continue
		}
		if len(is.ClientConfig.CABundle) == 0 {
			untrusted = append(untrusted, want.Name)
		}
		b := binding{kind: kind, name: WebhookConfiguration + ", webhook " + want.Name}
		// It is bound as a policy is, but for the namespaces that it leaves out besides.
		if installed, _ := split(is.NamespaceSelector); installed != nil {
			b.where = specOf(&admissionv1.MutatingAdmissionPolicyBinding{Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{
				MatchResources: &admissionv1.MatchResources{NamespaceSelector: installed},
			}})["matchResources"]
		}
		if !selectsAll(is.NamespaceSelector) {
			b.selector = is.NamespaceSelector
		}
		bound = append(bound, b)
		if !exact {
			continue
		}
		spec, known := anonymous(webhookSpec(is))
		users = users.Union(known)
		missing = append(missing, differs(kind, WebhookConfiguration, difference(want.Name, spec, webhookSpec(&want))))
	}
	if len(untrusted) > 0 {
		missing = append(missing, fmt.Errorf("%s %s has no caBundle for %s: %s", kind, WebhookConfiguration, strings.Join(untrusted, ", "), whoWritesCA(have)))
	}
	return bound, users, errors.Join(missing...)
}

// webhookSpec returns what a webhook says but where it is, and in which namespaces it is in force,
// with the defaults of the API server.
func webhookSpec(hook *admissionv1.MutatingWebhook) map[string]any {
	all := &admissionv1.MutatingWebhookConfiguration{Webhooks: []admissionv1.MutatingWebhook{*hook.DeepCopy()}}
	deploy.SetDefaults(all)
	hook = &all.Webhooks[0]
	hook.ClientConfig, hook.NamespaceSelector = admissionv1.WebhookClientConfig{}, nil
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(hook)
	if err != nil {
		return nil // it differs from whatever it is compared with
	}
	return spec
}

func selectsAll(s *metav1.LabelSelector) bool {
	return s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0
}
