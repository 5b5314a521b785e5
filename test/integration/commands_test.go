//go:build integration

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/must"
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
	kubeconfig = must.Get(cp.ServiceAccountKubeconfig(s.t.Context(), s.namespace, "planner", ""))(s.t)
	user = "system:serviceaccount:" + s.namespace + ":planner"
	s.waitAllowed(user, "list", "nodes")
	return kubeconfig, user
}

// planned is what plan prints with -o json, as far as the tests read it.
type planned struct {
	HandOver string `json:"handOver"`
	Pods     []struct {
		Name     string         `json:"name"`
		Forecast judge.Forecast `json:"fate"`
		Reason   string         `json:"reason"`
	} `json:"pods"`
	Summary map[string]int `json:"summary"`
}

// plan asks what an edit would do. It checks that this wrote nothing, not even for show.
func (s *sandbox[W]) plan(manifest string) planned {
	s.t.Helper()
	kubeconfig, user := s.planner()
	result := command(s.t, kubeconfig, s.namespace, manifest, "plan", "-o", "json", "-f", "-")
	if result.code != 0 || result.stderr != "" {
		s.t.Fatalf("plan ended with %d: %s", result.code, result.stderr)
	}
	asked := must.Get(cp.AuditAbout(user, s.mark, controlplane.ByUser(user)))(s.t)
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
		sized := same && !apiequality.Semantic.DeepEqual(was.Spec.Containers[0].Resources, is.Spec.Containers[0].Resources)
		applied := same && len(is.Status.ContainerStatuses) > 0 && is.Status.ContainerStatuses[0].Resources != nil &&
			is.Status.ContainerStatuses[0].Resources.Requests.Cpu().Equal(*is.Spec.Containers[0].Resources.Requests.Cpu())
		var ok bool
		switch foreseen.Forecast {
		case judge.Live:
			ok = sized && applied && restarts == 0
		case judge.ContainerRestart:
			ok = sized && applied && restarts == 1
		case judge.PodRestart:
			ok = !same // a Deployment's is gone
		default: // before 1.36 only the kubelet refuses what the node is too small for, when the spec has the size
			asked := !cp.AtLeast("1.36") && strings.Contains(foreseen.Reason, "it needs 2 cpu")
			ok = same && restarts == 0 && sized == asked && (!asked || !applied)
		}
		if !ok {
			wrong = append(wrong, fmt.Errorf("%s: %s was foreseen, but same pod %t, resized %t, applied %t, %d restarts",
				foreseen.Name, foreseen.Forecast, same, sized, applied, restarts))
		}
	}
	return errors.Join(wrong...)
}

const (
	cpuEdit   = `{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"150m"}}}]}}}}`
	imageEdit = `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"app:2","resources":{"requests":{"cpu":"150m"}}}]}}}}`
	// cpuTwoEdit is too much for a node that is small.
	cpuTwoEdit = `{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"2"},"limits":{"cpu":"2"}}}]}}}}`
)

// prophecy is an edit, and what is foreseen of it.
type prophecy struct {
	name  string
	of    options
	patch string
	want  map[judge.Forecast]int
	why   string // in some pod's reason, if not empty
	end   string // reason of the condition at last; Complete if empty
}

const cpuRestarts = base + ", resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]"

