package webhook

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// written is a merge patch of somebody, and what comes of it: what the hold says, and the field that holds.
type written struct{ what, user, patch, hold, field string }

const (
	controllers = deploy.User
	unheld      = "-"
	everything  = "2147483647"
)

func annotates(name, value string) string {
	return fmt.Sprintf("{metadata: {annotations: {%s: %s}}}", name, value)
}

func holds(value string) string { return annotates(api.HoldAnnotation, value) }

func edits(version string) string {
	return "{spec: {template: {spec: {schedulerName: v" + version + "}}}}"
}

func optsIn(value string) string {
	return fmt.Sprintf("{metadata: {labels: {%s: %s}}}", api.EnabledLabel, value)
}

// saved is a manifest that was saved during a hold.
func saved(hold, spec string) string {
	return fmt.Sprintf("{metadata: {annotations: {%s: %s}}, spec: %s}", api.HoldAnnotation, hold, spec)
}

// TestHold: each write is answered with what stands beside it. What API servers and kubectl make of it besides, such as who owns the
// field, is in test/integration.
func TestHold(t *testing.T) {
	const lets, nonsense, strangers = "null", "nonsense", "system:serviceaccount:default:inplace-rollout"
	partition := func(n string) string { return "{updateStrategy: {rollingUpdate: {partition: " + n + "}}}" }
	asks := func(n string) string { return "{spec: " + partition(n) + "}" }
	ordinal := func(n string) string { return annotates(api.PartitionAnnotation, n) }
	const onDelete, toOnDelete, back = "OnDelete", "{spec: {updateStrategy: {type: OnDelete, rollingUpdate: null}}}", "{spec: {updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: %s}}%s}}"
	holdsAgain(t, "StatefulSet", "{type: RollingUpdate, partition: 0}", []string{"spec", "updateStrategy", "rollingUpdate", "partition"}, []written{
		{"a write that changes no template", "", annotates("a", "b"), unheld, "0"},
		{"forging a hold that is none, because its partition would not be lower", "", holds(`"7"`), unheld, "0"},
		{"forging an instruction", "", ordinal(`"7"`), unheld, "0"},
		{"raising the partition sets nothing going", "", asks("3"), unheld, "3"},
		{"lowering the partition is held where it was", "", asks("1"), "1", "3"},
		{"the value that holds wishes nothing", "", asks("3"), "1", "3"},
		{"but in the annotation it does", "", holds(`"3"`), "3", "3"},
		{"and so does another value", "", asks("2"), "2", "3"},
		{"a value above it is in force at once", "", asks("5"), "5", "5"},
		{"and lowered again it stays there", "", asks("1"), "1", "5"},
		{"the controller lets go", controllers, holds(lets), unheld, "1"},
		{"applying what was saved during a hold changes nothing", "", saved(`"1"`, partition(everything)), unheld, "1"},
		{"nor does what was saved while the partition was lowered step by step", "", saved(`"1"`, partition("2")), unheld, "1"},
		{"nor does what was saved and cannot be read", "", saved(nonsense, partition(everything)), unheld, "1"},
		{"what was saved with another wish is that wish", "", saved(`"0"`, partition(everything)), "0", "1"},
		{"the controller lets go of that", controllers, holds(lets), unheld, "0"},
		{"the maximum without a hold is the user's own", "", asks(everything), unheld, everything},
		{"and lowered it is held there", "", asks("1"), "1", everything},
		{"the controller lets go of that, too", controllers, holds(lets), unheld, "1"},
		{"changing the template", "", edits("2"), "1", everything},
		{"wishing another partition", "", asks("0"), "0", everything},
		{"repeating the held value wishes nothing", "", asks(everything), "0", everything},
		{"removing the hold", "", holds(lets), "0", everything},
		{"what the hold says is wished", "", holds(`"5"`), "5", everything},
		{"applying what was saved during another hold", "", saved(`"0"`, partition(everything)), "0", everything},
		{"nonsense wishes nothing", "", holds(nonsense), "0", everything},
		{"a ServiceAccount of that name in another namespace is nobody", strangers, ordinal(`"0"`), "0", everything},
		{"nor can it let go", strangers, holds(lets), "0", everything},
		{"the controller lets ordinal 2 go", controllers, ordinal(`"2"`), "0", "2"},
		{"the controller lets ordinal 1 go", controllers, ordinal(`"1"`), "0", "1"},
		{"another write leaves it there", "", annotates("c", "d"), "0", "1"},
		{"a lower wish leaves it there", "", asks("0"), "0", "1"},
		{"a higher wish is kept at once", "", asks("4"), "4", "4"},
		{"a new template holds everything again", "", edits("4"), "4", everything},
		{"opting out lets go", "", optsIn(lets), unheld, "4"},
		{"opted out, a change of the template is nobody's business", "", edits("5"), unheld, "4"},
		{"opting in is held, for pods may lag behind", "", optsIn(`"true"`), "4", everything},
		{"switched to OnDelete, it is marked", "", toOnDelete, onDelete, ""},
		{"the mark is nobody's to remove", "", holds(lets), onDelete, ""},
		{"nor to change", "", holds(`"5"`), onDelete, ""},
		{"the controller takes it away", controllers, holds(lets), unheld, ""},
		{"a write that changes no template needs none", "", annotates("g", "h"), unheld, ""},
		{"nor may anybody set one", "", holds(onDelete), unheld, ""},
		{"an edit does", "", edits("7"), onDelete, ""},
		{"opting out takes it away", "", optsIn(lets), unheld, ""},
		{"opting in brings it back", "", optsIn(`"true"`), onDelete, ""},
		{"switched back, it is held with the user's own maximum", "", fmt.Sprintf(back, everything, ""), everything, everything},
		{"and again with the mark", "", toOnDelete, onDelete, ""},
		{"switching back with a template change and a partition", "", fmt.Sprintf(back, "2", ", template: {spec: {schedulerName: v9}}"), "2", everything},
	})
	letsGoOf := func(revision string) string {
		return annotates(api.HoldAnnotation, "null, "+api.HandedOverAnnotation+": "+revision)
	}
	holdsAgain(t, "StatefulSet", "{type: RollingUpdate, partition: 3}", []string{"spec", "updateStrategy", "rollingUpdate", "partition"}, []written{
		{"another image", "", edits("2"), "3", everything},
		{"the controller lets go of what its user keeps back, too", controllers, letsGoOf("web-2"), unheld, "3"},
		{"lowered, it is not held again", "", asks("2"), unheld, "2"},
		{"whoever takes the mark away takes nothing away", "", annotates(api.HandedOverAnnotation, "null"), unheld, "2"},
		{"nor is it raised, and lowered", "", asks("4"), unheld, "4"},
		{"lowered", "", asks("1"), unheld, "1"},
		{"lowered, with another edit, it is", "", "{spec: {updateStrategy: {rollingUpdate: {partition: 0}}, template: {spec: {schedulerName: v3}}}}", "0", everything},
		{"the controller lets go, and of nothing else", controllers, holds(lets), unheld, "0"},
		{"raised", "", asks("2"), unheld, "2"},
		{"nobody else sets the mark", "", annotates(api.HandedOverAnnotation, "web-3"), unheld, "2"},
		{"lowered, it is held", "", asks("1"), "1", "2"},
		{"the controller lets go, with the mark", controllers, letsGoOf("web-3"), unheld, "1"},
		{"opted out, the mark goes", "", optsIn(lets), unheld, "1"},
		{"opting in is held", "", optsIn(`"true"`), "1", everything},
		{"the controller lets go, without it", controllers, holds(lets), unheld, "1"},
		{"lowered, it is held again", "", asks("0"), "0", "1"},
		{"the controller lets go of all", controllers, letsGoOf("web-3"), unheld, "0"},
		{"raised again", "", asks("2"), unheld, "2"},
		{"the mark has gone with the last pod that was kept back", "", asks("1"), "1", "2"},
	})
	holdsAgain(t, "StatefulSet", "{type: RollingUpdate, partition: 0}", []string{"spec", "updateStrategy", "rollingUpdate", "partition"}, []written{
		{"scaled to zero", "", "{spec: {replicas: 0}, status: {replicas: 0}}", unheld, "0"},
		{"pods come with an edit, and none has to be kept", "", "{spec: {replicas: 3, template: {spec: {schedulerName: v2}}}}", unheld, "0"},
		{"they have come", "", "{status: {replicas: 3}}", unheld, "0"},
		{"and are kept", "", edits("3"), "0", everything},
	})
	starts := func(start int, n string) string {
		return fmt.Sprintf("{spec: {ordinals: {start: %d}, updateStrategy: {rollingUpdate: {partition: %s}}}}", start, n)
	}
	holdsAgain(t, "StatefulSet", "{type: RollingUpdate, partition: 1, start: 5}", []string{"spec", "updateStrategy", "rollingUpdate", "partition"}, []written{
		{"the start is lowered, which sets pods free like a lower partition", "", starts(3, "1"), "1", "3"},
		{"and lowered again", "", starts(2, "3"), "1", "4"},
		{"and raised", "", starts(4, "4"), "1", "2"},
		{"the partition is what holds it, and the start where it was", "", starts(5, "2"), "1", "1"},
		{"the controller lets go", controllers, holds(lets), unheld, "1"},
		{"raising the start sets nothing going", "", starts(6, "1"), unheld, "1"},
	})

	const pauses, resumes = "{spec: {paused: true}}", "{spec: {paused: false}}"
	reloader := func(at, paused string) string {
		return "{metadata: {annotations: {deployment.reloader.stakater.com/paused-at: " + at + "}}, spec: {paused: " + paused + "}}"
	}
	holdsAgain(t, "Deployment", "{paused: false}", []string{"spec", "paused"}, []written{
		{"a write that changes no template", "", annotates("a", "b"), unheld, "false"},
		{"forging a hold", "", holds(`"true"`), unheld, "false"},
		{"the user pauses", "", pauses, unheld, "true"},
		{"a Deployment that its user has paused may be edited", "", edits("2"), unheld, "true"},
		{"a hold of a paused one that cannot be read is no wish to pause", "", holds(nonsense), "false", "true"},
		{"resuming it", "", resumes, "false", "true"},
		{"the controller lets go", controllers, holds(lets), unheld, "false"},
		{"applying what was saved during a hold changes nothing", "", saved(`"false"`, "{paused: true}"), unheld, "false"},
		{"nor does what was saved and cannot be read", "", saved(nonsense, "{paused: true}"), unheld, "false"},
		{"what was saved while the user had it paused pauses it", "", saved(`"true"`, "{paused: true}"), unheld, "true"},
		{"applying that again changes nothing", "", saved(`"true"`, "{paused: true}"), unheld, "true"},
		{"what was saved while it was not paused resumes it", "", saved(`"false"`, "{paused: true}"), "false", "true"},
		{"the controller lets go once more", controllers, holds(lets), unheld, "false"},
		{"an edit", "", edits("3"), "false", "true"},
		{"wishing a pause says nothing, because that is what is held", "", pauses, "false", "true"},
		{"Reloader notes that it pauses, which is a wish", "", reloader(`"2026-01-01T00:00:00Z"`, "true"), "true", "true"},
		{"Reloader resumes it", "", reloader("null", "false"), "false", "true"},
		{"removing the hold", "", holds(lets), "false", "true"},
		{"what the hold says is wished", "", holds(`"true"`), "true", "true"},
		{"nonsense wishes nothing", "", holds(`"yes"`), "true", "true"},
		{"resuming it is a wish", "", resumes, "false", "true"},
		{"another write of the controller", controllers, annotates("c", "d"), "false", "true"},
		{"the controller lets go again", controllers, holds(lets), unheld, "false"},
		{"an edit that pauses, too, is the user's", "", "{spec: {paused: true, template: {spec: {schedulerName: v4}}}}", unheld, "true"},
		{"an edit that resumes, too, is held", "", "{spec: {paused: false, template: {spec: {schedulerName: v5}}}}", "false", "true"},
		{"opting out lets go", "", optsIn(lets), unheld, "false"},
		{"opted out, a change of the template is nobody's business", "", edits("6"), unheld, "false"},
		{"opted out, so is a hold that came from a ReplicaSet", "", holds(`"true"`), "true", "false"},
		{"opting out by another value", "", optsIn(`"false"`), "true", "false"},
		{"pausing while opted out", "", saved("null", "{paused: true}"), unheld, "true"},
		{"opting in while paused", "", optsIn(`"true"`), unheld, "true"},
		{"opting out while paused", "", optsIn(lets), unheld, "true"},
	})

	strategy := func(strategy string) string { return "{spec: {updateStrategy: " + strategy + "}}" }
	const toHold = "{updateStrategy: {type: OnDelete}}"
	drops := func(manager, owns string) string {
		return "{metadata: {managedFields: [{manager: " + manager + ", operation: Apply, fieldsV1: {f:spec: {f:updateStrategy: {" + owns + "}}}}]}, spec: {updateStrategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 0}}}}"
	}
	holdsAgain(t, "DaemonSet", "{type: RollingUpdate, maxUnavailable: 1}", []string{"spec", "updateStrategy", "type"}, []written{
		{"a write that changes no template", "", annotates("a", "b"), unheld, "RollingUpdate"},
		{"forging a hold", "", holds("RollingUpdate"), unheld, "RollingUpdate"},
		{"forging a wish", "", holds(onDelete), unheld, "RollingUpdate"},
		{"applying what was saved during a hold changes nothing", "", saved("RollingUpdate", toHold), unheld, "RollingUpdate"},
		{"nor does what was saved and cannot be read", "", saved(nonsense, toHold), unheld, "RollingUpdate"},
		{"the controller cannot hold", controllers, holds("RollingUpdate"), unheld, "RollingUpdate"},
		{"nor switch", controllers, strategy("{type: OnDelete}"), unheld, "RollingUpdate"},
		{"an edit", "", edits("2"), "RollingUpdate", onDelete},
		{"wishing what is wished already", "", strategy("{type: RollingUpdate}"), "RollingUpdate", onDelete},
		{"wishing OnDelete says nothing, because that is what is there", "", strategy("{type: OnDelete}"), "RollingUpdate", onDelete},
		{"removing the hold", "", holds(lets), "RollingUpdate", onDelete},
		{"nonsense wishes nothing", "", holds(nonsense), "RollingUpdate", onDelete},
		{"the controller of another namespace cannot let go", strangers, holds(lets), "RollingUpdate", onDelete},
		{"the controller cannot switch", controllers, strategy("{type: RollingUpdate}"), "RollingUpdate", onDelete},
		{"the annotation may say OnDelete", "", holds(onDelete), unheld, onDelete},
		{"OnDelete needs no hold", "", edits("3"), unheld, onDelete},
		{"switching back", "", strategy("{type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}"), "RollingUpdate", onDelete},
		{"limits that another manager has dropped", "", drops("other", "f:type: {}"), "RollingUpdate", onDelete},
		{"limits of 0 that somebody applies", "", drops("test", "f:type: {}, f:rollingUpdate: {}"), "RollingUpdate", onDelete},
		{"an apply of OnDelete that drops them", "", drops("test", "f:type: {}"), unheld, onDelete},
		{"switching back again", "", strategy("{type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}"), "RollingUpdate", onDelete},
		{"taking rollingUpdate away", "", strategy("{rollingUpdate: null}"), unheld, onDelete},
		{"what was saved during a hold rolls", "", saved("RollingUpdate", toHold), "RollingUpdate", onDelete},
		{"the controller lets go", controllers, holds(lets), unheld, "RollingUpdate"},
		{"the user's own OnDelete", "", strategy("{type: OnDelete}"), unheld, onDelete},
		{"an edit that wishes it", "", "{spec: {updateStrategy: {type: OnDelete}, template: {spec: {schedulerName: v5}}}}", unheld, onDelete},
		{"but one that ends it", "", "{spec: {updateStrategy: {type: RollingUpdate}, template: {spec: {schedulerName: v6}}}}", "RollingUpdate", onDelete},
		{"opting out lets go", "", optsIn(lets), unheld, "RollingUpdate"},
		{"opted out, so is the annotation", "", holds("RollingUpdate"), "RollingUpdate", "RollingUpdate"},
		{"opting in is held", "", optsIn(`"true"`), "RollingUpdate", onDelete},
		{"opting out by another value", "", optsIn(`"false"`), unheld, "RollingUpdate"},
		{"opting in with OnDelete", "", "{metadata: {labels: {" + api.EnabledLabel + `: "true"}}, spec: {updateStrategy: {type: OnDelete, rollingUpdate: null}}}`, unheld, onDelete},
		{"opting out and switching back at once", "", "{metadata: {labels: {" + api.EnabledLabel + ": null}}, spec: {updateStrategy: {type: RollingUpdate}}}", unheld, "RollingUpdate"},
	})
}

