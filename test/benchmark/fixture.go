package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// fixture is the workloads of one shape, which are edited again and again.
type fixture struct {
	*cluster
	shape   shape
	resize  time.Duration // how long the kubelets take
	edits   int
	optedIn bool
	floor   *program // while it carries an edit to the pods
}

func (f *fixture) workloads() dynamic.ResourceInterface {
	return f.raw.Resource(appsv1.SchemeGroupVersion.WithResource(strings.ToLower(f.shape.kind) + "s")).Namespace(namespace)
}

// fill makes the workloads, opted in, and waits until they are Complete.
func (f *fixture) fill(ctx context.Context) error {
	if err := f.each(ctx, func(ctx context.Context, i int) error {
		w, err := f.shape.workload(f.shape.name(i), f.resize)
		if err == nil {
			w.SetLabels(map[string]string{api.EnabledLabel: "true"})
			_, err = f.workloads().Create(ctx, w, metav1.CreateOptions{})
		}
		return err
	}); err != nil {
		return fmt.Errorf("creating workloads: %w", err)
	}
	if _, err := f.await(ctx, complete); err != nil {
		return fmt.Errorf("waiting for the pods: %w", err)
	}
	return nil
}

// patch patches all workloads at once.
func (f *fixture) patch(ctx context.Context, how types.PatchType, patch string) error {
	if err := f.each(ctx, func(ctx context.Context, i int) error {
		_, err := f.workloads().Patch(ctx, f.shape.name(i), how, []byte(patch), metav1.PatchOptions{FieldManager: "benchmark"})
		return err
	}); err != nil {
		return fmt.Errorf("patching workloads: %w", err)
	}
	return nil
}

// each does something to each workload.
func (f *fixture) each(ctx context.Context, do func(ctx context.Context, i int) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(parallel)
	for i := range f.shape.workloads {
		all.Go(func() error { return do(ctx, i) })
	}
	return all.Wait()
}

// rolledOut reports whether the built-in controller has nothing left to do.
func rolledOut(w *unstructured.Unstructured) bool {
	result, err := status.Compute(w)
	return err == nil && result.Status == status.CurrentStatus
}

// await waits until done is true of all workloads, and returns when it became so, by name.
func (f *fixture) await(ctx context.Context, done func(*unstructured.Unstructured) bool) (map[string]time.Time, error) {
	at := map[string]time.Time{}
	all := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return f.workloads().List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return f.workloads().Watch(ctx, o)
		},
	}
	_, err := watchtools.UntilWithSync(ctx, all, &unstructured.Unstructured{}, nil, func(event watch.Event) (bool, error) {
		w, is := event.Object.(*unstructured.Unstructured)
		if is && at[w.GetName()].IsZero() && done(w) {
			at[w.GetName()] = time.Now()
		}
		return len(at) == f.shape.workloads, nil
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for %d workloads, of which %d are done: %w", f.shape.workloads, len(at), err)
	}
	return at, nil
}

// pods are the UIDs of the pods that are there, by their names.
func (f *fixture) pods(ctx context.Context) (map[string]types.UID, error) {
	list, err := f.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	uids := map[string]types.UID{}
	for _, pod := range list.Items {
		uids[pod.Name] = pod.UID
	}
	return uids, nil
}

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
