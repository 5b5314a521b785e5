//go:build around

package docs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// patience bounds every block. It is never the expected duration.
const patience = 3 * time.Minute

// world is a cluster with inplace-rollout as deploy/ installs it.
type world struct{ *controlplane.ControlPlane }

// newWorld starts a control plane in a test and installs inplace-rollout in it. It stops
// with another test that this one is a part of, or with itself. The
// simulated nodes run no images: the pods of deploy/ become Ready there without
// doing anything, and the controller is a process beside them, under their
// ServiceAccount. That the shipped Deployment itself works is proven by test/e2e.
func newWorld(t, until *testing.T) *world {
	t.Helper()
	cp := must.Get(controlplane.Start(t.Context(), controlplane.Options{}))(t)
	until.Cleanup(func() {
		if until.Failed() {
			cp.KeepLogs()
		}
		if err := cp.Stop(); err != nil {
			until.Error(err)
		}
	})
	for _, node := range []string{"node-1", "node-2", "node-3"} {
		must.Do(t, cp.AddNode(t.Context(), node, controlplane.Node{CPU: "32", Memory: "64Gi"}))
	}
	w := &world{cp}
	must.Do(t, controller.Apply(t.Context(), w.ControlPlane))
	must.Do(t, controller.Run(t.Context(), w.ControlPlane))
	w.addOthers(t)
	return w
}

// foreign are the kinds of other projects that the pages show, as plural.group/version/Kind.
var foreign = []string{
	"applications.argoproj.io/v1alpha1/Application",
	"kustomizations.kustomize.toolkit.fluxcd.io/v1/Kustomization",
	"helmreleases.helm.toolkit.fluxcd.io/v2/HelmRelease",
	"prometheusrules.monitoring.coreos.com/v1/PrometheusRule",
	"servicemonitors.monitoring.coreos.com/v1/ServiceMonitor",
	"verticalpodautoscalers.autoscaling.k8s.io/v1/VerticalPodAutoscaler",
}

