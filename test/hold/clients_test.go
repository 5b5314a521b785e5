//go:build around

package hold

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/build"
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
// It alone proves that with a real API server.
func TestClientCA(t *testing.T) {
	foreign, err := build.NewClient(x509.ExtKeyUsageClientAuth)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name string, ca []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, ca, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pair := func(c build.Client) tls.Certificate {
		t.Helper()
		p, err := c.Pair()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	defer serve(t)
	w := serve(t, "--client-ca-file="+file("apiserver.crt", apiserver.CA))
	create(t, "clientca", true)
	set, err := edit(t, "clientca", 2)
	if err != nil || !held(set) {
		t.Fatalf("an edit is not held, and the API server has the certificate: %v", err)
	}
	at, _, err := theBundle(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := ask(at, pair(apiserver)); err != nil {
		t.Errorf("with the certificate: %v", err)
	}
	for name, shows := range map[string][]tls.Certificate{"none": nil, "one of another CA": {pair(foreign)}} {
		if err := ask(at, shows...); err == nil || !cutOff(err) {
			t.Errorf("with %s the handshake should fail: %v", name, err)
		}
	}

	// The API server's is refused as well, where it is not the one that is wanted, and says why.
	for i := range 2 {
		w.Replica(i).Kill()
	}
	for i := range 2 {
		if err := w.Start(t.Context(), i, "--client-ca-file="+file("foreign.crt", foreign.CA)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		if err := w.Replica(i).WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := edit(t, "clientca", 3); err == nil || !strings.Contains(err.Error(), "failed calling webhook") || !cutOff(err) {
		t.Errorf("an edit of an API server whose certificate is of another CA was answered so: %v", err)
	}
}

// cutOff reports whether the server has ended a connection in its handshake. What the client writes meanwhile may fail before it
// reads why; and what shares the connection is told only that there is none (net/http's HTTP/2).
func cutOff(err error) bool {
	return slices.ContainsFunc([]string{
		"tls: ", "client conn could not be established", syscall.EPIPE.Error(), syscall.ECONNRESET.Error(),
	}, func(cause string) bool { return strings.Contains(err.Error(), cause) })
}
