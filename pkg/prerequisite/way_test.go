package prerequisite_test

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// older is a cluster without MutatingAdmissionPolicy v1. Its guards are given by what the guarded way is.
func older(t *testing.T, objects []runtime.Object) *fake.Clientset {
	t.Helper()
	client := with(t, objects)
	client.Resources[1].APIResources[0].Name = "validatingadmissionpolicies"
	return client
}

// byWebhook is what deploy/overlays/webhook installs, after the webhook has set its CA.
func byWebhook(t *testing.T, change func(*admissionv1.MutatingWebhookConfiguration)) []runtime.Object {
	t.Helper()
	hooks := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: prerequisite.WebhookConfiguration}, Webhooks: prerequisite.Webhooks()}
	for i := range hooks.Webhooks {
		hooks.Webhooks[i].ClientConfig.CABundle = []byte("a CA")
	}
	if change != nil {
		change(hooks)
	}
	objects := slices.DeleteFunc(installed(t), func(o runtime.Object) bool {
		return strings.HasPrefix(o.GetObjectKind().GroupVersionKind().Kind, "Mutating")
	})
	return append(objects, hooks)
}

// twice is a cluster where policies and a webhook hold.
func twice(t *testing.T) []runtime.Object {
	t.Helper()
	webhook := byWebhook(t, nil)
	return append(installed(t), webhook[len(webhook)-1])
}

// TestWays: each of the two ways to hold is known, and two at once are refused.
func TestWays(t *testing.T) {
	hooks := func(change func(*admissionv1.MutatingWebhook)) *fake.Clientset {
		return older(t, byWebhook(t, func(c *admissionv1.MutatingWebhookConfiguration) { change(&c.Webhooks[0]) }))
	}
	const name = "inplace-rollout-fence-workloads.inplace-rollout.io"
	const notThisVersions = "MutatingWebhookConfiguration inplace-rollout is not the one of this version of the controller: they differ in " + name
	for about, tt := range map[string]struct {
		client *fake.Clientset
		way    prerequisite.Way
		want   string
	}{
		"policies":                             {client: complete(t), way: prerequisite.Policy},
		"the webhook, where there is no other": {client: older(t, byWebhook(t, nil)), way: prerequisite.Webhook},
		"the webhook, by choice":               {client: with(t, byWebhook(t, nil)), way: prerequisite.Webhook},
		"nothing, where policies could":        {client: complete(t, "binding "+hold), way: prerequisite.Policy, want: "MutatingAdmissionPolicyBinding " + hold + " is missing: " + install},
		"nothing, where only the webhook could": {
			client: older(t, nil), want: "inplace-rollout is not installed, and this API server does not serve MutatingAdmissionPolicy, as Kubernetes 1.36 does. Install it with the webhook",
		},
		"two at once": {
			client: with(t, twice(t)), way: prerequisite.Webhook,
			want: "rollouts are held twice, by MutatingWebhookConfiguration inplace-rollout and by MutatingAdmissionPolicyBinding ",
		},
		"a webhook that may fail":        {client: hooks(func(h *admissionv1.MutatingWebhook) { h.FailurePolicy = new(admissionv1.Ignore) }), way: prerequisite.Webhook, want: notThisVersions + `.failurePolicy: it is "Ignore", and should be "Fail"`},
		"a webhook that leaves some out": {client: hooks(func(h *admissionv1.MutatingWebhook) { h.Rules[0].Operations = h.Rules[0].Operations[:0] }), way: prerequisite.Webhook, want: notThisVersions + ".rules[0]"},
		"a webhook without a CA":         {client: hooks(func(h *admissionv1.MutatingWebhook) { h.ClientConfig.CABundle = nil }), way: prerequisite.Webhook, want: "has no caBundle for " + name + ": the Deployment inplace-rollout-webhook writes it"},
		"a webhook without cert-manager's CA": {
			client: older(t, byWebhook(t, func(c *admissionv1.MutatingWebhookConfiguration) {
				c.Annotations = map[string]string{"cert-manager.io/inject-ca-from": "platform/inplace-rollout-webhook"}
				c.Webhooks[0].ClientConfig.CABundle, c.Webhooks[1].ClientConfig.CABundle = nil, nil
			})), way: prerequisite.Webhook,
			want: "has no caBundle for " + name + ", inplace-rollout-hold.inplace-rollout.io: cert-manager's cainjector takes it from the Certificate platform/inplace-rollout-webhook, " +
				"which the annotation cert-manager.io/inject-ca-from names: check that the Deployment cert-manager-cainjector runs, and that this Certificate is Ready",
		},
		"a webhook of another name": {client: hooks(func(h *admissionv1.MutatingWebhook) { h.Name = "a.example.com" }), way: prerequisite.Webhook, want: "lacks the webhook " + name},
		"a webhook in labelled namespaces": {
			client: hooks(func(h *admissionv1.MutatingWebhook) { h.NamespaceSelector = inLabelled.NamespaceSelector }), way: prerequisite.Webhook,
			want: "1 of the policies' bindings is for namespaces with the label",
		},
	} {
		t.Run(about, func(t *testing.T) {
			way, err := (&prerequisite.Cluster{Client: tt.client}).Check(t.Context())
			if must.Fails(t, "the check", err, tt.want); way != tt.way {
				t.Errorf("got %q, want %q", way, tt.way)
			}
		})
	}
	blind := older(t, byWebhook(t, nil))
	const resource = "mutatingwebhookconfigurations"
	build.Answers(blind, "get", resource, nil, apierrors.NewForbidden(admissionv1.Resource(resource), prerequisite.WebhookConfiguration, nil))
	must.Fails(t, "what may not be seen", (&prerequisite.Cluster{Client: blind}).Report(t.Context()).Missing(), "")
}

// TestDryRun: who writes nothing may be anybody.
func TestDryRun(t *testing.T) {
	for _, dryRun := range []bool{true, false} {
		cluster := &prerequisite.Cluster{Client: as(complete(t), "admin"), DryRun: dryRun}
		if _, err := cluster.Check(t.Context()); (err == nil) != dryRun {
			t.Errorf("dry run %t: %v", dryRun, err)
		}
	}
}
