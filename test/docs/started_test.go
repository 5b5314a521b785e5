//go:build around

package docs

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// firstCommands are those of the first block of a section of README.md that begins so.
func firstCommands(t *testing.T, section, begins string) []string {
	t.Helper()
	for _, b := range readPage(t, filepath.Join(controller.Root(), "README.md")).blocks {
		if b.section == section && strings.HasPrefix(b.text, begins) {
			return commandsOf(b.text)
		}
	}
	t.Fatalf("no block in the section %q begins with %q", section, begins)
	return nil
}

// waitForDB waits until the rollout of db is complete, as README.md does.
const waitForDB = "kubectl wait --for=condition=inplace-rollout.io/Complete statefulset/db --timeout=1m"

// sizes tells of each pod of db its UID, restarts and cpu request.
func (p *place) sizes(t *testing.T) (identities, cpu []string) {
	t.Helper()
	out := p.must(t, `kubectl get pods -l app=db --no-headers -o custom-columns='UID:.metadata.uid,RESTARTS:.status.containerStatuses[0].restartCount,CPU:.spec.containers[0].resources.requests.cpu'`)
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		identities, cpu = append(identities, fields[0]+" "+fields[1]), append(cpu, fields[2])
	}
	return identities, cpu
}

// assertResized checks that three pods have the cpu, and are those of before.
func (p *place) assertResized(t *testing.T, before []string, cpu string) {
	t.Helper()
	after, sizes := p.sizes(t)
	if len(after) != 3 || strings.Join(after, ", ") != strings.Join(before, ", ") {
		t.Errorf("before %q, after %q: want the same pods, not restarted", before, after)
	}
	for _, size := range sizes {
		if size != cpu {
			t.Errorf("a pod requests cpu %s, want %s", size, cpu)
		}
	}
}

// TestThreeCommands goes from a cluster with a StatefulSet to one that is opted in.
func TestThreeCommands(t *testing.T) {
	t.Parallel()
	commands := append(firstCommands(t, "Install it", "kubectl apply"), firstCommands(t, "Use it", "kubectl label")[0])
	if len(commands) != 3 {
		t.Fatalf("want three commands: %q", commands)
	}
	w := bareWorld(t, t)
	p := w.freshClone(t, "default")
	p.must(t, "sed '/inplace-rollout.io/d; s/^  labels:$//' docs/examples/db.yaml | kubectl apply -f -")
	p.must(t, "kubectl rollout status statefulset/db --timeout=1m")
	for _, command := range commands {
		p.must(t, command)
	}
	// The API server needs up to a second until policies are in force; no real pod is Ready as fast as a simulated one.
	if err := controller.Apply(t.Context(), w.ControlPlane); err != nil {
		t.Fatal(err)
	}
	// What the simulated pods of the Deployment do not do.
	if err := controller.Run(t.Context(), w.ControlPlane); err != nil {
		t.Fatal(err)
	}
	p.must(t, waitForDB)
	before, _ := p.sizes(t)
	p.must(t, "kubectl set resources statefulset/db --requests=cpu=1500m")
	p.must(t, waitForDB)
	p.assertResized(t, before, "1500m")
}
