//go:build around

package main

import (
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/matrix/cell"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestRow runs the tests in which versions differ most, in one row of the matrix. It alone proves, until somebody runs all
// of it, that another version than the newest still works.
func TestRow(t *testing.T) {
	root := must.Get(controlplane.ModuleRoot())(t)
	must.Get(test(t.Context(), root, cell.Cell{Version: "1.35", Hold: "webhook"}, true))(t)
}
