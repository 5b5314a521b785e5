package deploy

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// quantityType is that of a quantity, such as 1Gi.
var quantityType = reflect.TypeFor[resource.Quantity]()

// hasQuantity reports whether a value of the type may have a quantity somewhere.
func hasQuantity(t reflect.Type, above ...reflect.Type) bool {
	for _, a := range above {
		if a == t {
			return false
		}
	}
	above = append(above, t)
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return hasQuantity(t.Elem(), above...)
	case reflect.Struct:
		if t == quantityType {
			return true
		}
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() && hasQuantity(f.Type, above...) {
				return true
			}
		}
	}
	return false
}

// fill puts a quantity wherever the value may have one, as each leaf of what it reaches. It calls leaf
// with the path of each, and with what sets it.
func fill(v reflect.Value, path string, leaf func(path string, set func(string))) {
	if !hasQuantity(v.Type()) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), path, leaf)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), path+"[]", leaf)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key := reflect.ValueOf("a").Convert(v.Type().Key())
		leaf(path, func(q string) { v.SetMapIndex(key, reflect.ValueOf(resource.MustParse(q))) })
	case reflect.Struct:
		if v.Type() == quantityType {
			leaf(path, func(q string) { v.Set(reflect.ValueOf(resource.MustParse(q))) })
			return
		}
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				fill(v.Field(i), strings.TrimSuffix(path+"."+name, "."), leaf)
			}
		}
	}
}

// TestEveryQuantity: the StatefulSet and the DaemonSet controller make a new revision of a template in
// which a quantity is spelled otherwise. So the policies take that for an edit, whatever the quantity
// is of, and in whichever of two ways the API server shows them the objects: from 1.37 on, that depends
// on what it has evaluated before.
func TestEveryQuantity(t *testing.T) {
	found := 0
	for name, variables := range readPolicies(t) {
		if !slices.ContainsFunc(variables, func(v admissionv1.Variable) bool { return v.Name == "quantities" }) {
			continue
		}
		found++
		t.Run(name, func(t *testing.T) { testEveryQuantity(t, name, variables) })
	}
	must.Equal(t, found, 2, "policies that look at quantities")
}

// ways are those in which the API server shows objects, and whether they are typed.
var ways = map[string]bool{"unstructured": false, "typed": true}

// newEvaluator returns what an expression says of the update of a workload, by the variables of a policy.
func newEvaluator(t *testing.T, policy string, variables []admissionv1.Variable, text expression) func(t *testing.T, object, old runtime.Object, typed bool) ref.Val {
	t.Helper()
	evaluate := newMeter(t, policy, variables, text)
	return func(t *testing.T, object, old runtime.Object, typed bool) ref.Val {
		t.Helper()
		value, _ := evaluate(t, "StatefulSet", object, old, typed)
		return value
	}
}

// newMeter is newEvaluator for any kind, which says what the evaluation costs, too.
func newMeter(t *testing.T, policy string, variables []admissionv1.Variable, text expression) func(t *testing.T, kind string, object, old runtime.Object, typed bool) (ref.Val, int64) {
	t.Helper()
	c := newCompiler(t, policy, true, nil, nil)
	c.options.HasPatchTypes = true
	for _, v := range variables {
		c.variable(t, v.Name, v.Expression)
	}
	result := c.CompileCELExpression(text, c.options, environment.NewExpressions)
	if result.Error != nil {
		t.Fatal(result.Error)
	}
	evaluator := cel.NewMutatingEvaluator(result)
	return func(t *testing.T, of string, object, old runtime.Object, typed bool) (ref.Val, int64) {
		t.Helper()
		kind, resource := appsv1.SchemeGroupVersion.WithKind(of), appsv1.SchemeGroupVersion.WithResource(strings.ToLower(of)+"s")
		attributes := &admission.VersionedAttributes{
			Attributes:    admission.NewAttributesRecord(object, old, kind, "default", "web", resource, "", admission.Update, nil, false, &user.DefaultInfo{Name: "somebody"}),
			VersionedKind: kind, VersionedObject: admission.NewLazyObject(object), VersionedOldObject: admission.NewLazyObject(old),
		}
		attributes.VersionedObject.UseSchemalessTypeRef, attributes.VersionedOldObject.UseSchemalessTypeRef = typed, typed //nolint:staticcheck // as the API server does
		request := cel.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(resource), metav1.GroupVersionKind(kind))
		answer, left, err := evaluator.ForInput(c.CreateContext(context.Background()), attributes, request, cel.OptionalVariableBindings{VersionedParams: &corev1.ServiceAccount{}}, nil, apiservercel.RuntimeCELCostBudget)
		if err != nil || answer.Error != nil {
			t.Fatal(err, answer.Error)
		}
		return answer.EvalResult, apiservercel.RuntimeCELCostBudget - left
	}
}

