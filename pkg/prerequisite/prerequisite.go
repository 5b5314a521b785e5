// Package prerequisite checks whether a cluster has what the controller needs: the resize
// subresource of pods, and the admission policies that hold rollouts. Without a hold the
// built-in controllers win every race.
package prerequisite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// Cluster is where a controller looks for what it needs.
type Cluster struct {
	Client kubernetes.Interface
	// Namespace that the controller looks after; empty for all. Policies may be bound in some
	// namespaces only: then it must be one of them.
	Namespace string
	// ControllerNamespace, if set, is where the controller is, for somebody who may not read what says so.
	ControllerNamespace string
	// DryRun says that the controller writes nothing. Then it does not matter whom the policies
	// know as the controller.
	DryRun bool
	// Metadata, if set, watches what is installed, so that [Gate.Watch] need not read it all the time.
	Metadata metadata.Interface
	// At, if set, returns a client for the API server at an address, past whatever stands before them.
	At func(address string) (kubernetes.Interface, error)
	// Pod, if set, returns the pod that the controller runs in. What dry runs create looks like it.
	Pod func(ctx context.Context) (*corev1.Pod, error)

	looks    looks    // of what dry runs create
	looked   bool     // they are known
	user     string   // that the client is, once known
	ca       string   // who writes the webhook's CA, by the last check
	versions string   // of what the last check has read
	leftOut  []string // the namespaces in which the webhook is not asked, by the last check
	served   bool     // mutating policies, by the last check
	labels   bool     // of namespaces decided in the last check
	labelled bool     // a binding is of the namespaces with our label, by the last report
	// installed is an object that the last check has found, if it has found any.
	installed metav1.Object
	found     bool
}

// Check returns the way in which the cluster holds rollouts, and an error that names everything
// that is missing, or differs from what this controller was built with, and how to mend it; nil
// if nothing does.
func (c *Cluster) Check(ctx context.Context) (Way, error) {
	way, missing := c.check(ctx, true)
	return way, errors.Join(append([]error{ServesResize(ctx, c.Client)}, missing...)...)
}

// Report says what somebody sees of what rollouts in place need: what they may not see is taken to be there. The controller may be of
// another version, so policies may differ.
type Report struct {
	Way Way
	// Labelled: rollouts are held only in namespaces with a label, for controllers of single namespaces.
	Labelled bool
	// Resize is why pods cannot be resized, Installed what is missing of what holds, and Controller why none is there.
	Resize, Installed, Controller error
	// Unseen is what they may not see, and Attendance why they may not see whether a controller is there.
	Unseen     []error
	Attendance error
}

// Missing returns an error that names everything that is missing. Where edits wait for a controller, none is: they restart nothing.
func (r Report) Missing() error {
	if errors.Is(r.Controller, errWaits) {
		r.Controller = nil
	}
	return errors.Join(r.Resize, r.Installed, r.Controller)
}

// Report returns what is missing, one thing apart from the other.
func (c *Cluster) Report(ctx context.Context) Report {
	r := Report{}
	r.Resize = r.seen(ServesResize(ctx, c.Client))
	way, missing := c.check(ctx, false)
	r.Way, r.Labelled, r.Installed = way, c.labelled, r.seen(missing...)
	known := len(r.Unseen)
	r.Controller = r.seen(c.Absent(ctx))
	r.Attendance = errors.Join(r.Unseen[known:]...)
	return r
}

// seen notes what may not be seen, and returns the rest.
func (r *Report) seen(errs ...error) error {
	var seen []error
	for _, err := range errs {
		if IsUnseen(err) {
			r.Unseen = append(r.Unseen, err)
		} else {
			seen = append(seen, err)
		}
	}
	return errors.Join(seen...)
}

func (c *Cluster) check(ctx context.Context, exact bool) (Way, []error) {
	var missing []error
	way, hook, err := c.way(ctx)
	if err != nil {
		return way, []error{err}
	}
	c.versions, c.leftOut, c.labels, c.found, c.installed = string(way), nil, false, false, nil
	if hook != nil {
		c.ca = whoWritesCA(hook)
		c.read(hook)
	}
	var bound []binding
	known := sets.New[string]() // as the controller
	for _, p := range policiesOf[way] {
		b, users, err := c.checkPolicy(ctx, p, way, exact)
		missing, known = append(missing, err), known.Union(users)
		if b.name != "" {
			bound = append(bound, b)
		}
	}
	if way == Webhook {
		b, users, err := checkWebhook(hook, exact)
		missing, known, bound = append(missing, err), known.Union(users), append(bound, b...)
	}
	c.labelled = !exact && slices.ContainsFunc(bound, func(b binding) bool { return differencePart("", whole(b.where), whole(labelled)) == "" })
	missing = c.summed(way, missing)
	if way == Webhook && exact {
		out, err := c.leaveOut(ctx, hook)
		missing = append(missing, err)
		c.noteLeftOut(out)
	}
	if exact {
		mode := c.checkMode(ctx, bound, known)
		if len(mode) == 0 { // where it is another installation's, so is the name
			mode = c.checkIdentity(ctx, known)
		}
		missing = append(missing, mode...)
	}
	return way, append(missing, c.checkNamespace(ctx, bound)...)
}

