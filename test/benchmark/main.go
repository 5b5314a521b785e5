// Command benchmark measures what a rollout costs, and how long it takes: edits of the cpu of
// all pods of many shapes of workloads, in place, by the least that could do the same (floor/), and by the
// built-in controllers in turn, on a real control plane with simulated kubelets.
//
//	benchmark rollouts --bin bin/k8s --controller bin/inplace-rollout --rounds 3 --shapes statefulset:1x100
//
// What it tells is read from the API server's audit log and from /proc. It is printed, and added to a JSON file, from which another
// command brings it into the documentation:
//
//	benchmark report --from bin/benchmark.json
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

// options are the flags.
type options struct {
	bin, controller string
	shapes          string
	rounds          int
	builtIn, floor  bool
	resize          time.Duration
	json            string
}

// standard are the shapes that are measured unless others are named.
const standard = "statefulset:1x100,statefulset:1x100:10,daemonset:1x100:10,statefulset:100x10,statefulset:1x1000:10,deployment:1x100,deployment:100x10,deployment:1x1000"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "benchmark:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	klog.LogToStderr(false) // client-go logs the end of each watch; what goes wrong becomes an error
	klog.SetOutput(io.Discard)
	commands := map[string]func(context.Context, []string) error{
		"rollouts": rollouts, "report": report,
	}
	if len(args) == 0 || commands[args[0]] == nil {
		return fmt.Errorf("which one of %s?", strings.Join(slices.Sorted(maps.Keys(commands)), ", "))
	}
	return commands[args[0]](ctx, args[1:])
}

// rollouts measures each shape in a cluster of its own.
func rollouts(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("benchmark rollouts", flag.ContinueOnError)
	flags.StringVar(&o.bin, "bin", "bin/k8s", "folder of the Kubernetes binaries")
	flags.StringVar(&o.controller, "controller", "bin/inplace-rollout", "the controller's binary")
	flags.StringVar(&o.json, "json", "", "add what was measured to this file, in place of earlier results of the same shapes")
	flags.DurationVar(&o.resize, "resize", 300*time.Millisecond, "how long the simulated kubelets take for a resize")
	flags.StringVar(&o.shapes, "shapes", standard, "what is edited, as (statefulset|daemonset):WORKLOADSxPODS[:MAXUNAVAILABLE] or deployment:WORKLOADSxPODS, with commas")
	flags.IntVar(&o.rounds, "rounds", 3, "how often each shape is edited, each way")
	flags.BoolVar(&o.builtIn, "built-in", true, "measure the built-in controllers, too, in turn")
	flags.BoolVar(&o.floor, "floor", true, "measure the least that could do the same, too, in turn")
	if err := flags.Parse(args); err != nil {
		return err
	}
	begin := time.Now()
	all := results{Machine: thisMachine()}
	for text := range strings.SplitSeq(o.shapes, ",") {
		s, err := parseShape(text)
		if err != nil {
			return err
		}
		err = o.measure(ctx, s, &all)
		if err = errors.Join(err, all.save(o.json)); err != nil {
			return fmt.Errorf("measuring %s: %w", s.title(), err)
		}
	}
	fmt.Println()
	fmt.Printf("\n%s\nMeasured in %s.\n", all.summary(), time.Since(begin).Round(time.Second))
	return nil
}

// measure measures all rounds of one shape, and adds them to the results.
func (o options) measure(ctx context.Context, s shape, all *results) (err error) {
	begin := time.Now()
	c, err := startCluster(ctx, o, s.nodes())
	if err != nil {
		return err
	}
	defer c.End(ctx, &err)
	all.Machine.Kubernetes = c.Version()
	f := &fixture{cluster: c, shape: s, resize: o.resize, optedIn: true}
	if err := f.fill(ctx); err != nil {
		return err
	}
	fmt.Printf("%s: %d pods are there after %s\n", s.title(), s.all(), time.Since(begin).Round(time.Second))
	ways := []way{inPlace}
	if o.floor {
		ways = append(ways, floored)
	}
	if o.builtIn {
		ways = append(ways, builtIn)
	}
	for range o.rounds {
		for _, w := range ways {
			r, err := f.rollOut(ctx, w)
			if err != nil {
				return fmt.Errorf("%s: %w", w, err)
			}
			fmt.Printf("  %s: %s\n", w, r.line())
			all.Rollouts = append(all.Rollouts, r)
		}
	}
	return nil
}
