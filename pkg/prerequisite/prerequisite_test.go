package prerequisite_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

const install = "install it with `kubectl apply -k deploy/`"

// Some of the policies, in the order in which they are looked at.
const (
	hold     = "inplace-rollout-hold"
	pending  = "inplace-rollout-status"
	validate = "inplace-rollout-validate-annotations"
)

// theOne is the controller that deploy/ installs.
const theOne = "system:serviceaccount:inplace-rollout:inplace-rollout"

// complete is a cluster that has everything but the objects of these names.
func complete(t *testing.T, without ...string) *fake.Clientset {
	t.Helper()
	return with(t, installed(t), without...)
}

// knowing is a complete cluster whose policies know another controller.
func knowing(t *testing.T, name string) *fake.Clientset {
	t.Helper()
	objects, parts := installed(t), strings.Split(name, ":")
	namespace := parts[2]
	if strings.Contains(namespace, "request.namespace") { // then it goes without saying
		namespace = ""
	}
	for i, o := range objects {
		text := must.Get(json.Marshal(o))(t)
		name := must.Get(json.Marshal(name))(t)
		text = bytes.ReplaceAll(text, []byte(theOne), bytes.Trim(name, `"`))
		objects[i] = o.DeepCopyObject()
		must.Do(t, json.Unmarshal(text, objects[i]))
		var ref *admissionv1.ParamRef
		switch b := objects[i].(type) {
		case *admissionv1.MutatingAdmissionPolicyBinding:
			ref = b.Spec.ParamRef
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			ref = b.Spec.ParamRef
		}
		if ref != nil {
			ref.Namespace = namespace
		}
	}
	client := with(t, objects)
	if where := cmp.Or(namespace, "team-a"); where != "inplace-rollout" {
		must.Do(t, client.Tracker().Add(beating(where, map[string]string{api.ReadyUntilAnnotation: time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})))
	}
	return client
}

// with is a cluster that has the objects but those of these names.
func with(t *testing.T, all []runtime.Object, without ...string) *fake.Clientset {
	t.Helper()
	var objects []runtime.Object
	for _, o := range all {
		what := "policy "
		if strings.HasSuffix(o.GetObjectKind().GroupVersionKind().Kind, "Binding") {
			what = "binding "
		}
		if !slices.Contains(without, what+must.Get(meta.Accessor(o))(t).GetName()) {
			objects = append(objects, o)
		}
	}
	objects = append(objects, beating("inplace-rollout", map[string]string{api.ReadyUntilAnnotation: time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}))
	client := fake.NewClientset(objects...)
	core := &metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods"}}}
	if !slices.Contains(without, "pods/resize") {
		core.APIResources = append(core.APIResources, metav1.APIResource{Name: "pods/resize"})
	}
	policies := &metav1.APIResourceList{GroupVersion: admissionv1.SchemeGroupVersion.String(), APIResources: []metav1.APIResource{{Name: "mutatingadmissionpolicies"}}}
	client.Resources = []*metav1.APIResourceList{core, policies}
	return as(client, "")
}

func check(t *testing.T, client kubernetes.Interface, namespace string) error {
	t.Helper()
	_, err := (&prerequisite.Cluster{Client: client, Namespace: namespace}).Check(t.Context())
	return err
}

// read are the objects of deploy/cluster, which fake clients copy.
var read = sync.OnceValues(func() ([]runtime.Object, error) { return deploy.Objects(deploy.Cluster, deploy.User) })

// installed returns what `kubectl apply -k deploy/` makes of deploy/cluster.
func installed(t *testing.T) []runtime.Object {
	t.Helper()
	objects := must.Get(read())(t)
	return slices.Clone(objects)
}

// edit changes one object of a cluster.
func edit[T runtime.Object](t *testing.T, client *fake.Clientset, resource, name string, change func(T)) *fake.Clientset {
	t.Helper()
	gvr := admissionv1.SchemeGroupVersion.WithResource(resource)
	object := must.Get(client.Tracker().Get(gvr, "", name))(t)
	changed := object.DeepCopyObject().(T)
	change(changed)
	must.Do(t, client.Tracker().Update(gvr, changed, ""))
	return client
}

// rebound is complete, but for a binding that is another policy's.
func rebound[T runtime.Object](t *testing.T, resource, name string, spec func(T) *string) *fake.Clientset {
	t.Helper()
	return edit(t, complete(t), resource, name, func(b T) { *spec(b) = "another" })
}

