package judge_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// goOn are the reasons for which nobody has to act, and those whose texts end with the act themselves.
var goOn = []string{judge.ReasonPending, judge.ReasonComplete, judge.ReasonProgressing, judge.ReasonDeferred, judge.ReasonPodRejected, judge.ReasonNamespaceLeftOut}

// TestActs: of each reason it is said what a person does, or nobody has to do anything.
func TestActs(t *testing.T) {
	source := must.Get(os.ReadFile("reasons.go"))(t)
	reasons := regexp.MustCompile(`\tReason\w+ = "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	for _, reason := range reasons {
		if (judge.Acts[reason[1]] == "") != slices.Contains(goOn, reason[1]) {
			t.Errorf("%s: the act is %q", reason[1], judge.Acts[reason[1]])
		}
	}
	if len(reasons) < 20 || len(judge.Acts)+len(goOn) != len(reasons) {
		t.Errorf("%d reasons, and %d acts", len(reasons), len(judge.Acts))
	}
}
