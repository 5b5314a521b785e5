package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/pkg/version"
)

// versionOptions are the arguments of the version command.
type versionOptions struct {
	*cluster
	clientOnly bool
	output     cli.Format
}

// versions are what the version command tells.
type versions struct {
	Client      version.Info        `json:"client"`
	Controllers []controllerOfLease `json:"controllers,omitempty"`
}

// controllerOfLease is the controller that leads in a namespace.
type controllerOfLease struct {
	Namespace string `json:"namespace"`
	Version   string `json:"version"`
	Holder    string `json:"holder,omitempty"`
}

func newVersionCommand() *cobra.Command {
	o := versionOptions{cluster: newCluster()}
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of this program and of the controllers in the cluster",
		Long: `Show the version of this program, the commit that it was built from with its time, and
the versions of the controllers that lead in the cluster, as their Leases tell them: of
all namespaces, or of the one that --namespace names.

The exit code is 1 if the cluster cannot be asked; what this program is, it says all the
same.`,
		Example: `  # Is the controller as new as this program?
  inplace-rollout version

  # Without a cluster, for a script
  inplace-rollout version --client -o json`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains([]cli.Format{"", "json", "yaml"}, o.output) {
				return fmt.Errorf("--output is %q: want json or yaml, or none for lines", o.output)
			}
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&o.clientOnly, "client", false, "ask no cluster")
	cmd.Flags().StringVarP((*string)(&o.output), "output", "o", "", "json or yaml; none prints lines")
	cli.CompleteFlag(cmd, "output", cobra.FixedCompletions([]cobra.Completion{"json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
	o.flags.AddFlags(cmd.PersistentFlags())
	o.completeFlags(cmd)
	return cmd
}

func (o versionOptions) run(ctx context.Context, out io.Writer) error {
	found := versions{Client: version.Get()}
	var asked error
	if !o.clientOnly {
		if asked = o.connect(); asked == nil {
			found.Controllers, asked = o.controllers(ctx)
		}
	}
	if o.output.ForMachines() {
		return errors.Join(cli.Encode(out, o.output, found), asked)
	}
	return errors.Join(printVersions(out, found), asked)
}

// controllers finds those that lead by their Leases.
func (o versionOptions) controllers(ctx context.Context) ([]controllerOfLease, error) {
	leases, err := o.client.CoordinationV1().Leases(*o.flags.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, leaseName).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("asking for the controllers' Leases: %w", err)
	}
	var found []controllerOfLease
	for _, lease := range leases.Items {
		c := controllerOfLease{Namespace: lease.Namespace, Version: lease.Labels[version.Label]}
		if lease.Spec.HolderIdentity != nil {
			c.Holder = *lease.Spec.HolderIdentity
		}
		found = append(found, c)
	}
	return found, nil
}

func printVersions(out io.Writer, v versions) error {
	if _, err := fmt.Fprintf(out, "Client: %s\n", v.Client); err != nil {
		return err
	}
	for _, c := range v.Controllers {
		leads := c.Version
		switch {
		case c.Holder == "":
			leads = "none leads"
		case c.Version == "":
			leads = "older than v0.1.0"
		}
		if _, err := fmt.Fprintf(out, "Controller in %s: %s\n", c.Namespace, leads); err != nil {
			return err
		}
	}
	return nil
}
