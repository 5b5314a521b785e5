package initialresources

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/initialresources/history"
	"github.com/inplace-rollout/inplace-rollout/pkg/server"
)

// usageOptions are what the commands that estimate have in common: where it can be read
// what containers have used, and what is made of it.
type usageOptions struct {
	history     history.Options
	ladder      estimate.Ladder
	rungs       []string
	clusterWide bool
	key         string
	defaults    string
	leastCPU    resource.QuantityValue
	leastMemory resource.QuantityValue
	oomLeast    resource.QuantityValue
}

// What the flag --key can be.
const (
	keyImage     = "image"
	keyContainer = "image,container"
)

func newUsageOptions() usageOptions {
	o := usageOptions{history: history.Defaults(), ladder: estimate.Default(), key: keyImage}
	for _, r := range o.ladder.Rungs {
		o.rungs = append(o.rungs, r.String())
	}
	o.leastCPU = resource.QuantityValue{Quantity: o.ladder.Least[corev1.ResourceCPU]}
	o.leastMemory = resource.QuantityValue{Quantity: o.ladder.Least[corev1.ResourceMemory]}
	o.oomLeast = resource.QuantityValue{Quantity: o.ladder.OOMLeast}
	return o
}

func (o *usageOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	server, metrics := &o.history.Server, &o.history.Metrics
	f.StringVar(&server.URL, "prometheus-url", server.URL, "URL of Prometheus or a compatible server, without /api/v1")
	f.StringVar(&server.HTTPConfigFile, "prometheus-http-config", server.HTTPConfigFile, "file with an http_config of Prometheus that says how to reach it (basic auth, OAuth 2, headers, TLS, proxies); replaces the flags for token, CA, client certificate and TLS verification")
	f.StringVar(&server.CAFile, "prometheus-ca-file", server.CAFile, "CA certificates to trust; empty means those of the system, or else Mozilla's, which are built in")
	f.StringVar(&server.CertFile, "prometheus-client-cert", server.CertFile, "client certificate, with --prometheus-client-key")
	f.StringVar(&server.KeyFile, "prometheus-client-key", server.KeyFile, "key of --prometheus-client-cert")
	f.StringVar(&server.BearerTokenFile, "prometheus-bearer-token-file", server.BearerTokenFile, "file with the token to send")
	f.BoolVar(&server.InsecureSkipVerify, "prometheus-insecure-skip-tls-verify", server.InsecureSkipVerify, "trust any certificate")
	f.DurationVar(&server.Timeout, "prometheus-timeout", server.Timeout, "how long a query can take")
	f.StringArrayVar(&o.history.Matchers, "matcher", o.history.Matchers, `matcher for all series, such as cluster="eu-1"; can be repeated`)
	f.StringArrayVar(&o.history.CAdvisor, "cadvisor-matcher", o.history.CAdvisor, "additional matcher for the series of cAdvisor, to leave out forged ones; empty matches all; can be repeated")
	f.StringArrayVar(&o.history.StateMetrics, "kube-state-metrics-matcher", o.history.StateMetrics, "additional matcher for the series of kube-state-metrics; empty matches all; can be repeated")
	for _, m := range []struct {
		flag, what string
		name       *string
	}{
		{"metric-cpu", "what cpu containers have used, in seconds", &metrics.CPU},
		{"metric-memory", "what memory containers use, in bytes", &metrics.Memory},
		{"metric-info", "which images containers run", &metrics.Info},
		{"metric-init-info", "which images init containers run", &metrics.InitInfo},
		{"metric-restarts", "how often containers were restarted", &metrics.Restarts},
		{"metric-init-restarts", "how often init containers were restarted", &metrics.InitRestarts},
		{"metric-last-terminated", "why containers ended before they were restarted", &metrics.LastTerminated},
		{"metric-init-last-terminated", "why init containers ended before they were restarted", &metrics.InitLastTerminated},
		{"metric-terminated", "why containers ended for good", &metrics.Terminated},
		{"metric-completion", "when pods ended for good", &metrics.Completion},
	} {
		f.StringVar(m.name, m.flag, *m.name, "metric that says "+m.what)
	}
	f.DurationVar(&o.history.Resolution, "resolution", o.history.Resolution, "time between two samples")
	f.DurationVar(&o.history.Range, "range", o.history.Range, "range of the rate of cpu, and how long a value of memory is valid: at least twice the scrape interval")
	f.DurationVar(&o.history.Lag, "lag", o.history.Lag, "how long it takes until scraped samples can be queried")

	f.Float64Var(&o.ladder.Percentile, "percentile", o.ladder.Percentile, "percentile of the samples to request")
	f.StringSliceVar(&o.rungs, "rung", o.rungs, "WINDOW:tag:N takes the samples of the same tag in the last WINDOW if there are at least N, WINDOW:image:N those of any tag; the first rung with enough samples counts")
	f.BoolVar(&o.clusterWide, "cluster-wide", o.clusterWide, "if a namespace has too few samples, take those of all namespaces: this reveals usage to other namespaces")
	f.StringVar(&o.key, "key", o.key, "which samples belong together: those of the same "+keyImage+", or "+keyContainer+" if one image has many roles")
	f.StringVar(&o.defaults, "default-requests", o.defaults, "file with the requests of images without samples: lines such as nginx: {cpu: 50m, memory: 64Mi}, for any tag")
	f.Float64Var(&o.ladder.OOMPercent, "oom-percent", o.ladder.OOMPercent, "by how many percent memory is raised if containers were OOMKilled")
	f.Var(&o.oomLeast, "oom-least", "by how much memory is raised at least if containers were OOMKilled")
	f.Var(&o.leastCPU, "least-cpu", "least cpu to request")
	f.Var(&o.leastMemory, "least-memory", "least memory to request")
	cli.CompleteFlag(cmd, "key", cobra.FixedCompletions([]cobra.Completion{keyImage, keyContainer}, cobra.ShellCompDirectiveNoFileComp))
}

