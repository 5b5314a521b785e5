//go:build integration

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// as is how kubectl writes as the controller; it may do everything then.
var as = []string{"--as", controller.User, "--as-group", "system:masters"}

// ownersOf are the managers that own the field.
func ownersOf(w metav1.Object, field string) string {
	var owners []string
	for _, entry := range w.GetManagedFields() {
		if strings.Contains(entry.FieldsV1.GetRawString(), `"f:`+field+`":`) {
			owners = append(owners, entry.Manager)
		}
	}
	return strings.Join(owners, ",")
}

// running names the ReplicaSets and the pods with their UIDs: what must not change
// while nothing rolls.
func (d *deployment) running() string {
	var names []string
	for _, rs := range d.replicaSets() {
		names = append(names, rs.Name)
	}
	slices.Sort(names)
	return fmt.Sprint(names, d.uids())
}

// holdStep is a write and what comes of it.
type holdStep[F comparable] struct {
	write string
	do    func()
	hold  string
	field F      // that holds
	owner string // of the field
}

// check checks what came of the write, where the field has this value and name.
func (step holdStep[F]) check(t *testing.T, got metav1.Object, field F, name string) {
	t.Helper()
	if holdOf(got) != step.hold || field != step.field {
		t.Errorf("%s: hold %s and %s %v, want %s and %v", step.write, holdOf(got), name, field, step.hold, step.field)
	}
	if owners := ownersOf(got, name); owners != step.owner {
		t.Errorf("%s: %s is owned by %q, want %q", step.write, name, owners, step.owner)
	}
}

// take makes the write, and checks what came of it; and that nothing rolls unless
// the Deployment is let go.
func (d *deployment) take(step holdStep[bool]) {
	d.t.Helper()
	before := d.running()
	step.do()
	got := d.get()
	step.check(d.t, got, got.Spec.Paused, "paused")
	if !got.Spec.Paused {
		d.waitRolledOut()
		return
	}
	d.waitObserved()
	if after := d.running(); after != before {
		d.t.Errorf("%s: paused, and yet\n%s became\n%s", step.write, before, after)
	}
}