// holdsAgain makes the writes one after the other. In between, the built-in controller sees what came of each.
func holdsAgain(t *testing.T, kind, rollout string, field []string, writes []written) {
	t.Helper()
	p, now := load(t), workload(t, kind, 100, "", rollout)
	for _, w := range writes {
		patch := must.Get(yaml.YAMLToJSON([]byte(w.patch)))(t)
		stored, err := now.MarshalJSON()
		if err == nil {
			stored, err = jsonpatch.MergePatch(stored, patch)
		}
		must.Do(t, err)
		object := &unstructured.Unstructured{}
		must.Do(t, object.UnmarshalJSON(stored))
		after := asks(t, p, cmp.Or(w.user, "alice"), now, object, nil)
		hold, held := after.GetAnnotations()[api.HoldAnnotation]
		value, has, _ := unstructured.NestedFieldNoCopy(after.Object, field...)
		is := ""
		if has {
			is = fmt.Sprint(value)
		}
		if held != (w.hold != unheld) || held && hold != w.hold || is != w.field {
			t.Errorf("%s, %s: it is held: %t, with %q and %s, want %s and %s", kind, w.what, held, hold, is, w.hold, w.field)
		}
		if value, kept := after.GetAnnotations()[api.PartitionAnnotation]; kept {
			t.Errorf("%s, %s: the instruction %s is stored", kind, w.what, value)
		}
		if !reflect.DeepEqual(after.Object["spec"], now.Object["spec"]) {
			after.SetGeneration(now.GetGeneration() + 1)
			_ = unstructured.SetNestedField(after.Object, after.GetGeneration(), "status", "observedGeneration")
		}
		now = after
	}
}

