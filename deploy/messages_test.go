package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// The messages of conditions are for people: what a policy or the controller goes by stands elsewhere (rollout.Spoken). So nobody takes them
// apart, but: in CEL, the number of the condition Observed, and what is put back as it was.
var readByCEL = []string{
	`["message", variables.pending]`, `["message", "Deployment is paused"]`, // written, not read
	`message: variables.complete[0].?message.orValue("")`, `?message.orValue("") == "observed generation " + `, `variables.recorded[0].?message.orValue("")`,
}

// In Go, other texts, where Kubernetes has only these or they are our own that are not stored.
var readByGo = []string{
	"cmd/inplace-rollout/check.go: strings.Split(f.Message,",
	"pkg/deployment/replicaset.go: strings.Contains(c.Message,", "pkg/judge/rejections.go: strings.CutPrefix(pod.Status.Message,", "pkg/podchecks/runner.go: strings.Cut(a.outcome.Message,", "pkg/pods/write.go: strings.Contains(c.Message,",
	"pkg/pods/write.go: strings.Cut(status.Status().Message,",
	"pkg/rollout/message.go: strings.Contains(a[0].Message,",
}

func TestNobodyReadsAMessage(t *testing.T) {
	inCEL, comments := regexp.MustCompile(`.*(\.\??|\[\??")message\b.*`), regexp.MustCompile(`(?m)^ *#.*`)
	inGo := regexp.MustCompile(`(\b(strings\.\w+|fmt\.Sscan\w*|Match\w*|Find\w*)\([^,\n]*|\bParse\([^\n]*)\.Message[,)]`)
	var found []string
	for _, pattern := range []string{"cluster/*.yaml", "../cmd/*/*.go", "../cmd/*/*/*.go", "../pkg/*/*.go", "../pkg/*/*/*.go"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatal(pattern, err)
		}
		for _, path := range paths {
			text := must.Get(os.ReadFile(path))(t)
			left := string(text)
			if strings.HasSuffix(path, ".go") {
				for _, reads := range inGo.FindAllString(left, -1) {
					if !strings.HasSuffix(path, "_test.go") {
						found = append(found, strings.TrimPrefix(path, "../")+": "+reads)
					}
				}
				continue
			}
			left = comments.ReplaceAllString(left, "")
			for _, known := range readByCEL {
				left = strings.ReplaceAll(left, known, "")
			}
			for _, line := range inCEL.FindAllString(left, -1) {
				t.Errorf("%s: %s", path, line)
			}
		}
	}
	slices.Sort(found)
	if !slices.Equal(found, readByGo) {
		t.Errorf("read in\n%s\nwant\n%s", strings.Join(found, "\n"), strings.Join(readByGo, "\n"))
	}
}
