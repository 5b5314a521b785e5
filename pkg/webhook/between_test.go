package webhook

import (
	"cmp"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// workload of a kind, with this version of the template, and in the spec what its rollout depends on.
func workload(t *testing.T, kind string, template int, hold, rollout string) *unstructured.Unstructured {
	t.Helper()
	annotations := map[string]string{}
	if hold != "" {
		annotations[api.HoldAnnotation] = hold
	}
	encoded := must.Get(yaml.YAMLToJSON(fmt.Appendf(nil, `
apiVersion: apps/v1
kind: %s
metadata: {name: web, namespace: default, resourceVersion: "7", generation: 2, labels: {%s: "true"}}
spec:
  replicas: 3
  template: {spec: {containers: [{name: app, resources: {requests: {cpu: %dm}}}]}}
status: {replicas: 3, updatedReplicas: 3, observedGeneration: 2, updateRevision: web-1}
`, kind, api.EnabledLabel, template)))(t)
	u := &unstructured.Unstructured{}
	must.Do(t, u.UnmarshalJSON(encoded))
	u.SetAnnotations(annotations)
	wants(t, u, rollout)
	return u
}

// wants sets what the rollout of a workload depends on: its partition, whether it is paused, or its strategy.
func wants(t *testing.T, u *unstructured.Unstructured, rollout string) {
	t.Helper()
	var fields map[string]any
	must.Do(t, yaml.Unmarshal([]byte(rollout), &fields))
	for name, value := range fields {
		if n, is := value.(float64); is {
			value = int64(n)
		}
		path := map[string][]string{
			"partition": {"spec", "updateStrategy", "rollingUpdate", "partition"}, "type": {"spec", "updateStrategy", "type"}, "paused": {"spec", "paused"},
			"start":          {"spec", "ordinals", "start"},
			"maxUnavailable": {"spec", "updateStrategy", "rollingUpdate", "maxUnavailable"},
		}[name]
		must.Do(t, unstructured.SetNestedField(u.Object, value, path...))
	}
}

// asks the policy that holds as API servers ask it: webhooks come in between.
func asks(t *testing.T, p *Policies, user string, old, object *unstructured.Unstructured, webhooks func(*unstructured.Unstructured)) *unstructured.Unstructured {
	t.Helper()
	resource := map[string]string{"StatefulSet": "statefulsets", "Deployment": "deployments", "DaemonSet": "daemonsets"}[object.GetKind()]
	for i := range 2 {
		w := Write{Object: object.DeepCopy(), Old: old, User: user, FieldManager: "test"}
		after := must.Get(p.applyOnce(t.Context(), p.byName["inplace-rollout-hold"], w.attributes(object.GroupVersionKind(), schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource})))(t)
		if after != nil {
			object = after.(*unstructured.Unstructured)
		}
		if i == 0 && webhooks != nil {
			webhooks(object)
		}
	}
	if mark, has := object.GetAnnotations()[api.WishAnnotation]; has {
		t.Errorf("the mark of the first answer is stored: %q", mark)
	}
	return object
}

