package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/inplace-rollout/inplace-rollout/initialresources/history"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// askVariable has the test's own program ask a Prometheus, as a process with other roots does.
const askVariable = "TEST_ROOTS_ASK"

// TestRoots: where the system has no certificates, as in our image, a public root is trusted; one that
// the system has is, too; and others are not.
func TestRoots(t *testing.T) {
	if address := os.Getenv(askVariable); address != "" {
		askPrometheus(t, address)
		return
	}
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	root := filepath.Join(t.TempDir(), "root.crt")
	must.Do(t, os.WriteFile(root, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	for file, want := range map[string]string{
		root:           "there is no Prometheus at", // it has been reached
		"/nonexistent": "set the certificates to trust by --prometheus-ca-file",
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRoots$", "-test.v")
		cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+file, "SSL_CERT_DIR="+t.TempDir(), askVariable+"="+server.URL)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("with the certificates of %s: %v, %s; want …%s…", file, err, out, want)
		}
		must.Equal(t, strings.Contains(string(out), "it trusts ISRG Root X1"), file != root, "with the certificates of %s: a public root is trusted", file)
	}
}

// askPrometheus says what comes of asking a Prometheus, and whether a root that everybody knows is trusted.
func askPrometheus(t *testing.T, address string) {
	o := history.Defaults()
	o.URL = address
	store := must.Get(history.New(o))(t)
	t.Log(store.Refresh(t.Context(), time.Now()))
	pool := must.Get(x509.SystemCertPool())(t)
	for _, subject := range pool.Subjects() { //nolint:staticcheck // what is deprecated is that it lacks those of other systems
		if strings.Contains(string(subject), "ISRG Root X1") {
			t.Log("it trusts ISRG Root X1")
		}
	}
}
