//go:build integration

package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestHashIgnoresWhatTheServerDefaults sends each golden template through the
// real API server: what comes back, with everything defaulted, has the same hash.
func TestHashIgnoresWhatTheServerDefaults(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(controller.Root(), "pkg", "hash", "testdata", "*.yaml"))
	if err != nil || len(files) < 5 {
		t.Fatalf("templates: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text := must.Get(os.ReadFile(file))(t)
			var template map[string]any
			must.Do(t, yaml.Unmarshal(text, &template))
			delete(template, "$patch") // of a ControllerRevision
			must.Do(t, unstructured.SetNestedField(template, "true", "metadata", "labels", "served"))
			served := serve(t, template)
			bare := must.Get(json.Marshal(template))(t)
			paths, err := hash.Differences(bare, served)
			if err != nil || len(paths) > 0 {
				t.Errorf("the served template differs in %v, %v", paths, err)
			}
			if string(bare) == string(served) {
				t.Error("the API server has defaulted nothing: this shows nothing")
			}
		})
	}
}

// serve returns the template as the API server would store it in a StatefulSet.
func serve(t *testing.T, template map[string]any) []byte {
	t.Helper()
	set := map[string]any{
		"apiVersion": "apps/v1", "kind": "StatefulSet",
		"metadata": map[string]any{"name": "served", "namespace": "default"},
		"spec": map[string]any{
			"serviceName": "served", "template": template,
			"selector": map[string]any{"matchLabels": map[string]any{"served": "true"}},
			"volumeClaimTemplates": []any{map[string]any{
				"metadata": map[string]any{"name": "data"},
				"spec":     map[string]any{"accessModes": []string{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}}},
			}},
		},
	}
	text := must.Get(yaml.Marshal(set))(t)
	file := filepath.Join(t.TempDir(), "served.yaml")
	must.Do(t, os.WriteFile(file, text, 0o600))
	out := must.Get(cp.Kubectl(t.Context(), "create", "--dry-run=server", "--output=json", "--filename", file))(t)
	var served struct {
		Spec struct {
			Template json.RawMessage `json:"template"`
		} `json:"spec"`
	}
	must.Do(t, json.Unmarshal([]byte(out), &served))
	return served.Spec.Template
}
