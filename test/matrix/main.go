// Command matrix runs the same tests on every version of Kubernetes that is supported, in each way of
// holding rollouts that the version has, and with kubelets that are older than the API server. It
// writes what came of it into the table of docs/compatibility.md, and fails if a test does.
//
//	matrix --only 1.35/webhook
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/matrix/cell"
	"github.com/inplace-rollout/inplace-rollout/test/process"
)

func main() { process.Main("matrix", run) }

func run(ctx context.Context) error {
	only := flag.String("only", "", "names of cells, with commas in between; empty means all")
	flag.Parse()
	chosen := cell.All
	if *only != "" {
		names := strings.Split(*only, ",")
		chosen = slices.DeleteFunc(slices.Clone(cell.All), func(c cell.Cell) bool { return !slices.Contains(names, c.Name()) })
		if len(chosen) != len(names) {
			return fmt.Errorf("not all of %s are cells: %s", *only, allNames())
		}
	}
	root, err := controlplane.ModuleRoot()
	if err != nil {
		return err
	}
	var failed []error
	for _, c := range chosen {
		r, err := test(ctx, root, c, false)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", c.Name(), err))
		}
		if ctx.Err() != nil {
			break // it says nothing of the version
		}
		if r.Passed+r.Failed == 0 { // what did not even start says nothing
			continue
		}
		if err := enter(filepath.Join(root, "docs", "compatibility.md"), c, r); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

func allNames() string {
	var names []string
	for _, c := range cell.All {
		names = append(names, c.Name())
	}
	return strings.Join(names, ", ")
}
