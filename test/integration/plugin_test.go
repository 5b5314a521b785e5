//go:build integration

package integration

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
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

// A held StatefulSet is opted in, and a Deployment and a DaemonSet at rest; a second Deployment is not.
func pluginStage(t *testing.T) (held *workload) {
	t.Helper()
	w := newWorkload(t, options{Replicas: 1})
	for name, enabled := range map[string]bool{"front": true, "other": false} {
		text := manifest(t, w.namespace, options{Kind: "Deployment", Replicas: 1, OptedOut: !enabled})
		w.apply(strings.NewReplacer("name: web", "name: "+name, "app: web", "app: "+name).Replace(text))
	}
	w.apply(strings.NewReplacer("name: web", "name: agent", "app: web", "app: agent").Replace(manifest(t, w.namespace, options{Kind: "DaemonSet"}))) // of no node
	w.waitComplete()
	w.kubectl("wait", "--for=condition="+api.ConditionComplete, "daemonset/agent", "--timeout="+patience.String())
	w.kubectl("wait", "--for=condition="+api.ConditionComplete, "deployment/front", "--timeout="+patience.String())
	w.annotatePod("web-0", "sim.inplace-rollout.io/resize=deferred")
	w.setResources("cpu=150m", "")
	w.waitCondition("Deferred", "web-0")
	return w
}

func TestPlugin(t *testing.T) {
	parallel(t)
	w := pluginStage(t)
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"status -n " + w.namespace + " deployment/front", 0, "deployment/front (namespace " + w.namespace},
		{"status sts/web -n " + w.namespace, 2, "deferred on node"},
		{"status sts/web -o wide -n " + w.namespace, 2, "PodResizePending/Deferred"},
		{"status -A -l inplace-rollout.io/enabled", 2, w.namespace + " "},
		{"status ds/agent -n " + w.namespace, 0, "daemonset/agent (namespace " + w.namespace},
		{"plan -o json -n " + w.namespace + " statefulset web", 0, `"name": "web-0"`},
		{"status sts/none -n " + w.namespace, 1, ""},
		{"plan --help", 0, "kubectl inplace-rollout plan (TYPE/NAME | -f FILE… | -k FOLDER) [flags]"},
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

// What a shell offers, through kubectl and without it, is what there is in the cluster.
func TestShellCompletion(t *testing.T) {
	parallel(t)
	w := pluginStage(t)
	for _, tt := range []struct {
		typed []string // the last one not to its end
		want  []string
	}{
		{[]string{"status", ""}, []string{"deploy/front", "ds/agent", "sts/web"}},
		{[]string{"plan", "s"}, []string{"sts/web"}},
		{[]string{"status", "sts/"}, []string{"sts/web"}},
		{[]string{"status", "statefulset.apps/w"}, []string{"statefulset.apps/web"}},
		{[]string{"status", "statefulset/x"}, nil},
		{[]string{"status", "deployment/"}, []string{"deployment/front"}},
		{[]string{"status", "deployments", ""}, []string{"front"}},
		{[]string{"status", "d"}, []string{"deploy/front", "ds/agent"}},
		{[]string{"status", "daemonset.apps/"}, []string{"daemonset.apps/agent"}},
		{[]string{"plan", "ds", ""}, []string{"agent"}},
		{[]string{"status", "pods", ""}, nil},
		{[]string{"status", "sts/web", ""}, nil},
		{[]string{"release", ""}, []string{"sts/web"}}, // the other is not held
		{[]string{"status", "--context", ""}, strings.Fields(w.kubectl("config", "get-contexts", "--output=name"))},
		{[]string{"plan", "--namespace", w.namespace[:len(w.namespace)-1]}, []string{w.namespace}},
	} {
		typed := slices.Insert(slices.Clone(tt.typed), 1, "--namespace", w.namespace)
		for program, args := range map[string][]string{
			cp.Bin("kubectl"): {"__complete", "inplace-rollout"},
			filepath.Join(controller.Root(), "bin", "inplace-rollout"): {"__complete"},
		} {
			got := asUsers(t, program, append(args, typed...)...)
			lines := strings.Fields(got.stdout)
			if len(lines) == 0 {
				t.Fatalf("%s %v says nothing: %s", filepath.Base(program), tt.typed, got.stderr)
			}
			directive, found := lines[len(lines)-1:], lines[:len(lines)-1]
			slices.Sort(found)
			if got.code != 0 || !slices.Equal(directive, []string{":4"}) || !slices.Equal(found, tt.want) {
				t.Errorf("%s offers %v (%v) for %v, want %v: %s", filepath.Base(program), found, directive, tt.typed, tt.want, got.stderr)
			}
		}
	}
}