// TestBetweenTheAskings: what a webhook sets after the first answer is what is wished. What stands in a manifest that was saved during
// a hold is not.
func TestBetweenTheAskings(t *testing.T) {
	p := load(t)
	const sets, all, set, deployment, daemons = "type: RollingUpdate, partition: ", "2147483647", "StatefulSet", "Deployment", "DaemonSet"
	for _, tt := range []struct {
		kind, what   string
		hold, before string // of what there was
		brings, asks string // what comes in: its hold, if not that of before, and the rest
		same         bool   // whether the template stays
		user         string
		sees         string // what the webhook is to see, if that is not what comes in
		webhook      string
		want, holds  string // what is stored: the rest, and its hold; empty if it has none
	}{
		{kind: set, what: "no webhook", before: sets + "0", asks: sets + "0", want: sets + all, holds: "0"},
		{kind: set, what: "a partition is set beside an edit (MOCO)", before: sets + "0", asks: sets + "0", webhook: "partition: 3", want: sets + all, holds: "3"},
		{kind: set, what: "it lowers what the user has set", before: sets + "3", asks: sets + "3", webhook: "partition: 1", want: sets + all, holds: "1"},
		{kind: set, what: "in the middle of a hold", hold: "0", before: sets + all, asks: sets + all, sees: "0", webhook: "partition: 3", want: sets + all, holds: "3"},
		{kind: set, what: "in the middle of a hold, without an edit", hold: "0", before: sets + all, asks: sets + all, same: true, sees: "0", webhook: "partition: 3", want: sets + all, holds: "3"},
		{kind: set, what: "a hold is kept", hold: "2", before: sets + all, asks: sets + all, same: true, sees: "2", want: sets + all, holds: "2"},
		{kind: set, what: "a hold at an ordinal is kept", hold: "0", before: sets + "2", asks: sets + "2", same: true, sees: "0", want: sets + "2", holds: "0"},
		{kind: set, what: "a manifest that was saved", before: sets + "0", brings: "2", asks: sets + all, sees: "2", want: sets + all, holds: "2"},
		{kind: set, what: "a manifest that was saved, and a webhook", before: sets + "0", brings: "2", asks: sets + all, sees: "2", webhook: "partition: 1", want: sets + all, holds: "1"},
		{kind: set, what: "OnDelete", before: sets + "0", asks: sets + "0", webhook: "type: OnDelete", want: "type: OnDelete, partition: 0", holds: "OnDelete"},
		{kind: set, what: "the controller moves it", hold: "0", before: sets + all, asks: sets + all, same: true, user: deploy.User, want: sets + all, holds: "0"},

		{kind: deployment, what: "no webhook", before: "paused: false", asks: "paused: false", want: "paused: true", holds: "false"},
		{kind: deployment, what: "it is paused beside an edit (OpenKruise)", before: "paused: false", asks: "paused: false", webhook: "paused: true", want: "paused: true"},
		{kind: deployment, what: "it is resumed beside an edit", before: "paused: true", asks: "paused: true", webhook: "paused: false", want: "paused: true", holds: "false"},
		{kind: deployment, what: "in the middle of a hold", hold: "false", before: "paused: true", asks: "paused: true", sees: "false", webhook: "paused: true", want: "paused: true", holds: "true"},
		{kind: deployment, what: "in the middle of a hold, without an edit", hold: "false", before: "paused: true", asks: "paused: true", same: true, sees: "false", webhook: "paused: true", want: "paused: true", holds: "true"},
		{kind: deployment, what: "a hold is kept", hold: "false", before: "paused: true", asks: "paused: true", same: true, sees: "false", want: "paused: true", holds: "false"},
		{kind: deployment, what: "a hold that leaves it paused is kept", hold: "true", before: "paused: true", asks: "paused: true", same: true, want: "paused: true", holds: "true"},
		{kind: deployment, what: "a manifest that was saved", before: "paused: false", brings: "false", asks: "paused: true", sees: "false", want: "paused: true", holds: "false"},
		{kind: deployment, what: "a manifest that was saved, and a webhook", before: "paused: false", brings: "false", asks: "paused: true", sees: "false", webhook: "paused: true", want: "paused: true"},

		{kind: daemons, what: "no webhook", before: "type: RollingUpdate, maxUnavailable: 1", asks: "type: RollingUpdate, maxUnavailable: 1", want: "type: OnDelete, maxUnavailable: 1", holds: "RollingUpdate"},
		{kind: daemons, what: "OnDelete beside an edit", before: "type: RollingUpdate, maxUnavailable: 1", asks: "type: RollingUpdate, maxUnavailable: 1", webhook: "type: OnDelete", want: "type: OnDelete, maxUnavailable: 1"},
		{kind: daemons, what: "in the middle of a hold", hold: "RollingUpdate", before: "type: OnDelete, maxUnavailable: 1", asks: "type: OnDelete, maxUnavailable: 1", sees: "RollingUpdate", webhook: "type: OnDelete", want: "type: OnDelete"},
		{kind: daemons, what: "a hold is kept", hold: "RollingUpdate", before: "type: OnDelete, maxUnavailable: 1", asks: "type: OnDelete, maxUnavailable: 1", same: true, sees: "RollingUpdate", want: "type: OnDelete, maxUnavailable: 1", holds: "RollingUpdate"},
		{kind: daemons, what: "a manifest that was saved", before: "type: RollingUpdate, maxUnavailable: 1", brings: "RollingUpdate", asks: "type: OnDelete, maxUnavailable: 1", sees: "RollingUpdate", want: "type: OnDelete, maxUnavailable: 1", holds: "RollingUpdate"},
	} {
		t.Run(tt.kind+" "+tt.what, func(t *testing.T) {
			template := 200
			if tt.same {
				template = 100
			}
			brings := tt.brings
			if brings == "" {
				brings = tt.hold
			}
			field := map[string][]string{set: {"spec", "updateStrategy", "rollingUpdate", "partition"}, deployment: {"spec", "paused"}, daemons: {"spec", "updateStrategy", "type"}}[tt.kind]
			object := workload(t, tt.kind, template, brings, "{"+tt.asks+"}")
			now := asks(t, p, cmp.Or(tt.user, "alice"), workload(t, tt.kind, 100, tt.hold, "{"+tt.before+"}"), object, func(u *unstructured.Unstructured) {
				is, _, _ := unstructured.NestedFieldNoCopy(u.Object, field...)
				if tt.sees != "" && fmt.Sprint(is) != tt.sees {
					t.Errorf("the webhook sees %v, want %s", is, tt.sees)
				}
				wants(t, u, "{"+tt.webhook+"}")
			})
			want := workload(t, tt.kind, template, "", "{"+tt.want+"}")
			for _, part := range []string{"updateStrategy", "paused"} {
				is, _, _ := unstructured.NestedFieldNoCopy(now.Object, "spec", part)
				if want, _, _ := unstructured.NestedFieldNoCopy(want.Object, "spec", part); fmt.Sprint(is) != fmt.Sprint(want) {
					t.Errorf("%s is %v, want %v", part, is, want)
				}
			}
			if got := now.GetAnnotations()[api.HoldAnnotation]; got != tt.holds {
				t.Errorf("it is held: %q, want %q", got, tt.holds)
			}
		})
	}
}

