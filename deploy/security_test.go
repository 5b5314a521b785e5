package deploy_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

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
