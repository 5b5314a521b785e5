//go:build e2e

// Package e2e tests the controller as users install it, on a real node: kubelet,
// containerd, cgroups. It proves what a simulated kubelet cannot: that a container
// really has its size, and that nobody who talks to it notices. One node serves
// all tests; each has a namespace of its own. Tests that need the whole node, or
// disturb it, run first and one by one; the others run beside each other.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/realnode"
)

var (
	node   *realnode.Node
	client kubernetes.Interface
)

func TestMain(m *testing.M) {
	if missing := realnode.Missing(); missing != "" {
		required := os.Getenv("E2E") == "required"
		fmt.Fprintf(os.Stderr, "these tests cannot run: %s\n", missing)
		if required {
			os.Exit(1)
		}
		fmt.Fprintln(os.Stderr, "skipping them, because E2E=required is not set")
		os.Exit(0)
	}
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
	started := time.Now()
	if node, err = realnode.Start(ctx, realnode.Options{}); err != nil {
		return 1, err
	}
	ready := time.Since(started)
	defer func() {
		if code != 0 || err != nil {
			node.KeepLogs()
		}
		err = errors.Join(err, node.Stop())
	}()
	if client, err = kubernetes.NewForConfig(node.RESTConfig()); err != nil {
		return 1, fmt.Errorf("making a client: %w", err)
	}
	if err := node.Import(ctx, "counter"); err != nil {
		return 1, err
	}
	if err := controller.Deploy(ctx, node); err != nil {
		return 1, err
	}
	fmt.Printf("the node was Ready after %s, the controller after %s\n", ready.Round(time.Millisecond), time.Since(started).Round(time.Millisecond))
	return m.Run(), nil
}
