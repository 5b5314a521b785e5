package initialresources

import (
	"reflect"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/schema"
)

// What estimate writes for programs is as docs/schemas says.
func TestSchema(t *testing.T) {
	images, _, err := estimated(t, "-o json nginx:1.25")
	must.Do(t, err)
	workload, _, err := estimated(t, "-o json -f "+written(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: app, image: 'nginx:1.25'}]}\n"))
	must.Do(t, err)
	from, froms := schema.Words(estimate.FromTag, estimate.FromImage, estimate.FromDefault)
	scope, scopes := schema.Words(estimate.InNamespace, estimate.InCluster)
	types := map[reflect.Type]*jsonschema.Schema{
		from: froms, scope: scopes, reflect.TypeFor[estimate.Window](): {Type: "string", Description: "a duration, such as 7d"},
	}
	schema.Assert[estimateReport](t, "../docs", estimateKind, types, []byte(images), []byte(workload))
}
