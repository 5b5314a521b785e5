//go:build around

package hold

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// apiserver is the certificate that the API server shows to webhooks that ask for one.
var apiserver build.Client

// shown writes what lets the API server show a certificate: its configuration, which names a kubeconfig, and that.
func shown(dir string) (build.Client, error) {
	c, err := build.NewClient(x509.ExtKeyUsageClientAuth)
	if err != nil {
		return build.Client{}, err
	}
	kubeconfig := filepath.Join(dir, "webhooks.kubeconfig")
	for name, text := range map[string]string{
		"client.crt": string(c.Certificate),
		"client.key": string(c.Key),
		"webhooks.kubeconfig": `apiVersion: v1
kind: Config
users:
- {name: "*", user: {client-certificate: client.crt, client-key: client.key}}
`,
		"admission.yaml": fmt.Sprintf(`apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %q}
`, kubeconfig),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return build.Client{}, fmt.Errorf("writing the API server's configuration: %w", err)
		}
	}
	return c, nil
}

// TestClientCA: with --client-ca-file only an API server that shows a certificate of that CA is answered, though others know the path.
// Of each certificate, TestClients of pkg/webhook proves that; this one is shown by a real API server.
func TestClientCA(t *testing.T) {
	foreign := must.Get(build.NewClient(x509.ExtKeyUsageClientAuth))(t)
	file := func(ca []byte) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "ca.crt")
		must.Do(t, os.WriteFile(path, ca, 0o600))
		return "--client-ca-file=" + path
	}
	defer serve(t)
	serve(t, file(apiserver.CA))
	create(t, "clientca", true)
	if set, err := edit(t, "clientca", 2); err != nil || !held(set) {
		t.Fatalf("an edit is not held, and the API server has the certificate: %v", err)
	}
	at, _, err := theBundle(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := ask(at); err == nil {
		t.Error("who shows no certificate is answered")
	}
	restart(t, file(foreign.CA))
	if _, err := edit(t, "clientca", 3); err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("an edit of an API server whose certificate is of another CA was answered so: %v", err)
	}
}
