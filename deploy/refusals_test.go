package deploy

import (
	"bytes"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// TestRefusalsForbid: what a policy refuses is Forbidden, 403. The default, Invalid, has operators delete the
// workload and create it again.
func TestRefusalsForbid(t *testing.T) {
	const kind, template = "kind: ValidatingAdmissionPolicy\n", "chart/templates/"
	policies, denies := map[string]*admissionv1.ValidatingAdmissionPolicy{}, map[string]bool{}
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || !strings.HasSuffix(name, ".yaml") {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if strings.HasPrefix(name, template) {
			if strings.Contains(string(text), kind) {
				t.Errorf("%s has a policy of its own, which this test cannot read: it belongs into a file that the chart takes in", name)
			}
			return nil
		}
		for _, document := range bytes.Split(text, []byte("\n---\n")) {
			var meta metav1.TypeMeta
			if err := yaml.Unmarshal(document, &meta); err != nil {
				return err
			}
			switch meta.Kind {
			case "ValidatingAdmissionPolicy":
				p := &admissionv1.ValidatingAdmissionPolicy{}
				if err := yaml.UnmarshalStrict(document, p); err != nil {
					return err
				}
				policies[p.Name] = p
			case "ValidatingAdmissionPolicyBinding":
				b := &admissionv1.ValidatingAdmissionPolicyBinding{}
				if err := yaml.UnmarshalStrict(document, b); err != nil {
					return err
				}
				denies[b.Spec.PolicyName] = denies[b.Spec.PolicyName] || slices.Contains(b.Spec.ValidationActions, admissionv1.Deny)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	refusals := 0
	for name := range denies {
		if !denies[name] {
			continue
		}
		if policies[name] == nil {
			t.Errorf("there is no policy %s", name)
			continue
		}
		for _, v := range policies[name].Spec.Validations {
			refusals++
			if v.Reason == nil || *v.Reason != metav1.StatusReasonForbidden {
				t.Errorf("%s: %q is not refused as Forbidden", name, v.Message)
			}
		}
	}
	if refusals < 50 {
		t.Errorf("only %d refusals were found in deploy/", refusals)
	}
}
