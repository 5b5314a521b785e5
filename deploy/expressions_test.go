package deploy

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	celgo "github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/yaml"
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
			c := newCompiler(t, policy.Name, policy.Spec.ParamKind != nil, policy.Spec.Variables, policy.Spec.MatchConditions)
			for _, v := range policy.Spec.Validations {
				c.check(t, v.Expression, celgo.BoolType)
				if v.MessageExpression != "" {
					c.check(t, v.MessageExpression, celgo.StringType)
				}
			}
		case *admissionv1.MutatingAdmissionPolicy:
			c := newCompiler(t, policy.Name, policy.Spec.ParamKind != nil, policy.Spec.Variables, policy.Spec.MatchConditions)
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

func newCompiler(t *testing.T, policy string, params bool, variables []admissionv1.Variable, conditions []admissionv1.MatchCondition) *compiler {
	t.Helper()
	composited := must.Get(cel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 33))))(t)
	c := &compiler{composited, policy, cel.OptionalVariableDeclarations{HasParams: params, HasAuthorizer: true}}
	for _, v := range variables {
		c.variable(t, v.Name, v.Expression)
	}
	for _, m := range conditions {
		c.check(t, m.Expression, celgo.BoolType)
	}
	return c
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

// TestFloor: the oldest Kubernetes that is claimed is the oldest that the tests run on, and the same wherever it stands.
func TestFloor(t *testing.T) {
	folders, err := filepath.Glob("../hack/tools/kubernetes-1.*")
	if err != nil || len(folders) == 0 {
		t.Fatal(folders, err)
	}
	var minors []int
	for _, folder := range folders {
		minor := must.Get(strconv.Atoi(strings.TrimPrefix(filepath.Base(folder), "kubernetes-1.")))(t)
		minors = append(minors, minor)
	}
	oldest := slices.Min(minors)
	for file, pattern := range map[string]string{
		"chart/Chart.yaml":         `(?m)^kubeVersion: ">=1\.%d\.0-0"$`,
		"../README.md":             `Kubernetes 1\.36 or later; 1\.%d and 1\.35 with the webhook`,
		"../docs/install.md":       `It needs Kubernetes 1\.%d or later`,
		"../docs/compatibility.md": `each minor version of Kubernetes from 1\.%d on`,
	} {
		text := must.Get(os.ReadFile(file))(t)
		if claim := regexp.MustCompile(fmt.Sprintf(pattern, oldest)); !claim.Match(text) {
			t.Errorf("%s does not say 1.%d, the oldest version of the tests (%s)", file, oldest, claim)
		}
	}
}

// TestRefusalsForbid: what a policy refuses is Forbidden, 403. The default, Invalid, has operators delete the
// workload and create it again.
func TestRefusalsForbid(t *testing.T) {
	const kind, template = "kind: ValidatingAdmissionPolicy\n", "chart/templates/"
	policies, denies := map[string]*admissionv1.ValidatingAdmissionPolicy{}, map[string]bool{}
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || !strings.HasSuffix(name, ".yaml") {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if strings.HasPrefix(name, template) {
			if strings.Contains(string(text), kind) {
				t.Errorf("%s has a policy of its own, which this test cannot read: it belongs into a file that the chart takes in", name)
			}
			return nil
		}
		for _, document := range bytes.Split(text, []byte("\n---\n")) {
			var meta metav1.TypeMeta
			if err := yaml.Unmarshal(document, &meta); err != nil {
				return err
			}
			switch meta.Kind {
			case "ValidatingAdmissionPolicy":
				p := &admissionv1.ValidatingAdmissionPolicy{}
				if err := yaml.UnmarshalStrict(document, p); err != nil {
					return err
				}
				policies[p.Name] = p
			case "ValidatingAdmissionPolicyBinding":
				b := &admissionv1.ValidatingAdmissionPolicyBinding{}
				if err := yaml.UnmarshalStrict(document, b); err != nil {
					return err
				}
				denies[b.Spec.PolicyName] = denies[b.Spec.PolicyName] || slices.Contains(b.Spec.ValidationActions, admissionv1.Deny)
			}
		}
		return nil
	})
	must.Do(t, err)
	refusals := 0
	for name := range denies {
		if !denies[name] {
			continue
		}
		if policies[name] == nil {
			t.Errorf("there is no policy %s", name)
			continue
		}
		for _, v := range policies[name].Spec.Validations {
			refusals++
			if v.Reason == nil || *v.Reason != metav1.StatusReasonForbidden {
				t.Errorf("%s: %q is not refused as Forbidden", name, v.Message)
			}
		}
	}
	if refusals < 50 {
		t.Errorf("only %d refusals were found in deploy/", refusals)
	}
}
