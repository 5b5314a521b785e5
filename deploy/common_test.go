package deploy

import (
	"os"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
)

// ownMeaning are the variables that say for each kind of workload what that kind makes of them. All others
// mean the same wherever they have the same name.
var ownMeaning = map[string][]string{
	"hold":    {"recorded", "before", "kept", "asked", "wish", "stirs", "wanted", "hold", "retryAction", "empty"},
	"guard":   {"switched", "lost", "empty"},
	"pending": {"held", "outOfDate", "lowers"},
}

// setsOnly are those that StatefulSets and DaemonSets have in common: the controllers of both make a new
// revision of a quantity that is spelled otherwise, and `kubectl rollout undo` keeps their annotations.
var setsOnly = []string{"edited", "said", "inForce"}

// TestActions: the policies take the actions that Go knows, and no other.
func TestActions(t *testing.T) {
	for _, kind := range []string{"statefulsets", "deployments", "daemonsets"} {
		if want := "(" + strings.Join(policy.Actions, "|") + ")$"; !strings.Contains(readVariables(t)["hold-"+kind]["retryAction"], want) {
			t.Errorf("retryAction of hold-%s.yaml does not match %s", kind, want)
		}
	}
	validate, err := os.ReadFile("cluster/validate-annotations.yaml")
	if err != nil {
		t.Fatal(err)
	}
	list := `"` + strings.Join(policy.Actions, `", "`) + `"]`
	for _, want := range []string{`variables.action in ["", ` + list, `split(";")[1] in [` + list} {
		if !strings.Contains(string(validate), want) {
			t.Errorf("validate-annotations.yaml does not say %s", want)
		}
	}
}

// TestCommonVariables: what the policies that hold, those that guard, and those that look at the status have in common is written in the
// same words for each kind.
func TestCommonVariables(t *testing.T) {
	kinds := []string{"statefulsets", "deployments", "daemonsets"}
	variables := readVariables(t)
	for _, prefix := range []string{"hold", "guard", "pending"} {
		known := map[string]string{} // the first kind that has it
		for _, kind := range kinds {
			for name, expression := range variables[prefix+"-"+kind] {
				if slices.Contains(ownMeaning[prefix], name) || kind == "deployments" && slices.Contains(setsOnly, name) {
					continue
				}
				first, is := known[name]
				if !is {
					known[name] = kind
				} else if other := variables[prefix+"-"+first][name]; onUpdate(expression) != onUpdate(other) {
					t.Errorf("%s-%s.yaml and %s-%s.yaml differ in the variable %s:\n%s\nand\n%s", prefix, first, prefix, kind, name, other, expression)
				}
			}
		}
	}
	for _, name := range []string{"times", "until", "there"} {
		for _, policy := range []string{"notice-only", "pending-statefulsets"} {
			if is, want := variables[policy][name], variables["hold-statefulsets"][name]; is != want || is == "" {
				t.Errorf("%s and hold-statefulsets.yaml differ in the variable %s: %q", policy, name, is)
			}
		}
	}
	for _, kind := range kinds {
		hold, guard := variables["hold-"+kind], variables["guard-"+kind]
		for _, name := range []string{"all", "ours", "quantities"} {
			if is, has := guard[name]; has && is != hold[name] {
				t.Errorf("hold-%s.yaml and guard-%s.yaml differ in the variable %s", kind, kind, name)
			}
		}
		// Only updates are guarded.
		if want := strings.TrimPrefix(hold["empty"], "oldObject != null && "); guard["empty"] != want {
			t.Errorf("guard-%s.yaml takes %q for a workload without pods, want %q", kind, guard["empty"], want)
		}
	}
}

// TestGuardsKnowWhatIsHeld: each guard takes the heartbeat as hold-statefulsets.yaml does, in its words. A condition has no
// variables.
func TestGuardsKnowWhatIsHeld(t *testing.T) {
	hold := readVariables(t)["hold-statefulsets"]
	there := strings.NewReplacer("variables.until", "until", "variables.times", hold["times"]).Replace(hold["there"])
	there = strings.Join(strings.Fields("["+hold["until"]+"].exists(until, "+there+") ||"), " ")
	objects, err := Objects(Cluster, User)
	if err != nil {
		t.Fatal(err)
	}
	known, leftOut := map[string]string{}, map[string]string{} // by the guard
	for _, object := range objects {
		policy, is := object.(*admissionv1.ValidatingAdmissionPolicy)
		if !is || !strings.HasPrefix(policy.Name, "inplace-rollout-guard-") {
			continue
		}
		for _, c := range policy.Spec.MatchConditions {
			switch c.Name {
			case "is-to-be-held":
				known[policy.Name] = strings.Join(strings.Fields(c.Expression), " ")
			case "not-left-out":
				leftOut[policy.Name] = strings.TrimSpace(c.Expression)
			}
		}
	}
	if len(known) != 3 {
		t.Errorf("%d guards ask what is to be held, want 3", len(known))
	}
	wantLeftOut := "!(" + readVariables(t)["notice-only"]["leftOut"] + ")"
	if !strings.Contains(wantLeftOut, api.LeftOutAnnotation) {
		t.Errorf("warn.yaml knows by %s which namespaces are left out", wantLeftOut)
	}
	for name, is := range known {
		if leftOut[name] != wantLeftOut {
			t.Errorf("%s and warn.yaml differ in which namespaces are left out: %q, want %q", name, leftOut[name], wantLeftOut)
		}
		if !strings.HasPrefix(is, there) {
			t.Errorf("%s asks for another heartbeat than hold-statefulsets.yaml:\n%s\nand\n%s", name, is, there)
		}
		if want := known["inplace-rollout-guard-statefulsets"]; is != want {
			t.Errorf("%s differs from guard-statefulsets.yaml in what is to be held:\n%s\nand\n%s", name, is, want)
		}
	}
}

// onUpdate is an expression for a write of an object that there was before.
func onUpdate(expression string) string {
	return strings.TrimPrefix(expression, "oldObject != null && ")
}

// readVariables returns the expressions of the variables of the policies, by the name
// of the file and of the variable.
func readVariables(t *testing.T) map[string]map[string]string {
	t.Helper()
	objects, err := Objects(Cluster, User)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]string{}
	for _, object := range objects {
		var name string
		var variables []admissionv1.Variable
		switch policy := object.(type) {
		case *admissionv1.MutatingAdmissionPolicy:
			name, variables = policy.Name, policy.Spec.Variables
		case *admissionv1.ValidatingAdmissionPolicy:
			name, variables = policy.Name, policy.Spec.Variables
		}
		file := strings.TrimPrefix(name, "inplace-rollout-")
		if name == "" || all[file] != nil {
			continue
		}
		all[file] = map[string]string{}
		for _, v := range variables {
			all[file][v.Name] = strings.TrimSpace(v.Expression)
		}
	}
	return all
}
