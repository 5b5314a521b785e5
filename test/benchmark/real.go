package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/realnode"
)

// real is the manifest of a workload on a real node: its container takes five seconds to
// become ready.
const real = `
apiVersion: apps/v1
metadata:
  labels: {app: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 5
      containers:
      - name: app
        image: inplace-rollout-counter:test
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, initialDelaySeconds: 5, periodSeconds: 1}
        resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 300m, memory: 32Mi}}
`

// realMetrics are what is told of rollouts on a real node.
var realMetrics = []metric{
	{"edit to done, s", "%.1f", func(_ shape, r result) float64 { return float64(r.Wall) }},
	{"with fewer Ready pods, s", "%.1f", func(_ shape, r result) float64 { return float64(r.Short) }},
	{"lowest number Ready", "%.0f", func(_ shape, r result) float64 { return float64(r.LeastReady) }},
	{"pods replaced", "%.0f", func(_ shape, r result) float64 { return float64(r.Replaced) }},
	{"kubelets, ms: p50", "%.0f", func(_ shape, r result) float64 { return r.known(1000 * float64(r.Kubelet.P50)) }},
}

// realRollouts measures workloads on a real node, with the controller in its image.
func realRollouts(ctx context.Context, args []string) (err error) {
	var o options
	flags := o.flags("real")
	flags.StringVar(&o.shapes, "shape", "statefulset:1x5", "what is edited")
	flags.IntVar(&o.rounds, "rounds", 3, "how often it is edited, each way")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s, err := parseShape(o.shapes)
	if err != nil {
		return err
	}
	node, err := realnode.Start(ctx, realnode.Options{Bin: filepath.Dir(o.bin)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Stop()) }()
	f := &fixture{cluster: &cluster{ControlPlane: node.ControlPlane}, shape: s}
	if err := f.equipReal(ctx, node); err != nil {
		return err
	}
	all := results{Machine: thisMachine()}
	all.Machine.Kubernetes = node.Version()
	for range o.rounds {
		for _, w := range []way{inPlace, builtIn} {
			r, err := f.rollOut(ctx, w)
			if err != nil {
				return fmt.Errorf("%s: %w", w, err)
			}
			fmt.Printf("%s: %.1f s, with fewer Ready pods for %.1f s\n", w, r.Wall, r.Short)
			all.Real = append(all.Real, r)
		}
	}
	return errors.Join(all.print(os.Stdout, "real"), all.save(o.json))
}

// equipReal installs the controller on the node, and makes the workloads.
func (f *fixture) equipReal(ctx context.Context, node *realnode.Node) error {
	if err := f.connect(); err != nil {
		return err
	}
	if err := f.makeNamespace(ctx); err != nil {
		return err
	}
	if err := node.Import(ctx, "counter"); err != nil {
		return err
	}
	if err := controller.Deploy(ctx, node); err != nil {
		return err
	}
	return f.fill(ctx)
}
