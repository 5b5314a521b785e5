package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"k8s.io/client-go/kubernetes"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/realnode"
)

// nodes of the cluster, with room for everything at its larger size.
var nodes = []string{"node-1", "node-2", "node-3"}

// cluster is a control plane with deploy/ installed and the controller running.
type cluster struct {
	*controlplane.ControlPlane
	client kubernetes.Interface

	node       *realnode.Node      // nil where nodes are simulated;
	controller *controller.Process // then the controller runs beside them
	log        io.Closer
}

// logs is the folder of all logs of a cluster in dir.
func logs(dir string) string { return filepath.Join(dir, "log") }

// startCluster starts a cluster and waits until the controller is ready. It leaves
// nothing running if it fails.
func startCluster(ctx context.Context, dir string, o options) (*cluster, error) {
	if o.node == realNode {
		return startReal(ctx, o)
	}
	cp, err := controlplane.Start(ctx, controlplane.Options{Bin: o.bin, Dir: dir, Log: io.Discard})
	if err != nil {
		return nil, err
	}
	c := &cluster{ControlPlane: cp}
	if err := c.equip(ctx, o); err != nil {
		return nil, errors.Join(err, c.stop(!errors.Is(ctx.Err(), context.Canceled)))
	}
	return c, nil
}

// startReal starts a real node, with the controller as users install it.
func startReal(ctx context.Context, o options) (*cluster, error) {
	node, err := realnode.Start(ctx, realnode.Options{Bin: filepath.Dir(o.bin)})
	if err != nil {
		return nil, err
	}
	c := &cluster{ControlPlane: node.ControlPlane, node: node}
	if err := c.equipNode(ctx); err != nil {
		return nil, errors.Join(err, c.stop(!errors.Is(ctx.Err(), context.Canceled)))
	}
	return c, nil
}

func (c *cluster) equipNode(ctx context.Context) error {
	var err error
	if c.client, err = kubernetes.NewForConfig(c.RESTConfig()); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if err := c.node.Import(ctx, "counter"); err != nil {
		return err
	}
	return controller.Deploy(ctx, c.node)
}

// ready returns nil if the controller is ready.
func (c *cluster) ready(ctx context.Context) error {
	if c.node != nil {
		return controller.Deployed(ctx, c.node)
	}
	return c.controller.Ready(ctx)
}

func (c *cluster) equip(ctx context.Context, o options) error {
	var err error
	if c.client, err = kubernetes.NewForConfig(c.RESTConfig()); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if err := controller.Install(ctx, c.ControlPlane); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(logs(c.Dir()), "inplace-rollout.log"))
	if err != nil {
		return fmt.Errorf("creating the controller's log: %w", err)
	}
	c.log = log
	if c.controller, err = controller.Start(ctx, c.ControlPlane, controller.Options{Binary: o.controller, Log: log}); err != nil {
		return err
	}
	for _, node := range nodes {
		if err := c.AddNode(ctx, node, controlplane.Node{CPU: "8", Memory: "16Gi"}); err != nil {
			return err
		}
	}
	return c.controller.WaitReady(ctx)
}

// stop ends all that was started. Logs of a real node stay if they are to be kept.
func (c *cluster) stop(keepLogs bool) error {
	if c.node != nil {
		if keepLogs {
			c.node.KeepLogs()
		}
		return c.node.Stop()
	}
	var failed []error
	if c.controller != nil {
		c.controller.Stop()
	}
	if c.log != nil {
		failed = append(failed, c.log.Close())
	}
	return errors.Join(append(failed, c.Stop())...)
}
