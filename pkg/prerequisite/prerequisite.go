// Package prerequisite checks whether a cluster has what the controller needs: the resize
// subresource of pods, and the admission policies that hold rollouts. Without a hold the
// built-in controllers win every race.
package prerequisite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// howToInstall ends every message about something that deploy/ installs.
const howToInstall = "install it with `kubectl apply -k deploy/`"

// Check returns an error that names everything that is missing, or differs from what this
// controller was built with, and how to mend it; nil if nothing does. An empty namespace is the
// whole cluster. Policies may be bound in some namespaces only: if namespace is not empty, it
// must be one of them.
func Check(ctx context.Context, client kubernetes.Interface, namespace string) error {
	return errors.Join(checkAll(ctx, client, namespace, true)...)
}

// Missing returns an error that names everything that is missing, for somebody who may not see
// everything: what they may not see is taken to be there. The controller may be of another
// version, so policies may differ.
func Missing(ctx context.Context, client kubernetes.Interface, namespace string) error {
	return errors.Join(slices.DeleteFunc(checkAll(ctx, client, namespace, false), apierrors.IsForbidden)...)
}

func checkAll(ctx context.Context, client kubernetes.Interface, namespace string, exact bool) []error {
	missing := []error{checkResize(client)}
	var bound []binding
	for _, p := range policies {
		b, err := p.check(ctx, client, exact)
		missing = append(missing, err)
		if b.name != "" {
			bound = append(bound, b)
		}
	}
	if exact {
		missing = append(missing, checkMode(ctx, client, namespace, bound)...)
	}
	return append(missing, checkNamespace(ctx, client, namespace, bound)...)
}

// checkResize asks API discovery, not the version: versions have suffixes, and
// the feature can be off.
func checkResize(client kubernetes.Interface) error {
	resources, err := client.Discovery().ServerResourcesForGroupVersion("v1")
	if err != nil {
		return fmt.Errorf("asking which resources the API server has: %w", err)
	}
	for _, r := range resources.APIResources {
		if r.Name == "pods/resize" {
			return nil
		}
	}
	return errors.New("the API server does not serve pods/resize: Kubernetes 1.33 or later is needed, with the feature gate InPlacePodVerticalScaling on")
}

// binding is one that is there, of either kind.
type binding struct {
	kind, name  string
	where, want any                   // matchResources, as from JSON: what it has, and what deploy/ has; nil for everywhere
	selector    *metav1.LabelSelector // of namespaces; nil for all
}

// check returns the binding of the policy, and an error that says what is missing. If exact is
// set, what is there must be what this controller was built with, but for where it is bound.
func (p policy) check(ctx context.Context, client kubernetes.Interface, exact bool) (b binding, err error) {
	installed, err := p.get(ctx, client)
	if err != nil {
		return b, absent(p.kind, p.name, err)
	}
	bound, resources, err := p.getBinding(ctx, client)
	if err != nil {
		return b, absent(p.kind+"Binding", p.name, err)
	}
	spec := specOf(bound)
	if name := spec["policyName"]; name != p.name {
		return b, fmt.Errorf("%sBinding %s binds the policy %q: %s", p.kind, p.name, name, howToInstall)
	}
	b = binding{kind: p.kind + "Binding", name: p.name, where: spec["matchResources"], want: p.where}
	if resources != nil {
		b.selector = resources.NamespaceSelector
	}
	if !exact {
		return b, nil
	}
	delete(spec, "matchResources")
	return b, errors.Join(differs(p.kind, p.name, difference("spec", specOf(installed), p.spec)), differs(b.kind, p.name, difference("spec", spec, p.binding)))
}

