package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/server"
	"github.com/inplace-rollout/inplace-rollout/pkg/webhook"
)

// webhookOptions are the flags of the webhook command.
type webhookOptions struct {
	kubeconfig       string
	bindAddress      string
	namespace        string
	service          string
	secret           string
	certFile         string
	keyFile          string
	clientCAFile     string
	lifetime         time.Duration
	controller       string
	initialResources bool
	serving          server.Options
	drain            time.Duration
	verbosity        int
}

func newWebhookCommand() *cobra.Command {
	o := webhookOptions{}
	cmd := &cobra.Command{
		Use:   "webhook",
		Short: "Run the webhook that holds rollouts where MutatingAdmissionPolicy v1 is missing",
		Long: `Run the webhook that holds rollouts where MutatingAdmissionPolicy v1 is missing, until it is
told to stop.

It evaluates the same policies as newer API servers do themselves: see "Two ways to hold"
in docs/operations.md. With --initial-resources it also evaluates the policy that gives new
pods the estimator's requests. If that fails, pods are admitted unchanged.`,
		Example: `  # In a pod, with its ServiceAccount, as deploy/overlays/webhook has it
  inplace-rollout webhook

  # With a certificate that is renewed elsewhere
  inplace-rollout webhook --tls-cert-file /tls/tls.crt --tls-private-key-file /tls/tls.key`,
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
	f.StringVar(&o.bindAddress, "bind-address", ":8443", "address at which it serves API servers, over TLS")
	f.StringVar(&o.namespace, "namespace", "", "namespace of the Service and the Secret; empty means the pod's own, or inplace-rollout")
	f.StringVar(&o.service, "service", "inplace-rollout-webhook", "Service by which API servers reach it, and name in the certificate")
	f.StringVar(&o.secret, "secret", "inplace-rollout-webhook", "Secret in which the replicas share the certificates that they create, and the secret URL path of the webhook")
	f.DurationVar(&o.lifetime, "certificate-lifetime", 90*24*time.Hour, "how long a certificate that it creates, and the URL path, are valid; new ones are created after two thirds of that")
	f.StringVar(&o.certFile, "tls-cert-file", "", "certificate that is created and renewed elsewhere, also for --secure-metrics. Then only the URL path is kept in --secret and written to the webhook configuration")
	f.StringVar(&o.keyFile, "tls-private-key-file", "", "key of --tls-cert-file")
	f.StringVar(&o.clientCAFile, "client-ca-file", "", "CA certificates: only clients with a certificate that one of them has signed are answered, for API servers that are configured to present one to webhooks; empty means none is asked for")
	f.StringVar(&o.controller, "controller", "", "user name of the controller; empty means system:serviceaccount:<namespace>:inplace-rollout")
	f.BoolVar(&o.initialResources, "initial-resources", false, "evaluate the policy of deploy/initial-resources, too, and watch namespaces and the estimator's ConfigMaps for it")
	o.serving.AddFlags(f)
	f.DurationVar(&o.drain, "shutdown-delay", 10*time.Second, "how long it still answers requests after it was told to stop")
	f.IntVarP(&o.verbosity, "v", "v", 2, "log level")
	return cmd
}

func (o webhookOptions) validate() error {
	_, _, err := net.SplitHostPort(o.bindAddress)
	return errors.Join(o.serving.Validate(),
		server.Wrong(err != nil, "--bind-address is %q: want host:port or :port: %w", o.bindAddress, err),
		server.Wrong((o.certFile == "") != (o.keyFile == ""), "--tls-cert-file and --tls-private-key-file go together"),
		server.Wrong(o.lifetime < 20*time.Second, "--certificate-lifetime is %s: want 20s or more", o.lifetime),
		server.Wrong(o.drain < 0, "--shutdown-delay is %s: want 0 or more", o.drain),
	)
}

func (o webhookOptions) run(ctx context.Context) error {
	ctx, err := server.StartLog(ctx, o.verbosity)
	if err != nil {
		return err
	}

	namespace := cmp.Or(o.namespace, server.OwnNamespace(), server.DefaultNamespace)
	// It is still served, and its certificate kept, for a while after ctx has ended.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	policies, known, err := o.policies(serving, cmp.Or(o.controller, "system:serviceaccount:"+namespace+":inplace-rollout"))
	if err != nil {
		return err
	}
	certificates, err := o.certificates(serving, namespace)
	if err != nil {
		return err
	}
	config, err := o.tlsConfig(serving, certificates)
	if err != nil {
		return err
	}
	complete := func() error { return nil }
	if o.initialResources {
		if complete, err = o.addInitialResources(serving, policies); err != nil {
			return err
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(server.BuildInfo())
	metrics := webhook.NewMetrics(registry, policies.Names(), certificates.Certificate)

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.bindAddress)
	if err != nil {
		return fmt.Errorf("listening on --bind-address: %w", err)
	}
	var ending atomic.Bool
	ready := func() error {
		if ending.Load() {
			return errors.New("it was told to stop")
		}
		return cmp.Or(certificates.Ready(), known(), complete())
	}
	o.serving.CertFile, o.serving.KeyFile = o.certFile, o.keyFile
	stopMetrics, err := o.serving.Serve(serving, o.kubeconfig, func() error { return nil }, ready, registry)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer stopMetrics()

	// Anybody may connect, and is to hold little of our memory, and not for long: API servers wait 5 s. The handler
	// is stricter about bodies.
	server := &http.Server{
		Handler: webhook.NewHandler(policies, metrics, certificates.Knows), BaseContext: func(net.Listener) context.Context { return serving },
		ReadHeaderTimeout: 6 * time.Second, ReadTimeout: 6 * time.Second, WriteTimeout: 15 * time.Second, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 64 << 10,
		TLSConfig: config,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(listener, "", "") }()
	klog.FromContext(ctx).Info("Serving", "address", listener.Addr().String(), "policies", policies.Names())
	select {
	case err := <-failed:
		return fmt.Errorf("serving at --bind-address: %w", err)
	case <-ctx.Done():
	}
	// API servers learn that this replica goes by way of the Service, and may ask it until then.
	ending.Store(true)
	time.Sleep(o.drain)
	last, cancel := context.WithTimeout(serving, 10*time.Second)
	defer cancel()
	if err := server.Shutdown(last); err != nil {
		return fmt.Errorf("ending: %w", err)
	}
	return nil
}

// policies are those that hold, for the controller that is this user. What it returns besides says whether it is known if
// that is there.
func (o webhookOptions) policies(ctx context.Context, controller string) (policies *webhook.Policies, known func() error, err error) {
	if policies, err = webhook.Load(deploy.Cluster, controller); err != nil {
		return nil, nil, err
	}
	client, err := o.client()
	if err != nil {
		return nil, nil, err
	}
	live, err := o.client(server.Apart)
	if err != nil {
		return nil, nil, err
	}
	heartbeat, err := webhook.NewHeartbeat(client, live, controller)
	if err != nil {
		return nil, nil, err
	}
	policies.Follow(heartbeat)
	go heartbeat.Run(ctx)
	return policies, heartbeat.Ready, nil
}

// certificates is where the certificate comes from that is served.
type certificates interface {
	Certificate() (*tls.Certificate, error)
	Ready() error
	Knows(webhook, path string) bool
}

// filesAndPath are a certificate in files, and a path that is kept here.
type filesAndPath struct {
	*webhook.Keeper
	files webhook.Files
}

func (f filesAndPath) Certificate() (*tls.Certificate, error) { return f.files.Certificate() }
func (f filesAndPath) Ready() error                           { return cmp.Or(f.files.Ready(), f.Keeper.Ready()) }

func (o webhookOptions) certificates(ctx context.Context, namespace string) (certificates, error) {
	client, err := o.client()
	if err != nil {
		return nil, err
	}
	host := o.service + "." + namespace + ".svc"
	if o.certFile != "" {
		content, err := dynamiccertificates.NewDynamicServingContentFromFiles("webhook", o.certFile, o.keyFile)
		if err != nil {
			return nil, fmt.Errorf("loading --tls-cert-file and --tls-private-key-file: %w", err)
		}
		go content.Run(ctx, 1)
		keeper := webhook.NewPathKeeper(client, namespace, o.secret, host, o.lifetime)
		go keeper.Run(ctx)
		return filesAndPath{keeper, webhook.Files{Content: content}}, nil
	}
	keeper := webhook.NewKeeper(client, namespace, o.secret, host, o.lifetime)
	go keeper.Run(ctx)
	return keeper, nil
}

// tlsConfig says with which certificate it serves, and whether clients need one.
func (o webhookOptions) tlsConfig(ctx context.Context, certificates certificates) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificates.Certificate() }}
	if o.clientCAFile == "" {
		return config, nil
	}
	content, err := dynamiccertificates.NewDynamicCAContentFromFile("clients", o.clientCAFile)
	if err != nil {
		return nil, fmt.Errorf("loading --client-ca-file: %w", err)
	}
	go content.Run(ctx, 1)
	return webhook.Clients{Content: content}.Demand(config), nil
}

// addInitialResources has the policies give new pods their requests. What it returns says whether
// the estimates have been read.
func (o webhookOptions) addInitialResources(ctx context.Context, policies *webhook.Policies) (ready func() error, err error) {
	client, err := o.client()
	if err != nil {
		return nil, err
	}
	tables, err := webhook.NewTables(client)
	if err != nil {
		return nil, err
	}
	if err := policies.AddInitialResources(tables); err != nil {
		return nil, err
	}
	go tables.Run(ctx)
	return tables.Ready, nil
}

func (o webhookOptions) client(as ...func(*rest.Config) *rest.Config) (kubernetes.Interface, error) {
	config, err := server.RESTConfig(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	for _, change := range as {
		config = change(config)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return client, nil
}
