//go:build integration

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
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
	d.waitFor("the DaemonSet controller to observe the newest generation", observed)
	d.assertReplaced(before)
}

// TestHoldPolicyForDaemonSets makes writes as users and as the controller would, one
// after the other, with no controller running: what comes of each is the policy's doing.
func TestHoldPolicyForDaemonSets(t *testing.T) {
	const web, hold = "daemonset/web", api.HoldAnnotation
	o := options{Kind: "DaemonSet", Replicas: 1}
	d := newDaemonSet(t, o)
	user := func(args ...string) func() { return func() { d.kubectl(args...) } }
	patch := func(patch string) func() { return func() { d.patch(patch) } }
	strategy := func(strategy string) func() { return patch(`{"spec":{"updateStrategy":` + strategy + `}}`) }
	asController := func(args ...string) func() { return user(append(slices.Clone(as), args...)...) }
	stranger := []string{"--as", "system:serviceaccount:default:" + controller.ServiceAccount, "--as-group", "system:masters"}
	image := func(image string) func() { return user("set", "image", web, "app="+image) }
	refused := func(strategy string) func() {
		return func() {
			err := d.try(t, "patch", web, "--patch", `{"spec":{"updateStrategy":{"rollingUpdate":`+strategy+`}}}`)
			if !strings.Contains(said(err), "one of maxUnavailable (") || !strings.Contains(said(err), "If OnDelete is what you want, take rollingUpdate away") {
				t.Errorf("%s: %v", strategy, err)
			}
		}
	}
	applied := func(spec string, args ...string) func() {
		o := o
		o.Spec = spec
		return user(append([]string{"apply", "-f", writeFile(t, manifest(t, d.namespace, o))}, args...)...)
	}
	serverSide := []string{"--server-side", "--field-manager=gitops"}
	saved := func(hold string) func() {
		return patch(fmt.Sprintf(`{"metadata":{"annotations":{"%s":"%s"}},"spec":{"updateStrategy":{"type":"OnDelete"}}}`, api.HoldAnnotation, hold))
	}
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
		{"applying OnDelete takes the limits away, and is a wish", applied("updateStrategy: {type: OnDelete}"), unheld, own, apply},
		{"applying RollingUpdate again", applied("updateStrategy: {type: RollingUpdate}"), wish, holds, apply},
		{"applying on the server side", applied("", append(serverSide, "--force-conflicts")...), wish, holds, ""},
		{"applying the strategy on the server side", applied("updateStrategy: {type: RollingUpdate}", append(serverSide, "--force-conflicts")...), wish, holds, gitops},
		{"and again", applied("updateStrategy: {type: RollingUpdate}", serverSide...), wish, holds, gitops},
		{"the controller lets go again", asController("annotate", web, hold+"-"), unheld, rolls, gitops},
		{"applying the same", applied("updateStrategy: {type: RollingUpdate}", serverSide...), unheld, rolls, gitops},

		{"applying limits", applied("updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}}", serverSide...), unheld, "RollingUpdate 2/0", gitops},
		{"and an edit on top", image("app:7"), wish, "OnDelete 2/0", gitops},
		{"applying limits alone", applied("updateStrategy: {rollingUpdate: {maxUnavailable: 2}}", append(serverSide, "--force-conflicts")...), wish, "OnDelete 2/0", ""},
		{"and no more wishes nothing of the type", applied("", append(serverSide, "--force-conflicts")...), wish, holds, ""},
		{"applying the strategy with limits", applied("updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}}", append(serverSide, "--force-conflicts")...), wish, "OnDelete 2/0", gitops},
		{"applying OnDelete takes the limits away here, too", applied("updateStrategy: {type: OnDelete}", append(serverSide, "--force-conflicts")...), unheld, own, gitops},
		{"switching back on the server side", applied("updateStrategy: {type: RollingUpdate}", serverSide...), wish, holds, gitops},
		{"the controller lets go of that", asController("annotate", web, hold+"-"), unheld, rolls, gitops},

		{"opting out lets go", user("label", web, enabled+"-"), unheld, rolls, gitops},
		{"opted out, a change of the template is nobody's business", image("app:7"), unheld, rolls, gitops},
		{"opted out, so is the annotation", user("annotate", web, hold+"=RollingUpdate"), "RollingUpdate", rolls, gitops},
		{"opting in is held", user("label", web, enabled+"=true"), wish, holds, gitops},
		{"opting out by another value", user("label", "--overwrite", web, enabled+"=false"), unheld, rolls, gitops},
		{"opting in with OnDelete", patch(`{"metadata":{"labels":{"` + enabled + `":"true"}},"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`), unheld, own, patched},
		{"opting out and switching back at once", patch(`{"metadata":{"labels":{"` + enabled + `":null}},"spec":{"updateStrategy":{"type":"RollingUpdate"}}}`), unheld, rolls, patched},
	} {
		d.take(step)
	}
}

