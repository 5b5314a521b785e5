//go:build around

package chart

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// TestArgoCD does with the chart what Argo CD does: `helm template` with the values of the page's Application, and
// `kubectl apply` that prunes what is not printed any more. It is upgraded and removed in the middle of rollouts. The
// hook is run before anything is deleted, as Argo CD runs it.
func TestArgoCD(t *testing.T) {
	t.Setenv("KUBECTL_APPLYSET", "true")
	w := newWorld(t, "argocd")
	if _, err := w.cp.Kubectl(t.Context(), "create", "namespace", platform); err != nil && !strings.Contains(err.Error(), "already exists") {
		t.Fatal(err)
	}
	values := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(values, onPage(t, "Application", "spec", "source", "helm", "valuesObject"), 0o600); err != nil {
		t.Fatal(err)
	}
	sync := func(args ...string) (hooks string) {
		t.Helper()
		ours, hooks := w.render(append([]string{"--values", values}, args...)...)
		if _, err := w.cp.Kubectl(t.Context(), "apply", "--filename", ours, "--namespace", platform, "--prune", "--applyset=configmaps/ours"); err != nil {
			t.Fatal(err)
		}
		return hooks
	}
	sync()
	before := w.firstRollout()

	// Upgraded in the middle of a rollout, with less than there was.
	var hooks string
	w.duringRollout(before, func() {
		hooks = sync("--set", "podAnnotations.changed=yes,flowControl=false")
		if left := w.kubectl("get", "flowschemas", "--selector=app.kubernetes.io/instance="+release, "--output=name"); left != "" {
			t.Errorf("it did not prune %s", left)
		}
	})

	// Removed in the middle of another one.
	w.begins("170m")
	stop := w.editAllTheTime("late")
	if _, err := w.cp.Kubectl(t.Context(), "create", "--filename", hooks); err != nil {
		t.Fatal(err)
	}
	if said := w.runJob(); !strings.Contains(said, "statefulset.apps/web released") {
		t.Errorf("the hook said %s", said)
	}
	ours, _ := w.render("--values", values)
	for _, file := range []string{hooks, ours} {
		if _, err := w.cp.Kubectl(t.Context(), "delete", "--ignore-not-found", "--filename", file); err != nil {
			t.Fatal(err)
		}
	}
	if edits := stop(); edits == 0 {
		t.Error("nothing was edited meanwhile")
	}
	if w.held("web") || w.held("late") {
		t.Errorf("after the removal, web is held: %t, and late: %t", w.held("web"), w.held("late"))
	}
	w.assertNothingLeft()
	w.kubectl("rollout", "status", "statefulset/web", "--timeout="+patience.String())
}

// TestFluxValues: the values of the page's HelmRelease are some that the chart takes. What Flux does with them is what
// TestLifecycle does: it runs Helm.
func TestFluxValues(t *testing.T) {
	values := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(values, onPage(t, "HelmRelease", "spec", "values"), 0o600); err != nil {
		t.Fatal(err)
	}
	cp, _ := needCluster(t)
	out, _, err := helm(t.Context(), t, cp.Kubeconfig(), "template", release, folder(), "--namespace", "kube-system", "--dry-run=server", "--values", values)
	if err != nil {
		t.Fatal(err)
	}
	for kind, hook := range map[string]string{"Job": "pre-delete", "Pod": "test"} {
		if !slices.ContainsFunc(objectsIn(t, out), func(o object) bool { return o["kind"] == kind && o.annotation("helm.sh/hook") == hook }) {
			t.Errorf("there is no %s for the hook %s", kind, hook)
		}
	}
}

// render returns two files with what `helm template` prints: what is applied, and what are hooks for a deletion.
func (w *world) render(args ...string) (ours, hooks string) {
	w.t.Helper()
	objects, err := renderAs(w.t, release, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	dir := w.t.TempDir()
	write := func(name string, hook any) string {
		var text strings.Builder
		for _, o := range objects {
			if o.annotation("argocd.argoproj.io/hook") == hook {
				text.WriteString("---\n" + mustMarshal(w.t, o))
			}
		}
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			w.t.Fatal(err)
		}
		return file
	}
	return write("ours.yaml", nil), write("hooks.yaml", "PreDelete")
}

func renderAs(t *testing.T, name string, args ...string) ([]object, error) {
	t.Helper()
	out, _, err := helm(t.Context(), t, os.DevNull, append([]string{"template", name, folder(), "--namespace", platform}, args...)...)
	if err != nil {
		return nil, err
	}
	return objectsIn(t, out), nil
}

// onPage returns a field of the object of that kind that docs/install.md shows, as YAML.
func onPage(t *testing.T, kind string, fields ...string) []byte {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(controller.Root(), "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(page), "\nkind: "+kind+"\n")
	block, _, ended := strings.Cut(block, "\n```")
	if !found || !ended {
		t.Fatalf("the page shows no %s", kind)
	}
	block, _, _ = strings.Cut(block, "\n---\n")
	var value any
	if err := yaml.Unmarshal([]byte(block), &value); err != nil {
		t.Fatal(err)
	}
	for _, field := range fields {
		parent, _ := value.(map[string]any)
		value = parent[field]
	}
	if value == nil {
		t.Fatalf("the page's %s has no %s", kind, strings.Join(fields, "."))
	}
	return []byte(mustMarshal(t, value))
}
