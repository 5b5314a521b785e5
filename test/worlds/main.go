// Command worlds plays random worlds on a real control plane, and checks what users are promised.
//
//	worlds run --seed 1 --worlds 300
//	worlds show --seed 7
//
// A world is a namespace with workloads, and a list of what people, kubelets and others do there.
// Its seed makes it. Meanwhile requests of the controller fail, its watches are cut and late, and
// it is killed and paused, and in some rounds its heartbeat comes and goes, or there is no controller at all for a
// while, or no policy. When all that ends, everything must converge.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/inplace-rollout/inplace-rollout/test/process"
)

const usage = "usage: worlds run|show [--seed 1] [--worlds 1] [--at-once 10] [--calm] [--flaps] [--absences] [--bin bin/k8s]"

func main() {
	process.Main("worlds", func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	flags := flag.NewFlagSet("worlds "+args[0], flag.ExitOnError)
	seed := flags.Uint64("seed", 1, "of the first world and of the faults; each further world has the next one")
	o := options{out: os.Stdout}
	flags.IntVar(&o.worlds, "worlds", 1, "how many worlds")
	flags.IntVar(&o.atOnce, "at-once", 10, "how many of them at the same time")
	flags.BoolVar(&o.calm, "calm", false, "without faults")
	flags.BoolVar(&o.flaps, "flaps", false, "controllers are there and not there by turns in each round, not in each fourth one")
	flags.BoolVar(&o.absences, "absences", false, "all controllers, or all policies, go and come back later in each round, not in each fourth one")
	flags.StringVar(&o.bin, "bin", "", "folder of the Kubernetes binaries (default bin/k8s of this module)")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if flags.NArg() > 0 || o.worlds < 1 || o.atOnce < 1 {
		return errors.New(usage)
	}
	o.seed = *seed
	o.restarts = true
	switch args[0] {
	case "show":
		_, err := fmt.Printf("%s# Meanwhile, in a run from this seed on: %s.\n", newWorld(*seed), o.trouble(*seed))
		return err
	case "run":
	default:
		return errors.New(usage)
	}
	return soak(ctx, o)
}
