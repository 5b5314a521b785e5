package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	celgo "github.com/google/cel-go/cel"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	apiservercel "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/scheme"
)

// warner is the policy that warns. Where a webhook holds, it is evaluated here: so people do not read that a validation has failed, which
// API servers write before each warning of a policy.
type warner struct {
	policy
	validations, messages cel.ConditionEvaluator
	otherwise             []string // the messages where one cannot be evaluated
}

// message is an expression that makes one.
type message string

func (m message) GetExpression() string      { return string(m) }
func (m message) ReturnTypes() []*celgo.Type { return []*celgo.Type{celgo.StringType} }

func compileWarner(object *registrationv1.ValidatingAdmissionPolicy) (*warner, error) {
	spec := object.Spec
	compiled, err := compile(&registrationv1.MutatingAdmissionPolicy{ObjectMeta: object.ObjectMeta, Spec: registrationv1.MutatingAdmissionPolicySpec{
		ParamKind: spec.ParamKind, MatchConstraints: spec.MatchConstraints, Variables: spec.Variables, MatchConditions: spec.MatchConditions, FailurePolicy: spec.FailurePolicy,
	}})
	if err != nil {
		return nil, err
	}
	w := &warner{policy: compiled}
	var validations, messages []cel.ExpressionAccessor
	for _, v := range spec.Validations {
		validations = append(validations, &matchconditions.MatchCondition{Expression: v.Expression})
		messages = append(messages, message(cmp.Or(v.MessageExpression, `""`)))
		w.otherwise = append(w.otherwise, v.Message)
	}
	declared := cel.OptionalVariableDeclarations{HasParams: spec.ParamKind != nil}
	w.validations = compiled.compiler.CompileCondition(validations, declared, environment.StoredExpressions)
	w.messages = compiled.compiler.CompileCondition(messages, declared, environment.StoredExpressions)
	return w, errors.Join(append(w.validations.CompilationErrors(), w.messages.CompilationErrors()...)...)
}

// Warnings are what people are told of a write, as it is stored. An error has API servers say nothing.
func (p *Policies) Warnings(ctx context.Context, w Write) ([]string, error) {
	kind, resource := w.resource()
	return p.warnings(ctx, w.attributes(kind, resource))
}

func (p *Policies) warnings(ctx context.Context, attributes admission.Attributes) (warnings []string, err error) {
	if p.warner == nil {
		return nil, nil
	}
	interfaces := admission.NewObjectInterfacesFromScheme(scheme.Scheme)
	matches, resource, kind, err := p.matcher.Matches(attributes, interfaces, criteria(p.warner.match))
	if err != nil || !matches {
		return nil, err
	}
	versioned, err := admission.NewVersionedAttributes(attributes, kind, interfaces)
	if err != nil {
		return nil, err
	}
	invocations, err := p.invocations(ctx, p.warner.policy, attributes, interfaces)
	if err != nil {
		return nil, err
	}
	request := cel.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(resource), metav1.GroupVersionKind(kind))
	for _, i := range invocations {
		ctx := p.warner.compiler.CreateContext(ctx)
		if met := p.warner.conditions.Match(ctx, versioned, i.parameter, nil); met.Error != nil || !met.Matches {
			return nil, met.Error
		}
		bound := cel.OptionalVariableBindings{VersionedParams: i.parameter}
		valid, left, err := p.warner.validations.ForInput(ctx, versioned, request, bound, nil, apiservercel.RuntimeCELCostBudget)
		if err != nil {
			return nil, fmt.Errorf("evaluating the policy that warns: %w", err)
		}
		messages, _, err := p.warner.messages.ForInput(ctx, versioned, request, bound, nil, left)
		if err != nil {
			return nil, fmt.Errorf("evaluating what the policy that warns says: %w", err)
		}
		for i, v := range valid {
			if v.Error != nil || v.EvalResult.Value() == true {
				continue
			}
			said := ""
			if m := messages[i]; m.Error == nil {
				said, _ = m.EvalResult.Value().(string)
			}
			warnings = append(warnings, cmp.Or(said, p.warner.otherwise[i]))
		}
	}
	return warnings, nil
}
