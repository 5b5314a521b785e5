//go:build integration

package integration

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// TestHoldPolicy makes writes as users and as the controller would, one after the
// other, with no controller running: what comes of each is the policy's doing.
func TestHoldPolicy(t *testing.T) {
	w := newWorkload(t, options{Replicas: 1})
	before := w.uids()
	asUser := func(args ...string) func() { return func() { w.kubectl(args...) } }
	patch := func(patch string) func() { return func() { w.patch(patch) } }
	partition := func(n string) func() {
		return patch(`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":` + n + `}}}}`)
	}
	asUserNamed := func(name string, args ...string) func() {
		return asUser(append([]string{"--as", name, "--as-group", "system:masters"}, args...)...)
	}
	asController := func(args ...string) func() { return asUserNamed(controller.User, args...) }
	asControllerOf := func(namespace string, args ...string) func() {
		return asUserNamed("system:serviceaccount:"+namespace+":"+controller.ServiceAccount, args...)
	}
	image := func(image string) func() { return asUser("set", "image", "statefulset/web", "app="+image) }
	negative := func() {
		err := w.try(t, "patch", w.ref, "--patch", `{"spec":{"updateStrategy":{"rollingUpdate":{"partition":-1}}}}`)
		if !strings.Contains(said(err), "spec.updateStrategy.rollingUpdate.partition: Invalid value: -1: must be greater than or equal to 0") {
			t.Errorf("a negative partition: %v", err)
		}
	}
	saved := func(hold string, partition int) func() {
		return patch(fmt.Sprintf(`{"metadata":{"annotations":{"%s":"%s"}},"spec":{"updateStrategy":{"rollingUpdate":{"partition":%d}}}}`, api.HoldAnnotation, hold, partition))
	}
	const hold, instruction = api.HoldAnnotation, api.PartitionAnnotation
	const onDelete, toOnDelete = "OnDelete", `{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`

	for _, step := range []struct {
		write     string
		do        func()
		hold      string
		partition int32
	}{
		{"a write that changes no template", asUser("annotate", "statefulset/web", "a=b"), unheld, 0},
		{"forging a hold that is none, because its partition would not be lower", asUser("annotate", "statefulset/web", hold+"=7"), unheld, 0},
		{"forging an instruction", asUser("annotate", "statefulset/web", instruction+"=7"), unheld, 0},
		{"a negative partition is refused by Kubernetes", negative, unheld, 0},
		{"raising the partition sets nothing going", partition("3"), unheld, 3},
		{"a negative partition is refused then, too", negative, unheld, 3},
		{"lowering the partition is held where it was", partition("1"), "1", 3},
		{"a negative partition is refused while it is held", negative, "1", 3},
		{"the value that holds wishes nothing", partition("3"), "1", 3},
		{"but in the annotation it does", asUser("annotate", "--overwrite", "statefulset/web", hold+"=3"), "3", 3},
		{"and so does another value", partition("2"), "2", 3},
		{"a value above it is in force at once", partition("5"), "5", 5},
		{"and lowered again it stays there", partition("1"), "1", 5},
		{"the controller lets go", asController("annotate", "statefulset/web", hold+"-"), unheld, 1},
		{"applying what was saved during a hold changes nothing", saved("1", all), unheld, 1},
		{"nor does what was saved while the partition was lowered step by step", saved("1", 2), unheld, 1},
		{"nor does what was saved and cannot be read", saved("nonsense", all), unheld, 1},
		{"what was saved with another wish is that wish", saved("0", all), "0", 1},
		{"the controller lets go of that", asController("annotate", "statefulset/web", hold+"-"), unheld, 0},
		{"the maximum without a hold is the user's own", partition("2147483647"), unheld, all},
		{"and lowered it is held there", partition("1"), "1", all},
		{"the controller lets go of that, too", asController("annotate", "statefulset/web", hold+"-"), unheld, 1},
		{"changing the template", image("app:2"), "1", all},
		{"changing it again", image("app:3"), "1", all},
		{"applying the user's partition again", partition("1"), "1", all},
		{"wishing another partition", partition("0"), "0", all},
		{"repeating the held value wishes nothing", partition("2147483647"), "0", all},
		{"removing the hold", asUser("annotate", "statefulset/web", hold+"-"), "0", all},
		{"what the hold says is wished", asUser("annotate", "--overwrite", "statefulset/web", hold+"=5"), "5", all},
		{"applying what was saved during another hold", saved("0", all), "0", all},
		{"nonsense wishes nothing", asUser("annotate", "--overwrite", "statefulset/web", hold+"=nonsense"), "0", all},
		{"replacing all annotations", asUser("patch", "statefulset/web", "--type=json", "--patch", `[{"op":"remove","path":"/metadata/annotations"}]`), "0", all},
		{"scaling", asUser("scale", "statefulset/web", "--replicas=1"), "0", all},
		{"a ServiceAccount of that name in another namespace is nobody", asControllerOf("default", "annotate", "statefulset/web", instruction+"=0"), "0", all},
		{"nor can it let go", asControllerOf("default", "annotate", "statefulset/web", hold+"-"), "0", all},
		{"nor can one in this namespace", asControllerOf(w.namespace, "annotate", "statefulset/web", hold+"-"), "0", all},
		{"the controller lets ordinal 2 go", asController("annotate", "statefulset/web", instruction+"=2"), "0", 2},
		{"the controller lets ordinal 1 go", asController("annotate", "statefulset/web", instruction+"=1"), "0", 1},
		{"another write leaves it there", asUser("annotate", "statefulset/web", "c=d"), "0", 1},
		{"a lower wish leaves it there", partition("0"), "0", 1},
		{"a higher wish is kept at once", partition("4"), "4", 4},
		{"a new template holds everything again", image("app:4"), "4", all},
		{"opting out lets go", asUser("label", "statefulset/web", enabled+"-"), unheld, 4},
		{"opted out, a change of the template is nobody's business", image("app:5"), unheld, 4},
		{"opting in with pods that lag behind", asUser("label", "statefulset/web", enabled+"=true"), "4", all},
		{"switched to OnDelete, it is marked", patch(toOnDelete), onDelete, 0},
		{"the mark is nobody's to remove", asUser("annotate", "statefulset/web", hold+"-"), onDelete, 0},
		{"nor to change", asUser("annotate", "--overwrite", "statefulset/web", hold+"=5"), onDelete, 0},
		{"a write that changes no template leaves it", asUser("annotate", "statefulset/web", "e=f"), onDelete, 0},
		{"the controller takes it away", asController("annotate", "statefulset/web", hold+"-"), unheld, 0},
		{"a write that changes no template needs none", asUser("annotate", "statefulset/web", "g=h"), unheld, 0},
		{"nor may anybody set one", asUser("annotate", "statefulset/web", hold+"=OnDelete"), unheld, 0},
		{"an edit does", image("app:6"), onDelete, 0},
		{"opting out takes it away", asUser("label", "statefulset/web", enabled+"-"), unheld, 0},
		{"opting in with pods that lag behind", asUser("label", "statefulset/web", enabled+"=true"), onDelete, 0},
		{"people let go of it", asUser("annotate", "statefulset/web", hold+"-", "--field-manager="+api.ReleaseManager), unheld, 0},
		{"an edit marks it again", image("app:6.1"), onDelete, 0},
		{"switched back, it is held with the user's own maximum", patch(`{"spec":{"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":2147483647}}}}`), strconv.Itoa(all), all},
		{"and again with the mark", patch(toOnDelete), onDelete, 0},
		{"switching back with a template change and a partition", patch(`{"spec":{"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":2}},"template":{"spec":{"containers":[{"name":"app","image":"app:7"}]}}}}`), "2", all},
		{"switching to OnDelete once more", patch(toOnDelete), onDelete, 0},
		{"switching back alone", patch(`{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}`), "0", all},
	} {
		step.do()
		set := w.get()
		gotHold, isHeld := set.Annotations[hold]
		if !isHeld {
			gotHold = unheld
		}
		got := int32(0)
		if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil {
			got = *r.Partition
		}
		if gotHold != step.hold || got != step.partition {
			t.Errorf("%s: hold %s and partition %d, want %s and %d", step.write, gotHold, got, step.hold, step.partition)
		}
		if value, kept := set.Annotations[instruction]; kept {
			t.Errorf("%s: the instruction %s is stored", step.write, value)
		}
	}
	w.assertReplaced(before)
	for _, entry := range w.get().ManagedFields {
		if entry.Manager == api.FieldManager && strings.Contains(entry.FieldsV1.GetRawString(), "f:partition") {
			t.Errorf("the partition is owned by %s", entry.Manager)
		}
	}
}