// complete says what is wrong with the flags, and takes over what they say.
func (o *usageOptions) complete() error {
	var errs []error
	at := o.history.Server
	if at.URL == "" {
		errs = append(errs, errors.New("--prometheus-url is required, such as http://prometheus.monitoring:9090"))
	} else if u, err := url.Parse(at.URL); err != nil || u.Host == "" || !slices.Contains([]string{"http", "https"}, u.Scheme) {
		errs = append(errs, fmt.Errorf("--prometheus-url is %q: want a URL, such as http://prometheus.monitoring:9090", at.URL))
	}
	errs = append(errs,
		server.Wrong((at.CertFile == "") != (at.KeyFile == ""), "--prometheus-client-cert and --prometheus-client-key go together"),
		server.Wrong(at.HTTPConfigFile != "" && (at.CAFile != "" || at.CertFile != "" || at.KeyFile != "" || at.BearerTokenFile != "" || at.InsecureSkipVerify), "--prometheus-http-config cannot be combined with --prometheus-ca-file, --prometheus-client-cert, --prometheus-client-key, --prometheus-bearer-token-file or --prometheus-insecure-skip-tls-verify"),
		o.completeLadder(),
		server.Wrong(!slices.Contains([]string{keyImage, keyContainer}, o.key), "--key is %q: want %s or %s", o.key, keyImage, keyContainer),
	)
	o.history.Window, o.history.ByContainer = o.ladder.Longest(), o.key == keyContainer
	return errors.Join(errs...)
}

// completeLadder does it for the ladder's numbers.
func (o *usageOptions) completeLadder() error {
	errs := []error{
		server.Wrong(o.ladder.Percentile <= 0 || o.ladder.Percentile > 100, "--percentile is %v: want more than 0 and at most 100", o.ladder.Percentile),
		server.Wrong(o.ladder.OOMPercent < 0, "--oom-percent is %v: want 0 or more", o.ladder.OOMPercent),
		server.Wrong(o.leastCPU.Sign() <= 0 || o.leastMemory.Sign() <= 0, "--least-cpu and --least-memory: want more than 0"), // a request of 0 is none
		server.Wrong(len(o.rungs) == 0, "--rung: at least one is needed"),
	}
	if o.defaults != "" {
		text, err := os.ReadFile(o.defaults)
		if err == nil {
			o.ladder.Defaults, err = estimate.ParseDefaults(text)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--default-requests: reading %s: %w", o.defaults, err))
		}
	}
	o.ladder.Rungs = nil
	for _, s := range o.rungs {
		r, err := estimate.ParseRung(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("--rung: %w", err))
		}
		o.ladder.Rungs = append(o.ladder.Rungs, r)
	}
	o.ladder.Least = corev1.ResourceList{corev1.ResourceCPU: o.leastCPU.Quantity, corev1.ResourceMemory: o.leastMemory.Quantity}
	o.ladder.OOMLeast = o.oomLeast.Quantity
	o.ladder.Scopes = []estimate.Scope{estimate.InNamespace}
	if o.clusterWide {
		o.ladder.Scopes = append(o.ladder.Scopes, estimate.InCluster)
	}
	return errors.Join(errs...)
}
