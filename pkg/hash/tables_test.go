package hash

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

func TestTablesNameFieldsOfTheAPI(t *testing.T) {
	for _, path := range slices.Concat(
		slices.Collect(maps.Keys(defaults)),
		slices.Collect(maps.Keys(rules)),
		slices.Collect(maps.Keys(ignored)),
	) {
		field := strings.TrimSuffix(path, "[]")
		if parent, _, ok := cutLast(field, "."); ok && fields[parent] == resourceListType {
			field = parent
		}
		if _, ok := fields[field]; !ok && path != "$patch" {
			t.Errorf("%s is no field of a pod template", path)
		}
	}
}

// TestDefaultsAreOfTheFieldsType checks, too, that no default is the zero of a field that is held by value: it would be
// of no effect, as zero is dropped before.
func TestDefaultsAreOfTheFieldsType(t *testing.T) {
	for path, value := range defaults {
		if isZero(value) && heldByValue(path) {
			t.Errorf("%s cannot be distinguished from its default %v", path, value)
		}
		kind := fields[path].Kind()
		if kind == reflect.Pointer {
			kind = fields[path].Elem().Kind()
		}
		if _, isObject := value.(map[string]any); isObject != (kind == reflect.Struct && fields[path] != quantityType) {
			t.Errorf("the default of %s, a %v, is %v", path, kind, value)
		}
	}
}

// TestKitchenSinkLeavesOutEveryDefault makes sure that the comparison with what an API server makes of the kitchen sink
// is one of all defaults.
func TestKitchenSinkLeavesOutEveryDefault(t *testing.T) {
	bare, defaulted := readYAML(t, "testdata/kitchen-sink.yaml"), readYAML(t, "testdata/kitchen-sink-defaulted.yaml")
	for path, value := range maps.Clone(defaults) {
		if path == "spec.resources" { // no default of Kubernetes
			continue
		}
		delete(defaults, path)
		paths, err := Differences(bare, defaulted)
		defaults[path] = value
		if err != nil || len(paths) == 0 {
			t.Errorf("without the default of %s: differences %q, error %v", path, paths, err)
		}
	}
}

func readYAML(t *testing.T, path string) []byte {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Clean(path)))(t)
	return must.Get(yaml.YAMLToJSON(text))(t)
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