// TestInForce: what is in force is written down only where the annotations do not say it any more.
func TestInForce(t *testing.T) {
	p := load(t)
	const action, list = api.ResizeActionAnnotation, api.ResizePolicyAnnotation
	type says = map[string]string
	guarded := says{api.CanaryAnnotation: "10%", api.CanaryDurationAnnotation: "5m", api.OnFailureAnnotation: "Revert", api.ChecksAnnotation: "a, b"}
	const stopped = `{"phase":"Stopped","version":1,"of":"edit 7","began":"2026-01-01T00:00:00Z","since":"2026-01-01T00:00:01Z"}`
	for _, tt := range []struct {
		what     string
		had, has says // but for what is in force, which is kept
		edit     bool
		creates  bool
		optsIn   bool
		want     string // what is stored; "absent" for nothing
	}{
		{what: "a new one", has: says{action: "LiveResize"}, creates: true, want: "absent"},
		{what: "a new one of a manifest that was saved", has: says{action: "LiveResize", api.InForceAnnotation: "Restart;"}, creates: true, want: "absent"},
		{what: "an edit", had: says{action: "LiveResize"}, has: says{action: "LiveResize"}, edit: true, want: "absent"},
		{what: "an edit that brings an action", has: says{action: "LiveResize"}, edit: true, want: "absent"},
		{what: "opting in", had: says{action: "Restart"}, has: says{action: "LiveResize"}, optsIn: true, want: "absent"},
		{what: "another action", had: says{action: "LiveResize"}, has: says{action: "Restart"}, want: "LiveResize;;;;;"},
		{what: "an action comes", has: says{action: "Restart"}, want: ";;;;;"},
		{what: "an action goes", had: says{action: "Restart"}, want: "Restart;;;;;"},
		{what: "a policy comes", had: says{action: "Restart"}, has: says{action: "Restart", list: "cpu=RestartOnly"}, want: "Restart;;;;;"},
		{what: "it stays", had: says{action: "Restart", api.InForceAnnotation: "LiveResize;"}, has: says{action: "Restart"}, want: "LiveResize;;;;;"},
		{what: "it stays, whatever is written", had: says{action: "Restart", api.InForceAnnotation: "LiveResize;"}, has: says{action: "Restart", api.InForceAnnotation: "Restart;"}, want: "LiveResize;;;;;"},
		{what: "the annotations say it again", had: says{action: "Restart", api.InForceAnnotation: "LiveResize;"}, has: says{action: "LiveResize"}, want: "absent"},
		{what: "the next edit", had: says{action: "Restart", api.InForceAnnotation: "LiveResize;"}, has: says{action: "Restart", api.InForceAnnotation: "LiveResize;"}, edit: true, want: "absent"},
		{what: "another try", had: says{action: "LiveResize", list: "cpu=RestartOnly", api.HoldAnnotation: "any"}, has: says{action: "LiveResize", list: "cpu=RestartOnly", api.RetryAnnotation: "now;Restart"}, want: "Restart;cpu=RestartOnly;;;;"},
		{what: "a guard comes", has: guarded, want: ";;;;;"},
		{what: "a guard goes", had: guarded, want: ";;10%;5m;Revert;a, b"},
		{what: "a duration changes", had: guarded, has: says{api.CanaryAnnotation: "10%", api.CanaryDurationAnnotation: "1h", api.OnFailureAnnotation: "Revert", api.ChecksAnnotation: "a, b"}, want: ";;10%;5m;Revert;a, b"},
		{what: "an edit without a guard", had: guarded, edit: true, want: "absent"},
		{what: "another try, after the guard went", had: says{api.InForceAnnotation: "LiveResize;;1;manual;;", api.HoldAnnotation: "any"}, has: says{api.RetryAnnotation: "now;Restart"}, want: "Restart;;1;manual;;"},
		{what: "another try of what was stopped", had: says{api.RolloutAnnotation: stopped, api.HoldAnnotation: "any"}, has: says{api.RetryAnnotation: "edit 7@2026-01-01T00:00:01Z;Restart"}, want: "Restart;;;;;"},
		{what: "a manifest from another stop", had: says{api.RolloutAnnotation: stopped, api.HoldAnnotation: "any"}, has: says{api.RetryAnnotation: "edit 7@2026-01-01T00:00:00Z;Restart"}, want: "absent"},
		{what: "a former version knew of no guard", had: says{api.CanaryAnnotation: "1", api.InForceAnnotation: "Restart;"}, want: "Restart;;1;;;"},
		{what: "what nobody can read", had: says{action: "Restart", api.InForceAnnotation: "LiveResize;;1"}, has: says{action: "Restart"}, want: "absent"},
		{what: "a former version has written it", had: says{action: "LiveResize", api.InForceAnnotation: "LiveResize;"}, has: says{action: "LiveResize", api.InForceAnnotation: "LiveResize;"}, want: "absent"},
	} {
		for kind, rollout := range map[string]string{"StatefulSet": "{type: RollingUpdate, partition: 0}", "Deployment": "{paused: false}", "DaemonSet": "{type: RollingUpdate, maxUnavailable: 1}"} {
			t.Run(kind+" "+tt.what, func(t *testing.T) {
				template := 100
				if tt.edit {
					template = 200
				}
				old, object := workload(t, kind, 100, "", rollout), workload(t, kind, template, "", rollout)
				old.SetAnnotations(tt.had)
				object.SetAnnotations(tt.has)
				if tt.optsIn {
					old.SetLabels(nil)
				}
				if tt.creates {
					old = nil
				}
				if got, has := asks(t, p, "alice", old, object, nil).GetAnnotations()[api.InForceAnnotation]; has != (tt.want != "absent") || has && got != tt.want {
					t.Errorf("in force is %q, want %s", got, tt.want)
				}
			})
		}
	}
}