// TestHoldPolicyCountsFromTheStart: a partition counts from the start of the ordinals, and
// a lower start sets pods free like a lower partition.
func TestHoldPolicyCountsFromTheStart(t *testing.T) {
	w := newWorkload(t, options{Replicas: 1, Spec: "{ordinals: {start: 5}, updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 1}}}"})
	for _, step := range []struct {
		write        string
		start, asked int
		hold         string
		partition    int32
	}{
		{write: "the start is lowered", start: 3, asked: 1, hold: "1", partition: 3},
		{write: "and lowered again", start: 2, asked: 3, hold: "1", partition: 4},
		{write: "and raised", start: 4, asked: 4, hold: "1", partition: 2},
		{write: "the partition is what holds it, and the start where it was", start: 5, asked: 2, hold: "1", partition: 1},
	} {
		w.patch(fmt.Sprintf(`{"spec":{"ordinals":{"start":%d},"updateStrategy":{"rollingUpdate":{"partition":%d}}}}`, step.start, step.asked))
		if set := w.get(); holdOf(set) != step.hold || *set.Spec.UpdateStrategy.RollingUpdate.Partition != step.partition {
			t.Errorf("%s: %s, want hold %s and partition %d", step.write, describe(set), step.hold, step.partition)
		}
	}
	w.letGo()
	w.patch(`{"spec":{"ordinals":{"start":6}}}`)
	if set := w.get(); held(set) || *set.Spec.UpdateStrategy.RollingUpdate.Partition != 1 {
		t.Errorf("raising the start sets nothing going: %s", describe(set))
	}
}

