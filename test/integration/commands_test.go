//go:build integration

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

// planner is a user of this sandbox that may only do what plan needs.
func (s *sandbox[W]) planner() (kubeconfig, user string) {
	s.t.Helper()
	s.apply(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: planner}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: planner}
rules:
- {apiGroups: [apps], resources: [statefulsets, deployments, daemonsets], verbs: [get, list]}
- {apiGroups: [apps], resources: [replicasets, controllerrevisions], verbs: [list]}
- {apiGroups: [""], resources: [pods, nodes, limitranges, resourcequotas], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: planner-` + s.namespace + `}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: planner}
subjects: [{kind: ServiceAccount, name: planner, namespace: ` + s.namespace + `}]
`)
	kubeconfig, err := cp.ServiceAccountKubeconfig(s.t.Context(), s.namespace, "planner", "")
	if err != nil {
		s.t.Fatal(err)
	}
	user = "system:serviceaccount:" + s.namespace + ":planner"
	s.waitAllowed(user, "list", "nodes")
	return kubeconfig, user
}

// planned is what plan prints with -o json, as far as the tests read it.
type planned struct {
	HandOver string `json:"handOver"`
	Pods     []struct {
		Name     string           `json:"name"`
		Forecast rollout.Forecast `json:"fate"`
		Reason   string           `json:"reason"`
	} `json:"pods"`
	Summary map[string]int `json:"summary"`
}

// plan asks what an edit would do; without a manifest, what is to come of the
// hold. It checks that this wrote nothing, not even for show.
func (s *sandbox[W]) plan(manifest string, args ...string) planned {
	s.t.Helper()
	kubeconfig, user := s.planner()
	if manifest == "" {
		args = append(args, s.ref)
	} else {
		args = append(args, "-f", "-")
	}
	result := command(s.t, kubeconfig, s.namespace, manifest, append([]string{"plan", "-o", "json"}, args...)...)
	if result.code != 0 || result.stderr != "" {
		s.t.Fatalf("plan ended with %d: %s", result.code, result.stderr)
	}
	asked, err := cp.AuditAbout(user, s.mark, controlplane.ByUser(user))
	if err != nil {
		s.t.Fatal(err)
	}
	if len(asked) == 0 {
		s.t.Error("the audit log has nothing of what plan read")
	}
	for _, e := range asked {
		if controlplane.Writes(&e) {
			s.t.Errorf("plan wrote: %s %s", e.Verb, e.RequestURI)
		}
	}
	var list cli.List[planned]
	if err := json.Unmarshal([]byte(result.stdout), &list); err != nil || len(list.Items) != 1 {
		s.t.Fatalf("plan printed %s: %v", result.stdout, err)
	}
	return list.Items[0]
}

// fates counts the pods of each fate.
func (p planned) fates() map[rollout.Forecast]int {
	count := map[rollout.Forecast]int{}
	for _, pod := range p.Pods {
		count[pod.Forecast]++
	}
	return count
}

// holds tells what of the plan is not so (yet). Before are the pods as they were
// when it was made.
func (p planned) holds(before, after map[string]corev1.Pod) error {
	var wrong []error
	for _, foreseen := range p.Pods {
		was, is := before[foreseen.Name], after[foreseen.Name]
		same, restarts := was.UID == is.UID, int32(0)
		if len(is.Status.ContainerStatuses) > 0 {
			restarts = is.Status.ContainerStatuses[0].RestartCount
		}
		sized := same && !equalResources(was, is)
		applied := same && len(is.Status.ContainerStatuses) > 0 && is.Status.ContainerStatuses[0].Resources != nil &&
			is.Status.ContainerStatuses[0].Resources.Requests.Cpu().Equal(*is.Spec.Containers[0].Resources.Requests.Cpu())
		var ok bool
		switch foreseen.Forecast {
		case rollout.Live:
			ok = sized && applied && restarts == 0
		case rollout.ContainerRestart:
			ok = sized && applied && restarts == 1
		case rollout.PodRestart:
			ok = !same // a Deployment's is gone
		default: // before 1.36 only the kubelet refuses what the node is too small for, when the spec has the size
			asked := !cp.AtLeast("1.36") && strings.Contains(foreseen.Reason, "is too small")
			ok = same && restarts == 0 && sized == asked && (!asked || !applied)
		}
		if !ok {
			wrong = append(wrong, fmt.Errorf("%s: %s was foreseen, but same pod %t, resized %t, applied %t, %d restarts",
				foreseen.Name, foreseen.Forecast, same, sized, applied, restarts))
		}
	}
	return errors.Join(wrong...)
}

func equalResources(a, b corev1.Pod) bool {
	x, y := a.Spec.Containers[0].Resources, b.Spec.Containers[0].Resources
	return x.Requests.Cpu().Equal(*y.Requests.Cpu()) && x.Requests.Memory().Equal(*y.Requests.Memory()) &&
		x.Limits.Cpu().Equal(*y.Limits.Cpu()) && x.Limits.Memory().Equal(*y.Limits.Memory())
}

const (
	cpuEdit   = `{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"150m"}}}]}}}}`
	imageEdit = `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"app:2","resources":{"requests":{"cpu":"150m"}}}]}}}}`
	// cpuTwoEdit is too much for a node that is small.
	cpuTwoEdit = `{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"2"},"limits":{"cpu":"2"}}}]}}}}`
	noLimit    = `{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":null}}}]}}}}`
)