// addOthers adds what of other projects the pages speak of: their kinds, without a
// schema, a ConfigMap and a namespace.
func (w *world) addOthers(t *testing.T) {
	t.Helper()
	objects := `
{apiVersion: v1, kind: Namespace, metadata: {name: argocd}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: argocd-cm, namespace: argocd}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: flux-system}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: monitoring}}
`
	for _, kind := range foreign {
		part := strings.Split(kind, "/")
		plural, group, _ := strings.Cut(part[0], ".")
		objects += fmt.Sprintf(`---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: %s.%s
  annotations: {api-approved.kubernetes.io: "unapproved, for a test"}
spec:
  group: %s
  scope: Namespaced
  names: {plural: %s, kind: %s}
  versions:
  - name: %s
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, plural, group, group, plural, part[2], part[1])
	}
	file := filepath.Join(t.TempDir(), "others.yaml")
	must.Do(t, os.WriteFile(file, []byte(objects), 0o600))
	must.Do(t, w.Apply(t.Context(), "--filename", file))
	must.Get(w.Kubectl(t.Context(), "wait", "--for=condition=Established", "--all", "customresourcedefinitions"))(t)
}

// place is where a reader is: a folder with a clone of the repository, and a home
// with a kubeconfig.
type place struct {
	dir string
	env []string
	// state keeps what a block exports for the next one.
	state string
	// leave removes the namespace, and ends what the page has started.
	leave func()
}

// newPlace is where a page starts.
func (w *world) newPlace(t *testing.T, onDelete bool) *place {
	t.Helper()
	client := must.Get(kubernetes.NewForConfig(w.RESTConfig()))(t)
	namespace := must.Get(client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "docs-", Labels: map[string]string{"docs": ""}},
	}, metav1.CreateOptions{}))(t)
	p := w.freshClone(t, namespace.Name)
	fixture := fmt.Sprintf(`
cp docs/examples/*.yaml .
kubectl apply --validate=false --openapi-patch=false -f db.yaml -f web.yaml -f agent.yaml
kubectl wait --for=condition=%s statefulset/db deployment/web daemonset/agent --timeout=1m
`, api.ConditionComplete)
	if onDelete {
		fixture += `kubectl patch statefulset/db --patch '{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}'`
	}
	p.must(t, fixture)
	return p
}

// freshClone is a place with nothing in the cluster yet, whose kubeconfig leads to a namespace.
func (w *world) freshClone(t *testing.T, namespace string) *place {
	t.Helper()
	p := &place{dir: t.TempDir()}
	p.leave = sync.OnceFunc(func() {
		// What `make try` or `make cluster` has started, if the page did not come to its end.
		must.Fails(t, "its end", controlplane.StopDir(filepath.Join(p.dir, ".cluster")), "")
		// Its namespace may go later, but its workloads must not be seen by the next one.
		for _, args := range [][]string{
			{"statefulsets,deployments,daemonsets", "--all-namespaces", "--selector", api.EnabledLabel + "=true"},
			{"namespaces", "--selector", "docs", "--wait=false"},
		} {
			if _, err := w.Kubectl(context.Background(), append([]string{"delete"}, args...)...); err != nil {
				t.Errorf("leaving: %v", err)
			}
		}
	})
	t.Cleanup(p.leave)
	p.state = filepath.Join(p.dir, ".state")
	clone(t, p.dir)
	root := controller.Root()
	path := strings.Join([]string{filepath.Join(root, "bin"), filepath.Join(root, "bin", "k8s"), os.Getenv("PATH")}, ":")
	p.env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "KUBECONFIG=") }),
		"PATH="+path, "HOME="+w.home(t, namespace))
	// Another home must not mean another build cache.
	out := must.Get(exec.Command("go", "env", "GOENV", "GOPATH", "GOCACHE", "GOMODCACHE").Output())(t)
	for i, value := range strings.Fields(string(out)) {
		p.env = append(p.env, []string{"GOENV", "GOPATH", "GOCACHE", "GOMODCACHE"}[i]+"="+value)
	}
	// Nor must it mean that each page asks anew what the API server knows.
	p.env = append(p.env, "KUBECACHEDIR="+filepath.Join(w.Dir(), "kubectl-cache"))
	return p
}

// home is a home directory whose .kube/config leads to a namespace of this world.
func (w *world) home(t *testing.T, namespace string) string {
	t.Helper()
	home := t.TempDir()
	config := must.Get(clientcmd.LoadFromFile(w.Kubeconfig()))(t)
	config.Contexts[config.CurrentContext].Namespace = namespace
	must.Do(t, clientcmd.WriteToFile(*config, filepath.Join(home, ".kube", "config")))
	return home
}

// clone copies the repository as it is in the working tree, so that what the pages
// write stays apart; bin/ with the built binaries is the same.
func clone(t *testing.T, dir string) {
	t.Helper()
	entries := must.Get(os.ReadDir(controller.Root()))(t)
	for _, entry := range entries {
		if slices.Contains([]string{".git", ".cluster", "bin"}, entry.Name()) {
			continue
		}
		if out, err := exec.Command("cp", "-a", filepath.Join(controller.Root(), entry.Name()), dir).CombinedOutput(); err != nil {
			t.Fatalf("copying the repository: %v: %s", err, out)
		}
	}
	must.Do(t, os.Symlink(filepath.Join(controller.Root(), "bin"), filepath.Join(dir, "bin")))
}

// must runs a script that has to succeed.
func (p *place) must(t *testing.T, script string) string {
	t.Helper()
	out, code := p.run(t, script)
	if code != 0 {
		t.Fatalf("ended with %d:\n%s\n%s", code, script, out)
	}
	return out
}

// run runs a script, which ends with the first command that fails. It returns what
// was printed, on both streams, and the exit code.
func (p *place) run(t *testing.T, script string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	const keep = `
set -a; [ ! -f "$STATE" ] || . "$STATE"; set +a
trap 'declare -px > "$STATE"' EXIT
set -euo pipefail
`
	cmd := exec.CommandContext(ctx, "bash", "-c", keep+script)
	cmd.Dir, cmd.Env = p.dir, slices.Concat(p.env, []string{"STATE=" + p.state})
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Fatalf("running %q: %v: %s", script, err, out.String())
	}
	return out.String(), cmd.ProcessState.ExitCode()
}
