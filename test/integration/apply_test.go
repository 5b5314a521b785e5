//go:build integration || around

package integration

import (
	"errors"
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// apply applies a manifest on the server side, as a GitOps tool does. A kubectl for each would take much of the time
// that these tests take: it asks what the API server knows, before it sends the same request.
func apply(t *testing.T, namespace, manifest string) {
	t.Helper()
	decoder := yaml.NewYAMLToJSONDecoder(strings.NewReader(manifest))
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("parsing %s: %v", manifest, err)
		}
		if len(object.Object) > 0 {
			applyObject(t, namespace, object)
		}
	}
}

func applyObject(t *testing.T, namespace string, object *unstructured.Unstructured) {
	t.Helper()
	kind := object.GroupVersionKind()
	var mapping *meta.RESTMapping
	eventually(t, "the API server to know the kind "+kind.Kind, func() (bool, string) {
		var err error
		if mapping, err = mapper.RESTMapping(kind.GroupKind(), kind.Version); err != nil {
			mapper.Reset() // it may have come since
		}
		return err == nil, must.Said(err)
	})
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		namespace = ""
	}
	body := must.Get(object.MarshalJSON())(t)
	if _, err := objects.Resource(mapping.Resource).Namespace(namespace).Patch(t.Context(), object.GetName(), types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: "gitops", FieldValidation: metav1.FieldValidationStrict}); err != nil {
		t.Fatalf("applying %s %s: %v", kind.Kind, object.GetName(), err)
	}
}
