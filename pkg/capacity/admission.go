package capacity

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	podsecurity "k8s.io/pod-security-admission/api"
	podsecuritypolicy "k8s.io/pod-security-admission/policy"
)

// admits reports whether the namespace lets the pod in, as far as that depends on what else there is: it is not to be deleted, what
// the pod refers to is there, and PodSecurity has nothing against it. The pod gets what its classes give. The words are Kubernetes' own
// (plugin/pkg/admission of Kubernetes). Quotas and LimitRanges are asked elsewhere.
func (c *Cluster) admits(ctx context.Context, pod *corev1.Pod) error {
	namespace, unclear := c.namespace(ctx, pod.Namespace)
	if unclear != nil && !isUnknown(unclear) {
		return unclear
	}
	if namespace != nil && namespace.DeletionTimestamp != nil {
		return invalid("a new pod would be refused: namespace %s is being terminated", pod.Namespace)
	}
	for _, refers := range []func(context.Context, *corev1.Pod) error{c.hasServiceAccount, c.hasPriority, c.hasRuntime} {
		err := refers(ctx, pod)
		if unclear = cmp.Or(unclear, err); err != nil && !isUnknown(err) {
			return err
		}
	}
	if namespace == nil {
		return unclear
	}
	return cmp.Or(c.secure(namespace, pod), unclear)
}

// namespace returns the one of that name; nil if it is not there.
func (c *Cluster) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	return get(&c.byItself, name, "get namespaces", func() (*corev1.Namespace, error) {
		return c.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	})
}

func (c *Cluster) hasServiceAccount(ctx context.Context, pod *corev1.Pod) error {
	name := pod.Spec.ServiceAccountName
	if name == "" {
		return nil
	}
	account, err := get(&c.accounts, pod.Namespace+"/"+name, "get the ServiceAccount of pods", func() (*corev1.ServiceAccount, error) {
		return c.client.CoreV1().ServiceAccounts(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	})
	if err == nil && account == nil {
		err = invalid("a new pod would be refused: error looking up service account %s/%s: serviceaccount %q not found", pod.Namespace, name, name)
	}
	return err
}

// hasPriority gives the pod the priority that its PriorityClass has by now (plugin/pkg/admission/priority of Kubernetes).
func (c *Cluster) hasPriority(ctx context.Context, pod *corev1.Pod) error {
	name := pod.Spec.PriorityClassName
	if name == "" {
		return nil
	}
	class, err := get(&c.priorities, name, "get the PriorityClass of pods", func() (*schedulingv1.PriorityClass, error) {
		return c.client.SchedulingV1().PriorityClasses().Get(ctx, name, metav1.GetOptions{})
	})
	if err == nil && class == nil {
		err = invalid("a new pod would be refused: no PriorityClass with name %s was found", name)
	}
	if err == nil {
		pod.Spec.Priority, pod.Spec.PreemptionPolicy = &class.Value, class.PreemptionPolicy
	}
	return err
}

// hasRuntime gives the pod what its RuntimeClass gives by now (plugin/pkg/admission/runtimeclass of Kubernetes).
func (c *Cluster) hasRuntime(ctx context.Context, pod *corev1.Pod) error {
	if pod.Spec.RuntimeClassName == nil {
		return nil
	}
	name := *pod.Spec.RuntimeClassName
	class, err := get(&c.runtimes, name, "get the RuntimeClass of pods", func() (*nodev1.RuntimeClass, error) {
		return c.client.NodeV1().RuntimeClasses().Get(ctx, name, metav1.GetOptions{})
	})
	if err == nil && class == nil {
		err = invalid("a new pod would be refused: RuntimeClass %q not found", name)
	}
	if err != nil {
		return err
	}
	if pod.Spec.Overhead = nil; class.Overhead != nil {
		pod.Spec.Overhead = class.Overhead.PodFixed
	}
	if s := class.Scheduling; s != nil {
		pod.Spec.NodeSelector, pod.Spec.Tolerations = labels.Merge(s.NodeSelector, pod.Spec.NodeSelector), slices.Concat(pod.Spec.Tolerations, s.Tolerations)
	}
	return nil
}

// security evaluates pods as the API server does.
var security, securityErr = podsecuritypolicy.NewEvaluator(podsecuritypolicy.DefaultChecks(), nil)

// secure reports whether the level that the namespace enforces lets the pod in. Exemptions are in the API server's own configuration,
// which cannot be read.
func (c *Cluster) secure(namespace *corev1.Namespace, pod *corev1.Pod) error {
	levels, errs := podsecurity.PolicyToEvaluate(namespace.Labels, podsecurity.Policy{
		Enforce: podsecurity.LevelVersion{Level: podsecurity.LevelPrivileged, Version: podsecurity.LatestVersion()},
	})
	if securityErr != nil || len(errs) > 0 || levels.Enforce.Level == podsecurity.LevelPrivileged {
		return securityErr
	}
	result := podsecuritypolicy.AggregateCheckResults(security.EvaluatePod(levels.Enforce, &pod.ObjectMeta, &pod.Spec))
	if result.Allowed {
		return nil
	}
	return invalid("a new pod would be refused: violates PodSecurity %q: %s", levels.Enforce.String(), result.ForbiddenDetail())
}
