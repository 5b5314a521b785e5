// Package webhook evaluates the mutating admission policies of deploy/cluster outside the API
// server, for clusters that do not know MutatingAdmissionPolicy v1, and that of
// deploy/initial-resources. Where something is foreseen or simulated, they are asked here, too. It is the API server's own library that compiles, matches and applies
// them.
package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	celgo "github.com/google/cel-go/cel"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	apiservercel "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
)

// Policies are mutating admission policies, ready to be evaluated.
type Policies struct {
	byName    map[string]policy
	matcher   *matching.Matcher
	converter managedfields.TypeConverter
	heartbeat *Heartbeat // nil for one that never fails
	warner    *warner    // nil where nobody is warned
}

// policy is one of them, compiled. API servers make the same of it in their MutatingAdmissionPolicy
// plugin; that would link gRPC and OpenTelemetry, with twice the size of the binary.
type policy struct {
	match      registrationv1.MatchResources
	compiler   *cel.CompositedCompiler
	conditions matchconditions.Matcher
	patchers   []patch.Patcher
	fails      bool      // where it cannot be evaluated
	parameter  string    // the kind of its parameters; empty if it wants none
	tables     *Tables   // has them, if they are ConfigMaps
	bindings   []binding // by which these are found
}

// userName is what may be written into a string of CEL. Where each namespace has its own controller, it is
// that of the workload's, as deploy/overlays/one-namespace says it.
var userName = regexp.MustCompile(`^[-a-zA-Z0-9:.@/_]+(" \+ request\.namespace \+ "[-a-zA-Z0-9:.@/_]+)?$`)

// Load compiles the mutating policies in the files for the controller that is this user: those with these
// names, or all. To them the controller is there, as long as [Policies.Follow] has not said whose heartbeat counts.
func Load(files fs.FS, controller string, names ...string) (*Policies, error) {
	if !userName.MatchString(controller) {
		return nil, fmt.Errorf("%q is not a user name of a controller", controller)
	}
	converter, err := newTypeConverter()
	if err != nil {
		return nil, err
	}
	p := &Policies{byName: map[string]policy{}, matcher: matching.NewMatcher(nil, nil), converter: converter}
	if err := p.add(files, controller, nil, names...); err != nil {
		return nil, err
	}
	return p, nil
}

// Follow has the policies look at the heartbeat of the controller.
func (p *Policies) Follow(heartbeat *Heartbeat) { p.heartbeat = heartbeat }

// AddInitialResources compiles the policy of deploy/initial-resources, too.
func (p *Policies) AddInitialResources(tables *Tables) error {
	return p.add(deploy.InitialResources, deploy.User, tables)
}

func (p *Policies) add(files fs.FS, controller string, tables *Tables, names ...string) error {
	objects, err := deploy.Objects(files, controller)
	if err != nil {
		return err
	}
	bindings := map[string][]binding{}
	for _, object := range objects {
		if object, ok := object.(*registrationv1.MutatingAdmissionPolicyBinding); ok && tables != nil {
			deploy.SetDefaults(object)
			b, err := newBinding(object)
			if err != nil {
				return err
			}
			bindings[object.Spec.PolicyName] = append(bindings[object.Spec.PolicyName], b)
		}
	}
	for _, object := range objects {
		if len(names) > 0 && !slices.Contains(names, object.(metav1.Object).GetName()) {
			continue
		}
		deploy.SetDefaults(object)
		if err := p.compile(object, tables, bindings); err != nil {
			return fmt.Errorf("compiling the policy %s: %w", object.(metav1.Object).GetName(), err)
		}
	}
	return nil
}

// compile compiles an object that is a policy by which something is changed, or warned of.
func (p *Policies) compile(object runtime.Object, tables *Tables, bindings map[string][]binding) (err error) {
	switch object := object.(type) {
	case *registrationv1.ValidatingAdmissionPolicy:
		if object.Name == prerequisite.WarningPolicy {
			p.warner, err = compileWarner(object)
		}
	case *registrationv1.MutatingAdmissionPolicy:
		compiled, err := compile(object)
		if err == nil && (compiled.parameter == configMap) != (tables != nil) {
			err = fmt.Errorf("its parameters are of the kind %q, which is not supported here", compiled.parameter)
		}
		if err != nil {
			return err
		}
		compiled.tables, compiled.bindings = tables, bindings[object.Name]
		p.byName[object.Name] = compiled
	}
	return err
}

