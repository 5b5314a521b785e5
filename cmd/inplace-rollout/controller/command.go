// Package controller has the command that runs the controllers of all kinds.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // requests, queues and leader election

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	engine "github.com/inplace-rollout/inplace-rollout/pkg/controller"
	"github.com/inplace-rollout/inplace-rollout/pkg/daemonset"
	"github.com/inplace-rollout/inplace-rollout/pkg/deployment"
	"github.com/inplace-rollout/inplace-rollout/pkg/events"
	"github.com/inplace-rollout/inplace-rollout/pkg/heartbeat"
	"github.com/inplace-rollout/inplace-rollout/pkg/podchecks"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/pkg/server"
	"github.com/inplace-rollout/inplace-rollout/pkg/statefulset"
	"github.com/inplace-rollout/inplace-rollout/pkg/watchdog"
)

// LeaseName names the Lease of the leader election.
const LeaseName = "inplace-rollout"

// parallelWrites is how many pods of one workload are written at the same time. A few requests
// keep the API server busy; more would only wait there, before those of other workloads.
const parallelWrites = 16

// What may become of a pod while it is unknown whether there is room for the one that a restart brings.
const keepPod, restartPod = "Keep", "Restart"

// options are the flags of the command.
type options struct {
	kubeconfig     string
	namespace      string
	leaderElect    bool
	LeaseNamespace string
	workers        int
	sessions       int
	serving        server.Options
	qps            float32
	burst          int
	dryRun         bool
	verbosity      int
	defaults       policy.Defaults
	resizePolicy   string
	whenAbsent     string
	whenUnknown    string
	critical       []string
	checks         checksOptions
}

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	o := options{}
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run the controller",
		Long: `Run the controller until it is told to stop.

It needs Kubernetes with pods/resize and the admission policies of deploy/. If one of
them is missing, the controller is not ready, says what is missing, and touches nothing.`,
		Example: `  # In a pod, with its ServiceAccount, two replicas taking turns
  inplace-rollout controller --leader-elect

  # Outside the cluster, only logging what would be written
  inplace-rollout controller --kubeconfig ~/.kube/config --dry-run`,
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
	f.StringVar(&o.namespace, "namespace", "", "roll out only the workloads of this namespace; empty means all namespaces")
	f.BoolVar(&o.leaderElect, "leader-elect", true, "work only while holding the Lease "+LeaseName)
	f.StringVar(&o.LeaseNamespace, "leader-elect-namespace", "", "namespace of that Lease; empty means the pod's own, or --namespace, or inplace-rollout")
	f.IntVar(&o.workers, "workers", 16, "how many workloads of each kind are synced at the same time")
	f.IntVar(&o.sessions, "max-sessions", engine.DefaultSessions, "how many held workloads of each kind are watched at the same time; the others are looked at every 30s")
	o.serving.AddFlags(f)
	o.serving.AddCertificateFlags(f)
	f.Float32Var(&o.qps, "kube-api-qps", 0, "requests per second to the API server; 0 or less means no limit but API Priority and Fairness")
	f.IntVar(&o.burst, "kube-api-burst", 0, "burst of requests for --kube-api-qps; 0 means twice --kube-api-qps")
	f.DurationVar(&o.defaults.DeferredTimeout, "deferred-timeout", policy.Standard.DeferredTimeout, "how long a pod's resize can be Deferred before that counts as final")
	f.DurationVar(&o.defaults.ErrorTimeout, "error-timeout", policy.Standard.ErrorTimeout, "how long a pod's resize can fail before that counts as final")
	f.DurationVar(&o.defaults.BoosterTimeout, "booster-timeout", policy.Standard.BoosterTimeout, "how long to wait for a startup booster to put back the size from before an edit, after a pod is Ready at its new size or the rollout is over; 0 does not wait")
	f.DurationVar(&o.defaults.NotReadyTimeout, "not-ready-timeout", policy.Standard.NotReadyTimeout, "how long a pod of a guarded rollout can be not Ready after its resize before it counts as failed; a Deployment's progressDeadlineSeconds takes precedence")
	f.StringVar(&o.resizePolicy, "default-resource-resize-policy", string(policy.Standard.ResizePolicy), "policy of a resource for which neither an annotation nor a resizePolicy says one: LiveResizeable or RestartOnly")
	f.StringVar(&o.whenAbsent, "when-absent", api.LetGo, "what happens to edits while no controller is ready: LetGo leaves them to the built-in controllers, except for workloads with the action LiveResize; Hold holds all of them")
	f.StringVar(&o.whenUnknown, "when-room-unknown", "", "what becomes of a pod that only a restart helps while it cannot be known whether a node has room for the new one: Keep or Restart; empty means Restart with --namespace, which has no right to list the pods of nodes, and otherwise Keep")
	f.StringSliceVar(&o.critical, "critical-namespaces", nil, "namespaces, besides "+api.CriticalNamespace+", whose workloads the cluster needs to start: an event warns of those that are opted in without the annotation "+api.AllowCriticalAnnotation+", at their next rollout. The policy that refuses them has its own list")
	o.checks.addFlags(f)
	f.BoolVar(&o.dryRun, "dry-run", false, "log what would be written, and write nothing")
	f.IntVarP(&o.verbosity, "v", "v", 2, "log level: 2 logs writes, 4 also waits")
	cli.CompleteResizePolicy(cmd)
	return cmd
}

