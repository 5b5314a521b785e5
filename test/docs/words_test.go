package docs

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// budgets say how many words each page may have. A page that needs more is two pages, or says something twice.
var budgets = map[string]int{
	"README.md": 900,

	// Use.
	"docs/use.md":               1200,
	"docs/guarded-rollouts.md":  950,
	"docs/initial-resources.md": 1100,

	// Install and operate.
	"docs/install.md":         1500,
	"docs/operations.md":      1600,
	"docs/gitops.md":          1050,
	"docs/operators.md":       1250,
	"docs/other-tools.md":     450,
	"docs/autoscalers.md":     1300,
	"docs/troubleshooting.md": 2250,

	// Reference.
	"docs/policies.md":      1500,
	"docs/monitoring.md":    1100,
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
const allWords = 21_400

// generated are written by the program, so nobody can shorten them.
var generated = []string{"docs/commands.md"}

// TestWords keeps the pages short.
func TestWords(t *testing.T) {
	words := map[string]int{}
	for _, p := range pages(t) {
		text, err := os.ReadFile(filepath.Join(controller.Root(), p.file))
		if err != nil {
			t.Fatal(err)
		}
		words[p.file] = len(strings.Fields(string(text)))
	}
	for _, problem := range tooLong(words, budgets, allWords) {
		t.Error(problem)
	}
}

// tooLong says which of these numbers of words are too large, by page and in all.
func tooLong(words, budgets map[string]int, all int) []string {
	var problems []string
	sum := 0
	for _, file := range slices.Sorted(maps.Keys(words)) {
		if slices.Contains(generated, file) {
			continue
		}
		sum += words[file]
		budget, known := budgets[file]
		switch {
		case !known:
			problems = append(problems, file+" has no budget of words")
		case words[file] > budget:
			problems = append(problems, fmt.Sprintf("%s has %d words, and may have %d", file, words[file], budget))
		}
	}
	if sum > all {
		problems = append(problems, fmt.Sprintf("all pages have %d words, and may have %d", sum, all))
	}
	for _, file := range slices.Sorted(maps.Keys(budgets)) {
		if _, is := words[file]; !is {
			problems = append(problems, file+" has a budget of words, and is not there")
		}
	}
	return problems
}

// TestTooLong shows that each of these problems is found.
func TestTooLong(t *testing.T) {
	may := map[string]int{"README.md": 5, "docs/use.md": 5}
	for name, tt := range map[string]struct {
		words map[string]int
		want  []string
	}{
		"as many as allowed":    {map[string]int{"README.md": 5, "docs/use.md": 4}, nil},
		"a generated page":      {map[string]int{"README.md": 5, "docs/use.md": 4, "docs/commands.md": 100}, nil},
		"a word too many":       {map[string]int{"README.md": 1, "docs/use.md": 6}, []string{"docs/use.md has 6 words, and may have 5"}},
		"a page without budget": {map[string]int{"README.md": 1, "docs/use.md": 1, "docs/new.md": 1}, []string{"docs/new.md has no budget of words"}},
		"a budget without page": {map[string]int{"README.md": 1}, []string{"docs/use.md has a budget of words, and is not there"}},
		"too many in all":       {map[string]int{"README.md": 5, "docs/use.md": 5}, []string{"all pages have 10 words, and may have 9"}},
	} {
		if got := tooLong(tt.words, may, 9); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
