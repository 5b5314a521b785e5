package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

// namespace has everything that is measured.
const namespace = "bench"

// parallel is how many requests the benchmark itself has under way at once.
const parallel = 20

// cluster is a control plane with deploy/ installed, simulated nodes, and the controller as
// it ships.
type cluster struct {
	*controlplane.ControlPlane
	client     kubernetes.Interface
	raw        dynamic.Interface
	controller *controller.Process
	log        *os.File
}

// startCluster starts a cluster with so many nodes.
func startCluster(ctx context.Context, o options, nodes int) (*cluster, error) {
	cp, err := controlplane.Start(ctx, controlplane.Options{Bin: o.bin, Flags: map[string][]string{
		// As much as the other controllers have there. The default of 50 would set the pace of restarts.
		"kube-scheduler": {"--kube-api-qps", "200", "--kube-api-burst", "400"},
	}})
	if err != nil {
		return nil, err
	}
	c := &cluster{ControlPlane: cp}
	if err := c.equip(ctx, o, nodes); err != nil {
		c.KeepLogs()
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

// connect makes the clients.
func (c *cluster) connect() error {
	var err error
	config := c.RESTConfig()
	config.WarningHandler = rest.NoWarnings{}
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if c.raw, err = dynamic.NewForConfig(config); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return nil
}

// makeNamespace makes the namespace of all that is measured.
func (c *cluster) makeNamespace(ctx context.Context) error {
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := c.client.CoreV1().Namespaces().Create(ctx, made, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating namespace %s: %w", namespace, err)
	}
	return nil
}

func (c *cluster) equip(ctx context.Context, o options, nodes int) error {
	if err := c.connect(); err != nil {
		return err
	}
	if err := c.makeNamespace(ctx); err != nil {
		return err
	}
	if err := c.addNodes(ctx, nodes); err != nil {
		return err
	}
	if err := controller.Install(ctx, c.ControlPlane); err != nil {
		return err
	}
	return c.startController(ctx, o)
}

// addNodes adds simulated nodes.
func (c *cluster) addNodes(ctx context.Context, n int) error {
	nodes, ctx := errgroup.WithContext(ctx)
	nodes.SetLimit(parallel)
	for i := range n {
		nodes.Go(func() error {
			return c.AddNode(ctx, fmt.Sprintf("node-%d", i), controlplane.Node{CPU: "1000", Memory: "4Ti"})
		})
	}
	return nodes.Wait()
}

func (c *cluster) startController(ctx context.Context, o options) error {
	var err error
	if c.log, err = os.Create(filepath.Join(c.Dir(), "log", "inplace-rollout.log")); err != nil {
		return fmt.Errorf("creating the controller's log: %w", err)
	}
	args := []string{"-v=2"} // the default, and not what tests want to read
	if o.profiles != "" {
		args = append(args, "--profiling")
	}
	if c.controller, err = controller.Start(ctx, c.ControlPlane, controller.Options{Binary: o.controller, Args: args, Log: c.log}); err != nil {
		return err
	}
	return c.controller.WaitReady(ctx)
}

// stop ends all that was started.
func (c *cluster) stop() error {
	if c.controller != nil {
		c.controller.Stop()
	}
	failed := c.Stop()
	if c.log != nil {
		failed = errors.Join(failed, c.log.Close())
	}
	return failed
}

// end stops the cluster after a measurement, and adds what fails to err. It keeps the logs if
// the measurement has failed, and not only been interrupted.
func (c *cluster) end(ctx context.Context, err *error) {
	if *err != nil && ctx.Err() == nil {
		c.KeepLogs()
	}
	*err = errors.Join(*err, c.stop())
}

// quiet waits until nothing has been written in the namespace for a second: also events that
// have waited for their turn.
func (c *cluster) quiet(ctx context.Context) error {
	for {
		mark, err := c.AuditMark()
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the last write: %w", context.Cause(ctx))
		case <-time.After(time.Second):
		}
		events, err := c.AuditAbout(inNamespace, mark, controlplane.Writes)
		if err != nil {
			return err
		}
		if len(events) == 0 {
			return nil
		}
	}
}

// inNamespace is in each line of the audit log that is about the namespace.
const inNamespace = `"namespace":"` + namespace + `"`

// pids are the processes of which the cpu is counted, by the names that the results have.
func (c *cluster) pids() map[string]int {
	pids := map[string]int{ours: c.controller.PID()}
	for _, name := range []string{apiServer, controllerManager, "kube-scheduler", "etcd", "kwok"} {
		pids[name] = c.PID(name)
	}
	return pids
}

// The processes that results speak of.
const (
	ours              = "inplace-rollout"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
)

// cpu is how many seconds of cpu the processes have taken since they were started.
func (c *cluster) cpu() (map[string]float64, error) {
	seconds := map[string]float64{}
	for name, pid := range c.pids() {
		p, err := procfs.NewProc(pid)
		if err != nil {
			return nil, fmt.Errorf("looking at %s: %w", name, err)
		}
		stat, err := p.Stat()
		if err != nil {
			return nil, fmt.Errorf("looking at %s: %w", name, err)
		}
		seconds[name] = stat.CPUTime()
	}
	return seconds, nil
}

// used is how many seconds of all cores have passed, and in how many of them they were idle.
func used() (passed, idle float64, err error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, 0, fmt.Errorf("looking at the cores: %w", err)
	}
	stat, err := proc.Stat()
	if err != nil {
		return 0, 0, fmt.Errorf("looking at the cores: %w", err)
	}
	t := stat.CPUTotal
	idle = t.Idle + t.Iowait
	return t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal + idle, idle, nil
}

// forgetPeak has the kernel measure the controller's peak of memory anew.
func (c *cluster) forgetPeak() error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", c.controller.PID()), []byte("5"), 0); err != nil {
		return fmt.Errorf("resetting the peak of memory: %w", err)
	}
	return nil
}

// memory is the resident memory of the controller in bytes, now and at its peak.
func (c *cluster) memory() (now, peak uint64, err error) {
	p, err := procfs.NewProc(c.controller.PID())
	if err != nil {
		return 0, 0, fmt.Errorf("looking at the controller: %w", err)
	}
	status, err := p.NewStatus()
	if err != nil {
		return 0, 0, fmt.Errorf("looking at the controller: %w", err)
	}
	return status.VmRSS, status.VmHWM, nil
}
