package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// namespace has everything that is measured.
const namespace = "bench"

// parallel is how many requests the benchmark itself has under way at once.
const parallel = 20

// cluster is a cluster with a client for objects of any kind.
type cluster struct {
	*measure.Cluster
	raw dynamic.Interface
}

// startCluster starts a cluster with so many nodes, with the controller as it ships, and with the namespace of all that is measured.
func startCluster(ctx context.Context, o options, nodes int) (*cluster, error) {
	started, err := measure.Start(ctx, measure.Options{
		Bin: o.bin, Controller: o.controller, Args: []string{"-v=2"}, Nodes: nodes, Node: controlplane.Node{CPU: "1000", Memory: "4Ti"},
		// The default log level, and not what tests want to read. As much as the other controllers have there. The default of 50 would set the pace of restarts.
		Flags: map[string][]string{"kube-scheduler": {"--kube-api-qps", "200", "--kube-api-burst", "400"}},
	})
	if err != nil {
		return nil, err
	}
	config := started.RESTConfig()
	config.WarningHandler = rest.NoWarnings{}
	raw, err := dynamic.NewForConfig(config)
	if err != nil {
		err = fmt.Errorf("making a client: %w", err)
	} else {
		made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		if _, err = started.Client.CoreV1().Namespaces().Create(ctx, made, metav1.CreateOptions{}); err != nil {
			err = fmt.Errorf("creating namespace %s: %w", namespace, err)
		}
	}
	if err != nil {
		started.End(ctx, &err)
		return nil, err
	}
	return &cluster{Cluster: started, raw: raw}, nil
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
		events, err := c.AuditAbout(measure.InNamespace(namespace), mark, controlplane.Writes)
		if err != nil {
			return err
		}
		if len(events) == 0 {
			return nil
		}
	}
}

// pids are the processes of which the cpu is counted, by the names that the results have.
func (c *cluster) pids() map[string]int {
	pids := map[string]int{ours: c.Controller.PID()}
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

// cpu is how many seconds of cpu processes have taken since they were started.
func cpu(pids map[string]int) (map[string]float64, error) {
	seconds := map[string]float64{}
	for name, pid := range pids {
		var err error
		if seconds[name], err = cpuOf(name, pid); err != nil {
			return nil, err
		}
	}
	return seconds, nil
}

// cpuOf is how many seconds of cpu a process has taken since it was started. The clock of the process counts
// nanoseconds; /proc/PID/stat counts hundredths of a second, and the floor program moves four pods in less.
// clock_getcpuclockid(3) makes the same number of the pid.
func cpuOf(name string, pid int) (float64, error) {
	const scheduled = 2 // CPUCLOCK_SCHED of include/linux/posix-timers_types.h: all that its threads have run
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err != nil {
		return 0, fmt.Errorf("reading the cpu clock of %s: %w", name, err)
	}
	return time.Duration(t.Nano()).Seconds(), nil
}

// forgetPeak has the kernel measure the peak of a process's memory anew.
func forgetPeak(pid int) error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		return fmt.Errorf("resetting the peak of memory: %w", err)
	}
	return nil
}

// peakOf is the most resident memory that a process has had, in bytes.
func peakOf(pid int) (uint64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, fmt.Errorf("looking at process %d: %w", pid, err)
	}
	status, err := p.NewStatus()
	if err != nil {
		return 0, fmt.Errorf("looking at process %d: %w", pid, err)
	}
	return status.VmHWM, nil
}
