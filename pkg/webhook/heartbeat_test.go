package webhook_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/pkg/webhook"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// loaded are the policies for each controller, compiled once: with the race detector, that takes a second.
var loaded = map[string]*webhook.Policies{}

func load(t *testing.T, controller string) *webhook.Policies {
	t.Helper()
	if loaded[controller] == nil {
		policies := must.Get(webhook.Load(deploy.Cluster, controller))(t)
		loaded[controller] = policies
	}
	own := *loaded[controller]
	return &own
}

// following are the policies, with the ServiceAccounts that there are in namespaces.
func following(t *testing.T, controller string, accounts map[string]map[string]string) *webhook.Policies {
	t.Helper()
	policies := load(t, controller)
	client := fake.NewClientset()
	for namespace, annotations := range accounts {
		must.Do(t, client.Tracker().Add(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: api.HeartbeatName, Annotations: annotations}}))
	}
	follow(t, policies, must.Get(webhook.NewHeartbeat(client, client, controller))(t))
	return policies
}

// follow has the policies look at a heartbeat, until the test ends.
func follow(t *testing.T, policies *webhook.Policies, parameter *webhook.Heartbeat) {
	t.Helper()
	policies.Follow(parameter)
	if _, err := policies.Admit(t.Context(), webhook.Write{Object: workload(t, "StatefulSet", "", "", ""), User: "user"}); err == nil {
		t.Error("the heartbeat is not known, and the policy says something")
	}
	go parameter.Run(t.Context())
	for parameter.Ready() != nil {
		time.Sleep(time.Millisecond)
	}
}

// admit is what the policies make of a write.
func admit(t *testing.T, policies *webhook.Policies, w webhook.Write) *unstructured.Unstructured {
	t.Helper()
	return must.Get(policies.Admit(t.Context(), w))(t)
}

// workload has a template with the image, annotations, and a time of its last write.
func workload(t *testing.T, kind, image, annotations, written string) *unstructured.Unstructured {
	t.Helper()
	hold := map[string]string{
		"StatefulSet": "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: %s}}",
		"Deployment":  "paused: %s", "DaemonSet": "updateStrategy: {type: %s, rollingUpdate: {maxUnavailable: 1, maxSurge: 0}}",
	}[kind]
	value := map[string]string{"StatefulSet": "0", "Deployment": "false", "DaemonSet": "RollingUpdate"}[kind]
	if strings.Contains(annotations, api.HoldAnnotation) {
		value = map[string]string{"StatefulSet": "2147483647", "Deployment": "true", "DaemonSet": "OnDelete"}[kind]
	}
	object := &unstructured.Unstructured{}
	text := fmt.Sprintf(`
apiVersion: apps/v1
kind: %s
metadata:
  name: web
  namespace: team-a
  resourceVersion: "7"
  labels: {inplace-rollout.io/enabled: "true"}
  annotations: {a: b%s}
  managedFields: [{manager: kubectl, operation: Update, time: %q}]
spec:
  replicas: 1
  %s
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web%s}]}
status: {replicas: 1, observedGeneration: 1, updatedReplicas: 1}
`, kind, annotations, written, fmt.Sprintf(hold, value), image)
	encoded, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = object.UnmarshalJSON(encoded)
	}
	must.Do(t, err)
	if written == "" {
		object.SetManagedFields(nil)
	}
	return object
}

// What a workload may have beside.
const live = `, inplace-rollout.io/resource-resize-action: LiveResize`

// heldBy is how a workload of a kind is held, by the annotations.
func heldBy(kind string) string {
	return ", inplace-rollout.io/hold: \"" + map[string]string{"StatefulSet": "0", "Deployment": "false", "DaemonSet": "RollingUpdate"}[kind] + `"`
}

// recorded is a held workload whose guarded rollout is in that phase.
func recorded(phase rollout.Phase) string {
	return fmt.Sprintf("held, %s: %q", api.RolloutAnnotation, &rollout.Record{Phase: phase, Schema: rollout.RecordSchema})
}