// prophecy is an edit, and what is foreseen of it.
type prophecy struct {
	name  string
	of    options
	patch string
	args  []string
	want  map[rollout.Forecast]int
	why   string // in some pod's reason, if not empty
	end   string // reason of the condition at last; Complete if empty
}

var prophecies = []prophecy{
	{name: "live", patch: cpuEdit, want: map[rollout.Forecast]int{rollout.Live: 3}},
	{name: "restart only", of: options{Meta: "annotations: {" + setPolicy + ": cpu=RestartOnly}"}, patch: cpuEdit,
		want: map[rollout.Forecast]int{rollout.PodRestart: 3}, why: "cpu of app: RestartOnly"},
	{name: "removed limit", patch: noLimit, want: map[rollout.Forecast]int{rollout.PodRestart: 3}, why: "limit is removed"},
	{name: "image", patch: imageEdit, want: map[rollout.Forecast]int{rollout.PodRestart: 3}, why: "spec.containers[app].image"},
	{name: "not opted in", of: options{OptedOut: true}, patch: cpuEdit, want: map[rollout.Forecast]int{rollout.PodRestart: 3}, why: "is not opted in", end: "-"},
	{name: "too large for any node", of: options{Meta: "annotations: {" + setAction + ": LiveResize}"}, end: "Infeasible",
		patch: `{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"100"},"limits":{"cpu":"100"}}}]}}}}`,
		want:  map[rollout.Forecast]int{rollout.Infeasible: 3}, why: "is too small: cpu, requested: 100"},
}

const cpuRestarts = base + ", resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]"

func TestCommandPlanOfStatefulSets(t *testing.T) {
	parallel(t)
	for _, p := range append(slices.Clone(prophecies),
		prophecy{name: "container restart", of: options{Resources: cpuRestarts}, patch: cpuEdit,
			want: map[rollout.Forecast]int{rollout.ContainerRestart: 3}},
		prophecy{name: "partition", of: options{Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 1}}"}, patch: cpuEdit,
			want: map[rollout.Forecast]int{rollout.Live: 2, rollout.KeptBack: 1}, why: "the partition is 1"},
		prophecy{name: "on delete", of: options{Spec: "updateStrategy: {type: OnDelete}", Meta: "annotations: {" + setPolicy + ": cpu=RestartOnly}"}, patch: cpuEdit,
			want: map[rollout.Forecast]int{rollout.AfterDelete: 3}, end: "WaitingForDelete"},
		prophecy{name: "live on delete", of: options{Spec: "updateStrategy: {type: OnDelete}"}, patch: cpuEdit,
			want: map[rollout.Forecast]int{rollout.Live: 3}},
	) {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			if p.end == "Infeasible" {
				p.of.Pod = apart(t, "foreseen-statefulset")
			}
			testProphecy(t, p, newWorkload(t, p.of).sandbox)
		})
	}
}

