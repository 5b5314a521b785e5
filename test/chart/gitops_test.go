//go:build around

package chart

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestFluxValues: the values of the page's HelmRelease are some that the chart takes. What Flux does with them is what
// TestLifecycle does: it runs Helm.
func TestFluxValues(t *testing.T) {
	values := filepath.Join(t.TempDir(), "values.yaml")
	must.Do(t, os.WriteFile(values, onPage(t, "HelmRelease", "spec", "values"), 0o600))
	cp, _ := needCluster(t)
	out, _, err := helm(t.Context(), t, cp.Kubeconfig(), "template", release, folder(), "--namespace", "kube-system", "--dry-run=server", "--values", values)
	if err != nil {
		t.Fatal(err)
	}
	for kind, hook := range map[string]string{"Job": "pre-delete", "Pod": "test"} {
		if !slices.ContainsFunc(objectsIn(t, out), func(o object) bool { return o["kind"] == kind && o.annotation("helm.sh/hook") == hook }) {
			t.Errorf("there is no %s for the hook %s", kind, hook)
		}
	}
}

// onPage returns a field of the object of that kind that docs/install.md shows, as YAML.
func onPage(t *testing.T, kind string, fields ...string) []byte {
	t.Helper()
	page := must.Get(os.ReadFile(filepath.Join(controller.Root(), "docs", "install.md")))(t)
	_, block, found := strings.Cut(string(page), "\nkind: "+kind+"\n")
	block, _, ended := strings.Cut(block, "\n```")
	if !found || !ended {
		t.Fatalf("the page shows no %s", kind)
	}
	block, _, _ = strings.Cut(block, "\n---\n")
	var value any
	must.Do(t, yaml.Unmarshal([]byte(block), &value))
	for _, field := range fields {
		parent, _ := value.(map[string]any)
		value = parent[field]
	}
	if value == nil {
		t.Fatalf("the page's %s has no %s", kind, strings.Join(fields, "."))
	}
	return []byte(mustMarshal(t, value))
}
