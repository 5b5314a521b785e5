//go:build around

// Package gates tests rollouts beside what the newest Kubernetes has behind alpha gates. These are flags of its
// processes, so this package has a control plane of its own.
package gates

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

// patience bounds every wait. It is never the expected duration.
const patience = time.Minute

var (
	cp     *controlplane.ControlPlane
	client kubernetes.Interface
)

func TestMain(m *testing.M) {
	if version := os.Getenv("KUBERNETES"); version != "" {
		fmt.Printf("not applicable to %s: only the newest version has these gates\n", version)
		return
	}
	gates := []string{"--feature-gates=InPlacePodVerticalScalingSchedulerPreemption=true"}
	os.Exit(controlplane.RunTests(m, controlplane.Options{Flags: map[string][]string{"kube-apiserver": gates, "kube-scheduler": gates}}, setUp))
}

func setUp(ctx context.Context, started *controlplane.ControlPlane) (tearDown func(), err error) {
	cp = started
	if client, err = kubernetes.NewForConfig(cp.RESTConfig()); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	if err := controller.Install(ctx, cp); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(cp.Dir(), "log", "inplace-rollout.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening a log: %w", err)
	}
	process, err := controller.Start(ctx, cp, controller.Options{Log: file})
	if err != nil {
		return nil, err
	}
	return process.Stop, process.WaitReady(ctx)
}
