package prerequisite_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
)

const install = "install it with `kubectl apply -k deploy/`"

// complete is a cluster that has everything but the objects of these names.
func complete(t *testing.T, without ...string) *fake.Clientset {
	t.Helper()
	left := func(name string) bool {
		for _, w := range without {
			if w == name {
				return false
			}
		}
		return true
	}
	var objects []runtime.Object
	for _, name := range prerequisite.MutatingPolicies {
		if left("policy " + name) {
			objects = append(objects, &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		if left("binding " + name) {
			objects = append(objects, mutatingBinding(name, name))
		}
	}
	for _, name := range prerequisite.ValidatingPolicies {
		if left("policy " + name) {
			objects = append(objects, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		if left("binding " + name) {
			objects = append(objects, validatingBinding(name, name))
		}
	}
	client := fake.NewClientset(objects...)
	core := &metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods"}}}
	if left("pods/resize") {
		core.APIResources = append(core.APIResources, metav1.APIResource{Name: "pods/resize"})
	}
	client.Resources = []*metav1.APIResourceList{core}
	return client
}

func mutatingBinding(name, policy string) *admissionv1.MutatingAdmissionPolicyBinding {
	binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	binding.Spec.PolicyName = policy
	return binding
}

func validatingBinding(name, policy string) *admissionv1.ValidatingAdmissionPolicyBinding {
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	binding.Spec.PolicyName = policy
	return binding
}

// rebound is complete, but for one binding.
func rebound(t *testing.T, resource string, binding runtime.Object) *fake.Clientset {
	t.Helper()
	client := complete(t)
	if err := client.Tracker().Update(admissionv1.SchemeGroupVersion.WithResource(resource), binding, ""); err != nil {
		t.Fatal(err)
	}
	return client
}

// unreadable is complete, but nobody may read resource.
func unreadable(t *testing.T, resource string) *fake.Clientset {
	t.Helper()
	client := complete(t)
	client.PrependReactor("get", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("no right")
	})
	return client
}

func TestCheck(t *testing.T) {
	hold, pending, validate := prerequisite.MutatingPolicies[0], prerequisite.MutatingPolicies[1], prerequisite.ValidatingPolicies[0]
	var unreadValidating []string
	for _, name := range prerequisite.ValidatingPolicies {
		unreadValidating = append(unreadValidating, "reading ValidatingAdmissionPolicy "+name+": no right")
	}
	var unread []string
	for _, name := range prerequisite.MutatingPolicies {
		unread = append(unread, "reading MutatingAdmissionPolicy "+name+": no right")
	}
	undiscovered := complete(t)
	undiscovered.Resources = nil
	tests := []struct {
		name   string
		client *fake.Clientset
		want   []string // one line each
	}{
		{"everything is there", complete(t), nil},
		{"pods/resize is not served", complete(t, "pods/resize"), []string{
			"the API server does not serve pods/resize: Kubernetes 1.33 or later is needed, with the feature gate InPlacePodVerticalScaling on",
		}},
		{"a policy is missing", complete(t, "policy "+hold), []string{"MutatingAdmissionPolicy " + hold + " is missing: " + install}},
		{"a binding is missing", complete(t, "binding "+pending), []string{"MutatingAdmissionPolicyBinding " + pending + " is missing: " + install}},
		{"a binding is another policy's", rebound(t, "mutatingadmissionpolicybindings", mutatingBinding(hold, "another")), []string{"MutatingAdmissionPolicyBinding " + hold + ` binds the policy "another": ` + install}},
		{"a validating policy is missing", complete(t, "policy "+validate), []string{"ValidatingAdmissionPolicy " + validate + " is missing: " + install}},
		{"a validating binding is missing", complete(t, "binding "+validate), []string{"ValidatingAdmissionPolicyBinding " + validate + " is missing: " + install}},
		{
			"a validating binding is another policy's", rebound(t, "validatingadmissionpolicybindings", validatingBinding(validate, "another")),
			[]string{"ValidatingAdmissionPolicyBinding " + validate + ` binds the policy "another": ` + install},
		},
		{"everything that is missing is told", complete(t, "pods/resize", "policy "+hold, "binding "+pending, "policy "+validate), []string{
			"the API server does not serve pods/resize: Kubernetes 1.33 or later is needed, with the feature gate InPlacePodVerticalScaling on",
			"MutatingAdmissionPolicy " + hold + " is missing: " + install,
			"MutatingAdmissionPolicyBinding " + pending + " is missing: " + install,
			"ValidatingAdmissionPolicy " + validate + " is missing: " + install,
		}},
		{"policies cannot be read: that is no reason to install them", unreadable(t, "mutatingadmissionpolicies"), unread},
		{
			"a validating policy cannot be read", unreadable(t, "validatingadmissionpolicies"),
			unreadValidating,
		},
		{"discovery fails", undiscovered, []string{`asking which resources the API server has: the server could not find the requested resource, GroupVersion "v1" not found`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := prerequisite.Check(t.Context(), tt.client, "team-a"); err != nil {
				got = err.Error()
			}
			if want := strings.Join(tt.want, "\n"); got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// TestNamespaces: the policies may be bound in some namespaces only.
func TestNamespaces(t *testing.T) {
	hold, validate := prerequisite.MutatingPolicies[0], prerequisite.ValidatingPolicies[0]
	selector := &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"inplace-rollout.io/installed": "true"}}}
	mutating, validating := mutatingBinding(hold, hold), validatingBinding(validate, validate)
	mutating.Spec.MatchResources, validating.Spec.MatchResources = selector, selector
	client := complete(t)
	for resource, binding := range map[string]runtime.Object{"mutatingadmissionpolicybindings": mutating, "validatingadmissionpolicybindings": validating} {
		if err := client.Tracker().Update(admissionv1.SchemeGroupVersion.WithResource(resource), binding, ""); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range map[string]string{"team-a": "true", "team-b": "false"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"inplace-rollout.io/installed": value}}}
		if err := client.Tracker().Add(ns); err != nil {
			t.Fatal(err)
		}
	}
	const mend = " leaves out namespace team-b: label the namespace with inplace-rollout.io/installed=true"
	for namespace, want := range map[string]string{
		"":       "",
		"team-a": "",
		"team-b": "MutatingAdmissionPolicyBinding " + hold + mend + "\nValidatingAdmissionPolicyBinding " + validate + mend,
		"team-c": `reading the labels of namespace team-c: namespaces "team-c" not found`,
	} {
		got := ""
		if err := prerequisite.Check(t.Context(), client, namespace); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("namespace %q: got:\n%s\nwant:\n%s", namespace, got, want)
		}
	}
	client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("namespaces"), "team-b", errors.New("no right"))
	})
	if err := prerequisite.Missing(t.Context(), client, "team-b"); err != nil {
		t.Errorf("what may not be seen is taken to be missing: %v", err)
	}
}

