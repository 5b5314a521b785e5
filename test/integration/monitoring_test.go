//go:build around

package integration

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/podchecks"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	promserver "github.com/inplace-rollout/inplace-rollout/test/prometheus"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text := must.Get(os.ReadFile(path))(t)
	return string(text)
}

func TestAlertRules(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", shipped("deploy", "monitoring", "alerts.yaml"))
	promtool(t, "test", "rules", shipped("deploy", "monitoring", "alerts_test.yaml"))
}

// runbooks is where all of them are.
const runbooks = "https://github.com/inplace-rollout/inplace-rollout/blob/main/docs/"

// TestRunbooks: every alert says where to read on, and that is there.
func TestRunbooks(t *testing.T) {
	anchors := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(read(t, shipped("docs", "troubleshooting.md")), -1) {
		kept := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		anchors[strings.ReplaceAll(kept, " ", "-")] = true
	}
	for _, rule := range alertRules(t) {
		if !strings.HasPrefix(rule.Annotations["runbook_url"], runbooks) {
			t.Errorf("the runbook of %s is at %q, want an address below %s", rule.Alert, rule.Annotations["runbook_url"], runbooks)
		}
	}
	links := regexp.MustCompile(`troubleshooting\.md#([a-z-]+)`)
	// What the rules' templates say in the end stands in their tests.
	for _, file := range []string{shipped("deploy", "monitoring", "alerts_test.yaml"), shipped("docs", "monitoring.md")} {
		found := links.FindAllStringSubmatch(read(t, file), -1)
		if len(found) == 0 {
			t.Errorf("%s names no runbook", file)
		}
		for _, link := range found {
			if !anchors[link[1]] {
				t.Errorf("%s names #%s, which docs/troubleshooting.md has not", file, link[1])
			}
		}
	}
}

