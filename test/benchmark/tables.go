package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
)

// aKindOfOurs is the alternative to ConfigMaps: tables of a kind that the API server has to cache for nobody else.
const aKindOfOurs = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: tables.bench.inplace-rollout.io}
spec:
  group: bench.inplace-rollout.io
  scope: Namespaced
  names: {kind: Table, listKind: TableList, plural: tables, singular: table}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {data: {type: object, additionalProperties: {type: string}}}}}
`

const paramsOfPolicy, paramsOfOurs = "paramKind:\n    apiVersion: v1\n    kind: ConfigMap\n", "paramKind:\n    apiVersion: bench.inplace-rollout.io/v1\n    kind: Table\n"

// tables measures what it costs the API server to cache the params of the policy of initial resources: all ConfigMaps, because the kind
// of its params is that, or only tables, if there were a kind for them.
func tables(ctx context.Context, args []string) error {
	var o admissionOptions
	var configMaps, size int
	flags := flag.NewFlagSet("benchmark tables", flag.ContinueOnError)
	flags.StringVar(&o.bin, "bin", "bin/k8s", "folder of the Kubernetes binaries")
	flags.StringVar(&o.version, "kubernetes", "", "minor version of Kubernetes, such as 1.36; the newest if empty")
	flags.StringVar(&o.policy, "policy", "deploy/initial-resources/estimate-pods.yaml", "file of the policy")
	flags.IntVar(&configMaps, "configmaps", 2000, "how many ConfigMaps there are")
	flags.IntVar(&size, "size", 100<<10, "how large each is, in bytes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	w, err := o.weigh(ctx, configMaps, size)
	if err != nil {
		return err
	}
	fmt.Printf("%s, %d ConfigMaps of %d KiB. kube-apiserver's heap without garbage: %.0f MiB.\n", w.version, configMaps, size>>10, mib(w.without))
	fmt.Printf("With the policy, where its params are of a kind of their own: %+.0f MiB; where they are ConfigMaps: %+.0f MiB.\n", mib(w.ownKind)-mib(w.without), mib(w.configMaps)-mib(w.without))
	return nil
}

// weighed is what the API server has held, in bytes.
type weighed struct {
	version                      string
	without, ownKind, configMaps uint64
}

func (o admissionOptions) weigh(ctx context.Context, configMaps, size int) (found weighed, err error) {
	cp, err := controlplane.Start(ctx, controlplane.Options{Bin: o.bin, Version: o.version})
	if err != nil {
		return found, err
	}
	c := &cluster{Cluster: &measure.Cluster{ControlPlane: cp}}
	defer c.End(ctx, &err)
	config := cp.RESTConfig()
	config.QPS = -1
	if c.Client, err = kubernetes.NewForConfig(config); err != nil {
		return found, fmt.Errorf("making a client: %w", err)
	}
	w := admissionWay{namespace: "images-10", images: 10, labels: map[string]string{api.InitialResourcesLabel: "enabled"}}
	if err := errors.Join(w.prepare(ctx, c), c.fill(ctx, configMaps, size), c.ourKind(ctx)); err != nil {
		return found, err
	}
	found.version = cp.Version()
	if found.without, err = c.heap(ctx); err != nil {
		return found, err
	}
	if found.ownKind, err = c.heapWith(ctx, o.policy, paramsOfOurs); err != nil {
		return found, err
	}
	found.configMaps, err = c.heapWith(ctx, o.policy, paramsOfPolicy)
	return found, err
}

// heapWith is what the API server holds while the policy is in force, and has these params.
func (c *cluster) heapWith(ctx context.Context, policy, params string) (uint64, error) {
	text, err := os.ReadFile(policy)
	if err != nil {
		return 0, fmt.Errorf("reading the policy: %w", err)
	}
	if !bytes.Contains(text, []byte(paramsOfPolicy)) {
		return 0, errors.New("the policy's paramKind is not where it should be")
	}
	file := filepath.Join(c.Dir(), "policy.yaml")
	if err := os.WriteFile(file, bytes.ReplaceAll(text, []byte(paramsOfPolicy), []byte(params)), 0o600); err != nil {
		return 0, fmt.Errorf("writing the policy: %w", err)
	}
	if _, err := c.Kubectl(ctx, "apply", "--filename", file); err != nil {
		return 0, fmt.Errorf("installing the policy: %w", err)
	}
	if err := c.inForce(ctx, true); err != nil {
		return 0, err
	}
	heap, err := c.heap(ctx)
	if err != nil {
		return 0, err
	}
	if _, err := c.Kubectl(ctx, "delete", "--filename", file); err != nil {
		return 0, fmt.Errorf("removing the policy: %w", err)
	}
	return heap, c.inForce(ctx, false)
}

// fill makes ConfigMaps that have nothing to do with the policy.
func (c *cluster) fill(ctx context.Context, configMaps, size int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i := range configMaps {
		g.Go(func() error {
			text := make([]byte, size/2)
			_, _ = rand.Read(text)
			of := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("other-%d", i)}, Data: map[string]string{"file": hex.EncodeToString(text)}}
			if _, err := c.Client.CoreV1().ConfigMaps("default").Create(ctx, of, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("creating a ConfigMap: %w", err)
			}
			return nil
		})
	}
	return g.Wait()
}

// ourKind makes the kind, and the table of the namespace that [cluster.inForce] asks about as one of that kind.
func (c *cluster) ourKind(ctx context.Context) error {
	file := filepath.Join(c.Dir(), "kind.yaml")
	if err := os.WriteFile(file, []byte(aKindOfOurs), 0o600); err != nil {
		return fmt.Errorf("writing the kind: %w", err)
	}
	if _, err := c.Kubectl(ctx, "apply", "--filename", file); err != nil {
		return fmt.Errorf("making the kind: %w", err)
	}
	if _, err := c.Kubectl(ctx, "wait", "--for=condition=Established", "customresourcedefinition/tables.bench.inplace-rollout.io", "--timeout=30s"); err != nil {
		return fmt.Errorf("making the kind: %w", err)
	}
	table, err := c.Kubectl(ctx, "get", "configmap", api.EstimatesName, "--namespace=images-10", "--output=json")
	if err != nil {
		return fmt.Errorf("reading the table: %w", err)
	}
	table = strings.NewReplacer(`"apiVersion": "v1"`, `"apiVersion": "bench.inplace-rollout.io/v1"`, `"kind": "ConfigMap"`, `"kind": "Table"`).Replace(table)
	if err := os.WriteFile(file, []byte(table), 0o600); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	if _, err := c.Kubectl(ctx, "create", "--filename", file); err != nil {
		return fmt.Errorf("making the table: %w", err)
	}
	return nil
}

// heap is what the API server holds in memory after a garbage collection, once that is the same for a while.
func (c *cluster) heap(ctx context.Context) (uint64, error) {
	last := uint64(0)
	for range 60 {
		if err := wait(ctx, 5*time.Second); err != nil {
			return 0, err
		}
		rest := c.Client.Discovery().RESTClient()
		if _, err := rest.Get().AbsPath("/debug/pprof/heap").Param("gc", "1").DoRaw(ctx); err != nil {
			return 0, fmt.Errorf("collecting garbage: %w", err)
		}
		text, err := rest.Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil {
			return 0, fmt.Errorf("reading metrics: %w", err)
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
		if err != nil {
			return 0, fmt.Errorf("reading metrics: %w", err)
		}
		metrics := families["go_memstats_heap_alloc_bytes"].GetMetric()
		if len(metrics) != 1 {
			return 0, errors.New("the API server does not say how large its heap is")
		}
		now := uint64(metrics[0].GetGauge().GetValue())
		if diff := max(now, last) - min(now, last); diff < 3<<20 {
			return min(now, last), nil
		}
		last = now
	}
	return last, nil
}
