package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/initialresources"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/pkg/version"
)

// checkOptions are the arguments of the check command.
type checkOptions struct {
	*cluster
	output cli.Format
	strict bool
}

func newCheckCommand() *cobra.Command {
	o := checkOptions{cluster: newCluster()}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check whether edits are rolled out in place in a namespace, and what you can do there",
		Long: `Check whether edits are rolled out in place in a namespace, and what you can do there.

It looks at the API server, at what holds edits, at the controller, and at the versions,
and at the estimator where initial resources are installed. A dry run in the namespace
shows whether edits are held. Nothing is written. A line with ? could not be checked with your
permissions. A line with - is about something that you cannot do, or is only a note.

The exit code is 1 if something is missing, and 0 otherwise. With --strict it is also 1 if
something is unknown.`,
		Example: `  # Is this namespace ready?
  inplace-rollout check

  # Before a pipeline goes on
  inplace-rollout check -o json`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.output.ValidateDocument(); err != nil {
				return err
			}
			rest.SetDefaultWarningHandler(rest.NoWarnings{}) // they are about the workloads of the dry runs
			if err := o.connect(); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	o.output.AddDocumentFlag(cmd)
	cmd.Flags().BoolVar(&o.strict, "strict", false, "count what is unknown as missing")
	o.flags.AddFlags(cmd.PersistentFlags())
	o.completeFlags(cmd)
	return cmd
}

// checkKind is the kind of the report as a document.
const checkKind = "Check"

// checkReport is what the check command has found out.
type checkReport struct {
	metav1.TypeMeta `json:",inline"`
	Namespace       string    `json:"namespace"`
	Ready           bool      `json:"ready"` // nothing has failed
	Findings        []finding `json:"findings"`
}

// finding is what was found out about one thing.
type finding struct {
	Name    string  `json:"name"`
	Outcome outcome `json:"outcome"`
	Message string  `json:"message"`
}

// outcome of a check.
type outcome string

// The outcomes.
const (
	passed  outcome = "Passed"
	failed  outcome = "Failed"
	unknown outcome = "Unknown" // they may not see it
	noted   outcome = "Noted"   // worth knowing, and no failure
)

// bullets of the outcomes, for people.
var bullets = map[outcome]string{passed: "✓", failed: "✗", unknown: "?", noted: "-"}

var bulletTones = map[outcome]cli.Tone{passed: cli.Good, failed: cli.Bad, unknown: cli.Waiting}

func (o checkOptions) run(ctx context.Context, out io.Writer) error {
	r := checkReport{TypeMeta: cli.Type(checkKind), Namespace: o.namespace, Findings: o.find(ctx)}
	r.Ready = !slices.ContainsFunc(r.Findings, func(f finding) bool { return f.Outcome == failed })
	if err := r.print(out, o.output); err != nil {
		return err
	}
	if !r.Ready {
		return exitError(1)
	}
	return nil
}

func (r checkReport) print(out io.Writer, format cli.Format) error {
	if format.ForMachines() {
		return cli.Encode(out, format, r)
	}
	page := cli.PageOf(out)
	for _, f := range r.Findings {
		for i, line := range strings.Split(f.Message, "\n") {
			bullet := bullets[f.Outcome]
			if i == 0 {
				line = f.Name + ": " + line
			} else {
				bullet = " "
			}
			if err := page.Item(bullet, bulletTones[f.Outcome], line); err != nil {
				return err
			}
		}
	}
	said := "Edits in namespace " + r.Namespace + " are rolled out in place."
	if !r.Ready {
		said = "Edits in namespace " + r.Namespace + " are not rolled out in place."
	}
	return page.Text(said)
}

// find checks one thing after the other.
func (o checkOptions) find(ctx context.Context) []finding {
	c := &prerequisite.Cluster{Client: o.client, Namespace: o.namespace}
	report := c.Report(ctx)
	found := slices.Concat(
		[]finding{o.apiServer(report.Resize), installed(report), o.held(ctx, c, report), attended(report)}, o.former(ctx),
		o.versions(ctx), []finding{o.leftOut(ctx)}, o.estimates(ctx), o.rights(ctx),
	)
	for i := range found {
		if o.strict && found[i].Outcome == unknown {
			found[i].Outcome = failed
		}
	}
	return found
}

