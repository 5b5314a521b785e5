package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/tally"
)

// TestParts: each package of tests belongs to a part; and make has each target.
func TestParts(t *testing.T) {
	root := must.Get(controlplane.ModuleRoot())(t)
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
		dry := exec.CommandContext(t.Context(), "make", append([]string{"--dry-run"}, p.make...)...)
		dry.Dir = root
		if out, _ := dry.CombinedOutput(); strings.Contains(string(out), "No rule to make") {
			t.Errorf("%s: %s", p.name, out)
		}
	}
	if sorted := slices.Sorted(slices.Values(names)); len(slices.Compact(sorted)) != len(names) {
		t.Errorf("a name stands twice: %v", sorted)
	}
	files := must.Get(filepath.Glob(filepath.Join(root, "test", "*", "*_test.go")))(t)
	for _, file := range files {
		source := must.Get(os.ReadFile(file))(t)
		folder := must.Get(filepath.Rel(filepath.Join(root, "test"), filepath.Dir(file)))(t)
		tag, _, _ := strings.Cut(string(source), "\n")
		if strings.HasPrefix(tag, "//go:build") && strings.Contains(tag, "around") && !slices.Contains(names, "around/"+folder) {
			t.Errorf("no part runs %s", file)
		}
	}
}

// TestProves: a part counts until something that it is built from changes.
func TestProves(t *testing.T) {
	root := t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	write := func(name string) {
		t.Helper()
		must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(root, name), []byte(t.Name()+name), 0o600))
		git("add", "--all")
		git("commit", "--quiet", "--message", name)
	}
	git("init", "--quiet")
	write("go.mod")
	p := part{name: "release", beside: []string{"CHANGELOG.md"}}
	l := ledger{filepath.Join(root, "ledger.json"), map[string]outcome{}}
	proves := func() bool {
		t.Helper()
		again := must.Get(readLedger(l.file))(t)
		return must.Get(again.proves(context.Background(), root, p))(t)
	}
	if proves() {
		t.Error("what has never run counts")
	}
	commit := must.Get(head(t.Context(), root))(t)
	if err := l.enter(p.name, outcome{Commit: commit}); err != nil || proves() {
		t.Errorf("what has failed counts: %v", err)
	}
	git("add", "--all")
	git("commit", "--quiet", "--message", "ledger")
	if err := l.enter(p.name, outcome{Commit: commit, OK: true}); err != nil || !proves() {
		t.Errorf("what has passed does not count: %v", err)
	}
	if _, err := head(t.Context(), root); err == nil {
		t.Error("a part passes at a commit that does not have a change")
	}
	write("docs/use.md")
	write("pkg/a/a_test.go")
	if !proves() {
		t.Error("a change elsewhere counts, or one of the tests of others")
	}
	write("CHANGELOG.md")
	if proves() {
		t.Error("a change of what it is built from does not count")
	}
	if err := l.enter(p.name, outcome{Commit: "0123456789ab", OK: true}); err != nil || proves() {
		t.Errorf("a commit that is gone counts: %v", err)
	}
	p.pure = true
	must.Do(t, l.enter(p.name, outcome{Commit: git("rev-parse", "HEAD"), OK: true}))
	if write("cmd/main.go"); !proves() {
		t.Error("of a part that is pure, a change of a command counts")
	}
}

// TestTally counts tests by what `go test -v` prints, wherever it is cut.
func TestTally(t *testing.T) {
	var got tally.Tests
	for _, piece := range []string{"=== RUN TestA\n    --- PA", "SS: TestA/b (0.1s)\n    --- SKIP: TestA/c (0s)\n--- PASS: TestA (0.1s)\n--- FAIL: TestC (2s)\nok --- PASS:\n"} {
		must.Get(got.Write([]byte(piece)))(t)
	}
	if got.Passed != 2 || got.Skipped != 1 || got.Failed != 1 {
		t.Errorf("%+v", got)
	}
}

func TestChoose(t *testing.T) {
	for only, want := range map[string]int{"": len(parts), "lint": 1, "around/docs,matrix/1.36": 4, "around": 10} {
		if got, err := choose(only); err != nil || len(got) != want {
			t.Errorf("%q: %d parts, %v", only, len(got), err)
		}
	}
	if _, err := choose("everything"); err == nil {
		t.Error("an unknown part is none")
	}
}

// What is chosen of the parts chooses nothing in a part.
func TestCommand(t *testing.T) {
	t.Setenv("MAKEFLAGS", " -- ONLY=mutants")
	root := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(root, "Makefile"), []byte("show:\n\t@echo only $(ONLY).\n"), 0o600))
	for only, want := range map[string]string{"": "only .", "ONLY=./test/docs": "only ./test/docs."} {
		out, err := part{make: strings.Fields("show " + only)}.command(t.Context(), root).Output()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("with %q: got %q and %v, want %q", only, out, err, want)
		}
	}
}
