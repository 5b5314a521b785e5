package main

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/controller"
	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/initialresources"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/pkg/version"
	"github.com/inplace-rollout/inplace-rollout/test/golden"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// What is there, what is not, and what nobody may see are told apart.
func TestCheckFindings(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "mutatingadmissionpolicies"}, "x", nil)
	for _, tt := range []struct {
		what               string
		report             prerequisite.Report
		hold, controlled   outcome
		says, saysAttended string
	}{
		{"all is there", prerequisite.Report{Way: prerequisite.Policy}, passed, passed, "by MutatingAdmissionPolicies", "a controller is ready"},
		{"a webhook holds", prerequisite.Report{Way: prerequisite.Webhook}, passed, passed, "by MutatingWebhookConfiguration inplace-rollout", "a controller is ready"},
		{"a policy is missing", prerequisite.Report{Installed: errors.New("it is missing")}, failed, unknown, "it is missing", "unknown"},
		{"they may not be seen", prerequisite.Report{Unseen: []error{forbidden}}, unknown, unknown, "you cannot see all", "unknown"},
		{"no controller", prerequisite.Report{Controller: errors.New("none is there")}, passed, failed, "are held by", "none is there"},
	} {
		hold, controlled := installed(tt.report), attended(tt.report)
		if hold.Outcome != tt.hold || !strings.Contains(hold.Message, tt.says) {
			t.Errorf("%s: %+v, want %s, %s", tt.what, hold, tt.hold, tt.says)
		}
		if controlled.Outcome != tt.controlled || !strings.Contains(controlled.Message, tt.saysAttended) {
			t.Errorf("%s: %+v, want %s, %s", tt.what, controlled, tt.controlled, tt.saysAttended)
		}
	}
}

// TestCheckFormer: policies of the version before are named, and no others.
func TestCheckFormer(t *testing.T) {
	client := fake.NewClientset()
	o := checkOptions{cluster: &cluster{client: client, namespace: "default"}}
	for _, name := range []string{prerequisite.HoldPolicy, "inplace-rollout-hold-daemonsets", "inplace-rollout-guard-deployments"} {
		m, v := &admissionregistrationv1.MutatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicy{}
		m.Name, v.Name = name, name
		must.Do(t, errors.Join(client.Tracker().Add(m), client.Tracker().Add(v)))
	}
	const want = "kubectl delete mutatingadmissionpolicy/inplace-rollout-hold-daemonsets validatingadmissionpolicy/inplace-rollout-guard-deployments"
	if found := o.former(t.Context()); len(found) != 1 || found[0].Outcome != noted || !strings.HasSuffix(found[0].Message, want) {
		t.Errorf("found %v, want %s", found, want)
	}
}

// TestCheckStrict: whoever asks for it has an error for what they may not see.
func TestCheckStrict(t *testing.T) {
	for strict, want := range map[bool]int{false: 0, true: 1} {
		client := fake.NewClientset()
		client.Resources = []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods/resize"}}}}
		client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.GetResource().Group == "" { // discovery
				return false, nil, nil
			}
			return true, nil, apierrors.NewForbidden(action.GetResource().GroupResource(), "x", errors.New("no"))
		})
		var out bytes.Buffer
		err := checkOptions{cluster: &cluster{client: client, namespace: "default"}, strict: strict}.run(t.Context(), &out)
		if exitCode(err) != want {
			t.Errorf("strict: %t: it ended with %v, want %d: %s", strict, err, want, &out)
		}
	}
}

// checked runs the check in a cluster of fakes in which nothing is installed, for a user who may only list.
func checked(t *testing.T, format cli.Format) (string, error) {
	t.Helper()
	client := fake.NewClientset()
	client.PrependReactor("create", "selfsubjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview)
		review.Status.Allowed = review.Spec.ResourceAttributes.Verb == "list" && review.Spec.ResourceAttributes.Namespace == "default"
		return true, review, nil
	})
	o := checkOptions{cluster: &cluster{client: client, namespace: "default"}, output: format}
	var out bytes.Buffer
	err := o.run(t.Context(), &out)
	return out.String(), err
}

