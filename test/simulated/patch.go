package simulated

import (
	"encoding/json"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// errUnversioned is the error of a write that may undo what others have made of a pod meanwhile.
var errUnversioned = errors.New("the write of a pod does not say which version of it was looked at")

// Patched is old after a merge patch with its preconditions, written into result, which is empty.
// Each patch of a pod must have its version as one.
func Patched[T metav1.Object](old, result T, patch []byte) (T, error) {
	var carried struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(patch, &carried); err != nil {
		return result, err
	}
	if _, pod := any(old).(*corev1.Pod); pod && carried.Metadata.ResourceVersion == "" {
		return result, errUnversioned
	}
	if err := Meets(old, carried.Metadata.UID, carried.Metadata.ResourceVersion); err != nil {
		return result, err
	}
	if err := merge(old, result, patch); err != nil {
		return result, err
	}
	if len(carried.Metadata.OwnerReferences) > 0 { // a strategic merge would keep the old ones
		result.SetOwnerReferences(carried.Metadata.OwnerReferences)
	}
	return result, nil
}

// merge writes old after a merge patch into result, which is empty. For maps of strings and null in
// them, both kinds of merge patch mean the same.
func merge[T metav1.Object](old, result T, patch []byte) error {
	original, err := json.Marshal(old)
	if err != nil {
		return err
	}
	merged, err := strategicpatch.StrategicMergePatch(original, patch, result)
	if err != nil {
		return err
	}
	return json.Unmarshal(merged, result)
}

// Meets is a conflict unless the object is this version of it; empty means any.
func Meets(object metav1.Object, uid types.UID, version string) error {
	if uid != "" && uid != object.GetUID() || version != "" && version != object.GetResourceVersion() {
		return Conflict(object)
	}
	return nil
}

// Conflict is the error of a write that came too late.
func Conflict(object metav1.Object) error {
	return apierrors.NewConflict(schema.GroupResource{}, object.GetName(), errors.New("the object has been modified"))
}
