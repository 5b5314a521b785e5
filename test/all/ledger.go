package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/inplace-rollout/inplace-rollout/test/matrix/cell"
)

// ledgerFile is where the outcomes are kept. No part is built from it.
const ledgerFile = "test/passed.json"

// outcome is what came of the last run of a part.
type outcome struct {
	Commit  string  `json:"commit"`
	Minutes float64 `json:"minutes"`
	Passed  int     `json:"passed"` // tests, those within tests too
	Failed  int     `json:"failed"`
	OK      bool    `json:"ok"`
}

func (o outcome) word() string {
	if o.OK {
		return "passed"
	}
	return "failed"
}

// ledger has the outcomes by the names of parts.
type ledger struct {
	file     string
	outcomes map[string]outcome
}

func readLedger(file string) (ledger, error) {
	l := ledger{file, map[string]outcome{}}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &l.outcomes)
	}
	if err != nil {
		return l, fmt.Errorf("reading what has passed: %w", err)
	}
	return l, nil
}

// enter notes what came of a part, at once: the rest may be cut off.
func (l ledger) enter(name string, o outcome) error {
	l.outcomes[name] = o
	data, err := json.MarshalIndent(l.outcomes, "", "  ")
	if err == nil {
		err = os.WriteFile(l.file, append(data, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("noting what has passed: %w", err)
	}
	return nil
}

// proves reports whether the part has passed, and nothing that it is built from has changed since.
func (l ledger) proves(ctx context.Context, root string, p part) (bool, error) {
	o, has := l.outcomes[p.name]
	if !has || !o.OK {
		return false, nil
	}
	paths, err := p.paths(root)
	if err != nil {
		return false, err
	}
	for _, of := range paths {
		diff := exec.CommandContext(ctx, "git", append([]string{"diff", "--quiet", o.Commit, "--"}, of...)...)
		diff.Dir = root
		err = diff.Run()
		var exit *exec.ExitError
		if errors.As(err, &exit) { // something has changed, or the commit is gone
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("asking git for changes: %w", err)
		}
	}
	return true, nil
}

// table has a line for each part. Those that are open have not passed at what is checked out.
func (l ledger) table(chosen []part, open []string) string {
	var lines, out strings.Builder
	lines.WriteString("PART\tRESULT\tAT\tMINUTES\tPASSED\tFAILED\n")
	isOpen := map[string]bool{}
	for _, name := range open {
		isOpen[name] = true
	}
	for _, p := range chosen {
		o, has := l.outcomes[p.name]
		switch {
		case !has:
			lines.WriteString(p.name + "\tnot run\t\t\t\t\n")
			continue
		case isOpen[p.name] && o.OK:
			lines.WriteString(p.name + "\tpassed before a change\t")
		default:
			lines.WriteString(p.name + "\t" + o.word() + "\t")
		}
		_, _ = fmt.Fprintf(&lines, "%s\t%.1f\t%d\t%d\n", o.Commit, o.Minutes, o.Passed, o.Failed)
	}
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	_, _ = io.WriteString(w, lines.String())
	_ = w.Flush()
	return out.String()
}

// part is one of the things that `make test-all` proves: what one call of make runs.
type part struct {
	name string   // on the command line, and in the table
	make []string // the arguments
	// What its tests are built from: packages, with the tags that they are built with, and folders and files beside
	// those that every part is built from.
	packages []string
	tags     string
	beside   []string
	pure     bool // nothing runs but the tests
}

// common is what every part runs that is not pure, beside the packages that its own import.
var common = []string{"go.mod", "go.sum", "Makefile", ".ci", "hack", "deploy", "cmd", "initialresources", "pkg", "test/controlplane"}

// parts are all that there are, the shortest first: whoever resumes wants to know soon. The gate is the first one.
var parts = slices.Concat(
	[]part{
		{name: "test", make: []string{"test"}, packages: []string{"./..."}, tags: "integration"},
		{name: "lint", make: []string{"lint"}, packages: []string{"./..."}, tags: "integration,around,e2e"},
		{name: "room", make: []string{"scheduler-oracle"}, packages: []string{"./pkg/capacity", "./pkg/resize", "./pkg/judge", "./pkg/rollout"}, beside: []string{"test/scheduler"}, pure: true},
		{name: "fuzz", make: []string{"fuzz"}, packages: []string{"./deploy", "./initialresources/...", "./pkg/..."}, pure: true},
		{name: "release", make: []string{"release-check"}, beside: []string{"CHANGELOG.md"}},
		{name: "e2e", make: []string{"e2e", "E2E=required"}, packages: []string{"./test/e2e", "./test/demo"}, tags: "e2e"},
		{name: "e2e-cgroup-v2", make: []string{"e2e-cgroup-v2", "E2E=required"}, packages: []string{"./test/e2e"}, tags: "e2e"},
	},
	around("benchmark", "controlplane", "prometheus", "hold", "gates", "chart", "docs", "worlds", "matrix", "integration"),
	simulations("statefulset", "deployment", "daemonset"),
	[]part{
		{name: "initial-resources", make: []string{"initial-resources"}, packages: []string{"./initialresources/..."}, tags: "integration,around"},
		{name: "soak", make: []string{"soak", "WORLDS=40"}, packages: []string{"./test/worlds"}},
		{name: "mutants", make: []string{"mutants"}, packages: []string{"./test/mutants", "./test/worlds", "./test/integration", "./test/simulated"}, tags: "integration"},
	},
	cells(),
)

// around are the parts that are a package of tests beside other tools, an older version, or with much time.
func around(folders ...string) []part {
	var found []part
	for _, folder := range folders {
		p := part{name: "around/" + folder, make: []string{"around", "ONLY=./test/" + folder}, packages: []string{"./test/" + folder}, tags: "around"}
		if folder == "docs" {
			p.beside = []string{"README.md", "CONTRIBUTING.md", "docs"}
		}
		found = append(found, p)
	}
	return found
}

// simulations are the parts that simulate one kind.
func simulations(kinds ...string) []part {
	var found []part
	for _, kind := range kinds {
		found = append(found, part{name: "simulations/" + kind, make: []string{"simulations", "ONLY=" + kind, "SIMULATIONS=5"}, packages: []string{"./pkg/" + kind}, pure: true})
	}
	return found
}

// cells are the parts that are a cell of test/matrix; the first one is the gate's.
func cells() []part {
	var found []part
	for _, c := range cell.All[1:] {
		found = append(found, part{name: "matrix/" + c.Name(), make: []string{"matrix", "ONLY=" + c.Name()}, packages: []string{"./test/matrix", "./test/integration", "./test/e2e"}, tags: "integration,around,e2e"})
	}
	return found
}

// paths are the folders and files of the module that the part is built from, for git: first its own, and then those of what it runs and
// imports, but for their tests.
func (p part) paths(root string) (paths [2][]string, err error) {
	own, err := p.folders(root)
	if err != nil {
		return paths, err
	}
	imports, err := p.folders(root, "-deps", "-test")
	if err != nil {
		return paths, err
	}
	tests := []string{":(exclude,glob)**/*_test.go", ":(exclude,glob)**/testdata/**"}
	if p.pure {
		return [2][]string{append(own, "go.mod", "go.sum", "Makefile"), append(imports, tests...)}, nil
	}
	return [2][]string{append(own, "go.mod"), slices.Concat(common, imports, tests)}, nil
}

// folders are those of the part's packages, and what is beside them; how says of which other packages, too.
func (p part) folders(root string, how ...string) ([]string, error) {
	if len(p.packages) == 0 {
		return slices.Clone(p.beside), nil
	}
	list := exec.Command("go", slices.Concat([]string{"list"}, how, []string{"-tags", p.tags, "-f", "{{if .Module}}{{if .Module.Main}}{{.Dir}}{{end}}{{end}}"}, p.packages)...)
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing what %s is built from: %w", p.name, err)
	}
	found := slices.Clone(p.beside)
	for dir := range strings.FieldsSeq(string(out)) {
		path, err := filepath.Rel(root, dir)
		if err != nil {
			return nil, fmt.Errorf("listing what %s is built from: %w", p.name, err)
		}
		found = append(found, path)
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}