// TestRecord: nobody but the controller writes the record of a guarded rollout, also with a status, and it goes with the hold. Until then, or
// the next edit, nobody but the controller takes away what somebody has asked for.
func TestRecord(t *testing.T) {
	const early, late = "2026-11-24T03:00:00Z", "2026-11-24T03:00:01Z"
	policies := following(t, deploy.User, map[string]map[string]string{"inplace-rollout": {api.ReadyUntilAnnotation: "2026-11-24T03:00:40Z"}})
	for _, kind := range []string{"StatefulSet", "Deployment", "DaemonSet"} {
		was := workload(t, kind, "", heldBy(kind)+recorded(rollout.PhaseCanary)[len("held"):]+`, inplace-rollout.io/retry: "1", inplace-rollout.io/promote: "2"`, early)
		stored, hold := was.GetAnnotations()[api.RolloutAnnotation], was.GetAnnotations()[api.HoldAnnotation]
		forget := func(a map[string]string) {
			maps.DeleteFunc(a, func(name, _ string) bool { return name != api.HoldAnnotation })
		}
		write := func(a map[string]string) { a[api.RolloutAnnotation], a[api.RetryAnnotation], a["a"] = "{}", "3", "c" }
		for what, tt := range map[string]struct {
			user, image, subresource, want string // the hold, the record, and what is asked for
			change                         func(map[string]string)
		}{
			"somebody takes them away":       {"user", "", "", hold + stored + "12", forget},
			"somebody empties them":          {"user", "", "", hold + stored + "12", func(a map[string]string) { a[api.RetryAnnotation], a[api.PromoteAnnotation] = "", "" }},
			"somebody writes others":         {"user", "", "", hold + stored + "32", write},
			"an edit leaves them out":        {"user", ":2", "", hold + stored, forget},
			"an edit":                        {"user", ":2", "", hold + stored, write},
			"the controller writes":          {deploy.User, "", "", hold + "{}32", write},
			"the controller lets go":         {deploy.User, "", "", "12", func(a map[string]string) { delete(a, api.HoldAnnotation) }},
			"the controller takes them away": {deploy.User, "", "", hold, forget},
			"somebody lets go":               {"release", "", "", "", forget},
			"a status without annotations":   {"user", "", "status", hold + stored + "12", func(a map[string]string) { clear(a) }},
			"a status with others":           {"user", "", "status", hold + stored + "12", write},
			"a status leaves them out":       {"user", "", "status", hold + stored + "12", forget},
			"a status leaves out the hold":   {"user", "", "status", hold + stored + "12", func(a map[string]string) { delete(a, api.HoldAnnotation) }},
			"somebody brings one unasked":    {"user", "", "", "12", nil},
		} {
			old, object := was, was.DeepCopy()
			if tt.image != "" {
				object = workload(t, kind, tt.image, heldBy(kind), late)
			}
			if tt.change == nil {
				old, object = workload(t, kind, "", "", early), workload(t, kind, "", "", late)
			}
			annotations := was.GetAnnotations()
			if tt.change == nil {
				delete(annotations, api.HoldAnnotation)
			} else if tt.change(annotations); len(annotations) == 0 {
				annotations = nil
			}
			object.SetAnnotations(annotations)
			got := admit(t, policies, webhook.Write{Old: old, Object: object, User: tt.user, Subresource: tt.subresource, FieldManager: "inplace-rollout-" + tt.user}).GetAnnotations()
			if got := got[api.HoldAnnotation] + got[api.RolloutAnnotation] + got[api.RetryAnnotation] + got[api.PromoteAnnotation]; got != tt.want {
				t.Errorf("%s, %s: %q is stored, want %q", kind, what, got, tt.want)
			}
			if got["a"] != annotations["a"] && annotations != nil {
				t.Errorf("%s, %s: a is %q, want what was written", kind, what, got["a"])
			}
		}
	}
	for _, kind := range []string{"StatefulSet", "DaemonSet"} {
		was, without := workload(t, kind, "", `, inplace-rollout.io/said-of: "Over;a;"`, "2026-11-24T03:00:00Z"), workload(t, kind, "", "", "2026-11-24T03:00:01Z")
		if got := admit(t, policies, webhook.Write{Old: was, Object: without, User: "user"}).GetAnnotations()[api.SaidOfAnnotation]; got != "Over;a;" {
			t.Errorf("%s: the condition speaks of %q, want what was stored", kind, got)
		}
		without.SetLabels(nil)
		for _, changes := range [][2]*unstructured.Unstructured{{was, without}, {without, was}} {
			got := admit(t, policies, webhook.Write{Old: changes[0], Object: changes[1], User: "user", Subresource: "status"})
			if want := changes[0].GetLabels()[api.EnabledLabel]; got.GetLabels()[api.EnabledLabel] != want {
				t.Errorf("%s: the labels after a status are %v, want %q as before", kind, got.GetLabels(), want)
			}
		}
		if got := admit(t, policies, webhook.Write{Old: was, Object: without, User: "user"}).GetAnnotations()[api.SaidOfAnnotation]; got != "" {
			t.Errorf("%s: opted out, it still speaks of %q", kind, got)
		}
	}
	for said, want := range map[string]string{"Over;edit 7;": "Over;generation 4 of it;", "Over;edit 6;": "", "Late;edit 7;": ""} {
		was := workload(t, "Deployment", "", fmt.Sprintf(", %s: %q, %s: %q", api.EditAnnotation, "7", api.SaidOfAnnotation, said), "2026-11-24T03:00:00Z")
		was.SetGeneration(3)
		was.SetUID("it")
		for edit, want := range map[string]string{"": want, ":2": ""} {
			out := workload(t, "Deployment", edit, "", "2026-11-24T03:00:01Z")
			out.SetLabels(nil)
			if got := admit(t, policies, webhook.Write{Old: was, Object: out, User: "user"}).GetAnnotations()[api.SaidOfAnnotation]; got != want {
				t.Errorf("%s, opted out with image %q: it speaks of %q, want %q", said, edit, got, want)
			}
		}
	}
}

