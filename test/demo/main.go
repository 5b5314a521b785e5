// Command demo shows one edit of a StatefulSet's resources twice, on a real control
// plane: carried into the running pods by inplace-rollout, and rolled out by the
// built-in controller alone; then the same of a Deployment and, at a glance, of a
// DaemonSet. It measures all of it, and fails if anything differs from what it claims.
// Nodes are simulated, or one is real; then it also shows what the kernel grants the
// containers, what the programs in them see of it, and what they remember.
//
//	demo --bin bin/k8s --controller bin/inplace-rollout
//	demo --bin bin/k8s --node real
//
// With --picture it draws what it has measured.
//
// With --show initial-resources it shows something else: pods that get their first size by what
// others of their image have used, and another one while they run. With --show guarded, on a real
// node, a limit that is too small: guarded by inplace-rollout, and rolled out by the built-in controller.
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

// options are the flags.
type options struct {
	bin, controller, node, show, picture string
}

// Values of the flags: a real node, and what is shown.
const (
	realNode         = "real"
	rollouts         = "rollouts"
	initialResources = "initial-resources"
	guarded          = "guarded"
)

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
		err = run(ctx, o, newScreen(out, unread))
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
	flags.StringVar(&o.show, "show", rollouts, "rollouts; initial-resources, on simulated nodes only; or guarded, on a real one only")
	flags.StringVar(&o.picture, "picture", "", "draw what was measured into this SVG file")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.node != "simulated" && o.node != realNode {
		return o, fmt.Errorf("unknown node %q", o.node)
	}
	switch {
	case !slices.Contains([]string{rollouts, initialResources, guarded}, o.show):
		return o, fmt.Errorf("nothing to show that is called %q", o.show)
	case o.show == initialResources && (o.node == realNode || o.picture != ""):
		return o, errors.New("initial resources are shown on simulated nodes, without a picture")
	case o.show == guarded && o.node != realNode:
		return o, errors.New("guarded rollouts are shown on a real node: simulated ones kill nothing")
	}
	return o, nil
}

// run plays the demo in a folder of its own, which stays only if the demo fails and
// has left logs there.
func run(ctx context.Context, o options, out *screen) error {
	dir, err := os.MkdirTemp("", "inplace-rollout-demo-")
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	err = runIn(ctx, dir, o, out)
	if _, none := os.Stat(logs(dir)); err != nil && ctx.Err() == nil && none == nil {
		return fmt.Errorf("%w\nthe logs of this run stay in %s", err, logs(dir))
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// runIn starts a cluster, plays the demo on it, and ends the cluster whatever happens.
func runIn(ctx context.Context, dir string, o options, out *screen) (err error) {
	interrupted := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the demo took longer than %s", limit))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	begin := time.Now()
	out.say("Starting Kubernetes and inplace-rollout …")
	c, err := start(ctx, dir, o)
	if err != nil {
		return err
	}
	defer func() {
		fail(nil) // ends the watches, which the API server would wait for
		if c.End(interrupted, &err); err == nil && c.Node != nil {
			out.say("The node is gone, and has left nothing behind: no process, mount, network device or cgroup.")
		}
	}()
	rec, err := measure.Record(ctx, c.Client, metav1.NamespaceAll, fail)
	if err != nil {
		return err
	}
	d := &demo{Cluster: c, out: out, recorder: rec}
	switch o.show {
	case initialResources:
		return explained(ctx, d.playInitial(ctx, o, begin))
	case guarded:
		return explained(ctx, d.playGuarded(ctx, o, begin))
	}
	if d.visited = c.Node != nil; d.visited {
		d.recorder.Visit(ctx, c.Node, 200*time.Millisecond, inPlace, builtIn)
	} else if err := playProbes(ctx, c.Client, fail); err != nil {
		return err
	}
	d.introduce(time.Since(begin))
	if err := d.play(ctx); err != nil || o.picture == "" {
		return explained(ctx, err)
	}
	return picture{
		Title:   "The same edit, in place and built in",
		Source:  fmt.Sprintf("Measured on %s, Kubernetes %s.", begin.Format(time.DateOnly), c.Version()),
		Columns: d.columns,
	}.write(o.picture)
}

// nodes is how many simulated nodes there are, with room for everything at its larger size.
const nodes = 3

// logs is the folder of all logs of a cluster in dir.
func logs(dir string) string { return filepath.Join(dir, "log") }

// start starts a cluster and waits until the controller is ready.
func start(ctx context.Context, dir string, o options) (*measure.Cluster, error) {
	if o.node == realNode {
		return measure.StartNode(ctx, o.bin)
	}
	return measure.Start(ctx, measure.Options{
		Bin: o.bin, Dir: dir, Controller: o.controller, Nodes: nodes, Node: controlplane.Node{CPU: "8", Memory: "16Gi"}, Log: io.Discard,
	})
}

// explained adds to an error why the demo was ended, if it was.
func explained(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}
