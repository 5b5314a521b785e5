package webhook

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/prometheus/client_golang/prometheus"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// loaded are compiled once: with the race detector, that takes a second.
var loaded = sync.OnceValues(func() (*Policies, error) { return Load(deploy.Cluster, deploy.User) })

// load returns policies to which a test may add others.
func load(t *testing.T) *Policies {
	t.Helper()
	p := must.Get(loaded())(t)
	own := *p
	own.byName = maps.Clone(p.byName)
	return &own
}

func raw(t *testing.T, text string) runtime.RawExtension {
	t.Helper()
	encoded := must.Get(yaml.YAMLToJSON([]byte(text)))(t)
	return runtime.RawExtension{Raw: encoded}
}

// update of the set below, as the API server sends it.
func update(t *testing.T, subresource, user, object string) *admissionv1.AdmissionRequest {
	t.Helper()
	return &admissionv1.AdmissionRequest{
		UID: "1", Operation: admissionv1.Update, Namespace: "default", Name: "web", SubResource: subresource,
		Kind:      metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"},
		Resource:  metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"},
		UserInfo:  authenticationv1.UserInfo{Username: user},
		Options:   raw(t, "{kind: UpdateOptions, apiVersion: meta.k8s.io/v1, fieldManager: kubectl}"),
		OldObject: raw(t, set), Object: raw(t, object),
	}
}

const set = `
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: web
  namespace: default
  labels: {inplace-rollout.io/enabled: "true"}
  fieldOfTomorrow: {a: [{b: 1}]}
spec:
  replicas: 3
  fieldOfTomorrow: [{big: 9007199254740993, text: "<&>"}]
  updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0}}
  template:
    metadata: {labels: {app: web}, creationTimestamp: null}
    spec: {containers: [{name: web, image: web, resources: {requests: {cpu: 100m}}}]}
status:
  replicas: 3
  updateRevision: web-1
  fieldOfTomorrow: [{a: 1}, {a: 1}]
  conditions:
  - {type: inplace-rollout.io/Complete, status: "True", reason: Complete, fieldOfTomorrow: 1}
  - {type: Other, status: "True", fieldOfTomorrow: 2}
`

// What the policies change is changed, and nothing else, also of fields that client-go does not know.
func TestEvaluate(t *testing.T) {
	p := load(t)
	const noted = `[{"op":"add","path":"/metadata/annotations","value":{}}]` // as the policy writes it for objects without annotations
	for name, tt := range map[string]struct {
		policy, subresource, user, old, object, want string
	}{
		"an edit is held": {
			policy: "hold", old: "100m", object: "200m",
			want: `[{"op":"add","path":"/metadata/annotations","value":{"inplace-rollout.io/hold":"0"}},` +
				`{"op":"replace","path":"/spec/updateStrategy/rollingUpdate/partition","value":2147483647}]`,
		},
		"no edit":               {policy: "hold", old: "replicas: 3", object: "replicas: 5", want: noted},
		"not opted in":          {policy: "hold", old: `enabled: "true"`, object: `enabled: "false"`, want: "any"},
		"of the controller":     {policy: "hold", user: deploy.User, old: "replicas: 3", object: "replicas: 3", want: noted},
		"another subresource":   {policy: "hold", subresource: "status", old: "100m", object: "200m"},
		"fences the controller": {policy: "fence", user: deploy.User, old: "replicas: 3", object: "replicas: 5", want: `[{"op":"add","path":"/metadata/annotations","value":{"inplace-rollout.io/refused":"spec.replicas"}}]`},
		"fences nobody else":    {policy: "fence", old: "replicas: 3", object: "replicas: 5"},
		"a new revision takes the condition back": {
			policy: "pending", subresource: "status", old: "updateRevision: web-1", object: "updateRevision: web-2",
			want: `[{"op":"add","path":"/status/conditions/0/message","value":"waiting for inplace-rollout to look at this revision"},` +
				`{"op":"replace","path":"/status/conditions/0/reason","value":"Pending"},{"op":"replace","path":"/status/conditions/0/status","value":"False"}]`,
		},
		"the controller's own condition": {policy: "pending", user: deploy.User, subresource: "status", old: "updateRevision: web-1", object: "updateRevision: web-2"},
	} {
		t.Run(name, func(t *testing.T) {
			policy := map[string]string{"hold": "inplace-rollout-hold", "pending": "inplace-rollout-status", "fence": "inplace-rollout-fence-workloads"}[tt.policy]
			request := update(t, tt.subresource, cmp.Or(tt.user, "alice"), strings.Replace(set, tt.old, tt.object, 1))
			response, err := p.Evaluate(t.Context(), policy, request)
			if err != nil || !response.Allowed || response.UID != "1" {
				t.Fatalf("it is refused: %v, %v", err, response)
			}
			if (response.Patch != nil) != (response.PatchType != nil) {
				t.Errorf("a patch and its type go together: %v", response)
			}
			if tt.want != "any" && sorted(t, response.Patch) != sorted(t, []byte(tt.want)) {
				t.Errorf("the patch is\n%s, want\n%s", response.Patch, tt.want)
			}
		})
	}
}