// TestPending: an edit that is held with a canary is not proved from the first moment, also where it overtakes a rollout that was.
func TestPending(t *testing.T) {
	const at, guarded = "2026-11-24T03:00:00Z", `, inplace-rollout.io/canary: "1"`
	policies := following(t, deploy.User, map[string]map[string]string{"inplace-rollout": {api.ReadyUntilAnnotation: "2026-11-24T03:00:40Z"}})
	for _, kind := range []string{"StatefulSet", "Deployment", "DaemonSet"} {
		rolling := heldBy(kind) + recorded(rollout.PhaseRolling)[len("held"):]
		for _, tt := range []struct {
			what, had, image string
			want             rollout.Phase
		}{
			{"the first edit", guarded, ":2", rollout.PhasePending},
			{"the first edit without a canary", "", ":2", ""},
			{"a write that is no edit", guarded, "", ""},
			{"an edit after a canary", guarded + rolling, ":2", rollout.PhasePending},
			{"an edit after a canary, without one", rolling, ":2", rollout.PhaseRolling},
			{"an edit after a failure", guarded + heldBy(kind) + recorded(rollout.PhaseStopped)[len("held"):], ":2", rollout.PhaseStopped},
			{"a write after a canary", guarded + rolling, "", rollout.PhaseRolling},
		} {
			old, object := workload(t, kind, "", tt.had, at), workload(t, kind, tt.image, tt.had, at)
			for range 2 { // asked twice
				object = admit(t, policies, webhook.Write{Old: old, Object: object, User: "user"})
			}
			r, err := rollout.ReadRecord(object.GetAnnotations())
			if got := ptr.Deref(r, rollout.Record{}).Phase; got != tt.want || err != nil {
				t.Errorf("%s, %s: the phase is %q, want %q, %v", kind, tt.what, got, tt.want, err)
			}
		}
	}
	after := admit(t, policies, webhook.Write{Old: underOnDelete(t, "DaemonSet", "", guarded, at), Object: underOnDelete(t, "DaemonSet", ":2", guarded, at), User: "user"})
	if got := after.GetAnnotations()[api.RolloutAnnotation]; got != `{"phase":"Pending","version":1}` {
		t.Errorf("under OnDelete: the record is %q", got)
	}
}

