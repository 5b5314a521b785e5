//go:build integration

// Package initialresources tests what new pods get by deploy/initial-resources, on a real API server.
package initialresources

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

var (
	cp     *controlplane.ControlPlane
	client kubernetes.Interface
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if cp, err = controlplane.Start(ctx, controlplane.Options{}); err != nil {
		return 1, err
	}
	defer func() {
		if code != 0 || err != nil {
			cp.KeepLogs()
		}
		err = errors.Join(err, cp.Stop())
	}()
	if !cp.AtLeast("1.36") {
		fmt.Println("There is no MutatingAdmissionPolicy v1, so there is nothing to test.")
		return 0, nil
	}
	config := cp.RESTConfig()
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	if client, err = kubernetes.NewForConfig(config); err != nil {
		return 1, fmt.Errorf("making a client: %w", err)
	}
	sandbox := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "sandbox"}, Handler: "sandbox", Overhead: &nodev1.Overhead{PodFixed: amounts("100m", "100Mi")}}
	if _, err := client.NodeV1().RuntimeClasses().Create(ctx, sandbox, metav1.CreateOptions{}); err != nil {
		return 1, fmt.Errorf("creating a RuntimeClass: %w", err)
	}
	file := filepath.Join(cp.Dir(), "older.yaml")
	if err := os.WriteFile(file, []byte(older), 0o600); err != nil {
		return 1, fmt.Errorf("writing a manifest: %w", err)
	}
	if _, err := cp.Kubectl(ctx, "apply", "--filename", file); err != nil {
		return 1, fmt.Errorf("creating what is older: %w", err)
	}
	for _, file := range []string{"estimate-pods.yaml", "validate.yaml"} {
		if _, err := cp.Kubectl(ctx, "apply", "--filename", filepath.Join(controller.Root(), "deploy", "initial-resources", file)); err != nil {
			return 1, fmt.Errorf("installing the policies: %w", err)
		}
	}
	for _, n := range namespaces {
		if err := n.create(ctx); err != nil {
			return 1, fmt.Errorf("making the namespace %s: %w", n.name, err)
		}
	}
	return m.Run(), nil
}

// await waits until there is no error, for at most a minute.
func await(ctx context.Context, check func() error) error {
	deadline := time.Now().Add(time.Minute)
	for {
		err := check()
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}