// TestRestoredFromABackup creates a set as it was saved in the middle of a hold.
func TestRestoredFromABackup(t *testing.T) {
	parallel(t)
	w := createWorkload(t, options{
		Meta: `annotations: {inplace-rollout.io/hold: "1"}`,
		Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: " + strconv.Itoa(all) + "}}",
	})
	w.waitFor("the hold to be let go", func(set *appsv1.StatefulSet) bool {
		return !held(set) && *set.Spec.UpdateStrategy.RollingUpdate.Partition == 1 && set.Status.AvailableReplicas == 3
	})
	w.waitComplete()
}

// TestConditionIsTakenBack: the condition must not say Complete of a revision, or
// a hold, that nobody has looked at; no controller runs.
func TestConditionIsTakenBack(t *testing.T) {
	w := newWorkload(t, options{Replicas: 1})
	claim := func() {
		w.kubectl("--as", controller.User, "--as-group", "system:masters", "patch", "statefulset/web", "--subresource=status", "--patch",
			`{"status":{"conditions":[{"type":"`+api.ConditionComplete+`","status":"True","reason":"Complete"}]}}`)
		if status, _, _ := complete(w.get()); status != corev1.ConditionTrue {
			t.Fatalf("the controller's own write came out as %s", status)
		}
	}
	for _, edit := range []struct{ patch, reason string }{
		{`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"app:2"}]}}}}`, "Pending"},
		{`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":1}}}}`, "Complete"}, // sets nothing going
		{`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`, "Pending"},  // held where it was
	} {
		w.kubectl("--as", controller.User, "--as-group", "system:masters", "annotate", "statefulset/web", api.HoldAnnotation+"-")
		w.waitAvailable() // as long as it has something to do, it writes the status with the conditions that it began with
		claim()
		w.patch(edit.patch)
		if err := w.try(t, "wait", "--for=condition="+api.ConditionComplete, w.ref, "--timeout=1s"); (err == nil) != (edit.reason == "Complete") {
			t.Errorf("after %s kubectl wait ended with %v", edit.patch, err)
		}
		w.waitFor("the StatefulSet controller to observe the edit", observed[*appsv1.StatefulSet])
		if status, reason, _ := complete(w.get()); reason != edit.reason || (status == corev1.ConditionTrue) != (reason == "Complete") {
			t.Errorf("after %s: %s with reason %s, want reason %s", edit.patch, status, reason, edit.reason)
		}
	}
}

