package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/pkg/version"
)

// handler answers /metrics, /healthz and /readyz. A replica that waits for the lead is as ready
// as the leader. The kubelet has no token, so the latter two are open to everybody.
func (o controllerOptions) handler(client kubernetes.Interface, alive, ready func() error, registry prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, handler http.Handler) {
		if o.secureMetrics {
			handler = newGuard(client, handler)
		}
		mux.Handle(pattern, handler)
	}
	// Those of Go, the process and client-go are in Kubernetes' own registry.
	all := prometheus.Gatherers{registry, legacyregistry.DefaultGatherer}
	handle("/metrics", promhttp.HandlerFor(all, promhttp.HandlerOpts{}))
	if o.profiling {
		handle("/debug/pprof/", http.HandlerFunc(pprof.Index)) // serves those that are named, such as heap, too
		handle("/debug/pprof/profile", http.HandlerFunc(pprof.Profile))
		handle("/debug/pprof/trace", http.HandlerFunc(pprof.Trace))
	}
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, alive()) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, ready()) })
	return mux
}

// serve serves what handler answers; the returned function ends it.
func (o controllerOptions) serve(ctx context.Context, handler http.Handler) (func(), error) {
	if o.metricsAddress == "0" {
		return func() {}, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.metricsAddress)
	if err != nil {
		return nil, fmt.Errorf("listening on --metrics-bind-address: %w", err)
	}
	if o.secureMetrics {
		config, err := o.tlsConfig()
		if err != nil {
			return nil, errors.Join(err, listener.Close())
		}
		listener = tls.NewListener(listener, config)
	}
	// Anybody may connect, and is to hold little of our memory, and not for long.
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "Stopped serving", "address", o.metricsAddress)
		}
	}()
	return func() {
		if err := server.Close(); err != nil {
			klog.FromContext(ctx).Error(err, "Could not stop serving")
		}
	}, nil
}

// tlsConfig has the certificate of the flags, or a new one that is signed by itself.
func (o controllerOptions) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.certFile != "" {
		// They are read again for each connection, because certificates are replaced before they expire.
		config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(o.certFile, o.keyFile)
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

// readyMetric says for alerts what /readyz says for Kubernetes.
func readyMetric(gate *prerequisite.Gate) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "inplace_rollout_ready", Help: "1 if the cluster has what the controller needs; 0 while it has not, and nothing is touched.",
	}, func() float64 {
		if gate.Err() != nil {
			return 0
		}
		return 1
	})
}

// holdMetric says in which way rollouts are held.
type holdMetric struct{ gate *prerequisite.Gate }

var holdDescription = prometheus.NewDesc("inplace_rollout_hold_info", "1 for the way in which the API server holds rollouts, 0 for the others.", []string{"way"}, nil)

// Describe implements prometheus.Collector.
func (holdMetric) Describe(ch chan<- *prometheus.Desc) { ch <- holdDescription }

// Collect implements prometheus.Collector.
func (m holdMetric) Collect(ch chan<- prometheus.Metric) {
	for _, way := range prerequisite.Ways {
		value := 0.0
		if m.gate.Way() == way {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(holdDescription, prometheus.GaugeValue, value, string(way))
	}
}

// buildInfoMetric says which version runs.
func buildInfoMetric(built version.Info) prometheus.Collector {
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