const (
	mutatingBindings   = "mutatingadmissionpolicybindings"
	validatingBindings = "validatingadmissionpolicybindings"
)

// bind says of every binding where it is in force.
func bind(t *testing.T, client *fake.Clientset, where *admissionv1.MatchResources) *fake.Clientset {
	t.Helper()
	for _, name := range prerequisite.MutatingPolicies {
		edit(t, client, mutatingBindings, name, func(b *admissionv1.MutatingAdmissionPolicyBinding) { b.Spec.MatchResources = where })
	}
	for _, name := range prerequisite.ValidatingPolicies {
		edit(t, client, validatingBindings, name, func(b *admissionv1.ValidatingAdmissionPolicyBinding) { b.Spec.MatchResources = where })
	}
	return client
}

// unreadable is complete, but nobody may read resource.
func unreadable(t *testing.T, resource string) *fake.Clientset {
	t.Helper()
	client := complete(t)
	build.Answers(client, "get", resource, nil, errors.New("no right"))
	return client
}

func TestCheck(t *testing.T) {
	unreadValidating := build.Each(prerequisite.ValidatingPolicies, func(name string) string { return "reading ValidatingAdmissionPolicy " + name + ": no right" })
	unread := build.Each(prerequisite.MutatingPolicies, func(name string) string { return "reading MutatingAdmissionPolicy " + name + ": no right" })
	undiscovered := complete(t)
	undiscovered.Resources = undiscovered.Resources[1:]
	tests := []struct {
		name   string
		client *fake.Clientset
		want   []string // one line each
	}{
		{"everything is there", complete(t), nil},
		{"pods/resize is not served", complete(t, "pods/resize"), []string{
			"the API server does not serve pods/resize: Kubernetes 1.34 or later is needed, with the feature gate InPlacePodVerticalScaling on",
		}},
		{"a policy is missing", complete(t, "policy "+hold), []string{"MutatingAdmissionPolicy " + hold + " is missing: " + install}},
		{"a binding is missing", complete(t, "binding "+pending), []string{"MutatingAdmissionPolicyBinding " + pending + " is missing: " + install}},
		{"a binding is another policy's", rebound(t, mutatingBindings, hold, func(b *admissionv1.MutatingAdmissionPolicyBinding) *string { return &b.Spec.PolicyName }), []string{"MutatingAdmissionPolicyBinding " + hold + ` binds the policy "another": ` + install}},
		{"a validating policy is missing", complete(t, "policy "+validate), []string{"ValidatingAdmissionPolicy " + validate + " is missing: " + install}},
		{"a validating binding is missing", complete(t, "binding "+validate), []string{"ValidatingAdmissionPolicyBinding " + validate + " is missing: " + install}},
		{
			"a validating binding is another policy's", rebound(t, validatingBindings, validate, func(b *admissionv1.ValidatingAdmissionPolicyBinding) *string { return &b.Spec.PolicyName }),
			[]string{"ValidatingAdmissionPolicyBinding " + validate + ` binds the policy "another": ` + install},
		},
		{"everything that is missing is told", complete(t, "pods/resize", "policy "+hold, "binding "+pending, "policy "+validate), []string{
			"the API server does not serve pods/resize: Kubernetes 1.34 or later is needed, with the feature gate InPlacePodVerticalScaling on",
			"MutatingAdmissionPolicy " + hold + ", MutatingAdmissionPolicyBinding " + pending + ", ValidatingAdmissionPolicy " + validate + " are missing: " + install,
		}},
		{"in the words of Helm, where it has installed the rest", byHelm(t, complete(t, "policy "+hold)), []string{
			"MutatingAdmissionPolicy " + hold + " is missing: upgrade the Helm release ipr in namespace platform, with the same chart",
		}},
		{"nothing is installed", nothing(t), []string{
			"inplace-rollout is not installed: nothing in the cluster holds edits. Install it with Helm or kubectl, as docs/install.md says",
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
			must.Equal(t, must.Said(check(t, tt.client, "team-a")), strings.Join(tt.want, "\n"), "what is reported")
		})
	}
}

// nothing is a cluster in which nothing is installed.
func nothing(t *testing.T) *fake.Clientset {
	t.Helper()
	return with(t, nil)
}

