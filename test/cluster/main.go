// Command cluster runs the test control plane for people: it starts one that
// stays, with three simulated nodes, and ends it again.
//
//	cluster up --dir .cluster
//	cluster try --dir .cluster
//	cluster down --dir .cluster
//
// With try, inplace-rollout runs in it, and the StatefulSet of the documentation's
// examples is there.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/process"
)

const usage = "usage: cluster up|try|down [--dir .cluster] [--bin bin/k8s]"

func main() {
	process.Main("cluster", func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	flags := flag.NewFlagSet("cluster "+args[0], flag.ExitOnError)
	dir := flags.String("dir", ".cluster", "folder of the cluster's data")
	bin := flags.String("bin", "", "folder of the Kubernetes binaries (default bin/k8s of this module)")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return errors.New(usage)
	case args[0] == "up", args[0] == "try":
		return up(ctx, *dir, *bin, args[0] == "try")
	case args[0] == "down":
		return down(*dir)
	default:
		return errors.New(usage)
	}
}

func up(ctx context.Context, dir, bin string, try bool) error {
	running, err := controlplane.Running(dir)
	if err != nil {
		return err
	}
	if len(running) > 0 {
		return fmt.Errorf("a cluster is already running in %s (%s): end it with cluster down", dir, strings.Join(running, ", "))
	}
	c, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, Bin: bin, Detach: true, TypeChecking: true})
	if err != nil {
		return err
	}
	if err := equip(ctx, c, try); err != nil {
		c.KeepLogs()
		return errors.Join(err, c.Stop())
	}
	kubectl := filepath.Dir(c.Bin("kubectl"))
	fmt.Printf("# Kubernetes %s with 3 simulated nodes runs in %s\n", c.Version(), c.Dir())
	if try {
		fmt.Println("# inplace-rollout runs in it, and the StatefulSet db is opted in")
	}
	fmt.Printf("export KUBECONFIG=%s\n", c.Kubeconfig())
	fmt.Printf("export PATH=%s:%s:$PATH\n", filepath.Dir(kubectl), kubectl)
	return nil
}

// equip adds the nodes; to try inplace-rollout, that and something to edit, too.
func equip(ctx context.Context, c *controlplane.ControlPlane, try bool) error {
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		if err := c.AddNode(ctx, name, controlplane.Node{CPU: "4", Memory: "8Gi"}); err != nil {
			return err
		}
	}
	if !try {
		return nil
	}
	if err := controller.Install(ctx, c); err != nil {
		return err
	}
	if err := controller.Run(ctx, c, "--when-absent="+api.LetGo); err != nil {
		return err
	}
	if err := c.Apply(ctx, "--filename", filepath.Join(controller.Root(), "docs", "examples", "db.yaml")); err != nil {
		return fmt.Errorf("creating the StatefulSet: %w", err)
	}
	if _, err := c.Kubectl(ctx, "wait", "--for=condition="+api.ConditionComplete, "statefulset/db", "--timeout=1m"); err != nil {
		return fmt.Errorf("waiting for the StatefulSet: %w", err)
	}
	return nil
}

func down(dir string) error {
	// Only a folder that a control plane was started in may be removed.
	if _, err := os.Stat(filepath.Join(dir, "etcd.pid")); err != nil {
		return fmt.Errorf("no cluster in %s: %w", dir, err)
	}
	if err := controlplane.StopDir(dir); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing folder: %w", err)
	}
	return nil
}
