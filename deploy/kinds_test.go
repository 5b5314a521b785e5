package deploy_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
)

// TestEveryKind: each kind of workload has its policies, and a file that names two kinds names all of them.
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
	own, listed := sets.New[string](), read("cluster/kustomization.yaml")
	for _, kind := range prerequisite.HeldKinds {
		for _, what := range []string{"hold-", "guard-", "pending-"} {
			file := what + resource(kind) + ".yaml"
			if own.Insert("cluster/" + file); read("cluster/"+file) == "" || !strings.Contains(listed, file) {
				t.Errorf("cluster/kustomization.yaml lists no %s", file)
			}
		}
	}
	files := []string{"../test/controlplane/audit-policy.yaml"}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if extension := filepath.Ext(path); err == nil && entry.Type().IsRegular() && (extension == ".yaml" || extension == ".tpl") && !own.Has(filepath.ToSlash(path)) {
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
