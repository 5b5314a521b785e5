// Command mutants takes the safeties out of the product, one at a time, and shows that each of
// them is missed: in random worlds (test/worlds), or in a test where those get there too rarely.
// It prints a table as Markdown, and fails if a mutant survives.
//
//	mutants --only live-read,capacity
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/process"
)

func main() { process.Main("mutants", run) }

func run(ctx context.Context) error {
	only := flag.String("only", "", "names of mutants, with commas in between; empty means all")
	seed := flag.Uint64("seed", 0, "of the first world, instead of the mutants' own; no tests are run then")
	worlds := flag.Int("worlds", 40, "how many worlds are played at most")
	flag.Parse()
	root, err := controlplane.ModuleRoot()
	if err != nil {
		return err
	}
	chosen := mutants
	if *only != "" {
		names := strings.Split(*only, ",")
		chosen = slices.DeleteFunc(slices.Clone(mutants), func(m mutant) bool { return !slices.Contains(names, m.name) })
		if len(chosen) != len(names) {
			return fmt.Errorf("not all of %s are mutants", *only)
		}
	}
	var survivors []string
	rows := []string{"| safety | without it | in random worlds | in tests |", "|---|---|---|---|"}
	for _, m := range chosen {
		if *seed != 0 {
			m.scenario = scenario{seed: *seed}
		}
		f, err := m.find(ctx, root, *worlds, os.Stderr)
		if err != nil {
			return fmt.Errorf("mutant %s: %w", m.name, err)
		}
		if !f.found {
			survivors = append(survivors, m.name)
		}
		row := fmt.Sprintf("| %s | %s | %s | %s |", m.safety, m.words, f.worlds, f.tests)
		fmt.Fprintln(os.Stderr, row)
		rows = append(rows, row)
	}
	fmt.Println(strings.Join(rows, "\n"))
	if len(survivors) > 0 {
		return fmt.Errorf("these survive: %s", strings.Join(survivors, ", "))
	}
	return nil
}

// finding says how a mutant was found.
type finding struct {
	found         bool
	worlds, tests string
}

// find makes a mutant of the module, and plays its scenario.
func (m mutant) find(ctx context.Context, root string, worlds int, log io.Writer) (f finding, err error) {
	dir, err := os.MkdirTemp("", "mutant-"+m.name+"-")
	if err != nil {
		return f, fmt.Errorf("making a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := copyModule(ctx, root, dir); err != nil {
		return f, err
	}
	if err := m.apply(dir); err != nil {
		return f, err
	}
	if out, err := command(ctx, dir, log, "go", "build", "-o", "bin/", "./cmd/inplace-rollout"); err != nil {
		return f, fmt.Errorf("building: %w\n%s", err, out)
	}
	if m.tests != "" {
		if err := m.findByTests(ctx, dir, &f, log); err != nil {
			return f, err
		}
	}
	if m.seed != 0 {
		if err := m.findInWorlds(ctx, dir, worlds, &f, log); err != nil {
			return f, err
		}
	}
	return f, nil
}

// copyModule copies what git knows of the module, and links what was built of Kubernetes.
func copyModule(ctx context.Context, root, dir string) error {
	files, err := command(ctx, root, io.Discard, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return fmt.Errorf("listing the module: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(files, "\x00"), "\x00") {
		if err := copyFile(filepath.Join(root, name), filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("copying the module: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		return fmt.Errorf("copying the module: %w", err)
	}
	if err := os.Symlink(filepath.Join(root, "bin", "k8s"), filepath.Join(dir, "bin", "k8s")); err != nil {
		return fmt.Errorf("linking the Kubernetes binaries: %w", err)
	}
	return os.Symlink("inplace-rollout", filepath.Join(dir, "bin", "kubectl-inplace_rollout"))
}

// copyFile copies a file, or a link as a link; nothing if it was deleted, and that is not committed.
func copyFile(from, to string) error {
	info, err := os.Lstat(from)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if info.Mode()&os.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}

// command runs a program in a folder, and returns what it prints. log sees it, too.
func command(ctx context.Context, dir string, log io.Writer, name string, args ...string) (string, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it ends what it has started
	cmd.Dir, cmd.Stdout = dir, io.MultiWriter(&out, log)
	cmd.Stderr = cmd.Stdout
	err := cmd.Run()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return out.String(), err
}

// findByTests runs the scenario's tests, one of which must fail.
func (m mutant) findByTests(ctx context.Context, dir string, f *finding, log io.Writer) error {
	pattern := "^" + strings.ReplaceAll(m.tests, "/", "$/^") + "$"
	out, err := command(ctx, dir, log, "go", "test", "-tags", "integration", cmp.Or(m.testsOf, "./test/integration"), "-count=1", "-v", "-run", pattern)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	failed := regexp.MustCompile(`(?m)^ *--- FAIL: (.*) \(`).FindAllStringSubmatch(out, -1)
	if err != nil && failed == nil {
		return fmt.Errorf("running %s: %w", m.tests, err)
	}
	if err == nil && !strings.Contains(out, "--- PASS: ") {
		return fmt.Errorf("there is no test %s", m.tests)
	}
	f.tests = "`" + m.tests + "` passes"
	if failed != nil {
		f.found = true
		f.tests = "`" + failed[len(failed)-1][1] + "`"
	}
	return nil
}

// findInWorlds plays worlds, ten at a time, until a promise is broken.
func (m mutant) findInWorlds(ctx context.Context, dir string, most int, f *finding, log io.Writer) error {
	const atOnce = 10
	if out, err := command(ctx, dir, log, "go", "build", "-o", "bin/", "./test/worlds"); err != nil {
		return fmt.Errorf("building: %w\n%s", err, out)
	}
	edits := 0
	for worlds := atOnce; worlds <= most; worlds += atOnce {
		seed := m.seed + uint64(worlds-atOnce)
		out, err := command(ctx, dir, log, "bin/worlds", "run", "--seed", fmt.Sprint(seed), "--worlds", fmt.Sprint(atOnce))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		edits += number(firstOf(out, regexp.MustCompile(`(?m)^edits +(\d+)`)))
		if err != nil {
			if !strings.Contains(out, "promises were broken") {
				return fmt.Errorf("playing worlds: %w", err)
			}
			f.found = true
			f.worlds = fmt.Sprintf("seed %s breaks *%s* (%d worlds, %d edits)", firstOf(out, regexp.MustCompile(`(?m)^world (\d+) `)),
				firstOf(out, regexp.MustCompile(`(?m)^  [0-9:.]+ ([a-z ]+):`)), worlds, edits)
			return nil
		}
		f.worlds = fmt.Sprintf("not in %d worlds from seed %d, %d edits", worlds, m.seed, edits)
	}
	return nil
}

// firstOf returns what the pattern's group matches first.
func firstOf(text string, pattern *regexp.Regexp) string {
	if match := pattern.FindStringSubmatch(text); match != nil {
		return match[1]
	}
	return ""
}

func number(text string) int {
	var n int
	_, _ = fmt.Sscan(text, &n) // nothing is 0
	return n
}
