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
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/initialresources"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/pkg/version"
)

// checkOptions are the arguments of the check command.
type checkOptions struct {
	*cluster
	output              cli.Format
	pre, wait           bool
	timeout             time.Duration
	controllerNamespace string
}

const checkName = "check"

func newCheckCommand() *cobra.Command {
	o := checkOptions{cluster: newCluster()}
	cmd := &cobra.Command{
		Use:   checkName,
		Short: "Check whether edits are rolled out in place in a namespace, and what you can do there",
		Long: `Check whether edits are rolled out in place in a namespace, and what you can do there.

The first line is the answer: yes, no or unknown. If you can edit all kinds of workloads there,
dry runs of edits show it. Otherwise the controller's heartbeat does, which all users can read,
unless the installation does not publish it, if you can see that there is such a namespace,
or what is in it. Nothing is written. A controller that was killed counts as ready for up
to 45 s. Whether it has kept its right to resize pods, only administrators see: those who
can create SubjectAccessReviews.
The other lines are details: ✓ is fine, ✗ is not, ? could not be checked with your permissions,
and - is a note.

With --pre, the question is whether this cluster is ready for the installation; it lists what
would be installed.

The exit code is 0 for yes, 1 for no, and 2 for unknown, also if the cluster does not answer,
or a flag is wrong.`,
		Example: `  # Is this namespace ready?
  inplace-rollout check

  # Before a pipeline goes on
  inplace-rollout check --wait --timeout=5m

  # Before the installation
  inplace-rollout check --pre`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			rest.SetDefaultWarningHandler(rest.NoWarnings{}) // they are about the workloads of the dry runs
			ctx, cancel := o.within(cmd.Context(), o.timeout)
			defer cancel()
			if err := o.connect(); err != nil {
				return err
			}
			return o.run(ctx, cmd.OutOrStdout())
		},
	}
	o.output.AddDocumentFlag(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.pre, "pre", false, "check whether the cluster is ready for the installation")
	f.BoolVar(&o.wait, "wait", false, "wait until the answer is yes")
	f.DurationVar(&o.timeout, "timeout", 0, "with --wait: how long to wait at most; 0 waits for as long as it takes")
	f.StringVar(&o.controllerNamespace, "controller-namespace", "", "namespace of the controller; empty means the one that the policies name, or inplace-rollout if you cannot read them")
	o.flags.AddFlags(cmd.PersistentFlags())
	o.completeFlags(cmd)
	return cmd
}

func (o checkOptions) validate() error {
	switch {
	case o.timeout != 0 && !o.wait:
		return errors.New("--timeout goes with --wait")
	case o.timeout < 0:
		return fmt.Errorf("--timeout is %s: want 0 or more", o.timeout)
	}
	return o.output.ValidateDocument()
}

// checkKind is the kind of the report as a document.
const checkKind = "Check"

// checkReport is what the check command has found out.
type checkReport struct {
	metav1.TypeMeta `json:",inline"`
	Namespace       string    `json:"namespace"`
	Verdict         verdict   `json:"verdict"`
	Message         string    `json:"message"` // the verdict as a sentence
	Findings        []finding `json:"findings"`

	reason int // index of the finding that the message repeats, or -1
}

// verdict is the answer to the question.
type verdict string

// The verdicts.
const (
	yes      verdict = "Yes"
	no       verdict = "No"
	notKnown verdict = "Unknown"
)

// verdictCodes are what check ends with.
var verdictCodes = map[verdict]cli.ExitCode{no: cli.No, notKnown: cli.Unknown}

// finding is what was found out about one thing.
type finding struct {
	Name    string  `json:"name"`
	Outcome outcome `json:"outcome"`
	Message string  `json:"message"`
}

func (f finding) lines() []string { return strings.Split(f.Message, "\n") }

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

// checkInterval is how often check --wait looks.
const checkInterval = 2 * time.Second

