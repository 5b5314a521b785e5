package policy_test

import (
	"context"
	"os"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserver "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	apiservercel "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
)

// FuzzRead: Go accepts what the API server accepts, evaluated by the API server's own library.
//
// Two differences are known. Go rounds what is below a nanosecond, maybe to nothing. And CEL fails
// at durations beyond 292 years, where Go says why; either way they are refused.
func FuzzRead(f *testing.F) {
	accepts := compile(f)
	for _, entries := range []string{
		"cpu=LiveResizeable, app/memory:decrease=RestartOnly", "cpu=LiveResizeable,cpu=RestartOnly", " ,", "a.b/cpu=RestartOnly",
		"cpu\n=RestartOnly", "cpu=RestartOnly\n", "/cpu=RestartOnly", "cpu:=RestartOnly", "CPU=RestartOnly",
	} {
		f.Add(entries, "", "")
	}
	for _, action := range []string{"LiveResizePreferred", "Restart ", "live", "\u00a0LiveResize", "\x00", "Restart\n", "LiveResize,Restart", "\ufeffRestart", "\u2028Restart"} {
		f.Add("", action, "")
	}
	for _, timeout := range []string{"1h30m", "+.5s", "-1s", "0", "0s", "1µs1μs", "9999999h", "1.s", "0.1ns", "1e3s", "٣s", "."} {
		f.Add("", "", timeout)
	}
	f.Fuzz(func(t *testing.T, resizePolicy, action, timeout string) {
		if strings.ContainsAny(timeout, ".") && strings.Contains(timeout, "ns") {
			t.Skip("fractions of a nanosecond")
		}
		for _, text := range []string{resizePolicy, action, timeout} {
			if strings.ToValidUTF8(text, "") != text {
				t.Skip("JSON cannot say it")
			}
		}
		annotations := map[string]string{
			api.ResizePolicyAnnotation: resizePolicy, api.ResizeActionAnnotation: action, api.DeferredTimeoutAnnotation: timeout,
		}
		_, err := policy.Read(annotations)
		if got, said := accepts(t, annotations); got != (err == nil) {
			t.Errorf("%q: Go says %v; the API server %q", annotations, err, said)
		}
	})
}

// compile returns what the API server makes of validate-annotations.yaml: does it let in a new
// StatefulSet with these annotations, and if not, what does it say?
func compile(t testing.TB) func(t *testing.T, annotations map[string]string) (allowed bool, said string) {
	t.Helper()
	file, err := os.ReadFile("../../deploy/cluster/validate-annotations.yaml")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(file), "\n---\n")
	p := &admissionv1.ValidatingAdmissionPolicy{}
	if err := yaml.UnmarshalStrict([]byte(first), p); err != nil {
		t.Fatal(err)
	}
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	declared := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	for _, v := range p.Spec.Variables {
		if result := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, declared, environment.StoredExpressions); result.Error != nil {
			t.Fatal(result.Error)
		}
	}
	conditions := make([]cel.ExpressionAccessor, len(p.Spec.Validations))
	for i, v := range p.Spec.Validations {
		conditions[i] = &validating.ValidationCondition{Expression: v.Expression, Message: v.Message}
	}
	compiled := compiler.CompileCondition(conditions, declared, environment.StoredExpressions)
	if errs := compiled.CompilationErrors(); len(errs) > 0 {
		t.Fatal(errs)
	}
	validator := validating.NewValidator(compiled, nil, cel.NewCondition(nil), cel.NewCondition(nil), p.Spec.FailurePolicy, nil)
	kind, resource := appsv1.SchemeGroupVersion.WithKind("StatefulSet"), appsv1.SchemeGroupVersion.WithResource("statefulsets")
	return func(t *testing.T, annotations map[string]string) (bool, string) {
		t.Helper()
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Annotations: annotations}}
		attributes := apiserver.NewAttributesRecord(set, nil, kind, set.Namespace, set.Name, resource, "", apiserver.Create, &metav1.CreateOptions{}, false, nil)
		result := validator.Validate(context.Background(), resource, &apiserver.VersionedAttributes{Attributes: attributes, VersionedKind: kind, VersionedObject: apiserver.NewLazyObject(set)}, nil, nil, apiservercel.RuntimeCELCostBudget, nil)
		for _, d := range result.Decisions {
			if d.Action != validating.ActionAdmit {
				return false, d.Message
			}
		}
		return true, ""
	}
}
