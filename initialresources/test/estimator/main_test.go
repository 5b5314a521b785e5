//go:build around

// Package estimator tests the estimator, as deploy/initial-resources installs it, on a real control
// plane, with a real Prometheus; and what becomes of new pods while it, or the webhook, is gone.
package estimator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/prometheus"
)

var (
	cp     *controlplane.ControlPlane
	client kubernetes.Interface
	server *prometheus.Server
)

func TestMain(m *testing.M) { os.Exit(controlplane.RunTests(m, controlplane.Options{}, setUp)) }

const mib = 1 << 20

// usage is what has run in three days. What is read of it may be 1 % more, as sketches have it.
func usage() prometheus.History {
	end := time.Now().Add(2 * time.Hour)
	ran := func(namespace, image string, cpu, memory float64) prometheus.Container {
		return prometheus.Container{
			Span: prometheus.Span{From: end.AddDate(0, 0, -3), To: end}, Namespace: namespace, Pod: "pod-" + strings.NewReplacer(":", "-", ".", "-").Replace(image),
			Name: "app", Image: image, CPU: prometheus.Always(cpu), Memory: prometheus.Always(memory * mib),
		}
	}
	return prometheus.History{Every: 5 * time.Minute, Containers: []prometheus.Container{
		ran("shop", "nginx:1.25", 0.2, 64), ran("shop", "redis:7", 0.1, 32), ran("bank", "mysql:8", 1, 512), ran("bank", "nginx:1.26", 0.4, 128),
	}}
}

func setUp(ctx context.Context, started *controlplane.ControlPlane) (tearDown func(), err error) {
	cp = started
	if client, err = kubernetes.NewForConfig(cp.RESTConfig()); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	for _, node := range []string{"node-1", "node-2"} {
		if err := cp.AddNode(ctx, node, controlplane.Node{CPU: "8", Memory: "16Gi"}); err != nil {
			return nil, err
		}
	}
	if err := controller.InstallEstimator(ctx, cp); err != nil {
		return nil, err
	}
	dir := filepath.Join(cp.Dir(), "prometheus")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if server, err = prometheus.StartWith(ctx, dir, usage()); err != nil {
		return nil, err
	}
	return server.Stop, nil
}

// launch starts an estimator that ends with the test at the latest.
func launch(t *testing.T, o controller.Options) *controller.Process {
	t.Helper()
	log := must.Get(os.OpenFile(filepath.Join(cp.Dir(), "log", "estimator.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))(t)
	o.Log = log
	o.Args = append([]string{"--prometheus-url=" + server.URL(), "--resolution=5m", "--range=10m", "--rung=7d:tag:60,7d:image:1", "--refresh-interval=2s", "--publish-interval=100ms", "--room-interval=100ms"}, o.Args...)
	p := must.Get(controller.StartEstimator(t.Context(), cp, o))(t)
	t.Cleanup(func() {
		p.Kill()
		_ = log.Close() // it has been written
	})
	must.Do(t, p.WaitReady(t.Context()))
	return p
}

// namespace makes one that is opted in if a mode is given, and takes its label away with the test.
func namespace(t *testing.T, name, mode string) {
	t.Helper()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), n, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	empty(t, name)
	label(t, name, mode)
	t.Cleanup(func() { label(t, name, "") })
}

// empty takes away what the tests before have left: a table that nobody looks after any more, and
// pods that may take a moment to go after what owned them.
func empty(t *testing.T, namespace string) {
	t.Helper()
	if err := client.CoreV1().ConfigMaps(namespace).Delete(t.Context(), api.EstimatesName, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	eventually(t, "the pods of namespace "+namespace+" to go", func() (bool, string) {
		err := client.CoreV1().Pods(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		list, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 0, fmt.Sprint(len(list.Items), err)
	})
}

// label says whether a namespace is opted in.
func label(t *testing.T, namespace, mode string) {
	t.Helper()
	value := "null"
	if mode != "" {
		value = fmt.Sprintf("%q", mode)
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, api.InitialResourcesLabel, value)
	must.Get(client.CoreV1().Namespaces().Patch(context.Background(), namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(t)
}

// table is what is published in a namespace; nil if nothing is.
func table(t *testing.T, namespace string) *corev1.ConfigMap {
	t.Helper()
	c, err := client.CoreV1().ConfigMaps(namespace).Get(t.Context(), api.EstimatesName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	must.Do(t, err)
	return c
}

// waitEntry waits until a table has an entry that begins so; without any text, until it has none.
func waitEntry(t *testing.T, namespace, entry, want string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s of namespace %s to be %q", entry, namespace, want), func() (bool, string) {
		c := table(t, namespace)
		if c == nil {
			return false, "there is no table"
		}
		value, has := c.Data[entry]
		return has == (want != "") && (value == want || want != "" && strings.HasPrefix(value, want+" ")), fmt.Sprint(c.Data)
	})
}

const patience = 3 * time.Minute

func eventually(t *testing.T, what string, check func() (bool, string)) {
	t.Helper()
	must.Eventually(t, 50*time.Millisecond, patience, what, check)
}

// apply creates objects, which go with the test.
func apply(t *testing.T, manifest string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	must.Do(t, os.WriteFile(file, []byte(manifest), 0o600))
	must.Do(t, cp.Apply(t.Context(), "--filename", file))
	t.Cleanup(func() {
		must.Get(cp.Kubectl(context.Background(), "delete", "--ignore-not-found", "--grace-period=0", "--force", "--filename", file))(t)
	})
}

// waitMetric waits until the estimator serves this line.
func waitMetric(t *testing.T, p *controller.Process, line string) {
	t.Helper()
	eventually(t, "the metric "+line, func() (bool, string) {
		text, err := p.Metrics(t.Context())
		if err != nil {
			return false, err.Error()
		}
		var near []string
		for l := range strings.Lines(text) {
			if strings.HasPrefix(l, strings.SplitN(line, "{", 2)[0]) || strings.HasPrefix(l, strings.SplitN(line, " ", 2)[0]) {
				near = append(near, l)
			}
		}
		return strings.Contains(text, "\n"+line+"\n"), strings.Join(near, "")
	})
}