func (o *options) validate() error {
	o.defaults.ResizePolicy = policy.Policy(o.resizePolicy)
	return errors.Join(
		server.Wrong(o.defaults.DeferredTimeout <= 0 || o.defaults.ErrorTimeout <= 0, "--deferred-timeout is %s and --error-timeout %s: both must be positive", o.defaults.DeferredTimeout, o.defaults.ErrorTimeout),
		server.Wrong(o.defaults.BoosterTimeout < 0, "--booster-timeout is %s: want 0 or more", o.defaults.BoosterTimeout),
		server.Wrong(o.defaults.NotReadyTimeout <= 0, "--not-ready-timeout is %s: it must be positive", o.defaults.NotReadyTimeout),
		cli.ValidResizePolicy(o.defaults.ResizePolicy),
		server.Wrong(o.whenAbsent != api.LetGo && o.whenAbsent != api.Hold, "--when-absent is %q: want %s or %s", o.whenAbsent, api.LetGo, api.Hold),
		server.Wrong(!slices.Contains([]string{"", keepPod, restartPod}, o.whenUnknown), "--when-room-unknown is %q: want %s or %s", o.whenUnknown, keepPod, restartPod),
		server.Wrong(o.workers < 1, "--workers is %d: at least 1 is needed", o.workers),
		server.Wrong(o.sessions < 1, "--max-sessions is %d: at least 1 is needed", o.sessions),
		server.Wrong(o.burst < 0, "--kube-api-burst is %d: want 0 or more", o.burst),
		server.Wrong(o.burst > 0 && o.qps <= 0, "--kube-api-burst is %d and --kube-api-qps %g: a burst needs a limit, so give both or none", o.burst, o.qps),
		o.checks.validate(), o.serving.Validate(),
	)
}

func (o options) run(ctx context.Context) error {
	if os.Getenv("GOGC") == "" {
		// A rollout of 1,000 pods took 88 MiB so, and 108 MiB with Go's 100, for a tenth more cpu.
		debug.SetGCPercent(50)
	}
	ctx, err := server.StartLog(ctx, o.verbosity)
	if err != nil {
		return err
	}

	config, err := o.restConfig()
	if err != nil {
		return err
	}
	installation := cmp.Or(o.LeaseNamespace, server.OwnNamespace(), o.namespace, server.DefaultNamespace)
	election := server.NewLeaderElection(config, LeaseName, installation)
	ungated := rest.CopyConfig(config)
	if o.elects() {
		election.Gate(config)
	}
	client, objects, err := cli.NewClients(config)
	if err != nil {
		return err
	}

	gate, dog, registry := prerequisite.NewGate(), watchdog.New(server.MaxSilence), prometheus.NewRegistry()
	checks, err := o.checks.runner(client.CoreV1().ConfigMaps(cmp.Or(server.OwnNamespace(), o.namespace, server.DefaultNamespace)), registry)
	if err != nil {
		return err
	}
	heart, err := o.newHeart(config, ungated, gate, checks, election)
	if err != nil {
		return err
	}
	ready := func() error {
		if err := cmp.Or(gate.Err(), heart.Err()); err != nil || !heart.Leads() {
			return err // an upgrade waits for replicas that are ready, and the one that leads meanwhile may not beat
		}
		return gate.Ready()
	}
	registry.MustRegister(readyMetric(ready, installation), holdMetric{gate}, leftOutMetric(gate), server.BuildInfo())
	if !o.dryRun {
		registry.MustRegister(heldMetric{gate})
	}
	recorder := events.NewRecorder(api.FieldManager, registry)
	if !o.dryRun {
		go recorder.Run(ctx, &typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	}
	installed, err := metadata.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	cluster := &prerequisite.Cluster{Client: client, Namespace: o.namespace, DryRun: o.dryRun, Metadata: installed, Pod: ownPod(client), At: clientAt(config)}
	controllers, err := newControllers(ctx, client, objects, recorder, engine.Options{
		Namespace: o.namespace, Workers: o.workers, Sessions: o.sessions, Parallel: parallelWrites, DryRun: o.dryRun, Defaults: o.defaults, Ready: gate.Err,
		KeepIfRoomUnknown: cmp.Or(o.whenUnknown, map[bool]string{true: restartPod, false: keepPod}[o.namespace != ""]) == keepPod,
		LeftOut:           gate.LeavesOut, LeftOutNow: cluster.LeavesOut, Checks: checks,
		Critical: append([]string{api.CriticalNamespace}, o.critical...),
		Metrics:  engine.NewMetrics(registry), Watchdog: dog,
	})
	if err != nil {
		return err
	}
	controllers.checks = checks
	alive := func() error { return errors.Join(dog.Err(), election.Alive()) }
	stopServing, err := o.serving.Serve(ctx, o.kubeconfig, alive, ready, registry)
	if err != nil {
		return err
	}
	defer stopServing()
	go gate.Watch(ctx, cluster, 10*time.Second, func() {
		heart.Wake()
		controllers.enqueueAll()
	})

	return o.work(ctx, controllers, heart, election)
}

// work runs the controllers until the context ends, and tells of it by the heart; as the leader, if there are several.
func (o options) work(ctx context.Context, controllers *controllers, heart *heartbeat.Heart, election *server.LeaderElection) error {
	if o.dryRun {
		controllers.run(ctx)
		return nil
	}
	work := func(ctx context.Context) {
		var working sync.WaitGroup
		working.Go(func() { heart.Run(ctx) })
		working.Go(func() { controllers.run(ctx) })
		working.Wait()
	}
	if !o.elects() {
		work(ctx)
		heart.Stop(ctx)
		return nil
	}
	if err := election.Run(ctx, work); err != nil {
		return err // somebody else may lead, and beat
	}
	heart.HandOver(ctx)
	return nil
}

// clientAt makes clients for single API servers.
func clientAt(config *rest.Config) func(address string) (kubernetes.Interface, error) {
	return func(address string) (kubernetes.Interface, error) {
		config, err := server.At(config, address)
		if err != nil {
			return nil, err
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, fmt.Errorf("making a client: %w", err)
		}
		return client, nil
	}
}

// ownPod reads the pod that this process runs in; nil if it runs in none. It may list pods, but not get one.
func ownPod(client kubernetes.Interface) func(ctx context.Context) (*corev1.Pod, error) {
	return func(ctx context.Context) (*corev1.Pod, error) {
		namespace := server.OwnNamespace()
		host, err := os.Hostname()
		if namespace == "" || err != nil {
			return nil, nil //nolint:nilnil,nilerr // it is no error that it runs in none
		}
		pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, host).String()})
		if err != nil {
			return nil, fmt.Errorf("reading pod %s/%s: %w", namespace, host, err)
		}
		if len(pods.Items) == 0 {
			return nil, nil //nolint:nilnil // as with hostNetwork
		}
		return &pods.Items[0], nil
	}
}

