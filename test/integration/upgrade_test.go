//go:build around

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	versioninfo "github.com/inplace-rollout/inplace-rollout/pkg/version"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// installable is a version that can be installed and run.
type installable struct {
	deploy string // the folder
	binary string
}

// install applies what the version has in deploy/, but runs no pods of it.
func (v installable) install(t *testing.T) {
	t.Helper()
	applyFolder(t, v.deploy)
	administer(t, "scale", "-n", controller.Namespace, "deployment/inplace-rollout", "--replicas=0")
}

// before is a commit that this version must be able to go back to: the first that writes the heartbeat where the policies of this one look,
// while its own look elsewhere.
const before = "54278b71142c9c9193114a26a2c4ef870383320b"

// earlier builds that version, from the history of this repository.
func earlier(t *testing.T) installable {
	t.Helper()
	folder := t.TempDir()
	for _, command := range [][]string{
		{"git", "-C", controller.Root(), "archive", "--output", filepath.Join(folder, "sources.tar"), before},
		{"tar", "--extract", "--file", filepath.Join(folder, "sources.tar"), "--directory", folder},
		{"go", "build", "-C", folder, "-o", "inplace-rollout", "./cmd/inplace-rollout"},
	} {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("building the version before this one, from commit %s (is it in this clone? A shallow one lacks it: git fetch --unshallow): %v: %v\n%s", before, command, err, out)
		}
	}
	return installable{filepath.Join(folder, "deploy"), filepath.Join(folder, "inplace-rollout")}
}

// TestUpgrade applies another version of deploy/ in the middle of rollouts, and replaces the replicas of
// the controller one by one: the rollouts end in place, and each edit meanwhile is held, by the policies of either version, as
// controllers of either say that they are there. Where the policies differ, the old replicas
// rest from then on. docs/install.md promises the same for the way back.
// It alone proves that two versions get along, as it builds the one before.
func TestUpgrade(t *testing.T) {
	if way := controller.Hold(cp); way != prerequisite.Policy {
		t.Skipf("not applicable to %s: the version before holds by MutatingAdmissionPolicy only", way)
	}
	now, before := installable{shipped("deploy"), shipped("bin", "inplace-rollout")}, earlier(t)
	defer reinstall(t)()
	t.Run("from the version before", func(t *testing.T) {
		testUpgrade(t, before, now)
		var said struct {
			Client      versioninfo.Info
			Controllers []struct{ Version string }
		}
		got := command(t, cp.Kubeconfig(), controller.Namespace, "", "version", "--output=json")
		if err := json.Unmarshal([]byte(got.stdout), &said); err != nil || got.code != 0 || len(said.Controllers) != 1 || said.Controllers[0].Version != said.Client.LabelValue() {
			t.Errorf("version ended with %d: %v: %s%s", got.code, err, got.stdout, got.stderr)
		}
	})
	t.Run("to the same version", func(t *testing.T) { testUpgrade(t, now, now) })
	t.Run("back to the version before", func(t *testing.T) { testUpgrade(t, now, before) })
}

