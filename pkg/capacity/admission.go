package capacity

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podsecurity "k8s.io/pod-security-admission/api"
	podsecuritypolicy "k8s.io/pod-security-admission/policy"
)

// admits reports whether the namespace lets the pod in, as far as that depends on what else there is: it is not to be deleted, what
// the pod refers to is there, and PodSecurity has nothing against it. The words are Kubernetes' own (plugin/pkg/admission of
// Kubernetes). Quotas and LimitRanges are asked elsewhere.
func (c *Cluster) admits(ctx context.Context, pod *corev1.Pod) error {
	namespace, err := c.namespace(ctx, pod.Namespace)
	if err != nil {
		return err
	}
	if namespace != nil && namespace.DeletionTimestamp != nil {
		return invalid("a new pod would be refused: namespace %s is being terminated", pod.Namespace)
	}
	for _, r := range references(pod) {
		if err := c.refers(ctx, pod.Namespace, r); err != nil {
			return err
		}
	}
	if namespace == nil {
		return nil
	}
	return c.secure(namespace, pod)
}

// namespace returns the one of that name; nil if it is not there.
func (c *Cluster) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	found, err := c.namespaces.get("name="+name, func() ([]corev1.Namespace, error) {
		namespace, err := c.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil
		case err != nil:
			return nil, hidden(err, "get namespaces")
		}
		return []corev1.Namespace{*namespace}, nil
	})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// reference is what a pod refers to by its name.
type reference struct{ kind, name, missing string }

func references(pod *corev1.Pod) []reference {
	var all []reference
	if name := pod.Spec.PriorityClassName; name != "" {
		all = append(all, reference{"PriorityClass", name, "no PriorityClass with name " + name + " was found"})
	}
	if name := pod.Spec.RuntimeClassName; name != nil {
		all = append(all, reference{"RuntimeClass", *name, "RuntimeClass \"" + *name + "\" not found"})
	}
	if name := pod.Spec.ServiceAccountName; name != "" {
		all = append(all, reference{"ServiceAccount", name, "error looking up service account " + pod.Namespace + "/" + name + ": serviceaccount \"" + name + "\" not found"})
	}
	return all
}

// refers reports whether what is referred to is there.
func (c *Cluster) refers(ctx context.Context, namespace string, r reference) error {
	answer, err := c.admitted.get(r.kind+" "+namespace+"/"+r.name, func() (error, error) {
		var err error
		switch r.kind {
		case "PriorityClass":
			_, err = c.client.SchedulingV1().PriorityClasses().Get(ctx, r.name, metav1.GetOptions{})
		case "RuntimeClass":
			_, err = c.client.NodeV1().RuntimeClasses().Get(ctx, r.name, metav1.GetOptions{})
		default:
			_, err = c.client.CoreV1().ServiceAccounts(namespace).Get(ctx, r.name, metav1.GetOptions{})
		}
		switch {
		case apierrors.IsNotFound(err):
			return invalid("a new pod would be refused: %s", r.missing), nil
		case err != nil:
			return nil, hidden(err, "get the "+r.kind+" of pods")
		}
		return nil, nil
	})
	if err != nil {
		return err
	}
	return answer
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
