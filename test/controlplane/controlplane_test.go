//go:build around

package controlplane

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

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
	gone := func(context.Context) (bool, error) {
		names, err := Running(dir)
		return len(names) == 0, err
	}
	if err := wait.PollUntilContextTimeout(t.Context(), poll, patience, true, gone); err != nil {
		t.Errorf("processes have survived: %v", err)
	}
}

// TestStartReportsWhy shows that the log of a process that ends at once is in the error.
func TestStartReportsWhy(t *testing.T) {
	var log bytes.Buffer
	dir := filepath.Join(t.TempDir(), "cluster")
	_, err := Start(t.Context(), Options{Dir: dir, Log: &log, Flags: map[string][]string{"kube-apiserver": {"--feature-gates", "NoSuchGate=true"}}})
	if err == nil || !strings.Contains(err.Error(), "NoSuchGate") {
		t.Errorf("the error does not name the cause: %v", err)
	}
	if !strings.Contains(log.String(), dir) {
		t.Errorf("the folder that stays is not printed: %q", log.String())
	}
	if names, err := Running(dir); err != nil || len(names) > 0 {
		t.Errorf("left running: %v, %v", names, err)
	}
}
