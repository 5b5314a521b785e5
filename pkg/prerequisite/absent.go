package prerequisite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/heartbeat"
)

// standardNamespace is where deploy/ installs the controller, and standardAccount as whom.
const standardNamespace, standardAccount = "inplace-rollout", "inplace-rollout"

// Why no controller goes on with an edit.
var (
	errWaits  = errors.New("no controller is ready: edits stay held until one is. See the log of the Deployment inplace-rollout")
	errAbsent = errors.New("no controller is ready: edits are not held, and the built-in controllers restart pods, except for workloads with the action LiveResize. " +
		"See the log of the Deployment inplace-rollout")
	// Before the first one, policies are not asked.
	errNotBegun = errors.New("inplace-rollout is installed, and no controller has begun yet: edits are not held, and the built-in controllers restart pods. " +
		"See the log of the Deployment inplace-rollout")
)

// IsNotBegun reports whether an error says that no controller has ever begun.
func IsNotBegun(err error) bool { return errors.Is(err, errNotBegun) }

// absentAs is why no controller goes on with an edit, which is held all the same or not.
func absentAs(held bool) error {
	if held {
		return errWaits
	}
	return errAbsent
}

// unseen is something that whoever asks may not see, or that nobody has answered.
type unseen struct{ error }

func (u unseen) Unwrap() error { return u.error }

// Absent returns an error if no controller is there, or if nothing is held in the only namespace that is asked about. It knows both by the
// heartbeat's object, which all users may read as a rule, and by the API server's clock.
func (c *Cluster) Absent(ctx context.Context) error {
	namespaces, known, err := c.controllerNamespaces(ctx)
	if err != nil {
		return err
	}
	var unread error
	for _, namespace := range namespaces {
		account, err := c.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, api.HeartbeatName, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) && (known || c.installedIn(ctx, namespace)):
			return errNotBegun
		case err == nil:
			return c.judge(ctx, account.Annotations)
		}
		unread = cmp.Or(unread, fmt.Errorf("reading ServiceAccount %s/%s: %w", namespace, api.HeartbeatName, err))
	}
	if unread == nil { // each namespace has its own
		return nil
	}
	return unseen{unread}
}

// Told has the annotations in which the controller says beside its heartbeat what its flags say, and which checks there are; nil where
// that cannot be read.
func (c *Cluster) Told(ctx context.Context) map[string]string {
	namespaces, _, _ := c.controllerNamespaces(ctx)
	for _, namespace := range namespaces {
		if account, err := c.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, api.HeartbeatName, metav1.GetOptions{}); err == nil {
			return account.Annotations
		}
	}
	return nil
}

// installedIn reports whether the controller is installed in a namespace, for somebody who is told that there is no heartbeat: who may
// not read the controller's ServiceAccount hears that by the Role of the installation alone.
func (c *Cluster) installedIn(ctx context.Context, namespace string) bool {
	_, err := c.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, standardAccount, metav1.GetOptions{})
	return err == nil || apierrors.IsForbidden(err)
}

// ForAll reports whether what holds edits does so in all namespaces, whichever of them have a label. It is false where that may not be seen.
func (c *Cluster) ForAll(ctx context.Context) (forAll, known bool) {
	namespaces, known, err := (&Cluster{Client: c.Client}).controllerNamespaces(ctx)
	return known && len(namespaces) > 0, known && err == nil
}

// Misplaced returns an error if the policies name another namespace of the controller than whoever asks does; nil if they may not read that.
func (c *Cluster) Misplaced(ctx context.Context) error {
	if c.ControllerNamespace == "" {
		return nil
	}
	named, known, _ := (&Cluster{Client: c.Client, Namespace: c.Namespace}).controllerNamespaces(ctx)
	if !known || len(named) == 0 || named[0] == c.ControllerNamespace {
		return nil
	}
	return fmt.Errorf("the policies name %[2]s as the controller's namespace, not %[1]s: use --controller-namespace=%[2]s", c.ControllerNamespace, named[0])
}

// judge does that by the annotations of the object.
func (c *Cluster) judge(ctx context.Context, annotations map[string]string) error {
	now, err := c.Now(ctx)
	switch {
	case err != nil:
		return unseen{err}
	case !heartbeat.There(annotations, now):
		return absentAs(annotations[api.WhenAbsentAnnotation] == api.Hold)
	case slices.Contains(strings.Split(annotations[api.LeftOutAnnotation], ","), c.Namespace) && c.Namespace != "":
		return fmt.Errorf("the namespaceSelector of the webhooks excludes namespace %s: edits are rolled out as without inplace-rollout", c.Namespace)
	}
	return nil
}

// controllerNamespaces are those in which the heartbeat may be, and whether it can be in no other one: who may not read the binding that
// says it can only guess.
func (c *Cluster) controllerNamespaces(ctx context.Context) (namespaces []string, known bool, err error) {
	if c.ControllerNamespace != "" {
		return []string{c.ControllerNamespace}, true, nil
	}
	binding, err := c.Client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(ctx, GuardPolicy, metav1.GetOptions{})
	switch {
	case err == nil && binding.Spec.ParamRef != nil:
		where := cmp.Or(binding.Spec.ParamRef.Namespace, c.Namespace)
		return slices.DeleteFunc([]string{where}, func(namespace string) bool { return namespace == "" }), true, nil
	case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
		return nil, false, unseen{fmt.Errorf("reading ValidatingAdmissionPolicyBinding %s: %w", GuardPolicy, err)}
	}
	guesses := []string{standardNamespace}
	if c.Namespace != "" && c.Namespace != standardNamespace {
		guesses = append(guesses, c.Namespace)
	}
	return guesses, false, nil
}

// MayResize returns an error if the controller has lost the right to resize pods in the namespace. Only whoever may ask for the rights of
// others sees that, and may read as whom the policies know the controller.
func (c *Cluster) MayResize(ctx context.Context) error {
	installed, err := c.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, GuardPolicy, metav1.GetOptions{})
	if err != nil {
		return unseen{fmt.Errorf("reading ValidatingAdmissionPolicy %s: %w", GuardPolicy, err)}
	}
	_, known := anonymous(specOf(installed))
	for _, user := range sets.List(known) {
		user = strings.ReplaceAll(user, requestNamespace, c.Namespace)
		namespace, _, _ := serviceaccount.SplitUsername(user)
		review, err := c.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               user,
			Groups:             serviceaccount.MakeGroupNames(namespace),
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: c.Namespace, Verb: "patch", Resource: "pods", Subresource: "resize"},
		}}, metav1.CreateOptions{})
		switch {
		case err != nil:
			return unseen{fmt.Errorf("asking for the rights of the controller: %w", err)}
		case !review.Status.Allowed:
			return fmt.Errorf("%s has no right to patch pods/resize in namespace %s: give it back the roles of the installation", user, c.Namespace)
		}
	}
	return nil
}

// Now is the time by the API server's clock, which every user may ask for.
func (c *Cluster) Now(ctx context.Context) (time.Time, error) {
	review, err := c.Client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return time.Time{}, fmt.Errorf("asking the API server for the time: %w", err)
	}
	if review.CreationTimestamp.IsZero() {
		return time.Time{}, errors.New("the API server does not say what time it is")
	}
	return review.CreationTimestamp.Time, nil
}
