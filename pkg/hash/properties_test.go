package hash_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// sinks are two files with the same template. In the second one all defaults are written out, so that it has more leaves
// to change.
var sinks = []string{"testdata/kitchen-sink.yaml", "testdata/kitchen-sink-defaulted.yaml"}

// TestEveryOtherLeafCounts changes each leaf, not a random one: there are only some hundreds.
func TestEveryOtherLeafCounts(t *testing.T) {
	for _, file := range sinks {
		t.Run(file, func(t *testing.T) {
			sink := fromFile(t, file)
			template := decode(t, sink)
			for _, leaf := range leavesOf("", template) {
				if cpuOrMemory.MatchString(leaf.path) || leaf.path == ".spec.serviceAccount" { // the alias
					continue
				}
				leaf.set(other(t, leaf.value))
				if paths := differing(t, sink, toJSON(t, template)); len(paths) == 0 {
					t.Errorf("%s changed, and the hash did not", leaf.path)
				}
				leaf.set(leaf.value)
			}
		})
	}
}

var cpuOrMemory = regexp.MustCompile(`\.resources\.(requests|limits)\.(cpu|memory)$`)

// TestDifferencesAreEmptyIffHashesAreEqual leaves the check to differing.
func TestDifferencesAreEmptyIffHashesAreEqual(t *testing.T) {
	var raws [][]byte
	for _, file := range sinks {
		raws = append(raws, fromFile(t, file))
	}
	mutated := func(t *rapid.T, label string) []byte {
		template := decode(t, rapid.SampledFrom(raws).Draw(t, label))
		for range rapid.IntRange(0, 3).Draw(t, "mutations") {
			node := rapid.SampledFrom(nodesOf("", template)).Draw(t, "node")
			node.set(rapid.SampledFrom([]any{
				nil, "", false, json.Number("0"), json.Number("1"), []any{}, []any{nil}, []any{[]any{}}, map[string]any{},
				[]any{map[string]any{"name": "a"}}, map[string]any{"name": "app"},
			}).Draw(t, "value"))
		}
		return toJSON(t, template)
	}
	rapid.Check(t, func(t *rapid.T) {
		differing(t, mutated(t, "a"), mutated(t, "b"))
	})
}

func decode(t T, raw []byte) map[string]any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.UseNumber()
	var template map[string]any
	if err := decoder.Decode(&template); err != nil {
		t.Fatalf("%v", err)
	}
	return template
}

// node is a value somewhere in a template.
type node struct {
	path  string
	value any
	set   func(any)
}

func (n node) String() string { return n.path }

// nodesOf returns everything below value, in a fixed order.
func nodesOf(path string, value any) []node {
	var nodes []node
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			n := node{path + "." + key, v[key], func(value any) { v[key] = value }}
			nodes = append(append(nodes, n), nodesOf(n.path, n.value)...)
		}
	case []any:
		for i := range v {
			n := node{fmt.Sprintf("%s[%d]", path, i), v[i], func(value any) { v[i] = value }}
			nodes = append(append(nodes, n), nodesOf(n.path, n.value)...)
		}
	}
	return nodes
}

// leavesOf returns the strings, numbers and booleans below value.
func leavesOf(path string, value any) []node {
	return slices.DeleteFunc(nodesOf(path, value), func(n node) bool {
		switch n.value.(type) {
		case string, json.Number, bool:
			return false
		}
		return true
	})
}

// other returns another value of the same type.
func other(t T, value any) any {
	switch v := value.(type) {
	case string:
		return v + "x"
	case bool:
		return !v
	case json.Number:
		number, err := v.Float64()
		if err != nil {
			t.Fatalf("%v", err)
		}
		return json.Number(fmt.Sprint(number + 1))
	}
	t.Fatalf("%v is no scalar", value)
	return nil
}
