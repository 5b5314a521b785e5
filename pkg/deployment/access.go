package deployment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	deploymentutil "k8s.io/kubectl/pkg/util/deployment"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// Access is that of controller.Kind.
func (k Kind) Access() controller.Access[*Deployment] {
	return controller.Access[*Deployment]{
		Kind: kindName,
		NewInformer: func(namespace string, tweak func(*metav1.ListOptions)) cache.SharedIndexInformer {
			return dynamicinformer.NewFilteredDynamicInformer(k.objects, deployments, namespace, 0, cache.Indexers{}, tweak).Informer()
		},
		NewPodInformer: func(namespace, selector string) cache.SharedIndexInformer {
			return pods.NewInformer(k.client, namespace, selector)
		},
		Decode: decodeDeployment,
		Strip:  strip,
		Size:   func(d *Deployment) int { return controller.HistorySize(d.size, d.Spec.RevisionHistoryLimit) },
		Get:    k.read,
		List: func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error) {
			return k.objects.Resource(deployments).Namespace(namespace).List(ctx, o)
		},
		Patch: func(ctx context.Context, d *Deployment, kind types.PatchType, patch []byte, subresources ...string) (runtime.Object, error) {
			return k.objects.Resource(deployments).Namespace(d.Namespace).Patch(ctx, d.Name, kind, patch, metav1.PatchOptions{FieldManager: api.FieldManager}, subresources...)
		},
		Selector:           func(d *Deployment) *metav1.LabelSelector { return d.Spec.Selector },
		ObservedGeneration: func(d *Deployment) int64 { return d.Status.ObservedGeneration },
		AnnotationsCount:   1,
		SameTemplate:       func(a, b *Deployment) bool { return a.text == b.text },
		ConditionOf:        conditionOf,
		NewCondition:       newCondition,
		Watch:              k.watch,
		LeftBehind:         k.leftBehind,
	}
}

func (k Kind) read(ctx context.Context, name cache.ObjectName) (*Deployment, error) {
	u, err := k.objects.Resource(deployments).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return decodeDeployment(u)
}

// strip leaves of a Deployment what is read of it, but for its template: thousands may be held, and any of them as large as 1 MB.
func strip(d *Deployment, _ bool) *Deployment {
	fields := *d.Deployment
	return &Deployment{Deployment: &fields, text: d.text, size: d.size}
}

// whole returns the Deployment with its template, which a session reads when it has another one.
func (k Kind) whole(ctx context.Context, s *session, d *Deployment) (*Deployment, error) {
	if d.template != nil {
		return d, nil
	}
	if s.KindState.text != d.text {
		there, err := k.again(ctx, d)
		if err != nil {
			return nil, err
		}
		s.KindState.template, s.KindState.text = there.template, there.text
	}
	return &Deployment{Deployment: d.Deployment, template: s.KindState.template, text: d.text}, nil
}

// again reads the Deployment, with all its annotations. It is a conflict if that has another template by now, or is opted out.
func (k Kind) again(ctx context.Context, d *Deployment) (*Deployment, error) {
	there, err := k.read(ctx, cache.MetaObjectToName(d))
	if err == nil && (there.UID != d.UID || there.text != d.text || policy.Enabled(there) != policy.Enabled(d)) {
		err = apierrors.NewConflict(deployments.GroupResource(), d.Name, errNotWatched)
	}
	return there, err
}

var errNotWatched = errors.New("the watch is yet to bring what it is now")

// condition returns the condition inplace-rollout.io/Complete, or nil.
func condition(d *Deployment) *rollout.StoredCondition { return rollout.CompleteOf(d, conditionOf) }

// conditionOf returns the Deployment's condition of that type, or nil.
func conditionOf(d *Deployment, of string) *rollout.StoredCondition {
	c := deploymentutil.GetDeploymentCondition(d.Status, appsv1.DeploymentConditionType(of))
	if c == nil {
		return nil
	}
	return &rollout.StoredCondition{Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message}
}

func newCondition(c rollout.StoredCondition, now metav1.Time) any {
	return appsv1.DeploymentCondition{
		Type: api.ConditionComplete, Status: c.Status, LastTransitionTime: c.LastTransitionTime, LastUpdateTime: now, Reason: c.Reason, Message: c.Message,
	}
}

var _ controller.Deadlined[*Deployment] = Kind{}

// Deadline is that of controller.Deadlined. There is none while the user has the Deployment paused.
func (Kind) Deadline(d *Deployment) (deadline time.Duration, exceeded bool) {
	c := deploymentutil.GetDeploymentCondition(d.Status, appsv1.DeploymentProgressing)
	exceeded = c != nil && c.Reason == deploymentutil.TimedOutReason
	seconds := d.Spec.ProgressDeadlineSeconds
	if seconds == nil || *seconds == math.MaxInt32 || d.wishedPaused() {
		return 0, exceeded
	}
	return time.Duration(*seconds) * time.Second, exceeded
}

// pausedReason is what the Deployment controller says of a Deployment that is paused, be it held (PausedDeployReason in
// pkg/controller/deployment/util of Kubernetes).
const pausedReason = "DeploymentPaused"

// NewDeadline is that of controller.Deadlined. The Deployment controller leaves the one word as it is
// while the Deployment is paused, and would say the other one itself. What the status speaks of, beside it, names the edit, so that
// deploy/cluster/status.yaml can take it back for another one.
func (Kind) NewDeadline(d *Deployment, exceeded bool, now metav1.Time) any {
	c := appsv1.DeploymentCondition{
		Type: appsv1.DeploymentProgressing, Status: corev1.ConditionUnknown, LastTransitionTime: now, LastUpdateTime: now,
		Reason: pausedReason, Message: "Deployment is paused",
	}
	if exceeded {
		c.Status, c.Reason = corev1.ConditionFalse, deploymentutil.TimedOutReason
		c.Message = fmt.Sprintf("The edit of version %s has made no progress for %ds. See the condition %s.",
			d.Annotations[api.EditAnnotation], *d.Spec.ProgressDeadlineSeconds, api.ConditionComplete)
	}
	return c
}
