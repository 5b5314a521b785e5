// Package measure tells what an edit does to the pods of workloads: which of them are replaced, restart, or
// are not Ready, for how long; who writes what; and, on a real node, whether anybody who talks to them notices.
// The demo, the benchmarks and the tests on a real node all measure with it:
//
//   - [Start] and [StartNode] start a cluster in which the controller runs.
//   - A [Recorder] keeps what watches bring, and [Edit] says what became of a workload since some time.
//   - A [Trail] is what the API server's audit log tells of the same.
//   - [Recorder.Visit] sends visitors to the programs in pods.
package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/realnode"
)

// parallel is how many nodes are added at once.
const parallel = 20

// Options say how a cluster is started.
type Options struct {
	// Bin is the folder of the Kubernetes binaries; what a real node needs is beside it.
	Bin string
	// Dir is the folder for all data; a temporary one if empty.
	Dir string
	// Controller is the controller's binary, and Args are added to its command line.
	Controller string
	Args       []string
	// Flags are added to the command line of the control plane's binary of that name.
	Flags map[string][]string
	// Nodes is how many simulated nodes there are, called node-1 and so on, and Node is what each of them has.
	Nodes int
	Node  controlplane.Node
	// Log is where the path of a folder that stays is printed, by default os.Stderr.
	Log io.Writer
}

// Cluster is a control plane with deploy/ installed and the controller running.
type Cluster struct {
	*controlplane.ControlPlane
	Client kubernetes.Interface

	// Node is nil where nodes are simulated. Then the controller is a process beside them.
	Node       *realnode.Node
	Controller *controller.Process

	options Options
	log     *os.File
}

// Start starts a cluster with simulated nodes, and waits until the controller is ready. It leaves nothing
// running if it fails.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	cp, err := controlplane.Start(ctx, controlplane.Options{Bin: o.Bin, Dir: o.Dir, Flags: o.Flags, Log: o.Log})
	if err != nil {
		return nil, err
	}
	c := &Cluster{ControlPlane: cp, options: o}
	return c, c.equipped(ctx, c.equip)
}

// StartNode starts a cluster with a real node, and with the controller as users install it. It leaves nothing
// running if it fails.
func StartNode(ctx context.Context, bin string) (*Cluster, error) {
	node, err := realnode.Start(ctx, realnode.Options{Bin: filepath.Dir(bin)})
	if err != nil {
		return nil, err
	}
	c := &Cluster{ControlPlane: node.ControlPlane, Node: node}
	return c, c.equipped(ctx, c.equipNode)
}

// equipped makes a client and equips the cluster, or ends it.
func (c *Cluster) equipped(ctx context.Context, equip func(context.Context) error) error {
	config := c.RESTConfig()
	config.WarningHandler = rest.NoWarnings{}
	var err error
	if c.Client, err = kubernetes.NewForConfig(config); err != nil {
		err = fmt.Errorf("making a client: %w", err)
	} else {
		err = equip(ctx)
	}
	if err != nil {
		c.End(ctx, &err)
	}
	return err
}

func (c *Cluster) equip(ctx context.Context) error {
	nodes, inNodes := errgroup.WithContext(ctx)
	nodes.SetLimit(parallel)
	for i := range c.options.Nodes {
		nodes.Go(func() error { return c.AddNode(inNodes, fmt.Sprintf("node-%d", i+1), c.options.Node) })
	}
	err := controller.Install(ctx, c.ControlPlane)
	if err = errors.Join(err, nodes.Wait()); err != nil {
		return err
	}
	if c.log, err = os.Create(filepath.Join(c.Dir(), "log", "inplace-rollout.log")); err != nil {
		return fmt.Errorf("creating the controller's log: %w", err)
	}
	return c.StartController(ctx)
}

func (c *Cluster) equipNode(ctx context.Context) error {
	if err := c.Node.Import(ctx, "counter"); err != nil {
		return err
	}
	return controller.Deploy(ctx, c.Node)
}

// StartController starts the controller, again if it was stopped, and waits until it is ready.
func (c *Cluster) StartController(ctx context.Context) (err error) {
	c.Controller, err = controller.Start(ctx, c.ControlPlane, controller.Options{Binary: c.options.Controller, Args: c.options.Args, Log: c.log})
	if err != nil {
		return err
	}
	return c.Controller.WaitReady(ctx)
}

// Ready returns nil if the controller is ready.
func (c *Cluster) Ready(ctx context.Context) error {
	if c.Node != nil {
		return controller.Deployed(ctx, c.Node)
	}
	return c.Controller.Ready(ctx)
}

// End ends all that was started, and adds what fails then to err. Logs stay if there is an error already, and
// the context was not cancelled.
func (c *Cluster) End(ctx context.Context, err *error) {
	keep := *err != nil && !errors.Is(ctx.Err(), context.Canceled)
	if c.Node != nil {
		if keep {
			c.Node.KeepLogs()
		}
		*err = errors.Join(*err, c.Node.Stop())
		return
	}
	if keep {
		c.KeepLogs()
	}
	if c.Controller != nil {
		c.Controller.Stop()
	}
	*err = errors.Join(*err, c.Stop())
	if c.log != nil {
		*err = errors.Join(*err, c.log.Close())
	}
}
