package webhook

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

const initialResources = "inplace-rollout-initial-resources"

// found returns a table that has estimates of web:1, and of one bound.
func found(namespace, cpu, quota string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: api.EstimatesName, Labels: map[string]string{api.ManagedByLabel: api.ManagedBy}},
		Data:       map[string]string{"docker.io-_library-_web_-1.cpu": cpu + ` {"request":"` + cpu + `","from":"image:tag"}`, "quota.cpu": quota},
	}
}

// withTables returns policies that know the objects; if they are not run, they have not read them yet.
func withTables(t *testing.T, run bool, objects ...runtime.Object) (*Policies, *Tables, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset(objects...)
	tables := must.Get(NewTables(client))(t)
	p := load(t)
	must.Do(t, p.AddInitialResources(tables))
	if run {
		go tables.Run(t.Context())
		until(t, func() bool { return tables.read() == nil })
	}
	return p, tables, client
}

func until(t *testing.T, met func() bool) {
	t.Helper()
	must.Eventually(t, time.Millisecond, time.Minute, "it", func() (bool, string) { return met(), "in vain" })
}

// creation of a pod, as the API server sends it.
func creation(t *testing.T, namespace, labels string) *admissionv1.AdmissionRequest {
	t.Helper()
	return &admissionv1.AdmissionRequest{
		UID: "1", Operation: admissionv1.Create, Namespace: namespace,
		Kind:     metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Options:  raw(t, "{kind: CreateOptions, apiVersion: meta.k8s.io/v1}"),
		Object: raw(t, `{apiVersion: v1, kind: Pod, metadata: {generateName: web-, creationTimestamp: null, labels: {`+labels+`}, fieldOfTomorrow: 1},
			spec: {fieldOfTomorrow: [{a: 9007199254740993}], containers: [{name: app, image: "web:1", resources: {}}]}, status: {}}`),
	}
}