func (o checkOptions) run(ctx context.Context, out io.Writer) error {
	look := o.look
	if o.pre {
		look = o.before
	}
	r := o.until(ctx, look)
	if err := r.print(out, o.output); err != nil {
		return err
	}
	if code := verdictCodes[r.Verdict]; code != 0 {
		return code
	}
	return nil
}

// until looks once, or again and again until the answer is yes or the time is over.
func (o checkOptions) until(ctx context.Context, look func(context.Context) checkReport) checkReport {
	r := look(ctx)
	for o.wait && r.Verdict != yes {
		select {
		case <-ctx.Done():
			return r
		case <-time.After(checkInterval):
		}
		if next := look(ctx); ctx.Err() == nil || next.Verdict == yes {
			r = next
		}
	}
	return r
}

// concluded gives the verdict on a sentence, by findings that decide it and others, which only tell more.
func (r checkReport) concluded(is, isNot, whether string, deciding []finding, others ...finding) checkReport {
	r.TypeMeta, r.Findings, r.reason = cli.Type(checkKind), slices.Concat(deciding, others), -1
	first := func(of outcome) bool {
		r.reason = slices.IndexFunc(deciding, func(f finding) bool { return f.Outcome == of })
		return r.reason >= 0
	}
	switch {
	case first(failed):
		r.Verdict, r.Message = no, isNot
	case first(unknown):
		r.Verdict, r.Message = notKnown, "it is unknown whether "+whether
	default:
		r.Verdict, r.Message = yes, is
	}
	if r.reason >= 0 {
		lines := deciding[r.reason].lines()
		r.Message += ": " + lines[0]
		if len(lines) > 1 { // the sentence has not all of it
			r.reason = -1
		}
	}
	return r
}

