// Package schema describes what commands write for programs, by the Go types of it, in docs/schemas, and holds what they
// write to that.
package schema

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/test/golden"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// Words are the values that a type of strings has.
func Words[S ~string](values ...S) (reflect.Type, *jsonschema.Schema) {
	s := &jsonschema.Schema{Type: "string"}
	for _, v := range values {
		s.Enum = append(s.Enum, string(v))
	}
	return reflect.TypeFor[S](), s
}

// Assert compares docs/schemas/, which is at this path, with what describes documents of a kind, or a list of them; and
// checks that these are such, and would not be with a field more.
func Assert[R any](t *testing.T, docs, kind string, types map[reflect.Type]*jsonschema.Schema, documents ...[]byte) {
	t.Helper()
	strict := &jsonschema.Schema{Schema: "https://json-schema.org/draft/2020-12/schema", OneOf: []*jsonschema.Schema{
		one[R](t, kind, types), one[cli.List[R]](t, kind+"List", types),
	}}
	strict.OneOf[1].Properties["items"].Items = strict.OneOf[0].CloneSchemas()
	resolved := must.Get(strict.Resolve(nil))(t)
	for _, document := range documents {
		var read map[string]any
		must.Do(t, json.Unmarshal(document, &read))
		if err := resolved.Validate(read); err != nil {
			t.Errorf("%v: this is no %s:\n%s", err, kind, document)
		}
		read["unheard-of"] = true
		if resolved.Validate(read) == nil {
			t.Errorf("a field of which nobody has heard goes for %s", kind)
		}
	}
	open := strict.CloneSchemas() // a newer version may have more fields
	loosen(open)
	var page bytes.Buffer
	encoder := json.NewEncoder(&page)
	encoder.SetIndent("", "  ")
	must.Do(t, encoder.Encode(open))
	golden.Assert(t, filepath.Join("..", docs, "schemas", strings.ToLower(kind)+".json"), page.Bytes())
}

func one[R any](t *testing.T, kind string, types map[reflect.Type]*jsonschema.Schema) *jsonschema.Schema {
	t.Helper()
	known := map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[resource.Quantity](): {Type: "string", Description: "a quantity of Kubernetes, such as 200m or 1Gi"},
		reflect.TypeFor[metav1.Time]():       {Type: "string", Format: "date-time"},
		reflect.TypeFor[corev1.ResourceList](): {Type: "object", Description: "quantities by the names of resources",
			AdditionalProperties: &jsonschema.Schema{Type: "string"}},
	}
	for of, s := range types {
		known[of] = s
	}
	s := must.Get(jsonschema.For[R](&jsonschema.ForOptions{TypeSchemas: known}))(t)
	var version, named any = cli.APIVersion, kind
	s.Properties["apiVersion"].Const, s.Properties["kind"].Const = &version, &named
	s.Required = append([]string{"apiVersion", "kind"}, s.Required...)
	return s
}

// loosen lets objects have other properties, too.
func loosen(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if len(s.Properties) > 0 {
		s.AdditionalProperties = nil
	}
	for _, property := range s.Properties {
		loosen(property)
	}
	for _, each := range s.OneOf {
		loosen(each)
	}
	loosen(s.Items)
}
