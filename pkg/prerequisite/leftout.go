package prerequisite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// maxLeftOut is how long the names of the namespaces may be together that are left out: they go into an annotation, which
// shares 256 KiB with the others of its object.
const maxLeftOut = 128 << 10

// split returns of a webhook's namespaceSelector what says in which namespaces we are installed, and whether anything else
// narrows it. Clouds add such to every webhook, and put it back when it is taken away: they leave out namespaces of their own.
func split(s *metav1.LabelSelector) (installed *metav1.LabelSelector, narrowed bool) {
	if selectsAll(s) {
		return nil, false
	}
	installed = &metav1.LabelSelector{}
	for key, value := range s.MatchLabels {
		if key == api.InstalledLabel {
			metav1.AddLabelToSelector(installed, key, value)
		}
	}
	for _, e := range s.MatchExpressions {
		if e.Key == api.InstalledLabel {
			installed.MatchExpressions = append(installed.MatchExpressions, e)
		}
	}
	narrowed = len(installed.MatchLabels)+len(installed.MatchExpressions) < len(s.MatchLabels)+len(s.MatchExpressions)
	if selectsAll(installed) {
		return nil, narrowed
	}
	return installed, narrowed
}

// narrowing returns the namespaceSelector of the webhooks if anything but our own mode narrows it, and else nil. All of them
// must have the same: one that holds where another one does not say so leaves a workload half held.
func narrowing(have *admissionv1.MutatingWebhookConfiguration) (labels.Selector, error) {
	var first labels.Selector
	narrowed := false
	for _, want := range webhooks {
		i := slices.IndexFunc(have.Webhooks, func(w admissionv1.MutatingWebhook) bool { return w.Name == want.Name })
		if i < 0 {
			continue // checkWebhook says so
		}
		is := have.Webhooks[i].NamespaceSelector
		if is == nil {
			is = &metav1.LabelSelector{}
		}
		selector, err := metav1.LabelSelectorAsSelector(is)
		switch {
		case err != nil:
			return nil, fmt.Errorf("reading the namespaceSelector of webhook %s: %w", want.Name, err)
		case first == nil:
			first = selector
		case first.String() != selector.String():
			return nil, fmt.Errorf("the webhooks of MutatingWebhookConfiguration %s have different namespaceSelectors: %q, but %s has %q. Give all the same",
				WebhookConfiguration, first, want.Name, selector)
		}
		_, narrowed = split(is)
	}
	if !narrowed {
		return nil, nil
	}
	return first, nil
}

// leaveOut returns the namespaces in which the webhook is not asked, though it would be without what others have added to its
// namespaceSelector.
func (c *Cluster) leaveOut(ctx context.Context, have *admissionv1.MutatingWebhookConfiguration) ([]string, error) {
	selector, err := narrowing(have)
	if err != nil || selector == nil || c.Namespace != "" { // that namespace is looked at by itself
		return nil, err
	}
	c.labels = true
	list, err := c.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, fmt.Errorf("listing the namespaces that the namespaceSelector of the webhooks leaves out: %w", err)
	}
	var out []string
	length := 0
	for _, ns := range list.Items {
		if !selector.Matches(labels.Set(ns.Labels)) {
			out, length = append(out, ns.Name), length+len(ns.Name)+1
		}
	}
	if length > maxLeftOut {
		return nil, fmt.Errorf("the namespaceSelector of the webhooks, %q, leaves out %d namespaces, which are too many to name: let it select more", selector, len(out))
	}
	slices.Sort(out)
	return out, nil
}

// LeavesOut looks once more whether the webhook is not asked in a namespace, for a step that must not rest on what was so a
// moment ago.
func (c *Cluster) LeavesOut(ctx context.Context, namespace string) (bool, error) {
	have, err := c.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, WebhookConfiguration, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading MutatingWebhookConfiguration %s: %w", WebhookConfiguration, err)
	}
	selector, err := narrowing(have)
	if err != nil || selector == nil {
		return false, err
	}
	list, err := c.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + namespace})
	if err != nil {
		return false, fmt.Errorf("reading the labels of namespace %s: %w", namespace, err)
	}
	for _, ns := range list.Items {
		if ns.Name == namespace {
			return !selector.Matches(labels.Set(ns.Labels)), nil
		}
	}
	return false, nil // gone, with all that is in it
}

// mine is why nothing can be told by dry runs where the controller's own namespace is left out.
func mine(namespace string) error {
	return unsure{errors.New("the namespaceSelector of the webhooks leaves out namespace " + namespace +
		", where this controller makes its dry runs: install it in another namespace")}
}

func (c *Cluster) noteLeftOut(out []string) {
	c.leftOut = out
	if len(out) > 0 { // where that changes, what was proved is asked again
		c.versions += " without " + strings.Join(out, ",")
	}
}