// ServesResize returns why pods cannot be resized; nil if they can. It asks API discovery, not the version: versions have suffixes, and
// the feature can be off.
func ServesResize(ctx context.Context, client kubernetes.Interface) error {
	resources, err := discovery.ToDiscoveryInterfaceWithContext(client.Discovery()).ServerResourcesForGroupVersionWithContext(ctx, "v1")
	if err != nil {
		return notServed(fmt.Errorf("asking which resources the API server has: %w", err))
	}
	for _, r := range resources.APIResources {
		if r.Name == "pods/resize" {
			return nil
		}
	}
	return errors.New("the API server does not serve pods/resize: Kubernetes 1.34 or later is needed, with the feature gate InPlacePodVerticalScaling on")
}

// notServed is an error of discovery: an API server that says no has answered.
func notServed(err error) error {
	if apierrors.IsNotFound(err) {
		return err
	}
	return unseen{err}
}

// binding is one that is there, of either kind.
type binding struct {
	kind, name  string
	where, want any                   // matchResources, as from JSON: what it has, and what deploy/ has; nil for everywhere
	selector    *metav1.LabelSelector // of namespaces; nil for all
}

// read notes the version of an object that a check has read.
func (c *Cluster) read(object metav1.Object) {
	c.versions += " " + object.GetResourceVersion()
	c.installed, c.found = object, true
}

// checkPolicy returns the binding of the policy, whom the policy knows as the controller, and an error
// that says what is missing. If exact is set, what is there must be what this controller was built
// with, but for where it is bound, and for the name of the controller.
func (c *Cluster) checkPolicy(ctx context.Context, p policy, way Way, exact bool) (b binding, users sets.Set[string], err error) {
	installed, err := p.get(ctx, c.Client)
	if err != nil {
		return b, nil, absentObject(p.kind, p.name, err)
	}
	bound, resources, err := p.getBinding(ctx, c.Client)
	if err != nil {
		return b, nil, absentObject(p.kind+"Binding", p.name, err)
	}
	c.read(installed)
	c.read(bound)
	spec := specOf(bound)
	if name := spec["policyName"]; name != p.name {
		return b, nil, fmt.Errorf("%sBinding %s binds the policy %q: %s", p.kind, p.name, name, way.howToInstall(bound))
	}
	b = binding{kind: p.kind + "Binding", name: p.name, where: spec["matchResources"], want: p.where}
	if resources != nil {
		b.selector = resources.NamespaceSelector
	}
	if !exact {
		return b, nil, nil
	}
	delete(spec, "matchResources")
	is, users := anonymous(specOf(installed))
	spec, users = anonymousBinding(spec, p.binding, users)
	return b, users, errors.Join(differs(p.kind, p.name, difference("spec", is, p.spec)), differs(b.kind, p.name, difference("spec", spec, p.binding)))
}

// checkMode returns an error if the policies are not bound where this controller looks: in all
// namespaces, or in those with a label. In the other case there is another installation, or was
// one. A controller of the whole cluster may look after one namespace only.
func (c *Cluster) checkMode(ctx context.Context, bound []binding, known sets.Set[string]) []error {
	me := c.whoAmI(ctx)
	own := c.Namespace != "" && strings.HasPrefix(me, "system:serviceaccount:"+c.Namespace+":") && !known.Has(me)
	var missing []error
	other := 0
	for _, b := range bound {
		difference, elsewhere := differencePart("spec.matchResources", whole(b.where), whole(b.want)), differencePart("spec.matchResources", whole(b.where), whole(labelled))
		if own {
			difference, elsewhere = elsewhere, difference
		}
		switch {
		case difference == "":
		case elsewhere != "":
			missing = append(missing, differs(b.kind, b.name, difference))
		case c.Namespace != "" && (c.DryRun || me == ""): // it may be of either
		default:
			other++
		}
	}
	are := "are"
	if other == 1 {
		are = "is"
	}
	switch {
	case other > 0 && own:
		return append(missing, fmt.Errorf("%d of the policies' bindings %s for all namespaces: they were installed from deploy/, for one controller of the whole cluster. "+
			"Uninstall either this controller or that installation, and then `kubectl apply -k deploy/overlays/one-namespace/cluster`", other, are))
	case other > 0:
		return append(missing, fmt.Errorf("%d of the policies' bindings %s for namespaces with the label %s only: they were installed from deploy/overlays/one-namespace/cluster, "+
			"for controllers of single namespaces. Uninstall these, and then `kubectl apply -k deploy/`", other, are, api.InstalledLabel))
	}
	return missing
}