func testUpgrade(t *testing.T, from, to installable) {
	elected := func(of installable) *controller.Process {
		return ownController(t, controller.Options{Binary: of.binary, Args: []string{"--leader-elect"}})
	}
	from.install(t)
	old := []*controller.Process{elected(from), elected(from)}
	x, guarded := newTrio(t, options{}), newWorkload(t, options{})
	guarded.waitComplete()
	guardedBefore := guarded.uids()
	guarded.guard("canary", "1", "canary-duration", "manual")
	guarded.setResources("cpu=150m", "")
	x.waitComplete()
	before, slow, daemon := x.uids(), x.d.names()[1], x.ds.on(2).Name
	kubelets := func(treat string) {
		x.w.annotatePod("web-1", treat)
		x.d.annotatePod(slow, treat)
		x.ds.annotatePod(daemon, treat)
	}
	kubelets(simDeferred)
	edit := func(when, cpu string) {
		t.Helper()
		x.setCPU(cpu)
		x.assertHeld("an edit "+when, true)
		x.assertMarked(false)
	}
	x.w.markAudit()
	x.d.markAudit()
	x.ds.markAudit()
	edit("before", "150m")
	guarded.waitSize("web-2", "150m")
	guarded.waitCondition("Progressing", "canary of ")
	x.w.waitCondition("Deferred", "web-1")
	x.d.waitCondition("Deferred", slow)
	x.ds.waitCondition("Deferred", daemon)

	to.install(t)
	x.assertHeld("deploy/ is applied", true)
	edit("when the policies have been replaced", "160m")
	if from.deploy != shipped("deploy") {
		slices.Reverse(old) // a leader of that version takes its heartbeat away also where the next one may not beat
	}
	for _, process := range old {
		elected(to)
		process.Stop()
	}
	if to.deploy != shipped("deploy") { // the leader that ends waits 20 s for the next one, and one of that version may take longer to be ready
		must.Eventually(t, 100*time.Millisecond, 5*time.Minute, "the next leader's heartbeat", func() (bool, string) { return heartbeat(t) != "", "none" })
	}
	edit("when the controllers have been replaced, too", "170m")
	kubelets(simAccepted)
	x.waitComplete()
	x.assertMoved(before, "170m")
	x.w.assertNoRefusals()
	x.d.assertNoRefusals()
	x.ds.assertNoRefusals()
	// A guarded rollout goes no further by that. The version before does not know the record, and goes by what else there is.
	if asked := guarded.askedPods(); len(asked) != 1 || !held(guarded.get()) {
		t.Errorf("%v have got a size that is not promoted, held: %t", asked, held(guarded.get()))
	}
	if to.deploy == shipped("deploy") {
		guarded.run("promote", guarded.ref)
		guarded.waitComplete()
		guarded.assertMoved(0)
	}
	guarded.assertReplaced(guardedBefore)
}

// overlay is the installation for one namespace, as docs/install.md describes it.
type overlay struct{ namespace, dir string }

func (o overlay) user() string {
	return "system:serviceaccount:" + o.namespace + ":" + controller.ServiceAccount
}

// newOverlay installs the controller of a namespace; nobody has labelled it yet. The
// Deployment is scaled to nothing, because start runs the controller as a process.
func newOverlay(t *testing.T, deploy, namespace string) overlay {
	t.Helper()
	o := overlay{namespace, filepath.Join(filepath.Dir(deploy), namespace)}
	must.Do(t, os.Mkdir(o.dir, 0o700))
	kustomization := fmt.Sprintf("namespace: %s\nresources: [../%s/overlays/one-namespace]\n", namespace, filepath.Base(deploy))
	must.Do(t, os.WriteFile(filepath.Join(o.dir, "kustomization.yaml"), []byte(kustomization), 0o600))
	administer(t, "create", "clusterrolebinding", "inplace-rollout-"+namespace,
		"--clusterrole=inplace-rollout-cluster", "--serviceaccount="+namespace+":inplace-rollout")
	applyFolder(t, o.dir)
	administer(t, "scale", "-n", namespace, "deployment/inplace-rollout", "--replicas=0")
	return o
}

// launch runs the controller with the arguments that the overlay gives it.
func (o overlay) launch(t *testing.T) *controller.Process {
	t.Helper()
	d := must.Get(client.AppsV1().Deployments(o.namespace).Get(t.Context(), "inplace-rollout", metav1.GetOptions{}))(t)
	var args []string
	for _, arg := range d.Spec.Template.Spec.Containers[0].Args[1:] {
		if !strings.HasPrefix(arg, "--metrics-bind-address") { // it is not alone on this machine
			args = append(args, strings.ReplaceAll(arg, "$(NAMESPACE)", o.namespace))
		}
	}
	process := must.Get(launch(controller.Options{Namespace: o.namespace, Args: args}))(t)
	t.Cleanup(process.Stop)
	return process
}

// assertLeastRights checks what the controller has asked for since mark: nothing that
// it may not, and nothing of another namespace.
func (o overlay) assertLeastRights(t *testing.T, mark int64) {
	t.Helper()
	asked := must.Get(cp.AuditAbout(o.user(), mark, controlplane.ByUser(o.user())))(t)
	if len(asked) == 0 {
		t.Error("the audit log has nothing of the controller")
	}
	ofCluster := []string{
		"nodes", "mutatingwebhookconfigurations", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
		"selfsubjectreviews", "endpointslices", // of the API servers
	}
	for _, e := range asked {
		if e.ResponseStatus != nil && e.ResponseStatus.Code == 403 {
			t.Errorf("%s %s is forbidden: %s", e.Verb, e.RequestURI, e.ResponseStatus.Message)
		}
		if e.ObjectRef != nil && e.ObjectRef.Namespace != o.namespace && !slices.Contains(ofCluster, e.ObjectRef.Resource) {
			t.Errorf("it asked for %s %s", e.Verb, e.RequestURI)
		}
	}
}

