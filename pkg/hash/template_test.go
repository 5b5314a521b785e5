package hash_test

import (
	"fmt"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// TestNewTemplateRoundsQuantities: a manifest has the quantities as its author wrote them, and the API server stores
// them rounded up.
func TestNewTemplateRoundsQuantities(t *testing.T) {
	template := func(resources string) *hash.Template {
		raw := fmt.Sprintf(`{"spec": {"resources": %s, "initContainers": [{"name": "init", "resources": %s}], "containers": [{"name": "app", "resources": %s}]}}`,
			resources, resources, resources)
		template, err := hash.NewTemplate([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		return template
	}
	manifest := template(`{"requests": {"cpu": "100.5m", "memory": "0.0001"}, "limits": {"cpu": "0.2000001"}}`)
	stored := template(`{"requests": {"cpu": "101m", "memory": "1m"}, "limits": {"cpu": "201m"}}`)
	if changes := resize.Between(stored.PodTemplateSpec, manifest.PodTemplateSpec); len(changes) > 0 {
		t.Errorf("what the API server stores differs from the manifest: %s", resize.Describe(changes))
	}
	if !stored.Same(manifest) {
		t.Error("what the API server stores is not the same as the manifest")
	}
}