// TestAbsent: what is held depends on whether a controller is there.
func TestAbsent(t *testing.T) {
	const early, until, later = "2026-11-24T03:00:00Z", "2026-11-24T03:00:40Z", "2026-11-24T03:00:41Z"
	const each = `system:serviceaccount:" + request.namespace + ":inplace-rollout`
	there := map[string]string{api.ReadyUntilAnnotation: until}
	for name, tt := range map[string]struct {
		controller string // deploy.User if empty
		account    map[string]string
		elsewhere  bool   // the ServiceAccount is in another namespace than it should be
		had        string // annotations before
		time       string // of the write
		ahead      bool   // a write before was of a clock that was ahead
		same       bool   // no edit
		held       bool
		mark       bool // it says that it was not held
	}{
		"it is there":                                     {account: there, time: early, held: true},
		"to the last second":                              {account: there, time: until, held: true},
		"it is out of date":                               {account: there, time: later, mark: true},
		"it is there, and a clock was ahead":              {account: there, time: until, ahead: true, held: true},
		"it is out of date, and a clock was ahead":        {account: there, time: later, ahead: true, mark: true},
		"it has been taken away":                          {account: map[string]string{}, time: early, mark: true},
		"it has none, and the write no time":              {account: map[string]string{}, mark: true},
		"nobody knows when the write was":                 {account: there, held: true},
		"it has gone for good":                            {elsewhere: true, account: there, time: early},
		"what was held before, when it has gone for good": {elsewhere: true, account: there, time: early, had: "held", held: true},
		"edits are to wait":                               {account: map[string]string{api.WhenAbsentAnnotation: api.Hold}, time: early, held: true},
		"edits are not to wait":                           {account: map[string]string{api.WhenAbsentAnnotation: api.LetGo}, time: early, mark: true},
		"LiveResize":                                      {account: map[string]string{}, time: early, had: live, held: true},
		"another preference":                              {account: map[string]string{}, time: early, had: live + "Preferred", mark: true},
		"a held one is written":                           {account: map[string]string{}, time: early, had: "held", same: true, mark: true},
		"a held one is written while it is there":         {account: there, time: early, had: "held", same: true, held: true},
		"LiveResize with blanks around it":                {account: map[string]string{}, time: early, had: `, inplace-rollout.io/resource-resize-action: " LiveResize "`, held: true},
		"a held one with LiveResize in force":             {account: map[string]string{}, time: early, had: `held, inplace-rollout.io/in-force: "LiveResize;"`, same: true, held: true},
		"a canary is written":                             {account: map[string]string{}, time: early, had: recorded(rollout.PhaseCanary), same: true, held: true},
		"what nobody has looked at is written":            {account: map[string]string{}, time: early, had: recorded(rollout.PhasePending), same: true, held: true},
		"what was stopped is written":                     {account: map[string]string{}, time: early, had: recorded(rollout.PhaseStopped), same: true, held: true},
		"what was reverted is written":                    {account: map[string]string{}, time: early, had: recorded(rollout.PhaseReverted), same: true, held: true},
		"what a later version knows of is written":        {account: map[string]string{}, time: early, had: recorded("Tomorrow"), same: true, held: true},
		"what is past its canary is written":              {account: map[string]string{}, time: early, had: recorded(rollout.PhaseRolling), same: true, mark: true},
		"what was stopped is edited":                      {account: map[string]string{}, time: early, had: recorded(rollout.PhaseStopped), mark: true},
		"a held one is edited":                            {account: map[string]string{}, time: early, had: "held", mark: true},
		"nothing that needs a hold":                       {account: map[string]string{}, time: early, same: true},
		"nothing that needs a hold, after one that was":   {account: map[string]string{}, time: early, same: true, had: ", inplace-rollout.io/not-held: \"6\""},
		"its namespace has one":                           {controller: each, account: there, time: early, held: true},
		"its namespace has one that is out of date":       {controller: each, account: there, time: later, mark: true},
		"another namespace has one, and its own has not":  {controller: each, elsewhere: true, account: there, time: early},
	} {
		t.Run(name, func(t *testing.T) {
			controller, namespace := deploy.User, "inplace-rollout"
			if tt.controller != "" {
				controller, namespace = tt.controller, "team-a"
			}
			if tt.elsewhere {
				namespace = "team-b"
			}
			policies := following(t, controller, map[string]map[string]string{namespace: tt.account})
			for _, kind := range []string{"StatefulSet", "Deployment", "DaemonSet"} {
				had := tt.had
				if len(had) >= 4 && had[:4] == "held" {
					had = heldBy(kind) + had[4:]
				}
				image := ":2"
				if tt.same {
					image = ""
				}
				old, object := workload(t, kind, "", had, early), workload(t, kind, image, had, tt.time)
				if had == ", inplace-rollout.io/not-held: \"6\"" { // that is no hold
					old, object = workload(t, kind, "", "", early), workload(t, kind, image, "", tt.time)
					for _, o := range []*unstructured.Unstructured{old, object} {
						o.SetAnnotations(map[string]string{"a": "b", api.NotHeldAnnotation: "6"})
					}
				}
				if tt.ahead {
					for _, o := range []*unstructured.Unstructured{old, object} {
						o.SetManagedFields(append(o.GetManagedFields(), metav1.ManagedFieldsEntry{Manager: "before", Time: ptr.To(metav1.Date(2036, 1, 1, 0, 0, 0, 0, time.UTC))}))
					}
				}
				for _, asked := range []string{"once", "twice"} {
					after := admit(t, policies, webhook.Write{Old: old, Object: object, User: "user"})
					_, held := after.GetAnnotations()[api.HoldAnnotation]
					if held != tt.held {
						t.Errorf("%s, asked %s: held is %t, want %t", kind, asked, held, tt.held)
					}
					want := ""
					if tt.mark {
						want = fmt.Sprint(old.GetGeneration() + 1)
					}
					if got := after.GetAnnotations()[api.NotHeldAnnotation]; got != want {
						t.Errorf("%s, asked %s: it says of generation %q that it was not held, want %q", kind, asked, got, want)
					}
					if free := isFree(t, after); free == tt.held {
						t.Errorf("%s, asked %s: held is %t, and what holds is let go: %t", kind, asked, tt.held, free)
					}
					object = after
				}
			}
		})
	}
}

