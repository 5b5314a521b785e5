package deploy_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
)

// TestEveryKind: a file that names two kinds of workloads names all of them.
func TestEveryKind(t *testing.T) {
	read := func(file string) string {
		t.Helper()
		content, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		}
		return string(content)
	}
	resource := func(kind string) string { return strings.ToLower(kind) + "s" }
	files := []string{"../test/controlplane/audit-policy.yaml"}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if extension := filepath.Ext(path); err == nil && entry.Type().IsRegular() && (extension == ".yaml" || extension == ".tpl") {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	places := 0
	for _, file := range files {
		content := read(file)
		lacks := slices.DeleteFunc(slices.Clone(prerequisite.HeldKinds), func(kind string) bool {
			return strings.Contains(content, kind) || strings.Contains(content, resource(kind))
		})
		if named := len(prerequisite.HeldKinds) - len(lacks); named > 1 {
			places++
			if len(lacks) > 0 {
				t.Errorf("%s names %d kinds of workloads, and not %s", file, named, strings.Join(lacks, ", "))
			}
		}
	}
	if places < 15 {
		t.Errorf("only %d files name workloads", places)
	}
}