func (o checkOptions) apiServer(resize error) finding {
	f := finding{"API server", passed, "it serves pods/resize"}
	if info, err := o.client.Discovery().ServerVersion(); err == nil {
		f.Message = info.GitVersion + " serves pods/resize"
	}
	if resize != nil {
		f.Outcome, f.Message = failed, resize.Error()
	}
	return f
}

// nameOfHold is what the line about what holds edits is called.
const nameOfHold = "Hold"

// installed says whether what holds edits is installed.
func installed(r prerequisite.Report) finding {
	by := "MutatingAdmissionPolicies"
	if r.Way == prerequisite.Webhook {
		by = "MutatingWebhookConfiguration " + prerequisite.WebhookConfiguration
	}
	switch {
	case r.Installed != nil:
		return finding{nameOfHold, failed, r.Installed.Error()}
	case len(r.Unseen) > 0:
		return finding{nameOfHold, unknown, "you cannot see all of what is installed: " + r.Unseen[0].Error()}
	}
	return finding{nameOfHold, passed, "edits are held by " + by}
}

// former says which policies of the version before can go.
func (o checkOptions) former(ctx context.Context) []finding {
	var left []string
	note := func(resource, name string, former []string) {
		if slices.Contains(former, name) {
			left = append(left, resource+"/"+name)
		}
	}
	policies := o.client.AdmissionregistrationV1() // where they are not served, or not for this user's eyes, nothing is known
	if mutating, err := policies.MutatingAdmissionPolicies().List(ctx, metav1.ListOptions{}); err == nil {
		for _, p := range mutating.Items {
			note("mutatingadmissionpolicy", p.Name, prerequisite.FormerMutatingPolicies())
		}
	}
	if validating, err := policies.ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{}); err == nil {
		for _, p := range validating.Items {
			note("validatingadmissionpolicy", p.Name, prerequisite.FormerValidatingPolicies())
		}
	}
	if len(left) == 0 {
		return nil
	}
	return []finding{{nameOfHold, noted, "policies of the version before are left, and others have replaced them: kubectl delete " + strings.Join(left, " ")}}
}

// held says what dry runs have shown.
func (o checkOptions) held(ctx context.Context, c *prerequisite.Cluster, r prerequisite.Report) finding {
	const name = "Dry run"
	if r.Installed != nil {
		return finding{name, unknown, "none was made, because something is missing"}
	}
	said := c.Proof(ctx, o.namespace)
	var notHeld, unclear []string
	why := ""
	for _, kind := range prerequisite.HeldKinds {
		switch err := said[kind]; {
		case errors.Is(err, prerequisite.ErrNotAsked):
			notHeld = append(notHeld, kind+"s")
		case err != nil:
			unclear, why = append(unclear, kind+"s"), cmp.Or(why, err.Error())
		}
	}
	switch {
	case len(notHeld) > 0:
		return finding{name, failed, fmt.Sprintf("edits of %s are not held: %s", strings.Join(notHeld, ", "), prerequisite.ErrNotAsked)}
	case len(unclear) > 0:
		return finding{name, unknown, fmt.Sprintf("it is unknown whether edits of %s are held: %s", strings.Join(unclear, ", "), why)}
	}
	return finding{name, passed, "edits of StatefulSets, Deployments and DaemonSets are held"}
}

// attended says whether a controller is there.
func attended(r prerequisite.Report) finding {
	const name = "Controller"
	switch {
	case r.Controller != nil:
		return finding{name, failed, r.Controller.Error()}
	case r.Installed != nil, len(r.Unseen) > 0:
		return finding{name, unknown, "it is unknown whether a controller is ready"}
	}
	return finding{name, passed, "a controller is ready"}
}

