//go:build integration

package integration

import (
	"strings"
	"testing"
)

// TestOldEnvironmentIsNamed: a program that reads its size from its environment does not
// see the new one; plan and the first event say so, for both kinds.
func TestOldEnvironmentIsNamed(t *testing.T) {
	parallel(t)
	const env = `[{"op": "add", "path": "/spec/template/spec/containers/0/env", "value": [{"name": "GOMAXPROCS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]}]`
	want := "app: GOMAXPROCS"
	check := func(t *testing.T, kubectl func(...string) string, namespace, ref string, complete func(), waitEvent func(reason, text string)) {
		t.Helper()
		kubectl("patch", ref, "--type=json", "--patch", env)
		complete()
		edited := kubectl("set", "resources", ref, "--containers=app", "--limits=cpu=300m", "--dry-run=client", "--output=yaml")
		if got := command(t, cp.Kubeconfig(), namespace, edited, "plan", "-f", "-"); !strings.Contains(got.stdout, "Environment variables that show the old size until a restart: "+want+".") {
			t.Errorf("plan does not name the variable: %+v", got)
		}
		kubectl("set", "resources", ref, "--containers=app", "--limits=cpu=300m")
		complete()
		waitEvent("RolloutStarted", "environment variables that show the old size until a restart: "+want)
	}
	t.Run("StatefulSet", func(t *testing.T) {
		parallel(t)
		w := newWorkload(t, options{Replicas: 1})
		check(t, w.kubectl, w.namespace, w.ref, w.waitComplete, w.waitEvent)
	})
	t.Run("Deployment", func(t *testing.T) {
		parallel(t)
		d := newDeployment(t, options{Replicas: 1})
		check(t, d.kubectl, d.namespace, d.ref, d.waitComplete, d.waitEvent)
	})
}