// managed has a manager own fields of the object, by what it has written at that second.
func managed(t *testing.T, u *unstructured.Unstructured, manager, operation, fields string, second int) {
	t.Helper()
	var entry map[string]any
	must.Do(t, yaml.Unmarshal(fmt.Appendf(nil, "{manager: %s, operation: %s, time: \"2026-01-01T00:00:%02dZ\", apiVersion: apps/v1, fieldsType: FieldsV1, fieldsV1: %s}", manager, operation, second, fields), &entry))
	entries, _, _ := unstructured.NestedSlice(u.Object, "metadata", "managedFields")
	must.Do(t, unstructured.SetNestedSlice(u.Object, append(entries, entry), "metadata", "managedFields"))
}

// TestPausesDuringAHold: who pauses a held Deployment changes nothing by that, but may say so.
func TestPausesDuringAHold(t *testing.T) {
	p := load(t)
	const note, paused = "deployment.reloader.stakater.com/paused-at", `{"f:spec": {"f:paused": {}}}`
	type change = func(*unstructured.Unstructured)
	noted := func(hold, name, value string) change {
		return func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{api.HoldAnnotation: hold, name: value})
		}
	}
	owned := func(manager, fields string, second int) change {
		return func(u *unstructured.Unstructured) { managed(t, u, manager, "Apply", fields, second) }
	}
	reloaded := noted("false", note, "2026-01-01T00:00:00Z")
	for _, tt := range []struct {
		what    string
		hold    string // what it had; else false
		old, is change
		want    string
	}{
		{what: "Reloader", is: reloaded, want: "true"},
		{what: "its note of before", old: reloaded, is: reloaded, want: "false"},
		{what: "it resumes", hold: "true", old: noted("true", note, "2026-01-01T00:00:00Z"), is: func(u *unstructured.Unstructured) { wants(t, u, "{paused: false}") }, want: "false"},
		{what: "it takes the note away alone", hold: "true", old: noted("true", note, "2026-01-01T00:00:00Z"), want: "true"},
		{what: "server-side apply", is: owned("flux", paused, 2), want: "true"},
		{what: "server-side apply of what was saved", is: owned("kubectl", `{"f:metadata": {"f:annotations": {"f:inplace-rollout.io/hold": {}}}, "f:spec": {"f:paused": {}}}`, 2), want: "false"},
		{what: "an applier that has it already", old: owned("flux", paused, 1), is: owned("flux", paused, 2), want: "false"},
		{what: "another field", is: owned("flux", `{"f:spec": {"f:replicas": {}}}`, 2), want: "false"},
		{what: "kubectl annotate", is: noted("false", "example.com/a", "b"), want: "false"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			hold := cmp.Or(tt.hold, "false")
			old, object := workload(t, "Deployment", 100, hold, "{paused: true}"), workload(t, "Deployment", 100, hold, "{paused: true}")
			if tt.old != nil {
				tt.old(old)
			}
			if tt.is != nil {
				tt.is(object)
			}
			now := asks(t, p, "alice", old, object, nil)
			if is, _, _ := unstructured.NestedBool(now.Object, "spec", "paused"); !is || now.GetAnnotations()[api.HoldAnnotation] != tt.want {
				t.Errorf("paused: %t, held: %q, want %q", is, now.GetAnnotations()[api.HoldAnnotation], tt.want)
			}
		})
	}
}

