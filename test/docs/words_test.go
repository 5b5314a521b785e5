package docs

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// budgets say how many words each page may have. A page that needs more is two pages, or says something twice.
var budgets = map[string]int{
	"README.md": 905,

	// Use.
	"docs/use.md":               1200,
	"docs/guarded-rollouts.md":  985,
	"docs/initial-resources.md": 1100,

	// Install and operate.
	"docs/install.md":         1545,
	"docs/operations.md":      1720,
	"docs/gitops.md":          1350,
	"docs/operators.md":       1350,
	"docs/other-tools.md":     460,
	"docs/autoscalers.md":     1300,
	"docs/troubleshooting.md": 2400,

	// Reference.
	"docs/policies.md":      1570,
	"docs/monitoring.md":    1150,
	"docs/compatibility.md": 1000,
	"docs/stability.md":     350,
	"docs/roadmap.md":       350,

	// Explanation.
	"docs/how-it-works.md": 1500,
	"docs/reliability.md":  1100,
	"docs/performance.md":  650,
	"docs/estimates.md":    1300,
}

// allWords is how many all pages together may have: fewer than the sum of what each may.
const allWords = 22_405

// generated are written by the program, so nobody can shorten them.
var generated = []string{"docs/commands.md"}

// TestWords keeps the pages short.
func TestWords(t *testing.T) {
	sum, budgets := 0, maps.Clone(budgets)
	for _, p := range pages(t) {
		if slices.Contains(generated, p.file) {
			continue
		}
		text := must.Get(os.ReadFile(filepath.Join(controller.Root(), p.file)))(t)
		words := len(strings.Fields(string(text)))
		if budget, known := budgets[p.file]; !known || words > budget {
			t.Errorf("%s has %d words, and may have %d", p.file, words, budget)
		}
		delete(budgets, p.file)
		sum += words
	}
	if sum > allWords {
		t.Errorf("all pages have %d words, and may have %d", sum, allWords)
	}
	if len(budgets) > 0 {
		t.Errorf("pages have a budget of words, and are not there: %v", budgets)
	}
}