// TestHoldPolicyForDeployments makes writes as users and as the controller would,
// one after the other, with no controller running: what comes of each is the
// policy's doing.
func TestHoldPolicyForDeployments(t *testing.T) {
	const web, hold = "deployment/web", api.HoldAnnotation
	o := options{Kind: "Deployment", Replicas: 1}
	d := newDeployment(t, o)
	user := func(args ...string) func() { return func() { d.kubectl(args...) } }
	patch := func(patch string) func() { return func() { d.patch(patch) } }
	asController := func(args ...string) func() { return user(append(slices.Clone(as), args...)...) }
	image := func(image string) func() { return user("set", "image", web, "app="+image) }
	refused := func(args ...string) func() {
		return func() {
			if err := d.try(t, args...); !strings.Contains(said(err), "paused") {
				t.Errorf("kubectl %v: %v, want a refusal because it is paused", args, err)
			}
		}
	}
	applied := func(spec string, args ...string) func() {
		o := o
		o.Spec = spec
		return user(append([]string{"apply", "-f", writeFile(t, manifest(t, d.namespace, o))}, args...)...)
	}
	const rollout, apply, gitops, patched = "kubectl-rollout", "kubectl-client-side-apply", "gitops", "kubectl-patch"
	saved := func(hold string) string {
		return fmt.Sprintf(`{"metadata":{"annotations":{"%s":"%s"}},"spec":{"paused":true}}`, api.HoldAnnotation, hold)
	}
	serverSide := []string{"--server-side", "--field-manager=gitops"}

	for _, step := range []holdStep[bool]{
		{"a write that changes no template", user("annotate", web, "a=b"), unheld, false, ""},
		{"forging a hold", user("annotate", web, hold+"=true"), unheld, false, ""},
		{"the user pauses", user("rollout", "pause", web), unheld, true, rollout},
		{"a Deployment that its user has paused may be edited", image("app:2"), unheld, true, rollout},
		{"and scaled to where it is", user("scale", web, "--replicas=1"), unheld, true, rollout},
		{"a hold of a paused one that cannot be read is no wish to pause", user("annotate", web, hold+"=nonsense"), "false", true, rollout},
		{"resuming it", user("rollout", "resume", web), "false", true, ""},
		{"the controller lets go", asController("annotate", web, hold+"-"), unheld, false, ""},
		{"applying what was saved during a hold changes nothing", patch(saved("false")), unheld, false, patched},
		{"nor does what was saved and cannot be read", patch(saved("nonsense")), unheld, false, patched},
		{"what was saved while the user had it paused pauses it", patch(saved("true")), unheld, true, patched},
		{"applying that again changes nothing", patch(saved("true")), unheld, true, patched},
		{"what was saved while it was not paused resumes it", patch(saved("false")), "false", true, patched},
		{"resuming it once more", user("rollout", "resume", web), "false", true, ""},
		{"the controller lets go once more", asController("annotate", web, hold+"-"), unheld, false, ""},

		{"setting the image", image("app:3"), "false", true, ""},
		{"setting resources", user("set", "resources", web, "--requests=cpu=150m"), "false", true, ""},
		{"setting the image back", image("app:2"), "false", true, ""},
		{"scaling", user("scale", web, "--replicas=1"), "false", true, ""},
		{"resuming is what is wished already", user("rollout", "resume", web), "false", true, ""},
		{"pausing is refused by kubectl, as done", refused("rollout", "pause", web), "false", true, ""},
		{"undo is refused by kubectl", refused("rollout", "undo", web), "false", true, ""},
		{"restart is refused by kubectl", refused("rollout", "restart", web), "false", true, ""},
		{"wishing a pause says nothing, because that is what is held", patch(`{"spec":{"paused":true}}`), "false", true, ""},
		{"Reloader notes that it pauses, which is a wish", patch(`{"metadata":{"annotations":{"deployment.reloader.stakater.com/paused-at":"2026-01-01T00:00:00Z"}},"spec":{"paused":true}}`), "true", true, ""},
		{"that note is no new one", user("annotate", web, "--overwrite", "a=c"), "true", true, ""},
		{"Reloader resumes it", patch(`{"metadata":{"annotations":{"deployment.reloader.stakater.com/paused-at":null}},"spec":{"paused":false}}`), "false", true, ""},
		{"applying on the server side that it is paused is a wish", applied("paused: true", "--server-side", "--force-conflicts", "--field-manager=release"), "true", true, "release"},
		{"and once more", applied("paused: true", "--server-side", "--force-conflicts", "--field-manager=release"), "true", true, "release"},
		{"and no more, by whoever owned it", applied("", "--server-side", "--force-conflicts", "--field-manager=release"), "false", true, ""},
		{"removing the hold", user("annotate", web, hold+"-"), "false", true, ""},
		{"what the hold says is wished", user("annotate", "--overwrite", web, hold+"=true"), "true", true, ""},
		{"nonsense wishes nothing", user("annotate", "--overwrite", web, hold+"=yes"), "true", true, ""},
		{"resuming it is a wish", user("rollout", "resume", web), "false", true, ""},
		{"replacing all annotations", user("patch", web, "--type=json", "--patch", `[{"op":"remove","path":"/metadata/annotations"}]`), "false", true, ""},
		{"another write of the controller", asController("annotate", web, api.PartitionAnnotation+"=1"), "false", true, ""},

		{"applying on the client side", applied(""), "false", true, ""},
		{"applying on the client side that it is not paused", applied("paused: false"), "false", true, ""},
		{"and again", applied("paused: false"), "false", true, ""},
		{"applying on the server side", applied("", append(serverSide, "--force-conflicts")...), "false", true, ""},
		{"applying on the server side that it is not paused", applied("paused: false", serverSide...), "false", true, gitops},
		{"and again", applied("paused: false", serverSide...), "false", true, gitops},
		{"and no more", applied("", serverSide...), "false", true, ""},
		{"the controller lets go again", asController("annotate", web, hold+"-"), unheld, false, ""},

		{"an edit that pauses, too, is the user's", patch(`{"spec":{"paused":true,"template":{"spec":{"containers":[{"name":"app","image":"app:4"}]}}}}`), unheld, true, "kubectl-patch"},
		{"an edit that resumes, too, is held", patch(`{"spec":{"paused":false,"template":{"spec":{"containers":[{"name":"app","image":"app:5"}]}}}}`), "false", true, ""},
		{"opting out lets go", user("label", web, enabled+"-"), unheld, false, ""},
		{"opted out, a change of the template is nobody's business", image("app:6"), unheld, false, ""},
		{"opted out, so is a hold that came from a ReplicaSet", user("annotate", web, hold+"=true"), "true", false, ""},
		{"and a change of the template then", image("app:7"), "true", false, ""},
		{"opting in does not believe it", user("label", web, enabled+"=true"), "false", true, ""},
		{"opting out by another value", user("label", "--overwrite", web, enabled+"=false"), unheld, false, ""},
		{"a hold that came from a ReplicaSet, once more", user("annotate", web, hold+"=false"), "false", false, ""},
		{"pausing while opted out", user("rollout", "pause", web), "false", true, rollout},
		{"opting in while paused", user("label", "--overwrite", web, enabled+"=true"), unheld, true, rollout},
		{"opting out while paused", user("label", web, enabled+"-"), unheld, true, rollout},
		{"opting in and resuming at once", patch(`{"metadata":{"labels":{"` + enabled + `":"true"}},"spec":{"paused":null}}`), "false", true, ""},
		{"the controller lets go at last", asController("annotate", web, hold+"-"), unheld, false, ""},
		{"undo is held", user("rollout", "undo", web), "false", true, ""},
	} {
		d.take(step)
	}
}