// TestInitialResources has a row for whatever the webhook, and not the policy, decides.
func TestInitialResources(t *testing.T) {
	const set = `"/spec/containers/0/resources/requests","value":{"cpu":"120m"}`
	namespace := func(name, label string) *corev1.Namespace {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if label != "" {
			n.Labels = map[string]string{api.InitialResourcesLabel: label}
		}
		return n
	}
	nobodys := found("nobodys", "120m", "1")
	nobodys.Labels = nil
	objects := []runtime.Object{
		namespace("on", "enabled"), found("on", "120m", "1"), namespace("off", ""), found("off", "120m", "1"), namespace("told", "annotate"), found("told", "120m", "1"),
		namespace("without", "enabled"), namespace("nobodys", "enabled"), nobodys, namespace("broken", "enabled"), found("broken", "120m", "nothing"),
		found("gone", "120m", "1"),
	}
	p, _, _ := withTables(t, true, objects...)
	for name, tt := range map[string]struct {
		namespace, labels string
		patch, failure    string // what they contain
	}{
		"the namespace is opted in":                      {namespace: "on", patch: set},
		"another value of the namespace's label":         {namespace: "told", patch: `"skipped\":\"annotate`},
		"the pod is opted in":                            {namespace: "off", labels: api.InitialResourcesLabel + ": enabled", patch: set},
		"nobody is, and the API server should not ask":   {namespace: "off"},
		"the pod's label says something else":            {namespace: "on", labels: api.InitialResourcesLabel + ": other"},
		"there is no table":                              {namespace: "without"},
		"it is not the estimator's":                      {namespace: "nobodys"},
		"a broken table leaves the pod as it is":         {namespace: "broken", failure: "quantities must match"},
		"so does a namespace that is not known yet":      {namespace: "new", failure: `"new" not found`},
		"even if there is a table for it, from long ago": {namespace: "gone", failure: `"gone" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			response, err := p.Evaluate(t.Context(), initialResources, creation(t, tt.namespace, tt.labels))
			if err != nil || !response.Allowed {
				t.Fatalf("it is refused: %v, %v", err, response)
			}
			if (response.Patch != nil) != (tt.patch != "") || !strings.Contains(string(response.Patch), tt.patch) {
				t.Errorf("the patch is\n%s, want\n%s", response.Patch, tt.patch)
			}
			message := ""
			if response.Result != nil {
				message = response.Result.Message
			}
			if (message != "") != (tt.failure != "") || !strings.Contains(message, tt.failure) {
				t.Errorf("the failure is %q, want %q", message, tt.failure)
			}
		})
	}
}

// Until the tables have been read, pods are let through as they are, and it is counted.
func TestTablesNotRead(t *testing.T) {
	p, tables, _ := withTables(t, false, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "on"}}, found("on", "120m", "1"))
	go tables.namespaces.RunWithContext(t.Context()) // the other watch lags behind
	until(t, tables.namespaces.HasSynced)
	registry := prometheus.NewRegistry()
	handler := NewHandler(p, NewMetrics(registry, p.Names(), func() (*tls.Certificate, error) { return nil, errors.New("none") }), knows)
	body := must.Get(json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: creation(t, "on", "")}))(t)
	recorder := newRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path+initialResources+domain+"/secret", bytes.NewReader(body)))
	if said := recorder.Body.String(); recorder.Code != http.StatusOK || !strings.Contains(said, `"allowed":true`) || strings.Contains(said, `"patch"`) {
		t.Errorf("the answer is %d %s", recorder.Code, said)
	}
	if n := counted(t, registry, initialResources, ignored); n != 1 {
		t.Errorf("%g requests are counted as ignored", n)
	}

	if tables.Ready() == nil {
		t.Error("a replica that has just started does not wait for the tables")
	}
	tables.started = tables.started.Add(-patience)
	must.Fails(t, "it waits for good", tables.Ready(), "")
}

// counted is the number of requests for a policy with a result.
func counted(t *testing.T, registry prometheus.Gatherer, policy, result string) float64 {
	t.Helper()
	families := must.Get(registry.Gather())(t)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if l := m.GetLabel(); f.GetName() == "inplace_rollout_webhook_requests_total" && l[0].GetValue() == policy && l[1].GetValue() == result {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("there is no counter for %s and %s", policy, result)
	return 0
}

// What changes in the cluster counts for the pods that follow.
func TestTablesChange(t *testing.T) {
	on := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "on"}}
	p, tables, client := withTables(t, true, on, found("on", "120m", "1"))
	must.Fails(t, "it waits for good", tables.Ready(), "")
	patch := func() string {
		response := must.Get(p.Evaluate(t.Context(), initialResources, creation(t, "on", "")))(t)
		return string(response.Patch)
	}
	if got := patch(); got != "" {
		t.Errorf("it is not opted in, and gets %s", got)
	}
	on.Labels = map[string]string{api.InitialResourcesLabel: "enabled"}
	must.Get(client.CoreV1().Namespaces().Update(t.Context(), on, metav1.UpdateOptions{}))(t)
	until(t, func() bool { return strings.Contains(patch(), `"120m"`) })
	must.Get(client.CoreV1().ConfigMaps("on").Update(t.Context(), found("on", "130m", "1"), metav1.UpdateOptions{}))(t)
	until(t, func() bool { return strings.Contains(patch(), `"130m"`) })
	must.Do(t, client.CoreV1().ConfigMaps("on").Delete(t.Context(), api.EstimatesName, metav1.DeleteOptions{}))
	until(t, func() bool { return patch() == "" })
}

type content struct{ certificate, key []byte }

func (c content) CurrentCertKeyContent() (certificate, key []byte) { return c.certificate, c.key }

// What is served is what the files have, while it is good.
func TestFiles(t *testing.T) {
	for name, tt := range map[string]struct {
		made  time.Time
		ready bool
	}{"a new one": {time.Now(), true}, "an old one": {time.Now().Add(-life - time.Minute), false}} {
		p := must.Get(pairAt(tt.made))(t)
		f := Files{Content: content{p.encoded, p.encoded}}
		c, err := f.Certificate()
		if err != nil || !bytes.Equal(c.Leaf.Raw, p.serving.Leaf.Raw) {
			t.Errorf("%s: %v", name, err)
		}
		if err := f.Ready(); (err == nil) != tt.ready {
			t.Errorf("%s: %v", name, err)
		}
	}
	if (Files{Content: content{}}).Ready() == nil {
		t.Error("it is ready without a certificate")
	}
}
