//go:build integration

package integration

import (
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// user makes a ServiceAccount in the sandbox that has a ClusterRole there; none if that is empty. It returns its kubeconfig.
func (s *sandbox[W]) user(name, role string) string {
	s.t.Helper()
	s.kubectl("create", "serviceaccount", name)
	if role != "" {
		s.kubectl("create", "rolebinding", name, "--clusterrole="+role, "--serviceaccount="+s.namespace+":"+name)
		s.waitAllowed("system:serviceaccount:"+s.namespace+":"+name, "list", "pods")
	}
	return must.Get(cp.ServiceAccountKubeconfig(s.t.Context(), s.namespace, name, ""))(s.t)
}

// answers is what check says: how it ends, how its output begins, and what else is in it.
type answers struct {
	code  int
	begin string
	says  []string
	lines int // how many; any number if 0
}

const (
	checkYes     = "Yes: edits in namespace "
	checkNo      = "No: edits in namespace "
	checkUnknown = "Unknown: it is unknown whether edits in namespace "
)

func (s *sandbox[W]) assertCheck(who, kubeconfig string, want answers, args ...string) {
	s.t.Helper()
	got := command(s.t, kubeconfig, s.namespace, "", append([]string{"check"}, args...)...)
	if got.code != want.code || got.stderr != "" || !strings.HasPrefix(got.stdout, want.begin) {
		s.t.Errorf("%s: check %v ended with %d, want %d, %q: %s%s", who, args, got.code, want.code, want.begin, got.stdout, got.stderr)
	}
	for _, text := range want.says {
		must.Contain(s.t, got.stdout, text, "%s", who)
	}
	if n := strings.Count(got.stdout, "\n"); want.lines != 0 && n != want.lines {
		s.t.Errorf("%s: it says %d lines, want %d:\n%s", who, n, want.lines, got.stdout)
	}
}

// assertPlan asks what an edit of the cpu would do to web-0.
func (s *sandbox[W]) assertPlan(who, kubeconfig string, fate judge.Forecast, why string) {
	s.t.Helper()
	edit := s.kubectl("patch", s.ref, "--patch", cpuEdit, "--dry-run=client", "-o", "yaml")
	got := command(s.t, kubeconfig, s.namespace, edit, "plan", "-f", "-")
	if !regexp.MustCompile(`(?m)^web-0 .* `+string(fate)+` .*`+why).MatchString(got.stdout) || strings.Contains(got.stdout, "whether a controller is there") {
		s.t.Errorf("%s: want %s, %q of\n%s%s", who, fate, why, got.stdout, got.stderr)
	}
	must.Equal(s.t, regexp.MustCompile(`(?m)^[IWEF]\d{4} `).FindString(got.stderr), "", "%s: plan logs: %s", who, got.stderr)
}

// TestCheck: whoever may edit hears the truth by a dry run, and everybody else by the heartbeat; and what they may do.
func TestCheck(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 1})
	w.waitComplete()
	w.assertCheck("an administrator", cp.Kubeconfig(), answers{begin: checkYes, says: []string{
		" serves pods/resize\n", "✓ Hold: edits are held, by ", ", as a dry run shows\n",
		"✓ Controller: a controller is ready\n", " Version: ", "✓ Namespaces: none is excluded\n",
		"✓ You can: see the progress", "✓ You can: preview rollouts", "✓ You can: preview whether nodes", "✓ You can: opt in, edit and retry, unless a policy forbids it\n", "✓ You can: undo, unless a policy forbids it\n", "✓ You can: release, unless a policy forbids it\n",
	}})
	w.assertCheck("an editor", w.user("editor", "edit"), answers{begin: checkYes, says: []string{"✓ Hold: edits are held, as a dry run shows\n", "✓ You can: opt in, edit"}})
	const byHeartbeat = "✓ Hold: edits are held, as the controller finds by its own dry runs\n✓ Controller: a controller is ready\n"
	w.assertCheck("a viewer", w.user("viewer", "view"), answers{begin: checkYes, says: []string{byHeartbeat, "✓ You can: preview rollouts"}})
	nobody := w.user("nobody", "")
	w.assertCheck("nobody", nobody, answers{code: 2, begin: checkUnknown + w.namespace + " are rolled out in place: whether there is such a namespace could not be seen: ", says: []string{byHeartbeat, "- You cannot: opt in, edit and retry: you lack patch statefulsets"}})
	for kubeconfig, want := range map[string]string{
		nobody: checkUnknown + "nowhere are rolled out in place: whether there is such a namespace", cp.Kubeconfig(): checkNo + "nowhere are not rolled out in place: there is no namespace nowhere\n",
	} {
		if got := command(t, kubeconfig, "nowhere", "", "check"); !strings.HasPrefix(got.stdout, want) {
			t.Errorf("of a namespace that is not there it says %s, want %s", got.stdout, want)
		}
	}
	kubeconfig, _ := w.planner()
	w.assertCheck("who may only plan", kubeconfig, answers{begin: checkYes, says: []string{byHeartbeat, "✓ You can: preview rollouts, with plan\n"}})

	// A patch of one Deployment is enough for the truth about Deployments.
	w.apply(strings.ReplaceAll(manifest(t, w.namespace, options{Replicas: 1, Kind: "Deployment", OptedOut: true}), "web", "shop"))
	w.kubectl("create", "role", "patcher", "--verb=get,list,patch", "--resource=deployments.apps")
	w.kubectl("create", "rolebinding", "patcher", "--role=patcher", "--serviceaccount="+w.namespace+":nobody")
	w.waitAllowed("system:serviceaccount:"+w.namespace+":nobody", "patch", "deployments.apps")
	got := command(t, nobody, w.namespace, "", "check")
	if !strings.HasPrefix(got.stdout, checkYes) || got.code != 0 {
		t.Errorf("who may patch a Deployment hears %+v", got)
	}
	if left := w.kubectl("get", "statefulsets,deployments,daemonsets", "--output=yaml"); strings.Contains(left, api.DryRunName) || strings.Contains(left, api.AttendedAnnotation) {
		t.Errorf("check has left something: %s", left)
	}

	if got := command(t, nobody, w.namespace, "", "version"); got.code != 0 || !strings.Contains(got.stdout, "Controller: unknown, because you cannot list leases\n") {
		t.Errorf("version of an ordinary user: %+v", got)
	}
	// That one object is all that everybody may read.
	for what, may := range map[string]string{"get " + api.HeartbeatName: "yes", "get inplace-rollout": "no", "list": "no", "patch " + api.HeartbeatName: "no"} {
		verb, name, _ := strings.Cut(what, " ")
		resource := strings.TrimSuffix("serviceaccounts/"+name, "/")
		out, _ := cp.Kubectl(t.Context(), "auth", "can-i", verb, resource, "--namespace", controller.Namespace, "--as=system:serviceaccount:"+w.namespace+":viewer", "--as-group=system:authenticated")
		must.Equal(t, strings.TrimSpace(out), may, "whether everybody may %s ServiceAccounts of the controller's namespace: %s", what, out)
	}
}

