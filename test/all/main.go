// Command all runs everything that proves the product, one part after the other, and prints a table of them.
//
//	all --only around/docs,matrix/1.36/policy
//
// It takes longer than one sitting. So it notes in test/passed.json at which commit a part has passed, and does not run it
// again as long as nothing that it is built from has changed since. That file is committed: whoever goes on elsewhere, or asks
// what proves a commit, finds it there. What a part prints is in bin/test-all/.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/process"
	"github.com/inplace-rollout/inplace-rollout/test/tally"
)

func main() { process.Main("all", run) }

func run(ctx context.Context) error {
	only := flag.String("only", "", "names of parts, or what they begin with, with commas in between; empty means all")
	list := flag.Bool("list", false, "print the table, and run nothing")
	flag.Parse()
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	root, err := controlplane.ModuleRoot()
	if err != nil {
		return err
	}
	past, err := readLedger(filepath.Join(root, ledgerFile))
	if err != nil {
		return err
	}
	var failed, open []string
	for _, p := range chosen {
		proved, err := past.proves(ctx, root, p)
		if err != nil {
			return err
		}
		if !proved && !*list && ctx.Err() == nil {
			o, err := p.run(ctx, root)
			if err != nil {
				return err
			}
			if ctx.Err() != nil { // it says nothing of the part
				open = append(open, p.name)
				continue
			}
			if err := past.enter(p.name, o); err != nil {
				return err
			}
			if proved = o.OK; !o.OK {
				failed = append(failed, p.name)
			}
		}
		if !proved && !slices.Contains(failed, p.name) {
			open = append(open, p.name)
		}
	}
	fmt.Print(past.table(chosen, open))
	switch {
	case len(failed) > 0:
		return fmt.Errorf("these have failed: %s", strings.Join(failed, ", "))
	case len(open) > 0 && !*list:
		return fmt.Errorf("these are still to be run: %s", strings.Join(open, ", "))
	}
	return nil
}

// choose returns the parts of these names.
func choose(only string) ([]part, error) {
	if only == "" {
		return parts, nil
	}
	var chosen []part
	for name := range strings.SplitSeq(only, ",") {
		n := len(chosen)
		for _, p := range parts {
			if p.name == name || strings.HasPrefix(p.name, name+"/") {
				chosen = append(chosen, p)
			}
		}
		if len(chosen) == n {
			names := make([]string, 0, len(parts))
			for _, p := range parts {
				names = append(names, p.name)
			}
			return nil, fmt.Errorf("%q is not a part: %s", name, strings.Join(names, ", "))
		}
	}
	return chosen, nil
}

// run runs the part, and says what came of it.
func (p part) run(ctx context.Context, root string) (outcome, error) {
	commit, err := head(ctx, root)
	if err != nil {
		return outcome{}, err
	}
	file := filepath.Join(root, "bin", "test-all", strings.ReplaceAll(p.name, "/", "-")+".log")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return outcome{}, fmt.Errorf("making a folder for logs: %w", err)
	}
	log, err := os.Create(file)
	if err != nil {
		return outcome{}, fmt.Errorf("creating a log: %w", err)
	}
	defer log.Close()
	fmt.Fprintf(os.Stderr, "=== %s: make %s\n", p.name, strings.Join(p.make, " "))
	var tests tally.Tests
	cmd := p.command(ctx, root)
	cmd.Stdout, cmd.Stderr = io.MultiWriter(log, &tests), log
	began := time.Now()
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return outcome{}, fmt.Errorf("running make: %w", err)
	}
	o := outcome{Commit: commit, Minutes: math.Round(10*time.Since(began).Minutes()) / 10, Passed: tests.Passed, Failed: tests.Failed, OK: err == nil}
	fmt.Fprintf(os.Stderr, "--- %s: %s, %.1f min, see %s\n", p.name, o.word(), o.Minutes, file)
	return o, nil
}

// head is the commit that is checked out. What is not committed could not be told later, so there must be no such change, but of what
// is written here: the ledger, and the page of the matrix.
func head(ctx context.Context, root string) (string, error) {
	for _, args := range [][]string{{"status", "--porcelain", "--", ".", ":!docs/compatibility.md", ":!" + ledgerFile}, {"rev-parse", "--short=12", "HEAD"}} {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = root
		out, err := cmd.Output()
		switch {
		case err != nil:
			return "", fmt.Errorf("asking git for the commit: %w", err)
		case args[0] == "status" && len(out) > 0:
			return "", fmt.Errorf("a part passes at a commit, so commit first:\n%s", out)
		case args[0] == "rev-parse":
			return strings.TrimSpace(string(out)), nil
		}
	}
	return "", errors.New("no commit")
}

// command calls make. It gets the variables of the make that has called us: ONLY of `make test-all` has the names of parts, and a part that
// has an ONLY of its own would find none of them.
func (p part) command(ctx context.Context, root string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "make", append([]string{"ONLY="}, p.make...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -v"))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	return cmd
}