// TestCreated: what was saved during a hold and is created is what its user wanted, and nothing has to be kept of it.
func TestCreated(t *testing.T) {
	p := load(t)
	for kind, writes := range map[string][][4]string{ // the hold, what comes in, and what comes of both
		"Deployment": {
			{"false", "paused: true", "", "paused: false"}, {"true", "paused: true", "", "paused: true"}, {"false", "paused: false", "", "paused: false"},
			{"true", "paused: false", "", "paused: false"}, {"yes", "paused: false", "", "paused: false"}, {"yes", "paused: true", "", "paused: false"},
		},
		"DaemonSet": {
			{"RollingUpdate", "type: OnDelete, maxUnavailable: 2", "RollingUpdate", "type: OnDelete, maxUnavailable: 2"}, {"nonsense", "type: OnDelete, maxUnavailable: 2", "RollingUpdate", "type: OnDelete, maxUnavailable: 2"},
			{"OnDelete", "type: OnDelete", "", "type: OnDelete"}, {"", "type: OnDelete", "", "type: OnDelete"},
			{"", "type: RollingUpdate, maxUnavailable: 2", "RollingUpdate", "type: OnDelete, maxUnavailable: 2"},
		},
	} {
		for _, w := range writes {
			now := asks(t, p, "alice", nil, workload(t, kind, 100, w[0], "{"+w[1]+"}"), nil)
			if got := now.GetAnnotations()[api.HoldAnnotation]; got != w[2] {
				t.Errorf("%s with hold %q and %s is held: %q, want %q", kind, w[0], w[1], got, w[2])
			}
			for _, part := range []string{"updateStrategy", "paused"} {
				is, _, _ := unstructured.NestedFieldNoCopy(now.Object, "spec", part)
				want, _, _ := unstructured.NestedFieldNoCopy(workload(t, kind, 100, "", "{"+w[3]+"}").Object, "spec", part)
				if !reflect.DeepEqual(is, want) && (is != nil || want != false) {
					t.Errorf("%s with hold %q and %s: %s is %v, want %v", kind, w[0], w[1], part, is, want)
				}
			}
		}
	}
}

