package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// Resize asks as that field manager for the target's size, through the resize subresource of its pod
// (KEP-1287), and returns the pod as it is stored then. The target must have changes. See
// [resize.Target.Patch] for the preconditions, and [Refusal] for the error.
func Resize(ctx context.Context, client coreclient.PodsGetter, target resize.Target, manager string) (*corev1.Pod, error) {
	patch, err := target.Patch()
	if err != nil {
		return nil, err
	}
	pod := target.Pod()
	resized, err := client.Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: manager}, "resize")
	if err != nil {
		return nil, fmt.Errorf("resizing pod %s: %w", pod.Name, err)
	}
	return resized, nil
}

// Annotate changes an annotation that the pod has, if its value is still the one that is known.
func Annotate(ctx context.Context, client coreclient.PodsGetter, pod *corev1.Pod, name, value, manager string) error {
	path := "/metadata/annotations/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": pod.UID},
		{"op": "test", "path": path, "value": pod.Annotations[name]},
		{"op": "replace", "path": path, "value": value},
	})
	if err != nil {
		return fmt.Errorf("encoding an annotation of pod %s: %w", pod.Name, err)
	}
	if _, err := client.Pods(pod.Namespace).Patch(ctx, pod.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: manager}); err != nil {
		return fmt.Errorf("annotating pod %s: %w", pod.Name, err)
	}
	return nil
}

// Relabel marks the pod as updated to revision, the name of a ControllerRevision: the
// StatefulSet controller compares that label and nothing else. The labels without are taken from it. The pod's resource version is
// a precondition, because no other version of the pod was verified.
func Relabel(ctx context.Context, client coreclient.PodsGetter, pod *corev1.Pod, revision string, without ...string) (*corev1.Pod, error) {
	labels := map[string]any{}
	if pod.Labels[appsv1.ControllerRevisionHashLabelKey] != revision {
		labels[appsv1.ControllerRevisionHashLabelKey] = revision
	}
	for _, label := range without {
		labels[label] = nil
	}
	relabelled, err := patchVersion(ctx, client, pod, map[string]any{"labels": labels})
	if err != nil {
		return nil, fmt.Errorf("relabelling pod %s: %w", pod.Name, err)
	}
	return relabelled, nil
}

// patchVersion writes metadata of this very version of the pod.
func patchVersion(ctx context.Context, client coreclient.PodsGetter, pod *corev1.Pod, metadata map[string]any) (*corev1.Pod, error) {
	metadata["uid"], metadata["resourceVersion"] = pod.UID, pod.ResourceVersion
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, fmt.Errorf("encoding the metadata: %w", err)
	}
	return client.Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: api.FieldManager})
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

// evictTimeout bounds a request for an eviction. The API server may answer that the client
// has to wait, and client-go waits and asks again by itself.
const evictTimeout = 5 * time.Second

// Evict asks for the eviction of this very version of the pod. The API server may refuse it,
// for a PodDisruptionBudget for example: see [EvictionRefusal] for the error.
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

// Detach takes the pod out of the ReplicaSet that controls it. The ReplicaSet then makes
// another pod in its place. The same write makes owner, the ReplicaSet's Deployment, control
// the pod: at no time is it without a controller. It fails if nothing controls the pod.
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

// Reattach undoes [Detach]: owner, the ReplicaSet of this pod-template-hash, controls the pod
// again. The hash is nil if its pods have none.
func Reattach(ctx context.Context, client coreclient.PodsGetter, pod *corev1.Pod, owner metav1.OwnerReference, hash *string) (*corev1.Pod, error) {
	return reown(ctx, client, pod, owner, map[string]any{
		appsv1.DefaultDeploymentUniqueLabelKey: hash,
		api.DetachedLabel:                      nil,
	})
}

// reown makes owner control the pod. What owns it besides stays. The reference does not block the owner's deletion:
// for that, some clusters demand a right that whoever runs `inplace-rollout release` may lack
// (OwnerReferencesPermissionEnforcement).
func reown(ctx context.Context, client coreclient.PodsGetter, pod *corev1.Pod, owner metav1.OwnerReference, labels map[string]any) (*corev1.Pod, error) {
	owner.BlockOwnerDeletion = nil
	others := slices.DeleteFunc(slices.Clone(pod.OwnerReferences), func(o metav1.OwnerReference) bool { return ptr.Deref(o.Controller, false) })
	written, err := patchVersion(ctx, client, pod, map[string]any{"labels": labels, "ownerReferences": append(others, owner)})
	if err != nil {
		return nil, fmt.Errorf("giving pod %s to %s %s: %w", pod.Name, owner.Kind, owner.Name, err)
	}
	return written, nil
}

