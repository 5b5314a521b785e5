// Command inplace-rollout carries resources-only edits of StatefulSets into the
// running pods, in place.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	if run() != nil {
		os.Exit(1) // cobra has said why
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:   "inplace-rollout",
		Short: "Roll out resources-only edits of StatefulSets without restarting their pods",
	}
	root.AddCommand(newControllerCommand())
	return root.ExecuteContext(ctx)
}
