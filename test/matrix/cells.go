package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/tally"
)

// newest is the version of bin/k8s, which needs no name.
const newest = "1.37"

// simulatedKubelet is what the table says of the kubelets of [simulated] tests.
const simulatedKubelet = "simulated"

// cell is a control plane with a way of holding rollouts, or with a kubelet: what the tests run on.
type cell struct {
	version, hold string
	kubelet       string // simulated ones if empty
	narrowed      bool   // the namespaceSelector of the webhooks, as by AKS
}

// cells are all that are tested. Kubelets may be three minor versions older than the API server.
var cells = []cell{
	{version: "1.37", hold: "policy"},
	{version: "1.37", hold: "webhook"},
	{version: "1.36", hold: "policy"},
	{version: "1.36", hold: "webhook"},
	{version: "1.35", hold: "webhook"},
	{version: "1.35", hold: "webhook", narrowed: true},
	{version: "1.34", hold: "webhook"},
	{version: "1.36", kubelet: "1.36"},
	{version: "1.35", kubelet: "1.35"},
	{version: "1.34", kubelet: "1.34"},
	{version: "1.37", kubelet: "1.36"},
	{version: "1.37", kubelet: "1.35"},
	{version: "1.37", kubelet: "1.34"},
}

// name is what --only says, and the table.
func (c cell) name() string {
	if c.kubelet != "" {
		return c.version + "/kubelet-" + c.kubelet
	}
	if c.narrowed {
		return c.version + "/" + c.hold + "-narrowed"
	}
	return c.version + "/" + c.hold
}

// simulated are the tests of rollouts on simulated nodes: the hold in every shape, and for each kind live
// resizes, restarts, what people do meanwhile, and what they are told.
var simulated = []string{
	"TestHold", "TestCreate", ".*RestoredFromABackup", "TestTable", "TestResize", "TestUndo", "TestPartition", "TestOptIn",
	"TestOptOut", "TestPod", "TestHandover", "TestInvalid", "TestInjected", "TestUnsupported",
	"TestNoNodeFits", "TestFlow$", "TestAbandoned", "TestDeployment", "TestDaemonSet", "TestClasses",
	"TestAnnotations", "TestWarn", "TestFence", "TestResizeRight", "TestWebhook", "TestCommand[^s]", "TestRetry", "TestReapplies",
}

// shortly are those of them in which versions differ most.
var shortly = []string{
	"TestHold", "TestTable$", "TestResize", "TestCommandPlan$", "TestUnsupported", "TestDeployment$", "TestDaemonSet$", "TestWarn",
	"TestAnnotations", "TestFence$",
}

// estimates are those of initial resources; its table has a name that is in both lists.
var estimates = []string{"TestRules$", "TestAskedAgain$", "TestLater$", "TestWorkloads$", "TestManyContainers$", "TestValues$", "TestOlderValues$", "TestLabelOfTables$"}

// real are those on a real node: cpu and memory up and down, for each kind.
var real = []string{"TestEdits$"}

// tests are the packages of a cell's tests, the tag that they are built with, and the names.
func (c cell) tests(short bool) (packages []string, tag string, names []string) {
	if c.kubelet != "" {
		return []string{"./test/e2e"}, "e2e", real
	}
	names = simulated
	if short {
		names = shortly
	}
	return []string{"./test/integration", "./initialresources/test/admission"}, "integration,around", slices.Concat(names, estimates)
}

// result is what became of a cell's tests.
type result struct {
	kubernetes, kubelet string
	tally.Tests
}

// run runs the cell's tests.
func (c cell) run(ctx context.Context, root string, short bool) (result, error) {
	packages, tag, names := c.tests(short)
	fmt.Printf("=== %s\n", c.name())
	cmd := exec.CommandContext(ctx, "go", append([]string{
		"test", "-v", "-tags", tag, "-count=1", "-timeout=60m", "-p=1", "-parallel=16", "-run", "^(" + strings.Join(names, "|") + ")",
	}, packages...)...)
	cmd.Dir = root
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(), "KUBERNETES="+folder(c.version), "HOLD="+c.hold, "KUBELET="+folder(c.kubelet), "E2E=required")
	if c.narrowed {
		cmd.Env = append(cmd.Env, "NARROWED=true")
	}
	var r result
	cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, &r.Tests), os.Stderr
	err := cmd.Run()
	if err == nil && r.Passed == 0 {
		err = fmt.Errorf("no test of %s has run", strings.Join(packages, " and "))
	}
	fmt.Printf("=== %s: %d passed, %d not applicable, %d failed\n", c.name(), r.Passed, r.Skipped, r.Failed)
	r.kubernetes, r.kubelet = versionOf(ctx, root, c.version, "kube-apiserver"), simulatedKubelet
	if c.kubelet != "" {
		r.kubelet = versionOf(ctx, root, c.kubelet, "kubelet")
	}
	return r, err
}

// folder is the version as the control plane wants it: of the newest, nothing.
func folder(version string) string {
	if version == newest {
		return ""
	}
	return version
}

// versionOf is what a binary says of itself, such as 1.35.4.
func versionOf(ctx context.Context, root, version, name string) string {
	out, err := exec.CommandContext(ctx, controlplane.BinaryOf(filepath.Join(root, "bin", "k8s"), folder(version), name), "--version").Output()
	if err != nil {
		return version
	}
	return strings.TrimPrefix(strings.TrimSpace(string(out)), "Kubernetes v")
}

// place is where the table is: it replaces what stands there.
var place = regexp.MustCompile(`(?s)(<!-- matrix -->\n)(.*?)(<!-- end -->)`)

const head = "| `ONLY=` | Kubernetes | kubelet | passed | not applicable | failed |\n|---|---|---|---:|---:|---:|\n"

// enter writes the result of a cell into the page.
func enter(page string, c cell, r result) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("reading the page: %w", err)
	}
	if !place.Match(text) {
		return fmt.Errorf("%s has no place for the table: %s", page, place)
	}
	filled := place.ReplaceAllStringFunc(string(text), func(old string) string {
		parts := place.FindStringSubmatch(old)
		return parts[1] + "\n" + fill(parts[2], c, r) + "\n" + parts[3]
	})
	if err := os.WriteFile(page, []byte(filled), 0o644); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

// fill returns the table with a row for each cell: c's is new, and the others' stay, if there are any.
func fill(old string, c cell, r result) string {
	rows := map[string]string{}
	for line := range strings.Lines(old) {
		if name, _, is := strings.Cut(strings.TrimPrefix(line, "| `"), "` |"); is {
			rows[name] = line
		}
	}
	rows[c.name()] = fmt.Sprintf("| `%s` | %s | %s | %d | %d | %d |\n", c.name(), r.kubernetes, r.kubelet, r.Passed, r.Skipped, r.Failed)
	var table strings.Builder
	table.WriteString(head)
	for _, c := range cells {
		row, is := rows[c.name()]
		if !is {
			row = fmt.Sprintf("| `%s` | %s | %s | not run | | |\n", c.name(), c.version, cmp.Or(c.kubelet, simulatedKubelet))
		}
		table.WriteString(row)
	}
	return table.String()
}
