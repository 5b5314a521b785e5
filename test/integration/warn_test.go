//go:build integration

package integration

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/golden"
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

// TestWarn edits as people do, with no controller running, and looks at what the API server says about it, word for word. All that
// can be said is in TestWarnings of pkg/webhook; this proves that the API server says it where it is said, and nothing where it is not.
func TestWarn(t *testing.T) {
	w, d, ds := newWorkload(t, options{Replicas: 1}), newDeployment(t, options{Replicas: 1}), newDaemonSet(t, options{Replicas: 1})
	beat(t, time.Hour)
	t.Cleanup(func() { fall(t) })
	eventually(t, "the policy to be in force", func() (bool, string) {
		got := ds.warnings("set", "resources", ds.ref, "--requests=cpu=150m", "--dry-run=server")
		return got != "", got
	})
	release := "--field-manager=" + api.ReleaseManager
	var got strings.Builder
	says := func(s interface{ warnings(...string) string }, what, args string) {
		fmt.Fprintf(&got, "%s: kubectl %s\n%s", what, args, s.warnings(strings.Fields(args)...))
	}
	says(w, "all is well", "set resources "+w.ref+" --requests=cpu=150m")
	says(w, "opted out during the hold", "label "+w.ref+" inplace-rollout.io/enabled-")
	says(w, "opted in again", "label "+w.ref+" inplace-rollout.io/enabled=true")
	w.kubectl(append([]string{"annotate", w.ref, api.RolloutAnnotation + `={"phase":"Reverted"}`}, as...)...)
	says(w, "another try of another rollout", "annotate "+w.ref+" inplace-rollout.io/retry=now")
	says(w, "a stopped rollout", "rollout restart "+w.ref)
	says(w, "let go", "annotate "+w.ref+" inplace-rollout.io/hold- "+release)
	says(w, "the action Restart", "annotate "+w.ref+" inplace-rollout.io/resource-resize-action=Restart")
	says(w, "an edit with it", "set resources "+w.ref+" --requests=cpu=160m")
	says(d, "all is well", "set resources "+d.ref+" --requests=cpu=150m")
	says(d, "resumed during the hold", "rollout resume "+d.ref)
	says(d, "the policy RestartOnly", "annotate "+d.ref+" inplace-rollout.io/resource-resize-policy=memory=RestartOnly")
	says(d, "an edit of something else", "set resources "+d.ref+" --requests=cpu=160m")
	says(d, "an edit of that", "set resources "+d.ref+" --requests=memory=120Mi")
	says(ds, "how to wait", "set resources "+ds.ref+" --requests=cpu=150m")
	says(ds, "a new image", "set image "+ds.ref+" *=other")
	says(ds, "a new one", "create -f ../../docs/examples/agent.yaml")
	fall(t)
	says(d, "nobody is there", "set resources "+d.ref+" --requests=cpu=170m")
	for _, s := range []struct{ namespace, kind string }{{w.namespace, "statefulset"}, {d.namespace, "deployment"}, {ds.namespace, "daemonset"}} {
		text := strings.ReplaceAll(got.String(), s.namespace, s.kind+"s")
		got.Reset()
		got.WriteString(text)
	}
	text := got.String()
	if controller.Hold(cp) == prerequisite.Webhook { // it says the same without the prefix
		text = strings.ReplaceAll(text, "Warning: ", "Warning: "+warned)
	}
	golden.Assert(t, "warn.txt", []byte(text))
	if out := d.kubectl("get", "validatingadmissionpolicy", prerequisite.WarningPolicy, "-o", "jsonpath={.status.typeChecking.expressionWarnings}"); out != "" {
		t.Errorf("type checking: %s", out)
	}
}

// warned is what API servers write before what the policy says.
const warned = "Validation failed for ValidatingAdmissionPolicy 'inplace-rollout-warning' with binding 'inplace-rollout-accepted-but': "
