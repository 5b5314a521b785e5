package deploy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

// User is the controller's user name in the files: they are installed for another one by
// replacing this.
const User = "system:serviceaccount:inplace-rollout:inplace-rollout"

// Objects returns the objects of Kubernetes in the files, for the controller that is this user.
func Objects(files fs.FS, user string) ([]runtime.Object, error) {
	names, err := fs.Glob(files, "*/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("listing deploy/: %w", err)
	}
	var objects []runtime.Object
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("reading deploy/%s: %w", name, err)
		}
		text = bytes.ReplaceAll(text, []byte(User), []byte(user))
		for documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("reading deploy/%s: %w", name, err)
			}
			object, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
			if runtime.IsNotRegisteredError(err) { // the kustomization
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("decoding deploy/%s: %w", name, err)
			}
			objects = append(objects, object)
		}
	}
	return objects, nil
}

// SetDefaults does what the API server does to what it stores, so that our files need not say
// it: failurePolicy Fail; matchPolicy Equivalent, and selectors that select everything; scope *;
// webhooks with a timeout of 10 s that are not asked twice.
func SetDefaults(object runtime.Object) {
	switch o := object.(type) {
	case *admissionv1.MutatingAdmissionPolicy:
		orDefault(&o.Spec.FailurePolicy, admissionv1.Fail)
		defaultMatch(o.Spec.MatchConstraints)
	case *admissionv1.ValidatingAdmissionPolicy:
		orDefault(&o.Spec.FailurePolicy, admissionv1.Fail)
		defaultMatch(o.Spec.MatchConstraints)
	case *admissionv1.MutatingAdmissionPolicyBinding:
		defaultMatch(o.Spec.MatchResources)
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		defaultMatch(o.Spec.MatchResources)
	case *admissionv1.MutatingWebhookConfiguration:
		for i := range o.Webhooks {
			defaultWebhook(&o.Webhooks[i])
		}
	}
}

func defaultWebhook(w *admissionv1.MutatingWebhook) {
	orDefault(&w.FailurePolicy, admissionv1.Fail)
	orDefault(&w.MatchPolicy, admissionv1.Equivalent)
	orDefault(&w.ReinvocationPolicy, admissionv1.NeverReinvocationPolicy)
	orDefault(&w.NamespaceSelector, metav1.LabelSelector{})
	orDefault(&w.ObjectSelector, metav1.LabelSelector{})
	orDefault(&w.TimeoutSeconds, 10)
	for i := range w.Rules {
		orDefault(&w.Rules[i].Scope, admissionv1.AllScopes)
	}
}

func defaultMatch(m *admissionv1.MatchResources) {
	if m == nil {
		return
	}
	orDefault(&m.MatchPolicy, admissionv1.Equivalent)
	orDefault(&m.NamespaceSelector, metav1.LabelSelector{})
	orDefault(&m.ObjectSelector, metav1.LabelSelector{})
	for _, rules := range [][]admissionv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			orDefault(&rules[i].Scope, admissionv1.AllScopes)
		}
	}
}

func orDefault[T any](value **T, otherwise T) {
	if *value == nil {
		*value = &otherwise
	}
}
