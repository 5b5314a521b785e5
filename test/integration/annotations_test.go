//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/podchecks"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// validation is the admission policy, and its binding, that this file is about.
const validation = "inplace-rollout-validate-annotations"

// TestAnnotations makes writes as users would, with no controller running: what comes of each is the admission policy's doing. That it
// accepts what Go accepts, says the same otherwise, and does not judge what was there before, is proved in pkg/policy.
func TestAnnotations(t *testing.T) {
	w := createWorkload(t, options{OptedOut: true, Replicas: 1})
	eventually(t, "annotations to be judged", func() (bool, string) {
		err := w.try(t, "annotate", "--dry-run=server", "statefulset/web", api.ResizeActionAnnotation+"=probe")
		return strings.Contains(must.Said(err), validation), must.Said(err)
	})
	for annotation, values := range map[string][2]string{
		api.ResizePolicyAnnotation: {"cpu=LiveResizeable, app/memory:decrease=RestartOnly", "app/cpu:up=RestartOnly"}, api.ResizeActionAnnotation: {" Restart\n", "restart"},
		api.DeferredTimeoutAnnotation: {"1h30m", "9999999h"},
	} {
		must.Fails(t, annotation, w.try(t, "annotate", "--overwrite", "statefulset/web", annotation+"="+values[0]), "")
		_, want := policy.Read(map[string]string{annotation: values[1]})
		patch := must.Get(json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{annotation: values[1]}}}))(t)
		_, err := client.AppsV1().StatefulSets(w.namespace).Patch(t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{})
		var answer apierrors.APIStatus
		if !errors.As(err, &answer) || answer.Status().Code != http.StatusForbidden || answer.Status().Reason != metav1.StatusReasonForbidden ||
			values[1] != "9999999h" && !strings.Contains(err.Error(), must.Said(want)) {
			t.Errorf("%s=%q is not answered with 403, Forbidden, and %v: %v", annotation, values[1], want, err)
		}
	}
	// What is too long is refused as such.
	err := w.try(t, "annotate", "--overwrite", "statefulset/web", api.ResizePolicyAnnotation+"="+strings.Repeat("x", 6000))
	must.Fails(t, "an endless value", err, "at most 4096 characters are allowed")
	eventually(t, "the controller manager to check the types", func() (bool, string) {
		installed := must.Get(client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), validation, metav1.GetOptions{}))(t)
		if checked := installed.Status.TypeChecking; checked != nil && len(checked.ExpressionWarnings) > 0 {
			t.Errorf("warnings: %+v", checked.ExpressionWarnings)
		}
		return observed(installed), fmt.Sprintf("status %+v", installed.Status)
	})
}

// TestOptInIsRefused: a value of the label that means nothing, a label like it, and what the cluster may need to come up, of each kind.
// Otherwise it would silently be no opt-in, and the next edit would restart every pod. What else is refused is in pkg/policy.
func TestOptInIsRefused(t *testing.T) {
	namespace := newNamespace(t, nil)
	for _, kind := range []string{"StatefulSet", "Deployment", "DaemonSet"} {
		for _, tt := range []struct{ namespace, label, by, because string }{
			{namespace, `enabled: "yes"`, "opt-in", `"yes" must be "true", which opts in, or "false"`},
			{namespace, `enable: "true"`, "annotations", "label inplace-rollout.io/enable is not known for a " + kind + ". Allowed are, after inplace-rollout.io/: the label enabled, "},
			{api.CriticalNamespace, `enabled: "true"`, "opt-in", `set the annotation inplace-rollout.io/allow-critical: "true", too`},
		} {
			o := options{Kind: kind, Meta: "labels: {inplace-rollout.io/" + tt.label + "}"}
			_, err := cp.Kubectl(t.Context(), "create", "--dry-run=server", "-f", writeFile(t, manifest(t, tt.namespace, o)))
			if got := must.Said(err); !strings.Contains(got, "forbidden: ValidatingAdmissionPolicy 'inplace-rollout-validate-"+tt.by+"'") || !strings.Contains(got, tt.because) {
				t.Errorf("a %s in %s with the label %s is answered with %v; want that it is forbidden, with %q", kind, tt.namespace, tt.label, err, tt.because)
			}
		}
	}
}

// low answers every query with a small number.
type low struct{}

func (low) Instant(_ context.Context, _, query string, _ time.Time) (model.Vector, error) {
	if strings.Contains(query, "$") {
		return nil, apierrors.NewBadRequest(query)
	}
	return model.Vector{{Metric: model.Metric{"namespace": "shop", "pod": "web-0", "container": "app"}, Value: 1}}, nil
}

// TestChecksConfigMap: the controller's rights let it read the checks that are installed, and no other ConfigMap.
func TestChecksConfigMap(t *testing.T) {
	config := rest.CopyConfig(cp.RESTConfig())
	config.Impersonate = rest.ImpersonationConfig{UserName: controller.User, Groups: []string{"system:authenticated"}}
	ours := must.Get(kubernetes.NewForConfig(config))(t)
	configMaps := ours.CoreV1().ConfigMaps(controller.Namespace)
	eventually(t, "the checks to be readable", func() (bool, string) { // the API server authorizes from a cache
		_, err := configMaps.Get(t.Context(), podchecks.ConfigMapName, metav1.GetOptions{})
		return err == nil, must.Said(err)
	})
	runner := podchecks.New(configMaps, low{}, podchecks.Options{})
	names := []string{"cpu-throttling", "memory-near-limit", "its-own"}
	subject := podchecks.Subject{Namespace: "shop", Name: "web-0", UID: "u", Since: time.Now().Add(-time.Hour), Containers: []podchecks.Container{{Name: "app", CPULimit: true, MemoryLimit: true}}}
	runner.Ask("sts/web", names, []podchecks.Subject{subject}, nil)
	go runner.Run(t.Context())
	for name, want := range map[string]string{
		"cpu-throttling":    "passed throttled in 1 % of its periods, not more than 50 %",
		"memory-near-limit": "passed uses 1 % of its memory limit, not more than 95 %",
		"its-own":           `unknown there is no check "its-own"; the ConfigMap inplace-rollout-checks has cpu-throttling, memory-near-limit`,
	} {
		eventually(t, name+" to be known", func() (bool, string) {
			o := runner.Outcomes("sts/web").Of("u", name)
			return string(o.State)+" "+o.Message == want, o.Message
		})
	}

	if _, err := configMaps.Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("another ConfigMap may be read: %v", err)
	}
	if _, err := configMaps.List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("ConfigMaps may be listed: %v", err)
	}
	if _, err := ours.CoreV1().ConfigMaps("default").Get(t.Context(), podchecks.ConfigMapName, metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a tenant's ConfigMap of that name may be read: %v", err)
	}
	forged := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: podchecks.ConfigMapName}}
	if _, err := configMaps.Update(t.Context(), forged, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the controller may write its own checks: %v", err)
	}
}
