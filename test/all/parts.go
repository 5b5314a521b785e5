package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// part is one of the things that `make test-all` proves: what one call of make runs.
type part struct {
	name string   // on the command line, and in the table
	make []string // the arguments
	// What its tests are built from: packages, with the tags that they are built with, and folders and files beside
	// those that every part is built from.
	packages []string
	tags     string
	beside   []string
}

// common is what every part is built from, beside the packages that its own import.
var common = []string{"go.mod", "go.sum", "Makefile", ".ci", "hack", "deploy", "cmd", "pkg", "test/controlplane"}

// parts are all that there are, the shortest first: whoever resumes wants to know soon. The gate is the first one.
var parts = slices.Concat(
	[]part{
		{name: "test", make: []string{"test"}, packages: []string{"./..."}, tags: "integration"},
		{name: "lint", make: []string{"lint"}, packages: []string{"./..."}, tags: "integration,around,e2e"},
		{name: "room", make: []string{"scheduler-oracle"}, packages: []string{"./pkg/capacity", "./pkg/resize", "./pkg/judge", "./pkg/rollout"}, beside: []string{"test/scheduler"}},
		{name: "fuzz", make: []string{"fuzz"}, packages: []string{"./deploy", "./pkg/..."}},
		{name: "release", make: []string{"release-check"}, beside: []string{"CHANGELOG.md"}},
		{name: "e2e", make: []string{"e2e", "E2E=required"}, packages: []string{"./test/e2e", "./test/demo"}, tags: "e2e"},
		{name: "e2e-cgroup-v2", make: []string{"e2e-cgroup-v2", "E2E=required"}, packages: []string{"./test/e2e"}, tags: "e2e"},
	},
	around("benchmark", "controlplane", "prometheus", "initialresources/admission", "initialresources/estimator", "hold", "gates", "chart", "docs", "worlds", "matrix", "integration"),
	[]part{
		{name: "former", make: []string{"former"}, packages: []string{"./pkg/statefulset", "./pkg/deployment", "./pkg/daemonset"}},
		{name: "simulations", make: []string{"simulations"}, packages: []string{"./pkg/statefulset", "./pkg/deployment", "./pkg/daemonset"}},
		{name: "soak", make: []string{"soak"}, packages: []string{"./test/worlds"}},
		{name: "mutants", make: []string{"mutants"}, packages: []string{"./test/mutants", "./test/worlds", "./test/integration", "./test/simulated"}, tags: "integration"},
	},
	cells("1.37/webhook", "1.36/policy", "1.36/webhook", "1.35/webhook", "1.35/webhook-narrowed", "1.34/webhook"),
	cells("1.36/kubelet-1.36", "1.35/kubelet-1.35", "1.34/kubelet-1.34", "1.37/kubelet-1.36", "1.37/kubelet-1.35", "1.37/kubelet-1.34"),
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

// cells are the parts that are a cell of test/matrix.
func cells(names ...string) []part {
	var found []part
	for _, name := range names {
		found = append(found, part{name: "matrix/" + name, make: []string{"matrix", "ONLY=" + name}, packages: []string{"./test/matrix", "./test/integration", "./test/e2e"}, tags: "integration,around,e2e"})
	}
	return found
}

// paths are the folders and files of the module that the part is built from.
func (p part) paths(root string) ([]string, error) {
	found := slices.Concat(common, p.beside)
	if len(p.packages) == 0 {
		return found, nil
	}
	list := exec.Command("go", append([]string{"list", "-deps", "-test", "-tags", p.tags, "-f", "{{if .Module}}{{if .Module.Main}}{{.Dir}}{{end}}{{end}}"}, p.packages...)...)
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing what %s is built from: %w", p.name, err)
	}
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
