// Command cluster runs the test control plane for people: it starts one that
// stays, with three simulated nodes, and ends it again.
//
//	cluster up --dir .cluster
//	cluster down --dir .cluster
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

const usage = "usage: cluster up|down [--dir .cluster] [--bin bin/k8s]"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
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
	case args[0] == "up":
		return up(ctx, *dir, *bin)
	case args[0] == "down":
		return down(*dir)
	default:
		return errors.New(usage)
	}
}

func up(ctx context.Context, dir, bin string) error {
	running, err := controlplane.Running(dir)
	if err != nil {
		return err
	}
	if len(running) > 0 {
		return fmt.Errorf("a cluster is already running in %s (%s): end it with cluster down", dir, strings.Join(running, ", "))
	}
	c, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, Bin: bin, Detach: true})
	if err != nil {
		return err
	}
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		if err := c.AddNode(ctx, name, controlplane.Node{CPU: "4", Memory: "8Gi"}); err != nil {
			c.KeepLogs()
			return errors.Join(err, c.Stop())
		}
	}
	fmt.Printf("# Kubernetes %s with 3 simulated nodes runs in %s\n", c.Version(), c.Dir())
	fmt.Printf("export KUBECONFIG=%s\n", c.Kubeconfig())
	fmt.Printf("export PATH=%s:$PATH\n", filepath.Dir(c.Bin("kubectl")))
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
