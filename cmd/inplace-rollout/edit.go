package main

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// edited is what live becomes by `kubectl apply` of a manifest; or by `kubectl
// replace`, if it is a whole object, as `kubectl get`, `edit` and `set` write it.
func edited(live, manifest *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if manifest.GetResourceVersion() != "" {
		whole := manifest.DeepCopy()
		whole.Object["status"] = live.Object["status"]
		whole.SetUID(live.GetUID())
		return whole, nil
	}
	modified, err := manifest.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encoding the manifest: %w", err)
	}
	current, err := live.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", live.GetName(), err)
	}
	original := []byte(live.GetAnnotations()[corev1.LastAppliedConfigAnnotation])
	if len(original) == 0 {
		original = []byte("{}")
	}
	var kind any = appsv1.StatefulSet{}
	if live.GroupVersionKind() == deploymentKind {
		kind = appsv1.Deployment{}
	}
	schema, err := strategicpatch.NewPatchMetaFromStruct(kind)
	if err != nil {
		return nil, fmt.Errorf("reading the schema of %s: %w", live.GetKind(), err)
	}
	patch, err := strategicpatch.CreateThreeWayMergePatch(original, modified, current, schema, true)
	if err != nil {
		return nil, fmt.Errorf("comparing the manifest with %s: %w", live.GetName(), err)
	}
	merged, err := strategicpatch.StrategicMergePatchUsingLookupPatchMeta(current, patch, schema)
	if err != nil {
		return nil, fmt.Errorf("applying the manifest to %s: %w", live.GetName(), err)
	}
	result := &unstructured.Unstructured{}
	if err := json.Unmarshal(merged, &result.Object); err != nil {
		return nil, fmt.Errorf("decoding the edited %s: %w", live.GetName(), err)
	}
	return result, nil
}