// checkMode returns an error if the policies are not bound where this controller looks: in all
// namespaces, or in those with a label. In the other case there is another installation, or was
// one. A controller that is not the namespace's own may look after one namespace in either.
func checkMode(ctx context.Context, client kubernetes.Interface, namespace string, bound []binding) []error {
	own := namespace != "" && whoAmI(ctx, client) == "system:serviceaccount:"+namespace+":inplace-rollout"
	var missing []error
	other := 0
	for _, b := range bound {
		difference, elsewhere := differencePart("spec.matchResources", whole(b.where), whole(b.want)), differencePart("spec.matchResources", whole(b.where), whole(labelled))
		if own {
			difference, elsewhere = elsewhere, difference
		}
		switch {
		case difference == "":
		case elsewhere != "":
			missing = append(missing, differs(b.kind, b.name, difference))
		case namespace == "" || own:
			other++
		}
	}
	switch {
	case other > 0 && own:
		missing = append(missing, fmt.Errorf("%d of the policies' bindings are for all namespaces, as deploy/ installs them for one controller of the whole cluster: "+
			"uninstall this controller, or that installation, and then `kubectl apply -k deploy/overlays/one-namespace/cluster`", other))
	case other > 0:
		missing = append(missing, fmt.Errorf("%d of the policies' bindings are for namespaces with the label %s only, as deploy/overlays/one-namespace/cluster installs them "+
			"for controllers of single namespaces: uninstall these, and then `kubectl apply -k deploy/`", other, api.InstalledLabel))
	}
	return missing
}

// whoAmI returns the name of the user that the client is; "" where it may not ask.
func whoAmI(ctx context.Context, client kubernetes.Interface) string {
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return ""
	}
	return review.Status.UserInfo.Username
}

func (p policy) get(ctx context.Context, client kubernetes.Interface) (runtime.Object, error) {
	if p.kind == "MutatingAdmissionPolicy" {
		return client.AdmissionregistrationV1().MutatingAdmissionPolicies().Get(ctx, p.name, metav1.GetOptions{})
	}
	return client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, p.name, metav1.GetOptions{})
}

func (p policy) getBinding(ctx context.Context, client kubernetes.Interface) (runtime.Object, *admissionv1.MatchResources, error) {
	if p.kind == "MutatingAdmissionPolicy" {
		b, err := client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Get(ctx, p.name, metav1.GetOptions{})
		if err != nil {
			return nil, nil, err
		}
		return b, b.Spec.MatchResources, nil
	}
	b, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(ctx, p.name, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	return b, b.Spec.MatchResources, nil
}

func differs(kind, name, difference string) error {
	if difference == "" {
		return nil
	}
	return fmt.Errorf("%s %s is not the one of this version of the controller: they differ in %s", kind, name, difference)
}

// checkNamespace returns an error for each of the bindings that leaves out the namespace.
func checkNamespace(ctx context.Context, client kubernetes.Interface, namespace string, bound []binding) []error {
	bound = slices.DeleteFunc(bound, func(b binding) bool { return b.selector == nil })
	if namespace == "" || len(bound) == 0 {
		return nil
	}
	ns, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		return []error{fmt.Errorf("reading the labels of namespace %s: %w", namespace, err)}
	}
	var missing []error
	for _, b := range bound {
		selector, err := metav1.LabelSelectorAsSelector(b.selector)
		if err != nil {
			missing = append(missing, fmt.Errorf("reading %s %s: %w", b.kind, b.name, err))
		} else if !selector.Matches(labels.Set(ns.Labels)) {
			missing = append(missing, fmt.Errorf("%s %s leaves out namespace %s: label the namespace with %s", b.kind, b.name, namespace, selector))
		}
	}
	return missing
}

func absent(kind, name string, err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%s %s is missing: %s", kind, name, howToInstall)
	}
	return fmt.Errorf("reading %s %s: %w", kind, name, err)
}

// Gate holds the newest result of [Check]. It is closed until there is one.
type Gate struct {
	mu      sync.Mutex
	err     error
	checked bool
}

// Err returns what was missing at the last check; nil if nothing was.
func (g *Gate) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.checked {
		return errors.New("not checked yet")
	}
	return g.err
}

// Watch checks every interval until ctx is done. It logs each change, and calls
// opened whenever the last missing thing has come.
func (g *Gate) Watch(ctx context.Context, client kubernetes.Interface, namespace string, interval time.Duration, opened func()) {
	logger := klog.FromContext(ctx)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		err := Check(ctx, client, namespace)
		changed := g.set(err)
		switch {
		case changed && err != nil:
			logger.Error(err, "Not ready: nothing is touched")
		case changed:
			logger.Info("Ready: the cluster has what is needed")
			opened()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (g *Gate) set(err error) (changed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	changed = !g.checked || fmt.Sprint(g.err) != fmt.Sprint(err)
	g.checked, g.err = true, err
	return changed
}