// TestSaidWithTheHold: with the hold, and never else, the controller may say of a Deployment that its edit is over, and of a StatefulSet
// what the pods that its user keeps back are to have.
func TestSaidWithTheHold(t *testing.T) {
	p := load(t)
	const said = `, inplace-rollout.io/said-of: "Over;edit 7;"`
	for _, tt := range []struct {
		kind, had, has string
		refused        bool
	}{
		{kind: "Deployment", had: api.HoldAnnotation + `: "false", a: b`, has: "a: b" + said},
		{kind: "Deployment", had: api.HoldAnnotation + `: "false"`, has: api.HoldAnnotation + `: "false"` + said, refused: true},
		{kind: "Deployment", had: "a: b", has: "a: b" + said, refused: true},
		{kind: "StatefulSet", had: api.HoldAnnotation + `: "0", a: b`, has: "a: b" + said, refused: true},
		{kind: "StatefulSet", had: api.HoldAnnotation + `: "0", a: b`, has: "a: b, " + api.HandedOverAnnotation + ": web-1"},
		{kind: "StatefulSet", had: "a: b", has: "a: b, " + api.HandedOverAnnotation + ": web-1", refused: true},
	} {
		request := update(t, "", deploy.User, "{}")
		request.Kind.Kind, request.Resource.Resource = tt.kind, strings.ToLower(tt.kind)+"s"
		for annotations, to := range map[string]*runtime.RawExtension{tt.had: &request.OldObject, tt.has: &request.Object} {
			*to = raw(t, fmt.Sprintf(`{apiVersion: apps/v1, kind: %s, metadata: {name: web, labels: {%s: "true"}, annotations: {%s}}, spec: {template: {}}}`,
				tt.kind, api.EnabledLabel, annotations))
		}
		response := must.Get(p.Evaluate(t.Context(), "inplace-rollout-fence-workloads", request))(t)
		if refused := strings.Contains(string(response.Patch), "metadata.annotations.inplace-rollout.io/"); refused != tt.refused {
			t.Errorf("%s with %s to %s: refused is %t: %s", tt.kind, tt.had, tt.has, refused, response.Patch)
		}
	}
}

