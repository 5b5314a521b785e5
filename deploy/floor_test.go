package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestFloor: the oldest Kubernetes that is claimed is the oldest that the tests run on, and the same wherever it stands.
func TestFloor(t *testing.T) {
	folders, err := filepath.Glob("../hack/tools/kubernetes-1.*")
	if err != nil || len(folders) == 0 {
		t.Fatal(folders, err)
	}
	var minors []int
	for _, folder := range folders {
		minor := must.Get(strconv.Atoi(strings.TrimPrefix(filepath.Base(folder), "kubernetes-1.")))(t)
		minors = append(minors, minor)
	}
	oldest := slices.Min(minors)
	for file, pattern := range map[string]string{
		"chart/Chart.yaml":         `(?m)^kubeVersion: ">=1\.%d\.0-0"$`,
		"../README.md":             `Kubernetes 1\.36 or later; 1\.%d and 1\.35 with the webhook`,
		"../docs/install.md":       `It needs Kubernetes 1\.%d or later`,
		"../docs/compatibility.md": `each minor version of Kubernetes from 1\.%d on`,
	} {
		text := must.Get(os.ReadFile(file))(t)
		if claim := regexp.MustCompile(fmt.Sprintf(pattern, oldest)); !claim.Match(text) {
			t.Errorf("%s does not say 1.%d, the oldest version of the tests (%s)", file, oldest, claim)
		}
	}
}