// byHelm says of every binding that Helm has installed it.
func byHelm(t *testing.T, client *fake.Clientset) *fake.Clientset {
	t.Helper()
	for _, name := range prerequisite.ValidatingPolicies {
		edit(t, client, validatingBindings, name, func(b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Annotations = map[string]string{"meta.helm.sh/release-name": "ipr", "meta.helm.sh/release-namespace": "platform"}
		})
	}
	return client
}

// as makes the client a user.
func as(client *fake.Clientset, username string) *fake.Clientset {
	client.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.SelfSubjectReview{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Now()}, Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: username}}}, nil
	})
	return client
}

// inLabelled is where the policies are in force with deploy/overlays/one-namespace/cluster, as
// the API server stores it.
var inLabelled = &admissionv1.MatchResources{
	NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"inplace-rollout.io/installed": "true"}},
	ObjectSelector:    &metav1.LabelSelector{}, MatchPolicy: new(admissionv1.Equivalent),
}

// TestNamespaces: the policies may be bound in some namespaces only.
func TestNamespaces(t *testing.T) {
	client := complete(t)
	edit(t, client, mutatingBindings, hold, func(b *admissionv1.MutatingAdmissionPolicyBinding) { b.Spec.MatchResources = inLabelled })
	edit(t, client, validatingBindings, validate, func(b *admissionv1.ValidatingAdmissionPolicyBinding) { b.Spec.MatchResources = inLabelled })
	for name, value := range map[string]string{"team-a": "true", "team-b": "false"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"inplace-rollout.io/installed": value}}}
		must.Do(t, client.Tracker().Add(ns))
	}
	const mend = " leaves out namespace team-b: label the namespace with inplace-rollout.io/installed=true"
	for namespace, want := range map[string]string{
		"team-a": "",
		"team-b": "MutatingAdmissionPolicyBinding " + hold + mend + "\nValidatingAdmissionPolicyBinding " + validate + mend,
		"team-c": `reading the labels of namespace team-c: namespaces "team-c" not found`,
	} {
		must.Equal(t, must.Said(check(t, client, namespace)), want, "namespace %q", namespace)
	}
	build.Answers(client, "get", "namespaces", nil, apierrors.NewForbidden(corev1.Resource("namespaces"), "team-b", errors.New("no right")))
	must.Fails(t, "what may not be seen", (&prerequisite.Cluster{Client: client, Namespace: "team-b"}).Report(t.Context()).Missing(), "")
}