// Before 1.37 the StatefulSet controller leaves the conditions of others out of the status. Ours is
// put back as it was, but Complete only while it is true.
func TestConditionIsPutBack(t *testing.T) {
	p := load(t)
	condition := func(status, reason, message, rest string) string {
		return fmt.Sprintf(", {type: %s, status: %q, reason: %s, message: %q%s}", api.ConditionComplete, status, reason, message, rest)
	}
	said := func(c rollout.Condition) string {
		return condition(string(c.Stored(metav1.Time{}).Status), c.Reason, c.Message(), `, lastTransitionTime: "2026-01-01T00:00:00Z"`)
	}
	over, above := rollout.Over(rollout.RevisionNamed("web-1"), 0), rollout.Over(rollout.RevisionNamed("web-1"), 1)
	step := rollout.Step{Total: 3, Waits: []rollout.Wait{{Reason: judge.ReasonDeferred, Message: "deferred"}}}.Condition()
	const held = api.HoldAnnotation + `: "0"`
	pending := condition("False", "Pending", "waiting for inplace-rollout to look at this revision", "")
	observed := fmt.Sprintf(", {type: %s, status: %q, reason: Held, message: %s}", api.ConditionObserved, "True", rollout.Observed(0))
	for name, tt := range map[string]struct {
		user, annotations, strategy, revision, said, carries, want string
	}{
		"an older one":           {annotations: held, said: said(step), carries: pending, want: said(step) + observed},
		"an older one, Complete": {said: said(step), carries: said(over), want: said(step)},
		"an older one, at last":  {said: said(over), carries: said(step), want: said(over)},
		"as it was":              {said: said(over), want: said(over)},
		"not Complete":           {said: said(step), want: said(step)},
		"a hold":                 {annotations: held, said: said(over), want: pending + observed},
		"a hold that is known":   {annotations: held, said: said(step), want: said(step) + observed},
		"a new revision":         {revision: "web-2", said: said(over), want: pending},
		"another new revision":   {revision: "web-2", said: said(step), want: pending},
		"a partition":            {strategy: "{type: RollingUpdate, rollingUpdate: {partition: 1}}", said: said(above), want: said(above)},
		"no partition any more":  {said: said(above), want: pending},
		"OnDelete":               {strategy: "{type: OnDelete}", said: said(over), want: said(over)},
		"OnDelete, a partition":  {strategy: "{type: OnDelete}", said: said(above), want: pending},
		"the controller's write": {user: deploy.User, said: said(over)},
		"nothing was said":       {},
	} {
		t.Run(name, func(t *testing.T) {
			as := func(revision, ours string) string {
				annotations := tt.annotations
				if of := map[string]string{said(over): over.Of().String(), said(above): above.Of().String()}[tt.said]; of != "" {
					annotations = strings.TrimPrefix(annotations+fmt.Sprintf(", %s: %q", api.SaidOfAnnotation, of), ", ")
				}
				return withStatus("StatefulSet", annotations, fmt.Sprintf("{updateStrategy: %s}", cmp.Or(tt.strategy, "{type: RollingUpdate}")),
					fmt.Sprintf(`updateRevision: %s, conditions: [{type: Other, status: "True"}%s]`, revision, ours))
			}
			revision := cmp.Or(tt.revision, "web-1")
			got := stores(t, p, cmp.Or(tt.user, builtIn), "StatefulSet", as("web-1", tt.said), as(revision, tt.carries))
			if want := raw(t, as(revision, tt.want)).Raw; !jsonpatch.Equal(got, want) {
				t.Errorf("it is\n%s, want\n%s", got, want)
			}
		})
	}
}