func (r checkReport) print(out io.Writer, format cli.Format) error {
	if format.ForMachines() {
		return cli.Encode(out, format, r)
	}
	page := cli.PageOf(out)
	if err := page.Text(string(r.Verdict) + ": " + r.Message); err != nil {
		return err
	}
	for n, f := range r.Findings {
		if n == r.reason {
			continue
		}
		for i, line := range f.lines() {
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
	return nil
}

// look checks one thing after the other.
func (o checkOptions) look(ctx context.Context) checkReport {
	conclude := func(deciding []finding, others ...finding) checkReport {
		edits := "edits in namespace " + o.namespace + " are "
		return checkReport{Namespace: o.namespace}.concluded(edits+"rolled out in place", edits+"not rolled out in place", edits+"rolled out in place", deciding, others...)
	}
	c := &prerequisite.Cluster{Client: o.client, Namespace: o.namespace, ControllerNamespace: o.controllerNamespace}
	server, answers := o.apiServer(ctx)
	if !answers {
		return conclude([]finding{server})
	}
	if err := c.Misplaced(ctx); err != nil {
		return conclude([]finding{{"Controller", unknown, err.Error()}})
	}
	report, proof := c.Report(ctx), c.Proof(ctx, o.namespace)
	namespace := finding{"Namespace", failed, ""}
	if err := c.NamespaceThere(ctx, o.namespace, proof); err != nil {
		namespace.Message = err.Error()
		if !prerequisite.IsUnseen(err) {
			return conclude([]finding{namespace})
		}
		namespace.Outcome = unknown
	}
	hold, controller := o.held(report, proof), attended(report, proof)
	if controller.Outcome == passed {
		if err := c.MayResize(ctx); err != nil && !prerequisite.IsUnseen(err) {
			controller = finding{controller.Name, failed, err.Error()}
		}
	}
	if hold.Outcome == failed && (prerequisite.IsNotInstalled(report.Installed) || prerequisite.IsNotBegun(report.Controller) || report.Attendance != nil) {
		return conclude([]finding{hold}) // of the rest there is nothing
	}
	deciding := []finding{server}
	if hold.Message != "" {
		deciding = append(deciding, hold)
	}
	deciding = append(deciding, controller)
	if namespace.Message != "" {
		deciding = append(deciding, namespace)
	}
	return conclude(deciding, slices.Concat(o.former(ctx), o.versions(ctx), []finding{o.leftOut(ctx, report.Labelled)}, o.estimates(ctx), o.rights(ctx, controller.Outcome != failed))...)
}

// apiServer says whether it can resize pods, and whether it answers at all.
func (o checkOptions) apiServer(ctx context.Context) (f finding, answers bool) {
	const name = "API server"
	info, err := discovery.ToDiscoveryInterfaceWithContext(o.client.Discovery()).ServerVersionWithContext(ctx)
	if err != nil {
		return finding{name, unknown, "the API server does not say its version: " + err.Error()}, false
	}
	resize := prerequisite.ServesResize(ctx, o.client)
	switch {
	case prerequisite.IsUnseen(resize):
		return finding{name, unknown, resize.Error()}, true
	case resize != nil:
		return finding{name, failed, resize.Error()}, true
	}
	return finding{name, passed, info.GitVersion + " serves pods/resize"}, true
}

// nameOfHold is what the line about what holds edits is called.
const nameOfHold = "Hold"

// shown is what dry runs of edits have shown: of which kinds edits are not held, of which that is unclear, and of which no controller is seen.
type shown struct {
	not, unclear, absent []string
	why, unseen          string
	forbids              bool // what is unclear is so for want of rights or of an answer, or because a policy refuses the dry run
}

func showing(proof map[string]error) shown {
	s := shown{forbids: true}
	for _, kind := range prerequisite.HeldKinds {
		switch err := proof[kind]; {
		case err == nil:
		case prerequisite.IsAbsent(err):
			s.absent = append(s.absent, kind)
		case prerequisite.IsUnseen(err):
			s.unclear, s.unseen = append(s.unclear, kind+"s"), cmp.Or(s.unseen, err.Error())
			s.forbids = s.forbids && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || errors.Is(err, prerequisite.ErrUnsaid))
		default:
			s.not, s.why = append(s.not, kind+"s"), cmp.Or(s.why, err.Error())
		}
	}
	return s
}

// held says whether edits meet what holds them: by dry runs, or by what the controller says of its own. It says nothing where they do, and
// no controller is there.
func (o checkOptions) held(r prerequisite.Report, proof map[string]error) finding {
	s := showing(proof)
	by := map[prerequisite.Way]string{
		prerequisite.Policy: ", by MutatingAdmissionPolicies", prerequisite.Webhook: ", by MutatingWebhookConfiguration " + prerequisite.WebhookConfiguration,
	}[r.Way]
	switch {
	case r.Installed != nil:
		return finding{nameOfHold, failed, r.Installed.Error()}
	case len(s.not) == len(prerequisite.HeldKinds) && prerequisite.IsNotBegun(r.Controller):
		return finding{nameOfHold, failed, r.Controller.Error()}
	case len(s.not) == len(prerequisite.HeldKinds) && r.Attendance != nil:
		return finding{nameOfHold, failed, "nothing holds edits, as a dry run shows: inplace-rollout is not installed for this namespace, or no controller has begun yet"}
	case len(s.not) > 0:
		return finding{nameOfHold, failed, fmt.Sprintf("edits of %s are not held: %s", strings.Join(s.not, ", "), s.why)}
	case len(s.absent) > 0:
		return finding{} // see attended
	case len(s.unclear) == 0:
		return finding{nameOfHold, passed, "edits are held" + by + ", as a dry run shows"}
	case r.Controller == nil && r.Attendance == nil && s.forbids:
		return finding{nameOfHold, passed, "edits are held" + by + ", as the controller finds by its own dry runs"}
	}
	return finding{nameOfHold, unknown, fmt.Sprintf("you could make no dry run of an edit of %s: %s", strings.Join(s.unclear, ", "), s.unseen)}
}

// attended says whether a controller is there: what holds knows it best.
func attended(r prerequisite.Report, proof map[string]error) finding {
	const name, ready = "Controller", "a controller is ready"
	for _, kind := range prerequisite.HeldKinds {
		if err := proof[kind]; prerequisite.IsAbsent(err) {
			return finding{name, failed, err.Error() + ". A dry run of an edit has found no controller"}
		}
	}
	shown := slices.ContainsFunc(prerequisite.HeldKinds, func(kind string) bool { return proof[kind] == nil })
	switch {
	case shown:
	case r.Controller != nil:
		return finding{name, failed, r.Controller.Error()}
	case r.Attendance != nil:
		return finding{name, unknown, "whether a controller is ready could not be seen: " + r.Attendance.Error()}
	}
	return finding{name, passed, ready}
}

// former says what of the version before can go: the bindings that an upgrade has left. Their policies match nothing any more, and this
// version installs them so.
func (o checkOptions) former(ctx context.Context) []finding {
	var left []string
	note := func(resource, name, policy string, former []string) {
		if slices.Contains(former, policy) {
			left = append(left, resource+"/"+name)
		}
	}
	bindings := o.client.AdmissionregistrationV1() // where they are not served, or not for this user's eyes, nothing is known
	if mutating, err := bindings.MutatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{}); err == nil {
		for _, b := range mutating.Items {
			note("mutatingadmissionpolicybinding", b.Name, b.Spec.PolicyName, prerequisite.FormerMutatingPolicies())
		}
	}
	if validating, err := bindings.ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{}); err == nil {
		for _, b := range validating.Items {
			note("validatingadmissionpolicybinding", b.Name, b.Spec.PolicyName, prerequisite.FormerValidatingPolicies())
		}
	}
	if len(left) == 0 {
		return nil
	}
	return []finding{{"Upgrade", noted, "the upgrade has left bindings of the version before, which do nothing: kubectl delete " + strings.Join(left, " ")}}
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
		return []finding{{name, noted, "this program is " + mine + "; that of the controller is unknown: none has a Lease"}}
	}
	var found []finding
	for _, c := range controllers {
		f := finding{name, passed, "the controller in " + c.Namespace + ": " + c.leads()}
		if c.Version != mine {
			f.Message += "; this program: " + mine
		}
		if c.Version != mine || c.Absent {
			f.Outcome = noted
		}
		found = append(found, f)
	}
	return found
}