// TestWithoutPoliciesNothingIsTouched takes away what holds, and leaves what guards that. While a controller counts as there, an
// edit that nobody holds is refused; then it is left to the built-in controller.
func TestWithoutPoliciesNothingIsTouched(t *testing.T) {
	needsPolicies(t)
	w := newWorkload(t, options{})
	w.letGo()
	letsGo(t)
	for _, name := range prerequisite.MutatingPolicies {
		if _, err := cp.Kubectl(t.Context(), "delete", "mutatingadmissionpolicybinding", name); err != nil {
			t.Fatal(err)
		}
	}
	install := reinstall(t)
	defer install()
	w.waitPolicies(false)
	beat(t, time.Minute)
	if err := w.try(t, "set", "resources", w.ref, "--requests=cpu=150m"); err == nil || !strings.Contains(err.Error(), "the pod template changes, and the annotation inplace-rollout.io/hold was removed") {
		t.Errorf("an edit that is not held while a controller is there ended with %v", err)
	}
	fall(t)
	process, err := launch(letGo)
	if err != nil {
		t.Fatal(err)
	}
	defer process.Stop()
	for _, name := range prerequisite.MutatingPolicies {
		want := "MutatingAdmissionPolicyBinding " + name + " is missing: install it with `kubectl apply -k deploy/`"
		eventually(t, "the controller to miss "+name, func() (bool, string) {
			err := process.Ready(t.Context())
			return err != nil && strings.Contains(err.Error(), want), fmt.Sprint(err)
		})
	}
	w.setResources("cpu=150m", "")
	w.kubectl("rollout", "status", "statefulset/web", "--timeout="+patience.String())
	if writes := w.writes(); len(writes) > 0 {
		t.Errorf("the controller wrote %v", writes)
	}

	install()
	w.waitPolicies(true)
	if err := process.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := w.uids()
	w.setResources("cpu=180m", "")
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(before)
}

// TestHoldPolicyOfALargeTemplate: what the policies compute stays within what the API
// server lets a policy cost, also of a template as large as one can be.
func TestHoldPolicyOfALargeTemplate(t *testing.T) {
	var sidecars strings.Builder
	for i := range 50 {
		fmt.Fprintf(&sidecars, "- {name: sidecar-%d, image: app:1, env: [", i)
		for j := range 100 {
			fmt.Fprintf(&sidecars, "{name: VARIABLE_%d, value: %s}, ", j, strings.Repeat("x", 50))
		}
		sidecars.WriteString("]}\n")
	}
	for kind, replicas := range map[string]string{"StatefulSet": "  replicas: 1\n", "Deployment": "  replicas: 1\n", "DaemonSet": ""} {
		namespace := newNamespace(t, nil)
		kubectl := func(args ...string) string {
			out, err := cp.Kubectl(t.Context(), append([]string{"-n", namespace}, args...)...)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		kubectl("create", "-f", writeFile(t, fmt.Sprintf(`
apiVersion: apps/v1
kind: %s
metadata: {name: web, labels: {inplace-rollout.io/enabled: "true"}}
spec:
%s  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {no-node: has-this}
      containers:
%s`, kind, replicas, strings.ReplaceAll("\n"+strings.TrimSpace(sidecars.String()), "\n", "\n      "))))
		if kind == "Deployment" { // one that its controller has not seen yet is not held: nothing is there to be rolled
			kubectl("wait", kind+"/web", "--for=jsonpath={.status.observedGeneration}", "--timeout=1m")
		}
		// What the edit itself returns: the controller may have let go before another look.
		if hold := kubectl("set", "resources", kind+"/web", "--requests=cpu=150m", "-o", `jsonpath={.metadata.annotations.inplace-rollout\.io/hold}`); hold == "" {
			t.Errorf("the %s is not held", kind)
		}
		kubectl("delete", "namespace", namespace, "--wait=false")
	}
}
