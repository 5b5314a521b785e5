//go:build integration

package integration

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestUndoKeepsPolicyAndAction: kubectl restores the annotations that a ReplicaSet has
// copies of; the template goes back, and action and policy stay those of now.
func TestUndoKeepsPolicyAndAction(t *testing.T) {
	parallel(t)
	const action, policy, timeout = api.ResizeActionAnnotation, api.ResizePolicyAnnotation, api.DeferredTimeoutAnnotation
	d := newDeployment(t, options{Meta: `annotations: {inplace-rollout.io/resource-resize-policy: "cpu=LiveResizeable", app: web}`})
	d.edit("150m")
	for _, annotation := range []string{action + "=LiveResize", policy + "=memory=RestartOnly", timeout + "=90s"} {
		d.kubectl("annotate", "--overwrite", "deployment/web", annotation)
	}
	before := d.uids()
	for name := range before {
		d.annotatePod(name, simInfeasible)
	}
	d.kubectl("annotate", "replicaset", "-l", "app=web", "inplace-rollout.io/canry=1") // of somebody, from before such a name was refused
	d.kubectl("rollout", "undo", "deployment/web")
	d.waitCondition("Infeasible", "left as it is")
	d.assertReplaced(before)
	a := d.get().Annotations
	if a[action] != "LiveResize" || a[policy] != "memory=RestartOnly" || a[timeout] != "90s" || a[api.InForceAnnotation] != "" || a["app"] != "web" {
		t.Errorf("annotations %v", a)
	}
}

// TestRetry is a rollout under LiveResize that cannot go on, and is told that it may restart pods.
func TestRetry(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Meta: liveOnly})
	if got := w.run("retry", "sts/web"); got.code != 0 || !strings.Contains(got.stdout, "has no rollout in flight") {
		t.Errorf("nothing is in flight: %+v", got)
	}
	before := w.uids()
	w.annotatePod("web-1", simInfeasible)
	w.setResources("cpu=150m", "")
	w.waitCondition("Infeasible", "2 of 3 pods")
	asked := len(w.audit("patch", "pods", "resize", "web-1"))
	if got := w.run("retry", "sts/web"); got.code != 0 || !strings.Contains(got.stdout, "is retried") {
		t.Fatalf("%+v", got)
	}
	eventually(t, "the pod to be asked for what it has, and then for the size again", func() (bool, string) {
		return len(w.audit("patch", "pods", "resize", "web-1")) >= asked+2, strings.Join(w.writes(), "\n")
	})
	w.waitCondition("Infeasible", "left as it is")
	w.assertReplaced(before)
	if got := w.run("retry", "sts/web", "--action=LiveResizePreferred"); got.code != 0 || !strings.Contains(got.stdout, "LiveResizePreferred is in force") {
		t.Fatalf("%+v", got)
	}
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before, "web-1")
	must.Equal(t, w.get().Annotations[api.ResizeActionAnnotation], "LiveResize", "the action of the next edit")
	w.setResources("cpu=180m", "")
	if a := w.get().Annotations; a[api.RetryAnnotation] != "" || a[api.InForceAnnotation] != "" {
		t.Errorf("after an edit: %v", a)
	}
	w.waitComplete()
}

// asUsers runs a program with what `make build` has made in the PATH.
func asUsers(t *testing.T, program string, args ...string) ran {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(controller.Root(), "bin"), "KUBECONFIG="+cp.Kubeconfig(), "HOME="+t.TempDir())
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Fatalf("running %s %v: %v", program, args, err)
	}
	return ran{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

func TestPlugin(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 1})
	w.waitComplete()
	w.annotatePod("web-0", simDeferred)
	w.setResources("cpu=150m", "")
	w.waitCondition("Deferred", "web-0")
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"status sts/web -o wide -n " + w.namespace, 2, "PodResizePending/Deferred"},
		{"status -A -l inplace-rollout.io/enabled", 2, w.namespace + " "},
		{"plan -o json -n " + w.namespace + " statefulset web", 0, `"name": "web-0"`},
		{"--help", 0, `Use "kubectl inplace-rollout [command] --help"`},
	} {
		got := asUsers(t, cp.Bin("kubectl"), append([]string{"inplace-rollout"}, strings.Fields(tt.args)...)...)
		if got.code != tt.code || !strings.Contains(got.stdout, tt.want) {
			t.Errorf("kubectl inplace-rollout %s ended with %d, want %d and %q: %s%s", tt.args, got.code, tt.code, tt.want, got.stdout, got.stderr)
		}
	}
	if got := asUsers(t, cp.Bin("kubectl"), "plugin", "list"); got.code != 0 || !strings.Contains(got.stdout, "kubectl-inplace_rollout") {
		t.Errorf("kubectl plugin list ended with %d: %s%s", got.code, got.stdout, got.stderr)
	}
}