// TestDifferences: what is installed must be what the controller was built with.
func TestDifferences(t *testing.T) {
	mutating := func(change func(*admissionv1.MutatingAdmissionPolicySpec)) *fake.Clientset {
		return edit(t, complete(t), "mutatingadmissionpolicies", hold, func(p *admissionv1.MutatingAdmissionPolicy) { change(&p.Spec) })
	}
	validatingOf := func(name string, change func(*admissionv1.ValidatingAdmissionPolicySpec)) *fake.Clientset {
		return edit(t, complete(t), "validatingadmissionpolicies", name, func(p *admissionv1.ValidatingAdmissionPolicy) { change(&p.Spec) })
	}
	bound := func(change func(*admissionv1.ValidatingAdmissionPolicyBindingSpec)) *fake.Clientset {
		return edit(t, complete(t), validatingBindings, validate, func(b *admissionv1.ValidatingAdmissionPolicyBinding) { change(&b.Spec) })
	}
	is := func(client *fake.Clientset, username string) *fake.Clientset {
		as(client, username)
		must.Do(t, client.Tracker().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", Labels: map[string]string{"inplace-rollout.io/installed": "true"}}}))
		return client
	}
	const itsOwn, ofNamespace = "system:serviceaccount:team-a:inplace-rollout", `system:serviceaccount:" + request.namespace + ":inplace-rollout`
	const notThisVersions = " is not the one of this version of the controller: they differ in "
	const forNamespaces = " of the policies' bindings are for namespaces with the label inplace-rollout.io/installed only: they were installed from deploy/overlays/one-namespace/cluster, " +
		"for controllers of single namespaces. Uninstall these, and then `kubectl apply -k deploy/`"
	const forAll = " of the policies' bindings are for all namespaces: they were installed from deploy/, for one controller of the whole cluster. " +
		"Uninstall either this controller or that installation, and then `kubectl apply -k deploy/overlays/one-namespace/cluster`"
	all := fmt.Sprint(len(prerequisite.MutatingPolicies) + len(prerequisite.ValidatingPolicies))
	for name, tt := range map[string]struct {
		client    *fake.Clientset
		namespace string
		want      string
	}{
		"what the API server fills in does not count": {client: mutating(func(s *admissionv1.MutatingAdmissionPolicySpec) {
			s.FailurePolicy, s.MatchConstraints.MatchPolicy, s.MatchConstraints.NamespaceSelector = new(admissionv1.Fail), new(admissionv1.Equivalent), &metav1.LabelSelector{}
			s.MatchConstraints.ResourceRules[0].Scope = new(admissionv1.AllScopes)
		})},
		"blanks do not count": {client: mutating(func(s *admissionv1.MutatingAdmissionPolicySpec) {
			s.Variables[0].Expression = "\n" + strings.ReplaceAll(s.Variables[0].Expression, "\n", "\n\n")
		})},
		"an expression": {client: mutating(func(s *admissionv1.MutatingAdmissionPolicySpec) { s.Variables[3].Expression = "true" }), want: "MutatingAdmissionPolicy " + hold + notThisVersions + "spec.variables[3].expression: it is \"true\", and should be "},
		"an expression that goes on": {client: validatingOf(validate, func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.MatchConditions[0].Expression += "|| true" }), want: "ValidatingAdmissionPolicy " + validate + notThisVersions +
			`spec.matchConditions[0].expression: it is "…ut.io/\"))) || true", and should be "…ut.io/\")))"`},
		"a variable more": {client: mutating(func(s *admissionv1.MutatingAdmissionPolicySpec) {
			s.Variables = append(s.Variables, admissionv1.Variable{Name: "more", Expression: "1"})
		}), want: "]: it should not be there"},
		"a validation less": {client: validatingOf(validate, func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.Validations = s.Validations[1:] }), want: notThisVersions + "spec.validations[0].expression: it is "},
		"it may fail":       {client: mutating(func(s *admissionv1.MutatingAdmissionPolicySpec) { s.FailurePolicy = new(admissionv1.Ignore) }), want: `spec.failurePolicy: it is "Ignore", and should be "Fail"`},
		"no resources":      {client: mutating(func(s *admissionv1.MutatingAdmissionPolicySpec) { s.MatchConstraints.ResourceRules = nil }), want: "spec.matchConstraints.resourceRules: it is missing"},
		"a binding audits": {client: bound(func(s *admissionv1.ValidatingAdmissionPolicyBindingSpec) {
			s.ValidationActions = []admissionv1.ValidationAction{admissionv1.Audit}
		}), want: "ValidatingAdmissionPolicyBinding " + validate + notThisVersions + `spec.validationActions[0]: it is "Audit", and should be "Deny"`},
		"a binding leaves out objects": {client: bound(func(s *admissionv1.ValidatingAdmissionPolicyBindingSpec) {
			s.MatchResources = &admissionv1.MatchResources{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
		}), want: notThisVersions + "spec.matchResources: it should not be there"},
		"bound by the label, for the cluster's controller":                {client: bind(t, complete(t), inLabelled), want: all + forNamespaces},
		"one is bound by the label, for the cluster's controller":         {client: bound(func(s *admissionv1.ValidatingAdmissionPolicyBindingSpec) { s.MatchResources = inLabelled }), want: "1" + strings.Replace(forNamespaces, " are ", " is ", 1)},
		"bound by the label, for the namespace's controller":              {client: is(bind(t, knowing(t, ofNamespace), inLabelled), itsOwn), namespace: "team-a"},
		"bound everywhere, for the namespace's controller":                {client: is(complete(t), itsOwn), namespace: "team-a", want: all + forAll},
		"bound everywhere, for the cluster's controller of a namespace":   {client: is(complete(t), theOne), namespace: "team-a"},
		"bound by the label, for the cluster's controller of a namespace": {client: is(bind(t, knowing(t, ofNamespace), inLabelled), theOne), namespace: "team-a", want: all + forNamespaces},
		"they know one in another namespace, which this is":               {client: is(knowing(t, "system:serviceaccount:platform:ipr"), "system:serviceaccount:platform:ipr")},
		"it looks after its own namespace only":                           {client: is(knowing(t, itsOwn), itsOwn), namespace: "team-a"},
		"they know another":                                               {client: is(complete(t), "system:serviceaccount:platform:ipr"), want: "the policies are installed for the controller " + theOne + ", but this one is system:serviceaccount:platform:ipr. Install them for its ServiceAccount"},
		"they look for the heartbeat of another": {client: is(edit(t, complete(t), mutatingBindings, hold, func(b *admissionv1.MutatingAdmissionPolicyBinding) {
			b.Spec.ParamRef.Namespace = "platform"
		}), theOne), want: "the policies are installed for the controller system:serviceaccount:platform:inplace-rollout, but this one is " + theOne},
		"they look for the heartbeat where the version before has it": {client: edit(t, complete(t), mutatingBindings, hold, func(b *admissionv1.MutatingAdmissionPolicyBinding) {
			b.Spec.ParamRef.Name = "inplace-rollout"
		}), want: notThisVersions + `spec.paramRef.name: it is "…ce-rollout", and should be "…ce-rollout-heartbeat"`},
		"they look for no heartbeat": {client: edit(t, complete(t), mutatingBindings, hold, func(b *admissionv1.MutatingAdmissionPolicyBinding) {
			b.Spec.ParamRef = nil
		}), want: notThisVersions + "spec.paramRef: it is missing"},
		"it is a person": {client: is(complete(t), "admin"), want: "but this one is admin"},
		"it names more critical namespaces": {client: validatingOf("inplace-rollout-validate-opt-in", func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.Variables[0].Expression = `["kube-system", "calico-system"]`
		})},
		"it does not name kube-system": {client: validatingOf("inplace-rollout-validate-opt-in", func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.Variables[0].Expression = `["calico-system"]`
		}), want: "spec.variables[0].expression: it is "},
		"one of them knows another": {client: is(validatingOf("inplace-rollout-fence-pods", func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.MatchConditions[0].Expression = strings.ReplaceAll(s.MatchConditions[0].Expression, theOne, itsOwn)
		}), theOne), want: "the policies are installed for the controller " + itsOwn + ", but this one is " + theOne},
		"bound by the label, for another ServiceAccount of the namespace": {client: is(bind(t, knowing(t, ofNamespace), inLabelled), "system:serviceaccount:team-a:default"), namespace: "team-a", want: "the policies are installed for the controller " + itsOwn},
	} {
		t.Run(name, func(t *testing.T) {
			err := check(t, tt.client, tt.namespace)
			must.Fails(t, "the check", err, tt.want)
			if strings.Contains(must.Said(err), "\n") {
				t.Errorf("one difference is told as\n%v", err)
			}
			report := (&prerequisite.Cluster{Client: tt.client, Namespace: tt.namespace}).Report(t.Context())
			must.Fails(t, "another version's on the command line", report.Missing(), "")
			must.Equal(t, report.Labelled, strings.Contains(name, "bound by the label"), "reported as one of single namespaces")
		})
	}
}

