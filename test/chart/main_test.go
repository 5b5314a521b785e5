//go:build integration

// Package chart tests deploy/chart with the real Helm: that it is what kustomize makes of deploy/, and that
// it can be installed, upgraded and uninstalled in the middle of rollouts. What it installs there is once for a
// cluster, so this package has a control plane of its own.
package chart

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/realnode"
)

// patience bounds every wait. It is never the expected duration.
const patience = 2 * time.Minute

// cluster is the control plane of the tests that need one.
var cluster struct {
	once    sync.Once
	cp      *controlplane.ControlPlane
	client  kubernetes.Interface
	err     error
	dir     string       // of the socket
	egress  *http.Server // by which the API server reaches the webhook's Service
	webhook atomic.Value // address of the process that is behind it
}

func TestMain(m *testing.M) {
	code := m.Run()
	if cluster.egress != nil {
		_ = cluster.egress.Close() // nobody uses it any more
		_ = os.RemoveAll(cluster.dir)
	}
	if cp := cluster.cp; cp != nil {
		if code != 0 {
			cp.KeepLogs()
		}
		if err := cp.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// needCluster starts the control plane.
func needCluster(t *testing.T) (*controlplane.ControlPlane, kubernetes.Interface) {
	t.Helper()
	cluster.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		cluster.err = startCluster(ctx)
	})
	if cluster.err != nil {
		t.Fatal(cluster.err)
	}
	return cluster.cp, cluster.client
}

func startCluster(ctx context.Context) (err error) {
	if cluster.dir, err = os.MkdirTemp("", "chart-"); err != nil {
		return err
	}
	socket := filepath.Join(cluster.dir, "egress.sock")
	if cluster.egress, err = realnode.ServeEgress(socket, func(ctx context.Context, network, _ string) (net.Conn, error) {
		address, is := cluster.webhook.Load().(string)
		if !is {
			return nil, errors.New("no webhook runs")
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}); err != nil {
		return err
	}
	if cluster.cp, err = controlplane.Start(ctx, controlplane.Options{Egress: socket}); err != nil {
		return err
	}
	config := cluster.cp.RESTConfig()
	config.WarningHandler = rest.NoWarnings{} // each edit has one
	if cluster.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	return cluster.cp.AddNode(ctx, "node-1", controlplane.Node{CPU: "8", Memory: "16Gi"})
}

func folder() string { return filepath.Join(controller.Root(), "deploy", "chart") }

// helm runs Helm, and returns what it prints and says.
func helm(ctx context.Context, t *testing.T, kubeconfig string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := exec.CommandContext(ctx, filepath.Join(controller.Root(), "bin", "gitops", "helm"), args...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var out, said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	if err = cmd.Run(); err != nil {
		err = fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), err, withoutLinks(said.String()))
	}
	return out.String(), said.String(), err
}

// withoutLinks leaves out what Helm says about each symbolic link of the chart.
func withoutLinks(said string) string {
	var kept strings.Builder
	for line := range strings.Lines(said) {
		if !strings.Contains(line, "found symbolic link in path") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// template renders a chart for a namespace, without a cluster.
func template(t *testing.T, chart, namespace string, args ...string) ([]object, error) {
	t.Helper()
	out, _, err := helm(t.Context(), t, os.DevNull, append([]string{"template", "some-release", chart, "--namespace", namespace}, args...)...)
	if err != nil {
		return nil, err
	}
	return objectsIn(t, out), nil
}

// object is one of Kubernetes, as from JSON.
type object map[string]any

func (o object) metadata() map[string]any {
	metadata, _ := o["metadata"].(map[string]any)
	return metadata
}

func (o object) annotation(name string) any {
	annotations, _ := o.metadata()["annotations"].(map[string]any)
	return annotations[name]
}

func (o object) String() string {
	return fmt.Sprintf("%s %v %v", o["kind"], o.metadata()["namespace"], o.metadata()["name"])
}

// objectsIn returns the objects of a manifest.
func objectsIn(t *testing.T, manifest string) []object {
	t.Helper()
	var all []object
	for document := range strings.SplitSeq("\n"+manifest, "\n---") {
		var o object
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatal(errors.Join(err, errors.New(document)))
		}
		if len(o) > 0 {
			all = append(all, o)
		}
	}
	return all
}
