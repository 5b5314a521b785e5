package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/pkg/version"
)

// versionOptions are the arguments of the version command.
type versionOptions struct {
	*cluster
	clientOnly bool
	output     cli.Format
}

// versionKind is the kind of versions as a document.
const versionKind = "Version"

// versions are what the version command tells.
type versions struct {
	metav1.TypeMeta `json:",inline"`
	Client          version.Info        `json:"client"`
	Controllers     []controllerOfLease `json:"controllers,omitempty"`

	unseen bool // they may not see the controllers
}

// controllerOfLease is the controller that leads in a namespace, or was the last one to lead there.
type controllerOfLease struct {
	Namespace string `json:"namespace"`
	Version   string `json:"version"`
	Holder    string `json:"holder,omitempty"`
	Absent    bool   `json:"absent,omitempty"` // there is no heartbeat: a Lease outlives its holder
}

func newVersionCommand() *cobra.Command {
	o := versionOptions{cluster: newCluster()}
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of this program and of the controllers in the cluster",
		Long: `Show the version of this program, with the commit and its time, and the versions of the
leading controllers in the cluster, from their Leases: in all namespaces, or in the one
that --namespace names. Where the heartbeat says that none is ready, the last one to lead
is named as such.

The exit code is 1 if the cluster cannot be asked. The version of this program is shown
all the same. It is 0 if you cannot see the Leases: then only that one is shown.`,
		Example: `  # Is the controller as new as this program?
  inplace-rollout version

  # Without a cluster, for a script
  inplace-rollout version --client -o json`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.output.ValidateDocument(); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&o.clientOnly, "client", false, "do not ask the cluster")
	o.output.AddDocumentFlag(cmd)
	o.flags.AddFlags(cmd.PersistentFlags())
	o.completeFlags(cmd)
	return cmd
}

func (o versionOptions) run(ctx context.Context, out io.Writer) error {
	found := versions{TypeMeta: cli.Type(versionKind), Client: version.Get()}
	var asked error
	if !o.clientOnly {
		if asked = o.connect(); asked == nil {
			asked = found.ask(ctx, o.cluster, *o.flags.Namespace)
		}
	}
	if o.output.ForMachines() {
		return errors.Join(cli.Encode(out, o.output, found), asked)
	}
	return errors.Join(printVersions(out, found), asked)
}

// ask finds the controllers. Who may not see them is told so, and nothing has failed.
func (v *versions) ask(ctx context.Context, c *cluster, namespace string) (err error) {
	v.Controllers, err = c.controllers(ctx, namespace)
	if v.unseen = apierrors.IsForbidden(err); v.unseen {
		return nil
	}
	return err
}

// controllers finds those that lead in a namespace, or anywhere, by their Leases.
func (c *cluster) controllers(ctx context.Context, namespace string) ([]controllerOfLease, error) {
	leases, err := c.client.CoordinationV1().Leases(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, controller.LeaseName).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("asking for the controllers' Leases: %w", err)
	}
	var found []controllerOfLease
	for _, lease := range leases.Items {
		of := controllerOfLease{Namespace: lease.Namespace, Version: lease.Labels[version.Label], Holder: ptr.Deref(lease.Spec.HolderIdentity, "")}
		absent := (&prerequisite.Cluster{Client: c.client, ControllerNamespace: lease.Namespace}).Absent(ctx)
		of.Absent = absent != nil && !prerequisite.IsUnseen(absent)
		found = append(found, of)
	}
	return found, nil
}

// leads says which version the leader is.
func (c controllerOfLease) leads() string {
	of := cmp.Or(c.Version, "older than v0.1.0")
	switch {
	case c.Holder == "":
		return "none leads"
	case c.Absent:
		return "none is ready; the last one to lead: " + of
	}
	return of
}

func printVersions(out io.Writer, v versions) error {
	if _, err := fmt.Fprintf(out, "Client: %s\n", v.Client); err != nil {
		return err
	}
	if v.unseen {
		_, err := fmt.Fprintln(out, "Controller: unknown, because you cannot list leases")
		return err
	}
	for _, c := range v.Controllers {
		if _, err := fmt.Fprintf(out, "Controller in %s: %s\n", c.Namespace, c.leads()); err != nil {
			return err
		}
	}
	return nil
}