// leftOut says in which namespaces nothing is held. Labelled: that is so in all without a label.
func (o checkOptions) leftOut(ctx context.Context, labelled bool) finding {
	const name = "Namespaces"
	out, err := (&prerequisite.Cluster{Client: o.client}).LeftOut(ctx)
	switch {
	case err != nil:
		return finding{name, unknown, "it is unknown whether any is excluded: " + err.Error()}
	case len(out) > 0:
		return finding{name, noted, "edits are not held in " + list(out, many) + ", because of the namespaceSelector of the webhooks"}
	case labelled:
		return finding{name, noted, "edits are held only in those with the label " + api.InstalledLabel}
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
	now, noTime := (&prerequisite.Cluster{Client: o.client}).Now(ctx)
	if err = cmp.Or(err, noTime); err != nil {
		return []finding{{name, unknown, "it is unknown whether an estimator is running: " + err.Error()}}
	}
	for _, lease := range leases.Items {
		if ptr.Deref(lease.Spec.HolderIdentity, "") != "" && lease.Spec.RenewTime != nil && now.Sub(lease.Spec.RenewTime.Time) < time.Minute {
			return []finding{{name, passed, "an estimator is running"}}
		}
	}
	return []finding{{name, noted, "no estimator is running: new pods get the last estimates"}}
}

// right is what a user may need for something.
type right struct {
	what  string
	needs func(k *kind) []authorizationv1.ResourceAttributes // to do it to a kind of workloads
	but   string                                             // what may be in the way all the same
}

// rightsIn are what the commands need in a namespace. Without a controller, nothing is retried.
func rightsIn(namespace string, retries bool) []right {
	of := func(verb, resource string) authorizationv1.ResourceAttributes {
		return authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: appsv1.GroupName, Resource: resource}
	}
	pods := authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "pods"}
	writes := "opt in and edit"
	if retries {
		writes = "opt in, edit and retry"
	}
	reads := func(verb string) func(k *kind) []authorizationv1.ResourceAttributes {
		return func(k *kind) []authorizationv1.ResourceAttributes {
			return []authorizationv1.ResourceAttributes{of(verb, k.resource), of("list", k.history), pods}
		}
	}
	return []right{
		{what: "see the progress of rollouts, with status", needs: reads("list")},
		{what: "preview rollouts, with plan", needs: reads("get")},
		{what: "preview whether nodes have room for pods without volumes", needs: func(*kind) []authorizationv1.ResourceAttributes {
			return []authorizationv1.ResourceAttributes{{Verb: "list", Resource: "nodes"}, {Verb: "list", Resource: "pods"}}
		}},
		{what: writes, but: ", unless a policy forbids it", needs: func(k *kind) []authorizationv1.ResourceAttributes {
			return []authorizationv1.ResourceAttributes{of("patch", k.resource)}
		}},
		{what: "undo", but: ", unless a policy forbids it", needs: func(k *kind) []authorizationv1.ResourceAttributes {
			return append(reads("get")(k), of("patch", k.resource))
		}},
		{what: "release", but: ", unless a policy forbids it", needs: func(k *kind) []authorizationv1.ResourceAttributes {
			needs := append(reads("get")(k), of("patch", k.resource))
			if k == deployments { // whose pods may have to go back to their ReplicaSets
				needs = append(needs, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "patch", Resource: "pods"})
			}
			return needs
		}},
	}
}

