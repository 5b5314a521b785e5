package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestMutants checks that what each mutant takes out is there, and that what is left can be read.
func TestMutants(t *testing.T) {
	const root = "../.."
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, e := range m.edits {
				source := must.Get(os.ReadFile(filepath.Join(root, e.file)))(t)
				must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, e.file)), 0o755))
				must.Do(t, os.WriteFile(filepath.Join(dir, e.file), source, 0o600))
			}
			must.Do(t, m.apply(dir))
			for _, e := range m.edits {
				source := must.Get(os.ReadFile(filepath.Join(dir, e.file)))(t)
				var err error
				switch filepath.Ext(e.file) {
				case ".go":
					_, err = parser.ParseFile(token.NewFileSet(), e.file, source, parser.SkipObjectResolution)
				case ".yaml":
					for document := range strings.SplitSeq(string(source), "\n---\n") {
						if err = yaml.Unmarshal([]byte(document), &map[string]any{}); err != nil {
							break
						}
					}
				}
				must.Fails(t, "the mutant", err, "")
			}
			if m.tests == "" && m.seed == 0 {
				t.Error("nothing shows it")
			}
		})
	}
}
