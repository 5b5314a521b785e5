package hash_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestNewTemplateRoundsQuantities: a manifest has the quantities as its author wrote them, and the API server stores
// them rounded up.
func TestNewTemplateRoundsQuantities(t *testing.T) {
	template := func(resources string) *hash.Template {
		raw := fmt.Sprintf(`{"spec": {"resources": %s, "initContainers": [{"name": "init", "resources": %s}], "containers": [{"name": "app", "resources": %s}]}}`,
			resources, resources, resources)
		return must.Get(hash.NewTemplate([]byte(raw)))(t)
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

// TestSpelledAs: what is equal is spelled as before, so that no text changes but that of the size.
func TestSpelledAs(t *testing.T) {
	template := func(cpu, quantity string) *hash.Template {
		raw := strings.NewReplacer("CPU", cpu, "QUANTITY", quantity).Replace(`{"metadata":{"labels":{"a":"1Gi"}},"spec":{"containers":[
			{"env":[{"name":"A","value":"1Gi"},{"name":"B","valueFrom":{"resourceFieldRef":{"divisor":"QUANTITY","resource":"limits.memory"}}}],"name":"app",
				"resources":{"limits":{"cpu":"CPU","ephemeral-storage":"QUANTITY","example.com/device":"QUANTITY"},"requests":{"hugepages-2Mi":"QUANTITY"}}}],
			"initContainers":[{"env":[{"name":"B","valueFrom":{"resourceFieldRef":{"divisor":"QUANTITY","resource":"limits.memory"}}}],"name":"init","resources":{"limits":{"ephemeral-storage":"QUANTITY"}}}],
			"overhead":{"memory":"QUANTITY"},"resources":{"limits":{"cpu":"CPU","memory":"QUANTITY"}},
			"volumes":[{"emptyDir":{"sizeLimit":"QUANTITY"},"name":"a"},
				{"downwardAPI":{"items":[{"path":"p","resourceFieldRef":{"divisor":"QUANTITY","resource":"limits.memory"}}]},"name":"b"},
				{"name":"c","projected":{"sources":[{"downwardAPI":{"items":[{"path":"p","resourceFieldRef":{"divisor":"QUANTITY","resource":"limits.memory"}}]}}]}},
				{"ephemeral":{"volumeClaimTemplate":{"spec":{"resources":{"requests":{"storage":"QUANTITY"}}}}},"name":"d"}]}}`)
		var compact bytes.Buffer
		must.Do(t, json.Compact(&compact, []byte(raw)))
		return must.Get(hash.NewTemplate(compact.Bytes()))(t)
	}
	before, after := template("1", "1Gi"), template("2", "1073741824")
	if before.Hash != after.Hash || before.Same(after) {
		t.Fatalf("the edit is not of cpu alone: %s", before.Differs(after))
	}
	got := must.Get(after.SpelledAs(before))(t)
	if want := template("2", "1Gi"); sorted(t, got) != sorted(t, want.Raw) {
		t.Errorf("got\n%s\nwant\n%s", got, want.Raw)
	}
	// What is not equal stays as it is, and so does what was not there.
	other := template("1", "2Gi")
	if got, err := after.SpelledAs(other); err != nil || sorted(t, got) != sorted(t, after.Raw) {
		t.Errorf("of another template: %v\n%s\nwant\n%s", err, got, after.Raw)
	}
	empty := must.Get(hash.NewTemplate([]byte(`{"spec":{"containers":[]}}`)))(t)
	if got, err := after.SpelledAs(empty); err != nil || sorted(t, got) != sorted(t, after.Raw) {
		t.Errorf("of an empty template: %v\n%s\nwant\n%s", err, got, after.Raw)
	}
}

// sorted is JSON with the keys of its objects in order.
func sorted(t *testing.T, text []byte) string {
	t.Helper()
	var value any
	must.Do(t, json.Unmarshal(text, &value))
	encoded := must.Get(json.Marshal(value))(t)
	return string(encoded)
}
