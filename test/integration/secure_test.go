//go:build around

package integration

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestSecureMetrics: with the rights of the component, only those who may get /metrics can read them, and
// only over TLS. The kubelet's probes need no token. So it is with all that is installed, and with the
// replica that waits for the lead, and writes nothing.
func TestSecureMetrics(t *testing.T) {
	roles := shipped("deploy", "components", "secure-metrics", "roles.yaml")
	administer(t, "apply", "-f", roles)
	defer administer(t, "delete", "-f", roles)
	// Nobody asks the webhook anything here, so it may do without its other rights.
	apply(t, controller.Namespace, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: inplace-rollout-webhook}}`)
	administer(t, "apply", "--namespace", controller.Namespace, "-f", shipped("deploy", "initial-resources", "roles.yaml"))
	namespace := newNamespace(t, nil)
	administer(t, "create", "serviceaccount", "prometheus", "-n", namespace)
	administer(t, "create", "clusterrolebinding", namespace, "--clusterrole=inplace-rollout-metrics-reader", "--serviceaccount="+namespace+":prometheus")
	defer administer(t, "delete", "clusterrolebinding", namespace)
	token := func(name string) string {
		return strings.TrimSpace(administer(t, "create", "token", name, "-n", namespace))
	}

	replica := func() (*controller.Process, error) {
		return launch(controller.Options{Args: []string{"--secure-metrics", "--leader-elect"}})
	}
	for _, tt := range []struct {
		name    string
		start   func() (*controller.Process, error)
		metrics string
	}{
		{"leader", replica, "inplace_rollout_ready{"},
		{"other", replica, "inplace_rollout_ready{"},
		{"webhook", func() (*controller.Process, error) {
			p, _, err := controller.StartReplica(t.Context(), cp, controller.Namespace, controller.WebhookOptions{Args: []string{"--secure-metrics"}, Log: t.Output()})
			return p, err
		}, "inplace_rollout_webhook_certificate"},
		{"estimator", func() (*controller.Process, error) {
			return controller.StartEstimator(t.Context(), cp, controller.Options{Args: []string{"--secure-metrics", "--leader-elect=false", "--prometheus-url=http://127.0.0.1:1"}, Log: t.Output()})
		}, "inplace_rollout_estimate_publish_errors_total"},
	} {
		process := must.Get(tt.start())(t)
		defer process.Stop()
		t.Run(tt.name, func(t *testing.T) { testSecureMetrics(t, process, namespace, tt.metrics, token) })
	}
}

func testSecureMetrics(t *testing.T, process *controller.Process, namespace, metrics string, token func(name string) string) {
	verifiesNobody := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // it has signed its certificate itself
	get := func(path, token string) (code int, body string) {
		t.Helper()
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+process.Address()+path, nil))(t)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := verifiesNobody.Do(request)
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		read := must.Get(io.ReadAll(response.Body))(t)
		return response.StatusCode, string(read)
	}
	eventually(t, "the metrics", func() (bool, string) {
		code, body := get("/metrics", token("prometheus"))
		return code == http.StatusOK && strings.Contains(body, metrics), fmt.Sprint(code, " ", body)
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
		{"Prometheus", "/metrics", token("prometheus"), 200, metrics},
	} {
		if code, body := get(tt.path, tt.token); code != tt.code || !strings.Contains(body, tt.says) {
			t.Errorf("%s gets %d %.300s, want %d with %q", tt.who, code, body, tt.code, tt.says)
		}
	}
	if err := process.Ready(t.Context()); err == nil {
		t.Error("it answers without TLS")
	}
}
