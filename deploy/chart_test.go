//go:build integration

package chart

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestReadme: the table of README.md has each value with its default, and nothing else; so has the schema.
func TestReadme(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(folder(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `([^`]+)` \\| [^|]+ \\|$").FindAllStringSubmatch(string(page), -1) {
		shown[row[1]] = row[2]
	}
	values, schema := map[string]any{}, map[string]any{}
	for name, into := range map[string]*map[string]any{"values.yaml": &values, "values.schema.json": &schema} {
		text, err := os.ReadFile(filepath.Join(folder(), name))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, into); err != nil {
			t.Fatal(err)
		}
	}
	// What the schema describes key by key is many values, and anything else is one.
	var walk func(path string, value any, schema map[string]any)
	walk = func(path string, value any, schema map[string]any) {
		properties, _ := schema["properties"].(map[string]any)
		of, is := value.(map[string]any)
		_, described := schema["properties"]
		_, open := schema["additionalProperties"].(map[string]any)
		if !described || open || !is || path == ".webhook.certManager.issuerRef" {
			text, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			said, is := value.(string)
			if !is || said == "" {
				said = string(text)
			}
			name := strings.TrimPrefix(path, ".")
			if got := shown[name]; got != said {
				t.Errorf("README.md says %q of the default of %s, which is %s", got, name, said)
			}
			delete(shown, name)
			return
		}
		for key := range properties {
			if _, is := of[key]; !is && key != "global" {
				t.Errorf("values.yaml does not have %s.%s, which the schema has", path, key)
			}
		}
		for key, value := range of {
			described, _ := properties[key].(map[string]any)
			walk(path+"."+key, value, described)
		}
	}
	walk("", values, schema)
	for name := range shown {
		t.Errorf("README.md has %s, which values.yaml has not", name)
	}
}
