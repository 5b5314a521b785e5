// Package webhook is a mutating admission webhook, as clusters have them beside us.
package webhook

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// Mutate changes the object that a request brings.
type Mutate func(request *admissionv1.AdmissionRequest, object *unstructured.Unstructured)

// Options of a webhook.
type Options struct {
	// Namespace in which it is asked.
	Namespace string
	// Again reports whether it is asked a second time about what others have changed after it.
	Again bool
	// Resources of the group apps, or of the core, that it is asked about; statefulsets, deployments and
	// daemonsets if empty.
	Resources []string
	// Mutate what is created and updated.
	Mutate Mutate
}

// Serve registers a webhook and serves it until the test ends. It may take a second
// until the API server knows it.
func Serve(t testing.TB, client kubernetes.Interface, o Options) {
	t.Helper()
	stop := must.Get(Start(t.Context(), client, o))(t)
	t.Cleanup(func() { must.Do(t, stop(context.Background())) })
}

// Start registers a webhook and serves it until stop is called.
func Start(ctx context.Context, client kubernetes.Interface, o Options) (stop func(context.Context) error, err error) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = answer(review.Request, o.Mutate)
		_ = json.NewEncoder(w).Encode(review) // fails only if the API server has gone
	}))
	if len(o.Resources) == 0 {
		o.Resources = []string{"statefulsets", "deployments", "daemonsets"}
	}
	again := registrationv1.NeverReinvocationPolicy
	if o.Again {
		again = registrationv1.IfNeededReinvocationPolicy
	}
	configurations := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	created, err := configurations.Create(ctx, &registrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		Webhooks: []registrationv1.MutatingWebhook{{
			Name: "mutate.example.com",
			ClientConfig: registrationv1.WebhookClientConfig{
				URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": o.Namespace}},
			Rules: []registrationv1.RuleWithOperations{{
				Operations: []registrationv1.OperationType{registrationv1.Create, registrationv1.Update},
				Rule:       registrationv1.Rule{APIGroups: []string{"", "apps"}, APIVersions: []string{"v1"}, Resources: o.Resources},
			}},
			TimeoutSeconds: ptr.To[int32](30), // the most: some are slow on purpose
			SideEffects:    ptr.To(registrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"}, ReinvocationPolicy: &again,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		server.Close()
		return nil, fmt.Errorf("registering the webhook: %w", err)
	}
	return func(ctx context.Context) error {
		defer server.Close()
		if err := configurations.Delete(ctx, created.Name, metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("deleting the webhook: %w", err)
		}
		return nil
	}, nil
}

// answer is what the webhook says to one request.
func answer(request *admissionv1.AdmissionRequest, mutate Mutate) *admissionv1.AdmissionResponse {
	response := &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(request.Object.Raw, object); err != nil {
		return refuse(response, fmt.Errorf("reading the object: %w", err))
	}
	before := object.DeepCopy()
	mutate(request, object)
	var patch []map[string]any
	for _, field := range []struct{ path, name string }{{"/metadata", "metadata"}, {"/spec", "spec"}} {
		if !equality.Semantic.DeepEqual(before.Object[field.name], object.Object[field.name]) {
			patch = append(patch, map[string]any{"op": "replace", "path": field.path, "value": object.Object[field.name]})
		}
	}
	if len(patch) == 0 {
		return response
	}
	encoded, err := json.Marshal(patch)
	if err != nil {
		return refuse(response, fmt.Errorf("encoding the patch: %w", err))
	}
	response.Patch, response.PatchType = encoded, ptr.To(admissionv1.PatchTypeJSONPatch)
	return response
}

func refuse(response *admissionv1.AdmissionResponse, err error) *admissionv1.AdmissionResponse {
	response.Allowed, response.Result = false, &metav1.Status{Message: err.Error()}
	return response
}
