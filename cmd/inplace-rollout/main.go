// Command inplace-rollout carries resources-only edits of StatefulSets,
// Deployments and DaemonSets into the running pods, in place.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	_ "golang.org/x/crypto/x509roots/fallback" // the image has no certificates: what is trusted where the system says nothing
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/controller"
	"github.com/inplace-rollout/inplace-rollout/initialresources"
	"github.com/inplace-rollout/inplace-rollout/pkg/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // another signal ends at once what does not heed the context, such as what reads the standard input
	os.Exit(exitCode(execute(ctx, newRoot(os.Args))))
}

// execute runs a command, says why it failed, and returns what it ends with.
func execute(ctx context.Context, root *cobra.Command) error {
	cmd, err := root.ExecuteContextC(ctx)
	if _, printed := errors.AsType[cli.ExitCode](err); err == nil || printed {
		return err
	}
	root.PrintErrln("Error:", err)
	if cmd.Name() == checkName { // whose 1 is an answer
		return cli.Unknown
	}
	return cli.Failed
}

// The names under which kubectl finds a plugin, and what completes its arguments.
const (
	pluginName   = "kubectl-inplace_rollout"
	completeName = "kubectl_complete-inplace_rollout"
)

// servers is the group of the commands that run in the cluster.
const servers = "servers"

// forPeople has warnings of API servers printed as kubectl prints them, and nothing that libraries log: what matters of it is in the error.
func forPeople(w io.Writer) {
	rest.SetDefaultWarningHandlerWithContext(warnings{rest.NewWarningWriter(w, rest.WarningWriterOptions{Deduplicate: true, Color: cli.PageOf(w).Colors})})
	klog.SetLoggerWithOptions(klog.Logger{}, klog.ContextualLogger(true)) // which logs nothing
}

// warnings are those of requests that the user has asked for.
type warnings struct{ rest.WarningHandler }

// HandleWarningHeaderWithContext is that of rest.WarningHandlerWithContext.
func (w warnings) HandleWarningHeaderWithContext(ctx context.Context, code int, agent, text string) {
	if ctx.Value(unasked{}) == nil {
		w.HandleWarningHeader(code, agent, text)
	}
}

type unasked struct{}

// unwarned is the context of a request by which a command only looks what would be: its warnings are not about what is done.
func unwarned(ctx context.Context) context.Context { return context.WithValue(ctx, unasked{}, true) }

// newRoot is the command that args ask for, the first of which is the program's name.
func newRoot(args []string) *cobra.Command {
	root := &cobra.Command{
		Use:   "inplace-rollout",
		Short: "Roll out resources-only edits of StatefulSets, Deployments and DaemonSets without restarting their pods",
		Long: `Roll out resources-only edits of StatefulSets, Deployments and DaemonSets without restarting their pods.

Linked as ` + pluginName + ` and ` + completeName + ` in the PATH,
it is a plugin, with completion: kubectl inplace-rollout …`,
		SilenceErrors: true,
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			if cmd.GroupID != servers {
				forPeople(cmd.ErrOrStderr())
			}
		},
	}
	root.Version = version.Get().String()
	addGroup(root, "use", "See and steer rollouts:", newStatusCommand(), newPlanCommand(), newRetryCommand(), newPromoteCommand(), newUndoCommand(), newEstimateCommand())
	addGroup(root, "operate", "Operate the installation:", newCheckCommand(), newReleaseCommand(), newVersionCommand())
	addGroup(root, servers, "What runs in the cluster:", controller.NewCommand(), newWebhookCommand(), initialresources.NewEstimatorCommand())
	root.SetArgs(args[1:])
	switch strings.TrimSuffix(filepath.Base(args[0]), ".exe") {
	case pluginName:
		bePlugin(root)
	case completeName:
		bePlugin(root)
		root.SetArgs(append([]string{cobra.ShellCompRequestCmd}, args[1:]...))
	}
	return root
}

// addGroup adds commands that stand together in the help.
func addGroup(root *cobra.Command, id, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = id
	}
	root.AddCommand(commands...)
}

// bePlugin has the help say what is typed: kubectl inplace-rollout. There the shell's
// completion is kubectl's own.
func bePlugin(root *cobra.Command) {
	plugin := "kubectl " + root.Name()
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: plugin}
	root.CompletionOptions.DisableDefaultCmd = true
	for _, cmd := range root.Commands() {
		cmd.Example = strings.ReplaceAll(cmd.Example, root.Name()+" "+cmd.Name(), plugin+" "+cmd.Name())
	}
}

// newEstimateCommand returns the command with kubectl's own flags.
func newEstimateCommand() *cobra.Command {
	c := newCluster()
	cmd := initialresources.NewEstimateCommand(c.flags)
	c.flags.AddFlags(cmd.PersistentFlags())
	c.completeFlags(cmd)
	return cmd
}
