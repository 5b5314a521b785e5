// Command demo shows one edit of a workload's resources twice, on a real control plane: carried into the running pods by
// inplace-rollout, and rolled out by the built-in controller alone. It measures both, and fails if anything differs from
// what it claims.
//
//	demo --bin bin/k8s --controller bin/inplace-rollout   # simulated nodes: a StatefulSet, a Deployment, a DaemonSet
//	demo --bin bin/k8s --node real                        # and what kernel, programs and their visitors see of it
//	demo --bin bin/k8s --node real --show guarded         # a limit that is too small, with a canary and without
//	demo --bin bin/k8s --show initial-resources           # pods that get their size by what others of their image have used
//
// With --picture, all but the last one draw what they have measured.
//
// Each show is a file: rollouts.go, guarded.go, initial.go. What they share: demo.go runs kubectl, makes an edit and measures what
// comes of it; table.go shows results beside each other, and holds them against what is claimed; lanes.go draws them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
	"github.com/inplace-rollout/inplace-rollout/test/realnode"
)

// limit is how long the demo may take before something must be wrong.
const limit = 5 * time.Minute

// nodes is how many simulated nodes there are, with room for everything at its larger size.
const nodes = 3

// shows are what there is to see on which node. Simulated nodes kill nothing.
var shows = map[string]func(*demo, context.Context) error{
	"rollouts on simulated nodes": (*demo).rollouts, "rollouts on real nodes": (*demo).rollouts,
	"guarded on real nodes": (*demo).guarded, "initial-resources on simulated nodes": (*demo).initialResources,
}

func (o options) title() string { return fmt.Sprintf("%s on %s nodes", o.show, o.node) }

// options are the flags.
type options struct{ bin, controller, node, show, picture string }

func main() {
	if err := catching(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// catching runs the demo. The signals stay caught to the end: a second Ctrl-C must
// not cut the cleaning up short, nor a reader of the output that goes away. SIGPIPE
// ends nothing by itself, because connections that others have closed send it, too.
func catching(args []string, out *os.File) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE)
	defer signal.Stop(pipes)
	ctx, unread := context.WithCancel(ctx)
	defer unread()
	o, err := parse(args)
	if err == nil {
		err = run(ctx, o, screen{out, unread})
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil && ctx.Err() != nil && !errors.Is(err, realnode.ErrLeft):
		return errors.New("interrupted; everything that it started has ended")
	default:
		return err
	}
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.StringVar(&o.bin, "bin", "bin/k8s", "folder of the Kubernetes binaries; what a real node needs is beside it")
	flags.StringVar(&o.controller, "controller", "bin/inplace-rollout", "the controller's binary; a real node has its image")
	flags.StringVar(&o.node, "node", "simulated", "simulated or real")
	flags.StringVar(&o.show, "show", "rollouts", "rollouts, guarded or initial-resources")
	flags.StringVar(&o.picture, "picture", "", "draw what was measured into this SVG file")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if shows[o.title()] == nil {
		return o, fmt.Errorf("nobody can show %s", o.title())
	}
	return o, nil
}

// run plays the demo in a folder of its own, which stays only if the demo fails and
// has left logs there.
func run(ctx context.Context, o options, out screen) error {
	dir, err := os.MkdirTemp("", "inplace-rollout-demo-")
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	err = onCluster(ctx, dir, o, out)
	if _, none := os.Stat(logs(dir)); err != nil && ctx.Err() == nil && none == nil {
		return fmt.Errorf("%w\nthe logs of this run stay in %s", err, logs(dir))
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// logs is the folder of all logs of a cluster in dir.
func logs(dir string) string { return filepath.Join(dir, "log") }

// onCluster starts a cluster, plays the demo on it, and ends the cluster whatever happens.
func onCluster(ctx context.Context, dir string, o options, out screen) (err error) {
	interrupted := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the demo took longer than %s", limit))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	out.say("Starting Kubernetes and inplace-rollout …")
	d := &demo{screen: out, options: o, begin: time.Now()}
	if d.Cluster, err = start(ctx, dir, o); err != nil {
		return err
	}
	defer func() {
		fail(nil) // ends the watches, which the API server would wait for
		for _, end := range slices.Backward(d.ends) {
			end()
		}
		if d.End(interrupted, &err); err == nil && d.Node != nil {
			out.say("The node is gone, and has left nothing behind: no process, mount, network device or cgroup.")
		}
	}()
	if d.recorder, err = measure.Record(ctx, d.Client, metav1.NamespaceAll, fail); err != nil {
		return err
	}
	err = shows[o.title()](d, ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	if err == nil {
		err = d.draw()
	}
	return err
}

// start starts a cluster and waits until the controller is ready.
func start(ctx context.Context, dir string, o options) (*measure.Cluster, error) {
	if o.node == "real" {
		return measure.StartNode(ctx, o.bin)
	}
	return measure.Start(ctx, measure.Options{
		Bin: o.bin, Dir: dir, Controller: o.controller, Nodes: nodes, Node: controlplane.Node{CPU: "8", Memory: "16Gi"}, Log: io.Discard,
	})
}
