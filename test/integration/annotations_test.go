//go:build integration

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
)

// validation is the admission policy, and its binding, that this file is about.
const validation = "inplace-rollout-validate-annotations"

// TestAnnotations makes writes as users would, with no controller running: what comes of each is the admission policy's doing. That it
// accepts what Go accepts, says the same otherwise, and does not judge what was there before, is proved in pkg/policy.
func TestAnnotations(t *testing.T) {
	w := createWorkload(t, options{OptedOut: true, Replicas: 1})
	eventually(t, "annotations to be judged", func() (bool, string) {
		err := w.try(t, "annotate", "--dry-run=server", "statefulset/web", api.ResizeActionAnnotation+"=probe")
		return strings.Contains(said(err), validation), said(err)
	})
	for annotation, values := range map[string][2]string{
		api.ResizePolicyAnnotation: {"cpu=LiveResizeable, app/memory:decrease=RestartOnly", "app/cpu:up=RestartOnly"}, api.ResizeActionAnnotation: {" Restart\n", "restart"},
		api.DeferredTimeoutAnnotation: {"1h30m", "9999999h"},
	} {
		if err := w.try(t, "annotate", "--overwrite", "statefulset/web", annotation+"="+values[0]); err != nil {
			t.Errorf("%s=%q: %v", annotation, values[0], err)
		}
		_, want := policy.Read(map[string]string{annotation: values[1]})
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{annotation: values[1]}}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.AppsV1().StatefulSets(w.namespace).Patch(t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{})
		var answer apierrors.APIStatus
		if !errors.As(err, &answer) || answer.Status().Code != http.StatusForbidden || answer.Status().Reason != metav1.StatusReasonForbidden ||
			values[1] != "9999999h" && !strings.Contains(err.Error(), said(want)) {
			t.Errorf("%s=%q is not answered with 403, Forbidden, and %v: %v", annotation, values[1], want, err)
		}
	}
	// What is too long is refused as such.
	err := w.try(t, "annotate", "--overwrite", "statefulset/web", api.ResizePolicyAnnotation+"="+strings.Repeat("x", 6000))
	if !strings.Contains(said(err), "at most 4096 characters are allowed") {
		t.Errorf("an endless value is answered with %v", err)
	}
	eventually(t, "the controller manager to check the types", func() (bool, string) {
		installed, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), validation, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if checked := installed.Status.TypeChecking; checked != nil && len(checked.ExpressionWarnings) > 0 {
			t.Errorf("warnings: %+v", checked.ExpressionWarnings)
		}
		return observed(installed), fmt.Sprintf("status %+v", installed.Status)
	})
}

// TestOptInIsRefused: a value of the label that means nothing, and what the cluster may need to come up, of each kind. Otherwise it
// would silently be no opt-in, and the next edit would restart every pod. What else is refused is in pkg/policy.
func TestOptInIsRefused(t *testing.T) {
	namespace := newNamespace(t, nil)
	for _, kind := range []string{"StatefulSet", "Deployment", "DaemonSet"} {
		for _, tt := range []struct{ namespace, label, because string }{
			{namespace, "yes", `"yes" must be "true", which opts in, or "false"`},
			{api.CriticalNamespace, "true", `set the annotation inplace-rollout.io/allow-critical: "true", too`},
		} {
			o := options{Kind: kind, Meta: "labels: {" + api.EnabledLabel + ": " + `"` + tt.label + `"}`}
			_, err := cp.Kubectl(t.Context(), "create", "--dry-run=server", "-f", writeFile(t, manifest(t, tt.namespace, o)))
			if got := said(err); !strings.Contains(got, "forbidden: ValidatingAdmissionPolicy 'inplace-rollout-validate-opt-in'") || !strings.Contains(got, tt.because) {
				t.Errorf("a %s in %s with the label %s is answered with %v; want that it is forbidden, with %q", kind, tt.namespace, tt.label, err, tt.because)
			}
		}
	}
}