// uninstall is what docs/install.md says.
func (o overlay) uninstall(t *testing.T) ran {
	t.Helper()
	administer(t, "label", "namespace", o.namespace, api.InstalledLabel+"-")
	administer(t, "delete", "-k", o.dir, "--wait=false")
	administer(t, "delete", "clusterrolebinding", "inplace-rollout-"+o.namespace)
	return command(t, cp.Kubeconfig(), o.namespace, "", "release", "--all", "--yes")
}

// TestOneNamespace installs two controllers, each for the namespace that it runs in.
// It alone proves deploy/overlays/one-namespace, from the installation to the uninstallation.
func TestOneNamespace(t *testing.T) {
	install := reinstall(t)
	defer install()
	deploy := filepath.Join(t.TempDir(), "deploy")
	must.Do(t, os.CopyFS(deploy, os.DirFS(filepath.Join(controller.Root(), "deploy"))))
	applyFolder(t, filepath.Join(deploy, "overlays", "one-namespace", "cluster"))

	w, d := newWorkload(t, options{}), newDeployment(t, options{Spec: "strategy: {rollingUpdate: {maxUnavailable: 1}}"})
	w.waitPolicies(false)
	otherSet, otherDeployment := newWorkload(t, options{}), newDeployment(t, options{})
	otherSet.unchecked, otherDeployment.unchecked = true, true // nothing is held in their namespaces
	mark := must.Get(cp.AuditMark())(t)
	a, b := newOverlay(t, deploy, w.namespace), newOverlay(t, deploy, d.namespace)
	ofA, ofB := a.launch(t), b.launch(t)
	eventually(t, "the controller to say what is missing", func() (bool, string) {
		err := ofA.Ready(t.Context())
		want := "MutatingAdmissionPolicyBinding inplace-rollout-hold leaves out namespace " + a.namespace + ": label the namespace with inplace-rollout.io/installed=true"
		return strings.Contains(must.Said(err), want), must.Said(err)
	})
	administer(t, "label", "namespace", a.namespace, b.namespace, api.InstalledLabel+"=true")
	for _, process := range []*controller.Process{ofA, ofB} {
		must.Do(t, process.WaitReady(t.Context()))
	}

	// One namespace has a workload of either kind.
	w.apply(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: api, labels: {inplace-rollout.io/enabled: "true"}}
spec:
  replicas: 2
  selector: {matchLabels: {app: api}}
  template:
    metadata: {labels: {app: api}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: app, image: "app:1", resources: ` + base + `}]}
