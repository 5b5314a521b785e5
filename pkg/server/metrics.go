package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/version"
)

// Options are the flags that say where and to whom /metrics, /healthz and /readyz are served.
type Options struct {
	address   string
	secure    bool
	profiling bool
	// CertFile and KeyFile are for serving over TLS; without them a certificate is made.
	CertFile, KeyFile string
}

// AddFlags adds the flags that every command that serves has.
func (o *Options) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&o.address, "metrics-bind-address", ":8080", "address of /metrics, /healthz and /readyz; 0 turns them off")
	f.BoolVar(&o.secure, "secure-metrics", false, "serve at --metrics-bind-address over TLS. All paths but /healthz and /readyz need a token with the right to get them")
	f.BoolVar(&o.profiling, "profiling", false, "serve Go's profiles under /debug/pprof/ at --metrics-bind-address; without --secure-metrics everybody can read them")
}

// AddCertificateFlags adds the flags of a certificate that is for nothing else.
func (o *Options) AddCertificateFlags(f *pflag.FlagSet) {
	f.StringVar(&o.CertFile, "tls-cert-file", "", "certificate for --secure-metrics; empty means a self-signed one")
	f.StringVar(&o.KeyFile, "tls-private-key-file", "", "key of --tls-cert-file")
}

// Wrong is the error that a flag is, if it is.
func Wrong(is bool, format string, args ...any) error {
	if !is {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// Validate checks the flags.
func (o Options) Validate() error {
	var errs []error
	if o.address != "0" {
		if _, _, err := net.SplitHostPort(o.address); err != nil {
			errs = append(errs, fmt.Errorf("--metrics-bind-address is %q: want host:port, :port or 0: %w", o.address, err))
		}
	}
	errs = append(errs, Wrong((o.CertFile == "") != (o.KeyFile == "") || o.CertFile != "" && !o.secure, "--tls-cert-file and --tls-private-key-file go together, and with --secure-metrics"))
	return errors.Join(errs...)
}

// handler answers /metrics, /healthz and /readyz. A replica that waits for the lead is as ready
// as the leader. The kubelet has no token, so the latter two are open to everybody. The reviewer is
// for --secure-metrics.
func (o Options) handler(reviewer kubernetes.Interface, alive, ready func() error, registry prometheus.Gatherer) (http.Handler, error) {
	// Those of Go, the process and client-go are in Kubernetes' own registry.
	all := prometheus.Gatherers{registry, legacyregistry.DefaultGatherer}
	telling := http.NewServeMux()
	metrics := promhttp.HandlerFor(&shared{gatherer: all}, promhttp.HandlerOpts{DisableCompression: true}) // which takes 1 MiB for each
	telling.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(10 * time.Second)) // the server's is longer
		metrics.ServeHTTP(w, r)
	})
	if o.profiling {
		telling.HandleFunc("/debug/pprof/", pprof.Index) // serves those that are named, such as heap, too
		telling.HandleFunc("/debug/pprof/profile", pprof.Profile)
		telling.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	var others http.Handler = telling
	if o.secure {
		var err error
		if others, err = authorizeMetrics(reviewer, telling); err != nil {
			return nil, err
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/", others)
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, alive()) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, ready()) })
	return mux, nil
}

// Serve serves /metrics, /healthz and /readyz; the returned function ends it. The kubeconfig is for --secure-metrics, and is not
// looked at otherwise.
func (o Options) Serve(ctx context.Context, kubeconfig string, alive, ready func() error, registry prometheus.Gatherer) (stop func(), err error) {
	if o.address == "0" {
		return func() {}, nil
	}
	var reviewer kubernetes.Interface
	if o.secure {
		if reviewer, err = newReviewer(kubeconfig); err != nil {
			return nil, err
		}
	}
	handler, err := o.handler(reviewer, alive, ready, registry)
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.address)
	if err != nil {
		return nil, fmt.Errorf("listening on --metrics-bind-address: %w", err)
	}
	if o.secure {
		config, err := o.tlsConfig()
		if err != nil {
			return nil, errors.Join(err, listener.Close())
		}
		listener = tls.NewListener(listener, config)
	}
	// Anybody may connect, and is to hold little of our memory, and not for long.
	server := &http.Server{
		Handler: handler, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute /* a profile takes half of it */, MaxHeaderBytes: 64 << 10,
	}
	server.SetKeepAlivesEnabled(false)
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "Stopped serving", "address", o.address)
		}
	}()
	return func() {
		if err := server.Close(); err != nil {
			klog.FromContext(ctx).Error(err, "Could not stop serving")
		}
	}, nil
}

// tlsConfig has the certificate of the flags, or a new one that is signed by itself.
func (o Options) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CertFile != "" {
		// They are read again for each connection, because certificates are replaced before they expire.
		config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
			return &pair, err
		}
		_, err := config.GetCertificate(nil)
		if err != nil {
			return nil, fmt.Errorf("loading --tls-cert-file and --tls-private-key-file: %w", err)
		}
		return config, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("finding the host's name: %w", err)
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

// shared gathers the metrics ten times a second at most, however many ask, and those who read slowly have them together.
type shared struct {
	gatherer prometheus.Gatherer

	mu       sync.Mutex
	at       time.Time
	families []*dto.MetricFamily
	err      error
}

// Gather implements [prometheus.Gatherer].
func (s *shared) Gather() ([]*dto.MetricFamily, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.at) >= 100*time.Millisecond {
		s.families, s.err = s.gatherer.Gather()
		s.at = time.Now()
	}
	return s.families, s.err
}

// BuildInfo is the metric that says which version runs.
func BuildInfo() prometheus.Collector {
	built := version.Get()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "inplace_rollout_build_info", Help: "Always 1; the labels say what the controller was built from.",
		ConstLabels: prometheus.Labels{"version": built.Version, "commit": built.Commit, "goversion": built.GoVersion},
	})
	info.Set(1)
	return info
}

func answer(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "ok") // whoever asked may have gone
}
