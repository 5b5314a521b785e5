package prerequisite

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// policy is an admission policy of deploy/cluster with its binding, which has the same name.
type policy struct {
	kind, name    string         // the kind is MutatingAdmissionPolicy or ValidatingAdmissionPolicy
	spec, binding map[string]any // as from JSON; the binding without matchResources
	where         any            // matchResources of the binding; nil for everywhere
}

// mutating is the kind of the policies that hold; the others validate.
const mutating = "MutatingAdmissionPolicy"

// policies are those of deploy/cluster that this binary was built with.
var policies = mustRead(deploy.Cluster)

// WarningPolicy is the name of the policy that tells people what their write does, and refuses nothing.
const WarningPolicy = "inplace-rollout-warning"

// GuardPolicy is the name of the policy that refuses a write whose hold somebody has undone.
const GuardPolicy = "inplace-rollout-guard"

// GuardPolicies are the names of all that refuse a write in which somebody has undone something of ours.
func GuardPolicies() []string {
	return slices.DeleteFunc(slices.Clone(ValidatingPolicies), func(name string) bool { return !strings.HasPrefix(name, GuardPolicy) })
}

// MutatingPolicies and ValidatingPolicies are the names of the admission policies that are needed.
var (
	MutatingPolicies   = namesOf(mutating)
	ValidatingPolicies = namesOf("ValidatingAdmissionPolicy")
)

// FormerMutatingPolicies and FormerValidatingPolicies are those of the version before, which do nothing any more. Only commands want to
// know them: a server does not read them when it starts.
var (
	FormerMutatingPolicies   = sync.OnceValue(formerNames[*admissionv1.MutatingAdmissionPolicy])
	FormerValidatingPolicies = sync.OnceValue(formerNames[*admissionv1.ValidatingAdmissionPolicy])
)

func formerNames[P metav1.Object]() (names []string) {
	objects, err := deploy.Objects(deploy.Former, deploy.User)
	if err != nil {
		panic(err) // a test reads the same file
	}
	for _, object := range objects {
		if p, is := object.(P); is {
			names = append(names, p.GetName())
		}
	}
	return names
}

// labelled is what a binding says where only some namespaces have a controller, as
// deploy/overlays/one-namespace/cluster has it.
var labelled = specOf(&admissionv1.MutatingAdmissionPolicyBinding{Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{
	MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{api.InstalledLabel: "true"}}},
}})["matchResources"]

func namesOf(kind string) []string {
	var names []string
	for _, p := range policies {
		if p.kind == kind {
			names = append(names, p.name)
		}
	}
	return names
}

// mustRead panics where [read] fails: a test reads the same files.
func mustRead(files fs.FS) []policy {
	read, err := read(files)
	if err != nil {
		panic(err)
	}
	return read
}

// read returns the policies in the files, the mutating ones first. Those that only warn are
// left out: nothing depends on them.
func read(files fs.FS) ([]policy, error) {
	all, err := deploy.Objects(files, deploy.User)
	if err != nil {
		return nil, err
	}
	var found []policy
	var warn []string // their bindings have another name, which is part of what people read
	of := func(kind, name string) *policy {
		i := slices.IndexFunc(found, func(p policy) bool { return p.kind == kind && p.name == name })
		if i < 0 {
			i, found = len(found), append(found, policy{kind: kind, name: name})
		}
		return &found[i]
	}
	for _, object := range all {
		switch o := object.(type) {
		case *admissionv1.MutatingAdmissionPolicy:
			of(mutating, o.Name).spec = specOf(o)
		case *admissionv1.MutatingAdmissionPolicyBinding:
			of(mutating, o.Name).bind(o)
		case *admissionv1.ValidatingAdmissionPolicy:
			of("ValidatingAdmissionPolicy", o.Name).spec = specOf(o)
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			if slices.Equal(o.Spec.ValidationActions, []admissionv1.ValidationAction{admissionv1.Warn}) {
				warn = append(warn, o.Spec.PolicyName)
				continue
			}
			of("ValidatingAdmissionPolicy", o.Name).bind(o)
		}
	}
	found = slices.DeleteFunc(found, func(p policy) bool { return slices.Contains(warn, p.name) })
	for _, p := range found {
		if p.spec == nil || p.binding == nil {
			return nil, fmt.Errorf("%s %s of deploy/cluster and its binding have not the same name", p.kind, p.name)
		}
	}
	slices.SortStableFunc(found, func(a, b policy) int { return strings.Compare(a.kind, b.kind) })
	return found, nil
}

func (p *policy) bind(binding runtime.Object) {
	p.binding = specOf(binding)
	p.where = p.binding["matchResources"]
	delete(p.binding, "matchResources")
}

// specOf returns the spec of a policy or a binding with the defaults of the API server.
func specOf(object runtime.Object) map[string]any {
	object = object.DeepCopyObject()
	deploy.SetDefaults(object)
	converted, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil // it differs from whatever it is compared with
	}
	spec, _ := converted["spec"].(map[string]any)
	return spec
}