// TestWhoTakesTheEditAway: kubectl goes back to a ReplicaSet from before the opt-in, with the settings of that time. Terraform takes away
// what it does not know, and what it sets in that write is its own.
func TestWhoTakesTheEditAway(t *testing.T) {
	p := load(t)
	const action, list, confirms = api.ResizeActionAnnotation, api.ResizePolicyAnnotation, api.AllowCriticalAnnotation
	type says = map[string]string
	for _, tt := range []struct {
		what, manager  string
		had, has, want says // beside the names of edits
		brings         string
	}{
		{what: "Terraform adds an action", manager: "Terraform", has: says{action: "LiveResize"}, want: says{action: "LiveResize"}},
		{what: "Terraform changes it", manager: "Terraform", had: says{action: "Restart"}, has: says{action: "LiveResize"}, want: says{action: "LiveResize"}},
		{what: "Terraform knows none", manager: "Terraform", had: says{action: "LiveResize", list: "cpu=RestartOnly"}, has: says{list: "memory=RestartOnly"}, want: says{action: "LiveResize", list: "memory=RestartOnly"}},
		{what: "undo to before the opt-in", manager: "kubectl", has: says{action: "Restart"}, want: says{}},
		{what: "undo to before the opt-in, with another action", manager: "kubectl", had: says{action: "LiveResize"}, has: says{action: "Restart"}, want: says{action: "LiveResize"}},
		{what: "undo", manager: "kubectl", had: says{action: "LiveResize"}, has: says{list: "cpu=RestartOnly"}, want: says{action: "LiveResize"}, brings: "3"},
		{what: "undo to before it was confirmed that a critical one is opted in", manager: "kubectl", had: says{confirms: "true"}, want: says{confirms: "true"}, brings: "3"},
		{what: "undo by another client", manager: "k9s", had: says{action: "LiveResize"}, has: says{list: "cpu=RestartOnly"}, want: says{action: "LiveResize"}, brings: "3"},
		{what: "who brings the name of now sets what it sets", manager: "kubectl-edit", had: says{action: "LiveResize"}, has: says{action: "Restart"}, want: says{action: "Restart"}, brings: "5"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			old, object := workload(t, "Deployment", 100, "", "{paused: false}"), workload(t, "Deployment", 200, "", "{paused: false}")
			for u, is := range map[*unstructured.Unstructured]struct {
				says
				edit string
			}{old: {tt.had, "5"}, object: {tt.has, tt.brings}} {
				annotations := says{"deployment.kubernetes.io/revision": "2"}
				for key, value := range is.says {
					annotations[key] = value
				}
				if is.edit != "" {
					annotations[api.EditAnnotation] = is.edit
				}
				u.SetAnnotations(annotations)
				managed(t, u, "kube-controller-manager", "Update", "{}", 1)
			}
			managed(t, object, tt.manager, "Update", "{}", 2)
			now := asks(t, p, "alice", old, object, nil).GetAnnotations()
			if now[action] != tt.want[action] || now[list] != tt.want[list] || now[confirms] != tt.want[confirms] || now[api.InForceAnnotation] != "" {
				t.Errorf("it says %v, want %v", now, tt.want)
			}
		})
	}
}