// A pod that is lost while a set is held comes back as it would have come before the edit.
func TestLostPodsAreMadeFrom(t *testing.T) {
	p := load(t)
	type revisions struct{ current, update string }
	for name, tt := range map[string]struct {
		hold, user       string
		replicas, pods   string
		kept             int           // pods that count as current
		phase            rollout.Phase // that is recorded
		before, now, set revisions
	}{
		"the first edit":                     {before: revisions{"a", "a"}, now: revisions{"a", "b"}, set: revisions{"a", "b"}},
		"an edit in the middle":              {before: revisions{"a", "b"}, now: revisions{"a", "c"}, set: revisions{"b", "c"}},
		"over one that no pod has got":       {kept: 3, before: revisions{"a", "b"}, now: revisions{"a", "c"}, set: revisions{"a", "c"}},
		"over one that a lost pod may have":  {kept: 2, before: revisions{"a", "b"}, now: revisions{"a", "c"}, set: revisions{"b", "c"}},
		"when one goes that has it":          {kept: 3, pods: "4", before: revisions{"a", "b"}, now: revisions{"a", "c"}, set: revisions{"b", "c"}},
		"an edit after a canary":             {phase: rollout.PhaseRolling, before: revisions{"a", "b"}, now: revisions{"a", "c"}, set: revisions{"b", "c"}},
		"over one that nobody has looked at": {phase: rollout.PhasePending, before: revisions{"a", "b"}, now: revisions{"a", "c"}, set: revisions{"a", "c"}},
		"an edit during a canary":            {phase: rollout.PhaseCanary, before: revisions{"a", "b"}, now: revisions{"a", "c"}, set: revisions{"a", "c"}},
		"an edit over a size that failed":    {phase: rollout.PhaseStopped, before: revisions{"a", "b"}, now: revisions{"a", "c"}, set: revisions{"a", "c"}},
		"an edit after a revert":             {phase: rollout.PhaseReverted, before: revisions{"a", "b"}, now: revisions{"a", "c"}, set: revisions{"a", "c"}},
		"it is scaled to zero after that":    {phase: rollout.PhaseStopped, replicas: "0", before: revisions{"a", "b"}, now: revisions{"b", "b"}, set: revisions{"a", "b"}},
		"and up again before that is seen":   {phase: rollout.PhaseStopped, pods: "0", before: revisions{"a", "b"}, now: revisions{"b", "b"}, set: revisions{"a", "b"}},
		"all are updated, and it is not":     {phase: rollout.PhaseStopped, before: revisions{"a", "b"}, now: revisions{"b", "b"}, set: revisions{"a", "b"}},
		"all are updated, and may fail":      {phase: rollout.PhaseRolling, before: revisions{"a", "b"}, now: revisions{"b", "b"}, set: revisions{"a", "b"}},
		"nothing is said, with a canary":     {hold: `"0", inplace-rollout.io/canary: "1"`, before: revisions{"a", "b"}, now: revisions{"a", "c"}, set: revisions{"a", "c"}},
		"with one in force":                  {hold: `"0", inplace-rollout.io/in-force: ";;1;;;"`, before: revisions{"a", "b"}, now: revisions{"a", "c"}, set: revisions{"a", "c"}},
		"with one from the next edit on":     {hold: `"0", inplace-rollout.io/canary: "1", inplace-rollout.io/in-force: ";;;;;"`, before: revisions{"a", "b"}, now: revisions{"a", "c"}, set: revisions{"b", "c"}},
		"as a former version says it":        {hold: `"0", inplace-rollout.io/canary: "1", inplace-rollout.io/in-force: "Restart;"`, before: revisions{"a", "b"}, now: revisions{"a", "c"}, set: revisions{"a", "c"}},
		"an edit back":                       {before: revisions{"a", "b"}, now: revisions{"a", "a"}, set: revisions{"a", "a"}},
		"back to what they are made from":    {before: revisions{"b", "c"}, now: revisions{"b", "b"}, set: revisions{"b", "b"}},
		"likewise, from an old version":      {before: revisions{"b", "c"}, now: revisions{"a", "b"}, set: revisions{"b", "b"}},
		"all are updated":                    {before: revisions{"b", "c"}, now: revisions{"c", "c"}, set: revisions{"c", "c"}},
		"a status of an old version":         {before: revisions{"b", "c"}, now: revisions{"a", "c"}, set: revisions{"b", "c"}},
		"likewise, of the newest revision":   {before: revisions{"c", "c"}, now: revisions{"a", "c"}, set: revisions{"c", "c"}},
		"a new set":                          {now: revisions{"a", "a"}, set: revisions{"a", "a"}},
		"a partition keeps pods as they are": {hold: `"3"`, before: revisions{"a", "b"}, now: revisions{"a", "c"}, set: revisions{"a", "c"}},
		"nothing is held":                    {hold: "null", before: revisions{"a", "b"}, now: revisions{"a", "c"}, set: revisions{"a", "c"}},
		"the controller's own write":         {user: deploy.User, before: revisions{"a", "b"}, now: revisions{"b", "b"}, set: revisions{"b", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			annotations := api.HoldAnnotation + ": " + cmp.Or(tt.hold, `"0"`)
			if tt.hold == "null" {
				annotations = ""
			}
			if tt.phase != "" {
				annotations += fmt.Sprintf(", %s: %q", api.RolloutAnnotation, &rollout.Record{Phase: tt.phase})
			}
			as := func(r revisions) string {
				return withStatus("StatefulSet", annotations, "{updateStrategy: {type: RollingUpdate}, replicas: "+cmp.Or(tt.replicas, "3")+"}", fmt.Sprintf(
					"replicas: %s, currentReplicas: %d, currentRevision: %q, updateRevision: %q, conditions: [{type: %s, status: \"True\"}, {type: %s, status: %q, reason: Progressing}]",
					cmp.Or(tt.pods, "3"), tt.kept, r.current, r.update, api.ConditionObserved, api.ConditionComplete, "False"))
			}
			var got struct {
				Status struct{ CurrentRevision, UpdateRevision string }
			}
			must.Do(t, json.Unmarshal(stores(t, p, cmp.Or(tt.user, builtIn), "StatefulSet", as(tt.before), as(tt.now)), &got))
			if (revisions{got.Status.CurrentRevision, got.Status.UpdateRevision}) != tt.set {
				t.Errorf("the status is %+v, want %+v", got.Status, tt.set)
			}
		})
	}
}