// TestCheckKilled kills the only controller, and compares what check says to an editor and a viewer with what becomes of an edit, before and
// after its heartbeat expires. Then it takes away that everybody may read that, and at last all that is installed.
func TestCheckKilled(t *testing.T) {
	needsPolicies(t)
	w := newWorkload(t, options{Replicas: 1})
	defer reinstall(t)()
	letsGo(t)
	t.Cleanup(func() { fall(t) })
	editor, viewer := w.user("editor", "edit"), w.user("viewer", "view")
	process := ownController(t, letGo)
	w.waitComplete()
	w.assertPlan("an editor", editor, judge.Live, "")
	process.Kill()
	// Its last heartbeat would count for 45 s.
	until := time.Now().Add(8 * time.Second).UTC().Format(time.RFC3339)
	for _, account := range []string{controller.ServiceAccount, api.HeartbeatName} {
		administer(t, "annotate", "--overwrite", "-n", controller.Namespace, "serviceaccount/"+account, api.ReadyUntilAnnotation+"="+until)
	}
	dryRun := func() bool {
		t.Helper()
		edit := []byte(`{"spec": {"template": {"metadata": {"labels": {"probe": "probe"}}}}}`)
		set := must.Get(client.AppsV1().StatefulSets(w.namespace).Patch(t.Context(), "web", types.StrategicMergePatchType, edit, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}))(t)
		return held(set)
	}
	for before, looks := dryRun(), 0; before || looks == 0; looks++ {
		is := map[string]ran{"an editor": command(t, editor, w.namespace, "", "check"), "a viewer": command(t, viewer, w.namespace, "", "check")}
		after := dryRun()
		for who, got := range is {
			if after && got.code != 0 || !before && got.code == 0 {
				t.Errorf("an edit is held before: %t, and after: %t, and check says to %s %s", before, after, who, got.stdout)
			}
		}
		before = after
	}
	for who, kubeconfig := range map[string]string{"an editor": editor, "a viewer": viewer, "an administrator": cp.Kubeconfig()} {
		w.assertCheck(who+" when no controller is there", kubeconfig, answers{code: 1, begin: checkNo + w.namespace + " are not rolled out in place: no controller is ready: edits are not held"})
	}
	w.assertPlan("an editor when no controller is there", editor, judge.PodRestart, "no controller is ready")
	if got := command(t, editor, w.namespace, "", "check"); strings.Contains(got.stdout, "✓ Hold") || strings.Contains(got.stdout, "✗ Hold") {
		t.Errorf("it contradicts itself:\n%s", got.stdout)
	}

	administer(t, "patch", "rolebinding", "-n", controller.Namespace, "inplace-rollout-heartbeat-reader", "--type=json", `--patch=[{"op":"remove","path":"/subjects"}]`)
	eventually(t, "the right to read the heartbeat to be gone", func() (bool, string) {
		got := command(t, viewer, w.namespace, "", "check")
		return got.code == 2 && strings.HasPrefix(got.stdout, checkUnknown), got.stdout
	})
	w.assertCheck("an editor without the heartbeat", editor, answers{code: 1, begin: checkNo})
	w.assertPlan("an editor without the heartbeat", editor, judge.PodRestart, "no controller is ready")
	for kubeconfig, unknown := range map[string]bool{editor: false, viewer: true} {
		if got := command(t, kubeconfig, w.namespace, "", "plan", w.ref); strings.Contains(got.stdout, "It is unknown whether a controller is there: ") != unknown {
			t.Errorf("what is to come, without the heartbeat: %+v", got)
		}
	}

	must.Do(t, controller.Uninstall(t.Context(), cp))
	eventually(t, "the API server to hold nothing", func() (bool, string) {
		got := command(t, editor, w.namespace, "", "check")
		return strings.HasPrefix(got.stdout, checkNo+w.namespace+" are not rolled out in place: nothing holds edits, as a dry run shows: inplace-rollout is not installed for this namespace, or no controller has begun yet"), got.stdout
	})
	w.assertCheck("an editor when it is uninstalled", editor, answers{code: 1, begin: checkNo, lines: 1})
	w.assertPlan("an editor when it is uninstalled", editor, judge.PodRestart, "nothing holds edits here")
	if got := command(t, viewer, w.namespace, w.kubectl("get", w.ref, "-o", "yaml"), "plan", "-f", "-"); !strings.Contains(got.stdout, "It is unknown whether a controller is there: ") {
		t.Errorf("a viewer when it is uninstalled: %+v", got)
	}
	w.assertCheck("a viewer when it is uninstalled", viewer, answers{code: 2, begin: checkUnknown})
	w.assertCheck("nobody when it is uninstalled", w.user("nobody", ""), answers{code: 2, begin: checkUnknown})
	w.assertCheck("an administrator when it is uninstalled", cp.Kubeconfig(), answers{code: 1, lines: 1,
		begin: checkNo + w.namespace + " are not rolled out in place: inplace-rollout is not installed: nothing in the cluster holds edits. Install it with Helm or kubectl"})
	w.assertCheck("an administrator before the installation", cp.Kubeconfig(), answers{begin: "Yes: the cluster is ready for the installation\n", says: []string{
		"✓ Hold: MutatingAdmissionPolicies can hold edits", "✓ You: can create all of it", "- Installs: ", "- Installed: nothing yet",
	}}, "--pre")
	w.assertCheck("a viewer before the installation", viewer, answers{code: 1, begin: "No: the cluster is not ready for the installation: you cannot install it: you lack create clusterrolebindings, create clusterroles, "}, "--pre")
	w.assertCheck("who waits for it", editor, answers{code: 1, begin: checkNo}, "--wait", "--timeout=1s")
	w.kubectl("annotate", w.ref, api.HoldAnnotation+"=0") // as an uninstallation leaves what was held
	if got := command(t, editor, w.namespace, "", "retry", "sts/web"); got.code != 1 || !strings.Contains(got.stderr, "nothing would go on with it: ") {
		t.Errorf("a retry when it is uninstalled: %+v", got)
	}
}