// Names are those of the policies, in alphabetical order.
func (p *Policies) Names() []string { return slices.Sorted(maps.Keys(p.byName)) }

// What the parameters of a policy can be.
const (
	configMap      = "ConfigMap"
	serviceAccount = "ServiceAccount"
)

// compile has no authorizer for a policy, and namespaces only for those whose parameters are tables: ours want no
// others, and the API server is not asked for anything while it waits for the answer.
func compile(object *registrationv1.MutatingAdmissionPolicy) (policy, error) {
	spec, parameters := object.Spec, object.Spec.ParamKind != nil
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return policy{}, fmt.Errorf("making a compiler: %w", err)
	}
	p := policy{match: *spec.MatchConstraints, compiler: compiler, fails: *spec.FailurePolicy != registrationv1.Ignore}
	var errs []error
	if parameters {
		p.parameter = spec.ParamKind.Kind
		if spec.ParamKind.APIVersion != "v1" || !slices.Contains([]string{configMap, serviceAccount}, p.parameter) {
			errs = append(errs, fmt.Errorf("it has the parameters %v, which are not supported", spec.ParamKind))
		}
	}
	for _, v := range spec.Variables {
		compiled := compiler.CompileAndStoreVariable(&variable{Name: v.Name, Expression: v.Expression}, cel.OptionalVariableDeclarations{HasParams: parameters}, environment.StoredExpressions)
		if compiled.Error != nil {
			errs = append(errs, fmt.Errorf("variable %s: %w", v.Name, compiled.Error))
		}
	}
	var conditions []cel.ExpressionAccessor
	for _, c := range spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&c))
	}
	compiled := compiler.CompileCondition(conditions, cel.OptionalVariableDeclarations{HasParams: parameters}, environment.StoredExpressions)
	errs = append(errs, compiled.CompilationErrors()...)
	p.conditions = matchconditions.NewMatcher(compiled, spec.FailurePolicy, "policy", "webhook", object.Name)
	for _, m := range spec.Mutations {
		evaluator := func(e cel.ExpressionAccessor) cel.MutatingEvaluator {
			compiled := compiler.CompileMutatingEvaluator(e, cel.OptionalVariableDeclarations{HasParams: parameters, HasPatchTypes: true}, environment.StoredExpressions)
			errs = append(errs, compiled.CompilationErrors()...)
			return compiled
		}
		switch {
		case m.JSONPatch != nil:
			p.patchers = append(p.patchers, patch.NewJSONPatcher(evaluator(&patch.JSONPatchCondition{Expression: m.JSONPatch.Expression})))
		case m.ApplyConfiguration != nil:
			p.patchers = append(p.patchers, patch.NewApplyConfigurationPatcher(evaluator(&patch.ApplyConfigurationCondition{Expression: m.ApplyConfiguration.Expression})))
		default:
			errs = append(errs, fmt.Errorf("the patch type %q is not supported", m.PatchType))
		}
	}
	return p, errors.Join(errs...)
}

// Evaluate returns what the policy of that name does to a request. An error means that the
// question makes no sense. What the policy itself cannot answer is as its failurePolicy says.
func (p *Policies) Evaluate(ctx context.Context, name string, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	policy, ok := p.byName[name]
	if !ok {
		return nil, fmt.Errorf("there is no policy %q", name)
	}
	object, err := asSent(request, request.Object)
	if err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}
	if object == nil {
		return nil, errors.New("the request has no object")
	}
	old, err := asSent(request, request.OldObject)
	if err != nil {
		return nil, fmt.Errorf("reading the old object: %w", err)
	}
	options, err := read(request.Options)
	if err != nil {
		return nil, fmt.Errorf("reading the options: %w", err)
	}
	attributes := admission.NewAttributesRecord(object, orNil(old), schema.GroupVersionKind(request.Kind), request.Namespace, request.Name,
		schema.GroupVersionResource(request.Resource), request.SubResource, admission.Operation(request.Operation), orNil(options),
		ptr.Deref(request.DryRun, false), userOf(request))

	response := &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
	after, err := p.apply(ctx, policy, attributes)
	if err != nil {
		response.Allowed = !policy.fails
		// Not Invalid, which has operators delete what they may not write.
		response.Result = &metav1.Status{
			Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: fmt.Sprintf("the policy %s could not be evaluated: %v", name, err),
		}
		return response, nil
	}
	if name == prerequisite.HoldPolicy {
		stored := attributes
		if after != nil {
			stored = withObject(attributes, after)
		}
		if response.Warnings, err = p.warnings(ctx, stored); err != nil {
			klog.FromContext(ctx).Error(err, "Could not warn of a write", "object", klog.KRef(request.Namespace, request.Name))
		}
	}
	if after, err = signed(name, attributes, after); err != nil {
		return nil, err
	}
	if after == nil {
		return response, nil
	}
	if response.Patch, err = difference(request.Object.Raw, after); err != nil {
		return nil, err
	}
	if response.Patch != nil {
		response.PatchType = ptr.To(admissionv1.PatchTypeJSONPatch)
	}
	return response, nil
}