func TestCommandPlanOfDeployments(t *testing.T) {
	parallel(t)
	for _, p := range append(slices.Clone(prophecies),
		prophecy{name: "action restart", of: options{Meta: "annotations: {" + setAction + ": Restart}"}, patch: cpuEdit,
			want: map[rollout.Forecast]int{rollout.PodRestart: 3}, why: "the action is Restart"},
		prophecy{name: "container restart", of: options{Resources: cpuRestarts, Spec: "strategy: {rollingUpdate: {maxUnavailable: 1}}"}, patch: cpuEdit,
			want: map[rollout.Forecast]int{rollout.ContainerRestart: 3}},
		prophecy{name: "container restart and none may be down", of: options{Resources: cpuRestarts, Spec: surge}, patch: cpuEdit,
			want: map[rollout.Forecast]int{rollout.PodRestart: 3}, why: "maxUnavailable is 0"},
	) {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			if p.end == "Infeasible" {
				p.of.Pod = apart(t, "foreseen-deployment")
			}
			testProphecy(t, p, newDeployment(t, p.of).sandbox)
		})
	}
}

func TestCommandPlanOfDaemonSets(t *testing.T) {
	parallel(t)
	for _, p := range append(slices.Clone(prophecies),
		prophecy{name: "container restart", of: options{Resources: cpuRestarts}, patch: cpuEdit,
			want: map[rollout.Forecast]int{rollout.ContainerRestart: 3}},
		prophecy{name: "container restart and none may be down", of: options{Resources: cpuRestarts, Spec: "updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}"}, patch: cpuEdit,
			want: map[rollout.Forecast]int{rollout.PodRestart: 3}, why: "maxUnavailable is 0"},
		prophecy{name: "on delete", of: options{Spec: "updateStrategy: {type: OnDelete}", Meta: "annotations: {" + setPolicy + ": cpu=RestartOnly}"}, patch: cpuEdit,
			want: map[rollout.Forecast]int{rollout.AfterDelete: 3}, end: "WaitingForDelete"},
		prophecy{name: "live on delete", of: options{Spec: "updateStrategy: {type: OnDelete}"}, patch: cpuEdit,
			want: map[rollout.Forecast]int{rollout.Live: 3}},
		prophecy{name: "a node that is too small", of: options{Node: small(2)}, patch: cpuTwoEdit, end: "NoNodeFits",
			want: map[rollout.Forecast]int{rollout.Live: 2, rollout.Infeasible: 1}, why: "is too small"},
	) {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			testProphecy(t, p, newDaemonSet(t, p.of).sandbox)
		})
	}
}