// underOnDelete is a workload with that strategy.
func underOnDelete(t *testing.T, kind, image, annotations, written string) *unstructured.Unstructured {
	t.Helper()
	w := workload(t, kind, image, annotations, written)
	w.SetGeneration(5)
	must.Do(t, unstructured.SetNestedMap(w.Object, map[string]any{"type": "OnDelete"}, "spec", "updateStrategy"))
	return w
}

// TestRecordUnderOnDelete: nobody need hold a guarded rollout there, and while no controller is there, nobody does. Its record stays for as
// long as that is so, and then begins the hold of whatever would give its size to all pods.
func TestRecordUnderOnDelete(t *testing.T) {
	const early, late = "2026-11-24T03:00:00Z", "2026-11-24T03:00:01Z"
	policies := following(t, deploy.User, map[string]map[string]string{"inplace-rollout": {}})
	for _, kind := range []string{"StatefulSet", "DaemonSet"} {
		had := recorded(rollout.PhaseStopped)[len("held"):] + `, inplace-rollout.io/canary: "1"`
		asked := `, inplace-rollout.io/retry: "1", inplace-rollout.io/promote: "2"`
		was := underOnDelete(t, kind, "", had+asked, early)
		stored := was.GetAnnotations()[api.RolloutAnnotation]
		rolling := workload(t, kind, "", "", late)
		hold := strings.Trim(heldBy(kind)[len(", inplace-rollout.io/hold: "):], `"`)
		for what, tt := range map[string]struct {
			user, want string // the hold, the record, what is asked for, and what is in force
			object     *unstructured.Unstructured
		}{
			"somebody takes all away": {"user", stored + "12" + ";;1;;;", underOnDelete(t, kind, "", "", late)},
			"an edit does":            {"user", stored, underOnDelete(t, kind, ":2", "", late)},
			"the controller writes":   {deploy.User, "{}", underOnDelete(t, kind, "", `, inplace-rollout.io/rollout: "{}", inplace-rollout.io/canary: "1"`, late)},
			"somebody lets go":        {"release", ";;;;;", underOnDelete(t, kind, ":2", had, late)},
			"it is to be rolled":      {"user", hold + stored + "12" + ";;1;;;", rolling},
			"it is edited for that":   {"user", "", workload(t, kind, ":2", "", late)},
			"it is opted out":         {"user", "", underOnDelete(t, kind, "", had, late)},
		} {
			if what == "it is opted out" {
				tt.object.SetLabels(nil)
			}
			after := admit(t, policies, webhook.Write{Old: was, Object: tt.object, User: tt.user, FieldManager: "inplace-rollout-" + tt.user})
			got := after.GetAnnotations()
			if got := got[api.HoldAnnotation] + got[api.RolloutAnnotation] + got[api.RetryAnnotation] + got[api.PromoteAnnotation] + got[api.InForceAnnotation]; got != tt.want {
				t.Errorf("%s, %s: %q is stored, want %q", kind, what, got, tt.want)
			}
			if tt.object == rolling && isFree(t, after) {
				t.Errorf("%s, %s: what holds is let go", kind, what)
			}
		}
		brought := underOnDelete(t, kind, "", had, late)
		if got := admit(t, policies, webhook.Write{Old: underOnDelete(t, kind, "", "", early), Object: brought, User: "user"}).GetAnnotations()[api.RolloutAnnotation]; got != "" {
			t.Errorf("%s: somebody brings the record %s", kind, got)
		}
	}
}

