package simulated

import (
	"encoding/json"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// Patched is old after a merge patch, written into result, which is empty. For maps
// of strings, null in them and owners, both kinds of merge patch mean the same.
func Patched[T metav1.Object](old, result T, patch []byte) (T, error) {
	var carried struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(patch, &carried); err != nil {
		return result, err
	}
	if err := Meets(old, carried.Metadata.UID, carried.Metadata.ResourceVersion); err != nil {
		return result, err
	}
	original, err := json.Marshal(old)
	if err != nil {
		return result, err
	}
	merged, err := strategicpatch.StrategicMergePatch(original, patch, result)
	if err != nil {
		return result, err
	}
	if err := json.Unmarshal(merged, result); err != nil {
		return result, err
	}
	if len(carried.Metadata.OwnerReferences) > 0 {
		result.SetOwnerReferences(carried.Metadata.OwnerReferences)
	}
	return result, nil
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
