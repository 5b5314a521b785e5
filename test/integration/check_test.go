//go:build integration

package integration

import (
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
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
