//go:build around

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	promserver "github.com/inplace-rollout/inplace-rollout/test/prometheus"
)

// promtool runs promtool and returns what it prints; its complaints fail the test.
func promtool(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), promserver.Bin("promtool"), args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("promtool %s: %v\n%s%s", strings.Join(args, " "), err, &stdout, &stderr)
	}
	return stdout.String()
}

// prometheus is a running Prometheus.
type prometheus struct{ *promserver.Server }

// startPrometheus runs a Prometheus that scrapes the controller twice a second, with these rules.
func startPrometheus(t *testing.T, p, webhook, estimator *controller.Process, rules string) *prometheus {
	t.Helper()
	dir := t.TempDir()
	config := fmt.Sprintf(`
global: {scrape_interval: 500ms, evaluation_interval: 500ms}
rule_files: [rules.yaml]
scrape_configs:
- job_name: inplace-rollout
  static_configs: [{targets: [%q]}]
- job_name: inplace-rollout-webhook
  static_configs: [{targets: [%q]}]
- job_name: inplace-rollout-estimator
  static_configs: [{targets: [%q]}]
`, p.Address(), webhook.Address(), estimator.Address())
	must.Do(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(rules), 0o600))
	server := must.Get(promserver.Start(t.Context(), dir, config))(t)
	t.Cleanup(func() {
		server.Stop()
		if t.Failed() {
			t.Logf("Prometheus: %s", server.Log())
		}
	})
	prom := &prometheus{server}
	eventually(t, "Prometheus to scrape all", func() (bool, string) {
		if server.Ended() {
			t.Fatal("Prometheus has ended")
		}
		found, err := prom.query("up == 1")
		return len(found) == 3, fmt.Sprint(found, err)
	})
	return prom
}

// ask decodes the data of an answer of the API.
func (p *prometheus) ask(path string, parameters url.Values, data any) error {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, p.URL()+"/api/v1/"+path+"?"+parameters.Encode(), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("reading the answer to %s: %w", path, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("asking for %s: %s", path, answer.Error)
	}
	return nil
}

// query returns the labels of every series that the expression has now.
func (p *prometheus) query(expr string) ([]map[string]string, error) {
	var data struct {
		Result []struct{ Metric map[string]string }
	}
	err := p.ask("query", url.Values{"query": {expr}}, &data)
	found := make([]map[string]string, len(data.Result))
	for i, result := range data.Result {
		found[i] = result.Metric
	}
	return found, err
}

// selectors returns what an expression selects, each as an expression of its own.
func (p *prometheus) selectors(t *testing.T, expr string) []string {
	t.Helper()
	var tree any
	if err := p.ask("parse_query", url.Values{"query": {expr}}, &tree); err != nil {
		t.Errorf("%s: %v", expr, err)
	}
	var found []string
	var walk func(node any)
	walk = func(node any) {
		switch n := node.(type) {
		case []any:
			for _, each := range n {
				walk(each)
			}
		case map[string]any:
			if kind := n["type"]; kind == "vectorSelector" || kind == "matrixSelector" {
				var matchers []string
				for _, matcher := range n["matchers"].([]any) {
					m := matcher.(map[string]any)
					matchers = append(matchers, fmt.Sprintf("%s%s%q", m["name"], m["type"], m["value"]))
				}
				found = append(found, "{"+strings.Join(matchers, ",")+"}")
				return
			}
			for _, each := range n {
				walk(each)
			}
		}
	}
	walk(tree)
	return found
}

// assertSelects checks that each part of an expression selects something that the controller exports.
func (p *prometheus) assertSelects(t *testing.T, expr string) {
	t.Helper()
	selectors := p.selectors(t, expr)
	if len(selectors) == 0 {
		t.Errorf("%s selects nothing", expr)
	}
	for _, selector := range selectors {
		// A scrape that fails takes all series away until the next one.
		eventually(t, "the controller to export "+selector, func() (bool, string) {
			found, err := p.query(selector)
			return err == nil && len(found) > 0, said(err)
		})
	}
}

// alert is one that fires.
type alert struct {
	State               string
	Labels, Annotations map[string]string
}

// waitAlerts waits until exactly these alerts fire, given as `name kind reason`, and returns them in this order.
func (p *prometheus) waitAlerts(t *testing.T, want ...string) []alert {
	t.Helper()
	var firing []alert
	eventually(t, fmt.Sprintf("the alerts %q", want), func() (bool, string) {
		var data struct{ Alerts []alert }
		err := p.ask("alerts", nil, &data)
		firing = slices.DeleteFunc(data.Alerts, func(a alert) bool { return a.State != "firing" })
		slices.SortFunc(firing, func(a, b alert) int { return strings.Compare(a.name(), b.name()) })
		var names []string
		for _, a := range firing {
			names = append(names, a.name())
		}
		return err == nil && slices.Equal(names, want), fmt.Sprintf("%q %v", names, err)
	})
	return firing
}

func (a alert) name() string {
	return strings.Join(strings.Fields(a.Labels["alertname"]+" "+a.Labels["kind"]+" "+a.Labels["reason"]), " ")
}
