package policy_test

import (
	"maps"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
)

// TestAnnotationsAdmission asks the admission policy and Go about the same values: both accept, or both refuse in the same words.
// What was there before is not judged.
func TestAnnotationsAdmission(t *testing.T) {
	p := readPolicy[admissionv1.ValidatingAdmissionPolicy](t, "validate-annotations.yaml")
	accepts := compile(t, p.Spec.Variables, p.Spec.Validations...)
	set := func(annotations map[string]string) *appsv1.StatefulSet {
		return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Annotations: annotations}}
	}
	kind := appsv1.SchemeGroupVersion.WithKind("StatefulSet")
	bad := map[string]string{api.ResizePolicyAnnotation: "bad", api.ResizeActionAnnotation: "bad", api.DeferredTimeoutAnnotation: "bad"}
	for annotation, values := range map[string][]string{
		api.ResizePolicyAnnotation: {
			"", " ", "cpu=LiveResizeable", "cpu=LiveResizeable, app/memory:decrease=RestartOnly", "cpu=RestartOnly ,memory:increase=RestartOnly\n",
			"cpu=RestartOnly,cpu=RestartOnly", "0-app/cpu=RestartOnly", "a/cpu=RestartOnly, b/cpu=LiveResizeable, cpu:increase=LiveResizeable",
			strings.Repeat("a", 63) + "/cpu=RestartOnly",

			"cpu", "gpu=RestartOnly", "cpu=restartonly", "cpu=Restart", "cpu = RestartOnly", "cpu:up=RestartOnly", "cpu:=RestartOnly", "/cpu=RestartOnly",
			"My_App/cpu=RestartOnly", "a/b/cpu=RestartOnly", "cpu=RestartOnly,", "cpu=RestartOnly;memory=RestartOnly", "cpu=RestartOnly=x",
			strings.Repeat("a", 64) + "/cpu=RestartOnly",
			"app/cpu:increase=RestartOnly, cpu=RestartOnly, app/cpu:increase=LiveResizeable",
		},
		api.ResizeActionAnnotation:    {"", "Restart", "LiveResize", "LiveResizePreferred", " Restart\n", "restart", "ResizePreferred", "Restart,LiveResize"},
		api.DeferredTimeoutAnnotation: {"", "90s", "5m", "1h30m", "1.5h", "+500ms", " 1us\n", "5", "0", "0s", "-5m", "5 m", "1d", "5min", "9999999h"},
	} {
		for _, value := range values {
			now, mended := map[string]string{annotation: value}, maps.Clone(bad)
			mended[annotation] = value
			_, want := policy.Read(now)
			for what, w := range map[string]write{
				"created": {kind: kind, object: set(now)}, "changed, while others are bad": {kind: kind, old: set(bad), object: set(mended)},
			} {
				allowed, said := accepts(t, w)
				if allowed != (want == nil) || want != nil && value != "9999999h" && !strings.Contains(said, want.Error()) {
					t.Errorf("%s, %s=%q: the policy says %t, %s, and Go says %v", what, annotation, value, allowed, said, want)
				}
			}
			if allowed, said := accepts(t, write{kind: kind, old: set(now), object: set(now)}); !allowed {
				t.Errorf("%s=%q was there before, and is refused: %s", annotation, value, said)
			}
		}
	}
}