// The version of a controller is compared with this program's.
func TestCheckVersions(t *testing.T) {
	mine := version.Get().LabelValue()
	for of, want := range map[string]finding{
		mine:     {"Version", passed, "the controller in inplace-rollout: " + mine},
		"v0.0.1": {"Version", noted, "the controller in inplace-rollout: v0.0.1; this program: " + mine},
		"":       {"Version", noted, "this program is " + mine + "; no Lease of a controller says its version"},
	} {
		client := fake.NewClientset()
		if of != "" {
			client = fake.NewClientset(&coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Namespace: "inplace-rollout", Name: controller.LeaseName, Labels: map[string]string{version.Label: of}},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("a")},
			})
		}
		o := checkOptions{cluster: &cluster{client: client, namespace: "default"}}
		if got := o.versions(t.Context()); len(got) != 1 || got[0] != want {
			t.Errorf("a controller of version %q: %v, want %v", of, got, want)
		}
	}
}

// Where initial resources are installed, one line says whether the estimator is there; elsewhere there is none.
func TestCheckEstimates(t *testing.T) {
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "inplace-rollout-validate-initial-resources"}}
	table := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: api.EstimatesName}}
	lease := func(holder string, ago time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "inplace-rollout", Name: initialresources.EstimatorLease},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: ptr.To(metav1.NewMicroTime(time.Now().Add(-ago)))},
		}
	}
	there := []finding{{"Initial resources", passed, "an estimator is running"}}
	none := []finding{{"Initial resources", noted, "no estimator is running: new pods get the last estimates"}}
	for _, tt := range []struct {
		what      string
		objects   []runtime.Object
		forbidden string // what may not be read
		want      []finding
	}{
		{"not installed", nil, "", nil},
		{"only of the controller", []runtime.Object{lease("a", 0)}, "", nil},
		{"a leader", []runtime.Object{policy, lease("a", 0)}, "", there},
		{"no leader", []runtime.Object{policy}, "", none},
		{"it has ended", []runtime.Object{policy, lease("", 0)}, "", none},
		{"it was killed", []runtime.Object{policy, lease("a", time.Hour)}, "", none},
		{"policies may not be read", []runtime.Object{policy, table, lease("a", 0)}, "validatingadmissionpolicies", there},
		{"policies may not be read, and nothing is estimated here", []runtime.Object{policy, lease("a", 0)}, "validatingadmissionpolicies", nil},
		{"Leases may not be read", []runtime.Object{policy, lease("a", 0)}, "leases", []finding{{
			"Initial resources", unknown, `it is unknown whether an estimator is running: leases.x "x" is forbidden: no`,
		}}},
	} {
		client := fake.NewClientset(tt.objects...)
		client.PrependReactor("*", tt.forbidden, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Group: "x", Resource: tt.forbidden}, "x", errors.New("no"))
		})
		o := checkOptions{cluster: &cluster{client: client, namespace: "default"}}
		if got := o.estimates(t.Context()); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.what, got, tt.want)
		}
	}
}

func TestCheckOfNothing(t *testing.T) {
	out, err := checked(t, "")
	if exitCode(err) != 1 {
		t.Errorf("it ended with %v, want 1", err)
	}
	golden.Assert(t, "check-nothing.txt", []byte(out))
}

// What was found is shown with marks, and what has several reasons below each other.
func TestCheckPrinted(t *testing.T) {
	var out bytes.Buffer
	err := checkReport{Namespace: "shop", Ready: false, Findings: []finding{
		{"API server", passed, "v1.37.1 serves pods/resize"}, {"Hold", failed, "one is missing\nand another one, which is said in a text that is longer than the line is"},
		{"Version", unknown, "who knows"}, {"You cannot", noted, "edit"},
	}}.print(cli.Page{Writer: &out, Width: 60}, "")
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, "check-marks.txt", out.Bytes())
}
