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
	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// validation is the admission policy, and its binding, that this file is about.
const validation = "inplace-rollout-validate-annotations"

// TestAnnotations makes writes as users would, with no controller running: what
// comes of each is the admission policy's doing.
func TestAnnotations(t *testing.T) {
	w := createWorkload(t, options{OptedOut: true, Replicas: 1})
	w.waitValidation(true)
	t.Run("values", func(t *testing.T) { w.testValues(t) })
	t.Run("every way to write", func(t *testing.T) { w.testWays(t) })
	t.Run("what was there before is not judged", func(t *testing.T) { w.testRatcheting(t) })
	t.Run("the API server understands every expression", func(t *testing.T) {
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
	})
}

// waitValidation waits until the API server judges annotations, or does not any
// more, which takes it up to a second.
func (w *workload) waitValidation(inForce bool) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("annotations to be judged: %t", inForce), func() (bool, string) {
		err := w.try(w.t, "annotate", "--overwrite", "--dry-run=server", "statefulset/web", api.ResizeActionAnnotation+"=probe")
		refused := strings.Contains(said(err), validation)
		return refused == inForce && (err == nil || refused), said(err)
	})
}

// testValues asks the API server and the controller's own reading about the same
// values: both accept, or both refuse in the same words.
func (w *workload) testValues(t *testing.T) {
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
		api.DeferredTimeoutAnnotation: {"", "90s", "5m", "1h30m", "1.5h", "+500ms", " 1us\n", "5", "0", "0s", "-5m", "5 m", "1d", "5min"},
	} {
		for _, value := range values {
			_, want := policy.Read(map[string]string{annotation: value})
			got := w.try(t, "annotate", "--overwrite", "statefulset/web", annotation+"="+value)
			switch {
			case (got == nil) != (want == nil):
				t.Errorf("%s=%q: the API server says %v, and Go says %v", annotation, value, got, want)
			case want != nil && !w.forbids(t, annotation, value):
				t.Errorf("%s=%q is not answered with 403, Forbidden", annotation, value)
			case want != nil && !strings.Contains(got.Error(), want.Error()):
				t.Errorf("%s=%q: the API server says\n%v\nwithout\n%v", annotation, value, got, want)
			}
		}
	}
	if !w.forbids(t, api.DeferredTimeoutAnnotation, "9999999h") {
		t.Error("a duration that is too long to be one is not answered with 403, Forbidden")
	}
	// What is too long is refused as such.
	err := w.try(t, "annotate", "--overwrite", "statefulset/web", api.ResizePolicyAnnotation+"="+strings.Repeat("x", 6000))
	if !strings.Contains(said(err), "at most 4096 characters are allowed") {
		t.Errorf("an endless value is answered with %v", err)
	}
}

// forbids reports whether the API server answers an annotation with 403, Forbidden.
func (w *workload) forbids(t *testing.T, annotation, value string) bool {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{annotation: value}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.AppsV1().StatefulSets(w.namespace).Patch(t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{})
	var answer apierrors.APIStatus
	return errors.As(err, &answer) && answer.Status().Code == http.StatusForbidden && answer.Status().Reason == metav1.StatusReasonForbidden
}