// admitted returns what a policy makes of the object of a request. Where both policy and webhook are there, it is asked twice
// of one write: the second time it changes nothing.
func admitted(t *testing.T, p *Policies, policy string, request *admissionv1.AdmissionRequest) []byte {
	t.Helper()
	once := evaluated(t, p, policy, request)
	again := request.DeepCopy()
	again.Object.Raw = once
	if twice := evaluated(t, p, policy, again); !jsonpatch.Equal(once, twice) {
		t.Errorf("done twice, it is\n%s, not\n%s", twice, once)
	}
	return once
}

func evaluated(t *testing.T, p *Policies, policy string, request *admissionv1.AdmissionRequest) []byte {
	t.Helper()
	response, err := p.Evaluate(t.Context(), policy, request)
	if err != nil || !response.Allowed {
		t.Fatalf("it is refused: %v, %v", err, response)
	}
	if len(response.Patch) == 0 {
		return request.Object.Raw
	}
	patch := must.Get(jsonpatch.DecodePatch(response.Patch))(t)
	return must.Get(patch.Apply(request.Object.Raw))(t)
}

// TestEvaluateWarns: API servers are told what people are to read, of the object as it is stored.
func TestEvaluateWarns(t *testing.T) {
	p, edited := load(t), strings.Replace(set, "100m", "200m", 1)
	restarts := strings.Replace(edited, "metadata:", "metadata:\n  annotations: {inplace-rollout.io/resource-resize-action: Restart}", 1)
	for object, want := range map[string][]string{
		set: nil, edited: nil, restarts: {"pods get another size by restarts only, because the annotation inplace-rollout.io/resource-resize-action is Restart"},
	} {
		response := must.Get(p.Evaluate(t.Context(), prerequisite.HoldPolicy, update(t, "", "alice", object)))(t)
		if !slices.Equal(response.Warnings, want) {
			t.Errorf("%s: it warns of %q, want %q", object, response.Warnings, want)
		}
	}
}

// sorted returns the operations of a patch in an order that does not change.
func sorted(t *testing.T, patch []byte) string {
	t.Helper()
	if len(patch) == 0 {
		return ""
	}
	var operations []json.RawMessage
	must.Do(t, json.Unmarshal(patch, &operations))
	slices.SortFunc(operations, func(a, b json.RawMessage) int { return strings.Compare(string(a), string(b)) })
	encoded := must.Get(json.Marshal(operations))(t)
	return string(encoded)
}

// A question that makes no sense gets no answer: the API server then does as the failurePolicy says.
func TestNonsense(t *testing.T) {
	p := load(t)
	handler := NewHandler(p, NewMetrics(prometheus.NewRegistry(), p.Names(), func() (*tls.Certificate, error) { return nil, errors.New("none") }), knows)
	good := update(t, "", "alice", strings.Replace(set, "100m", "200m", 1))
	review := func(change func(*admissionv1.AdmissionReview)) string {
		r := &admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: good.DeepCopy()}
		change(r)
		encoded := must.Get(json.Marshal(r))(t)
		return string(encoded)
	}
	for name, tt := range map[string]struct {
		path, body string
		want       int
	}{
		"a review":           {path: "inplace-rollout-hold", body: review(func(*admissionv1.AdmissionReview) {}), want: http.StatusOK},
		"no such policy":     {path: "nothing", body: "{}", want: http.StatusForbidden},
		"no JSON":            {path: "inplace-rollout-hold", body: "x", want: http.StatusBadRequest},
		"no request":         {path: "inplace-rollout-hold", body: review(func(r *admissionv1.AdmissionReview) { r.Request = nil }), want: http.StatusBadRequest},
		"an older version":   {path: "inplace-rollout-hold", body: review(func(r *admissionv1.AdmissionReview) { r.APIVersion = "admission.k8s.io/v1beta1" }), want: http.StatusBadRequest},
		"no object":          {path: "inplace-rollout-hold", body: review(func(r *admissionv1.AdmissionReview) { r.Request.Object.Raw = nil }), want: http.StatusBadRequest},
		"another kind":       {path: "inplace-rollout-hold", body: review(func(r *admissionv1.AdmissionReview) { r.Request.Kind.Kind = "Deployment" }), want: http.StatusBadRequest},
		"far too long":       {path: "inplace-rollout-hold", body: `{"kind":"` + strings.Repeat("x", maxBody), want: http.StatusBadRequest},
		"not even an object": {path: "inplace-rollout-hold", body: review(func(r *admissionv1.AdmissionReview) { r.Request.Object.Raw = []byte("[1]") }), want: http.StatusBadRequest},
	} {
		recorder := newRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path+tt.path+domain+"/secret", strings.NewReader(tt.body)))
		if recorder.Code != tt.want {
			t.Errorf("%s: the answer is %d %s, want %d", name, recorder.Code, recorder.Body, tt.want)
		}
	}
}

