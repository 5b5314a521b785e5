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
	"k8s.io/client-go/kubernetes"
)

// Way is how the API server holds the rollout of an opted-in workload in the write that would start it.
type Way string

const (
	// Policy is by MutatingAdmissionPolicies, which are on from Kubernetes 1.36.
	Policy Way = "policy"
	// Beta is by the same in version v1beta1, where a cluster has the feature gate on.
	Beta Way = "v1beta1"
	// Webhook is by `inplace-rollout webhook`, which evaluates the same policies.
	Webhook Way = "webhook"
)

// Ways are all of them.
var Ways = []Way{Policy, Beta, Webhook}

// howToInstall ends every message about something that deploy/ installs.
func (w Way) howToInstall() string {
	if w == Policy {
		return "install it with `kubectl apply -k deploy/`"
	}
	return fmt.Sprintf("install it with `kubectl apply -k deploy/overlays/%s`", w)
}

// policiesOf has the admission policies that each way needs.
var policiesOf = map[Way][]policy{Policy: policies, Beta: policies, Webhook: slices.DeleteFunc(slices.Clone(policies), func(p policy) bool { return p.kind == mutating })}

// errHeldTwice is the error where policies and a webhook hold.
var errHeldTwice = errors.New("rollouts are held twice")

// way returns the way that is in force, or that the cluster is fit for if none is, and for the
// webhook its configuration.
func (c *Cluster) way(ctx context.Context) (Way, *admissionv1.MutatingWebhookConfiguration, error) {
	served, err := serves(c.Client)
	if err != nil {
		return "", nil, err
	}
	hook, err := c.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, WebhookConfiguration, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && served == "":
		return "", nil, errors.New("nothing holds rollouts, and this API server has no MutatingAdmissionPolicy, which is on from Kubernetes 1.36: " +
			"install the webhook with `kubectl apply -k deploy/overlays/webhook`")
	case apierrors.IsNotFound(err):
		return served, nil, nil
	case err != nil:
		return "", nil, fmt.Errorf("reading MutatingWebhookConfiguration %s: %w", WebhookConfiguration, err)
	case served == "":
		return Webhook, hook, nil
	}
	for _, p := range policiesOf[served] {
		if p.kind != mutating {
			continue
		}
		switch _, _, err := p.getBinding(ctx, c.Client, served); {
		case err == nil:
			return Webhook, hook, fmt.Errorf("%w, by MutatingWebhookConfiguration %s and by %sBinding %s: "+
				"remove one of the two, as docs/operations.md shows", errHeldTwice, WebhookConfiguration, p.kind, p.name)
		case !apierrors.IsNotFound(err):
			return Webhook, hook, fmt.Errorf("reading %sBinding %s: %w", p.kind, p.name, err)
		}
	}
	return Webhook, hook, nil
}

// groupVersion is that of the MutatingAdmissionPolicies.
var groupVersion = map[Way]string{Policy: admissionv1.GroupName + "/v1", Beta: admissionv1.GroupName + "/v1beta1"}

// serves returns the way in which this API server can hold by itself; "" if in none.
func serves(client kubernetes.Interface) (Way, error) {
	for _, way := range []Way{Policy, Beta} {
		resources, err := client.Discovery().ServerResourcesForGroupVersion(groupVersion[way])
		if err != nil && !apierrors.IsNotFound(err) {
			return "", fmt.Errorf("asking which resources the API server has: %w", err)
		}
		if err == nil && slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == "mutatingadmissionpolicies" }) {
			return way, nil
		}
	}
	return "", nil
}

// object is a policy or a binding.
type object interface {
	runtime.Object
	metav1.Object
}

func (p policy) get(ctx context.Context, client kubernetes.Interface, way Way) (object, error) {
	stable, beta := client.AdmissionregistrationV1(), client.AdmissionregistrationV1beta1()
	switch {
	case p.kind != mutating:
		return stable.ValidatingAdmissionPolicies().Get(ctx, p.name, metav1.GetOptions{})
	case way == Beta:
		b, err := beta.MutatingAdmissionPolicies().Get(ctx, p.name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return fromBeta(b, &admissionv1.MutatingAdmissionPolicy{})
	}
	return stable.MutatingAdmissionPolicies().Get(ctx, p.name, metav1.GetOptions{})
}

func (p policy) getBinding(ctx context.Context, client kubernetes.Interface, way Way) (object, *admissionv1.MatchResources, error) {
	stable, beta := client.AdmissionregistrationV1(), client.AdmissionregistrationV1beta1()
	if p.kind != mutating {
		b, err := stable.ValidatingAdmissionPolicyBindings().Get(ctx, p.name, metav1.GetOptions{})
		if err != nil {
			return nil, nil, err
		}
		return b, b.Spec.MatchResources, nil
	}
	if way != Beta {
		b, err := stable.MutatingAdmissionPolicyBindings().Get(ctx, p.name, metav1.GetOptions{})
		if err != nil {
			return nil, nil, err
		}
		return b, b.Spec.MatchResources, nil
	}
	old, err := beta.MutatingAdmissionPolicyBindings().Get(ctx, p.name, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	b, err := fromBeta(old, &admissionv1.MutatingAdmissionPolicyBinding{})
	if err != nil {
		return nil, nil, err
	}
	return b, b.Spec.MatchResources, nil
}

// fromBeta returns a v1beta1 object as v1, which has the same fields.
func fromBeta[T runtime.Object](beta runtime.Object, stable T) (T, error) {
	converted, err := runtime.DefaultUnstructuredConverter.ToUnstructured(beta)
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(converted, stable)
	}
	if err != nil {
		return stable, fmt.Errorf("converting from v1beta1: %w", err)
	}
	return stable, nil
}