// signed says in the dry runs by which the controller finds out whether edits are held, which policies are evaluated here: whoever
// else answers may be of another version.
func signed(policy string, attributes admission.Attributes, after runtime.Object) (runtime.Object, error) {
	if !attributes.IsDryRun() || attributes.GetName() != api.DryRunName || policy != prerequisite.HoldPolicy {
		return after, nil
	}
	if after == nil {
		after = attributes.GetObject().DeepCopyObject()
	}
	object, err := meta.Accessor(after)
	if err != nil {
		return nil, fmt.Errorf("reading the metadata: %w", err)
	}
	annotations := maps.Clone(object.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[api.EvaluatedAnnotation] = prerequisite.Digest
	object.SetAnnotations(annotations)
	return after, nil
}

// apply returns the object after the policy; nil if it does not match the request. A policy that has shown what is wished is
// asked again at once: whoever asks this one may not do it.
func (p *Policies) apply(ctx context.Context, policy policy, attributes admission.Attributes) (runtime.Object, error) {
	after, err := p.applyOnce(ctx, policy, attributes)
	if err != nil || after == nil || wishMark(after) == "" || wishMark(after) == wishMark(attributes.GetObject()) {
		return after, err
	}
	return p.applyOnce(ctx, policy, withObject(attributes, after))
}

// withObject are the attributes of a write that brings another object.
func withObject(attributes admission.Attributes, object runtime.Object) admission.Attributes {
	return admission.NewAttributesRecord(object, attributes.GetOldObject(), attributes.GetKind(), attributes.GetNamespace(),
		attributes.GetName(), attributes.GetResource(), attributes.GetSubresource(), attributes.GetOperation(), attributes.GetOperationOptions(),
		attributes.IsDryRun(), attributes.GetUserInfo())
}

// wishMark is the mark of the first of two answers; empty if the object has none.
func wishMark(object runtime.Object) string {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return ""
	}
	return accessor.GetAnnotations()[api.WishAnnotation]
}

// applyOnce asks the policy once.
func (p *Policies) applyOnce(ctx context.Context, policy policy, attributes admission.Attributes) (runtime.Object, error) {
	interfaces := admission.NewObjectInterfacesFromScheme(scheme.Scheme)
	matches, resource, kind, err := p.matcher.Matches(attributes, interfaces, criteria(policy.match))
	if err != nil || !matches {
		return nil, err
	}
	versioned, err := admission.NewVersionedAttributes(attributes, kind, interfaces)
	if err != nil {
		return nil, err
	}
	invocations, err := p.invocations(ctx, policy, attributes, interfaces)
	if err != nil {
		return nil, err
	}
	matches = false
	for _, i := range invocations {
		ctx := policy.compiler.CreateContext(ctx)
		met := policy.conditions.Match(ctx, versioned, i.parameter, nil)
		if met.Error != nil {
			return nil, met.Error
		}
		if !met.Matches {
			continue
		}
		matches = true
		for _, patcher := range policy.patchers {
			after, err := patcher.Patch(ctx, patch.Request{
				MatchedResource: resource, VersionedAttributes: versioned, ObjectInterfaces: interfaces, TypeConverter: p.converter,
				Namespace: i.namespace, OptionalVariables: cel.OptionalVariableBindings{VersionedParams: i.parameter},
			}, apiservercel.RuntimeCELCostBudget)
			if err != nil {
				return nil, err
			}
			versioned.UpdateObject(after)
		}
	}
	if !matches {
		return nil, nil
	}
	return versioned.GetObject(), nil
}