// TestRights: the controller may read and watch what it checks, and of webhooks its own only: their paths may be secret.
func TestRights(t *testing.T) {
	type right struct{ names, verbs string }
	rights := map[string]right{}
	for _, o := range installed(t) {
		role, is := o.(*rbacv1.ClusterRole)
		if !is || role.Name != "inplace-rollout-cluster" {
			continue
		}
		for _, rule := range role.Rules {
			if slices.Contains(rule.APIGroups, admissionv1.GroupName) {
				for _, resource := range rule.Resources {
					rights[resource] = right{strings.Join(rule.ResourceNames, " "), strings.Join(rule.Verbs, " ")}
				}
			}
		}
	}
	const read = "get list watch"
	want := map[string]right{
		"mutatingwebhookconfigurations": {prerequisite.WebhookConfiguration, read},
		"mutatingadmissionpolicies":     {"", read}, mutatingBindings: {"", read},
		"validatingadmissionpolicies": {"", read}, validatingBindings: {"", read},
	}
	if !maps.Equal(rights, want) {
		t.Errorf("deploy/cluster/cluster-roles.yaml gives\n%v, want\n%v", rights, want)
	}
	mutating, validating := prerequisite.MutatingPolicies, prerequisite.ValidatingPolicies
	if len(mutating) != 3 || len(validating) < 3 || slices.Contains(validating, prerequisite.WarningPolicy) {
		t.Errorf("needed are %v and %v", mutating, validating)
	}
}

func beating(namespace string, annotations map[string]string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: api.HeartbeatName, Annotations: annotations}}
}