// TestMarkWithoutController: an edit under OnDelete is marked, and the mark has the generation not count as observed,
// only while a controller is there, whatever the action. Any write takes it away then.
func TestMarkWithoutController(t *testing.T) {
	const until, early, later = "2026-11-24T03:00:40Z", "2026-11-24T03:00:00Z", "2026-11-24T03:00:41Z"
	const mark = `, inplace-rollout.io/hold: "OnDelete"`
	under := func(image, annotations, written string) *unstructured.Unstructured {
		return underOnDelete(t, "StatefulSet", image, annotations, written)
	}
	for name, tt := range map[string]struct {
		account map[string]string
		time    string
		marked  bool
	}{
		"it is there":           {map[string]string{api.ReadyUntilAnnotation: until}, early, true},
		"it is out of date":     {map[string]string{api.ReadyUntilAnnotation: until}, later, false},
		"it has none":           {map[string]string{}, early, false},
		"edits are to wait":     {map[string]string{api.WhenAbsentAnnotation: api.Hold}, early, true},
		"edits are not to wait": {map[string]string{api.WhenAbsentAnnotation: api.LetGo}, early, false},
	} {
		policies := following(t, deploy.User, map[string]map[string]string{"inplace-rollout": tt.account})
		for _, had := range []string{"", live} {
			for what, w := range map[string]webhook.Write{
				"an edit":                 {Old: under("", had, early), Object: under(":2", had, tt.time), User: "user"},
				"an edit of a marked one": {Old: under("", had+mark, early), Object: under(":2", had+mark, tt.time), User: "user"},
				"a write of a marked one": {Old: under("", had+mark, early), Object: under("", had+mark, tt.time), User: "user"},
			} {
				after := admit(t, policies, w)
				if got, want := after.GetAnnotations()[api.HoldAnnotation], map[bool]string{true: "OnDelete"}[tt.marked]; got != want || got != admit(t, policies, webhook.Write{Old: w.Old, Object: after, User: "user"}).GetAnnotations()[api.HoldAnnotation] {
					t.Errorf("%s, %s%s: the mark is %q, want %q", name, what, had, got, want)
				}
			}
			if after := admit(t, policies, webhook.Write{Old: under("", had, early), Object: under("", had, tt.time), User: "user"}); after.GetAnnotations()[api.HoldAnnotation] != "" {
				t.Errorf("%s: a write that changes nothing is marked", name)
			}
		}
		status := under("", mark, tt.time)
		must.Do(t, unstructured.SetNestedField(status.Object, int64(5), "status", "observedGeneration"))
		after := admit(t, policies, webhook.Write{Old: under("", mark, early), Object: status, User: "built-in", Subresource: "status"})
		if got, _, _ := unstructured.NestedInt64(after.Object, "status", "observedGeneration"); got != map[bool]int64{true: 4, false: 5}[tt.marked] {
			t.Errorf("%s: generation %d counts as observed, of 5", name, got)
		}
	}
}

