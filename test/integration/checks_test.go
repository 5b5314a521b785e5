//go:build integration

package integration

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/inplace-rollout/inplace-rollout/pkg/podchecks"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

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
		return err == nil, said(err)
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