// testProphecy asks for the plan of an edit, makes the edit, and compares.
func testProphecy[W metav1.Object](t *testing.T, p prophecy, s *sandbox[W]) {
	t.Helper()
	if !p.of.OptedOut {
		s.waitComplete()
	}
	manifest := s.kubectl("patch", s.ref, "--patch", p.patch, "--dry-run=client", "-o", "yaml")
	foreseen := s.plan(manifest, p.args...)
	if got := foreseen.fates(); !maps.Equal(got, p.want) {
		t.Fatalf("plan foresees %v, want %v: %+v", got, p.want, foreseen)
	}
	if p.why != "" && !strings.Contains(fmt.Sprint(foreseen), p.why) {
		t.Errorf("plan does not say %q: %+v", p.why, foreseen)
	}
	code := 0
	if p.want[rollout.PodRestart]+p.want[rollout.ContainerRestart]+p.want[rollout.AfterDelete] > 0 {
		code = 3
	}
	if got := command(t, cp.Kubeconfig(), s.namespace, manifest, "plan", "--fail-on-restart", "-f", "-"); got.code != code {
		t.Errorf("plan --fail-on-restart ended with %d, want %d: %s%s", got.code, code, got.stdout, got.stderr)
	}

	for _, pod := range foreseen.Pods {
		if strings.Contains(pod.Reason, "is too small") {
			s.tooSmall(pod.Name)
		}
	}
	before := s.pods()
	s.patch(p.patch)
	switch p.end {
	case "":
		s.waitComplete()
	case "-":
		s.kubectl("rollout", "status", s.ref, "--timeout="+patience.String())
	default:
		s.waitCondition(p.end, "")
	}
	eventually(t, "what plan has foreseen", func() (bool, string) {
		err := foreseen.holds(before, s.pods())
		return err == nil, said(err)
	})
}

// One pod is on a node that is too small for the new size, and is restarted; the
// others are resized.
func TestCommandPlanWithASmallNode(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Pod: pool(t, "foreseen", "2", "4", "4")})
	addToPool(t, "foreseen", "foreseen-new", "4")
	testProphecy(t, prophecy{
		patch: `{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"3"},"limits":{"cpu":"3500m"}}}]}}}}`,
		want:  map[rollout.Forecast]int{rollout.Live: 2, rollout.PodRestart: 1}, why: "node foreseen-0 is too small",
	}, w.sandbox)
}

// Two pods are on a node that has room for one of them.
func TestCommandPlanWithoutRoom(t *testing.T) {
	parallel(t)
	addToPool(t, "room", "room", "1")
	w := newWorkload(t, options{Replicas: 2, Pod: "{nodeSelector: {pool: room}, tolerations: [{key: pool, operator: Exists}]}", PodMeta: simDelayed})
	const edit = `{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"600m"},"limits":{"cpu":"1"}}}]}}}}`
	manifest := w.kubectl("patch", w.ref, "--patch", edit, "--dry-run=client", "-o", "yaml")
	foreseen := w.plan(manifest)
	if got := foreseen.Pods; len(got) != 2 || got[0].Name != "web-1" || got[0].Reason != "" || got[1].Forecast != rollout.Deferred {
		t.Errorf("plan foresees %+v, want room for web-1 and none for web-0", got)
	}
	table := command(t, cp.Kubeconfig(), w.namespace, manifest, "plan", "-f", "-").stdout
	for _, want := range []string{"m of 1 requested", "statefulset/web: 1 live, 1 deferred, 0 restart, 0 infeasible", "the node has no room now; the pod waits until it has"} {
		if !strings.Contains(table, want) {
			t.Errorf("plan does not print %q:\n%s", want, table)
		}
	}
	// The simulated kubelet does not add up; it is told what a real one would find.
	w.annotatePod("web-0", "sim.inplace-rollout.io/resize=deferred")
	before := w.uids()
	w.patch(edit)
	w.waitCondition("Deferred", "1 of 2 pods resized; web-0: deferred on node room")
	w.annotatePod("web-0", simAccepted)
	w.waitComplete()
	w.assertReplaced(before)
}

// What an apply removes is gone: the plan compares with what was applied before.
func TestCommandPlanOfAnApply(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{})
	with, without := manifest(t, w.namespace, options{}), manifest(t, w.namespace, options{Resources: "{requests: {cpu: 150m, memory: 100Mi}, limits: {memory: 200Mi}}"})
	w.kubectl("apply", "-f", writeFile(t, with))
	foreseen := w.plan(without)
	if got := foreseen.fates()[rollout.PodRestart]; got != 3 {
		t.Errorf("plan foresees %+v, want 3 restarts", foreseen)
	}
	before := w.pods()
	w.kubectl("apply", "-f", writeFile(t, without))
	w.waitComplete()
	if err := foreseen.holds(before, w.pods()); err != nil {
		t.Error(err)
	}
}