// TestCost: an evaluation about workloads of a quarter of what etcd takes costs less than a quarter of half of what the API server allows.
func TestCost(t *testing.T) {
	objects := must.Get(Objects(Cluster, User))(t)
	annotations, template := map[string]string{api.HoldAnnotation: "0", api.WishAnnotation: "7"}, corev1.PodTemplateSpec{}
	for i := range 3000 {
		annotations[fmt.Sprintf("example.com/%d", i)] = "x"
	}
	for i := range 1000 {
		c := corev1.Container{Name: fmt.Sprint("c", i), Env: []corev1.EnvVar{{Name: "A"}}}
		c.Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")}
		template.Spec.Containers = append(template.Spec.Containers, c)
	}
	meta := metav1.ObjectMeta{Name: "web", Namespace: "default", ResourceVersion: "7", Labels: map[string]string{api.EnabledLabel: "true"}, Annotations: annotations}
	meta.ManagedFields = slices.Repeat([]metav1.ManagedFieldsEntry{{Manager: "m", Operation: metav1.ManagedFieldsOperationApply, Time: &metav1.Time{Time: time.Unix(1, 0)}}}, 250)
	workloads := map[string]func() runtime.Object{
		"StatefulSet": func() runtime.Object {
			return &appsv1.StatefulSet{ObjectMeta: *meta.DeepCopy(), Spec: appsv1.StatefulSetSpec{Template: *template.DeepCopy(), UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: "RollingUpdate"}}}
		},
		"Deployment": func() runtime.Object {
			return &appsv1.Deployment{ObjectMeta: *meta.DeepCopy(), Spec: appsv1.DeploymentSpec{Template: *template.DeepCopy()}}
		},
		"DaemonSet": func() runtime.Object {
			return &appsv1.DaemonSet{ObjectMeta: *meta.DeepCopy(), Spec: appsv1.DaemonSetSpec{Template: *template.DeepCopy(), UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: "RollingUpdate"}}}
		},
	}
	most := int64(0)
	for _, object := range objects {
		name, variables, text := "", []admissionv1.Variable(nil), expression{"true", celgo.BoolType}
		switch policy := object.(type) {
		case *admissionv1.MutatingAdmissionPolicy:
			name, variables, text = policy.Name, policy.Spec.Variables, expression{policy.Spec.Mutations[0].JSONPatch.Expression, celgo.ListType(celgo.ObjectType("JSONPatch"))}
		case *admissionv1.ValidatingAdmissionPolicy:
			name, variables = policy.Name, policy.Spec.Variables
			for _, v := range policy.Spec.Validations {
				text.text = "(" + v.Expression + ") && " + text.text
			}
		}
		if !slices.Contains([]string{"hold", "status", "guard", "warning", "validate-annotations", "validate-opt-in", "fence-workloads"}, strings.TrimPrefix(name, "inplace-rollout-")) {
			continue
		}
		meter := newMeter(t, name, variables, text)
		for kind, make := range workloads {
			for way, typed := range ways {
				object, old := make(), make()
				if a, err := apimeta.Accessor(old); err != nil {
					t.Fatal(err)
				} else {
					a.SetGeneration(1)
				}
				_, cost := meter(t, kind, object, old, typed)
				if 4*2*cost > apiservercel.RuntimeCELCostBudget {
					t.Errorf("%s of a %s, %s, costs %d of %d", name, kind, way, cost, apiservercel.RuntimeCELCostBudget)
				}
				most = max(most, cost)
			}
		}
	}
	if most < 50000 {
		t.Errorf("the costliest evaluation costs %d: was it about all of the workload?", most)
	}
}

