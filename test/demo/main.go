// Command demo shows one edit of a StatefulSet's resources twice, on a real control
// plane with simulated nodes: carried into the running pods by inplace-rollout, and
// rolled out by the built-in controller alone; and then the same of a Deployment. It
// measures all of it, and fails if anything differs from what it claims.
//
//	demo --bin bin/k8s --controller bin/inplace-rollout
//
// With --picture it draws what it has measured.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// limit is how long the demo may take before something must be wrong.
const limit = 3 * time.Minute

// options are the flags.
type options struct {
	bin, controller, picture string
}

func main() {
	if err := catching(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// catching runs the demo. The signals stay caught to the end: a second Ctrl-C must
// not cut the cleaning up short, nor a reader of the output that goes away.
func catching(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	o, err := parse(args)
	if err == nil {
		err = run(ctx, o)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil && ctx.Err() != nil:
		return errors.New("interrupted; everything that it started has ended")
	default:
		return err
	}
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.StringVar(&o.bin, "bin", "bin/k8s", "folder of the Kubernetes binaries")
	flags.StringVar(&o.controller, "controller", "bin/inplace-rollout", "the controller's binary")
	flags.StringVar(&o.picture, "picture", "", "draw what was measured into this SVG file")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return o, nil
}

// run plays the demo in a folder of its own, which stays only if the demo fails and
// has left logs there.
func run(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "inplace-rollout-demo-")
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	err = runIn(ctx, dir, o)
	if _, none := os.Stat(logs(dir)); err != nil && ctx.Err() == nil && none == nil {
		return fmt.Errorf("%w\nthe logs of this run stay in %s", err, logs(dir))
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// runIn starts a cluster, plays the demo on it, and ends the cluster whatever happens.
func runIn(ctx context.Context, dir string, o options) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the demo took longer than %s", limit))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	out := newScreen(os.Stdout)
	begin := time.Now()
	out.say("Starting Kubernetes and inplace-rollout …")
	c, err := startCluster(ctx, dir, o)
	if err != nil {
		return err
	}
	defer func() {
		fail(nil) // ends the watches, which the API server would wait for
		err = errors.Join(err, c.stop())
	}()
	rec, err := record(ctx, c.client, fail)
	if err != nil {
		return err
	}
	if err := playProbes(ctx, c.client, fail); err != nil {
		return err
	}
	d := &demo{cluster: c, out: out, recorder: rec}
	d.introduce(time.Since(begin))
	if err := d.play(ctx); err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return err
	}
	if o.picture == "" {
		return nil
	}
	return picture{
		Title:   "The same edit, in place and built in",
		Source:  fmt.Sprintf("Measured on %s by make picture: Kubernetes %s, simulated kubelets. The edit is at 0 s.", begin.Format(time.DateOnly), c.Version()),
		Columns: d.columns,
	}.write(o.picture)
}