// newHeart has a limit of the rate of requests no more than the leader election has. The other config is for when this
// process does not lead any more.
func (o options) newHeart(config, ungated *rest.Config, gate *prerequisite.Gate, checks *podchecks.Runner, election *server.LeaderElection) (*heartbeat.Heart, error) {
	client, err := kubernetes.NewForConfig(server.Unlimited(config))
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	last, err := kubernetes.NewForConfig(server.Unlimited(ungated))
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	heart := heartbeat.New(client, last, gate.Attends, o.whenAbsent)
	o.defaults.UnknownChecksPass = podchecks.OnUnknown(o.checks.onUnknown) == podchecks.OnUnknownPass
	heart.Began, heart.LeftOut, heart.Checks, heart.Defaults = gate.Wake, gate.LeftOut, checks.Names, o.defaults.String()
	if o.elects() {
		heart.Standby, heart.Followed = election.Standby, election.Followed
	}
	return heart, nil
}

// elects reports whether this process works only while it is the leader.
func (o options) elects() bool {
	return o.leaderElect && !o.dryRun // a Lease is written, too
}

// controllers are those of all kinds of workloads.
type controllers struct {
	nodes  *capacity.Nodes
	checks *podchecks.Runner
	kinds  []kindController
}

// kindController is that of one kind.
type kindController interface {
	Run(ctx context.Context)
	EnqueueAll()
}

func newControllers(ctx context.Context, client kubernetes.Interface, objects dynamic.Interface, recorder engine.Recorder, options engine.Options) (*controllers, error) {
	nodes, err := capacity.NewNodes(client)
	if err != nil {
		return nil, err
	}
	c := &controllers{nodes: nodes}
	options.Ledger = capacity.NewLedger()
	options.Ledger.Await(statefulset.Kind{}.Access().Kind, deployment.Kind{}.Access().Kind, daemonset.Kind{}.Access().Kind)
	var failed []error
	add := func(kind kindController, err error) { c.kinds, failed = append(c.kinds, kind), append(failed, err) }
	add(engine.New(ctx, statefulset.New(client), client, recorder, nodes, options))
	add(engine.New(ctx, deployment.New(client, objects, options.Namespace).Recording(recorder), client, recorder, nodes, options))
	add(engine.New(ctx, daemonset.New(client), client, recorder, nodes, options))
	return c, errors.Join(failed...)
}

func (c *controllers) enqueueAll() {
	for _, kind := range c.kinds {
		kind.EnqueueAll()
	}
}

func (c *controllers) run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { c.nodes.Run(ctx) })
	running.Go(func() { c.checks.Run(ctx) })
	for _, kind := range c.kinds {
		running.Go(func() { kind.Run(ctx) })
	}
	running.Wait()
}

// restConfig is how the API server is reached, with the limits of the flags.
func (o options) restConfig() (*rest.Config, error) {
	config, err := server.RESTConfig(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	if o.qps > 0 { // of all clients together
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(o.qps, cmp.Or(o.burst, int(math.Ceil(2*float64(o.qps)))))
	}
	return config, nil
}