// TestSizeThatFailed: of a guarded rollout that has failed, an edit that keeps its size is told from one that does not.
func TestSizeThatFailed(t *testing.T) {
	objects := must.Get(Objects(Cluster, User))(t)
	at := slices.IndexFunc(objects, func(o runtime.Object) bool {
		p, is := o.(*admissionv1.ValidatingAdmissionPolicy)
		return is && p.Name == "inplace-rollout-warning"
	})
	evaluate := newEvaluator(t, "warning", objects[at].(*admissionv1.ValidatingAdmissionPolicy).Spec.Variables,
		expression{`variables.again ? variables.sizes[0].join(", ") : variables.liftsNothing ? "stays" : ""`, celgo.StringType})
	const size = "web requests.cpu=100m requests.memory=64Mi limits.memory=64Mi"
	for _, tt := range []struct {
		phase                   rollout.Phase
		restarted, memory, want string
		retry                   string
	}{
		{rollout.PhaseStopped, "now", "64Mi", size, ""}, {rollout.PhaseReverting, "now", "64Mi", size, ""}, {rollout.PhaseReverted, "now", "64Mi", size, ""},
		{rollout.PhaseCanary, "now", "64Mi", "", ""}, {rollout.PhaseRolling, "now", "64Mi", "", ""}, {rollout.PhaseStopped, "", "64Mi", "", ""}, {rollout.PhaseStopped, "now", "1Gi", "", ""},
		{rollout.PhaseStopped, "", "64Mi", "stays", "now"}, {rollout.PhaseReverted, "", "64Mi", "stays", "now;Restart"}, {rollout.PhaseStopped, "", "64Mi", "", "revision b@then"}, {rollout.PhaseCanary, "", "64Mi", "", "now"},
	} {
		old := &appsv1.StatefulSet{}
		old.Labels = map[string]string{api.EnabledLabel: "true"}
		old.Annotations = map[string]string{api.RolloutAnnotation: (&rollout.Record{Phase: tt.phase}).String()}
		old.Spec.Template.Annotations = map[string]string{"restartedAt": ""}
		old.Spec.Template.Spec.Containers = []corev1.Container{{Name: "sidecar"}, {Name: "web", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")},
			Limits:   corev1.ResourceList{"memory": resource.MustParse("64Mi")},
		}}}
		object := old.DeepCopy()
		object.Spec.Template.Annotations["restartedAt"], object.Annotations[api.RetryAnnotation] = tt.restarted, tt.retry
		object.Spec.Template.Spec.Containers[1].Resources.Limits["memory"] = resource.MustParse(tt.memory)
		for way, typed := range ways {
			must.Equal[any](t, evaluate(t, object, old, typed).Value(), tt.want, "%+v, %s: the size", tt, way)
		}
	}
}

func testEveryQuantity(t *testing.T, name string, variables []admissionv1.Variable) {
	evaluates := newEvaluator(t, name, variables, expression{"variables.edited", celgo.BoolType})
	for way, typed := range ways {
		evaluate := func(t *testing.T, object, old runtime.Object) bool {
			t.Helper()
			return bool(evaluates(t, object, old, typed).(types.Bool))
		}
		t.Run(way, func(t *testing.T) {
			before, after := &appsv1.StatefulSet{}, &appsv1.StatefulSet{}
			fill(reflect.ValueOf(&before.Spec.Template).Elem(), "", func(_ string, set func(string)) { set("1Gi") })
			leaves := map[string]func(string){}
			fill(reflect.ValueOf(&after.Spec.Template).Elem(), "", func(path string, set func(string)) {
				set("1Gi")
				leaves[path] = set
			})
			if evaluate(t, after, before) {
				t.Error("a write that changes nothing is an edit")
			}
			for path, set := range leaves {
				if strings.HasPrefix(path, ".spec.ephemeralContainers") { // no template may have them
					continue
				}
				set("1073741824")
				if !evaluate(t, after, before) {
					t.Errorf("%s spelled otherwise is no edit", path)
				}
				set("1Gi")
			}
			// What the API server lets an evaluation cost is enough for a large template.
			small, large := before.DeepCopy(), before.DeepCopy()
			for _, set := range []*appsv1.StatefulSet{small, large} {
				s := &set.Spec.Template.Spec
				s.Containers[0].Env = slices.Repeat(s.Containers[0].Env, 100)
				s.Containers, s.Volumes = slices.Repeat(s.Containers, 100), slices.Repeat(s.Volumes, 100)
			}
			large.Spec.Template.Spec.Volumes[99].EmptyDir = &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(1<<30, resource.DecimalSI)}
			if !evaluate(t, large, small) {
				t.Error("in a large template, a quantity that is spelled otherwise is no edit")
			}
			if len(leaves) < 17 {
				t.Errorf("a template has only %d quantities: %v", len(leaves), leaves)
			}
		})
	}
}
