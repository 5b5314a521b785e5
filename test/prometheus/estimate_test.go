//go:build around

package prometheus_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/prometheus"
)

const webManifest = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: "nginx:1.26"}
      - {name: cache, image: redis, resources: {limits: {memory: 1Gi}}}
`

// TestEstimate asks the command, which asks Prometheus, and has kubectl and kustomize take
// its patch. There is no cluster.
func TestEstimate(t *testing.T) {
	t.Parallel()
	end := time.Now().Add(time.Hour)
	since := func(days int) prometheus.Span { return prometheus.Span{From: end.AddDate(0, 0, -days), To: end} }
	h := prometheus.History{Every: 5 * time.Minute, Containers: []prometheus.Container{
		{Span: since(20), Namespace: "shop", Pod: "web-a", Name: "web", Image: "nginx:1.25", CPU: prometheus.Always(0.2), Memory: prometheus.Always(50 * mib)},
		{Span: since(20), Namespace: "shop", Pod: "cache", Name: "cache", Image: "redis:latest", CPU: prometheus.Always(0.1), Memory: prometheus.Always(90 * mib)},
	}}
	server := start(t, h)
	dir := t.TempDir()
	run := func(name string, args ...string) (string, string, int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(controller.Root(), "bin", name), args...)
		cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir}
		var out, errors bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errors
		if err := cmd.Run(); err != nil && !isExit(err) {
			t.Fatal(err)
		}
		return out.String(), errors.String(), cmd.ProcessState.ExitCode()
	}
	estimate := func(args ...string) (string, string, int) {
		t.Helper()
		return run("inplace-rollout", append([]string{"estimate", "-n", "shop", "--prometheus-url=" + server.URL(), "--resolution=5m", "--range=10m"}, args...)...)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	write("web.yaml", webManifest)
	before := time.Now()
	out, warning, code := estimate("-f", "web.yaml")
	t.Logf("in %s:\n%s", time.Since(before).Round(time.Millisecond), out)
	// Requests may be 1 % off, so only where they come from is compared.
	for _, want := range []string{"of image in 30d", "of image:tag in 7d", "it has a limit", "deployment/web: 3 requests would be set, 1 kept"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, want 0 and %q; it printed\n%s%s", code, want, out, warning)
		}
	}
	if !strings.HasPrefix(warning, "Warning: LimitRanges and nodes are ignored: ") {
		t.Errorf("without a cluster it warned %q", warning)
	}

	patch, warning, code := estimate("-f", "web.yaml", "--patch")
	if code != 0 {
		t.Fatal(warning)
	}
	write("requests.yaml", patch)
	write("kustomization.yaml", "resources: [web.yaml]\npatches: [{path: requests.yaml}]\n")
	for _, args := range [][]string{{"patch", "--local", "-f", "web.yaml", "--patch-file", "requests.yaml", "-o", "yaml"}, {"kustomize", "."}} {
		out, failed, code := run("k8s/kubectl", args...)
		var web appsv1.Deployment
		if err := yaml.Unmarshal([]byte(out), &web); err != nil || code != 0 || len(web.Spec.Template.Spec.Containers) != 2 {
			t.Fatalf("kubectl %v: %v, exit code %d: %s%s", args, err, code, out, failed)
		}
		c := web.Spec.Template.Spec.Containers
		near(t, c[0].Resources.Requests.Cpu().AsApproximateFloat64(), 0.2)
		near(t, c[0].Resources.Requests.Memory().AsApproximateFloat64(), 50*mib)
		near(t, c[1].Resources.Requests.Cpu().AsApproximateFloat64(), 0.1)
		if _, has := c[1].Resources.Requests[corev1.ResourceMemory]; has || c[0].Image != "nginx:1.26" || c[1].Resources.Limits.Memory().String() != "1Gi" {
			t.Errorf("kubectl %v makes %+v", args, c)
		}
	}
}

func isExit(err error) bool {
	_, is := errors.AsType[*exec.ExitError](err)
	return is
}

// near: no less, and at most a little more, as sketches and rounding have it.
func near(t *testing.T, got, want float64) {
	t.Helper()
	if got < 0.985*want || got > 1.04*want {
		t.Errorf("requested are %v, want %v or a little more", got, want)
	}
}