`)
	w.kubectl("wait", "--for=condition="+api.ConditionComplete, "deployment/api", "--timeout="+patience.String())
	pods := func() string {
		return w.kubectl("get", "pods", "-l", "app=api", "-o", `jsonpath={range .items[*]}{.metadata.uid} {.spec.containers[0].resources.requests.cpu} {.status.containerStatuses[0].resources.requests.cpu}{"\n"}{end}`)
	}
	w.waitComplete()
	d.waitComplete()
	apiBefore, setBefore, before := pods(), w.uids(), d.uids()
	w.kubectl("set", "resources", "deployment/api", "--containers=app", "--requests=cpu=150m")
	w.setResources("cpu=150m", "")
	d.setResources("cpu=150m", "")
	w.kubectl("wait", "--for=condition="+api.ConditionComplete, "deployment/api", "--timeout="+patience.String())
	w.waitComplete()
	d.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(setBefore)
	d.assertMoved(before, "150m")
	if got, want := pods(), strings.ReplaceAll(apiBefore, "100m", "150m"); got != want || !strings.Contains(want, "150m") {
		t.Errorf("the pods of deployment/api are\n%swant\n%s", got, want)
	}
	for _, namespace := range []string{a.namespace, b.namespace} {
		if holder := administer(t, "get", "lease", "inplace-rollout", "-n", namespace, "-o", "jsonpath={.spec.holderIdentity}"); holder == "" {
			t.Errorf("nobody has the Lease in %s", namespace)
		}
	}

	// The policies know each controller in its own namespace only.
	for _, s := range []struct {
		try  func(*testing.T, ...string) error
		ref  string
		want string
	}{{w.try, w.ref, "changes spec.replicas"}, {d.try, d.ref, ""}} {
		err := s.try(t, "patch", s.ref, "--as="+a.user(), "--as-group=system:masters", "--patch", `{"spec":{"replicas":5}}`, "--dry-run=server")
		if got := must.Said(err); s.want == "" && got != "" || !strings.Contains(got, s.want) {
			t.Errorf("%s of %s scales %s: got %q, want %q", a.user(), a.namespace, s.ref, got, s.want)
		}
	}

	// A namespace without a controller: the label of the workload means nothing there.
	setBefore, before = otherSet.uids(), otherDeployment.uids()
	otherSet.setResources("cpu=150m", "")
	otherDeployment.setResources("cpu=150m", "")
	if held(otherSet.get()) || held(otherDeployment.get()) {
		t.Error("a rollout is held where there is no controller")
	}
	otherSet.kubectl("rollout", "status", otherSet.ref, "--timeout="+patience.String())
	otherDeployment.waitRolledOut()
	otherSet.assertReplaced(setBefore, "web-0", "web-1", "web-2")
	otherDeployment.assertAllReplaced(before)
	if status, _, _ := complete(otherSet.get()); status != "" {
		t.Error("a controller told of a set in another namespace")
	}
	if got := otherSet.run("status"); !strings.Contains(got.stderr, "leaves out namespace "+otherSet.namespace) {
		t.Errorf("status does not tell that the namespace is left out: %s", got.stderr)
	}
	if got := w.run("status"); got.stderr != "" || got.code != 0 {
		t.Errorf("status ended with %d and complains: %s", got.code, got.stderr)
	}
	const beside = "No: the cluster is not ready for the installation: it is installed for single namespaces, by deploy/overlays/one-namespace. "
	if got := command(t, cp.Kubeconfig(), w.namespace, "", "check", "--pre"); got.code != 1 || !strings.HasPrefix(got.stdout, beside) {
		t.Errorf("before an installation for all namespaces, check ended with %d: %s", got.code, got.stdout)
	}

	// One goes, in the middle of a rollout, and the other stays.
	w.annotatePod("web-1", "sim.inplace-rollout.io/resize=deferred")
	w.setResources("cpu=160m", "")
	w.waitCondition("Deferred", "web-1")
	a.assertLeastRights(t, mark)
	if got := a.uninstall(t); got.code != 0 || !strings.Contains(got.stdout, "statefulset.apps/web released") {
		t.Errorf("release ended with %d: %s%s", got.code, got.stdout, got.stderr)
	}
	if set := w.get(); held(set) || *set.Spec.UpdateStrategy.RollingUpdate.Partition != 0 {
		t.Errorf("after the uninstallation: %s", describe(set))
	}
	w.kubectl("rollout", "status", w.ref, "--timeout="+patience.String())
	w.assertMoved(0)
	before = d.uids()
	d.edit("160m")
	d.assertMoved(before, "160m")
	b.assertLeastRights(t, mark)
	b.uninstall(t)
}

// TestAbsentReinstalled takes everything away and installs it again, three times: the API server still sees whether a
// controller is there. Of other kinds of parameters it keeps what it knew (kubernetes/kubernetes#130887).
func TestAbsentReinstalled(t *testing.T) {
	needsPolicies(t)
	x := newTrio(t, options{Replicas: 1})
	defer reinstall(t)()
	t.Cleanup(func() { fall(t) })
	for i := range 3 {
		must.Do(t, controller.Uninstall(t.Context(), cp))
		must.Do(t, controller.Install(t.Context(), cp))
		letsGo(t)
		beat(t, time.Minute)
		x.waitThere(true)
		x.setImage("app:" + strconv.Itoa(2*i+2))
		x.assertHeld("an edit while a controller is there", true)
		fall(t)
		x.waitThere(false)
		x.setImage("app:" + strconv.Itoa(2*i+3))
		x.assertHeld("an edit while none is there", false)
		x.waitRolledOut()
	}
}
