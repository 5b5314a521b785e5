//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/podchecks"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestGuardedThrottling: a program uses more cpu than the limit that it is given. The kernel throttles it, the kubelet's cAdvisor
// counts that, a real Prometheus scrapes it, and the check that is shipped takes the size back. It alone proves that they all speak
// of the same, and takes two windows of the check; one of five minutes would be too long for a test. The first limit is
// more than the program can use, also when it makes up for what it could not use while the machine was busy.
func TestGuardedThrottling(t *testing.T) {
	const window = 30 * time.Second
	a := newApp(t, options{
		Resources: "{requests: {cpu: 40m, memory: 32Mi}, limits: {cpu: 2, memory: 64Mi}}", Container: `args: ["--cpu=100"]`,
	})
	before := a.pods()
	a.checks(a.prometheus(), window)
	time.Sleep(window + 15*time.Second) // the check compares with what was before, and cAdvisor looks every 10 s or so
	a.kubectl("annotate", a.ref, api.CanaryAnnotation+"=1", api.CanaryDurationAnnotation+"=1h", api.ChecksAnnotation+"=cpu-throttling", api.OnFailureAnnotation+"=Revert")
	a.setResources("cpu=40m,memory=32Mi", "cpu=50m,memory=64Mi")
	a.condition(judge.ReasonProgressing, "waiting until it has been Ready at its new size for 1h0m0s")
	time.Sleep(window)
	a.condition(judge.ReasonReverted, "web-2 failed the check cpu-throttling: throttled in ")
	after := a.pods()
	a.assertKept(before, 0)
	a.assertCgroup(&after[2], *build.Parsed[corev1.ResourceRequirements](t, "{requests: {cpu: 40m, memory: 32Mi}, limits: {cpu: 2, memory: 64Mi}}"))
	for _, pod := range after[:2] {
		if slices.ContainsFunc(pod.ManagedFields, resize.Ours) {
			t.Errorf("%s was asked, too", pod.Name)
		}
	}
	a.kubectl("rollout", "undo", a.ref)
	a.complete()
}

// checks has the controller ask a Prometheus until the test ends, and the shipped check look at a shorter time.
func (a *app) checks(prometheus string, window time.Duration) {
	a.t.Helper()
	configMaps := client.CoreV1().ConfigMaps(controller.Namespace)
	shipped := must.Get(configMaps.Get(a.t.Context(), podchecks.ConfigMapName, metav1.GetOptions{}))(a.t)
	args := must.Get(node.Kubectl(a.t.Context(), "get", "deployment/inplace-rollout", "--namespace", controller.Namespace, "--output=jsonpath={.spec.template.spec.containers[0].args}"))(a.t)
	change := func(ctx context.Context, check, args string) error {
		patch, err := json.Marshal(map[string]any{"data": map[string]string{"cpu-throttling": check}})
		if err != nil {
			return err
		}
		if _, err := configMaps.Patch(ctx, podchecks.ConfigMapName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
		if _, err := node.Kubectl(ctx, "patch", "deployment/inplace-rollout", "--namespace", controller.Namespace, "--type=json", "--patch", args); err != nil {
			return err
		}
		return controller.Deployed(ctx, node)
	}
	a.t.Cleanup(func() {
		back := `[{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": ` + args + `}]`
		must.Do(a.t, change(context.Background(), shipped.Data["cpu-throttling"], back))
	})
	shorter := strings.Replace(shipped.Data["cpu-throttling"], "window: 5m", "window: "+window.String(), 1)
	flag := `[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--checks-prometheus=http://` + prometheus + `"}]`
	must.Do(a.t, change(a.t.Context(), shorter, flag))
}