// TestRecreateDuringAHold: what is in force of the strategy is written down where Recreate comes in the middle of a hold.
func TestRecreateDuringAHold(t *testing.T) {
	p := load(t)
	const recreate, mark = "{type: Recreate}", api.InForceStrategyAnnotation
	rolling := func(surge, unavailable string) string {
		return fmt.Sprintf("{type: RollingUpdate, rollingUpdate: {maxSurge: %s, maxUnavailable: %s}}", surge, unavailable)
	}
	for _, tt := range []struct {
		what           string
		had, has       string // the strategies
		marked, brings string
		free, edit     bool // it is not held before, or edited
		user           string
		want           string
	}{
		{what: "it comes", had: rolling("1", "0"), has: recreate, want: "1;0"},
		{what: "percentages", had: rolling("25%", "50%"), has: recreate, want: "25%;50%"},
		{what: "the default", had: "{type: RollingUpdate}", has: recreate, want: "25%;25%"},
		{what: "with something else in the mark", had: rolling("1", "0"), has: recreate, brings: "0;9", want: "1;0"},
		{what: "it stays", had: recreate, has: recreate, marked: "1;0", brings: "1;0", want: "1;0"},
		{what: "whatever is written", had: recreate, has: recreate, marked: "1;0", brings: "0;9", want: "1;0"},
		{what: "also where the mark is taken away", had: recreate, has: recreate, marked: "1;0", want: "1;0"},
		{what: "and in the controller's writes", had: recreate, has: recreate, marked: "1;0", user: "system:serviceaccount:inplace-rollout:inplace-rollout", want: "1;0"},
		{what: "it goes", had: recreate, has: rolling("1", "0"), marked: "1;0", brings: "1;0"},
		{what: "the edit came with it", had: recreate, has: recreate, brings: "1;0"},
		{what: "the next edit", had: recreate, has: recreate, marked: "1;0", brings: "1;0", edit: true},
		{what: "an edit that brings it", had: rolling("1", "0"), has: recreate, edit: true},
		{what: "it is not held", had: rolling("1", "0"), has: recreate, brings: "1;0", free: true},
		{what: "other limits", had: rolling("1", "0"), has: rolling("1", "1")},
	} {
		t.Run(tt.what, func(t *testing.T) {
			hold, paused, template := "false", "{paused: true}", 100
			if tt.free {
				hold, paused = "", "{paused: false}"
			}
			if tt.edit {
				template = 200
			}
			old, object := workload(t, "Deployment", 100, hold, paused), workload(t, "Deployment", template, hold, paused)
			for u, is := range map[*unstructured.Unstructured][2]string{old: {tt.had, tt.marked}, object: {tt.has, tt.brings}} {
				var strategy map[string]any
				must.Do(t, yaml.Unmarshal([]byte(is[0]), &strategy))
				if limits, has := strategy["rollingUpdate"].(map[string]any); has {
					for k, v := range limits {
						if n, is := v.(float64); is {
							limits[k] = int64(n)
						}
					}
				}
				must.Do(t, unstructured.SetNestedMap(u.Object, strategy, "spec", "strategy"))
				if annotations := u.GetAnnotations(); is[1] != "" {
					if annotations == nil {
						annotations = map[string]string{}
					}
					annotations[mark] = is[1]
					u.SetAnnotations(annotations)
				}
			}
			now := asks(t, p, cmp.Or(tt.user, "alice"), old, object, nil).GetAnnotations()
			if got, has := now[mark]; got != tt.want || has != (tt.want != "") {
				t.Errorf("in force is %q, want %q", got, tt.want)
			}
		})
	}
}
