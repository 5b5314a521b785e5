//go:build around

package hold

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// otherVersion builds the program with another policy, of which a webhook configuration says nothing.
func otherVersion(t *testing.T) (binary string) {
	t.Helper()
	dir, policy := t.TempDir(), filepath.Join(controller.Root(), "deploy", "cluster", "hold-statefulsets.yaml")
	text, err := os.ReadFile(policy)
	if err != nil {
		t.Fatal(err)
	}
	const variables = "\n  variables:\n"
	if strings.Count(string(text), variables) != 1 {
		t.Fatal("hold-statefulsets.yaml has other variables")
	}
	changed := strings.Replace(string(text), variables, variables+"  - {name: another, expression: '1'}\n", 1)
	other, overlay := filepath.Join(dir, "hold-statefulsets.yaml"), filepath.Join(dir, "overlay.json")
	encoded, err := json.Marshal(map[string]any{"Replace": map[string]string{policy: other}})
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{other: []byte(changed), overlay: encoded} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary = filepath.Join(dir, "inplace-rollout")
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", binary, "./cmd/inplace-rollout")
	build.Dir = controller.Root()
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building another version: %v\n%s", err, said)
	}
	return binary
}

// TestOtherVersion: a webhook that evaluates other policies than the controller knows is seen, though the configuration is the same. To
// get there and back no edit is refused.
func TestOtherVersion(t *testing.T) {
	w, other := serve(t, "--shutdown-delay=2s"), otherVersion(t)
	log, err := os.OpenFile(filepath.Join(cp.Dir(), "log", "controller.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	p, err := controller.Start(t.Context(), cp, controller.Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	if err := p.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	create(t, "skewed", true)
	roll := func(binary string) {
		t.Helper()
		stop := editOn(t, "skewed")
		for i := range 2 {
			old := w.Replica(i)
			if err := syscall.Kill(old.PID(), syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			<-old.Done()
			if err := w.StartBinary(t.Context(), i, binary); err != nil {
				t.Fatal(err)
			}
			if err := w.Replica(i).WaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if accepted, refused := stop(); accepted == 0 || len(refused) > 0 {
			t.Errorf("%d edits were held, and refused were %v", accepted, refused)
		}
	}
	roll(other)
	eventually(t, "the controller sees another version", func() (bool, error) {
		err := p.Ready(t.Context())
		return err != nil && strings.Contains(err.Error(), "and this controller is made for "+prerequisite.Digest), nil
	})
	roll("")
	eventually(t, "the controller is ready again", func() (bool, error) {
		err := p.Ready(t.Context())
		return err == nil, err
	})
}