// TestDaemonSetsRestoredFromABackup creates DaemonSets as they were saved in the middle of a hold,
// and others. No controller runs: a new one is held, and makes its pods all the same.
func TestDaemonSetsRestoredFromABackup(t *testing.T) {
	for _, backup := range []struct{ name, hold, strategy, wantHold, want string }{
		{"held", "RollingUpdate", "{type: OnDelete, rollingUpdate: {maxUnavailable: 2, maxSurge: 0}}", "RollingUpdate", "OnDelete 2/0"},
		{"held without its limits", "RollingUpdate", "{type: OnDelete}", "RollingUpdate", "OnDelete 1/0"},
		{"held and the hold cannot be read", "nonsense", "{type: OnDelete}", "RollingUpdate", "OnDelete 1/0"},
		{"another wish after the save", "OnDelete", "{type: OnDelete}", unheld, "OnDelete"},
		{"another strategy after the save", "OnDelete", "{type: RollingUpdate}", "RollingUpdate", "OnDelete 1/0"},
		{"the user's own OnDelete", "", "{type: OnDelete}", unheld, "OnDelete"},
		{"a new one", "", "{type: RollingUpdate, rollingUpdate: {maxUnavailable: 0, maxSurge: 50%}}", "RollingUpdate", "OnDelete 0/50%"},
	} {
		t.Run(backup.name, func(t *testing.T) {
			o := options{Replicas: 1, Spec: "updateStrategy: " + backup.strategy}
			if backup.hold != "" {
				o.Meta = "annotations: {" + api.HoldAnnotation + ": " + backup.hold + "}"
			}
			d := createDaemonSet(t, o)
			if got := d.get(); holdOf(got) != backup.wantHold || strategyOf(got) != backup.want {
				t.Errorf("hold %s and type %s, want %s and %s", holdOf(got), strategyOf(got), backup.wantHold, backup.want)
			}
			d.waitAvailable(1)
		})
	}
	d := createDaemonSet(t, options{Replicas: 1})
	neither := manifest(t, d.namespace, options{Kind: "DaemonSet", Meta: "{name: neither, annotations: {" + api.HoldAnnotation + ": RollingUpdate}}",
		Spec: "updateStrategy: {type: OnDelete, rollingUpdate: {maxUnavailable: 0}}"})
	if err := d.try(t, "create", "-f", writeFile(t, neither)); !strings.Contains(said(err), "one of maxUnavailable (0) and maxSurge (0) must be 0") {
		t.Errorf("creating a held one without limits: %v", err)
	}
}