// testWays: people apply manifests and patch, and Deployments have the same annotations.
func (w *workload) testWays(t *testing.T) {
	bad := options{Meta: "annotations: {" + api.ResizePolicyAnnotation + ": disk=RestartOnly}"}
	good := options{Meta: "annotations: {" + api.ResizePolicyAnnotation + ": cpu=RestartOnly}"}
	deployment := func(o options) string {
		o.OptedOut, o.Kind = true, "Deployment"
		return manifest(t, w.namespace, o)
	}
	for _, try := range []struct {
		name      string
		bad, good []string
	}{
		{
			"applying",
			[]string{"apply", "--server-side", "--force-conflicts", "-f", writeFile(t, manifest(t, w.namespace, bad))},
			[]string{"apply", "--server-side", "--force-conflicts", "-f", writeFile(t, manifest(t, w.namespace, good))},
		},
		{
			"creating a Deployment",
			[]string{"create", "-f", writeFile(t, deployment(bad))},
			[]string{"create", "-f", writeFile(t, deployment(good))},
		},
		{
			"patching the annotation together with the template",
			[]string{"patch", "statefulset/web", "--patch", `{"metadata": {"annotations": {"` + api.ResizeActionAnnotation + `": "Live"}}, "spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}`},
			[]string{"patch", "statefulset/web", "--patch", `{"metadata": {"annotations": {"` + api.ResizeActionAnnotation + `": "LiveResize"}}, "spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}`},
		},
	} {
		if err := w.try(t, try.bad...); !strings.Contains(said(err), validation) || !strings.Contains(said(err), " must ") {
			t.Errorf("%s with a bad value: %v", try.name, err)
		}
		if err := w.try(t, try.good...); err != nil {
			t.Errorf("%s with a good value: %v", try.name, err)
		}
	}
}

func (w *workload) testRatcheting(t *testing.T) {
	if err := w.try(t, "delete", "validatingadmissionpolicybinding", validation); err != nil {
		t.Fatal(err)
	}
	install := reinstall(t)
	defer install()
	w.waitValidation(false)
	const set = "statefulset/web"
	before := []string{"annotate", "--overwrite", set, api.ResizePolicyAnnotation + "=bad", api.ResizeActionAnnotation + "=bad", api.DeferredTimeoutAnnotation + "=bad"}
	if err := w.try(t, before...); err != nil {
		t.Fatal(err)
	}
	install()
	w.waitValidation(true)
	for _, err := range []error{
		w.try(t, "label", set, "unrelated=yes"),
		w.try(t, "scale", set, "--replicas=2"),
		w.try(t, "set", "image", set, "app=app:2"),
		w.try(t, before...),
	} {
		if err != nil {
			t.Errorf("a write that leaves the bad values as they are: %v", err)
		}
	}
	for _, annotation := range []string{api.ResizePolicyAnnotation, api.ResizeActionAnnotation, api.DeferredTimeoutAnnotation} {
		if err := w.try(t, "annotate", "--overwrite", set, annotation+"=worse"); !strings.Contains(said(err), annotation+`: "worse" must `) {
			t.Errorf("another bad value of %s: %v", annotation, err)
		}
	}
	for _, repair := range []string{api.ResizePolicyAnnotation + "=cpu=RestartOnly", api.ResizeActionAnnotation + "=Restart", api.DeferredTimeoutAnnotation + "-"} {
		if err := w.try(t, "annotate", "--overwrite", set, repair); err != nil {
			t.Errorf("repairing one value while others are bad: %v", err)
		}
	}
}

// TestInvalidPolicy: a bad value that got in before is not guessed at. Nothing
// happens until it is mended, and then the rollout goes on.
func TestInvalidPolicy(t *testing.T) {
	w := newWorkload(t, options{Replicas: 2})
	before := w.uids()
	if err := w.try(t, "delete", "validatingadmissionpolicybinding", validation); err != nil {
		t.Fatal(err)
	}
	w.waitValidation(false)
	w.kubectl("annotate", "statefulset/web", api.ResizeActionAnnotation+"=Live")
	reinstall(t)()
	w.waitValidation(true)
	ownController(t, controller.Options{})

	w.setResources("cpu=150m", "")
	w.waitCondition("InvalidPolicy", `"Live" must be Restart, LiveResize or LiveResizePreferred`)
	w.waitEvent("InvalidPolicy", `"Live" must be`)
	if !held(w.get()) {
		t.Error("the rollout is not held")
	}
	w.assertReplaced(before)
	if got := only(w.writes(), "patch pods/resize"); len(got) > 0 {
		t.Errorf("resized %v", got)
	}
	w.kubectl("annotate", "--overwrite", "statefulset/web", api.ResizeActionAnnotation+"=LiveResize")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
}
