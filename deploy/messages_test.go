package deploy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// The messages of conditions are for people: what a policy or the controller goes by stands elsewhere (rollout.Spoken). So nobody takes them
// apart, but: in CEL, the number of the condition Observed, and what is put back as it was.
var readByCEL = []string{
	`["message", variables.pending]`, `["message", "Deployment is paused"]`, // written, not read
	`message: variables.complete[0].?message.orValue("")`, `?message.orValue("") == "observed generation " + `, `variables.recorded[0].?message.orValue("")`,
}

// In Go, other texts, where Kubernetes has only these or they are our own that are not stored; and what is only printed.
var readByGo = []string{
	"cmd/inplace-rollout/check.go: strings.Split(f.Message,", `cmd/inplace-rollout/plan.go: says = fmt.Sprintf("%s: %s", reason, condition["message"]`,
	"pkg/deployment/replicaset.go: strings.Contains(c.Message,", "pkg/judge/rejections.go: strings.CutPrefix(pod.Status.Message,", "pkg/podchecks/runner.go: strings.Cut(a.outcome.Message,", "pkg/pods/write.go: strings.Contains(c.Message,",
	"pkg/pods/write.go: strings.Cut(status.Status().Message,",
	"pkg/rollout/message.go: strings.Contains(a[0].Message,",
}

func TestNobodyReadsAMessage(t *testing.T) {
	inCEL, comments := regexp.MustCompile(`.*(\.\??|\[\??")message\b.*`), regexp.MustCompile(`(?m)^ *#.*`)
	inGo := regexp.MustCompile(`(\b(strings\.\w+|fmt\.Sscan\w*|Match\w*|Find\w*)\([^,\n]*|\bParse\([^\n]*)\.Message[,)]|\S.*\["message"\]`)
	var found []string
	for _, pattern := range []string{"cluster/*.yaml", "../cmd/*/*.go", "../cmd/*/*/*.go", "../pkg/*/*.go", "../initialresources/*.go", "../initialresources/*/*.go"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatal(pattern, err)
		}
		for _, path := range paths {
			text := must.Get(os.ReadFile(path))(t)
			left := string(text)
			if strings.HasSuffix(path, ".go") {
				for _, reads := range inGo.FindAllString(left, -1) {
					if !strings.HasSuffix(path, "_test.go") {
						found = append(found, strings.TrimPrefix(path, "../")+": "+reads)
					}
				}
				continue
			}
			left = comments.ReplaceAllString(left, "")
			for _, known := range readByCEL {
				left = strings.ReplaceAll(left, known, "")
			}
			for _, line := range inCEL.FindAllString(left, -1) {
				t.Errorf("%s: %s", path, line)
			}
		}
	}
	slices.Sort(found)
	must.EqualLists(t, found, readByGo, "what Go reads")
}

// TestEveryKind: a file that names two kinds of workloads names all of them.
func TestEveryKind(t *testing.T) {
	read := func(file string) string {
		t.Helper()
		return string(must.Get(os.ReadFile(file))(t))
	}
	resource := func(kind string) string { return strings.ToLower(kind) + "s" }
	files := []string{"../test/controlplane/audit-policy.yaml"}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if extension := filepath.Ext(path); err == nil && entry.Type().IsRegular() && (extension == ".yaml" || extension == ".tpl") {
			files = append(files, path)
		}
		return err
	})
	must.Do(t, err)
	places := 0
	for _, file := range files {
		content := read(file)
		lacks := slices.DeleteFunc(slices.Clone(prerequisite.HeldKinds), func(kind string) bool {
			return strings.Contains(content, kind) || strings.Contains(content, resource(kind))
		})
		if named := len(prerequisite.HeldKinds) - len(lacks); named > 1 {
			places++
			if len(lacks) > 0 {
				t.Errorf("%s names %d kinds of workloads, and not %s", file, named, strings.Join(lacks, ", "))
			}
		}
	}
	if places < 15 {
		t.Errorf("only %d files name workloads", places)
	}
}

// What SECURITY.md says that the account cannot do, none of its roles lets it do.
func TestAccountOfTheController(t *testing.T) {
	for _, file := range []string{"cluster/cluster-roles.yaml", "controller/service-account.yaml"} {
		for _, rule := range rules(t, file) {
			for _, resource := range rule.Resources {
				if slices.Contains([]string{"*", "secrets", "configmaps", "roles", "rolebindings", "clusterroles", "clusterrolebindings"}, resource) {
					t.Errorf("%s: %v of %s", file, rule.Verbs, resource)
				}
				if writes(rule) && slices.Contains(rule.APIGroups, "admissionregistration.k8s.io") {
					t.Errorf("%s: it may change its own fence: %v of %s", file, rule.Verbs, resource)
				}
				if resource == "pods" && slices.Contains(rule.Verbs, "create") {
					t.Errorf("%s: it may create pods", file)
				}
			}
		}
	}
}

// TestParameter: what policies ask for is the heartbeat's object. With a name that is nobody's, a policy is not asked, and nobody is told.
func TestParameter(t *testing.T) {
	n := 0
	for _, o := range must.Get(deploy.Objects(deploy.Cluster, deploy.User))(t) {
		var ref *admissionv1.ParamRef
		switch b := o.(type) {
		case *admissionv1.MutatingAdmissionPolicyBinding:
			ref = b.Spec.ParamRef
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			ref = b.Spec.ParamRef
		}
		if ref == nil {
			continue
		}
		if n++; ref.Name != api.HeartbeatName || ref.Namespace != "inplace-rollout" {
			t.Errorf("%T %s asks for %s/%s", o, o.(metav1.Object).GetName(), ref.Namespace, ref.Name)
		}
	}
	if n < 5 {
		t.Errorf("%d bindings have a parameter", n)
	}
}

func writes(rule rbacv1.PolicyRule) bool {
	return slices.ContainsFunc(rule.Verbs, func(verb string) bool { return !slices.Contains([]string{"get", "list", "watch"}, verb) })
}

// rules are those of the roles in a file of the folder.
func rules(t *testing.T, file string) []rbacv1.PolicyRule {
	t.Helper()
	text := must.Get(os.ReadFile(file))(t)
	var found []rbacv1.PolicyRule
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		var role rbacv1.ClusterRole // a Role has the same rules
		switch err := decoder.Decode(&role); {
		case errors.Is(err, io.EOF) && len(found) > 0:
			return found
		case err != nil:
			t.Fatalf("%s: %v", file, err)
		}
		found = append(found, role.Rules...)
	}
}

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
		must.Contain(t, string(text), metric+"{", "the panels")
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
			must.Contain(t, found, `cluster=~"$cluster", namespace=~"$namespace", job=~"$job"}`, "how %s can be narrowed", p.Title)
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
