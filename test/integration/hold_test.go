//go:build integration

package integration

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
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
	names := build.Each(d.replicaSets(), func(rs appsv1.ReplicaSet) string { return rs.Name })
	slices.Sort(names)
	return fmt.Sprint(names, d.uids())
}

// partitionOf is the partition, or nothing.
func partitionOf(set *appsv1.StatefulSet) string {
	if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil {
		return strconv.Itoa(int(*r.Partition))
	}
	return ""
}

// holdStep is a write and what comes of it: the hold, the field that holds, and who owns that.
type holdStep struct {
	write              string
	do                 func()
	hold, field, owner string
}

// holds are writes of users and of the controller, with no controller running: what comes of each is the policy's doing. What
// becomes of other writes is in TestHold of pkg/webhook; these are those that API servers, kubectl and server-side apply have a
// hand in. Nothing rolls unless the workload is let go.
type holds[W metav1.Object] struct {
	*sandbox[W]
	options
	name    string         // of the field that holds
	field   func(W) string // its value
	rolls   func(W) bool
	settled func() // waits until what rolls has rolled
	running func() string
}

func (s holds[W]) run(steps []holdStep) {
	s.t.Helper()
	for _, step := range steps {
		before := s.running()
		step.do()
		got := s.get()
		if holdOf(got) != step.hold || s.field(got) != step.field {
			s.t.Errorf("%s: hold %s and %s %v, want %s and %v", step.write, holdOf(got), s.name, s.field(got), step.hold, step.field)
		}
		must.Equal(s.t, ownersOf(got, s.name), step.owner, "%s: owners of %s", step.write, s.name)
		if s.rolls(got) {
			s.settled()
			continue
		}
		s.waitFor("the built-in controller to observe the newest generation", observed[W])
		must.Equal(s.t, s.running(), before, "%s: held", step.write)
	}
}

// does are ways to write: kubectl, as a user and as the controller, a patch, and an apply of the manifest with more of its spec.
func (s holds[W]) kubectls(args ...string) func() { return func() { s.kubectl(args...) } }
func (s holds[W]) asController(args ...string) func() {
	return s.kubectls(append(slices.Clone(as), args...)...)
}
func (s holds[W]) patches(patch string) func() { return func() { s.patch(patch) } }
func (s holds[W]) image(image string) func() {
	return s.kubectls("set", "image", s.ref, "app="+image)
}
func (s holds[W]) applies(spec string, args ...string) func() {
	o := s.options
	o.Spec = spec
	return s.kubectls(append([]string{"apply", "-f", writeFile(s.t, manifest(s.t, s.namespace, o))}, args...)...)
}

// refused has kubectl, or the API server, refuse a write with these words.
func (s holds[W]) refused(words string, args ...string) func() {
	return func() {
		must.Fails(s.t, fmt.Sprintf("kubectl %v", args), s.try(s.t, args...), words)
	}
}

const (
	kubectlPatch, kubectlApply, gitops = "kubectl-patch", "kubectl-client-side-apply", "gitops"

	removesAnnotations = `--patch=[{"op":"remove","path":"/metadata/annotations"}]`
)

var serverSide, forced = []string{"--server-side", "--field-manager=gitops"}, []string{"--server-side", "--field-manager=gitops", "--force-conflicts"}

// TestHoldPolicy is that of StatefulSets.
func TestHoldPolicy(t *testing.T) {
	o := options{Kind: "StatefulSet", Replicas: 1}
	w := newWorkload(t, o)
	s := holds[*appsv1.StatefulSet]{
		sandbox: w.sandbox, options: o, name: "partition", field: partitionOf, rolls: func(*appsv1.StatefulSet) bool { return false }, running: func() string { return fmt.Sprint(w.uids()) },
	}
	web, hold, everything := w.ref, api.HoldAnnotation, strconv.Itoa(all)
	strategy := func(partition string) string {
		return "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: " + partition + "}}"
	}
	partition := func(n string) string {
		return `{"spec":{"updateStrategy":{"rollingUpdate":{"partition":` + n + `}}}}`
	}
	negative := s.refused("spec.updateStrategy.rollingUpdate.partition: Invalid value: -1", "patch", web, "--patch", partition("-1"))
	const onDelete, toOnDelete = "OnDelete", `{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`
	s.run([]holdStep{
		{"changing the template", s.image("app:2"), "0", everything, ""},
		{"a negative partition is refused while it is held", negative, "0", everything, ""},
		{"wishing another partition", s.patches(partition("2")), "2", everything, kubectlPatch},
		{"replacing all annotations", s.kubectls("patch", web, "--type=json", removesAnnotations), "2", everything, kubectlPatch},
		{"applying on the client side", s.applies(""), "2", everything, kubectlPatch},
		{"applying the partition on the server side", s.applies(strategy("1"), forced...), "1", everything, gitops},
		{"and again", s.applies(strategy("1"), serverSide...), "1", everything, gitops},
		{"the controller lets go", s.asController("annotate", web, hold+"-"), unheld, "1", gitops},
		{"switched to OnDelete", s.patches(toOnDelete), unheld, "", ""},
		{"an edit is marked", s.image("app:3"), onDelete, "", ""},
		{"people let go of it", s.kubectls("annotate", web, hold+"-", "--field-manager="+api.ReleaseManager), unheld, "", ""},
		{"switching back alone", s.patches(`{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}`), "0", everything, ""},
	})
}

