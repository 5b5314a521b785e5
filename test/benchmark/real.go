package main

import (
	"context"
	"fmt"

	"github.com/inplace-rollout/inplace-rollout/test/measure"
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
	started, err := measure.StartNode(ctx, o.bin)
	if err != nil {
		return err
	}
	c, err := newCluster(ctx, started)
	if err != nil {
		return err
	}
	defer c.End(ctx, &err)
	f := &fixture{cluster: c, shape: s}
	if err := f.fill(ctx); err != nil {
		return err
	}
	all := results{Machine: thisMachine()}
	all.Machine.Kubernetes = c.Version()
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
	fmt.Println(all.onRealNode())
	return all.save(o.json)
}