// What a policy cannot say of an object is as its failurePolicy says.
func TestFailurePolicy(t *testing.T) {
	for failurePolicy, allowed := range map[string]bool{"Fail": false, "Ignore": true} {
		p := must.Get(Load(fstest.MapFS{"cluster/policy.yaml": {Data: []byte(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: test}
spec:
  failurePolicy: ` + failurePolicy + `
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [UPDATE], resources: [statefulsets]}
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "remove", path: object.nothing}]'}
`)}}, deploy.User))(t)
		response, err := p.Evaluate(t.Context(), "test", update(t, "", "alice", set))
		if err != nil || response.Allowed != allowed || response.Patch != nil {
			t.Errorf("%s: %v, %v", failurePolicy, response, err)
		}
		if result := response.Result; result == nil || result.Code != http.StatusForbidden || result.Reason != metav1.StatusReasonForbidden {
			t.Errorf("%s: the answer is %v, want Forbidden", failurePolicy, result)
		}
	}
}

// What cannot be compiled ends the program at its start.
func TestLoad(t *testing.T) {
	broken := fstest.MapFS{"cluster/policy.yaml": {Data: []byte(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: test}
spec:
  matchConstraints: {}
  mutations:
  - {patchType: JSONPatch, jsonPatch: {expression: "variables.nothing"}}
`)}}
	if _, err := Load(broken, deploy.User); err == nil {
		t.Error("a policy that cannot be compiled was loaded")
	}
	p := must.Get(Load(deploy.Cluster, "system:serviceaccount:platform:other"))(t)
	request := update(t, "", "system:serviceaccount:platform:other", strings.Replace(set, "replicas: 3", "replicas: 5", 1))
	if response, err := p.Evaluate(t.Context(), "inplace-rollout-fence-workloads", request); err != nil || response.Patch == nil {
		t.Errorf("a controller of another name is not fenced: %v, %v", response, err)
	}
}

// TestSigned: only the controller's dry runs are told which policies are evaluated, of each kind and whether they are held or not.
func TestSigned(t *testing.T) {
	said := `"inplace-rollout.io/evaluated-policies":"` + prerequisite.Digest + `"`
	if len(prerequisite.Digest) != 16 {
		t.Errorf("the digest is %q", prerequisite.Digest)
	}
	p := load(t)
	for about, tt := range map[string]struct {
		policy, name string
		dryRun, want bool
		annotations  string
	}{
		"the dry run":                 {policy: "inplace-rollout-hold", name: api.DryRunName, dryRun: true, want: true},
		"also where it says so":       {policy: "inplace-rollout-hold", name: api.DryRunName, dryRun: true, want: true, annotations: "{inplace-rollout.io/evaluated-policies: forged}"},
		"another dry run":             {policy: "inplace-rollout-hold", name: "web", dryRun: true},
		"no dry run":                  {policy: "inplace-rollout-hold", name: api.DryRunName},
		"a policy that does not hold": {policy: "inplace-rollout-status", name: api.DryRunName, dryRun: true},
	} {
		t.Run(about, func(t *testing.T) {
			r := update(t, "", "admin", set)
			r.Operation, r.OldObject, r.Name, r.DryRun = admissionv1.Create, runtime.RawExtension{}, tt.name, &tt.dryRun
			object := strings.ReplaceAll(set, "name: web\n", "name: "+tt.name+"\n")
			if tt.annotations != "" {
				object = strings.Replace(object, "metadata:\n", "metadata:\n  annotations: "+tt.annotations+"\n", 1)
			}
			r.Object = raw(t, object)
			response := must.Get(p.Evaluate(t.Context(), tt.policy, r))(t)
			patch := strings.NewReplacer(`"path":"/metadata/annotations/inplace-rollout.io~1evaluated-policies","value":`, `"inplace-rollout.io/evaluated-policies":`).Replace(string(response.Patch))
			if got := strings.Contains(patch, said); got != tt.want || !response.Allowed {
				t.Errorf("it is told: %t, want %t, by %s", got, tt.want, response.Patch)
			}
		})
	}
}
