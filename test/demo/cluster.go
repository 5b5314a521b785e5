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
)

// nodes of the cluster, with room for everything at its larger size.
var nodes = []string{"node-1", "node-2", "node-3"}

// cluster is a control plane with deploy/ installed and the controller running.
type cluster struct {
	*controlplane.ControlPlane
	client     kubernetes.Interface
	controller *controller.Process
	log        io.Closer
}

// logs is the folder of all logs of a cluster in dir.
func logs(dir string) string { return filepath.Join(dir, "log") }

// startCluster starts a cluster and waits until the controller is ready. It leaves
// nothing running if it fails.
func startCluster(ctx context.Context, dir string, o options) (*cluster, error) {
	cp, err := controlplane.Start(ctx, controlplane.Options{Bin: o.bin, Dir: dir, Log: io.Discard})
	if err != nil {
		return nil, err
	}
	c := &cluster{ControlPlane: cp}
	if err := c.equip(ctx, o); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
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

// stop ends the controller and the control plane.
func (c *cluster) stop() error {
	var failed []error
	if c.controller != nil {
		c.controller.Stop()
	}
	if c.log != nil {
		failed = append(failed, c.log.Close())
	}
	return errors.Join(append(failed, c.Stop())...)
}
