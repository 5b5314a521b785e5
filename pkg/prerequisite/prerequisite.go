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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// MutatingPolicies and ValidatingPolicies are the admission policies of deploy/,
// each with a binding of the same name.
var (
	MutatingPolicies = []string{
		"inplace-rollout-hold-statefulsets", "inplace-rollout-pending-statefulsets",
		"inplace-rollout-hold-deployments", "inplace-rollout-pending-deployments",
		"inplace-rollout-fence-workloads",
	}
	ValidatingPolicies = []string{
		"inplace-rollout-validate-annotations",
		"inplace-rollout-guard-statefulsets", "inplace-rollout-guard-deployments",
		"inplace-rollout-fence-workloads", "inplace-rollout-fence-replicasets", "inplace-rollout-fence-pods",
	}
)

// howToInstall ends every message about something that deploy/ installs.
const howToInstall = "install it with `kubectl apply -k deploy/`"

// Check returns an error that names everything that is missing, and how to mend it; nil if
// nothing is. Policies may be bound in some namespaces only: if namespace is not empty, it
// must be one of them.
func Check(ctx context.Context, client kubernetes.Interface, namespace string) error {
	return errors.Join(checkAll(ctx, client, namespace)...)
}

// Missing is [Check] for somebody who may not see everything: what they may not see is taken
// to be there.
func Missing(ctx context.Context, client kubernetes.Interface, namespace string) error {
	return errors.Join(slices.DeleteFunc(checkAll(ctx, client, namespace), apierrors.IsForbidden)...)
}

func checkAll(ctx context.Context, client kubernetes.Interface, namespace string) []error {
	missing := []error{checkResize(client)}
	var bound []binding
	for _, name := range MutatingPolicies {
		b, err := getMutating(ctx, client, name)
		missing, bound = append(missing, err), append(bound, b)
	}
	for _, name := range ValidatingPolicies {
		b, err := getValidating(ctx, client, name)
		missing, bound = append(missing, err), append(bound, b)
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

// binding is what both kinds of bindings have in common.
type binding struct {
	kind, name string
	selector   *metav1.LabelSelector // of namespaces; nil for all
}

func getMutating(ctx context.Context, client kubernetes.Interface, name string) (binding, error) {
	admission := client.AdmissionregistrationV1()
	if _, err := admission.MutatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{}); err != nil {
		return binding{}, absent("MutatingAdmissionPolicy", name, err)
	}
	b, err := admission.MutatingAdmissionPolicyBindings().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return binding{}, absent("MutatingAdmissionPolicyBinding", name, err)
	}
	return newBinding("MutatingAdmissionPolicyBinding", name, b.Spec.PolicyName, b.Spec.MatchResources)
}

func getValidating(ctx context.Context, client kubernetes.Interface, name string) (binding, error) {
	admission := client.AdmissionregistrationV1()
	if _, err := admission.ValidatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{}); err != nil {
		return binding{}, absent("ValidatingAdmissionPolicy", name, err)
	}
	b, err := admission.ValidatingAdmissionPolicyBindings().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return binding{}, absent("ValidatingAdmissionPolicyBinding", name, err)
	}
	return newBinding("ValidatingAdmissionPolicyBinding", name, b.Spec.PolicyName, b.Spec.MatchResources)
}

func newBinding(kind, name, policy string, resources *admissionv1.MatchResources) (binding, error) {
	if policy != name {
		return binding{}, fmt.Errorf("%s %s binds the policy %q: %s", kind, name, policy, howToInstall)
	}
	b := binding{kind: kind, name: name}
	if resources != nil {
		b.selector = resources.NamespaceSelector
	}
	return b, nil
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
