//go:build integration

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// TestUnwatchable: a selector may be stored that is too long for the request that lists its pods, so
// their rollouts never begin. More Deployments with such a one are edited than may begin to be
// watched at once. An edit in another namespace begins all the same, and so does one in theirs, a
// while later; and they say why theirs does not.
func TestUnwatchable(t *testing.T) {
	ownController(t, controller.Options{Args: []string{"--max-sessions=12"}}) // two begin to be watched at once
	beside := newDeployment(t, options{})
	within, number := newDeployment(t, options{}), 4
	beside.waitComplete()
	within.waitComplete()
	text := manifest(t, within.namespace, options{Kind: "Deployment", Replicas: 1})
	for i := range number {
		var d appsv1.Deployment
		if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "web", fmt.Sprintf("long-%d", i))), &d); err != nil {
			t.Fatal(err)
		}
		values := []string{d.Spec.Selector.MatchLabels["app"]}
		for len(values)*66 < 1100<<10 { // servers of Go read a mebibyte of headers, and etcd stores one and a half
			values = append(values, fmt.Sprintf("v%062d", len(values)))
		}
		d.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: values}}}
		if _, err := client.AppsV1().Deployments(within.namespace).Create(t.Context(), &d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range number {
		name := fmt.Sprintf("long-%d", i)
		eventually(t, name+" to be there", func() (bool, string) {
			said := administer(t, "get", "deployment", name, "-n", within.namespace, "-o", "jsonpath={.status.availableReplicas}")
			return said == "1", said
		})
		if _, err := client.AppsV1().Deployments(within.namespace).Patch(t.Context(), name, types.StrategicMergePatchType,
			[]byte(`{"spec": {"template": {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "110m"}}}]}}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []*deployment{beside, within} {
		begun := time.Now()
		d.setResources("cpu=150m", "")
		d.waitComplete()
		took := time.Since(begun)
		t.Logf("it took %s", took.Round(100*time.Millisecond))
		if d == beside && took > 20*time.Second {
			t.Errorf("an edit in another namespace took %s", took)
		}
	}
	eventually(t, "an event that says why", func() (bool, string) {
		said := administer(t, "events", "-n", within.namespace, "--for=deployment/long-0", "--types=Warning")
		return strings.Contains(said, "StepFailed") && strings.Contains(said, "larger than"), said
	})
}
