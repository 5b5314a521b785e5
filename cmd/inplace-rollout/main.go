// Command inplace-rollout carries resources-only edits of StatefulSets and
// Deployments into the running pods, in place.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	err := run()
	if _, said := errors.AsType[exitError](err); err != nil && !said {
		fmt.Fprintln(os.Stderr, "Error:", err)
	}
	os.Exit(exitCode(err))
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:   "inplace-rollout",
		Short: "Roll out resources-only edits of StatefulSets and Deployments without restarting their pods",
		Long: `Roll out resources-only edits of StatefulSets and Deployments without restarting their pods.

Named kubectl-inplace_rollout and in the PATH, it is a plugin: kubectl inplace-rollout …`,
		SilenceErrors: true,
	}
	root.AddCommand(newControllerCommand(), newPlanCommand(), newStatusCommand(), newReleaseCommand())
	return root.ExecuteContext(ctx)
}
