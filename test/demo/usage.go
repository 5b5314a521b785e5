package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/inplace-rollout/inplace-rollout/pkg/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
	"github.com/inplace-rollout/inplace-rollout/test/prometheus"
)

// The image of the demo of initial resources, of which another version comes.
const (
	image      = "web"
	oldVersion = "1.4"
	newVersion = "2.0"
)

// lapse is how many times as fast as by default everything goes: a sample is taken each second,
// and not each minute, so that evidence grows while one looks. Seven days are 168 minutes.
const lapse = 60

// timelapse are the flags that say so. The resolution, the lag, and the ladder are the defaults
// but for that.
var timelapse = []string{"--resolution=1s", "--range=4s", "--lag=2s", "--rung=" + strings.Join(rungs(), ",")}

// rungs are those of the default ladder in a time-lapse.
func rungs() []string {
	var all []string
	for _, r := range estimate.Default().Rungs {
		r.Window /= lapse
		all = append(all, r.String())
	}
	return all
}

const mib = 1 << 20

// past is for how long the image has been running when the demo begins: six days, and more.
const past = 150 * time.Minute

// usage is what a container of the image uses. The new version uses more than the old one.
func usage(image string, at time.Time) (cores, bytes float64) {
	day := (24 * time.Hour / lapse).Seconds()
	wave := func(period float64) float64 { return math.Sin(2 * math.Pi * float64(at.UnixMilli()) / 1000 / period) }
	if strings.HasSuffix(image, ":"+newVersion) {
		return 0.45 + 0.02*wave(17), (190 + 3*wave(23)) * mib
	}
	return 0.12 + 0.06*wave(day) + 0.02*wave(97), (80 + 15*wave(day) + 4*wave(97)) * mib
}

// percentile is the 90th of what the old version has used until then.
func percentile(until time.Time) (cores, bytes float64) {
	var cpu, memory []float64
	for t := until.Add(-past); t.Before(until); t = t.Add(time.Second) {
		c, b := usage(image+":"+oldVersion, t)
		cpu, memory = append(cpu, c), append(memory, b)
	}
	slices.Sort(cpu)
	slices.Sort(memory)
	return cpu[len(cpu)*9/10], memory[len(memory)*9/10]
}

// measured is what knows how much containers use.
type measured struct {
	cadvisor  *prometheus.CAdvisor
	states    *prometheus.Server
	server    *prometheus.Server
	estimator *controller.Process
	log       io.Closer
}

// scraped is the configuration of a Prometheus that asks two addresses each second.
const scraped = `global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
- job_name: kubelet
  honor_labels: true
  static_configs: [{targets: [%q]}]
- job_name: kube-state-metrics
  honor_labels: true
  static_configs: [{targets: [%q]}]
`

// startPrometheus runs a Prometheus that knows for three hours what the pods of a subject have
// used, and goes on to scrape what all pods use.
func (m *measured) startPrometheus(ctx context.Context, c *measure.Cluster, pods []string, namespace string) error {
	dir := filepath.Join(c.Dir(), "prometheus")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	now := time.Now()
	h := prometheus.History{Every: 2 * time.Second}
	for _, pod := range pods {
		spec := image + ":" + oldVersion
		h.Containers = append(h.Containers, prometheus.Container{
			Span: prometheus.Span{From: now.Add(-past), To: now}, Namespace: namespace, Pod: pod, Name: "web", Image: spec,
			CPU:    func(t time.Time) float64 { cores, _ := usage(spec, t); return cores },
			Memory: func(t time.Time) float64 { _, bytes := usage(spec, t); return bytes },
		})
	}
	if err := h.Import(ctx, dir); err != nil {
		return err
	}
	var err error
	if m.cadvisor, err = prometheus.ServeCAdvisor(c.Client, usage); err != nil {
		return err
	}
	if m.states, err = prometheus.StartStateMetrics(ctx, dir, filepath.Join(c.Dir(), "kubeconfig")); err != nil {
		return err
	}
	m.server, err = prometheus.Start(ctx, dir, fmt.Sprintf(scraped, m.cadvisor.Address(), m.states.Address))
	return err
}

// startEstimator installs deploy/initial-resources, and runs the estimator under its ServiceAccount.
func (m *measured) startEstimator(ctx context.Context, c *measure.Cluster, o options) error {
	if err := controller.InstallEstimator(ctx, c.ControlPlane); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(logs(c.Dir()), "estimator.log"))
	if err != nil {
		return fmt.Errorf("creating the estimator's log: %w", err)
	}
	m.log = log
	m.estimator, err = controller.StartEstimator(ctx, c.ControlPlane, controller.Options{
		Binary: o.controller, Log: log,
		Args: append([]string{"--prometheus-url=" + m.server.URL(), "--refresh-interval=5s", "--publish-interval=1s", "--room-interval=1s", "--resize-afterwards", "--resize-interval=10s"}, timelapse...),
	})
	if err != nil {
		return err
	}
	return m.estimator.WaitReady(ctx)
}

// end ends all that was started.
func (m *measured) end() error {
	var failed []error
	if m.estimator != nil {
		m.estimator.Stop()
	}
	if m.log != nil {
		failed = append(failed, m.log.Close())
	}
	if m.server != nil {
		m.server.Stop()
	}
	if m.states != nil {
		m.states.Stop()
	}
	if m.cadvisor != nil {
		failed = append(failed, m.cadvisor.Close())
	}
	return errors.Join(failed...)
}
