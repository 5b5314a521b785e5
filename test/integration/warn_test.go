//go:build integration

package integration

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// warnings are what kubectl prints of the API server's warnings.
func (s *sandbox[W]) warnings(args ...string) string {
	s.t.Helper()
	var stderr strings.Builder
	cmd := exec.CommandContext(s.t.Context(), cp.Bin("kubectl"), append([]string{"--kubeconfig", cp.Kubeconfig(), "-n", s.namespace}, args...)...)
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		s.t.Fatalf("kubectl %v: %v: %s", args, err, stderr.String())
	}
	return stderr.String()
}

// TestWarn edits as people do, with no controller running, and looks at what the
// API server says about it.
func TestWarn(t *testing.T) {
	w, d, ds := newWorkload(t, options{Replicas: 1}), newDeployment(t, options{Replicas: 1}), newDaemonSet(t, options{Replicas: 1})
	const prefix = "Warning: Validation failed for ValidatingAdmissionPolicy 'inplace-rollout-notice-only' with binding 'inplace-rollout-notice-only': accepted: "
	wait := func(kind, namespace string) string {
		return "`kubectl wait --for=condition=inplace-rollout.io/Complete " + kind + "/web -n " + namespace + " --timeout=10m`"
	}
	held := "the rollout is held, and made in place where it can be; wait for it with "
	set := held + wait("statefulset", w.namespace)
	beat(t, time.Hour)
	t.Cleanup(func() { fall(t) })
	eventually(t, "the policy to be in force", func() (bool, string) {
		got := w.warnings("set", "resources", w.ref, "--requests=cpu=150m", "--dry-run=server")
		return got != "", got
	})
	release := func(s interface{ warnings(...string) string }, ref string) string {
		return s.warnings("annotate", ref, api.HoldAnnotation+"-", "--field-manager="+api.ReleaseManager)
	}
	notOptedIn := filepath.Join(t.TempDir(), "agent.yaml")
	manifest, err := os.ReadFile("../../docs/examples/agent.yaml")
	if err == nil {
		manifest = bytes.ReplaceAll(manifest, []byte(enabled+`: "true"`), []byte(`a: b`))
		err = os.WriteFile(notOptedIn, bytes.ReplaceAll(manifest, []byte("name: agent"), []byte("name: other")), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		what, got, want string
	}{
		{"a StatefulSet's resources", w.warnings("set", "resources", w.ref, "--requests=cpu=150m"), set},
		{"what the controller says of it", w.warnings(append([]string{"annotate", w.ref, api.RolloutAnnotation + `={"phase":"Reverted"}`}, as...)...), ""},
		{"another try of another rollout", w.warnings("annotate", w.ref, api.RetryAnnotation+"=now"),
			"the rollout stays stopped, because the annotation inplace-rollout.io/retry does not name it; `kubectl inplace-rollout retry statefulset/web -n " + w.namespace + "` does"},
		{"a restart then", w.warnings("rollout", "restart", w.ref), "the rollout of the size app requests.cpu=150m limits.cpu=200m requests.memory=100Mi limits.memory=200Mi has failed, and this edit keeps that size, with which it may restart pods. " +
			"To go back before that size, `kubectl inplace-rollout undo statefulset/web -n " + w.namespace + " --to-revision=N` with an N of `kubectl rollout history`"},
		{"letting go", release(w, w.ref), ""},
		{"switching to OnDelete", w.warnings("patch", w.ref, "--patch", `{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`), ""},
		{"OnDelete", w.warnings("set", "resources", w.ref, "--requests=cpu=160m"),
			"pods are resized in place where they can be; wait for it with " + wait("statefulset", w.namespace) + " (kubectl rollout status fails under OnDelete)"},

		{"a Deployment's resources", d.warnings("set", "resources", d.ref, "--requests=cpu=150m"), held + wait("deployment", d.namespace)},
		{"the controller's own write", d.warnings(append([]string{"annotate", d.ref, api.HoldAnnotation + "-"}, as...)...), ""},
		{"pausing", d.warnings("rollout", "pause", d.ref), ""},
		{"an edit while it is paused", d.warnings("set", "resources", d.ref, "--requests=cpu=160m"),
			"the Deployment is paused. When you resume it, the rollout is made in place where it can be"},

		{"a new DaemonSet", ds.warnings("create", "-f", "../../docs/examples/agent.yaml"),
			"it is held until inplace-rollout has looked for pods that it adopts; wait for it with " +
				strings.Replace(wait("daemonset", ds.namespace), "/web", "/agent", 1) + " (kubectl rollout status fails until then)"},
		{"a new one that is not opted in", ds.warnings("create", "-f", notOptedIn), ""},
		{"a DaemonSet's resources", ds.warnings("set", "resources", ds.ref, "--requests=cpu=150m"), held + wait("daemonset", ds.namespace) + " (kubectl rollout status fails until then)"},
		{"letting go of it", release(ds, ds.ref), ""},
		{"switching it to OnDelete", ds.warnings("patch", ds.ref, "--patch", `{"spec":{"updateStrategy":{"type":"OnDelete"}}}`), ""},
		{"its OnDelete", ds.warnings("set", "resources", ds.ref, "--requests=cpu=160m"),
			"pods are resized in place where they can be; wait for it with " + wait("daemonset", ds.namespace) + " (kubectl rollout status fails under OnDelete)"},
	} {
		want := ""
		if tt.want != "" {
			want = prefix + tt.want + "\n"
		}
		if tt.got != want {
			t.Errorf("%s: kubectl printed\n%swant\n%s", tt.what, tt.got, want)
		}
	}
	fall(t)
	d.kubectl("rollout", "resume", d.ref)
	if got, want := d.warnings("set", "resources", d.ref, "--requests=cpu=170m"), prefix+"the rollout is held, and no controller of inplace-rollout is ready to make it. "+
		"It stays held until one is ready, or until `kubectl inplace-rollout release deployment/web -n "+d.namespace+"` leaves it to the Deployment controller\n"; got != want {
		t.Errorf("with no controller: kubectl printed\n%swant\n%s", got, want)
	}
	if out := d.kubectl("get", "validatingadmissionpolicy", "inplace-rollout-notice-only", "-o", "jsonpath={.status.typeChecking.expressionWarnings}"); out != "" {
		t.Errorf("type checking: %s", out)
	}
}
