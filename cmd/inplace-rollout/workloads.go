package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/deployment"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/podchecks"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
)

// cluster is what the commands for people read and write, with kubectl's own flags.
type cluster struct {
	flags     *genericclioptions.ConfigFlags
	client    kubernetes.Interface
	objects   dynamic.Interface
	namespace string
	clock     clock.PassiveClock

	// What has been read of namespaces.
	reports memo[prerequisite.Report]
	says    memo[told]
}

// memo keeps what has been read, by namespace.
type memo[V any] map[string]V

func (m *memo[V]) get(namespace string, read func() V) V {
	if v, kept := (*m)[namespace]; kept {
		return v
	}
	if *m == nil {
		*m = memo[V]{}
	}
	(*m)[namespace] = read()
	return (*m)[namespace]
}

func newCluster() *cluster {
	return &cluster{flags: genericclioptions.NewConfigFlags(true), clock: clock.RealClock{}}
}

// connect makes the clients.
func (c *cluster) connect() error {
	config, err := cli.RESTConfig(c.flags)
	if err != nil {
		return err
	}
	if c.client, c.objects, err = cli.NewClients(config); err != nil {
		return err
	}
	if c.namespace, _, err = c.flags.ToRawKubeConfigLoader().Namespace(); err != nil {
		return fmt.Errorf("reading the namespace from the kubeconfig: %w", err)
	}
	return nil
}

// within bounds all that a command does by its --timeout, also requests of libraries that take no context; 0 is no bound.
func (c *cluster) within(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return context.WithCancel(ctx)
	}
	if *c.flags.Timeout == "0" {
		*c.flags.Timeout = timeout.String()
	}
	return context.WithTimeout(ctx, timeout)
}

// warn prints what in-place rollouts need and a namespace lacks, or the cluster if it is
// empty, as far as the user may see that.
func (c *cluster) warn(ctx context.Context, warnings io.Writer, namespace string) error {
	there := c.reportOf(ctx, namespace)
	what, err := "pods are not resized in place", there.Missing()
	if err == nil && there.Controller != nil {
		what, err = "rollouts wait", there.Controller
	}
	if err != nil {
		_, err = fmt.Fprintf(warnings, "Warning: %s, because\n%s\n", what, err)
	}
	return err
}

// reportOf returns what in-place rollouts need and a namespace has, or the cluster if it is empty, as far as the user may see that.
func (c *cluster) reportOf(ctx context.Context, namespace string) prerequisite.Report {
	return c.reports.get(namespace, func() prerequisite.Report {
		return (&prerequisite.Cluster{Client: c.client, Namespace: namespace}).Report(ctx)
	})
}

// hasController reports whether all is there that in-place rollouts in a namespace need, and a controller, as far as the user may see that.
func (c *cluster) hasController(ctx context.Context, namespace string) bool {
	there := c.reportOf(ctx, namespace)
	return cmp.Or(there.Installed, there.Controller) == nil
}

// told is what the controller of a namespace says beside its heartbeat, as far as the user may see it.
type told struct {
	defaults policy.Defaults
	// unanswerable is why checks of these names can have no outcome; empty if they can, and where that is not known.
	unanswerable func(names []string) string
}

func (c *cluster) told(ctx context.Context, namespace string) told {
	return c.says.get(namespace, func() told {
		says := (&prerequisite.Cluster{Client: c.client, Namespace: namespace}).Told(ctx)
		is := told{defaults: policy.ReadDefaults(says[api.DefaultsAnnotation]), unanswerable: func([]string) string { return "" }}
		if checks, known := says[api.ChecksAnnotation]; known {
			there := strings.FieldsFunc(checks, func(r rune) bool { return r == ',' })
			is.unanswerable = podchecks.UnanswerableBy(there, is.defaults.UnknownChecksPass)
		}
		return is
	})
}

// warnOfUnowned lists the detached pods of a namespace, or of all if it is empty, that nothing owns, as far as the user may
// see pods.
func (c *cluster) warnOfUnowned(ctx context.Context, warnings io.Writer, namespace string) error {
	list, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: api.DetachedLabel})
	if err != nil {
		return nil //nolint:nilerr // who may not see pods is told so with the workloads
	}
	for i := range list.Items {
		pod := &list.Items[i]
		if metav1.GetControllerOfNoCopy(pod) != nil || judge.Gone(pod) {
			continue
		}
		if _, err := fmt.Fprintf(warnings, "Warning: pod/%s (namespace %s): %s\n", pod.Name, pod.Namespace, deployment.Unowned); err != nil {
			return err
		}
	}
	return nil
}

// named finds one workload, named as kubectl names it: sts/web, deployment web.
func (c *cluster) named(args []string) (*unstructured.Unstructured, error) {
	if len(args) == 1 && !strings.Contains(args[0], "/") {
		return nil, fmt.Errorf("%q is not a workload: want TYPE/NAME, such as sts/web", args[0])
	}
	result := resource.NewBuilder(c.flags).Unstructured().NamespaceParam(c.namespace).DefaultNamespace().
		ResourceTypeOrNameArgs(false, args...).SingleResourceType().Latest().Flatten().Do()
	infos, err := result.Infos()
	if err != nil {
		return nil, explain(err)
	}
	if len(infos) != 1 {
		return nil, fmt.Errorf("%s names %d objects: want one %s, such as sts/web", strings.Join(args, " "), len(infos), anyKind)
	}
	u, ok := infos[0].Object.(*unstructured.Unstructured)
	if !ok || kindOf(u) == nil {
		return nil, fmt.Errorf("%s cannot be rolled out in place: want a %s, such as sts/web", strings.Join(args, " "), anyKind)
	}
	return u, nil
}