// The plan of a hold is what is still to come. status tells the same, and its
// watch ends when it has come.
func TestCommandPlanAndStatusDuringARollout(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{})
	w.waitComplete()
	if got := w.run("status", w.ref); got.code != 0 || !strings.Contains(got.stdout, "Complete") {
		t.Errorf("status at rest ended with %d: %s%s", got.code, got.stdout, got.stderr)
	}
	w.annotatePod("web-1", "sim.inplace-rollout.io/resize=deferred")
	w.setResources("cpu=150m", "")
	w.waitCondition("Deferred", "web-1")

	foreseen := w.plan("")
	if got, want := foreseen.fates(), map[rollout.Forecast]int{rollout.Unchanged: 1, rollout.Deferred: 1, rollout.Live: 1}; !maps.Equal(got, want) {
		t.Errorf("plan foresees %v, want %v: %+v", got, want, foreseen)
	}
	if got := w.run("plan", "sts", "web", "--fail-on-restart"); got.code != 3 || !strings.Contains(got.stdout, "restarted if that lasts until the deadline") {
		t.Errorf("plan --fail-on-restart of the hold ended with %d, want 3: %s%s", got.code, got.stdout, got.stderr)
	}
	got := w.run("status", "sts/web", "-o", "wide")
	if got.code != 2 {
		t.Errorf("status ended with %d, want 2: %s", got.code, got.stderr)
	}
	for _, want := range []string{"): Deferred: 1 of 3 pods resized", ", held. Wanted: ", "PodResizePending/Deferred   deferred on node", "Requested", "web-2", "Done", "Waiting"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("status does not print %q:\n%s", want, got.stdout)
		}
	}
	if strings.Contains(got.stdout, "for more than") {
		t.Errorf("status takes it for given up:\n%s", got.stdout)
	}

	watched := make(chan ran)
	go func() {
		watched <- command(t, cp.Kubeconfig(), w.namespace, "", "status", "--watch")
	}()
	time.Sleep(time.Second) // so that it sees something to wait for; the test is right without, too
	before := w.pods()
	w.annotatePod("web-1", simAccepted)
	w.waitComplete()
	if got := <-watched; got.code != 0 || !strings.Contains(got.stdout, "Complete: ") {
		t.Errorf("status --watch ended with %d: %s%s", got.code, got.stdout, got.stderr)
	}
	if err := foreseen.holds(before, w.pods()); err != nil && !strings.Contains(err.Error(), "web-1") { // whose spec had the size already
		t.Error(err)
	}
}

