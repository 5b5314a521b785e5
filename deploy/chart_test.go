package deploy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestChartReadme: the table of README.md has each value with its default, and nothing else; so has the schema.
func TestChartReadme(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("chart", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `([^`]+)` \\| [^|]+ \\|$").FindAllStringSubmatch(string(page), -1) {
		shown[row[1]] = row[2]
	}
	values, schema := map[string]any{}, map[string]any{}
	for name, into := range map[string]*map[string]any{"values.yaml": &values, "values.schema.json": &schema} {
		text, err := os.ReadFile(filepath.Join("chart", name))
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
			if _, is := of[key]; !is && key != "global" && path+"."+key != ".enabled" {
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

// TestChartFlags: a flag of the controller is at four places of the chart, and all have the same ones: values.yaml, its schema
// and README.md (which TestChartReadme compares, too), and templates/controller.yaml. The flags are those of the command.
func TestChartFlags(t *testing.T) {
	read := func(path ...string) string {
		text, err := os.ReadFile(filepath.Join(path...))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var values struct{ Controller map[string]any }
	if err := yaml.Unmarshal([]byte(read("chart", "values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	_, page, _ := strings.Cut(read("..", "docs", "commands.md"), "\n## inplace-rollout controller\n")
	page, _, _ = strings.Cut(page, "\n## ")
	known := map[string]bool{}
	for _, flag := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`).FindAllStringSubmatch(page, -1) {
		known[flag[1]] = true
	}
	readme, template := read("chart", "README.md"), read("chart", "templates", "controller.yaml")
	for _, flag := range regexp.MustCompile(`(?m)^ +- --([a-z-]+)`).FindAllStringSubmatch(template, -1) {
		if !known[flag[1]] {
			t.Errorf("templates/controller.yaml gives the flag %s, which the controller has not", flag[1])
		}
	}
	given := map[string]bool{}
	for _, pair := range regexp.MustCompile(`"([a-z-]+)" \.Values\.controller\.(\w+)`).FindAllStringSubmatch(template, -1) {
		flag, value := pair[1], pair[2]
		given[value] = true
		if !known[flag] {
			t.Errorf("templates/controller.yaml gives the flag %s, which the controller has not", flag)
		}
		if _, has := values.Controller[value]; !has {
			t.Errorf("templates/controller.yaml reads controller.%s, which values.yaml has not", value)
		}
		if name := strings.ReplaceAll(flag, "-", ""); flag != "v" && !strings.EqualFold(name, value) {
			t.Errorf("the flag %s is called controller.%s", flag, value)
		}
		if !regexp.MustCompile("(?m)^\\| `controller\\." + value + "` .*`--?" + flag + "`").MatchString(readme) {
			t.Errorf("README.md does not say that controller.%s is the flag %s", value, flag)
		}
	}
	for value := range values.Controller {
		if !given[value] {
			t.Errorf("values.yaml has controller.%s, which templates/controller.yaml does not read", value)
		}
	}
}