// invocations are those of a policy about a request that it matches.
func (p *Policies) invocations(ctx context.Context, policy policy, attributes admission.Attributes, interfaces admission.ObjectInterfaces) ([]invocation, error) {
	switch policy.parameter {
	case configMap:
		return policy.tables.invocations(attributes.GetNamespace(), policy.bindings, func(c matching.MatchCriteria) (bool, error) {
			matches, _, _, err := p.matcher.Matches(attributes, interfaces, c)
			return matches, err
		})
	case serviceAccount:
		return p.heartbeat.invocations(ctx, attributes)
	}
	return []invocation{{}}, nil
}

// variable is one of a policy.
type variable struct{ Name, Expression string }

func (v *variable) GetName() string            { return v.Name }
func (v *variable) GetExpression() string      { return v.Expression }
func (v *variable) ReturnTypes() []*celgo.Type { return []*celgo.Type{celgo.AnyType, celgo.DynType} }

// criteria are what a policy matches, wherever that is: the webhook configuration says in which
// namespaces, and bindings that have parameters.
type criteria registrationv1.MatchResources

func (c criteria) GetParsedNamespaceSelector() (labels.Selector, error) {
	return labels.Everything(), nil
}

func (c criteria) GetParsedObjectSelector() (labels.Selector, error) {
	return metav1.LabelSelectorAsSelector(c.ObjectSelector)
}

func (c criteria) GetMatchResources() registrationv1.MatchResources {
	return registrationv1.MatchResources(c)
}

// asSent reads an object, every field of it: the API server may be newer than our types.
func asSent(request *admissionv1.AdmissionRequest, raw runtime.RawExtension) (*unstructured.Unstructured, error) {
	object, err := read(raw)
	if err != nil || object == nil {
		return nil, err
	}
	if got, want := object.GroupVersionKind(), schema.GroupVersionKind(request.Kind); got != want {
		return nil, fmt.Errorf("it is a %s, and the request is about a %s", got, want)
	}
	return object, nil
}

func read(raw runtime.RawExtension) (*unstructured.Unstructured, error) {
	if len(raw.Raw) == 0 || string(raw.Raw) == "null" {
		return nil, nil
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(raw.Raw); err != nil {
		return nil, err
	}
	return object, nil
}

// orNil keeps a nil pointer out of an interface.
func orNil(object *unstructured.Unstructured) runtime.Object {
	if object == nil {
		return nil
	}
	return object
}

func userOf(request *admissionv1.AdmissionRequest) user.Info {
	extra := map[string][]string{}
	for key, values := range request.UserInfo.Extra {
		extra[key] = values
	}
	return &user.DefaultInfo{Name: request.UserInfo.Username, UID: request.UserInfo.UID, Groups: request.UserInfo.Groups, Extra: extra}
}

// difference is a JSON patch with what has changed and nothing else; nil if nothing has.
func difference(sent []byte, object runtime.Object) ([]byte, error) {
	now, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding what the policy has made: %w", err)
	}
	operations, err := jsonpatch.CreatePatch(sent, now)
	if err != nil {
		return nil, fmt.Errorf("comparing what the policy has made with what was sent: %w", err)
	}
	if len(operations) == 0 {
		return nil, nil
	}
	encoded, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("encoding the patch: %w", err)
	}
	return encoded, nil
}

// unknown is the type that client-go's schema has for what is not described.
const unknown = "__untyped_deduced_"

// newTypeConverter returns client-go's, with which an object may have fields that client-go does
// not know: the API server may be newer.
func newTypeConverter() (managedfields.TypeConverter, error) {
	any, err := applyconfigurations.NewTypeConverter(scheme.Scheme).ObjectToTyped(&appsv1.StatefulSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"}})
	if err != nil {
		return nil, fmt.Errorf("reading client-go's schema: %w", err)
	}
	open := &typed.Parser{}
	for _, def := range any.Schema().Types {
		if m := def.Map; m != nil && len(m.Fields) > 0 && m.ElementType == (smd.TypeRef{}) && !strings.HasPrefix(def.Name, "__") {
			def.Map = &smd.Map{Fields: m.Fields, ElementType: smd.TypeRef{NamedType: ptr.To(unknown)}, ElementRelationship: m.ElementRelationship}
		}
		open.Schema.Types = append(open.Schema.Types, def)
	}
	return managedfields.NewSchemeTypeConverter(scheme.Scheme, open), nil
}