// causesOfNode are the causes with which the PodResizeValidator admission plugin
// (plugin/pkg/admission/podresize of Kubernetes) says that the pod's node can never
// hold the size, and the condition's reason for each.
var causesOfNode = map[metav1.CauseType]string{
	"NodeCapacity": judge.ReasonInfeasible, "UnsupportedPlatform": judge.ReasonUnsupportedByNode,
}

// Texts of the API server's refusals that have no cause of their own.
const (
	// lacksFeatures: the kubelet is too old for this kind of resize
	// (plugin/pkg/admission/nodedeclaredfeatures of Kubernetes).
	lacksFeatures = "pod update requires features"
	// unreported: the kubelet does not report the resources of the containers
	// (isPodResizeRequestSupported in pkg/apis/core/validation of Kubernetes).
	unreported = "Pod running on node without support for resize"
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
	"pods with pod-level resources cannot be resized",          // until 1.34
	"memory limits cannot be decreased unless resizePolicy is", // 1.33
	"memory limits cannot be added unless resizePolicy is",
	"may not be renamed or reordered on resize",
	"may not be added or removed on resize",
	"pod-level resources cannot be removed",
	"static pods cannot be resized",
	"windows pods cannot be resized",
}

// Answered reports whether the API server has decided about a write, by the error of the write. If it
// has not, because the connection was cut for example, the write may be stored all the same. So it may be where etcd has changed its leader
// in the middle of it: that is an error without a reason (ErrorToAPIStatus of k8s.io/apiserver). Those of webhooks have one.
func Answered(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
		return false
	}
	return !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsServiceUnavailable(err) && !apierrors.IsTooManyRequests(err)
}

// Refusal returns why a resize failed, from the error of [Resize], which must not be nil. It
// is final if a new pod can have the size and this one never can, because of its node or
// because it was created with another size. Everything else may pass, such as a quota or
// another denial by admission, or may be true of a new pod too, such as errors of validation
// that are not known here.
func Refusal(err error) judge.Refusal {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return judge.Refusal{Reason: err.Error(), Kind: judge.ReasonAdmissionDenied}
	}
	r := judge.Refusal{Reason: status.Status().Message, Kind: judge.ReasonAdmissionDenied}
	var causes []metav1.StatusCause
	if details := status.Status().Details; details != nil {
		causes = details.Causes
	}
	switch {
	case apierrors.IsForbidden(err):
		for _, c := range causes {
			if kind, known := causesOfNode[c.Type]; known {
				r.Kind, r.Final = kind, true
			}
		}
		switch {
		case strings.Contains(r.Reason, lacksFeatures):
			r.Kind, r.Final = judge.ReasonUnsupportedByNode, true
		case strings.Contains(r.Reason, exceedsQuota):
			r.Kind = judge.ReasonQuotaExceeded
		}
	case apierrors.IsInvalid(err) && allSay(causes, neverInPlace...):
		r.Kind, r.Final = judge.ReasonInfeasible, true
	case apierrors.IsInvalid(err) && allSay(causes, append(neverInPlace, unreported)...):
		r.Kind = judge.ReasonUnsupportedByNode
	}
	return r
}

// EvictionRefusal returns why the API server refused an eviction, from the error of [Evict].
// refused is false if there is no error, the pod has changed or is gone, or nobody answered.
// What a budget forbids has a cause of its own: an API server that is busy answers with the same code. The eviction of a
// pod with two budgets is refused by an internal error (pkg/registry/core/pod/storage/eviction.go of Kubernetes).
func EvictionRefusal(err error) (r judge.Refusal, refused bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return r, false
	}
	r = judge.Refusal{Reason: status.Status().Message, Kind: judge.ReasonAdmissionDenied}
	if apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) || strings.Contains(r.Reason, "PodDisruptionBudget") {
		r.Kind = judge.ReasonDisruptionBudget
		return r, true
	}
	return r, Answered(err)
}

// RelabelRefusal returns why the API server did not take a pod's labels, from the error of [Relabel] or [Detach].
// refused is false if there is no error, the pod has changed or is gone, or nobody answered. Admission that changes
// pods whenever they are updated has the API server's validation refuse each such write, with the whole change
// after the first line.
func RelabelRefusal(err error) (r judge.Refusal, refused bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !Answered(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return r, false
	}
	why, _, _ := strings.Cut(status.Status().Message, "\n")
	return judge.Refusal{Reason: why, Kind: judge.ReasonAdmissionDenied}, true
}

// allSay reports whether every cause is of the API server's own validation, and has one of
// the texts; false if there is no cause. A ValidatingAdmissionPolicy may answer Invalid, too,
// but its causes have no type. Those of validation always have one.
func allSay(causes []metav1.StatusCause, texts ...string) bool {
	return len(causes) > 0 && !slices.ContainsFunc(causes, func(c metav1.StatusCause) bool {
		return c.Type == "" || !slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(c.Message, text) })
	})
}
