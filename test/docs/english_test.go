package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// readTwice are ways to say something that native speakers had to read twice, each with a sentence that has it, and what they would
// write. Blanks in a pattern are any white space.
var readTwice = []struct {
	pattern          *regexp.Regexp
	sentence, better string
}{
	{phrase(`may`), `as far as you may see`, `"can" where it is allowed, "might" where it is possible`},
	{phrase(`here called`), "Kubernetes' own controller, here called the *built-in* one, finds the rollout complete", `a name in brackets: (the *built-in controller*)`},
	{phrase(`(go|goes|going|went) in place`), "`kubectl rollout undo` goes in place, too", `is applied in place, is resized in place`},
	{phrase(`stops a size`), `stops a size that is too small at the first pod, and takes it back`, `catches a size`},
	{phrase(`(take|takes|taking|took|taken) (it|them|that|this|a size) back`), `stops a size that is too small at the first pod, and takes it back`, `revert`},
	{phrase(`made in place|where (it|they) can be`), `held, and made in place where it can be`, `resized in place where possible`},
	{phrase(`(what|as) (the |your )?manifests? says?|would take (it|them)`), `The edit is what manifests say: with -f or -k, as 'kubectl apply' would take them`, `Pass edited manifests; they are read as by kubectl apply`},
	{phrase(`how far`), `Show how far rollouts are, pod by pod`, `progress`},
	{phrase(`(not|been) asked|(pods?|it|they) (is|are|was|were) asked`), `it has not been asked yet`, `resize not requested yet`},
	{phrase(`what (a|the) rollout could not do`), `Retry at once what a rollout could not do`, `failed or deferred resizes`},
	{phrase(`look for room|pods? without room`), `It does not look for room first: a new pod without room stays Pending`, `check capacity; pods that do not fit`},
	{phrase(`without (an )?end`), `without end`, `indefinitely`},
	{phrase(`starts? these times again`), `A restarted controller starts these times again`, `these timers restart`},
	{phrase(`one changed resource of one container`), `one changed resource of one container with RestartOnly restarts the pod`, `if any changed resource is …`},
	{phrase(`again and again`), `it becomes Ready again and again, but never for the duration, in that time plus two durations`, `repeatedly; it flaps`},
	{phrase(`by that`), `does not fail by that`, `for that, because of that, this way`},
	{phrase(`(one|two|three|some) more pods? (is|are)|(is|are) too much`), `where two more pods are too much`, `if you cannot spare two extra pods`},
	{phrase(`some (two|three|five|ten|\d+) (seconds|minutes)|until a replica of the new version leads`), `until a replica of the new version leads, some ten seconds after its image is on the node`, `about ten seconds`},
	{phrase(`(does|do) not set,? stays?`), `Values that the template does not set stay`, `are left unchanged`},
}

func phrase(pattern string) *regexp.Regexp {
	return regexp.MustCompile(`\b(` + strings.ReplaceAll(pattern, " ", `\s+`) + `)\b`)
}

// TestEnglish checks what users read: pages, and what commands, events, conditions and refusals say.
func TestEnglish(t *testing.T) {
	t.Parallel()
	for _, s := range readTwice {
		if !slices.Contains(twice(s.sentence), "\""+s.pattern.FindString(s.sentence)+"\": "+s.better) {
			t.Errorf("%q is not found", s.sentence)
		}
	}
	for where, said := range texts(t) {
		for _, found := range twice(said) {
			t.Errorf("%s: %s", where, found)
		}
	}
}

// theirs are errors of Kubernetes, which the program recognizes.
var theirs = strings.NewReplacer("Pod QOS Class may not change", "", "may not be renamed or reordered", "", "may not be added or removed", "")

// twice is what of a text would be read twice.
func twice(text string) []string {
	var all []string
	text = theirs.Replace(text)
	for _, s := range readTwice {
		for _, found := range s.pattern.FindAllString(text, -1) {
			all = append(all, strconv.Quote(found)+": "+s.better)
		}
	}
	return all
}

// texts are those that users read, by the place where they stand: whole pages, policies without comments,
// and the strings of the program.
func texts(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "deploy/chart/*.md", "deploy/*/*.yaml", "deploy/components/*/*.yaml", "deploy/overlays/*/*.yaml"} {
		files := must.Get(filepath.Glob(filepath.Join(controller.Root(), pattern)))(t)
		if len(files) == 0 {
			t.Fatalf("no file is %s", pattern)
		}
		for _, file := range files {
			text := string(must.Get(os.ReadFile(file))(t))
			if filepath.Ext(file) == ".yaml" {
				text = regexp.MustCompile(`(?m)^\s*(#|//).*$`).ReplaceAllString(text, "")
			}
			for line, said := range paragraphs(text) {
				all[placeOf(t, file, line)] = said
			}
		}
	}
	for _, folder := range []string{"cmd", "initialresources", "pkg"} {
		must.Do(t, filepath.WalkDir(filepath.Join(controller.Root(), folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			for line, said := range literals(t, path) {
				all[placeOf(t, path, line)] = said
			}
			return nil
		}))
	}
	return all
}

func placeOf(t *testing.T, file string, line int) string {
	t.Helper()
	return must.Get(filepath.Rel(controller.Root(), file))(t) + ":" + strconv.Itoa(line)
}

// paragraphs are those of a text, by their first line.
func paragraphs(text string) map[int]string {
	all, line := map[int]string{}, 1
	for part := range strings.SplitSeq(text, "\n\n") {
		all[line] = part
		line += strings.Count(part, "\n") + 2
	}
	return all
}

// literals are the strings of a Go file, by their line; what is added up is one.
func literals(t *testing.T, path string) map[int]string {
	t.Helper()
	files, all := token.NewFileSet(), map[int]string{}
	inspect := func(n ast.Node) bool {
		said := sum(n)
		if said != "" {
			all[files.Position(n.Pos()).Line] += said + "\n"
		}
		_, added := n.(*ast.BinaryExpr)
		return said == "" || !added
	}
	ast.Inspect(must.Get(parser.ParseFile(files, path, nil, 0))(t), inspect)
	return all
}

// sum is what strings say that are added up: what is not known of them is left out.
func sum(n ast.Node) string {
	switch n := n.(type) {
	case *ast.BasicLit:
		if n.Kind == token.STRING {
			said, _ := strconv.Unquote(n.Value)
			return said
		}
	case *ast.BinaryExpr:
		if n.Op == token.ADD {
			return sum(n.X) + sum(n.Y)
		}
	}
	return ""
}
