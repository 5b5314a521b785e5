package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
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

// Relabel marks the pod as updated to revision, the name of a ControllerRevision: the
// StatefulSet controller compares that label and nothing else. The pod's resource version is
// a precondition, because this version of the pod was verified.
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

// Relabelled returns when a write of ours, such as [Relabel], last changed the pod itself, by
// the clock of the API server. It is zero if managedFields have no such write; watched pods
// have none (see live.Strip).
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

// evictTimeout bounds how long an eviction is asked for: the API server may answer that
// clients have to wait, and client-go does.
const evictTimeout = 5 * time.Second

// Evict asks for the eviction of this very version of the pod. PodDisruptionBudgets may
// refuse it (see [EvictionRefusal]).
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

// Detach takes the pod out of the ReplicaSet that controls it, which then makes another one
// in its place. The same write makes owner, the ReplicaSet's own controller, the pod's: at no
// time is it without one.
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

// GiveBack undoes [Detach]: owner, the ReplicaSet of this hash, has one pod more again.
func GiveBack(ctx context.Context, client coreclient.PodsGetter, pod *corev1.Pod, owner metav1.OwnerReference, hash string) (*corev1.Pod, error) {
	return reown(ctx, client, pod, owner, map[string]any{
		appsv1.DefaultDeploymentUniqueLabelKey: hash,
		api.DetachedLabel:                      nil,
	})
}

// reown makes owner the pod's only owner. The reference does not block the owner's deletion:
// for that, some clusters demand a right that whoever runs `inplace-rollout release` may lack
// (OwnerReferencesPermissionEnforcement).
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

// causesOfNode are the causes with which the PodResizeValidator admission plugin
// (plugin/pkg/admission/podresize of Kubernetes) says that the pod's node can never
// hold the size, and the condition's reason for each.
var causesOfNode = map[metav1.CauseType]string{
	"NodeCapacity": rollout.ReasonInfeasible, "UnsupportedPlatform": rollout.ReasonUnsupportedByNode,
}

// Texts of the API server's refusals that have no cause of their own.
const (
	// lacksFeatures: the kubelet is too old for this kind of resize
	// (plugin/pkg/admission/nodedeclaredfeatures of Kubernetes).
	lacksFeatures = "pod update requires features"
	// untold: the kubelet does not say what the containers have
	// (isPodResizeRequestSupported in pkg/apis/core/validation of Kubernetes).
	untold = "Pod running on node without support for resize"
	// exceedsQuota: there is no room in a ResourceQuota.
	exceedsQuota = "exceeded quota"
)

// neverInPlace are errors of the API server's validation of a resize to a size that only a
// new pod can have (ValidatePodResize in pkg/apis/core/validation of Kubernetes).
var neverInPlace = []string{
	"Pod QOS Class may not change as a result of resizing",
	"resource requests cannot be removed", // of containers, and of the pod as a whole
	"resource limits cannot be removed",
	"only cpu and memory resources",
	"resources for non-sidecar init containers are immutable",
	"non-sidecar init containers with a resize policy of RestartContainer cannot be resized",
	"resize of pods with pod-level resources is forbidden",
	"may not be renamed or reordered on resize",
	"may not be added or removed on resize",
	"pod-level resources cannot be removed",
	"static pods cannot be resized",
	"windows pods cannot be resized",
}

// Refusal returns what the API server answered to a resize that failed. The answer is final
// if a new pod can have the size, and no pod on this node can, or none that was born with
// another size. All else may pass, such as a quota and other denials by admission, or may be
// true of a new pod, too, such as errors of validation that are not known here.
func Refusal(err error) rollout.Refusal {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return rollout.Refusal{Reason: err.Error(), Kind: rollout.ReasonAdmissionDenied}
	}
	r := rollout.Refusal{Reason: status.Status().Message, Kind: rollout.ReasonAdmissionDenied}
	var causes []metav1.StatusCause
	if details := status.Status().Details; details != nil {
		causes = details.Causes
	}
	switch {
	case apierrors.IsForbidden(err):
		for _, c := range causes {
			if kind, is := causesOfNode[c.Type]; is {
				r.Kind, r.Final = kind, true
			}
		}
		switch {
		case strings.Contains(r.Reason, lacksFeatures):
			r.Kind, r.Final = rollout.ReasonUnsupportedByNode, true
		case strings.Contains(r.Reason, exceedsQuota):
			r.Kind = rollout.ReasonQuotaExceeded
		}
	case apierrors.IsInvalid(err) && allSay(causes, neverInPlace...):
		r.Kind, r.Final = rollout.ReasonInfeasible, true
	case apierrors.IsInvalid(err) && allSay(causes, append(neverInPlace, untold)...):
		r.Kind = rollout.ReasonUnsupportedByNode
	}
	return r
}

// EvictionRefusal returns what the API server answered to an eviction. It is no refusal if the
// pod has changed or is gone, or nobody answered. The eviction of a pod with two budgets is
// refused as an internal error (pkg/registry/core/pod/storage/eviction.go of Kubernetes).
func EvictionRefusal(err error) (r rollout.Refusal, refused bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return r, false
	}
	r = rollout.Refusal{Reason: status.Status().Message, Kind: rollout.ReasonAdmissionDenied}
	if apierrors.IsTooManyRequests(err) || strings.Contains(r.Reason, "PodDisruptionBudget") {
		r.Kind = rollout.ReasonDisruptionBudget
	}
	return r, true
}

// allSay reports whether each of the causes has one of the texts and is the API server's own.
// What a ValidatingAdmissionPolicy denies is called invalid, too, but its causes have no type;
// those of validation always have one.
func allSay(causes []metav1.StatusCause, texts ...string) bool {
	return len(causes) > 0 && !slices.ContainsFunc(causes, func(c metav1.StatusCause) bool {
		return c.Type == "" || !slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(c.Message, text) })
	})
}