// TestReportOfTrouble: an error of the API server is no answer: nothing is missing by it, and a controller neither there nor absent.
func TestReportOfTrouble(t *testing.T) {
	for _, resource := range []string{"mutatingwebhookconfigurations", "validatingadmissionpolicybindings", "serviceaccounts", "selfsubjectreviews"} {
		client := complete(t)
		build.Answers(client, "*", resource, nil, apierrors.NewServiceUnavailable("starting"))
		if r := (&prerequisite.Cluster{Client: client, Namespace: "team-a"}).Report(t.Context()); r.Installed != nil || r.Controller != nil || len(r.Unseen) == 0 {
			t.Errorf("%s are not answered: %+v", resource, r)
		}
	}
}

// TestAbsent: people are told where edits are not held because no controller is there.
func TestAbsent(t *testing.T) {
	at := func(ago time.Duration) map[string]string {
		return map[string]string{api.ReadyUntilAnnotation: time.Now().Add(-ago).UTC().Format(time.RFC3339)}
	}
	const absent = "no controller is ready"
	for name, tt := range map[string]struct {
		account   *corev1.ServiceAccount // instead of the one that beats; nil for none
		namespace string                 // that is looked at
		each      bool                   // each namespace has its own
		ahead     time.Duration          // of the API server's clock, ours is
		want      string
		waits     bool // only the report says that none is there
	}{
		"it is there": {account: beating("inplace-rollout", at(-30*time.Second))},
		"it has been out of date for ten seconds":  {account: beating("inplace-rollout", at(10*time.Second)), want: absent},
		"our clock is ahead":                       {account: beating("inplace-rollout", at(time.Minute)), ahead: time.Hour},
		"our clock is behind":                      {account: beating("inplace-rollout", at(-time.Minute)), ahead: -time.Hour, want: absent},
		"it is out of date":                        {account: beating("inplace-rollout", at(time.Minute)), want: absent},
		"it was taken away":                        {account: beating("inplace-rollout", nil), want: absent},
		"there is no ServiceAccount":               {want: "inplace-rollout is installed, and no controller has begun yet"},
		"edits are held all the same":              {account: beating("inplace-rollout", map[string]string{api.WhenAbsentAnnotation: api.Hold}), waits: true},
		"it is there, and edits would be held":     {account: beating("inplace-rollout", map[string]string{api.WhenAbsentAnnotation: api.Hold, api.ReadyUntilAnnotation: at(-30 * time.Second)[api.ReadyUntilAnnotation]})},
		"the namespace has one":                    {account: beating("team-a", at(-30*time.Second)), namespace: "team-a", each: true},
		"another namespace has one":                {account: beating("team-b", at(-30*time.Second)), namespace: "team-a", each: true, want: "inplace-rollout is installed, and no controller has begun yet"},
		"each has its own, and all are looked at":  {each: true},
		"one for all, and one namespace is looked": {account: beating("inplace-rollout", at(-30*time.Second)), namespace: "team-a"},
	} {
		t.Run(name, func(t *testing.T) {
			client := complete(t)
			client.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, &authenticationv1.SelfSubjectReview{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Now().Add(-tt.ahead))}}, nil
			})
			must.Do(t, client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("serviceaccounts"), "inplace-rollout", api.HeartbeatName))
			if tt.account != nil {
				must.Do(t, client.Tracker().Add(tt.account))
			}
			if tt.each {
				edit(t, client, validatingBindings, prerequisite.GuardPolicy, func(b *admissionv1.ValidatingAdmissionPolicyBinding) { b.Spec.ParamRef.Namespace = "" })
			}
			cluster := &prerequisite.Cluster{Client: client, Namespace: tt.namespace}
			got := must.Said(cluster.Report(t.Context()).Missing())
			if (tt.want == "") != (got == "") || !strings.HasPrefix(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			report := cluster.Report(t.Context())
			reported := report.Controller
			if waits := reported != nil && !prerequisite.IsNotBegun(reported); report.Waits(true) != waits {
				t.Errorf("an edit with LiveResize waits: %t, want %t", !waits, waits)
			}
			if is := reported != nil; is != (tt.waits || tt.want != "") || tt.waits && !strings.HasPrefix(reported.Error(), absent+": edits stay held") {
				t.Errorf("reported: %v", reported)
			}
		})
	}
}
