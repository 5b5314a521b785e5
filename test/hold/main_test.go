//go:build around

// Package hold tests what is different where a webhook holds rollouts: that it can fail, and that
// it has a certificate. What is held, is the same; see test/integration.
package hold

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

var (
	cp      *controlplane.ControlPlane
	client  kubernetes.Interface
	webhook *controller.Webhook
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "clients-")
	if err == nil {
		apiserver, err = shown(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := controlplane.RunTests(m, controlplane.Options{Flags: map[string][]string{
		"kube-apiserver": {"--admission-control-config-file", filepath.Join(dir, "admission.yaml")},
	}}, setUp)
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func setUp(ctx context.Context, started *controlplane.ControlPlane) (tearDown func(), err error) {
	cp = started
	config := cp.RESTConfig()
	config.QPS = -1
	if client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(cp.Dir(), "log", "webhook.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the webhook's log: %w", err)
	}
	if webhook, err = controller.StartWebhook(ctx, cp, controller.WebhookOptions{Log: file}); err != nil {
		return nil, err
	}
	return webhook.Stop, nil
}

// serve starts both replicas of the webhook again, for this test. They make a certificate of their own.
func serve(t *testing.T, args ...string) *controller.Webhook {
	t.Helper()
	if err := webhook.Renew(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
	return webhook
}

// create makes a StatefulSet that goes with the test. No node is there, so its pod stays Pending.
func create(t *testing.T, name string, optedIn bool) {
	t.Helper()
	set := &appsv1.StatefulSet{}
	if err := yaml.Unmarshal([]byte(`
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web, resources: {requests: {cpu: 1m}}}]}
`), set); err != nil {
		t.Fatal(err)
	}
	set.Name = name
	if optedIn {
		set.Labels = map[string]string{api.EnabledLabel: "true"}
	}
	sets := client.AppsV1().StatefulSets("default")
	if _, err := sets.Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sets.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// edit writes a template with so much cpu.
func edit(t *testing.T, name string, cpu int) (*appsv1.StatefulSet, error) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"web","resources":{"requests":{"cpu":"%dm"}}}]}}}}`, cpu)
	return client.AppsV1().StatefulSets("default").Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
}

// held reports whether no pod would be restarted for the template.
func held(set *appsv1.StatefulSet) bool {
	u := set.Spec.UpdateStrategy.RollingUpdate
	return set.Annotations[api.HoldAnnotation] == "0" && u != nil && u.Partition != nil && *u.Partition == 1<<31-1
}

// pause is between two questions or edits, so that they leave time to whom they ask, and to what else runs.
const pause = 50 * time.Millisecond

// eventually waits until the condition is met, for at most a minute.
func eventually(t *testing.T, what string, met func() (bool, error)) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		ok, err := met()
		if ok && err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waiting in vain until %s: %v", what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
