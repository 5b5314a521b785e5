package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestPage checks that docs/performance.md says what was measured, and nothing else.
func TestPage(t *testing.T) {
	docs := filepath.Join(controller.Root(), "docs")
	r := must.Get(load(filepath.Join(docs, "performance.json")))(t)
	page := must.Get(os.ReadFile(filepath.Join(docs, "performance.md")))(t)
	if want, err := r.fillIn(string(page)); err != nil || want != string(page) {
		t.Errorf("docs/performance.md is not what `make bench-report` makes: %v", err)
	}
}