// fromFiles reads the workloads in files, folders or a kustomization; - is the standard input.
func (c *cluster) fromFiles(files resource.FilenameOptions) ([]*unstructured.Unstructured, error) {
	where := cmp.Or(files.Kustomize, strings.Join(files.Filenames, ", "))
	infos, err := resource.NewLocalBuilder().Unstructured().ContinueOnError().FilenameParam(false, &files).Flatten().Do().Infos()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", where, err)
	}
	var found []*unstructured.Unstructured
	for _, info := range infos {
		if u, ok := info.Object.(*unstructured.Unstructured); ok && kindOf(u) != nil {
			if u.GetNamespace() == "" {
				u.SetNamespace(c.namespace)
			}
			found = append(found, u)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s has no %s of apps/v1", where, anyKind)
	}
	return found, nil
}

// get reads the workload that has the kind and name of u.
func (c *cluster) get(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return c.resource(u).Get(ctx, u.GetName(), metav1.GetOptions{})
}

// scope is the namespace that is asked about; empty for all.
func (c *cluster) scope(all bool) string {
	if all {
		return metav1.NamespaceAll
	}
	return c.namespace
}

// optedIn lists the opted-in workloads of a namespace, or of all, that the selector selects.
func (c *cluster) optedIn(ctx context.Context, namespace, selector string) ([]*unstructured.Unstructured, error) {
	selected := labels.Set{api.EnabledLabel: "true"}.String()
	if selector != "" {
		selected += "," + selector
	}
	return c.list(ctx, namespace, selected)
}

// list lists those that the selector selects, opted in or not.
func (c *cluster) list(ctx context.Context, namespace, selector string) ([]*unstructured.Unstructured, error) {
	var found []*unstructured.Unstructured
	for _, k := range kinds {
		list, err := c.objects.Resource(k.gvr()).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return nil, explain(err)
		}
		for i := range list.Items {
			found = append(found, &list.Items[i])
		}
	}
	return found, nil
}

// validSelector checks the flag --selector.
func validSelector(selector string) error {
	if _, err := labels.Parse(selector); err != nil {
		return fmt.Errorf("--selector is %q: %w", selector, err)
	}
	return nil
}

// forecast returns what a rollout to after does to its pods.
func (c *cluster) forecast(ctx context.Context, q capacity.Question, after *unstructured.Unstructured) (rollout.WorkloadForecast, error) {
	forecast, err := kindOf(after).forecast(ctx, c, q, after)
	return forecast, explain(err)
}

// resource is where workloads of the kind of u are read and written.
func (c *cluster) resource(u *unstructured.Unstructured) dynamic.ResourceInterface {
	return c.objects.Resource(kindOf(u).gvr()).Namespace(u.GetNamespace())
}

// explain says what to do about an error of reading where the API server's own words do not.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w\nYou need get and list for %s, and list for replicasets and controllerrevisions (apps) and for pods", err, everyResource)
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%w: want a %s, such as sts/web", err, anyKind)
	default:
		return err
	}
}

// codeOf is the code of an answer of the API server that is an error; 0 if there was no answer.
func codeOf(err error) int32 {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	return status.Status().Code
}

// nameOf is how kubectl prints a workload: statefulset.apps/web.
func nameOf(u *unstructured.Unstructured) string {
	return strings.ToLower(u.GetKind()) + ".apps/" + u.GetName()
}

// exitCode is what a command that returned err ends with.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if code, printed := errors.AsType[cli.ExitCode](err); printed {
		return int(code)
	}
	return int(cli.Failed)
}

// unlessEdited writes a workload, again on a conflict: its status and annotations may have changed meanwhile, but not its spec. (A
// Deployment's generation is no measure of that: its annotations count, too; pkg/registry/apps/deployment/strategy.go of Kubernetes.)
func (c *cluster) unlessEdited(ctx context.Context, u *unstructured.Unstructured, write func(*unstructured.Unstructured) error) error {
	// A controller that has just seen a write makes some of its own. So what there is now is read right before the next try.
	again := false
	return retry.RetryOnConflict(wait.Backoff{Steps: 8, Duration: 20 * time.Millisecond, Factor: 2, Jitter: 0.1}, func() error {
		if again {
			newest, err := c.get(ctx, u)
			if err == nil && newest.GetUID() == u.GetUID() && equality.Semantic.DeepEqual(newest.Object["spec"], u.Object["spec"]) {
				u = newest
			}
		}
		again = true
		return write(u)
	})
}

// patch merges fields into a workload, in the name of a field manager; with metav1.DryRunAll only for show.
func (c *cluster) patch(ctx context.Context, u *unstructured.Unstructured, fields map[string]any, manager string, dryRun ...string) (*unstructured.Unstructured, error) {
	patch, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encoding the patch: %w", err)
	}
	return c.resource(u).Patch(ctx, u.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager, DryRun: dryRun})
}