// versions compares those of the controllers with this program's.
func (o checkOptions) versions(ctx context.Context) []finding {
	const name = "Version"
	mine := version.Get().LabelValue() // as a Lease has it
	controllers, err := o.controllers(ctx, metav1.NamespaceAll)
	if err != nil {
		return []finding{{name, unknown, "this program is " + mine + "; " + err.Error()}}
	}
	if len(controllers) == 0 {
		return []finding{{name, noted, "this program is " + mine + "; no Lease of a controller says its version"}}
	}
	var found []finding
	for _, c := range controllers {
		f := finding{name, passed, "the controller in " + c.Namespace + ": " + c.leads()}
		if c.Version != mine {
			f.Outcome, f.Message = noted, f.Message+"; this program: "+mine
		}
		found = append(found, f)
	}
	return found
}

// leftOut says in which namespaces nothing is held.
func (o checkOptions) leftOut(ctx context.Context) finding {
	const name = "Namespaces"
	out, err := (&prerequisite.Cluster{Client: o.client}).LeftOut(ctx)
	switch {
	case err != nil:
		return finding{name, unknown, "it is unknown whether any is excluded: " + err.Error()}
	case len(out) > 0:
		return finding{name, noted, "edits are not held in " + list(out, many) + ", because of the namespaceSelector of the webhooks"}
	}
	return finding{name, passed, "none is excluded"}
}

// estimates says, where initial resources are installed, whether the estimator is there.
func (o checkOptions) estimates(ctx context.Context) []finding {
	const name = "Initial resources"
	_, policy := o.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, "inplace-rollout-validate-initial-resources", metav1.GetOptions{})
	_, table := o.client.CoreV1().ConfigMaps(o.namespace).Get(ctx, api.EstimatesName, metav1.GetOptions{})
	if policy != nil && table != nil { // not all may see the first
		return nil
	}
	leases, err := o.client.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, initialresources.EstimatorLease).String(),
	})
	if err != nil {
		return []finding{{name, unknown, "it is unknown whether an estimator is running: " + err.Error()}}
	}
	for _, lease := range leases.Items {
		if ptr.Deref(lease.Spec.HolderIdentity, "") != "" && lease.Spec.RenewTime != nil && time.Since(lease.Spec.RenewTime.Time) < time.Minute {
			return []finding{{name, passed, "an estimator is running"}}
		}
	}
	return []finding{{name, noted, "no estimator is running: new pods get the last estimates"}}
}

// right is what a user may need for something.
type right struct {
	what  string
	needs []authorizationv1.ResourceAttributes
}

// rightsIn are what the commands need in a namespace.
func rightsIn(namespace string) []right {
	workloads := func(verb string) []authorizationv1.ResourceAttributes {
		var needs []authorizationv1.ResourceAttributes
		for _, k := range kinds {
			needs = append(needs, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: k.gvr().Group, Resource: k.resource})
		}
		return needs
	}
	pods := authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "pods"}
	return []right{
		{"see the progress of rollouts, with status", append(workloads("list"), pods)},
		{"preview rollouts, with plan", append(workloads("get"), pods)},
		{"preview whether nodes have room", []authorizationv1.ResourceAttributes{{Verb: "list", Resource: "nodes"}, {Verb: "list", Resource: "pods"}}},
		{"opt in, edit, retry and release", workloads("patch")},
	}
}

// rights says what the user may do.
func (o checkOptions) rights(ctx context.Context) []finding {
	var found []finding
	for _, r := range rightsIn(o.namespace) {
		f := finding{"You can", passed, r.what}
		lacks, err := o.lacks(ctx, r.needs)
		switch {
		case err != nil:
			f = finding{"You", unknown, "it is unknown whether you can " + r.what + ": " + err.Error()}
		case len(lacks) > 0:
			f = finding{"You cannot", noted, r.what + ": you lack " + strings.Join(lacks, ", ")}
		}
		found = append(found, f)
	}
	return found
}

// lacks returns which of the rights the user has not.
func (o checkOptions) lacks(ctx context.Context, needs []authorizationv1.ResourceAttributes) ([]string, error) {
	var lacks []string
	for _, need := range needs {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &need}}
		review, err := o.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		if !review.Status.Allowed {
			what := need.Verb + " " + need.Resource
			if need.Namespace == "" && need.Resource == "pods" {
				what += " in all namespaces"
			}
			lacks = append(lacks, what)
		}
	}
	return lacks, nil
}
