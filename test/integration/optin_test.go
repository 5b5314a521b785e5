//go:build integration

package integration

import (
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// TestOptInIsRefused: a value of the label that means nothing, and what the cluster may need to come up, of each kind. Otherwise it
// would silently be no opt-in, and the next edit would restart every pod. What else is refused is in pkg/policy.
func TestOptInIsRefused(t *testing.T) {
	namespace := newNamespace(t, nil)
	for _, kind := range []string{"StatefulSet", "Deployment", "DaemonSet"} {
		for _, tt := range []struct{ namespace, label, because string }{
			{namespace, "yes", `"yes" must be "true", which opts in, or "false"`},
			{api.CriticalNamespace, "true", `set the annotation inplace-rollout.io/allow-critical: "true", too`},
		} {
			o := options{Kind: kind, Meta: "labels: {" + api.EnabledLabel + ": " + `"` + tt.label + `"}`}
			_, err := cp.Kubectl(t.Context(), "create", "--dry-run=server", "-f", writeFile(t, manifest(t, tt.namespace, o)))
			if got := said(err); !strings.Contains(got, "forbidden: ValidatingAdmissionPolicy 'inplace-rollout-validate-opt-in'") || !strings.Contains(got, tt.because) {
				t.Errorf("a %s in %s with the label %s is answered with %v; want that it is forbidden, with %q", kind, tt.namespace, tt.label, err, tt.because)
			}
		}
	}
}
