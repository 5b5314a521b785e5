package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/inplace-rollout/inplace-rollout/pkg/mutationcache"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
)

// watched is what so many watches take, each of the pods of one workload; or one watch of all pods.
type watched struct {
	Watches    int    `json:"watches"`
	Pods       int    `json:"pods"`   // that they show
	Memory     uint64 `json:"memory"` // of heap and stacks, in bytes
	RSS        uint64 `json:"rss"`
	Goroutines int    `json:"goroutines"`
	APIServer  uint64 `json:"apiServerRSS"`
}

// watches measures what the watches of a rollout in flight cost, beside one watch of all pods.
func watches(ctx context.Context, args []string) (err error) {
	var o options
	flags := o.flags("watches")
	workloads := flags.Int("workloads", 300, "how many StatefulSets there are")
	count := flags.Int("pods", 10, "how many pods each of them has")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c, err := startCluster(ctx, o, nodesFor(*workloads**count))
	if err != nil {
		return err
	}
	defer c.End(ctx, &err)
	c.Controller.Stop()
	f := &fixture{cluster: c, shape: shape{kind: "StatefulSet", workloads: *workloads, pods: *count, limit: *count}, resize: o.resize}
	if err := f.fill(ctx); err != nil {
		return err
	}
	measured, err := f.measureWatches(ctx)
	if err != nil {
		return err
	}
	all := results{Machine: thisMachine(), Watches: measured}
	if err := all.save(o.json); err != nil {
		return err
	}
	return printWatches(os.Stdout, measured)
}

// measureWatches opens more and more watches, and then only one, of all pods.
func (f *fixture) measureWatches(ctx context.Context) (measured []watched, err error) {
	config := f.RESTConfig()
	config.DisableCompression = true // as the controller
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	var open []*mutationcache.Cache[*corev1.Pod]
	watch := func(ctx context.Context, selector string) error {
		w, err := mutationcache.New(ctx, pods.NewInformer(client, namespace, selector), pods.Strip, func() {})
		if err != nil {
			return err
		}
		open = append(open, w)
		if !cache.WaitForCacheSync(ctx.Done(), w.HasSynced) {
			return fmt.Errorf("waiting for a watch: %w", context.Cause(ctx))
		}
		return nil
	}
	note := func() error {
		now, err := f.watching(open)
		measured = append(measured, now)
		return err
	}
	many, stop := context.WithCancel(ctx)
	defer stop()
	for i := range f.shape.workloads + 1 {
		if i == 0 || i == 1 || i == 10 || i == 100 || i == f.shape.workloads {
			if err := note(); err != nil {
				return nil, err
			}
		}
		if i < f.shape.workloads {
			if err := watch(many, "app="+f.shape.name(i)); err != nil {
				return nil, err
			}
		}
	}
	stop()
	open = nil
	time.Sleep(time.Second) // until they are gone
	if err := watch(ctx, ""); err != nil {
		return nil, err
	}
	return measured, note()
}

// watching measures this process, after a garbage collection, and the API server.
func (f *fixture) watching(open []*mutationcache.Cache[*corev1.Pod]) (watched, error) {
	time.Sleep(time.Second) // what began with the watch has come to rest
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	w := watched{Watches: len(open), Memory: m.HeapAlloc + m.StackInuse, Goroutines: runtime.NumGoroutine()}
	for _, one := range open {
		all, err := one.List()
		if err != nil {
			return w, err
		}
		w.Pods += len(all)
	}
	for pid, rss := range map[int]*uint64{os.Getpid(): &w.RSS, f.PID(apiServer): &w.APIServer} {
		var err error
		if *rss, _, err = memoryOf(pid); err != nil {
			return w, err
		}
	}
	return w, nil
}

// costs are those of one watch without pods, and of one pod that is watched: the last two rows
// show the same pods.
func costs(rows []watched) (watch, pod float64) {
	none, many, one := rows[0], rows[len(rows)-2], rows[len(rows)-1]
	watch = (float64(many.Memory) - float64(one.Memory)) / float64(many.Watches-one.Watches)
	return watch, (float64(one.Memory) - float64(none.Memory) - watch) / float64(one.Pods)
}

func printWatches(out io.Writer, rows []watched) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "watches\tpods\theap and stacks, MiB\tRSS, MiB\tgoroutines\tkube-apiserver's RSS, MiB")
	for _, r := range rows {
		_, _ = fmt.Fprintf(w, "%d\t%d\t%.1f\t%.0f\t%d\t%.0f\n", r.Watches, r.Pods, mib(r.Memory), mib(r.RSS), r.Goroutines, mib(r.APIServer))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	watch, pod := costs(rows)
	all, each := rows[len(rows)-1].Pods, float64(rows[len(rows)-2].Pods)/float64(rows[len(rows)-2].Watches)
	_, err := fmt.Fprintf(out, "A watch takes %.1f KiB, and a pod %.1f KiB more. One watch of all %d pods takes as much as %.0f rollouts of %.0f pods.\n",
		watch/1024, pod/1024, all, (watch+pod*float64(all))/(watch+pod*each), each)
	return err
}