func TestAlertsAreDocumented(t *testing.T) {
	documented, there := map[string]string{}, map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(InplaceRollout\\w+)` \\| (\\w+) \\| ").FindAllStringSubmatch(read(t, shipped("docs", "monitoring.md")), -1) {
		documented[row[1]] = row[2]
	}
	for _, rule := range alertRules(t) {
		there[rule.Alert] = rule.Labels["severity"]
	}
	if !maps.Equal(documented, there) {
		t.Errorf("documented: %v\nthere are: %v", documented, there)
	}
}

// alertRule is one of deploy/monitoring/alerts.yaml.
type alertRule struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

func alertRules(t *testing.T) []alertRule {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []alertRule }
	}
	must.Do(t, yaml.Unmarshal([]byte(read(t, shipped("deploy", "monitoring", "alerts.yaml"))), &file))
	var rules []alertRule
	for _, group := range file.Groups {
		rules = append(rules, group.Rules...)
	}
	return rules
}

// impatient are the rules as shipped, but for what they wait for.
func impatient(t *testing.T) string {
	t.Helper()
	text := read(t, shipped("deploy", "monitoring", "alerts.yaml"))
	for from, to := range map[string]string{`for: \d+m`: "for: 1s", `timestamp_seconds > 0\) > 3600`: "timestamp_seconds > 0) > 3"} {
		pattern := regexp.MustCompile(from)
		if !pattern.MatchString(text) {
			t.Fatalf("the alert rules have no %s", from)
		}
		text = pattern.ReplaceAllString(text, to)
	}
	return text
}

// serveWebhook runs a webhook for its metrics.
func serveWebhook(t *testing.T) *controller.Process {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("webhook", nil, nil)
	must.Do(t, err)
	p := must.Get(controller.ServeFiles(cp, writeFile(t, string(certificate)), writeFile(t, string(key)), t.Output()))(t)
	t.Cleanup(p.Kill)
	// It does not become ready, because no configuration has its path.
	eventually(t, "the webhook's metrics", func() (bool, string) {
		_, err := p.Metrics(t.Context())
		return err == nil, must.Said(err)
	})
	return p
}

// serveEstimator runs an estimator for its metrics. It finds no Prometheus.
func serveEstimator(t *testing.T) *controller.Process {
	t.Helper()
	must.Do(t, cp.Apply(t.Context(), "--namespace", controller.Namespace, "--filename", shipped("deploy", "initial-resources", "roles.yaml")))
	p := must.Get(controller.StartEstimator(t.Context(), cp, controller.Options{Log: t.Output(), Args: []string{"--leader-elect=false", "--prometheus-url=http://127.0.0.1:1"}}))(t)
	t.Cleanup(p.Kill)
	must.Do(t, p.WaitReady(t.Context()))
	return p
}

// TestMonitoring: a real Prometheus watches the real controller, with the alert
// rules and the queries of the dashboard.
func TestMonitoring(t *testing.T) {
	p := ownController(t, controller.Options{Args: []string{"--leader-elect=true"}})
	webhook, estimator := serveWebhook(t), serveEstimator(t)
	prom := startPrometheus(t, p, webhook, estimator, impatient(t))
	w, d := newWorkload(t, options{Replicas: 2}), newDeployment(t, options{Replicas: 2})
	w.setResources("cpu=150m", "")
	d.setResources("cpu=150m", "")
	w.waitComplete()
	d.waitComplete()
	prom.waitAlerts(t)

	t.Run("the dashboard shows something in every panel", func(t *testing.T) { testDashboard(t, prom) })
	t.Run("the rules name what the controller exports", func(t *testing.T) {
		for _, rule := range alertRules(t) {
			prom.assertSelects(t, strings.ReplaceAll(rule.Expr, `{way="webhook"}`, "")) // only the way that is in force is there
		}
	})
	t.Run("the table of docs/monitoring.md names what the controller exports", func(t *testing.T) {
		documented := map[string]string{}
		for _, row := range regexp.MustCompile("(?m)^\\| `(inplace_rollout_\\w+)` \\| (\\w+) \\| ([a-z, ]*)\\| ").FindAllStringSubmatch(read(t, shipped("docs", "monitoring.md")), -1) {
			documented[row[1]] = row[2] + " " + strings.TrimSpace(row[3])
		}
		exported := map[string]string{}
		all := scrape(t, p)
		maps.Copy(all, scrape(t, webhook))
		maps.Copy(all, scrape(t, estimator))
		for name, family := range all {
			if strings.HasPrefix(name, ours) {
				names := build.Each(family.Metric[0].Label, func(l *dto.LabelPair) string { return l.GetName() })
				slices.Sort(names)
				if i := slices.Index(names, "kind"); i >= 0 {
					names = append([]string{"kind"}, slices.Delete(names, i, i+1)...)
				}
				exported[name] = strings.ToLower(family.GetType().String()) + " " + strings.Join(names, ", ")
			}
		}
		if !maps.Equal(documented, exported) {
			t.Errorf("documented: %v\nexported: %v", documented, exported)
		}
	})

	t.Run("names are as Prometheus wants them", func(t *testing.T) {
		for _, process := range []*controller.Process{p, webhook, estimator} {
			assertLint(t, process)
		}
	})

	w.kubectl("annotate", w.ref, api.ResizeActionAnnotation+"=LiveResize")
	w.annotatePod("web-1", simInfeasible)
	w.setResources("cpu=160m", "")
	alerts := prom.waitAlerts(t, "InplaceRolloutHoldTooOld StatefulSet", "InplaceRolloutInfeasible StatefulSet Infeasible")
	for i, runbook := range []string{runbooks + "troubleshooting.md#hold-too-old", runbooks + "troubleshooting.md#infeasible"} {
		if got := alerts[i].Annotations["runbook_url"]; got != runbook {
			t.Errorf("%s points to %q, want %q", alerts[i].name(), got, runbook)
		}
	}
	w.annotatePod("web-1", simAccepted)
	w.waitComplete()
	prom.waitAlerts(t)

	p.Stop()
	prom.waitAlerts(t, "InplaceRolloutControllerAbsent")
}

// assertLint has promtool find nothing to improve in our metrics; those of Kubernetes' libraries are not ours.
func assertLint(t *testing.T, p *controller.Process) {
	t.Helper()
	text := must.Get(p.Metrics(t.Context()))(t)
	var own strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE "), ours) {
			own.WriteString(line)
		}
	}
	lint := exec.CommandContext(t.Context(), promserver.Bin("promtool"), "check", "metrics")
	lint.Stdin = strings.NewReader(own.String())
	if out, err := lint.CombinedOutput(); err != nil || own.Len() == 0 || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// testDashboard checks that Grafana can show every panel.
func testDashboard(t *testing.T, prom *prometheus) {
	text := read(t, shipped("deploy", "monitoring", "dashboard.json"))
	var dashboard struct {
		Templating struct{ List []struct{ Name string } }
		Panels     []struct {
			ID          int
			Type, Title string
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct{ Expr, LegendFormat string }
		}
	}
	must.Do(t, json.Unmarshal([]byte(text), &dashboard))
	// What Grafana puts in place of variables.
	values := map[string]string{"__rate_interval": "10s", "__range": "1m", "job": "inplace-rollout.*", "namespace": ".*", "cluster": ".*", "datasource": ""}
	variable := regexp.MustCompile(`\$\{?(\w+)\}?`)
	var known []string
	for _, v := range dashboard.Templating.List {
		known = append(known, v.Name)
	}
	for _, used := range variable.FindAllStringSubmatch(text, -1) {
		if name := used[1]; !strings.HasPrefix(name, "__") && !slices.Contains(known, name) {
			t.Errorf("the dashboard has no variable %s", name)
		}
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	queries := 0
	for _, panel := range dashboard.Panels {
		if ids[panel.ID] {
			t.Errorf("%s: the id %d occurs twice", panel.Title, panel.ID)
		}
		ids[panel.ID] = true
		for x := range panel.GridPos.W {
			for y := range panel.GridPos.H {
				at := [2]int{panel.GridPos.X + x, panel.GridPos.Y + y}
				if other := taken[at]; other != "" || at[0] >= 24 {
					t.Fatalf("%s lies on %q, or outside, at %v", panel.Title, other, at)
				}
				taken[at] = panel.Title
			}
		}
		if (panel.Type == "row") != (len(panel.Targets) == 0) {
			t.Errorf("%s is a %s with %d queries", panel.Title, panel.Type, len(panel.Targets))
		}
		for _, target := range panel.Targets {
			queries++
			expr := variable.ReplaceAllStringFunc(target.Expr, func(v string) string { return values[strings.Trim(v, "${}")] })
			prom.assertSelects(t, expr)
			eventually(t, "data for "+expr, func() (bool, string) {
				found, err := prom.query(expr)
				return len(found) > 0 && !lacks(found, target.LegendFormat), fmt.Sprintf("%v, legend %q, %v", found, target.LegendFormat, err)
			})
		}
	}
	if queries == 0 {
		t.Error("the dashboard asks for nothing")
	}
}

// lacks reports whether a series has not all labels of its legend.
func lacks(found []map[string]string, legend string) bool {
	for _, label := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(legend, -1) {
		for _, series := range found {
			if series[label[1]] == "" {
				return true
			}
		}
	}
	return false
}

// TestScrapeConfigs: what docs/monitoring.md says finds the replicas of the controller.
func TestScrapeConfigs(t *testing.T) {
	t.Parallel()
	const service = "inplace-rollout-metrics"
	metrics := must.Get(client.CoreV1().Services(controller.Namespace).Get(t.Context(), service, metav1.GetOptions{}))(t)
	var scrapeConfig, monitor string
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(read(t, shipped("docs", "monitoring.md")), -1) {
		switch {
		case strings.Contains(block[1], "scrape_configs:"):
			scrapeConfig = block[1]
		case strings.Contains(block[1], "kind: ServiceMonitor"):
			monitor = block[1]
		}
	}

	t.Run("Prometheus Operator", func(t *testing.T) {
		var spec struct {
			Metadata metav1.ObjectMeta
			Spec     struct {
				Selector  metav1.LabelSelector
				Endpoints []struct{ Port string }
			}
		}
		must.Do(t, yaml.Unmarshal([]byte(monitor), &spec))
		selector := must.Get(metav1.LabelSelectorAsSelector(&spec.Spec.Selector))(t)
		if !selector.Matches(labels.Set(metrics.Labels)) || selector.Empty() || spec.Metadata.Namespace != metrics.Namespace {
			t.Errorf("it selects %s in %s, and the Service has %v in %s", selector, spec.Metadata.Namespace, metrics.Labels, metrics.Namespace)
		}
		if len(spec.Spec.Endpoints) != 1 || spec.Spec.Endpoints[0].Port != metrics.Spec.Ports[0].Name {
			t.Errorf("it scrapes %v, and the Service has %v", spec.Spec.Endpoints, metrics.Spec.Ports)
		}
	})

	t.Run("Prometheus", func(t *testing.T) {
		// Simulated nodes run nothing: these stand for the endpoints of the Services, and of another.
		addresses := map[string]string{service: "192.0.2.1", "inplace-rollout-webhook-metrics": "192.0.2.2", "inplace-rollout-estimator-metrics": "192.0.2.3", "another": "192.0.2.4"}
		for name, address := range addresses {
			if name != service {
				other := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: metrics.Spec.Ports}}
				must.Get(client.CoreV1().Services(controller.Namespace).Create(t.Context(), other, metav1.CreateOptions{}))(t)
				t.Cleanup(func() {
					_ = client.CoreV1().Services(controller.Namespace).Delete(context.Background(), name, metav1.DeleteOptions{})
				})
			}
			must.Get(client.DiscoveryV1().EndpointSlices(controller.Namespace).Create(t.Context(), &discoveryv1.EndpointSlice{
				ObjectMeta:  metav1.ObjectMeta{Name: "test-" + name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
				AddressType: discoveryv1.AddressTypeIPv4,
				Endpoints: []discoveryv1.Endpoint{{
					Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
					TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: controller.Namespace, Name: name + "-0"},
				}},
				Ports: []discoveryv1.EndpointPort{{Name: ptr.To(metrics.Spec.Ports[0].Name), Port: ptr.To[int32](8080)}},
			}, metav1.CreateOptions{}))(t)
			t.Cleanup(func() {
				_ = client.DiscoveryV1().EndpointSlices(controller.Namespace).Delete(context.Background(), "test-"+name, metav1.DeleteOptions{})
			})
		}
		dir := t.TempDir()
		outside := strings.Replace(scrapeConfig, "- role: endpointslice\n", "- role: endpointslice\n    kubeconfig_file: "+cp.Kubeconfig()+"\n", 1)
		for name, text := range map[string]string{
			"prometheus.yaml": scrapeConfig, "outside.yaml": outside,
			"alerts.yaml": read(t, shipped("deploy", "monitoring", "alerts.yaml")),
		} {
			must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		promtool(t, "check", "config", "--lint=all", "--lint-fatal", filepath.Join(dir, "prometheus.yaml"))

		// It is not scraped: promtool only tells what would be.
		var targets []struct{ Labels map[string]string }
		found := promtool(t, "check", "service-discovery", "--timeout=30s", filepath.Join(dir, "outside.yaml"), "inplace-rollout")
		must.Do(t, json.Unmarshal([]byte(found), &targets))
		scraped, want := map[string]string{}, map[string]string{}
		for _, target := range targets {
			if len(target.Labels) > 0 {
				scraped[target.Labels["pod"]] = target.Labels["__address__"] + target.Labels["__metrics_path__"]
			}
		}
		for _, file := range []string{"controller/controller.yaml", "overlays/webhook/webhook.yaml", "initial-resources/estimator.yaml"} {
			for _, name := range regexp.MustCompile(`(?m)^  name: (\S+-metrics)$`).FindAllStringSubmatch(read(t, shipped("deploy", file)), -1) {
				want[name[1]+"-0"] = addresses[name[1]] + ":8080/metrics"
			}
		}
		if len(want) != 3 || !maps.Equal(scraped, want) || len(targets) != len(addresses) {
			t.Errorf("would scrape %v of %d targets, want %v of %d", scraped, len(targets), want, len(addresses))
		}
	})
}

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
	return build.Each(data.Result, func(result struct{ Metric map[string]string }) map[string]string { return result.Metric }), err
}

// selectors returns what an expression selects, each as an expression of its own.
func (p *prometheus) selectors(t *testing.T, expr string) []string {
	t.Helper()
	var tree any
	must.Fails(t, expr, p.ask("parse_query", url.Values{"query": {expr}}, &tree), "")
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
			return err == nil && len(found) > 0, must.Said(err)
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
		names := build.Each(firing, func(a alert) string { return a.name() })
		return err == nil && slices.Equal(names, want), fmt.Sprintf("%q %v", names, err)
	})
	return firing
}

func (a alert) name() string {
	return strings.Join(strings.Fields(a.Labels["alertname"]+" "+a.Labels["kind"]+" "+a.Labels["reason"]), " ")
}

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
		{"somebody without the right", "/metrics", token("default"), 403, "system:serviceaccount:" + namespace + ":default has no right to get /metrics"},
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

// TestGuardChecks: a check that fails takes the size back. Prometheus is played: what a real one answers to the checks that are
// shipped is tried in test/prometheus. It alone proves the way from the annotation to Prometheus and back; a first answer
// takes half a minute to count.
func TestGuardChecks(t *testing.T) {
	w := newWorkload(t, options{})
	prometheus := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		answer.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(answer, `{"status": "success", "data": {"resultType": "vector", "result": [{"metric": {"namespace": %q, "pod": "web-2", "container": "app"}, "value": [%d, "99"]}]}}`,
			w.namespace, time.Now().Unix())
	}))
	defer prometheus.Close()
	configMaps := client.CoreV1().ConfigMaps(controller.Namespace)
	shipped := must.Get(configMaps.Get(t.Context(), podchecks.ConfigMapName, metav1.GetOptions{}))(t)
	more := shipped.DeepCopy()
	more.Data["too-busy"] = "{message: is busy for $value, unit: '%', above: 50, window: 1s, query: 'busy{namespace=~$namespace, pod=~$pod, container=~$container}'}"
	must.Get(configMaps.Update(t.Context(), more, metav1.UpdateOptions{}))(t)
	t.Cleanup(func() {
		must.Get(configMaps.Patch(context.Background(), podchecks.ConfigMapName, types.MergePatchType, []byte(`{"data": {"too-busy": null}}`), metav1.PatchOptions{}))(t)
	})
	ownController(t, controller.Options{Args: []string{"--checks-prometheus=" + prometheus.URL}})
	w.waitComplete()
	before := w.uids()
	w.guard("canary", "1", "canary-duration", "1s", "checks", "too-busy", "on-failure", "Revert")
	w.setResources("cpu=150m", "")
	w.waitCondition("Reverted", "web-2 failed the check too-busy: is busy for 99 %, more than 50 %")
	must.EqualLists(t, w.askedPods(), []string{"web-2"}, "the pods that are asked")
	w.assertReplaced(before)
}
