//go:build integration

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// strategyOf is the update strategy: its type, and maxUnavailable/maxSurge if it has them.
func strategyOf(d *appsv1.DaemonSet) string {
	strategy := string(d.Spec.UpdateStrategy.Type)
	if r := d.Spec.UpdateStrategy.RollingUpdate; r != nil {
		strategy += fmt.Sprintf(" %s/%s", r.MaxUnavailable, r.MaxSurge)
	}
	return strategy
}

// take makes the write, and checks what came of it; and that nothing rolls unless
// the DaemonSet is let go.
func (d *daemonSet) take(step holdStep[string]) {
	d.t.Helper()
	before := d.uids()
	step.do()
	got := d.get()
	step.check(d.t, got, strategyOf(got), "type")
	if strings.HasPrefix(strategyOf(got), "RollingUpdate") {
		d.waitRolledOut()
		return
	}
	d.waitFor("the DaemonSet controller to observe the newest generation", func(o *appsv1.DaemonSet) bool {
		return o.Status.ObservedGeneration == o.Generation
	})
	d.assertReplaced(before)
}

// TestHoldPolicyForDaemonSets makes writes as users and as the controller would, one
// after the other, with no controller running: what comes of each is the policy's doing.
func TestHoldPolicyForDaemonSets(t *testing.T) {
	const web, hold = "daemonset/web", api.HoldAnnotation
	o := options{Kind: "DaemonSet", Replicas: 1}
	d := createDaemonSet(t, o)
	d.waitAvailable(1)
	d.kubectl(append(slices.Clone(as), "annotate", web, hold+"-")...)
	user := func(args ...string) func() { return func() { d.kubectl(args...) } }
	patch := func(patch string) func() { return func() { d.patch(patch) } }
	strategy := func(strategy string) func() { return patch(`{"spec":{"updateStrategy":` + strategy + `}}`) }
	asController := func(args ...string) func() { return user(append(slices.Clone(as), args...)...) }
	stranger := []string{"--as", "system:serviceaccount:default:" + controller.ServiceAccount, "--as-group", "system:masters"}
	image := func(image string) func() { return user("set", "image", web, "app="+image) }
	refused := func(strategy string) func() {
		return func() {
			err := d.try(t, "patch", web, "--patch", `{"spec":{"updateStrategy":{"rollingUpdate":`+strategy+`}}}`)
			if !strings.Contains(said(err), "one of maxUnavailable (") {
				t.Errorf("%s: %v", strategy, err)
			}
		}
	}
	applied := func(spec string, args ...string) func() {
		o := o
		o.Spec = spec
		return user(append([]string{"apply", "-f", writeFile(t, manifest(t, d.namespace, o))}, args...)...)
	}
	saved := func(hold string) func() {
		return patch(fmt.Sprintf(`{"metadata":{"annotations":{"%s":"%s"}},"spec":{"updateStrategy":{"type":"OnDelete"}}}`, api.HoldAnnotation, hold))
	}
	serverSide := []string{"--server-side", "--field-manager=gitops"}
	const wish, rolls, holds, own = "RollingUpdate", "RollingUpdate 1/0", "OnDelete 1/0", "OnDelete"
	const patched, gitops, apply = "kubectl-patch", "gitops", "kubectl-client-side-apply"

	for _, step := range []holdStep[string]{
		{"a write that changes no template", user("annotate", web, "a=b"), unheld, rolls, ""},
		{"forging a hold", user("annotate", web, hold+"=RollingUpdate"), unheld, rolls, ""},
		{"forging a wish", user("annotate", web, hold+"=OnDelete"), unheld, rolls, ""},
		{"more pods at once", strategy(`{"rollingUpdate":{"maxUnavailable":2}}`), unheld, "RollingUpdate 2/0", ""},
		{"and as before", strategy(`{"rollingUpdate":{"maxUnavailable":1}}`), unheld, rolls, ""},
		{"applying what was saved during a hold changes nothing", saved("RollingUpdate"), unheld, rolls, patched},
		{"nor does what was saved and cannot be read", saved("nonsense"), unheld, rolls, patched},
		{"the controller cannot hold", asController("annotate", web, hold+"=RollingUpdate"), unheld, rolls, patched},
		{"nor switch", asController("patch", web, "--patch", `{"spec":{"updateStrategy":{"type":"OnDelete"}}}`), unheld, rolls, patched},

		{"setting the image", image("app:2"), wish, holds, patched},
		{"setting resources", user("set", "resources", web, "--requests=cpu=150m"), wish, holds, patched},
		{"setting the image back", image("app:1"), wish, holds, patched},
		{"undo", user("rollout", "undo", web), wish, holds, patched},
		{"restart", user("rollout", "restart", web), wish, holds, patched},
		{"an annotation", user("annotate", web, "c=d"), wish, holds, patched},
		{"wishing what is wished already", strategy(`{"type":"RollingUpdate"}`), wish, holds, patched},
		{"wishing OnDelete says nothing, because that is what is there", strategy(`{"type":"OnDelete"}`), wish, holds, patched},
		{"removing the hold", user("annotate", web, hold+"-"), wish, holds, patched},
		{"nonsense wishes nothing", user("annotate", "--overwrite", web, hold+"=nonsense"), wish, holds, patched},
		{"replacing all annotations", user("patch", web, "--type=json", "--patch", `[{"op":"remove","path":"/metadata/annotations"}]`), wish, holds, patched},
		{"the controller of another namespace cannot let go", user(append(stranger, "annotate", web, hold+"-")...), wish, holds, patched},
		{"the controller cannot switch", asController("patch", web, "--patch", `{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}`), wish, holds, patched},

		{"another limit is kept", strategy(`{"rollingUpdate":{"maxUnavailable":"50%"}}`), wish, "OnDelete 50%/0", patched},
		{"so is a surge", strategy(`{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"0%","maxSurge":"100%"}}`), wish, "OnDelete 0%/100%", patched},
		{"Kubernetes would refuse both", refused(`{"maxUnavailable":1}`), wish, "OnDelete 0%/100%", patched},
		{"and neither", refused(`{"maxSurge":"0%"}`), wish, "OnDelete 0%/100%", patched},
		{"and too many", refused(`{"maxSurge":"101%"}`), wish, "OnDelete 0%/100%", patched},
		{"and fewer than none", refused(`{"maxSurge":-1}`), wish, "OnDelete 0%/100%", patched},
		{"and what is no percentage", refused(`{"maxSurge":"1"}`), wish, "OnDelete 0%/100%", patched},
		{"the limits of before", strategy(`{"rollingUpdate":{"maxUnavailable":1,"maxSurge":0}}`), wish, holds, patched},

		{"the annotation may say OnDelete", user("annotate", "--overwrite", web, hold+"=OnDelete"), unheld, own, patched},
		{"OnDelete needs no hold", image("app:3"), unheld, own, patched},
		{"switching back", strategy(`{"type":"RollingUpdate"}`), wish, holds, patched},
		{"taking rollingUpdate away", strategy(`{"rollingUpdate":null}`), unheld, own, patched},
		{"switching back with limits", strategy(`{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":2}}`), wish, "OnDelete 2/0", patched},
		{"wishing OnDelete without limits", strategy(`{"type":"OnDelete","rollingUpdate":null}`), unheld, own, patched},
		{"what was saved during a hold rolls", saved("RollingUpdate"), wish, holds, patched},
		{"the controller lets go", asController("annotate", web, hold+"-"), unheld, rolls, patched},
		{"the user's own OnDelete", strategy(`{"type":"OnDelete"}`), unheld, holds, patched},
		{"is not held", image("app:4"), unheld, holds, patched},
		{"nor is an edit that wishes it", patch(`{"spec":{"updateStrategy":{"type":"OnDelete"},"template":{"spec":{"containers":[{"name":"app","image":"app:5"}]}}}}`), unheld, holds, patched},
		{"but one that ends it", patch(`{"spec":{"updateStrategy":{"type":"RollingUpdate"},"template":{"spec":{"containers":[{"name":"app","image":"app:6"}]}}}}`), wish, holds, patched},

		{"applying on the client side", applied(""), wish, holds, patched},
		{"applying the strategy on the client side", applied("updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}"), wish, holds, apply},
		{"and again", applied("updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}"), wish, holds, apply},
		{"applying on the server side", applied("", append(serverSide, "--force-conflicts")...), wish, holds, ""},
		{"applying the strategy on the server side", applied("updateStrategy: {type: RollingUpdate}", append(serverSide, "--force-conflicts")...), wish, holds, gitops},
		{"and again", applied("updateStrategy: {type: RollingUpdate}", serverSide...), wish, holds, gitops},
		{"the controller lets go again", asController("annotate", web, hold+"-"), unheld, rolls, gitops},
		{"applying the same", applied("updateStrategy: {type: RollingUpdate}", serverSide...), unheld, rolls, gitops},

		{"opting out lets go", user("label", web, enabled+"-"), unheld, rolls, gitops},
		{"opted out, a change of the template is nobody's business", image("app:7"), unheld, rolls, gitops},
		{"opted out, so is the annotation", user("annotate", web, hold+"=RollingUpdate"), "RollingUpdate", rolls, gitops},
		{"opting in is held", user("label", web, enabled+"=true"), wish, holds, gitops},
		{"opting out by another value", user("label", "--overwrite", web, enabled+"=no"), unheld, rolls, gitops},
		{"opting in with OnDelete", patch(`{"metadata":{"labels":{"` + enabled + `":"true"}},"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`), unheld, own, patched},
		{"opting out and switching back at once", patch(`{"metadata":{"labels":{"` + enabled + `":null}},"spec":{"updateStrategy":{"type":"RollingUpdate"}}}`), unheld, rolls, patched},
	} {
		d.take(step)
	}
}
