//go:build integration || around

// Package admission tests what new pods get by deploy/initial-resources, on a real API server: by
// its policies, or by the webhook, as $HOLD says, or as clusters of the version have it.
package admission

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

var (
	cp     *controlplane.ControlPlane
	client kubernetes.Interface
)

func TestMain(m *testing.M) {
	os.Exit(controlplane.RunTests(m, controlplane.Options{}, setUp))
}

// older has got in before the policies.
const older = `apiVersion: apps/v1
kind: Deployment
metadata: {name: older, labels: {version: "1"}}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, inplace-rollout.io/initial-resources: "on"}, annotations: {inplace-rollout.io/initial-resources: sometimes}}
    spec: {containers: [{name: app, image: web}]}
`

func setUp(ctx context.Context, started *controlplane.ControlPlane) (tearDown func(), err error) {
	cp = started
	config := cp.RESTConfig()
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	if client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	sandbox := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "sandbox"}, Handler: "sandbox", Overhead: &nodev1.Overhead{PodFixed: amounts("100m", "100Mi")}}
	if _, err := client.NodeV1().RuntimeClasses().Create(ctx, sandbox, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("creating a RuntimeClass: %w", err)
	}
	file := filepath.Join(cp.Dir(), "older.yaml")
	if err := os.WriteFile(file, []byte(older), 0o600); err != nil {
		return nil, fmt.Errorf("writing a manifest: %w", err)
	}
	if err := cp.Apply(ctx, "--filename", file); err != nil {
		return nil, fmt.Errorf("creating what is older: %w", err)
	}
	return install(ctx)
}

// install installs what estimates, in the way of [controller.Hold].
func install(ctx context.Context) (stop func(), err error) {
	if controller.Hold(cp) == prerequisite.Webhook {
		log, err := os.Create(filepath.Join(cp.Dir(), "log", "webhook.log"))
		if err != nil {
			return nil, fmt.Errorf("creating a log: %w", err)
		}
		// One replica: what it knows is what the pods get.
		hook, err := controller.StartWebhook(ctx, cp, controller.WebhookOptions{InitialResources: true, Replicas: 1, Log: log})
		if err != nil {
			return nil, err
		}
		return hook.Stop, nil
	}
	for _, name := range []string{"estimate-pods.yaml", "validate.yaml"} {
		if err := cp.Apply(ctx, "--filename", filepath.Join(controller.Root(), "deploy", "initial-resources", name)); err != nil {
			return nil, fmt.Errorf("installing the policies: %w", err)
		}
	}
	return func() {}, nil
}

// await waits until there is no error, for at most a minute.
func await(ctx context.Context, check func() error) (last error) {
	_ = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { // the last error says more
		last = check()
		return last == nil, nil
	})
	return last
}
