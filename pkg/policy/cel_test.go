package policy_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserver "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	apiservercel "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// readPolicy reads the first document of a file of deploy/cluster, an admission policy.
func readPolicy[P any](t testing.TB, file string) *P {
	t.Helper()
	return readDocument[P](t, file, 0)
}

// readDocument reads one of the documents of a file of deploy/cluster.
func readDocument[P any](t testing.TB, file string, n int) *P {
	t.Helper()
	text := must.Get(os.ReadFile("../../deploy/cluster/" + file))(t)
	p := new(P)
	must.Do(t, yaml.UnmarshalStrict([]byte(strings.Split(string(text), "\n---\n")[n]), p))
	return p
}

// write is what is asked about: an object, and the one before, if there is any.
type write struct {
	kind        schema.GroupVersionKind
	object, old runtime.Object
	subresource string
	manager     string // that an update names
	params      runtime.Object
}

// orNone is the object, or nil where there is none.
func orNone[T any, O interface {
	*T
	runtime.Object
}](object O) runtime.Object {
	if object == nil {
		return nil
	}
	return object
}

// compile returns what the API server makes of a policy with these variables: are all of the
// expressions true of a write, and if not, what does the first say that is not?
func compile(t testing.TB, variables []admissionv1.Variable, expressions ...admissionv1.Validation) func(t *testing.T, w write) (all bool, said string) {
	t.Helper()
	compiler := must.Get(cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())))(t)
	declared := cel.OptionalVariableDeclarations{HasAuthorizer: true, HasParams: true}
	for _, v := range variables {
		if result := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, declared, environment.StoredExpressions); result.Error != nil {
			t.Fatal(result.Error)
		}
	}
	conditions, messages := make([]cel.ExpressionAccessor, len(expressions)), make([]cel.ExpressionAccessor, len(expressions))
	for i, v := range expressions {
		conditions[i] = &validating.ValidationCondition{Expression: v.Expression, Message: v.Message}
		if v.MessageExpression != "" {
			messages[i] = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
	}
	compiled := compiler.CompileCondition(conditions, declared, environment.StoredExpressions)
	said := compiler.CompileCondition(messages, declared, environment.StoredExpressions)
	if errs := append(compiled.CompilationErrors(), said.CompilationErrors()...); len(errs) > 0 {
		t.Fatal(errs)
	}
	fail := admissionv1.Fail
	validator := validating.NewValidator(compiled, nil, cel.NewCondition(nil), said, &fail, nil)
	return func(t *testing.T, w write) (bool, string) {
		t.Helper()
		resource := w.kind.GroupVersion().WithResource(strings.ToLower(w.kind.Kind) + "s")
		operation, options := apiserver.Create, runtime.Object(&metav1.CreateOptions{})
		if w.old != nil {
			operation, options = apiserver.Update, &metav1.UpdateOptions{FieldManager: w.manager}
		}
		named := must.Get(meta.Accessor(w.object))(t)
		attributes := apiserver.NewAttributesRecord(w.object, w.old, w.kind, named.GetNamespace(), named.GetName(), resource, w.subresource, operation, options, false, &user.DefaultInfo{Name: "somebody"})
		versioned := &apiserver.VersionedAttributes{Attributes: attributes, VersionedKind: w.kind, VersionedObject: apiserver.NewLazyObject(w.object)}
		if w.old != nil {
			versioned.VersionedOldObject = apiserver.NewLazyObject(w.old)
		}
		result := validator.Validate(context.Background(), resource, versioned, w.params, nil, apiservercel.RuntimeCELCostBudget, nil)
		for _, d := range result.Decisions {
			if d.Action != validating.ActionAdmit {
				return false, d.Message
			}
		}
		return true, ""
	}
}

// annotationsPolicy is validate-annotations.yaml: does it let in a new StatefulSet with these
// annotations, and if not, what does it say?
func annotationsPolicy(t testing.TB) func(t *testing.T, annotations map[string]string) (allowed bool, said string) {
	t.Helper()
	accepts := accepting(t, "validate-annotations.yaml")
	return func(t *testing.T, annotations map[string]string) (bool, string) {
		t.Helper()
		return accepts(t, write{kind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"),
			object: &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Annotations: annotations}}})
	}
}

// TestLongPolicy: what costs more than an expression may would be refused as Invalid, by which operators delete a workload. So
// what is too long is refused as such.
func TestLongPolicy(t *testing.T) {
	allows := annotationsPolicy(t)
	says := func(pairs int) string {
		var entries []string
		for i := range pairs {
			entries = append(entries, fmt.Sprintf("c%d/cpu=LiveResizeable,c%d/memory=RestartOnly", i, i))
		}
		return strings.Join(entries, ",")
	}
	for _, tt := range []struct {
		pairs int
		want  string
	}{{89, ""}, {93, "annotation inplace-rollout.io/resource-resize-policy: at most 4096 characters are allowed"}, {5000, "at most 4096 characters"}} {
		value := says(tt.pairs)
		allowed, said := allows(t, map[string]string{api.ResizePolicyAnnotation: value})
		if allowed != (tt.want == "") || !strings.Contains(said, tt.want) {
			t.Errorf("%d characters: allowed %t: %s, want %q", len(value), allowed, said, tt.want)
		}
	}
}
