package deploy

import (
	"slices"
	"testing"

	celgo "github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestExpressions compiles all policies as the oldest API server does that is supported. One of
// 1.34 takes new policies only if those of 1.33 would understand them.
func TestExpressions(t *testing.T) {
	objects := must.Get(Objects(Cluster, User))(t)
	estimates := must.Get(Objects(InitialResources, User))(t)
	former := must.Get(Objects(Former, User))(t)
	for _, object := range slices.Concat(objects, estimates, former) {
		switch policy := object.(type) {
		case *admissionv1.ValidatingAdmissionPolicy:
			c := newCompiler(t, policy.Name, policy.Spec.ParamKind != nil)
			for _, v := range policy.Spec.Variables {
				c.variable(t, v.Name, v.Expression)
			}
			for _, m := range policy.Spec.MatchConditions {
				c.check(t, m.Expression, celgo.BoolType)
			}
			for _, v := range policy.Spec.Validations {
				c.check(t, v.Expression, celgo.BoolType)
				if v.MessageExpression != "" {
					c.check(t, v.MessageExpression, celgo.StringType)
				}
			}
		case *admissionv1.MutatingAdmissionPolicy:
			c := newCompiler(t, policy.Name, policy.Spec.ParamKind != nil)
			for _, v := range policy.Spec.Variables {
				c.variable(t, v.Name, v.Expression)
			}
			for _, m := range policy.Spec.MatchConditions {
				c.check(t, m.Expression, celgo.BoolType)
			}
			c.options.HasPatchTypes = true
			for _, m := range policy.Spec.Mutations {
				if m.JSONPatch != nil {
					c.check(t, m.JSONPatch.Expression, celgo.ListType(celgo.ObjectType("JSONPatch")))
				} else {
					c.check(t, m.ApplyConfiguration.Expression, celgo.ObjectType("Object"))
				}
			}
		}
	}
}

// compiler compiles the expressions of one policy.
type compiler struct {
	*cel.CompositedCompiler

	policy  string
	options cel.OptionalVariableDeclarations
}

func newCompiler(t *testing.T, policy string, params bool) *compiler {
	t.Helper()
	composited := must.Get(cel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 33))))(t)
	return &compiler{composited, policy, cel.OptionalVariableDeclarations{HasParams: params, HasAuthorizer: true}}
}

func (c *compiler) variable(t *testing.T, name, text string) {
	t.Helper()
	compiled := c.CompileAndStoreVariable(variable{expression{text, celgo.AnyType}, name}, c.options, environment.NewExpressions)
	if compiled.Error != nil {
		t.Errorf("%s: variable %s: %v", c.policy, name, compiled.Error)
	}
}

func (c *compiler) check(t *testing.T, text string, is *celgo.Type) {
	t.Helper()
	if compiled := c.CompileCELExpression(expression{text, is}, c.options, environment.NewExpressions); compiled.Error != nil {
		t.Errorf("%s: %v", c.policy, compiled.Error)
	}
}

type expression struct {
	text string
	is   *celgo.Type
}

func (e expression) GetExpression() string      { return e.text }
func (e expression) ReturnTypes() []*celgo.Type { return []*celgo.Type{e.is} }

type variable struct {
	expression
	name string
}

func (v variable) GetName() string { return v.name }