func TestGate(t *testing.T) {
	hold := prerequisite.MutatingPolicies[0]
	client := complete(t, "policy "+hold)
	gate := &prerequisite.Gate{}
	if gate.Err() == nil {
		t.Error("the gate is open before anything was checked")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var opened atomic.Int32
	done := make(chan struct{})
	go func() {
		gate.Watch(ctx, client, "", time.Millisecond, func() { opened.Add(1) })
		close(done)
	}()
	eventually := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("waited in vain for %s; the gate says %v", what, gate.Err())
			}
		}
	}
	eventually("the missing policy to be told", func() bool {
		return gate.Err() != nil && strings.Contains(gate.Err().Error(), hold+" is missing")
	})
	if n := opened.Load(); n != 0 {
		t.Errorf("opened %d times while a policy is missing", n)
	}

	policies := admissionv1.SchemeGroupVersion.WithResource("mutatingadmissionpolicies")
	policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: hold}}
	if err := client.Tracker().Create(policies, policy, ""); err != nil {
		t.Fatal(err)
	}
	eventually("the gate to open", func() bool { return gate.Err() == nil && opened.Load() == 1 })

	if err := client.Tracker().Delete(policies, "", hold); err != nil {
		t.Fatal(err)
	}
	eventually("the gate to close", func() bool { return gate.Err() != nil })
	if err := client.Tracker().Create(policies, policy, ""); err != nil {
		t.Fatal(err)
	}
	eventually("the gate to open again", func() bool { return gate.Err() == nil && opened.Load() == 2 })
	cancel()
	<-done
	if n := opened.Load(); n != 2 {
		t.Errorf("opened %d times, want once for each time that the last missing thing came", n)
	}
}