// isFree reports whether the built-in controller may go on.
func isFree(t *testing.T, w *unstructured.Unstructured) bool {
	t.Helper()
	path, held := []string{"spec", "updateStrategy", "rollingUpdate", "partition"}, "2147483647"
	switch w.GetKind() {
	case "Deployment":
		path, held = []string{"spec", "paused"}, "true"
	case "DaemonSet":
		path, held = []string{"spec", "updateStrategy", "type"}, "OnDelete"
	}
	value, _, err := unstructured.NestedFieldNoCopy(w.Object, path...)
	must.Do(t, err)
	return fmt.Sprint(value) != held
}

// TestStandingWatch: the API server at which the heartbeat is watched has gone without a word. One that looks out of date is read, once
// for the writes of a second; where that fails, it counts as it was last seen.
func TestStandingWatch(t *testing.T) {
	policies := load(t, deploy.User)
	synctest.Test(t, func(t *testing.T) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "inplace-rollout", Name: api.HeartbeatName, Annotations: map[string]string{api.ReadyUntilAnnotation: "2026-11-24T03:00:45Z"}}}
		client, live, err, reads := fake.NewClientset(account), fake.NewClientset(), errors.New("no route to host"), 0
		live.PrependReactor("get", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
			beats := account.DeepCopy()
			beats.Annotations[api.ReadyUntilAnnotation] = "2026-11-24T03:01:35Z"
			reads++
			return true, beats, err
		})
		follow(t, policies, must.Get(webhook.NewHeartbeat(client, live, deploy.User))(t))
		for n, at := range []string{"2026-11-24T03:00:45Z", "2026-11-24T03:00:52Z", "2026-11-24T03:00:53Z"} {
			for range 3 {
				after := admit(t, policies, webhook.Write{Old: workload(t, "Deployment", "", "", "2026-11-24T02:00:00Z"), Object: workload(t, "Deployment", ":2", "", at), User: "user"})
				if _, held := after.GetAnnotations()[api.HoldAnnotation]; held != (n != 1) || reads != n {
					t.Errorf("an edit at %s: held is %t, and the heartbeat was read %d times, want %d", at, held, reads, n)
				}
			}
			if time.Sleep(time.Second); n == 1 {
				err = nil
			}
		}
	})
}

// TestWhoseHeartbeat: it is that of a ServiceAccount.
func TestWhoseHeartbeat(t *testing.T) {
	for _, user := range []string{"admin", "system:serviceaccount:platform:", "system:node:a:b"} {
		if _, err := webhook.NewHeartbeat(nil, nil, user); err == nil {
			t.Errorf("%q has a heartbeat", user)
		}
	}
}

