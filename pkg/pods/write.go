package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// Resize asks for the target's size through the pod's resize subresource
// (KEP-1287). The target's UID is a precondition: StatefulSet pod names recur.
func Resize(ctx context.Context, client coreclient.PodsGetter, pod *corev1.Pod, target resize.Target) (*corev1.Pod, error) {
	patch, err := target.Patch()
	if err != nil {
		return nil, err
	}
	resized, err := client.Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{FieldManager: api.FieldManager}, "resize")
	if err != nil {
		return nil, fmt.Errorf("resizing pod %s: %w", pod.Name, err)
	}
	return resized, nil
}

// Relabel makes pod count as updated to revision, the name of a
// ControllerRevision: the StatefulSet controller compares that label and nothing
// else. The pod's resource version is a precondition, because what was verified
// was this version of the pod.
func Relabel(ctx context.Context, client coreclient.PodsGetter, pod *corev1.Pod, revision string) (*corev1.Pod, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             pod.UID,
		"resourceVersion": pod.ResourceVersion,
		"labels":          map[string]string{appsv1.ControllerRevisionHashLabelKey: revision},
	}})
	if err != nil {
		return nil, fmt.Errorf("encoding the label of pod %s: %w", pod.Name, err)
	}
	relabelled, err := client.Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: api.FieldManager})
	if err != nil {
		return nil, fmt.Errorf("relabelling pod %s: %w", pod.Name, err)
	}
	return relabelled, nil
}

// Relabelled returns when Relabel, or another write of ours to the pod itself, last
// changed it, by the clock of the API server; the zero time if none is recorded, as
// in watched pods (see Strip).
func Relabelled(pod *corev1.Pod) time.Time {
	var last time.Time
	for _, entry := range pod.ManagedFields {
		if entry.Manager == api.FieldManager && entry.Subresource == "" && entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}

// Delete deletes this very version of the pod.
func Delete(ctx context.Context, client coreclient.PodsGetter, pod *corev1.Pod) error {
	err := client.Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion},
	})
	if err != nil {
		return fmt.Errorf("deleting pod %s: %w", pod.Name, err)
	}
	return nil
}

// evictTimeout bounds how long an eviction is asked for: the API server may tell
// clients to wait, and client-go does.
const evictTimeout = 5 * time.Second

// Evict asks for the eviction of this very version of the pod, which
// PodDisruptionBudgets may refuse (apierrors.IsTooManyRequests).
func Evict(ctx context.Context, client coreclient.PodsGetter, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, evictTimeout)
	defer cancel()
	err := client.Pods(pod.Namespace).EvictV1(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}},
	})
	if err != nil {
		return fmt.Errorf("evicting pod %s: %w", pod.Name, err)
	}
	return nil
}

// Detach takes the pod out of the ReplicaSet that controls it, which makes another
// one in its place, and puts it under the ReplicaSet's own controller in the same
// write: at no time is it without an owner.
func Detach(ctx context.Context, client coreclient.PodsGetter, pod *corev1.Pod, owner metav1.OwnerReference) (*corev1.Pod, error) {
	from := metav1.GetControllerOf(pod)
	if from == nil {
		return nil, fmt.Errorf("detaching pod %s: nothing controls it", pod.Name)
	}
	return reown(ctx, client, pod, owner, map[string]any{
		appsv1.DefaultDeploymentUniqueLabelKey: nil,
		api.DetachedLabel:                      from.UID,
	})
}

// GiveBack undoes Detach: the ReplicaSet of this hash has one pod more again.
func GiveBack(ctx context.Context, client coreclient.PodsGetter, pod *corev1.Pod, owner metav1.OwnerReference, hash string) (*corev1.Pod, error) {
	return reown(ctx, client, pod, owner, map[string]any{
		appsv1.DefaultDeploymentUniqueLabelKey: hash,
		api.DetachedLabel:                      nil,
	})
}

// reown makes owner the pod's only owner. It does not keep that from being deleted
// before the pod, for which some clusters demand a right to the owner that whoever
// runs `inplace-rollout release` may lack (OwnerReferencesPermissionEnforcement).
func reown(ctx context.Context, client coreclient.PodsGetter, pod *corev1.Pod, owner metav1.OwnerReference, labels map[string]any) (*corev1.Pod, error) {
	owner.BlockOwnerDeletion = nil
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             pod.UID,
		"resourceVersion": pod.ResourceVersion,
		"labels":          labels,
		"ownerReferences": []metav1.OwnerReference{owner},
	}})
	if err != nil {
		return nil, fmt.Errorf("encoding the owner of pod %s: %w", pod.Name, err)
	}
	written, err := client.Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: api.FieldManager})
	if err != nil {
		return nil, fmt.Errorf("giving pod %s to %s %s: %w", pod.Name, owner.Kind, owner.Name, err)
	}
	return written, nil
}

// nodeCauses are the causes with which the PodResizeValidator admission plugin
// (plugin/pkg/admission/podresize of Kubernetes) says that the pod's node can
// never hold the size.
var nodeCauses = []metav1.CauseType{"NodeCapacity", "UnsupportedPlatform"}

// Refusal returns what the API server said, and whether it is its final word on a
// resize of this pod on its node: the request is invalid, or the node too small.
// Any other error may pass, a quota, a webhook or an admission policy among them.
// What a ValidatingAdmissionPolicy denies is called invalid too, but its causes
// are of no type, which those of the API server's own validation always are.
func Refusal(err error) (reason string, final bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err.Error(), false
	}
	if details := status.Status().Details; details != nil {
		final = slices.ContainsFunc(details.Causes, func(c metav1.StatusCause) bool {
			return apierrors.IsInvalid(err) && c.Type != "" ||
				apierrors.IsForbidden(err) && slices.Contains(nodeCauses, c.Type)
		})
	}
	return status.Status().Message, final
}
