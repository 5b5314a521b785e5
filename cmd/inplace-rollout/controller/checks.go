package controller

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/inplace-rollout/inplace-rollout/pkg/podchecks"
	"github.com/inplace-rollout/inplace-rollout/pkg/promapi"
	"github.com/inplace-rollout/inplace-rollout/pkg/server"
)

// checksOptions are the controller's flags of the checks that workloads name.
type checksOptions struct {
	prometheus string
	httpConfig string
	timeout    time.Duration
	onUnknown  string
}

func (o *checksOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.prometheus, "checks-prometheus", "", "URL of the Prometheus (or a compatible server) that answers the checks of workloads, without /api/v1; empty means that no check has a result, and that workloads can name none, unless --on-unknown-check is Pass")
	f.StringVar(&o.httpConfig, "checks-http-config", "", "file with an http_config of Prometheus that says how to reach it: passwords, tokens, headers, TLS, proxies")
	f.DurationVar(&o.timeout, "check-timeout", podchecks.DefaultTimeout, "how long a check of a pod can be without a result")
	f.StringVar(&o.onUnknown, "on-unknown-check", string(podchecks.OnUnknownHold), "what a check counts as that has no result for longer: Hold or Pass")
}

// validate also looks at the file.
func (o *checksOptions) validate() error {
	_, err := o.querier()
	u := podchecks.OnUnknown(o.onUnknown)
	return errors.Join(
		server.Wrong(o.timeout <= 0, "--check-timeout is %s: it must be positive", o.timeout),
		server.Wrong(u != podchecks.OnUnknownHold && u != podchecks.OnUnknownPass, "--on-unknown-check is %q: want %s or %s", o.onUnknown, podchecks.OnUnknownHold, podchecks.OnUnknownPass),
		server.Wrong(o.prometheus == "" && o.httpConfig != "", "--checks-http-config goes with --checks-prometheus"),
		err,
	)
}

// querier is nil if there is no Prometheus.
func (o *checksOptions) querier() (podchecks.Querier, error) {
	if o.prometheus == "" {
		return nil, nil //nolint:nilnil // it is no error that there is none
	}
	client, err := promapi.New(podchecks.Server(o.prometheus, o.httpConfig), nil)
	if err != nil {
		return nil, fmt.Errorf("--checks-prometheus: %w", err)
	}
	return client, nil
}

// runner asks what the ConfigMap says.
func (o *checksOptions) runner(configMaps podchecks.ConfigMaps, registry prometheus.Registerer) (*podchecks.Runner, error) {
	querier, err := o.querier()
	if err != nil {
		return nil, err
	}
	return podchecks.New(configMaps, querier, podchecks.Options{Timeout: o.timeout, OnUnknown: podchecks.OnUnknown(o.onUnknown), Metrics: podchecks.NewMetrics(registry)}), nil
}