// Whoever may not read what is needed hears what that is.
func TestCommandsForbidden(t *testing.T) {
	parallel(t)
	w := newWorkload(t, options{Replicas: 1})
	manifest := w.kubectl("get", w.ref, "-o", "yaml")
	w.apply(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: nobody}}`)
	kubeconfig, err := cp.ServiceAccountKubeconfig(t.Context(), w.namespace, "nobody", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"plan", "sts/web"}, {"plan", "-f", "-"}, {"status"}, {"status", "sts/web"}, {"release", "--all", "--yes"}} {
		got := command(t, kubeconfig, w.namespace, manifest, args...)
		if got.code != 1 || !strings.Contains(got.stderr, "is forbidden") || !strings.Contains(got.stderr, "You need get and list for statefulsets, deployments and daemonsets (apps)") {
			t.Errorf("%v ended with %d: %s", args, got.code, got.stderr)
		}
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"plan", "pod/web-0"}, "want a StatefulSet, Deployment or DaemonSet, such as sts/web"},
		{[]string{"plan", "sts/other"}, `statefulsets.apps "other" not found`},
		{[]string{"plan", "web"}, "want TYPE/NAME, such as sts/web"},
		{[]string{"status", "nonsense/web"}, "nonsense"},
	} {
		if got := w.run(tt.args...); got.code != 1 || !strings.Contains(got.stderr, tt.want) {
			t.Errorf("%v ended with %d, want %q: %s", tt.args, got.code, tt.want, got.stderr)
		}
	}
	// Namespaced rights are enough for status.
	w.kubectl("create", "role", "reader", "--verb=get,list", "--resource=statefulsets.apps,deployments.apps,daemonsets.apps,replicasets.apps,controllerrevisions.apps,pods")
	w.kubectl("create", "rolebinding", "reader", "--role=reader", "--serviceaccount="+w.namespace+":nobody")
	eventually(t, "status to be allowed", func() (bool, string) {
		got := command(t, kubeconfig, w.namespace, "", "status")
		return got.code == 0 || got.code == 2, got.stderr
	})
	// They are enough for plan, too, but for what room there is.
	plan := func(unknown string) {
		t.Helper()
		eventually(t, "plan to tell that "+unknown, func() (bool, string) {
			got := command(t, kubeconfig, w.namespace, manifest, "plan", "-f", "-")
			return got.code == 0 && strings.Contains(got.stdout, "web-0") &&
				strings.HasSuffix(got.stdout, "\nIt is unknown whether nodes have room: "+unknown+".\n"), got.stdout + got.stderr
		})
	}
	plan("you may not list nodes")
	w.kubectl("create", "clusterrole", w.namespace, "--verb=list", "--resource=nodes")
	w.kubectl("create", "clusterrolebinding", w.namespace, "--clusterrole="+w.namespace, "--serviceaccount="+w.namespace+":nobody")
	plan("you may not list the pods of all namespaces")
	w.kubectl("create", "clusterrole", w.namespace+"-pods", "--verb=list", "--resource=pods")
	w.kubectl("create", "clusterrolebinding", w.namespace+"-pods", "--clusterrole="+w.namespace+"-pods", "--serviceaccount="+w.namespace+":nobody")
	w.apply(`{apiVersion: v1, kind: Pod, metadata: {name: other}, spec: {containers: [{name: app, image: none}], volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]}}`)
	plan("you may not list persistent volumes and their claims")
}

// No controller runs: a held set is let go, as its user wants it.
func TestCommandRelease(t *testing.T) {
	w := newWorkload(t, options{Spec: "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 2}}"})
	before := w.uids()
	w.setResources("cpu=150m", "")
	if set := w.get(); !held(set) {
		t.Fatal("not held")
	}
	for _, answer := range []string{"n\n", ""} {
		got := command(t, cp.Kubeconfig(), w.namespace, answer, "release", w.ref)
		if got.code != 1 || !strings.Contains(got.stderr, "nothing was released") || !held(w.get()) {
			t.Errorf("answering %q: it ended with %d, held %t: %s", answer, got.code, held(w.get()), got.stderr)
		}
	}
	got := command(t, cp.Kubeconfig(), w.namespace, "y\n", "release", w.ref)
	if want := "the StatefulSet controller will replace 1 pod not of the newest revision: web-2"; got.code != 0 || !strings.Contains(got.stdout, want) {
		t.Errorf("it ended with %d, want %q: %s%s", got.code, want, got.stdout, got.stderr)
	}
	set := w.get()
	if held(set) || *set.Spec.UpdateStrategy.RollingUpdate.Partition != 2 || set.Labels[enabled] != "true" {
		t.Errorf("let go: labels %v, annotations %v, strategy %+v", set.Labels, set.Annotations, set.Spec.UpdateStrategy)
	}
	for _, entry := range set.ManagedFields {
		if fields := entry.FieldsV1.GetRawString(); entry.Manager != "gitops" && strings.Contains(fields, "f:partition") {
			t.Errorf("the partition belongs to %s", entry.Manager)
		}
	}
	w.waitFor("web-2 to be replaced", func(set *appsv1.StatefulSet) bool {
		return set.Status.UpdatedReplicas == 1 && set.Status.AvailableReplicas == 3 && observed(set)
	})
	w.assertReplaced(before, "web-2")
	w.setResources("cpu=160m", "")
	if !held(w.get()) {
		t.Error("the next edit is not held")
	}
	if got := w.run("release", w.ref, "--yes"); got.code != 0 {
		t.Error(got.stderr)
	}
	if got := w.run("release", w.ref, "--yes"); got.code != 0 || got.stdout != "Nothing is held.\n" {
		t.Errorf("once more: it ended with %d: %s%s", got.code, got.stdout, got.stderr)
	}
}

// TestCommandReleaseAll lets go of everything in all namespaces: of a Deployment that
// rolls, and of one that its user has paused meanwhile.
func TestCommandReleaseAll(t *testing.T) {
	w, d, a := newWorkload(t, options{Replicas: 1}), newDeployment(t, options{Replicas: 2}), newDaemonSet(t, options{Replicas: 2})
	d.waitRolledOut()
	before, agents := d.uids(), a.uids()
	w.setResources("cpu=150m", "")
	d.setResources("cpu=150m", "")
	a.setResources("cpu=150m", "")
	if !held(w.get()) || !held(d.get()) || !held(a.get()) {
		t.Fatal("not held")
	}
	got := w.run("release", "--all", "--all-namespaces", "--yes")
	if got.code != 0 || strings.Count(got.stdout, " released\n") != 3 {
		t.Errorf("it ended with %d: %s%s", got.code, got.stdout, got.stderr)
	}
	if set := w.get(); held(set) || *set.Spec.UpdateStrategy.RollingUpdate.Partition != 0 {
		t.Errorf("the set: %v, %+v", set.Annotations, set.Spec.UpdateStrategy)
	}
	if o := d.get(); held(o) || o.Spec.Paused || ownersOf(o, "paused") != "" || o.Labels[enabled] != "true" {
		t.Errorf("the Deployment: %v, paused %t by %q", o.Annotations, o.Spec.Paused, ownersOf(o, "paused"))
	}
	if set := a.get(); held(set) || set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType || ownersOf(set, "type") != "" {
		t.Errorf("the DaemonSet: %v, %+v by %q", set.Annotations, set.Spec.UpdateStrategy, ownersOf(set, "type"))
	}
	d.waitRolledOut()
	d.assertAllReplaced(before)
	a.waitRolledOut()
	a.assertAllReplaced(agents)
	d.setResources("cpu=160m", "")
	if o := d.get(); !held(o) || !o.Spec.Paused {
		t.Error("the Deployment's next edit is not held")
	}
	if got := d.run("release", d.ref, "--yes"); got.code != 0 {
		t.Error(got.stderr)
	}
}

// deploy/ is gone, and what it held is let go all the same.
func TestCommandReleaseWithoutPolicies(t *testing.T) {
	needsPolicies(t)
	w, d, a := newWorkload(t, options{Replicas: 1}), newDeployment(t, options{Replicas: 1}), newDaemonSet(t, options{Replicas: 1})
	w.setResources("cpu=150m", "")
	d.setResources("cpu=150m", "")
	a.setResources("cpu=150m", "")
	install := reinstall(t)
	defer install()
	if err := controller.Uninstall(t.Context(), cp); err != nil {
		t.Fatal(err)
	}
	// The API server goes on applying a policy for a moment after it is deleted.
	eventually(t, "the policies to be out of force", func() (bool, string) {
		w.kubectl("annotate", "--overwrite", w.ref, api.InForceAnnotation+"=nonsense")
		d.kubectl("annotate", "--overwrite", d.ref, api.InForceAnnotation+"=nonsense")
		a.kubectl("annotate", "--overwrite", a.ref, api.InForceAnnotation+"=nonsense")
		kept := []string{w.get().Annotations[api.InForceAnnotation], d.get().Annotations[api.InForceAnnotation], a.get().Annotations[api.InForceAnnotation]}
		return slices.Equal(kept, []string{"nonsense", "nonsense", "nonsense"}), fmt.Sprint(kept)
	})
	if got := w.run("status", w.ref); !strings.Contains(got.stderr, "Warning: rollouts are not made in place, because") ||
		!strings.Contains(got.stderr, "MutatingAdmissionPolicy inplace-rollout-hold-statefulsets is missing: install it with") {
		t.Errorf("status does not warn: %s", got.stderr)
	}
	got := w.run("release", "--all", "-A", "--yes")
	if got.code != 0 || strings.Count(got.stdout, " released\n") != 3 {
		t.Errorf("it ended with %d: %s%s", got.code, got.stdout, got.stderr)
	}
	if set := a.get(); held(set) || set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType {
		t.Errorf("the DaemonSet: %v, %+v", set.Annotations, set.Spec.UpdateStrategy)
	}
	set, o := w.get(), d.get()
	if held(set) || *set.Spec.UpdateStrategy.RollingUpdate.Partition != 0 {
		t.Errorf("the set: %v, %+v", set.Annotations, set.Spec.UpdateStrategy)
	}
	if held(o) || o.Spec.Paused {
		t.Errorf("the Deployment: %v, paused %t", o.Annotations, o.Spec.Paused)
	}
	w.kubectl("rollout", "status", w.ref, "--timeout="+patience.String())
	d.waitRolledOut()
	a.waitRolledOut()
}

// TestCommandsOfDaemonSets: of many nodes, those that are in the same case share a row, and the
// condition says it once.
func TestCommandsOfDaemonSets(t *testing.T) {
	parallel(t)
	const nodes = 24
	tooSmall := []int{2, 5, 9, 12, 17, 20, 23}
	d := newDaemonSet(t, options{Replicas: nodes, Node: small(tooSmall...), Meta: liveOnly, Spec: "updateStrategy: {rollingUpdate: {maxUnavailable: 10}}"})
	before := d.uids()
	for _, i := range tooSmall {
		d.tooSmall(d.on(i).Name)
	}
	d.patch(cpuTwoEdit)
	d.waitCondition("Infeasible", "17 of 24 pods resized")
	_, _, message := complete(d.get())
	if strings.Count(message, "infeasible on node") != 1 || !strings.Contains(message, "; likewise ") || !strings.HasSuffix(message, " and 2 more") {
		t.Errorf("the condition says %q", message)
	}
	table := d.run("status", "ds/web")
	if lines := strings.Count(table.stdout, "\n"); table.code != 2 || lines != 6 || !strings.Contains(table.stdout, " and 5 more") {
		t.Errorf("status ended with %d and wrote %d lines: %s%s", table.code, lines, table.stdout, table.stderr)
	}
	if got := d.run("status", "ds/web", "-o", "wide"); strings.Count(got.stdout, "\n") != nodes+3 {
		t.Errorf("status -o wide: %s%s", got.stdout, got.stderr)
	}
	if foreseen := d.plan(""); foreseen.fates()[rollout.Infeasible] != len(tooSmall) || foreseen.fates()[rollout.Unchanged] != nodes-len(tooSmall) {
		t.Errorf("plan foresees %v", foreseen.fates())
	}
	for _, i := range tooSmall {
		d.largeEnough(d.on(i).Name)
	}
	d.patch(cpuEdit)
	if got := d.run("status", "--watch", "daemonset/web"); got.code != 0 {
		t.Errorf("status --watch ended with %d: %s%s", got.code, got.stdout, got.stderr)
	}
	d.assertMoved(before, "150m")
}

// small has these nodes be too small for two cpus.
func small(which ...int) func(i int) controlplane.Node {
	return func(i int) controlplane.Node {
		if slices.Contains(which, i) {
			return controlplane.Node{CPU: "1500m", Memory: "4Gi"}
		}
		return controlplane.Node{}
	}
}
