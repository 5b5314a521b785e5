//go:build around

package hold

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/cert"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// where is what the configuration says of its webhooks.
type where struct {
	bundle []byte
	url    string // of the one that holds StatefulSets
}

// ask asks the webhook as an API server that trusts the bundle and has no connection yet. It shows no certificate.
func ask(at where) error {
	set := []byte(`{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"web","labels":{"inplace-rollout.io/enabled":"true"}},
		"spec":{"updateStrategy":{"type":"RollingUpdate"},"template":{"spec":{"containers":[]}}}}`)
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "1", Operation: admissionv1.Create, Kind: metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"},
			Resource: metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}, Object: runtime.RawExtension{Raw: set}, UserInfo: authenticationv1.UserInfo{Username: "test"},
		},
	}
	body, err := json.Marshal(review)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(at.bundle)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "inplace-rollout-webhook.inplace-rollout.svc"}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, at.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the answer is %s", response.Status)
	}
	review.Response = nil
	if err := json.NewDecoder(response.Body).Decode(&review); err != nil {
		return err
	}
	if !review.Response.Allowed || len(review.Response.Patch) == 0 {
		return fmt.Errorf("the answer is %v", review.Response)
	}
	return nil
}

// bundles are those that the webhooks of the configuration have, each once, with the first URL.
func bundles(ctx context.Context) ([]where, error) {
	c, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, "inplace-rollout", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(c.Webhooks, func(w registrationv1.MutatingWebhook) bool {
		return w.Name == "inplace-rollout-hold.inplace-rollout.io"
	})
	if i < 0 {
		return nil, errors.New("the configuration lacks the webhook")
	}
	var all []where
	for _, w := range c.Webhooks {
		if !slices.ContainsFunc(all, func(b where) bool { return bytes.Equal(b.bundle, w.ClientConfig.CABundle) }) {
			all = append(all, where{w.ClientConfig.CABundle, *c.Webhooks[i].ClientConfig.URL})
		}
	}
	return all, nil
}

// askOn asks one question after the other, trusting what the configuration says by then, as far as it can be read.
func askOn(t *testing.T) (stop func() (answers int, errs []error)) {
	t.Helper()
	trusted := must.Get(bundles(t.Context()))(t)
	return over(func(int) error {
		if now, err := bundles(t.Context()); err == nil {
			trusted = now
		}
		return ask(trusted[0])
	})
}

// theBundle is the one that all entries of the configuration have, and the CAs in it.
func theBundle(ctx context.Context) (where, []*x509.Certificate, error) {
	now, err := bundles(ctx)
	if err != nil || len(now) != 1 {
		return where{}, nil, fmt.Errorf("the configuration has %d bundles: %w", len(now), err)
	}
	certificates, err := cert.ParseCertsPEM(now[0].bundle)
	return now[0], certificates, err
}

// Nobody notices that certificates are renewed.
// It alone proves that of several renewals under load. A replica has a twentieth of the lifetime to learn of a later
// certificate: 3 s, since a busy machine may stop one for longer than one.
func TestRenewal(t *testing.T) {
	serve(t, "--certificate-lifetime=60s")
	create(t, "renewal", true)
	stopAsking, stopEditing := askOn(t), editOn(t, "renewal")
	seen := map[string]bool{}
	for renewals := range 4 {
		eventually(t, fmt.Sprintf("another certificate is trusted after %d", renewals), func() (bool, error) {
			_, certificates, err := theBundle(t.Context())
			if err != nil {
				return false, err
			}
			for _, c := range certificates {
				seen[string(c.Raw)] = true
			}
			if len(certificates) > 3 {
				return false, fmt.Errorf("%d CAs are trusted at the same time", len(certificates))
			}
			return len(seen) > renewals, nil
		})
	}
	answers, errs := stopAsking()
	accepted, refused := stopEditing()
	t.Logf("%d answers, %d edits", answers, accepted)
	if len(errs) > 0 {
		t.Errorf("%d questions were answered, and %d were not, such as: %v", answers, len(errs), errs[0])
	}
	if len(refused) > 0 {
		t.Errorf("of %d edits %d were refused, such as: %v", accepted+len(refused), len(refused), refused[0])
	}
}
