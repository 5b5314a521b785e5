package hash_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"pgregory.net/rapid"

	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
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
	raws := build.Each(sinks, func(file string) []byte { return fromFile(t, file) })
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
	rapid.Check(t, func(t *rapid.T) { differing(t, mutated(t, "a"), mutated(t, "b")) })
}

func decode(t T, raw []byte) map[string]any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.UseNumber()
	var template map[string]any
	must.Do(t, decoder.Decode(&template))
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
		number := must.Get(v.Float64())(t)
		return json.Number(fmt.Sprint(number + 1))
	}
	t.Fatalf("%v is no scalar", value)
	return nil
}

// FuzzOf: two templates have the same hash if they are the same to Kubernetes' own types but for
// cpu and memory. If they have the same hash, then nothing that both of them say is different:
// Kubernetes defaults what one of them leaves out.
func FuzzOf(f *testing.F) {
	build.AddSeeds(f)
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		rawA, rawB := drawTemplate(t, "a"), drawTemplate(t, "b")
		hashA, hashB := hashOf(t, rawA), hashOf(t, rawB)
		a, okA := typed(rawA)
		b, okB := typed(rawB)
		if !okA || !okB {
			t.Skip("no template of Kubernetes")
		}
		same := equality.Semantic.DeepEqual(a, b)
		if same && hashA != hashB {
			t.Errorf("the same but for cpu and memory, and the hashes differ:\n%s\n%s", rawA, rawB)
		}
		if !same && hashA == hashB && contradicts(fields(t, a), fields(t, b)) {
			t.Errorf("not the same, and the hashes are:\n%s\n%s", rawA, rawB)
		}
	}))
}

// drawTemplate draws a template of the sinks with up to three changes that Kubernetes' types allow.
func drawTemplate(t *rapid.T, label string) []byte {
	template := decode(t, fromFile(t, rapid.SampledFrom(sinks).Draw(t, label)))
	for range rapid.IntRange(0, 3).Draw(t, "changes") {
		leaf := rapid.SampledFrom(leavesOf("", template)).Draw(t, "leaf")
		var values []any
		switch leaf.value.(type) {
		case bool:
			values = []any{true, false, nil}
		case json.Number:
			values = []any{json.Number("0"), json.Number("1"), json.Number("30"), nil}
		case string:
			values = []any{"", "a", "1", "1000m", "Always", "Never", nil}
		default:
			values = []any{nil}
		}
		leaf.set(rapid.SampledFrom(values).Draw(t, "value"))
	}
	return toJSON(t, template)
}

// typed is a template in Kubernetes' own types, without cpu and memory, and whether raw is one.
func typed(raw []byte) (corev1.PodTemplateSpec, bool) {
	var t corev1.PodTemplateSpec
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if decoder.Decode(&t) != nil {
		return t, false
	}
	strip := func(r *corev1.ResourceRequirements) {
		for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
			delete(list, corev1.ResourceCPU)
			delete(list, corev1.ResourceMemory)
		}
	}
	for _, containers := range [][]corev1.Container{t.Spec.InitContainers, t.Spec.Containers} {
		for i := range containers {
			strip(&containers[i].Resources)
		}
	}
	if t.Spec.Resources != nil {
		strip(t.Spec.Resources)
	}
	return t, true
}

// fields is the JSON of a value, decoded.
func fields(t *rapid.T, value any) any {
	t.Helper()
	encoded, err := json.Marshal(value)
	if err != nil {
		t.Skip(err)
	}
	var decoded any
	must.Do(t, json.Unmarshal(encoded, &decoded))
	return decoded
}

// contradicts reports whether two values say something different about the same field. Lists of
// different lengths are left to the tests of the defaults.
func contradicts(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		other, ok := b.(map[string]any)
		for key, value := range a {
			if otherValue, both := other[key]; both && contradicts(value, otherValue) {
				return true
			}
		}
		return !ok && b != nil
	case []any:
		other, ok := b.([]any)
		if !ok || len(a) != len(other) {
			return false
		}
		for i := range a {
			if contradicts(a[i], other[i]) {
				return true
			}
		}
		return false
	case nil:
		return false
	default:
		return b != nil && a != b
	}
}