// TestRestoredFromABackup creates a set as it was saved in the middle of a hold.
func TestRestoredFromABackup(t *testing.T) {
	parallel(t)
	w := createWorkload(t, options{
		Meta: `annotations: {inplace-rollout.io/hold: "1"}`,
		Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: " + strconv.Itoa(all) + "}}",
	})
	w.waitFor("the hold to be let go", func(set *appsv1.StatefulSet) bool {
		return !held(set) && partitionOf(set) == "1" && set.Status.AvailableReplicas == 3
	})
	w.waitComplete()
}

func TestHoldPolicyForDeployments(t *testing.T) {
	o := options{Kind: "Deployment", Replicas: 1}
	d := newDeployment(t, o)
	s := holds[*appsv1.Deployment]{
		sandbox: d.sandbox, options: o, name: "paused", field: func(d *appsv1.Deployment) string { return fmt.Sprint(d.Spec.Paused) },
		rolls: func(d *appsv1.Deployment) bool { return !d.Spec.Paused }, settled: d.waitRolledOut, running: d.running,
	}
	const no, yes = "false", "true"
	web, letGo := d.ref, s.asController("annotate", d.ref, api.HoldAnnotation+"-")
	s.run([]holdStep{
		{"setting the image", s.image("app:2"), no, yes, ""},
		{"the controller lets go of that", letGo, unheld, no, ""},
		{"setting the image again", s.image("app:3"), no, yes, ""},
		{"pausing is refused by kubectl, as done", s.refused("paused", "rollout", "pause", web), no, yes, ""},
		{"undo is refused by kubectl", s.refused("paused", "rollout", "undo", web), no, yes, ""},
		{"restart is refused by kubectl", s.refused("paused", "rollout", "restart", web), no, yes, ""},
		{"applying on the server side that it is paused is a wish", s.applies("paused: true", forced...), yes, yes, gitops},
		{"and no more, by whoever owned it", s.applies("", forced...), no, yes, ""},
		{"replacing all annotations", s.kubectls("patch", web, "--type=json", removesAnnotations), no, yes, ""},
		{"applying on the client side", s.applies(""), no, yes, ""},
		{"applying on the client side that it is not paused", s.applies("paused: false"), no, yes, ""},
		{"applying on the server side that it is not paused", s.applies("paused: false", forced...), no, yes, gitops},
		{"and again", s.applies("paused: false", serverSide...), no, yes, gitops},
		{"and no more", s.applies("", serverSide...), no, yes, ""},
		{"the controller lets go", letGo, unheld, no, ""},
		{"undo is held", s.kubectls("rollout", "undo", web), no, yes, ""},
	})
}

func TestHoldPolicyForDaemonSets(t *testing.T) {
	o := options{Kind: "DaemonSet", Replicas: 1}
	d := newDaemonSet(t, o)
	s := holds[*appsv1.DaemonSet]{
		sandbox: d.sandbox, options: o, name: "type", field: strategyOf, settled: d.waitRolledOut, running: func() string { return fmt.Sprint(d.uids()) },
		rolls: func(d *appsv1.DaemonSet) bool {
			return d.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType
		},
	}
	strategy := func(strategy string) func() { return s.patches(`{"spec":{"updateStrategy":` + strategy + `}}`) }
	refused := func(limits string) func() {
		return s.refused("one of maxUnavailable (", "patch", d.ref, "--patch", `{"spec":{"updateStrategy":{"rollingUpdate":`+limits+`}}}`)
	}
	const wish, holding, own, rolling = "RollingUpdate", "OnDelete 1/0", "OnDelete", "updateStrategy: {type: RollingUpdate}"
	web := d.ref
	s.run([]holdStep{
		{"setting the image", s.image("app:2"), wish, holding, ""},
		{"undo", s.kubectls("rollout", "undo", web), wish, holding, ""},
		{"restart", s.kubectls("rollout", "restart", web), wish, holding, ""},
		{"replacing all annotations", s.kubectls("patch", web, "--type=json", removesAnnotations), wish, holding, ""},
		{"a surge is kept", strategy(`{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"0%","maxSurge":"100%"}}`), wish, "OnDelete 0%/100%", kubectlPatch},
		{"Kubernetes would refuse both", refused(`{"maxUnavailable":1}`), wish, "OnDelete 0%/100%", kubectlPatch},
		{"and too many", refused(`{"maxSurge":"101%"}`), wish, "OnDelete 0%/100%", kubectlPatch},
		{"and what is no percentage", refused(`{"maxSurge":"1"}`), wish, "OnDelete 0%/100%", kubectlPatch},
		{"the limits of before", strategy(`{"rollingUpdate":{"maxUnavailable":1,"maxSurge":0}}`), wish, holding, kubectlPatch},
		{"applying on the client side", s.applies(""), wish, holding, kubectlPatch},
		{"applying the strategy on the client side", s.applies("updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}"), wish, holding, kubectlApply},
		{"applying OnDelete takes the limits away, and is a wish", s.applies("updateStrategy: {type: OnDelete}"), unheld, own, kubectlApply},
		{"applying the strategy on the server side", s.applies(rolling, forced...), wish, holding, gitops},
		{"and again", s.applies(rolling, serverSide...), wish, holding, gitops},
		{"applying no strategy any more", s.applies("", forced...), wish, holding, ""},
	})
}