// TestDeploymentWithoutPods: an edit is not held where there is no pod to keep, and where a hold would keep pods from coming. While the
// Deployment controller recreates all pods, there is none to keep either; of a Deployment that it has not looked at yet its status says
// the same, but that one may adopt pods.
func TestDeploymentWithoutPods(t *testing.T) {
	const now, until, over = "2026-11-24T03:00:00Z", "2026-11-24T03:00:40Z", "2026-11-24T02:00:00Z"
	type status = map[string]any
	seen, running := status{"observedGeneration": int64(1)}, status{"observedGeneration": int64(1), "replicas": int64(1), "updatedReplicas": int64(1)}
	for about, tt := range map[string]struct {
		until, had string
		said       string // of the edit 7, which was the last
		optsIn     bool   // only this write does
		recreate   bool
		replicas   int64
		generation int64
		status     status
		held       bool
	}{
		"none is wanted":                               {until: until, generation: 2, status: status{"observedGeneration": int64(2)}},
		"none is wanted, and there are some":           {until: until, generation: 2, status: status{"observedGeneration": int64(2), "replicas": int64(1)}, held: true},
		"nobody has seen that some are wanted":         {until: until, replicas: 1, generation: 2, status: seen},
		"somebody has, and they are about to come":     {until: until, replicas: 1, generation: 2, status: status{"observedGeneration": int64(2)}, held: true},
		"nobody has looked at it":                      {until: until, replicas: 1, generation: 1, status: status{}, held: true},
		"nor would anybody let go":                     {until: over, had: live, replicas: 1, generation: 1, status: status{}},
		"nobody would let go, and somebody has looked": {until: over, had: live, replicas: 1, generation: 1, status: running, held: true},
		"it recreates, and nobody has looked":          {until: until, recreate: true, replicas: 1, status: status{}, held: true},
		"it recreates":                                 {until: until, recreate: true, replicas: 1, status: seen},
		"it was let go, and nobody has looked":         {until: until, said: "Over;edit 7;", recreate: true, replicas: 1, status: seen, held: true},
		"it recreates for a later edit":                {until: until, said: "Over;edit 6;", recreate: true, replicas: 1, status: seen},
		"and it was opted out since":                   {until: until, said: "Over;generation 1 of it;", optsIn: true, recreate: true, replicas: 1, generation: 1, status: seen, held: true},
		"and edited after that":                        {until: until, said: "Over;generation 1 of it;", optsIn: true, recreate: true, replicas: 1, generation: 2, status: seen},
		"that was another one of the name":             {until: until, said: "Over;generation 1 of another;", optsIn: true, recreate: true, replicas: 1, generation: 1, status: seen},
		"a ReplicaSet had that when it was opted in":   {until: until, said: "Over;edit 7;", optsIn: true, recreate: true, replicas: 1, generation: 1, status: seen},
		"it has recreated":                             {until: until, recreate: true, replicas: 1, status: running, held: true},
	} {
		policies := following(t, deploy.User, map[string]map[string]string{"inplace-rollout": {api.ReadyUntilAnnotation: tt.until}})
		old, object := workload(t, "Deployment", "", tt.had, now), workload(t, "Deployment", ":2", tt.had, now)
		for _, o := range []*unstructured.Unstructured{old, object} {
			o.Object["status"] = tt.status
			o.SetGeneration(tt.generation)
			o.SetUID("it")
			if tt.said != "" {
				must.Do(t, unstructured.SetNestedStringMap(o.Object, map[string]string{api.EditAnnotation: "7", api.SaidOfAnnotation: tt.said}, "metadata", "annotations"))
			}
			spec := o.Object["spec"].(map[string]any)
			if spec["replicas"] = tt.replicas; tt.recreate {
				spec["strategy"] = map[string]any{"type": "Recreate"}
			}
		}
		if tt.optsIn {
			old.SetLabels(nil)
		}
		after := admit(t, policies, webhook.Write{Old: old, Object: object, User: "user"})
		if free := isFree(t, after); free == tt.held {
			t.Errorf("%s: held is %t, want %t", about, !free, tt.held)
		}
	}
}
