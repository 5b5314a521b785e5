package webhook

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/deploy"
)

func load(t *testing.T) *Policies {
	t.Helper()
	p, err := Load(deploy.Cluster, deploy.User)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ask evaluates the policy as the API server asks the webhook, and returns the object after it.
func ask(t *testing.T, p *Policies, policy string, request *admissionv1.AdmissionRequest) (map[string]any, *admissionv1.AdmissionResponse) {
	t.Helper()
	response, err := p.Evaluate(context.Background(), policy, request)
	if err != nil {
		t.Fatal(err)
	}
	after := request.Object.Raw
	if response.Patch != nil {
		patch, err := jsonpatch.DecodePatch(response.Patch)
		if err != nil {
			t.Fatal(err)
		}
		if after, err = patch.Apply(after); err != nil {
			t.Fatal(err)
		}
	}
	object := map[string]any{}
	if err := json.Unmarshal(after, &object); err != nil {
		t.Fatal(err)
	}
	return object, response
}

func raw(t *testing.T, text string) runtime.RawExtension {
	t.Helper()
	encoded, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return runtime.RawExtension{Raw: encoded}
}

func update(t *testing.T, resource, subresource, kind, user, old, object string) *admissionv1.AdmissionRequest {
	t.Helper()
	return &admissionv1.AdmissionRequest{
		UID: "1", Operation: admissionv1.Update, Namespace: "default", Name: "web", SubResource: subresource,
		Kind:      metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: kind},
		Resource:  metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource},
		UserInfo:  authenticationv1.UserInfo{Username: user},
		Options:   raw(t, "{kind: UpdateOptions, apiVersion: meta.k8s.io/v1, fieldManager: kubectl}"),
		OldObject: raw(t, old), Object: raw(t, object),
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

func TestHolds(t *testing.T) {
	object, response := ask(t, load(t), "inplace-rollout-hold-statefulsets",
		update(t, "statefulsets", "", "StatefulSet", "alice", set, strings.Replace(set, "100m", "200m", 1)))
	t.Logf("%s", response.Patch)
	_ = object
	object, response = ask(t, load(t), "inplace-rollout-pending-statefulsets",
		update(t, "statefulsets", "status", "StatefulSet", "alice", set, strings.Replace(set, "updateRevision: web-1", "updateRevision: web-2", 1)))
	t.Logf("%s %v", response.Patch, response.Result)
	_ = fstest.MapFS{}
}
