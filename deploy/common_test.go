package deploy

import (
	"os"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// ownMeaning are the variables that mean something else in each policy. All others mean the same wherever they have the same name.
var ownMeaning = []string{"hold", "held", "annotations", "record", "onDelete", "paused"}

// TestActions: the policies take the actions that Go knows, and no other.
func TestActions(t *testing.T) {
	if want := "(" + strings.Join(policy.Actions, "|") + ")$"; !strings.Contains(readVariables(t)["hold"]["retryAction"], want) {
		t.Errorf("retryAction of hold.yaml does not match %s", want)
	}
	validate := must.Get(os.ReadFile("cluster/validate-annotations.yaml"))(t)
	form := strings.Join(policy.Actions, "|")
	for _, want := range []string{`"resource-resize-action", "` + form + `"`, `"retry", "[^;]*(;(` + form + `))?"`} {
		if !strings.Contains(string(validate), want) {
			t.Errorf("validate-annotations.yaml does not say %s", want)
		}
	}
}

// TestCommonVariables: what the policies about a workload have in common is written in the same words.
func TestCommonVariables(t *testing.T) {
	variables, common := readVariables(t), 0
	for _, file := range []string{"guard", "status", "warning"} {
		for name, is := range variables[file] {
			if want, has := variables["hold"][name]; has && !slices.Contains(ownMeaning, name) {
				common++
				// Of a new workload, the guard knows that nothing starts a rollout.
				if onUpdate(is) != onUpdate(want) {
					t.Errorf("%s.yaml and hold.yaml differ in the variable %s:\n%s\nand\n%s", file, name, is, want)
				}
			}
		}
	}
	if common < 12 {
		t.Errorf("the policies have only %d variables in common with hold.yaml", common)
	}
}

// onUpdate is an expression for a write of an object that there was before.
func onUpdate(expression string) string {
	return strings.ReplaceAll(expression, "oldObject != null && ", "")
}

// TestGuardKnowsWhatIsHeld: the guard takes the heartbeat and a record as hold.yaml does, and the namespaces that are left out as
// warn.yaml does, in their words. A condition has no variables.
func TestGuardKnowsWhatIsHeld(t *testing.T) {
	variables := readVariables(t)
	hold := variables["hold"]
	there := strings.NewReplacer("variables.until", "until", "variables.times", hold["times"]).Replace(hold["there"])
	objects := must.Get(Objects(Cluster, User))(t)
	want := map[string]string{
		"is-to-be-held": "[" + hold["until"] + "].exists(until, " + there + ") || (" + hold["holdsInAbsence"] + " ||",
		"not-left-out":  "!(" + variables["warning"]["leftOut"] + ")",
	}
	oneLine := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	ends := map[string]string{"is-to-be-held": "exists(record, " + strings.ReplaceAll(hold["unproved"], "variables.record", "record") + ")) && (oldObject == null || object.metadata.?annotations[?\"" + api.NotHeldAnnotation + "\"].orValue(\"\") != string(oldObject.metadata.?generation.orValue(0) + 1))"}
	if !strings.Contains(want["not-left-out"], api.LeftOutAnnotation) {
		t.Errorf("warn.yaml knows by %s which namespaces are left out", want["not-left-out"])
	}
	for _, object := range objects {
		if policy, is := object.(*admissionv1.ValidatingAdmissionPolicy); is && policy.Name == "inplace-rollout-guard" {
			for _, c := range policy.Spec.MatchConditions {
				if asks, has := want[c.Name]; has && strings.HasPrefix(oneLine(c.Expression), oneLine(asks)) && strings.HasSuffix(oneLine(c.Expression), ends[c.Name]) {
					delete(want, c.Name)
				}
			}
		}
	}
	for name, asks := range want {
		t.Errorf("guard.yaml has no condition %s that asks %s", name, asks)
	}
}

// readPolicies returns the variables of the policies, by the name of the file.
func readPolicies(t *testing.T) map[string][]admissionv1.Variable {
	t.Helper()
	all := map[string][]admissionv1.Variable{}
	for _, object := range must.Get(Objects(Cluster, User))(t) {
		switch policy := object.(type) {
		case *admissionv1.MutatingAdmissionPolicy:
			all[strings.TrimPrefix(policy.Name, "inplace-rollout-")] = policy.Spec.Variables
		case *admissionv1.ValidatingAdmissionPolicy:
			all[strings.TrimPrefix(policy.Name, "inplace-rollout-")] = policy.Spec.Variables
		}
	}
	return all
}

// readVariables returns the expressions of the variables of the policies, by the name
// of the file and of the variable.
func readVariables(t *testing.T) map[string]map[string]string {
	t.Helper()
	all := map[string]map[string]string{}
	for file, variables := range readPolicies(t) {
		all[file] = map[string]string{}
		for _, v := range variables {
			all[file][v.Name] = strings.TrimSpace(v.Expression)
		}
	}
	return all
}
