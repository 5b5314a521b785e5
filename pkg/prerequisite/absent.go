package prerequisite

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/heartbeat"
)

// tolerance is by how much the clock of whoever asks may differ from that of the API server.
const tolerance = 30 * time.Second

// notice is the policy that tells of the hold. It looks at the heartbeat, whichever way rollouts are held.
const notice = "inplace-rollout-notice-only"

// errWaits is that no controller is there, and edits wait for one.
var errWaits = errors.New("no controller is ready: edits stay held until one is. See the log of the Deployment inplace-rollout")

// absent returns an error if no controller is there.
func (c *Cluster) absent(ctx context.Context) error {
	binding, err := c.Client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(ctx, notice, metav1.GetOptions{})
	if apierrors.IsNotFound(err) { // then nobody knows whose heartbeat counts
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading ValidatingAdmissionPolicyBinding %s: %w", notice, err)
	}
	ref := binding.Spec.ParamRef
	if ref == nil {
		return nil // of a version without one
	}
	namespace := ref.Namespace
	if namespace == "" {
		namespace = c.Namespace
	}
	if namespace == "" { // each has its own
		return nil
	}
	account, err := c.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading ServiceAccount %s/%s: %w", namespace, ref.Name, err)
	}
	if err == nil && heartbeat.There(account.Annotations, time.Now().Add(-tolerance)) {
		return nil
	}
	if err == nil && account.Annotations[api.WhenAbsentAnnotation] == api.Hold {
		return errWaits
	}
	return errors.New("no controller is ready: edits are not held, and the built-in controllers restart pods, except for workloads with the action LiveResize. " +
		"See the log of the Deployment inplace-rollout")
}
