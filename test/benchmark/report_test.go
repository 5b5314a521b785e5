package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// TestPage checks that docs/performance.md says what was measured, and nothing else.
func TestPage(t *testing.T) {
	docs := filepath.Join(controller.Root(), "docs")
	r, err := load(filepath.Join(docs, "performance.json"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(docs, "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	if want, err := r.fillIn(string(page)); err != nil || want != string(page) {
		t.Errorf("docs/performance.md is not what `make bench-report` makes: %v", err)
	}
}
