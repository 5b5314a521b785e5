//go:build around

// Package chart tests deploy/chart with the real Helm: that it is what kustomize makes of deploy/, and that
// it can be installed, upgraded and uninstalled in the middle of rollouts. What it installs there is once for a
// cluster, so this package has a control plane of its own.
package chart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/must"
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
	must.Do(t, cluster.err)
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

// connected renders a chart as where Helm has a cluster, in which nothing is installed.
func connected(t *testing.T, chart, namespace string, args ...string) ([]object, error) {
	t.Helper()
	out, _, err := helm(t.Context(), t, emptyCluster(t), append([]string{"template", "some-release", chart, "--namespace", namespace, "--dry-run=server", "--disable-openapi-validation"}, args...)...)
	if err != nil {
		return nil, err
	}
	return objectsIn(t, out), nil
}

// emptyCluster serves what Helm asks a cluster for before it installs anything, but none of these kinds, and returns a kubeconfig
// for it.
func emptyCluster(t *testing.T, without ...string) string { return servedCluster(t, nil, without...) }

// servedCluster is such a cluster, with some objects by their paths.
func servedCluster(t *testing.T, objects map[string]any, without ...string) string {
	t.Helper()
	resources := map[schema.GroupVersion][]metav1.APIResource{}
	serve := func(version schema.GroupVersion, kind string) {
		plural, _ := meta.UnsafeGuessKindToResource(version.WithKind(kind))
		resources[version] = append(resources[version], metav1.APIResource{Name: plural.Resource, Kind: kind, Verbs: metav1.Verbs{"get"}})
	}
	for kind := range scheme.Scheme.AllKnownTypes() {
		if kind.Version == "v1" && !slices.Contains(without, kind.Kind) {
			serve(kind.GroupVersion(), kind.Kind)
		}
	}
	for group, kinds := range map[string][]string{"cert-manager.io": {"Certificate", "Issuer"}, "monitoring.coreos.com": {"ServiceMonitor", "PrometheusRule"}} {
		for _, kind := range kinds {
			serve(schema.GroupVersion{Group: group, Version: "v1"}, kind)
		}
	}
	answers := map[string]any{
		"/version":                       version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.0"},
		"/api":                           metav1.APIVersions{Versions: []string{"v1"}},
		"/api/v1/namespaces/kube-system": map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "kube-system"}},
	}
	maps.Copy(answers, objects)
	var groups metav1.APIGroupList
	for gv, list := range resources {
		path := "/apis/" + gv.String()
		if gv.Group == "" {
			path = "/api/v1"
		} else {
			version := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
			groups.Groups = append(groups.Groups, metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version})
		}
		answers[path] = metav1.APIResourceList{GroupVersion: gv.String(), APIResources: list}
	}
	answers["/apis"] = groups
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, is := answers[r.URL.Path]
		w.Header().Set("Content-Type", "application/json")
		if !is {
			w.WriteHeader(http.StatusNotFound)
			answer = apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path).Status()
		}
		must.Fails(t, "the answer", json.NewEncoder(w).Encode(answer), "")
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a}], clusters: [{name: a, cluster: {server: "` + server.URL + `"}}]}`
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	return file
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
		must.Do(t, yaml.Unmarshal([]byte(document), &o))
		if len(o) > 0 {
			all = append(all, o)
		}
	}
	return all
}
