package deploy

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
	goyaml "sigs.k8s.io/yaml/goyaml.v3"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

var update = flag.Bool("update", false, "write the table of values in chart/README.md")

// TestChartReadme: the table of README.md has each value with its default and what values.yaml says of it, and the schema has
// the same values.
func TestChartReadme(t *testing.T) {
	values, schema := goyaml.Node{}, map[string]any{}
	for name, into := range map[string]any{"values.yaml": &values, "values.schema.json": &schema} {
		text := must.Get(os.ReadFile(filepath.Join("chart", name)))(t)
		must.Do(t, goyaml.Unmarshal(text, into))
	}
	var table strings.Builder
	table.WriteString("| value | default | what it does |\n|---|---|---|\n")
	writeValues(t, &table, "", values.Content[0], schema)

	const begin, end = "<!-- values -->\n\n", "\n<!-- end -->\n"
	page := filepath.Join("chart", "README.md")
	text := must.Get(os.ReadFile(page))(t)
	before, rest, has := strings.Cut(string(text), begin)
	is, after, ends := strings.Cut(rest, end)
	if !has || !ends {
		t.Fatalf("%s has no place for the table", page)
	}
	if is != table.String() && !*update {
		t.Errorf("%s is not what values.yaml says: go test ./deploy -update", page)
	}
	if *update {
		must.Do(t, os.WriteFile(page, []byte(before+begin+table.String()+end+after), 0o644))
	}
	for _, common := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(before, -1) {
		if !strings.Contains(table.String(), "`"+common[1]+"`") {
			t.Errorf("%s has the common value %s, which values.yaml has not", page, common[1])
		}
	}
}

// writeValues writes a row for each value that has a comment, together with those that follow it without one. What the schema
// describes key by key is many values, and anything else is one.
func writeValues(t *testing.T, table *strings.Builder, path string, of *goyaml.Node, schema map[string]any) {
	t.Helper()
	properties, _ := schema["properties"].(map[string]any)
	var names, defaults []string
	var comment string
	row := func() {
		if names != nil {
			fmt.Fprintf(table, "| `%s` | %s | %s |\n", strings.Join(names, "`, `"), strings.Join(slices.Compact(defaults), ", "), comment)
		}
		names, defaults = nil, nil
	}
	known := map[string]bool{}
	for i := 0; i < len(of.Content); i += 2 {
		key, value := of.Content[i], of.Content[i+1]
		known[key.Value] = true
		name := strings.TrimPrefix(path+"."+key.Value, ".")
		described, is := properties[key.Value].(map[string]any)
		if !is {
			t.Errorf("the schema does not have %s", name)
		}
		said := strings.Join(strings.Fields(strings.ReplaceAll("\n"+key.HeadComment, "\n#", "\n")), " ")
		_, many := described["properties"]
		many = many && len(value.Content) > 0
		if said != "" || many {
			row()
			comment = strings.ReplaceAll(said, "|", "\\|")
		} else if names == nil {
			t.Errorf("values.yaml does not say what %s does", name)
		}
		if many {
			if said != "" {
				fmt.Fprintf(table, "| `%s` | | %s |\n", name, comment)
			}
			writeValues(t, table, name, value, described)
			continue
		}
		var decoded any
		must.Do(t, value.Decode(&decoded))
		text, is := decoded.(string)
		if !is || text == "" {
			encoded := must.Get(json.Marshal(decoded))(t)
			text = string(encoded)
		}
		names, defaults = append(names, name), append(defaults, "`"+text+"`")
	}
	row()
	for key := range properties {
		if !known[key] && path+key != "global" && path+key != "enabled" { // which are for a chart that includes this one
			t.Errorf("values.yaml does not have %s.%s, which the schema has", path, key)
		}
	}
}

// TestChartFlags: what the chart gives the controller are flags of the command, and each of them that is a value is said to be one.
func TestChartFlags(t *testing.T) {
	read := func(path ...string) string {
		text := must.Get(os.ReadFile(filepath.Join(path...)))(t)
		return string(text)
	}
	var values struct{ Controller map[string]any }
	must.Do(t, yaml.Unmarshal([]byte(read("chart", "values.yaml")), &values))
	_, page, _ := strings.Cut(read("..", "docs", "commands.md"), "\n## inplace-rollout controller\n")
	page, _, _ = strings.Cut(page, "\n## ")
	known := map[string]bool{}
	for _, flag := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`).FindAllStringSubmatch(page, -1) {
		known[flag[1]] = true
	}
	readme, template := read("chart", "README.md"), read("chart", "templates", "_helpers.tpl")
	given := map[string]bool{}
	for _, pair := range regexp.MustCompile(`"([a-z-]+)" \$\.Values\.controller\.(\w+)`).FindAllStringSubmatch(template, -1) {
		flag, value := pair[1], pair[2]
		given[value] = true
		if !known[flag] {
			t.Errorf("templates/_helpers.tpl gives the flag %s, which the controller has not", flag)
		}
		if _, has := values.Controller[value]; !has {
			t.Errorf("templates/_helpers.tpl reads controller.%s, which values.yaml has not", value)
		}
		if name := strings.ReplaceAll(flag, "-", ""); flag != "v" && !strings.EqualFold(name, value) {
			t.Errorf("the flag %s is called controller.%s", flag, value)
		}
		if !regexp.MustCompile("(?m)^\\| `controller\\." + value + "` \\| [^|]+\\| --?" + flag + "[:,.]").MatchString(readme) {
			t.Errorf("README.md does not say that controller.%s is the flag %s", value, flag)
		}
	}
	ofPods := regexp.MustCompile(`pick \$values\.controller((?: "\w+")+)`).FindStringSubmatch(template)
	if ofPods == nil {
		t.Fatal("templates/_helpers.tpl reads no values of the controller's pods")
	}
	for name := range strings.FieldsSeq(ofPods[1]) {
		given[strings.Trim(name, `"`)] = true
	}
	for value := range values.Controller {
		if !given[value] {
			t.Errorf("values.yaml has controller.%s, which templates/_helpers.tpl does not read", value)
		}
	}
}
