package initialresources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/initialresources/history"
)

// boundsTimeout is how long the cluster is asked for what LimitRanges and nodes allow.
const boundsTimeout = 10 * time.Second

// estimateOptions are the arguments of the estimate command.
type estimateOptions struct {
	cluster   genericclioptions.RESTClientGetter
	client    kubernetes.Interface
	namespace string
	usage     usageOptions
	file      string
	output    cli.Format
	patch     bool
	policy    string
	read      func(context.Context, history.Options) (estimate.Source, error)
	now       func() time.Time
}

// NewEstimateCommand returns the command that shows estimates, as far as it may with what a cluster says.
func NewEstimateCommand(cluster genericclioptions.RESTClientGetter) *cobra.Command {
	o := &estimateOptions{cluster: cluster, usage: newUsageOptions(), read: readHistory, now: time.Now}
	return o.command()
}

func (o *estimateOptions) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "estimate (-f FILE | IMAGE…)",
		Short: "Show what containers would request, from the usage of others with the same image",
		Long: `Show what containers would request, from the usage of others with the same image.

It shows the estimates of cpu and memory for each container in the manifest, or for each
image, with the number of samples and their distribution from the least to the greatest;
-o wide draws that as bars. Only a container that has neither a request nor a limit of a
resource would get the estimate. For others it is shown beside what they have. The
annotation inplace-rollout.io/initial-resources of the pod template changes that if it is
always or never, and --policy overrides it. A DaemonSet gets it only with one of these, or
with the label of that name in its pod template.

The estimate is kept within the container's limit, the LimitRanges of its namespace and the
largest node, if you can list those. Quotas and the free room of nodes are ignored. Nothing
is written.

With --patch, a strategic merge patch is printed for each workload of the manifest that
would get an estimate: for kustomize, or one by one for 'kubectl patch --patch-file'.

The exit code is 1 if there is no estimate for a container that would get one. The other
estimates are printed all the same.`,
		Example: `  # What would the containers of this manifest get?
  inplace-rollout estimate -f web.yaml --prometheus-url=http://localhost:9090

  # What do these use, in all namespaces?
  inplace-rollout estimate nginx:1.25 redis --cluster-wide --prometheus-url=http://localhost:9090

  # Write it into the manifest
  inplace-rollout estimate -f web.yaml --patch --prometheus-url=http://localhost:9090 > requests.yaml`,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(args); err != nil {
				return err
			}
			var err error
			if o.namespace, _, err = o.cluster.ToRawKubeConfigLoader().Namespace(); err != nil {
				return fmt.Errorf("reading the namespace from the kubeconfig: %w", err)
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args, o.connect())
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.file, "filename", "f", "", "manifest with workloads or pods; - reads the standard input")
	o.output.AddFlag(cmd, "with bars")
	f.BoolVar(&o.patch, "patch", false, "print patches that write the estimates into the manifest")
	f.StringVar(&o.policy, "policy", "", "always, if-not-set or never; empty means what the pod's annotation says, or if-not-set")
	o.usage.addFlags(cmd)
	cli.CompleteFlag(cmd, "policy", cobra.FixedCompletions(initialPolicies, cobra.ShellCompDirectiveNoFileComp))
	cli.CompleteFlag(cmd, "filename", cobra.FixedCompletions([]cobra.Completion{"json", "yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt))
	return cmd
}

func (o *estimateOptions) connect() error {
	config, err := cli.RESTConfig(o.cluster)
	if err != nil {
		return err
	}
	if o.client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return nil
}

func (o *estimateOptions) validate(args []string) error {
	switch {
	case (o.file == "") == (len(args) == 0):
		return errors.New("want either images, such as nginx:1.25, or -f FILE")
	case o.patch && o.file == "":
		return errors.New("--patch goes with -f FILE: an image has no manifest")
	case o.patch && o.output == cli.Wide:
		return errors.New("--patch prints yaml or json: remove -o wide")
	case o.policy != "" && !slices.Contains(initialPolicies, o.policy):
		return fmt.Errorf("--policy is %q: want %s", o.policy, strings.Join(initialPolicies, ", "))
	}
	if err := o.output.Validate(); err != nil {
		return err
	}
	return o.usage.complete()
}

// readHistory reads what the options say once. If only some of it cannot be read, there is both: what
// was read, and an error.
func readHistory(ctx context.Context, options history.Options) (estimate.Source, error) {
	store, err := history.New(options)
	if err != nil {
		return nil, err
	}
	if err = store.Refresh(ctx, time.Now()); err != nil && !store.Tried() {
		return nil, err
	}
	return store, err
}

// run does it. Without a cluster, which cannot be asked for the reason given, it is only not
// known what that allows.
func (o *estimateOptions) run(ctx context.Context, out, warnings io.Writer, args []string, noCluster error) error {
	subjects, err := o.subjects(args)
	if err != nil {
		return err
	}
	namespaces := sets.New[string]()
	for _, s := range subjects {
		namespaces.Insert(s.namespace)
	}
	options := o.usage.history
	options.Images = imagesOf(subjects)
	if !o.usage.clusterWide {
		options.Namespaces = sets.List(namespaces)
	}
	source, err := o.read(ctx, options)
	switch {
	case source == nil:
		return fmt.Errorf("reading what containers have used: %w", err)
	case err != nil:
		if _, err := fmt.Fprintln(warnings, "Warning: estimated from a part of the history only:", err); err != nil {
			return err
		}
	}
	bounds, ignored := o.bounds(ctx, namespaces, noCluster)
	for _, what := range ignored {
		if _, err := fmt.Fprintln(warnings, "Warning:", what); err != nil {
			return err
		}
	}
	reporter := reporter{ladder: o.usage.ladder, source: source, roles: o.usage.history.ByContainer, policy: o.policy, now: o.now()}
	reports := make([]estimateReport, len(subjects))
	for i, s := range subjects {
		if reports[i], err = reporter.report(s, bounds[s.namespace]); err != nil {
			return err
		}
	}
	if o.patch {
		err = printPatches(out, warnings, o.output, subjects, reports)
	} else {
		err = printReports(out, o.output, reports)
	}
	return errors.Join(err, unknown(reports, o.usage.clusterWide))
}

// subjects are what is asked about: what is in the file, or the images as the containers of one.
func (o *estimateOptions) subjects(args []string) ([]subject, error) {
	if o.file != "" {
		return subjectsIn(o.file, o.namespace)
	}
	s := subject{namespace: o.namespace}
	for _, image := range args {
		if _, err := estimate.ParseImage(image); err != nil {
			return nil, err
		}
		s.pod.Spec.Containers = append(s.pod.Spec.Containers, corev1.Container{Image: image})
	}
	return []subject{s}, nil
}

// imagesOf are the images of all containers, each once.
func imagesOf(subjects []subject) []estimate.Image {
	var images []estimate.Image
	for _, s := range subjects {
		for _, c := range slices.Concat(s.pod.Spec.InitContainers, s.pod.Spec.Containers) {
			if image, err := estimate.ParseImage(c.Image); err == nil && !slices.Contains(images, image.AnyVersion()) {
				images = append(images, image.AnyVersion())
			}
		}
	}
	return images
}

// bounds returns what LimitRanges and nodes allow in each namespace, as far as that can be
// read, and what is ignored.
func (o *estimateOptions) bounds(ctx context.Context, namespaces sets.Set[string], noCluster error) (bounds map[string]estimate.Bounds, ignored []error) {
	if noCluster != nil {
		return nil, []error{fmt.Errorf("LimitRanges and nodes are ignored: %w", noCluster)}
	}
	ctx, cancel := context.WithTimeout(ctx, boundsTimeout)
	defer cancel()
	var nodes []*corev1.Node
	list, err := o.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		ignored = append(ignored, fmt.Errorf("nodes are ignored: %w", err))
	} else {
		nodes = pointers(list.Items)
	}
	bounds = map[string]estimate.Bounds{}
	for _, namespace := range sets.List(namespaces) {
		list, err := o.client.CoreV1().LimitRanges(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			ignored = append(ignored, fmt.Errorf("LimitRanges of namespace %s are ignored: %w", namespace, err))
			list = &corev1.LimitRangeList{}
		}
		bounds[namespace] = estimate.NewBounds(pointers(list.Items), nodes)
	}
	return bounds, ignored
}

func pointers[T any](items []T) []*T {
	p := make([]*T, len(items))
	for i := range items {
		p[i] = &items[i]
	}
	return p
}
