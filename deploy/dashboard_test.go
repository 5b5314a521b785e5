package deploy_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// panel of the dashboard.
type panel struct {
	Type, Title, Description string
	Datasource               struct{ UID string }
	Links                    []struct{ URL string }
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []struct{ Expr string }
}

// What people want of a dashboard: each panel says what it shows, and in which unit, can be narrowed to a cluster and a
// namespace, and leads to where one reads on. A test with a real Prometheus checks that it shows something.
func TestDashboard(t *testing.T) {
	text := must.Get(os.ReadFile("monitoring/dashboard.json"))(t)
	var dashboard struct{ Panels []panel }
	must.Do(t, json.Unmarshal(text, &dashboard))
	for _, p := range dashboard.Panels {
		if p.Type != "row" {
			assertPanel(t, p)
		}
	}
	for _, metric := range []string{
		"inplace_rollout_webhook_requests_total", "inplace_rollout_webhook_request_duration_seconds_bucket", "inplace_rollout_hold_info",
		"inplace_rollout_build_info", "inplace_rollout_estimates_timestamp_seconds", "inplace_rollout_history_missing_seconds",
	} {
		if !strings.Contains(string(text), metric+"{") {
			t.Errorf("no panel shows %s", metric)
		}
	}
	for _, link := range regexp.MustCompile(`/blob/main/docs/([a-z-]+\.md)(?:#([a-z-]+))?"`).FindAllStringSubmatch(string(text), -1) {
		assertHeading(t, link[1], link[2])
	}
}

var selector = regexp.MustCompile(`[a-z]+_\w+\{[^}]*\}`)

func assertPanel(t *testing.T, p panel) {
	t.Helper()
	if p.Description == "" || p.FieldConfig.Defaults.Unit == "" || p.Datasource.UID != "${datasource}" {
		t.Errorf("%s has the description %q, the unit %q and the data source %q", p.Title, p.Description, p.FieldConfig.Defaults.Unit, p.Datasource.UID)
	}
	for _, target := range p.Targets {
		selectors := selector.FindAllString(target.Expr, -1)
		if len(selectors) == 0 {
			t.Errorf("%s cannot be narrowed: %s", p.Title, target.Expr)
		}
		for _, found := range selectors {
			if !strings.Contains(found, `cluster=~"$cluster", namespace=~"$namespace", job=~"$job"}`) {
				t.Errorf("%s cannot be narrowed: %s", p.Title, found)
			}
		}
	}
}

// assertHeading checks that a page has a heading with this anchor.
func assertHeading(t *testing.T, page, anchor string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", page))
	if err != nil {
		t.Error(err)
		return
	}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(text), -1) {
		kept := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		if anchor == "" || strings.ReplaceAll(kept, " ", "-") == anchor {
			return
		}
	}
	t.Errorf("docs/%s has no heading for #%s", page, anchor)
}