// TestCommandPlan: what plan foresees comes true. What it foresees, and says of it, is proved in cmd/inplace-rollout.
func TestCommandPlan(t *testing.T) {
	parallel(t)
	for _, p := range []prophecy{
		{name: "live", patch: cpuEdit, want: map[judge.Forecast]int{judge.Live: 3}},
		{name: "container restart", of: options{Resources: cpuRestarts}, patch: cpuEdit, want: map[judge.Forecast]int{judge.ContainerRestart: 3}},
		{name: "a node that is too small", of: options{Pod: pool(t, "foreseen", "1500m", "4", "4")}, patch: cpuTwoEdit,
			want: map[judge.Forecast]int{judge.Live: 2, judge.PodRestart: 1}, why: "on node foreseen-0: it needs 2 cpu; the node has 1.5"},
	} {
		t.Run("StatefulSet/"+p.name, func(t *testing.T) {
			parallel(t)
			w := newWorkload(t, p.of)
			if p.want[judge.PodRestart] > 0 {
				addToPool(t, "foreseen", "foreseen-new", "4")
			}
			testProphecy(t, p, w.sandbox)
		})
	}
	t.Run("StatefulSet/removed by server-side apply", func(t *testing.T) {
		parallel(t)
		w := newWorkload(t, options{Replicas: 1})
		w.waitComplete()
		manifest := func(limits string) string {
			return `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: web, namespace: ` + w.namespace + `, labels: {inplace-rollout.io/enabled: 'true'}}, spec: {serviceName: web, selector: {matchLabels: {app: web}}, ` +
				`template: {metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: ` + w.get().Spec.Template.Spec.Containers[0].Image +
				`, resources: {requests: {cpu: 100m, memory: 100Mi}` + limits + `}}]}}}}`
		}
		file := filepath.Join(t.TempDir(), "web.yaml")
		must.Do(t, os.WriteFile(file, []byte(manifest(", limits: {cpu: 300m, memory: 300Mi}")), 0o600)) // other values are its own
		w.kubectl("apply", "--server-side", "--force-conflicts", "--field-manager=gitops", "-f", file)
		w.waitComplete()
		got := command(t, cp.Kubeconfig(), w.namespace, manifest(""), "plan", "--fail-on=restart", "-f", "-")
		if got.code != 3 || !strings.Contains(got.stdout, "app: the memory limit is removed") {
			t.Errorf("plan ended with %d: %s%s", got.code, got.stdout, got.stderr)
		}
		refused := strings.ReplaceAll(manifest(""), "cpu: 100m", "cpu: 100x")
		if got := command(t, cp.Kubeconfig(), w.namespace, refused, "plan", "-f", "-"); got.code != 1 {
			t.Errorf("plan of what no API server takes ended with %d: %s%s", got.code, got.stdout, got.stderr)
		}
		above := manifest(", limits: {cpu: 50m, memory: 200Mi}")
		if got := command(t, cp.Kubeconfig(), w.namespace, above, "plan", "-f", "-"); got.code != 1 || !strings.Contains(got.stderr, "must be less than or equal to cpu limit of 50m") {
			t.Errorf("plan of a request above its limit ended with %d: %s%s", got.code, got.stdout, got.stderr)
		}
	})
	t.Run("Deployment/image", func(t *testing.T) {
		parallel(t)
		p := prophecy{patch: imageEdit, want: map[judge.Forecast]int{judge.PodRestart: 3}, why: "spec.containers[app].image"}
		testProphecy(t, p, newDeployment(t, p.of).sandbox)
	})
	for _, p := range []prophecy{
		{name: "on delete", of: options{Spec: "updateStrategy: {type: OnDelete}", Meta: "annotations: {" + setPolicy + ": cpu=RestartOnly}"}, patch: cpuEdit,
			want: map[judge.Forecast]int{judge.AfterDelete: 3}, end: "WaitingForDelete"},
		{name: "a node that is too small", of: options{Node: func(i int) controlplane.Node {
			return map[bool]controlplane.Node{true: {CPU: "1500m", Memory: "4Gi"}}[i == 2] // too small for two cpus
		}}, patch: cpuTwoEdit, end: "NoNodeFits",
			want: map[judge.Forecast]int{judge.Live: 2, judge.Infeasible: 1}, why: "it needs 2 cpu"},
	} {
		t.Run("DaemonSet/"+p.name, func(t *testing.T) {
			parallel(t)
			testProphecy(t, p, newDaemonSet(t, p.of).sandbox)
		})
	}
}

// testProphecy asks for the plan of an edit, makes the edit, and compares.
func testProphecy[W metav1.Object](t *testing.T, p prophecy, s *sandbox[W]) {
	t.Helper()
	s.waitComplete()
	manifest := s.kubectl("patch", s.ref, "--patch", p.patch, "--dry-run=client", "-o", "yaml")
	foreseen := s.plan(manifest)
	got := map[judge.Forecast]int{}
	for _, pod := range foreseen.Pods {
		got[pod.Forecast]++
	}
	if !maps.Equal(got, p.want) {
		t.Fatalf("plan foresees %v, want %v: %+v", got, p.want, foreseen)
	}
	if p.why != "" && !strings.Contains(fmt.Sprint(foreseen), p.why) {
		t.Errorf("plan does not say %q: %+v", p.why, foreseen)
	}
	code := 0
	if p.want[judge.PodRestart]+p.want[judge.ContainerRestart]+p.want[judge.AfterDelete] > 0 {
		code = 3
	}
	if got := command(t, cp.Kubeconfig(), s.namespace, manifest, "plan", "--fail-on=restart", "-f", "-"); got.code != code {
		t.Errorf("plan --fail-on=restart ended with %d, want %d: %s%s", got.code, code, got.stdout, got.stderr)
	}

	for _, pod := range foreseen.Pods {
		if strings.Contains(pod.Reason, "it needs 2 cpu") {
			s.tooSmall(pod.Name)
		}
	}
	before := s.pods()
	s.patch(p.patch)
	if p.end == "" {
		s.waitComplete()
	} else {
		s.waitCondition(p.end, "")
	}
	eventually(t, "what plan has foreseen", func() (bool, string) {
		err := foreseen.holds(before, s.pods())
		return err == nil, must.Said(err)
	})
}