// checkIdentity returns an error if the policies do not know this controller: to them, its writes
// are a user's.
func (c *Cluster) checkIdentity(ctx context.Context, known sets.Set[string]) []error {
	me := c.whoAmI(ctx)
	if c.DryRun || me == "" {
		return nil
	}
	var missing []error
	for _, user := range sets.List(known) {
		if user = strings.ReplaceAll(user, requestNamespace, c.Namespace); user != me {
			missing = append(missing, fmt.Errorf("the policies are installed for the controller %s, but this one is %s. Install them for its ServiceAccount, "+
				"with the chart or with deploy/components/identity (docs/install.md)", user, me))
		}
	}
	return missing
}

// whoAmI returns the name of the user that the client is; "" where it may not ask.
func (c *Cluster) whoAmI(ctx context.Context) string {
	if c.user == "" {
		review, err := c.Client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return ""
		}
		c.user = review.Status.UserInfo.Username
	}
	return c.user
}

func differs(kind, name, difference string) error {
	if difference == "" {
		return nil
	}
	return fmt.Errorf("%s %s is not the one of this version of the controller: they differ in %s", kind, name, difference)
}

// checkNamespace returns an error for each of the bindings that leaves out the controller's only namespace.
func (c *Cluster) checkNamespace(ctx context.Context, bound []binding) []error {
	bound = slices.DeleteFunc(bound, func(b binding) bool { return b.selector == nil })
	if c.Namespace == "" || len(bound) == 0 {
		return nil
	}
	c.labels = true
	ns, err := c.Client.CoreV1().Namespaces().Get(ctx, c.Namespace, metav1.GetOptions{})
	if err != nil {
		return []error{unseen{fmt.Errorf("reading the labels of namespace %s: %w", c.Namespace, err)}}
	}
	var missing []error
	for _, b := range bound {
		selector, err := metav1.LabelSelectorAsSelector(b.selector)
		if err != nil {
			missing = append(missing, fmt.Errorf("reading %s %s: %w", b.kind, b.name, err))
		} else if !selector.Matches(labels.Set(ns.Labels)) {
			missing = append(missing, fmt.Errorf("%s %s leaves out namespace %s: label the namespace with %s", b.kind, b.name, c.Namespace, selector))
		}
	}
	return missing
}

// absentObject is what is said of an object that cannot be read.
func absentObject(kind, name string, err error) error {
	if apierrors.IsNotFound(err) {
		return gone(kind + " " + name)
	}
	return unseen{fmt.Errorf("reading %s %s: %w", kind, name, err)}
}

// gone is an object that is not there.
type gone string

func (g gone) Error() string { return string(g) + " is missing" }

// errNotInstalled is that there is nothing of all that is looked for.
var errNotInstalled = errors.New("inplace-rollout is not installed")

// IsNotInstalled reports whether an error says that.
func IsNotInstalled(err error) bool { return errors.Is(err, errNotInstalled) }

// summed says all that is gone in one line.
func (c *Cluster) summed(way Way, errs []error) []error {
	var said []error
	var names []string
	for _, err := range errs {
		if g, is := errors.AsType[gone](err); is {
			names = append(names, string(g))
		} else if err != nil {
			said = append(said, err)
		}
	}
	switch {
	case len(names) == 0:
		return said
	case !c.found:
		return append([]error{fmt.Errorf("%w: nothing in the cluster holds edits. Install it with Helm or kubectl, as docs/install.md says", errNotInstalled)}, said...)
	case len(names) == 1:
		return append([]error{fmt.Errorf("%s is missing: %s", names[0], way.howToInstall(c.installed))}, said...)
	}
	return append([]error{fmt.Errorf("%s are missing: %s", strings.Join(names, ", "), way.howToInstall(c.installed))}, said...)
}