// TestNormalised: what a webhook sets right each time is no edit in the end.
func TestNormalised(t *testing.T) {
	p := load(t)
	for kind, rollout := range map[string]string{"StatefulSet": "{type: RollingUpdate, partition: 0}", "Deployment": "{paused: false}", "DaemonSet": "{type: RollingUpdate, maxUnavailable: 1}"} {
		old := workload(t, kind, 100, "", rollout)
		now := asks(t, p, "alice", old, workload(t, kind, 200, "", rollout), func(u *unstructured.Unstructured) {
			u.Object["spec"].(map[string]any)["template"] = old.DeepCopy().Object["spec"].(map[string]any)["template"]
		})
		if _, held := now.GetAnnotations()[api.HoldAnnotation]; held {
			t.Errorf("%s is held: %v", kind, now.Object)
		}
	}
}

// TestHoldOfALargeTemplate: what the policies compute stays within what the API server lets a policy cost, also of a template as
// large as one can be.
func TestHoldOfALargeTemplate(t *testing.T) {
	p := load(t)
	var env, containers []any
	for i := range 100 {
		env = append(env, map[string]any{"name": fmt.Sprint("VARIABLE_", i), "value": strings.Repeat("x", 50)})
	}
	for i := range 50 {
		containers = append(containers, map[string]any{"name": fmt.Sprint("sidecar-", i), "image": "app:1", "env": env})
	}
	for kind, rollout := range map[string]string{"StatefulSet": "{type: RollingUpdate, partition: 0}", "Deployment": "{paused: false}", "DaemonSet": "{type: RollingUpdate, maxUnavailable: 1}"} {
		with := func(image string) *unstructured.Unstructured {
			u := workload(t, kind, 100, "", rollout)
			spec := u.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
			spec["containers"] = append([]any{map[string]any{"name": "app", "image": image}}, containers...)
			return u
		}
		if _, held := asks(t, p, "alice", with("app:1"), with("app:2"), nil).GetAnnotations()[api.HoldAnnotation]; !held {
			t.Errorf("the %s is not held", kind)
		}
	}
}
