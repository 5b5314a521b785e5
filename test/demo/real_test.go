//go:build e2e

package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/realnode"
)

// TestRealNode plays the demo as `make demo NODE=real` and `make demo-guarded` do, and has it drawn.
func TestRealNode(t *testing.T) {
	for show, c := range map[string]struct{ says, draws []string }{
		"rollouts": {[]string{`counts forgotten +0 +[1-9]\d* +0\n`}, []string{`Deployment, in place: 0 of 4 pods replaced`}},
		"guarded": {[]string{
			`pods that the kernel has killed +worker-2 +worker-0, worker-1, worker-2\n`, `times when visits were not answered +[1-9]\d* +[1-9]\d*\n`, `limits in the kernel, in the end +256Mi, 256Mi, 256Mi`,
		}, []string{`guarded: canary 1 and Revert: 1 of 3 pods killed, 0 replaced\.`}},
	} {
		t.Run(show, func(t *testing.T) {
			drawing := filepath.Join(t.TempDir(), "drawing.svg")
			said, err := play(t, nil, "--show", show, "--picture", drawing)
			t.Log(said)
			must.Do(t, err)
			svg := must.Get(os.ReadFile(drawing))(t)
			for text, wants := range map[string][]string{said: append(c.says, `All \d+ checks passed`, `The node is gone`), string(svg): c.draws} {
				for _, want := range wants {
					if !regexp.MustCompile(want).MatchString(text) {
						t.Errorf("it did not say %q", want)
					}
				}
			}
		})
	}
}

// TestInterrupted interrupts the demo while it starts and in the middle of its first
// edit: nothing of it stays, not even logs.
func TestInterrupted(t *testing.T) {
	for _, at := range []string{"Starting", "The same edit of both"} {
		t.Run(at, func(t *testing.T) {
			said, err := play(t, func(said string) bool { return strings.Contains(said, at) })
			if err == nil || err.Error() != "interrupted; everything that it started has ended" {
				t.Errorf("%v, after it said:\n%s", err, said)
			}
		})
	}
}

// play plays the demo, interrupts it when it has said enough, and checks that it has
// tidied up. It returns what it said.
func play(t *testing.T, enough func(said string) bool, more ...string) (string, error) {
	t.Helper()
	if missing := realnode.Missing(); missing != "" {
		if os.Getenv("E2E") == "required" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	out := must.Get(os.Create(filepath.Join(t.TempDir(), "out")))(t)
	defer out.Close()
	folder := must.Get(os.MkdirTemp("", "demo-"))(t) //nolint:usetesting // that path would be too long for the kubelet's sockets
	t.Setenv("TMPDIR", folder)
	if enough != nil {
		go interrupt(t, out.Name(), enough)
	}
	failed := catching(append([]string{"--node", "real", "--bin", filepath.Join(controller.Root(), "bin", "k8s")}, more...), out)
	must.Fails(t, "what it has left", os.Remove(folder), "")
	said := must.Get(os.ReadFile(out.Name()))(t)
	return string(said), failed
}

// interrupt sends the signal of Ctrl-C when a file has enough in it.
func interrupt(t *testing.T, file string, enough func(string) bool) {
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		said, err := os.ReadFile(file)
		return enough(string(said)), err
	})
	if err == nil {
		time.Sleep(300 * time.Millisecond) // into the middle of it
		err = syscall.Kill(os.Getpid(), syscall.SIGINT)
	}
	must.Fails(t, "the interrupt", err, "")
}
