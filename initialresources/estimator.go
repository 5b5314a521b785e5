package initialresources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/initialresources/estimator"
	"github.com/inplace-rollout/inplace-rollout/initialresources/history"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/events"
	"github.com/inplace-rollout/inplace-rollout/pkg/server"
	"github.com/inplace-rollout/inplace-rollout/pkg/watchdog"
)

// EstimatorLease names the Lease of the estimator's leader election.
const EstimatorLease = "inplace-rollout-estimator"

// estimatorOptions are the flags of the estimator command.
type estimatorOptions struct {
	usage            usageOptions
	kubeconfig       string
	leaderElect      bool
	leaseNamespace   string
	serving          server.Options
	refresh          time.Duration
	publish          time.Duration
	maxImages        int
	roomBound        string
	roomInterval     time.Duration
	resizeAfterwards bool
	resizeInterval   time.Duration
	resizeThreshold  float64
	verbosity        int
}

// NewEstimatorCommand returns the command that runs the estimator.
func NewEstimatorCommand() *cobra.Command {
	o := estimatorOptions{usage: newUsageOptions()}
	cmd := &cobra.Command{
		Use:   "estimator",
		Short: "Estimate from Prometheus what new containers should request, and publish it",
		Long: `Estimate from Prometheus what new containers should request, and publish it, until told to
stop.

Each namespace that is opted in, or has an opted-in pod, has its estimates in the ConfigMap
` + api.EstimatesName + `. Admission reads it. So pods are created without delay, with the
last estimates, even while the estimator or Prometheus is down.`,
		Example: `  # In a pod, with its ServiceAccount, two replicas taking turns
  inplace-rollout estimator --prometheus-url http://prometheus.monitoring:9090

  # The 95th percentile of the last two weeks, of the image in any version
  inplace-rollout estimator --prometheus-url http://prometheus.monitoring:9090 --percentile 95 --rung 14d:image:60`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	server.AddKubeconfigFlag(f, &o.kubeconfig)
	f.BoolVar(&o.leaderElect, "leader-elect", true, "work only while holding the Lease "+EstimatorLease)
	f.StringVar(&o.leaseNamespace, "leader-elect-namespace", "", "namespace of that Lease; empty means the pod's own, or inplace-rollout")
	o.serving.AddFlags(f)
	o.serving.AddCertificateFlags(f)
	f.DurationVar(&o.refresh, "refresh-interval", 5*time.Minute, "how often new samples are read and the estimates computed")
	f.DurationVar(&o.publish, "publish-interval", 5*time.Second, "least time between two writes of the estimates for the same namespace")
	f.DurationVar(&o.roomInterval, "room-interval", time.Minute, "least time between a write of the estimates for a namespace and one that changes only the free room of nodes")
	f.IntVar(&o.maxImages, "max-images", 100, "with --cluster-wide, how many images that a namespace does not run get an estimate there; those come first that run in most namespaces")
	f.StringVar(&o.roomBound, "room-bound", estimator.RoomAuto, "whether to skip estimates that no node has room for: always, never, or auto, which is never while a node autoscaler is found; a namespace's annotation "+api.RoomAnnotation+" overrides it")
	f.BoolVar(&o.resizeAfterwards, "resize-afterwards", false, "resize pods in place when their estimate changes")
	f.DurationVar(&o.resizeInterval, "resize-interval", 24*time.Hour, "least time between two such resizes of a pod")
	f.Float64Var(&o.resizeThreshold, "resize-threshold", 10, "by how many percent an estimate must differ from the request for such a resize")
	f.IntVarP(&o.verbosity, "v", "v", 2, "log level")
	o.usage.addFlags(cmd)
	cli.CompleteFlag(cmd, "room-bound", cobra.FixedCompletions(estimator.RoomBounds, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o *estimatorOptions) validate() error {
	return errors.Join(o.usage.complete(), o.serving.Validate(),
		server.Wrong(o.refresh < time.Second, "--refresh-interval is %s: want 1s or more", o.refresh),
		server.Wrong(o.publish < 0 || o.roomInterval < 0, "--publish-interval is %s and --room-interval %s: want 0 or more", o.publish, o.roomInterval),
		server.Wrong(o.maxImages < 0, "--max-images is %d: want 0 or more", o.maxImages),
		server.Wrong(!slices.Contains(estimator.RoomBounds, o.roomBound), "--room-bound is %q: want %s", o.roomBound, strings.Join(estimator.RoomBounds, ", ")),
		server.Wrong(o.resizeInterval < 0 || o.resizeThreshold < 0, "--resize-interval is %s and --resize-threshold %g: want 0 or more", o.resizeInterval, o.resizeThreshold),
	)
}

func (o *estimatorOptions) run(ctx context.Context) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // as in the controller
	}
	ctx, err := server.StartLog(ctx, o.verbosity)
	if err != nil {
		return err
	}
	config, err := server.RESTConfig(o.kubeconfig)
	if err != nil {
		return err
	}
	election := server.NewLeaderElection(config, EstimatorLease, cmp.Or(o.leaseNamespace, server.OwnNamespace(), server.DefaultNamespace))
	if o.leaderElect {
		election.Gate(config)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}

	registry := prometheus.NewRegistry()
	registry.MustRegister(server.BuildInfo())
	metrics := estimator.NewMetrics(registry, o.usage.ladder.Rungs)
	recorder := events.NewRecorder(api.EstimatorFieldManager, registry)
	go recorder.Run(ctx, &typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	// A query that is not answered ends by itself, and Prometheus may be gone for long: what was read
	// is not to be read again for that.
	dog := watchdog.New(server.MaxSilence + o.usage.history.Timeout)
	o.usage.history.Observe = func(query string, took time.Duration, err error) {
		metrics.Observe(query, took, err)
		dog.Progress(estimator.Reading)
	}
	store, err := history.New(o.usage.history)
	if err != nil {
		return err
	}
	options := estimator.Options{
		Ladder: o.usage.ladder, MaxImages: o.maxImages, RoomBound: o.roomBound, RoomInterval: o.roomInterval, Roles: o.usage.history.ByContainer, Refresh: o.refresh, Publish: o.publish, Metrics: metrics, Watchdog: dog,
	}
	if o.resizeAfterwards {
		options.Afterwards = &estimator.Afterwards{Interval: o.resizeInterval, Threshold: o.resizeThreshold}
	}
	e, err := estimator.New(client, store, recorder, options)
	if err != nil {
		return err
	}
	alive := func() error { return errors.Join(dog.Err(), election.Alive()) }
	stopServing, err := o.serving.Serve(ctx, o.kubeconfig, alive, e.Ready, registry)
	if err != nil {
		return err
	}
	defer stopServing()
	if !o.leaderElect {
		e.Run(ctx)
		return nil
	}
	return election.Run(ctx, e.Run)
}