// TestInForce: action and policy apply from the next edit. Where they have not changed since the last one, nothing is added.
func TestInForce(t *testing.T) {
	t.Run("StatefulSet", func(t *testing.T) { newWorkload(t, options{Replicas: 1}).testInForce() })
	t.Run("Deployment", func(t *testing.T) { newDeployment(t, options{Replicas: 1}).testInForce() })
	t.Run("DaemonSet", func(t *testing.T) { newDaemonSet(t, options{Replicas: 1}).testInForce() })
}

func (s *sandbox[W]) testInForce() {
	s.t.Helper()
	web, inForce := s.ref, api.InForceAnnotation
	for _, step := range []struct {
		args []string
		want string
	}{
		{[]string{"annotate", web, setAction + "=Restart"}, ";"},
		{[]string{"annotate", "--overwrite", web, inForce + "=LiveResize;"}, ";"},
		{[]string{"set", "image", web, "app=app:2"}, ""},
		{[]string{"annotate", "--overwrite", web, setAction + "=LiveResize", setPolicy + "=cpu=RestartOnly"}, "Restart;"},
		{[]string{"annotate", "--overwrite", web, inForce + "=LiveResize;"}, "Restart;"},
		{[]string{"annotate", web, inForce + "-"}, "Restart;"},
		{[]string{"annotate", "--overwrite", web, setAction + "=Restart", setPolicy + "-"}, ""},
		{[]string{"annotate", "--overwrite", web, setAction + "=LiveResize", setPolicy + "=cpu=RestartOnly"}, "Restart;"},
		{[]string{"set", "image", web, "app=app:3"}, ""},
		{[]string{"annotate", web, setAction + "-", setPolicy + "-"}, "LiveResize;cpu=RestartOnly"},
		{[]string{"annotate", web, api.RetryAnnotation + "=now;Restart"}, "Restart;cpu=RestartOnly"},
		{[]string{"label", web, enabled + "-"}, ""},
		{[]string{"annotate", web, setAction + "=Restart"}, ""},
		{[]string{"label", web, enabled + "=true"}, ""},
		{[]string{"annotate", web, setAction + "-"}, "Restart;"},
		{[]string{"set", "image", web, "app=app:4"}, ""},
	} {
		s.kubectl(step.args...)
		if got := s.get().GetAnnotations()[inForce]; got != step.want {
			s.t.Errorf("%v: %q is in force, want %q", step.args, got, step.want)
		}
	}
}

