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
	"github.com/inplace-rollout/inplace-rollout/test/matrix/cell"
	"github.com/inplace-rollout/inplace-rollout/test/tally"
)

// simulatedKubelet is what the table says of the kubelets of [simulated] tests.
const simulatedKubelet = "simulated"

// simulated are the tests of rollouts on simulated nodes: the hold in every shape, and for each kind live
// resizes, restarts, what people do meanwhile, and what they are told.
var simulated = []string{
	"TestHold", "TestCreate", ".*RestoredFromABackup", "TestTable", "TestResize", "TestUndo", "TestPartition", "TestOptIn",
	"TestOptOut", "TestPod", "TestHandover", "TestInvalid", "TestUnsupported",
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
func tests(c cell.Cell, short bool) (packages []string, tag string, names []string) {
	if c.Kubelet != "" {
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
func test(ctx context.Context, root string, c cell.Cell, short bool) (result, error) {
	packages, tag, names := tests(c, short)
	fmt.Printf("=== %s\n", c.Name())
	cmd := exec.CommandContext(ctx, "go", append([]string{
		"test", "-v", "-tags", tag, "-count=1", "-timeout=60m", "-p=1", "-parallel=16", "-run", "^(" + strings.Join(names, "|") + ")",
	}, packages...)...)
	cmd.Dir = root
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(), "KUBERNETES="+folder(c.Version), "HOLD="+c.Hold, "KUBELET="+folder(c.Kubelet), "E2E=required")
	if c.Narrowed {
		cmd.Env = append(cmd.Env, "NARROWED=true")
	}
	var r result
	cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, &r.Tests), os.Stderr
	err := cmd.Run()
	if err == nil && r.Passed == 0 {
		err = fmt.Errorf("no test of %s has run", strings.Join(packages, " and "))
	}
	fmt.Printf("=== %s: %d passed, %d not applicable, %d failed\n", c.Name(), r.Passed, r.Skipped, r.Failed)
	r.kubernetes, r.kubelet = versionOf(ctx, root, c.Version, "kube-apiserver"), simulatedKubelet
	if c.Kubelet != "" {
		r.kubelet = versionOf(ctx, root, c.Kubelet, "kubelet")
	}
	return r, err
}

// folder is the version as the control plane wants it: of the newest, nothing.
func folder(version string) string {
	if version == cell.Newest {
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
func enter(page string, c cell.Cell, r result) error {
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
func fill(old string, c cell.Cell, r result) string {
	rows := map[string]string{}
	for line := range strings.Lines(old) {
		if name, _, is := strings.Cut(strings.TrimPrefix(line, "| `"), "` |"); is {
			rows[name] = line
		}
	}
	rows[c.Name()] = fmt.Sprintf("| `%s` | %s | %s | %d | %d | %d |\n", c.Name(), r.kubernetes, r.kubelet, r.Passed, r.Skipped, r.Failed)
	var table strings.Builder
	table.WriteString(head)
	for _, c := range cell.All {
		row, is := rows[c.Name()]
		if !is {
			row = fmt.Sprintf("| `%s` | %s | %s | not run | | |\n", c.Name(), c.Version, cmp.Or(c.Kubelet, simulatedKubelet))
		}
		table.WriteString(row)
	}
	return table.String()
}
