//go:build integration

package integration

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// TestSecureMetrics: with the rights of deploy/components/secure-metrics, only those who may get
// /metrics can read them, and only over TLS. The kubelet's probes need no token. The replica that
// waits for the lead, and writes nothing, answers the same.
func TestSecureMetrics(t *testing.T) {
	roles := filepath.Join(controller.Root(), "deploy", "components", "secure-metrics", "roles.yaml")
	administer(t, "apply", "-f", roles)
	defer administer(t, "delete", "-f", roles)
	namespace := newNamespace(t, nil)
	administer(t, "create", "serviceaccount", "prometheus", "-n", namespace)
	administer(t, "create", "clusterrolebinding", namespace, "--clusterrole=inplace-rollout-metrics-reader", "--serviceaccount="+namespace+":prometheus")
	defer administer(t, "delete", "clusterrolebinding", namespace)
	token := func(name string) string {
		return strings.TrimSpace(administer(t, "create", "token", name, "-n", namespace))
	}

	for _, replica := range []string{"leader", "other"} {
		process, err := launch(controller.Options{Args: []string{"--secure-metrics", "--leader-elect"}})
		if err != nil {
			t.Fatal(err)
		}
		defer process.Stop()
		t.Run(replica, func(t *testing.T) { testSecureMetrics(t, process, namespace, token) })
	}
}

func testSecureMetrics(t *testing.T, process *controller.Process, namespace string, token func(name string) string) {
	verifiesNobody := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // it has signed its certificate itself
	get := func(path, token string) (code int, body string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+process.Address()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := verifiesNobody.Do(request)
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		read, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(read)
	}
	eventually(t, "the replica to be ready", func() (bool, string) {
		code, body := get("/readyz", "")
		return code == http.StatusOK, fmt.Sprint(code, " ", body)
	})
	for _, tt := range []struct {
		who, path, token string
		code             int
		says             string
	}{
		{"the kubelet", "/healthz", "", 200, "ok"},
		{"nobody", "/metrics", "", 401, "token"},
		{"a stranger", "/metrics", "abc", 401, "token"},
		{"somebody without the right", "/metrics", token("default"), 403, "system:serviceaccount:" + namespace + ":default may not get /metrics"},
		{"Prometheus", "/metrics", token("prometheus"), 200, "inplace_rollout_ready 1\n"},
	} {
		if code, body := get(tt.path, tt.token); code != tt.code || !strings.Contains(body, tt.says) {
			t.Errorf("%s gets %d %.300s, want %d with %q", tt.who, code, body, tt.code, tt.says)
		}
	}
	if err := process.Ready(t.Context()); err == nil {
		t.Error("it answers without TLS")
	}
}
