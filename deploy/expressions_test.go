package deploy

import (
	"testing"

	celgo "github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// TestExpressions compiles what validates as the oldest API server does that is supported. One of
// 1.34 takes new policies only if those of 1.33 would understand them.
func TestExpressions(t *testing.T) {
	objects, err := Objects(Cluster, User)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		policy, is := object.(*admissionv1.ValidatingAdmissionPolicy)
		if !is {
			continue
		}
		compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 33)))
		if err != nil {
			t.Fatal(err)
		}
		check := func(result cel.CompilationResult) {
			if result.Error != nil {
				t.Errorf("%s: %v", policy.Name, result.Error)
			}
		}
		options := cel.OptionalVariableDeclarations{HasParams: policy.Spec.ParamKind != nil, HasAuthorizer: true}
		for _, v := range policy.Spec.Variables {
			check(compiler.CompileAndStoreVariable(variable{expression{v.Expression, celgo.AnyType}, v.Name}, options, environment.NewExpressions))
		}
		for _, c := range policy.Spec.MatchConditions {
			check(compiler.CompileCELExpression(expression{c.Expression, celgo.BoolType}, options, environment.NewExpressions))
		}
		for _, v := range policy.Spec.Validations {
			check(compiler.CompileCELExpression(expression{v.Expression, celgo.BoolType}, options, environment.NewExpressions))
			if v.MessageExpression != "" {
				check(compiler.CompileCELExpression(expression{v.MessageExpression, celgo.StringType}, options, environment.NewExpressions))
			}
		}
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
