package webhook

import (
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestControllerOfEachNamespace: where each namespace has its own controller, the policies know that of the
// workload's, and no other.
func TestControllerOfEachNamespace(t *testing.T) {
	p := must.Get(Load(deploy.Cluster, `system:serviceaccount:" + request.namespace + ":inplace-rollout`))(t)
	for user, known := range map[string]bool{
		"system:serviceaccount:default:inplace-rollout":         true,
		"system:serviceaccount:other:inplace-rollout":           false,
		"system:serviceaccount:inplace-rollout:inplace-rollout": false,
	} {
		response := must.Get(p.Evaluate(t.Context(), "inplace-rollout-fence-workloads", update(t, "", user, strings.Replace(set, "replicas: 3", "replicas: 4", 1))))(t)
		if is := response.Patch != nil; is != known {
			t.Errorf("%s: the fence is around it: %t, want %t", user, is, known)
		}
	}
}

// TestNoController: what would change an expression is no user name.
func TestNoController(t *testing.T) {
	for _, user := range []string{"", `a" || true || "b`, `a" + request.name + "b`, "a b", `a\`} {
		if _, err := Load(deploy.Cluster, user); err == nil {
			t.Errorf("%q is taken for a user name", user)
		}
	}
}