// TestDeploymentsRestoredFromABackup creates Deployments as they were saved in the
// middle of a hold, and others with a hold that means nothing. No controller runs: a
// new Deployment is never held, because it would make no pods.
func TestDeploymentsRestoredFromABackup(t *testing.T) {
	for _, backup := range []struct {
		name, hold string
		paused     bool
		want       bool
	}{
		{"held", "false", true, false},
		{"held for a user who paused", "true", true, true},
		{"hold without the pause", "false", false, false},
		{"another wish after the save", "true", false, false},
		{"nonsense is no wish to pause", "yes", false, false},
		{"nonsense and paused", "yes", true, false},
	} {
		t.Run(backup.name, func(t *testing.T) {
			d := createDeployment(t, options{
				Replicas: 1,
				Meta:     fmt.Sprintf("annotations: {%s: %q}", api.HoldAnnotation, backup.hold),
				Spec:     fmt.Sprintf("paused: %t", backup.paused),
			})
			if got := d.get(); holdOf(got) != unheld || got.Spec.Paused != backup.want {
				t.Errorf("hold %s and paused %t, want none and %t", holdOf(got), got.Spec.Paused, backup.want)
			}
			if !backup.want {
				d.waitRolledOut()
			}
		})
	}
}

// TestConditionOfDeploymentsIsTakenBack: the condition must not say Complete of a
// template that nobody has looked at; no controller runs.
func TestConditionOfDeploymentsIsTakenBack(t *testing.T) {
	d := newDeployment(t, options{Replicas: 1})
	user := func(args ...string) func() { return func() { d.kubectl(args...) } }
	release := func() {
		d.kubectl(append(slices.Clone(as), "annotate", "deployment/web", api.HoldAnnotation+"-")...)
		d.waitRolledOut()
	}
	for _, edit := range []struct {
		what   string
		before func()
		do     func()
		want   string
	}{
		{"an edit", func() {}, user("set", "image", "deployment/web", "app=app:2"), "Pending"},
		{"scaling", release, user("scale", "deployment/web", "--replicas=2"), "Complete"},
		{"pausing", func() {}, user("rollout", "pause", "deployment/web"), "Pending"},
		{"an edit while the user has paused", func() {}, user("set", "image", "deployment/web", "app=app:3"), "Pending"},
		{"a pod that is lost while the user has paused", func() {}, func() {
			d.kubectl("delete", "pod", "--all")
			d.waitFor("the new pods", func(o *appsv1.Deployment) bool { return o.Status.AvailableReplicas == 2 })
		}, "Complete"},
		{"resuming", func() {}, user("rollout", "resume", "deployment/web"), "Pending"},
	} {
		edit.before()
		d.kubectl(append(slices.Clone(as), "patch", "deployment/web", "--subresource=status", "--patch",
			`{"status":{"conditions":[{"type":"`+api.ConditionComplete+`","status":"True","reason":"Complete"}]}}`)...)
		if status, _, _ := complete(d.get()); status != corev1.ConditionTrue {
			t.Fatalf("the controller's own write came out as %s", status)
		}
		edit.do()
		d.waitObserved()
		if status, reason, _ := complete(d.get()); reason != edit.want || (status == corev1.ConditionTrue) != (reason == "Complete") {
			t.Errorf("after %s: %s with reason %s, want reason %s", edit.what, status, reason, edit.want)
		}
	}
}