// TestSurgeInFlight: while the DaemonSet controller makes the new pods beside the old ones, a hold
// would have it delete the new ones. No controller runs.
func TestSurgeInFlight(t *testing.T) {
	for _, tt := range []struct {
		name, limits string
		surge        bool
	}{
		{"one more", "{maxUnavailable: 0, maxSurge: 1}", true},
		{"half as many more", "{maxUnavailable: 0%, maxSurge: 50%}", true},
		{"one less", "{maxUnavailable: 1, maxSurge: 0}", false},
		{"half as many", "{maxUnavailable: 50%, maxSurge: 0%}", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDaemonSet(t, options{Replicas: 2, Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: " + tt.limits + "}"})
			// The DaemonSet controller counts the oldest pod of a node, by whole seconds, and then by its name.
			time.Sleep(time.Second)
			settled, edits := strategyOf(d.get()), 0
			edit := func(args ...string) string {
				edits++
				return d.warnings(append([]string{"patch", d.ref, "--patch", fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"edit":"%d","sim.inplace-rollout.io/ready":"false"}}}}}`, edits)}, args...)...)
			}
			edit("--field-manager=" + api.ReleaseManager)
			d.waitFor("the built-in rollout to be in flight", func(o *appsv1.DaemonSet) bool {
				return observed(o) && o.Status.UpdatedNumberScheduled < o.Status.CurrentNumberScheduled &&
					(tt.surge && len(d.pods()) == 3 || o.Status.NumberAvailable < o.Status.DesiredNumberScheduled)
			})
			for range 2 {
				warned := edit()
				got := d.get()
				if held(got) == tt.surge || tt.surge && strategyOf(got) != settled {
					t.Errorf("after an edit: hold %s, strategy %s", holdOf(got), strategyOf(got))
				}
				if strings.Contains(warned, "the previous rollout with maxSurge is not over") != tt.surge {
					t.Errorf("after an edit the API server says %s", warned)
				}
			}
			if !tt.surge {
				return
			}
			d.waitFor("two pods on a node", func(*appsv1.DaemonSet) bool { return len(d.pods()) == 3 })
			d.kubectl("label", d.ref, enabled+"-")
			d.kubectl("label", d.ref, enabled+"=true")
			if got := d.get(); held(got) || strategyOf(got) != settled {
				t.Errorf("opted in again: hold %s, strategy %s", holdOf(got), strategyOf(got))
			}
			d.patch(`{"spec":{"template":{"metadata":{"annotations":{"sim.inplace-rollout.io/ready":null}}}}}`)
			d.waitRolledOut()
			d.patch(`{"spec":{"template":{"metadata":{"annotations":{"edit":"last"}}}}}`)
			if got := d.get(); holdOf(got) != "RollingUpdate" {
				t.Errorf("when it is over: hold %s, strategy %s", holdOf(got), strategyOf(got))
			}
		})
	}
}

// TestConditionOfDaemonSetsIsTakenBack: the condition must not say Complete of a template that
// nobody has looked at; no controller runs.
func TestConditionOfDaemonSetsIsTakenBack(t *testing.T) {
	d := newDaemonSet(t, options{Replicas: 1})
	user := func(args ...string) func() { return func() { d.kubectl(args...) } }
	strategy := func(strategy string) func() {
		return func() { d.patch(`{"spec":{"updateStrategy":` + strategy + `}}`) }
	}
	generation := func() string { return d.get().Annotations[appsv1.DeprecatedTemplateGeneration] }
	release := func() {
		d.kubectl(append(slices.Clone(as), "annotate", d.ref, api.HoldAnnotation+"-")...)
		d.waitRolledOut()
	}
	former := func(c *rollout.Condition) { c.Version = rollout.TemplateGeneration("1") }
	more := func(c *rollout.Condition) { c.Details = "; 1 of them has the size of its node's class" }
	for _, edit := range []struct {
		what   string
		before func()
		do     func()
		says   func(*rollout.Condition) // what the condition says beside that the rollout of this template is over
		want   string
	}{
		{"an edit", func() {}, user("set", "image", d.ref, "app=app:2"), nil, "Pending"},
		{"an edit of an edit", func() {}, user("set", "image", d.ref, "app=app:3"), nil, "Pending"},
		{"more pods at once", release, strategy(`{"rollingUpdate":{"maxUnavailable":2}}`), nil, "Complete"},
		{"what we have said of the template before", func() {}, strategy(`{"rollingUpdate":{"maxUnavailable":1}}`), former, "Pending"},
		{"the same with more to say", func() {}, strategy(`{"rollingUpdate":{"maxUnavailable":2}}`), func(c *rollout.Condition) { former(c); more(c) }, "Pending"},
		{"more to say of this template", func() {}, strategy(`{"rollingUpdate":{"maxUnavailable":1}}`), more, "Complete"},
		{"an edit that is not held", func() {}, user("set", "image", d.ref, "app=app:4", "--field-manager="+api.ReleaseManager), nil, "Pending"},
		{"the user's own OnDelete", d.waitRolledOut, strategy(`{"type":"OnDelete"}`), nil, "Complete"},
		{"an edit under OnDelete", func() {}, user("set", "image", d.ref, "app=app:5"), nil, "Pending"},
		{"switching back", func() {}, strategy(`{"type":"RollingUpdate"}`), nil, "Complete"}, // nothing of it is to be observed
	} {
		edit.before()
		says := rollout.Over(1, 1, rollout.TemplateGeneration(generation()), 0)
		if edit.says != nil {
			edit.says(&says)
		}
		// While it is held, the next status write of the DaemonSet controller takes that back at once.
		claimed := d.kubectl(append(slices.Clone(as), "patch", d.ref, "--subresource=status",
			`--output=jsonpath={.status.conditions[?(@.type=="`+api.ConditionComplete+`")].status}`, "--patch", `{"status":{"conditions":[{"type":"`+api.ConditionComplete+`","status":"True","reason":"`+says.Reason+`","message":"`+says.Message()+`"}]}}`)...)
		if claimed != "True" {
			t.Fatalf("the controller's own write came out as %s", claimed)
		}
		edit.do()
		d.waitFor("the DaemonSet controller to observe the newest generation", observed)
		if status, reason, _ := complete(d.get()); reason != edit.want || (status == corev1.ConditionTrue) != (reason == "Complete") {
			t.Errorf("after %s: %s with reason %s, want reason %s", edit.what, status, reason, edit.want)
		}
	}
}

// TestNodeResourcesAreJudged: whoever brings sizes by class of node hears of what is wrong in them,
// and nobody else does.
func TestNodeResourcesAreJudged(t *testing.T) {
	d := newDaemonSet(t, options{Replicas: 1})
	const policy = "inplace-rollout-validate-node-resources"
	sizes := func(containers string) string {
		return api.NodeResourcesAnnotation + `=[{"nodeSelector": {"pool": "large"}, "containers": {` + containers + `}}]`
	}
	for sizes, want := range map[string]string{
		sizes(`"app": {"requests": {"cpu": "150m"}, "limits": {"memory": "1.5Gi"}}`): "",
		sizes(`"app": {"requests": {"cpu": "300m"}}`):                                "container app: the cpu request 300m must not be more than the limit 200m, the class's or else the template's",
		sizes(`"app": {"limits": {"cpu": "50m"}}`):                                   "container app: the cpu request 100m must not be more than the limit 50m",
		sizes(`"web": {"requests": {"cpu": 1}}`):                                     "the template has no container web; it has app",
		sizes(`"app": {"requests": {"cpu": "1x"}}`):                                  `"cpu": "1x" must be a quantity such as 100m, and more than 0`,
		sizes(`"app": {"requests": {"cpus": 1}}`):                                    "must be a JSON list of",
		api.NodeResourcesAnnotation + "= ":                                           "",
	} {
		err := d.try(t, "annotate", "--overwrite", d.ref, sizes)
		if want == "" && err != nil || want != "" && (!strings.Contains(said(err), want) || !strings.Contains(said(err), policy)) {
			t.Errorf("%s: %v, want %q", sizes, err, want)
		}
	}
	// The template counts as it is in the same write.
	d.patch(`{"metadata":{"annotations":{"` + api.NodeResourcesAnnotation + `":"[{\"nodeSelector\":{\"a\":\"b\"},\"containers\":{\"app\":{\"requests\":{\"cpu\":\"300m\"}}}}]"}},
		"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":"400m"}}}]}}}}`)
	// What was there before is not judged: now the limit is below it.
	d.kubectl("set", "resources", d.ref, "--limits=cpu=200m")
	if out := d.kubectl("get", "validatingadmissionpolicy", policy, "-o", "jsonpath={.status.typeChecking.expressionWarnings}"); out != "" {
		t.Errorf("type checking: %s", out)
	}
}

// TestDaemonSetReapplies: a GitOps tool says again and again that it is RollingUpdate.
func TestDaemonSetReapplies(t *testing.T) {
	parallel(t)
	o := options{Kind: "DaemonSet", Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}}"}
	d := newDaemonSet(t, o)
	before := d.uids()
	d.reapply(o)
	d.waitComplete()
	d.assertMoved(before, "150m")
	// The field is still the user's: another value conflicts with nobody.
	o.Resources, o.Spec = largerThanBase, "updateStrategy: {type: OnDelete}"
	d.apply(manifest(t, d.namespace, o))
	if got := d.get(); held(got) || got.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType {
		t.Errorf("hold %s and type %s, want the user's OnDelete", holdOf(got), strategyOf(got))
	}
}