// rights says what the user may do, and to which kinds of workloads, if not to all.
func (o checkOptions) rights(ctx context.Context, retries bool) []finding {
	var found []finding
	known := map[authorizationv1.ResourceAttributes]bool{}
	for _, r := range rightsIn(o.namespace, retries) {
		var can, cannot, lacks []string
		err := error(nil)
		for _, k := range kinds {
			of, failed := o.lacks(ctx, r.needs(k), known)
			if err = cmp.Or(err, failed); len(of) > 0 {
				cannot, lacks = append(cannot, k.name+"s"), rollout.Joined(lacks, of)
			} else {
				can = append(can, k.name+"s")
			}
		}
		switch {
		case err != nil:
			found = append(found, finding{"You", unknown, "it is unknown whether you can " + r.what + ": " + err.Error()})
		case len(lacks) == 0:
			found = append(found, finding{"You can", passed, r.what + r.but})
		case len(can) == 0:
			found = append(found, finding{"You cannot", noted, r.what + ": you lack " + strings.Join(lacks, ", ")})
		default:
			found = append(found, finding{"You can", passed, r.what + ", of " + strings.Join(can, " and ") + r.but},
				finding{"You cannot", noted, r.what + ", of " + strings.Join(cannot, " and ") + ": you lack " + strings.Join(lacks, ", ")})
		}
	}
	return found
}

// lacks returns which of the rights the user has not. Known are the answers so far.
func (o checkOptions) lacks(ctx context.Context, needs []authorizationv1.ResourceAttributes, known map[authorizationv1.ResourceAttributes]bool) ([]string, error) {
	var lacks []string
	for _, need := range needs {
		allowed, asked := known[need]
		if !asked {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &need}}
			review, err := o.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				return nil, err
			}
			allowed = review.Status.Allowed
			known[need] = allowed
		}
		if !allowed {
			what := need.Verb + " " + need.Resource
			if need.Namespace == "" && need.Resource == "pods" {
				what += " in all namespaces"
			}
			lacks = append(lacks, what)
		}
	}
	return lacks, nil
}
