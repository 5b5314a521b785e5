//go:build around

package controlplane

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// patience bounds every wait. It is never the expected duration.
const patience = 30 * time.Second

// TestDiesWithItsParent kills a program that runs a control plane: this test itself, started once more.
func TestDiesWithItsParent(t *testing.T) {
	const variable = "CONTROLPLANE_TEST_DIR"
	if dir := os.Getenv(variable); dir != "" {
		must.Get(Start(t.Context(), Options{Dir: dir}))(t)
		must.Do(t, syscall.Kill(os.Getpid(), syscall.SIGKILL))
	}
	dir := filepath.Join(t.TempDir(), "cluster")
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
	child.Env = append(os.Environ(), variable+"="+dir)
	if out, err := child.CombinedOutput(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the child was not killed: %v: %s", err, out)
	}
	for _, name := range binaries {
		if pid, err := readPID(dir, name); err != nil || pid == 0 {
			t.Errorf("%s was not started: %v", name, err)
		}
	}
	// Whoever inherits the dead may take his time to wait for them: ask only whether they run.
	must.Eventually(t, poll, patience, "processes to go", func() (bool, string) {
		names, err := Running(dir)
		return err == nil && len(names) == 0, fmt.Sprint(names, err)
	})
}

// TestStartReportsWhy shows that the log of a process that ends at once is in the error.
func TestStartReportsWhy(t *testing.T) {
	var log bytes.Buffer
	dir := filepath.Join(t.TempDir(), "cluster")
	_, err := Start(t.Context(), Options{Dir: dir, Log: &log, Flags: map[string][]string{"kube-apiserver": {"--feature-gates", "NoSuchGate=true"}}})
	must.Fails(t, "the error", err, "NoSuchGate")
	must.Contain(t, log.String(), dir, "what is printed of the folder that stays")
	if names, err := Running(dir); err != nil || len(names) > 0 {
		t.Errorf("left running: %v, %v", names, err)
	}
}
