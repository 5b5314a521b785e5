//go:build integration

package integration

import (
	"strings"
	"testing"
)

// TestCheck: whoever may see everything is told that the cluster is ready; a developer what they may see, and do.
func TestCheck(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 1})
	w.waitComplete()
	assertLines := func(who string, got ran, code int, lines ...string) {
		t.Helper()
		if got.code != code || got.stderr != "" {
			t.Errorf("%s: check ended with %d, want %d: %s%s", who, got.code, code, got.stdout, got.stderr)
		}
		for _, line := range lines {
			if !strings.Contains(got.stdout, line) {
				t.Errorf("%s: there is no line %q in\n%s", who, line, got.stdout)
			}
		}
	}
	assertLines("an administrator", w.run("check"), 0,
		" serves pods/resize\n", "✓ Hold: edits are held by ", "✓ Dry run: edits of StatefulSets, Deployments and DaemonSets are held\n",
		"✓ Controller: a controller is ready\n", " Version: ", "✓ Namespaces: none is excluded\n",
		"✓ You can: see the progress", "✓ You can: preview rollouts", "✓ You can: preview whether nodes", "✓ You can: opt in, edit, retry and release\n",
		"are rolled out in place.\n")

	kubeconfig, _ := w.planner()
	assertLines("who may only plan", command(t, kubeconfig, w.namespace, "", "check"), 0,
		"? Hold: you cannot see all", "? Dry run: it is unknown whether edits of StatefulSets, Deployments, DaemonSets are held: ",
		"? Controller: ", "? Version: ", "✓ You can: preview rollouts, with plan\n", "- You cannot: opt in, edit, retry and release: you lack patch statefulsets")
	if events := w.kubectl("get", "statefulsets,deployments,daemonsets", "--output=name"); strings.Contains(events, "dry-run") {
		t.Errorf("check has left something: %s", events)
	}
}
