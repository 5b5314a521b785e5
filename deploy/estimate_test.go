package deploy

import (
	"context"
	"os"
	"strings"
	"testing"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// newNamer returns what says which entry of a table the policy looks up for the version of an
// image, and which for any version of it; as a container of that name has it, where the table
// has a role for each.
func newNamer(t *testing.T) func(t rapid.TB, image, container string) (version, any string) {
	t.Helper()
	objects := must.Get(Objects(InitialResources, User))(t)
	var c *compiler
	for _, object := range objects {
		if policy, is := object.(*admissionv1.MutatingAdmissionPolicy); is {
			c = newCompiler(t, policy.Name, true, policy.Spec.Variables, nil)
		}
	}
	result := c.CompileCELExpression(expression{`variables.images[0] + variables.versions[0] + " " + variables.images[0]`, celgo.StringType}, c.options, environment.NewExpressions)
	if result.Error != nil {
		t.Fatal(result.Error)
	}
	evaluator := cel.NewMutatingEvaluator(result)
	kind, resource := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{api.InitialResourcesLabel: "enabled"}}}
	return func(t rapid.TB, image, container string) (string, string) {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: container, Image: image}}}}
		attributes := &admission.VersionedAttributes{
			Attributes:    admission.NewAttributesRecord(pod, nil, kind, "default", "pod", resource, "", admission.Create, nil, false, &user.DefaultInfo{}),
			VersionedKind: kind, VersionedObject: admission.NewLazyObject(pod),
		}
		table := &corev1.ConfigMap{}
		if container != "" {
			table.Data = map[string]string{estimate.RolesEntry: "container"}
		}
		request := cel.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(resource), metav1.GroupVersionKind(kind))
		answer, _, err := evaluator.ForInput(c.CreateContext(context.Background()), attributes, request, cel.OptionalVariableBindings{VersionedParams: table}, namespace, apiservercel.RuntimeCELCostBudget)
		if err != nil || answer.Error != nil {
			t.Fatal(image, err, answer.Error)
		}
		names := strings.Split(string(answer.EvalResult.(types.String)), " ")
		return names[0], names[1]
	}
}

// TestImages reads images as initialresources/estimate does.
func TestImages(t *testing.T) {
	text := must.Get(os.ReadFile("../initialresources/estimate/testdata/images.yaml"))(t)
	var rows []struct{ Image, Name, Version, Entry, Role string }
	must.Do(t, yaml.UnmarshalStrict(text, &rows))
	name := newNamer(t)
	for _, r := range rows {
		if r.Name == "" { // no table has them
			continue
		}
		if version, _ := name(t, r.Image, r.Role); version != r.Entry {
			t.Errorf("the entry of %q is %q, want %q", r.Image, version, r.Entry)
		}
	}
}

// TestAnyImages does so with images of which nobody has thought.
func TestAnyImages(t *testing.T) {
	const component = `[ab]{1,2}((\.|_|__|-{1,3})[ab0]{1,2}){0,2}`
	name := newNamer(t)
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.StringMatching(`([abA](-{0,2}[ab])?(\.[ab])?\.io(:[0-9]{1,2})?/|localhost(:5)?/|(index\.)?docker\.io/(library/)?|library/|[AB]/|a_b\.io/|)`).Draw(r, "domain") +
			rapid.StringMatching(component+`(/`+component+`){0,2}`).Draw(r, "path") +
			rapid.StringMatching(`(:[aA_][bB_.-]{0,4}|)`).Draw(r, "tag") +
			rapid.StringMatching(`(@sha256:[01]{64}|@[ab]([-_.][ab])?:0{32}|)`).Draw(r, "digest")
		container := rapid.StringMatching(`([ab]([-]{0,2}[ab])?|)`).Draw(r, "container")
		image, err := estimate.ParseImage(text)
		if err != nil {
			r.Skip(err)
		}
		key := estimate.Key{Image: image, Role: container}
		want := key.Entry(corev1.ResourceCPU) + " " + key.AnyVersion().Entry(corev1.ResourceCPU)
		version, any := name(r, text, container)
		if got := version + ".cpu " + any + ".cpu"; got != want {
			r.Fatalf("the entries of %q are %s, want %s", text, got, want)
		}
	})
}
