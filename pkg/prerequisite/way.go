package prerequisite

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
)

// Way is how the API server holds the rollout of an opted-in workload in the write that would start it.
type Way string

const (
	// Policy is by MutatingAdmissionPolicies, which are on from Kubernetes 1.36.
	Policy Way = "policy"
	// Webhook is by `inplace-rollout webhook`, which evaluates the same policies.
	Webhook Way = "webhook"
)

// Ways are all of them.
var Ways = []Way{Policy, Webhook}

// howToInstall ends every message about something that is to be installed again, in the words of the way in which something else was.
func (w Way) howToInstall(beside metav1.Object) string {
	if beside != nil {
		if release := beside.GetAnnotations()["meta.helm.sh/release-name"]; release != "" {
			return fmt.Sprintf("upgrade the Helm release %s in namespace %s, with the same chart", release, beside.GetAnnotations()["meta.helm.sh/release-namespace"])
		}
	}
	if w == Policy {
		return "install it with `kubectl apply -k deploy/`"
	}
	return fmt.Sprintf("install it with `kubectl apply -k deploy/overlays/%s`", w)
}

// policiesOf has the admission policies that each way needs.
var policiesOf = map[Way][]policy{Policy: policies, Webhook: slices.DeleteFunc(slices.Clone(policies), func(p policy) bool { return p.kind == mutating })}

// errHeldTwice is the error where policies and a webhook hold.
var errHeldTwice = errors.New("rollouts are held twice")

// way returns the way that is in force, or that the cluster is fit for if none is, and for the
// webhook its configuration.
func (c *Cluster) way(ctx context.Context) (Way, *admissionv1.MutatingWebhookConfiguration, error) {
	served, err := ServesPolicies(ctx, c.Client)
	if err != nil {
		return "", nil, err
	}
	c.served = served
	hook, err := c.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, WebhookConfiguration, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && !served:
		return "", nil, fmt.Errorf("%w, and this API server does not serve MutatingAdmissionPolicy, as Kubernetes 1.36 does. "+
			"Install it with the webhook, with Helm or `kubectl apply -k deploy/overlays/webhook`, as docs/install.md says", errNotInstalled)
	case apierrors.IsNotFound(err):
		return Policy, nil, nil
	case err != nil:
		return "", nil, unseen{fmt.Errorf("reading MutatingWebhookConfiguration %s: %w", WebhookConfiguration, err)}
	case !served:
		return Webhook, hook, nil
	}
	for _, p := range policies {
		if p.kind != mutating {
			continue
		}
		switch _, _, err := p.getBinding(ctx, c.Client); {
		case err == nil:
			return Webhook, hook, fmt.Errorf("%w, by MutatingWebhookConfiguration %s and by %sBinding %s: "+
				"remove one of the two (docs/operations.md)", errHeldTwice, WebhookConfiguration, p.kind, p.name)
		case !apierrors.IsNotFound(err):
			return Webhook, hook, unseen{fmt.Errorf("reading %sBinding %s: %w", p.kind, p.name, err)}
		}
	}
	return Webhook, hook, nil
}

// ServesPolicies returns whether this API server can hold by itself.
func ServesPolicies(ctx context.Context, client kubernetes.Interface) (bool, error) {
	resources, err := discovery.ToDiscoveryInterfaceWithContext(client.Discovery()).ServerResourcesForGroupVersionWithContext(ctx, admissionv1.SchemeGroupVersion.String())
	if err != nil && !apierrors.IsNotFound(err) {
		return false, unseen{fmt.Errorf("asking which resources the API server has: %w", err)}
	}
	return err == nil && slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == "mutatingadmissionpolicies" }), nil
}

// object is a policy or a binding.
type object interface {
	runtime.Object
	metav1.Object
}

func (p policy) get(ctx context.Context, client kubernetes.Interface) (object, error) {
	admission := client.AdmissionregistrationV1()
	if p.kind != mutating {
		return admission.ValidatingAdmissionPolicies().Get(ctx, p.name, metav1.GetOptions{})
	}
	return admission.MutatingAdmissionPolicies().Get(ctx, p.name, metav1.GetOptions{})
}

func (p policy) getBinding(ctx context.Context, client kubernetes.Interface) (object, *admissionv1.MatchResources, error) {
	admission := client.AdmissionregistrationV1()
	if p.kind != mutating {
		b, err := admission.ValidatingAdmissionPolicyBindings().Get(ctx, p.name, metav1.GetOptions{})
		if err != nil {
			return nil, nil, err
		}
		return b, b.Spec.MatchResources, nil
	}
	b, err := admission.MutatingAdmissionPolicyBindings().Get(ctx, p.name, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	return b, b.Spec.MatchResources, nil
}
