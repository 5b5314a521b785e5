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

	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

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
