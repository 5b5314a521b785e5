package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/deployment"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/golden"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// asked gives the pods the new size, which the kubelet has not done yet.
func (s *stage) asked(i int, change ...func(*corev1.Pod)) {
	build.WithSize(&s.set.Spec.Template)(s.pods[i])
	build.ResizedAt(build.Start)(s.pods[i])
	for _, f := range change {
		f(s.pods[i])
	}
}

// now is when commands look, however long the tests before have taken.
var now = time.Now().Truncate(time.Second)

func condition(kind corev1.PodConditionType, reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		build.Condition(kind, reason, message)(pod)
		pod.Status.Conditions[len(pod.Status.Conditions)-1].LastTransitionTime.Time = now.Add(-90 * time.Second)
	}
}

func observed(pod *corev1.Pod) { pod.Status.ObservedGeneration = pod.Generation }

// statesStage has a pod in every state.
func statesStage(t *testing.T) *stage {
	t.Helper()
	s := newSetStage(t, 9)
	s.heldAt(t, larger)
	s.updated(8)
	s.asked(7)
	s.asked(6, observed)
	s.asked(5, condition(corev1.PodResizeInProgress, "", ""), observed)
	s.asked(4, condition(corev1.PodResizePending, "Deferred", "Node didn't have enough resource: cpu"), observed)
	s.asked(3, condition(corev1.PodResizeInProgress, "Error", "memory limit below what is in use"), observed)
	s.asked(2, condition(corev1.PodResizePending, "Infeasible", "Node didn't have enough capacity: cpu"), observed)
	s.pods[1].DeletionTimestamp = ptr.To(s.pods[1].Status.Conditions[0].LastTransitionTime)
	s.pods[1].Finalizers = []string{"test/keep"} // the fake refuses deleted objects without
	return s
}

// guardedStage has the first of three pods have the size, as a guarded rollout says.
func guardedStage(t *testing.T, said rollout.Condition) *stage {
	t.Helper()
	s := newSetStage(t, 3)
	s.heldAt(t, larger)
	s.set.Annotations[api.CanaryAnnotation], s.set.Annotations[api.CanaryDurationAnnotation] = "1", "10m"
	build.Resized(&s.set.Spec.Template)(s.pods[2])
	build.ResizedAt(now.Add(-time.Minute))(s.pods[2])
	said.Total, said.Version = 3, rollout.RevisionNamed("web-b")
	s.recorded(rollout.Record{Phase: said.Phase, Of: said.Version, From: "web-a", Failed: said.Why}, s.pods[2])
	s.set.Status.Conditions[0].Reason, s.set.Status.Conditions[0].Message = said.Reason, said.Message()
	return s
}

func canaryStage(t *testing.T) *stage {
	t.Helper()
	return guardedStage(t, rollout.Condition{
		Reason: judge.ReasonProgressing, Phase: rollout.PhaseCanary, Details: "; web-2: waiting until it has been Ready at its new size for 10m0s",
	})
}

var malformedStage = changed(heldStage, func(s *stage) {
	s.set.Annotations[api.ResizeActionAnnotation] = "Live"
	s.set.Annotations[api.InForceAnnotation] = "Live;"
})

// manualStage has a canary with its size that somebody has to promote.
func manualStage(t *testing.T) *stage {
	t.Helper()
	s := canaryStage(t)
	s.set.Annotations[api.CanaryDurationAnnotation] = "manual"
	return s
}

// removedStage has a pod that keeps a limit that was removed: it may not be restarted.
func removedStage(t *testing.T) *stage {
	t.Helper()
	s := newSetStage(t, 1)
	s.heldAt(t, "requests: {cpu: 100m, memory: 100Mi}, limits: {memory: 1Gi}")
	s.set.Annotations[api.InForceAnnotation] = "LiveResize;"
	return s
}

// infeasibleStage has a pod that can have its size neither in place nor by a restart.
func infeasibleStage(t *testing.T) *stage {
	t.Helper()
	s := newSetStage(t, 1)
	s.heldAt(t, larger)
	s.set.Annotations[api.InForceAnnotation] = "LiveResize;"
	s.asked(0, condition(corev1.PodResizePending, "Infeasible", "Node didn't have enough capacity: cpu"), observed)
	return s
}

// Whoever may not list nodes does not know the sizes of pods that have that of their node's class.
func TestClassesWithoutNodes(t *testing.T) {
	s := newDaemonSetStage(t, 2)
	s.daemons.Annotations[api.NodeResourcesAnnotation] = `[{"nodeSelector": {"size": "l"}, "containers": {"app": {"requests": {"cpu": "300m"}}}}]`
	hide := func(c *cluster) *cluster {
		c.client.(*fake.Clientset).PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", nil)
		})
		return c
	}
	var out bytes.Buffer
	o := statusOptions{cluster: hide(s.cluster(t))}
	must.Do(t, o.run(t.Context(), &out, &out, nil))
	golden.Assert(t, "status-classes-without-nodes.txt", out.Bytes())
	c := &s.daemons.Status.Conditions[0]
	c.Status, c.Reason = corev1.ConditionFalse, judge.ReasonInfeasible
	o.cluster = hide(s.cluster(t))
	must.Equal(t, exitCode(o.run(t.Context(), io.Discard, io.Discard, nil)), 3, "exit code where the condition says that it is stopped")
	out.Reset()
	p := planOptions{cluster: hide(s.cluster(t)), failOn: []string{failUnknown}}
	after := must.Get(newEdit(t.Context(), s.live(t), manifest(t, "DaemonSet", "", larger), ""))(t).sent
	must.Equal(t, exitCode(p.runEdits(t.Context(), &out, []edit{{live: s.live(t), after: after}})), 3, "exit code of plan")
	golden.Assert(t, "plan-classes-without-nodes.txt", out.Bytes())
}

func stoppedStage(t *testing.T) *stage {
	t.Helper()
	return guardedStage(t, rollout.Condition{
		Reason: judge.ReasonResizeFailed, Phase: rollout.PhaseStopped, Updated: 1, Why: "web-2 failed: container app was OOMKilled after 4s, at its memory limit of 1Gi",
	})
}

// believedStage has a set that is said to be Complete, and has another template than its pods.
func believedStage(t *testing.T) *stage {
	t.Helper()
	s := newSetStage(t, 2)
	said := s.set.Status.Conditions[0]
	s.heldAt(t, larger)
	delete(s.set.Annotations, api.HoldAnnotation)
	s.set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To[int32](0)
	s.set.Status.Conditions[0] = said
	return s
}

// manyStage has 24 pods on as many nodes: some have no room for the new size, one is too small.
func manyStage(t *testing.T) *stage {
	t.Helper()
	s := newSetStage(t, 24)
	s.heldAt(t, larger)
	s.nodes = nil
	for i, pod := range s.pods {
		pod.Spec.NodeName = fmt.Sprintf("node-%d", i)
		s.nodes = append(s.nodes, node(pod.Spec.NodeName, "4"))
		switch {
		case i == 3:
			s.asked(i, condition(corev1.PodResizePending, "Infeasible", "Node didn't have enough capacity: cpu"), observed)
		case i%3 == 0:
			s.asked(i, condition(corev1.PodResizePending, "Deferred", fmt.Sprintf("Node didn't have enough resource: cpu, requested: 200, used: %d, capacity: 4000", 3900+i)), observed)
			pod.Status.Conditions[len(pod.Status.Conditions)-1].LastTransitionTime.Time = now.Add(time.Duration(-i) * 10 * time.Second)
		case i > 20:
			s.updated(i)
		}
	}
	return s
}

func reportsOf(t *testing.T, s *stage) []statusReport {
	t.Helper()
	o := statusOptions{cluster: s.cluster(t)}
	return must.Get(o.reports(t.Context(), nil))(t)
}

func TestStatus(t *testing.T) {
	resized := regexp.MustCompile(`(\d+) of (\d+) pods resized`)
	for name, s := range map[string]func(*testing.T) *stage{
		"complete": setOf(2),
		"states":   statesStage,
		// By the flags of the controller, which it says beside its heartbeat.
		"restart-only": heldSetOf(1, heartbeat("default-resource-resize-policy=RestartOnly", "")),
		"no-checks":    heldSetOf(2, heartbeat("", ""), guarded("latency")),
		"progress-behind": heldSetOf(3, func(s *stage) {
			s.set.Status.Conditions[0].Message = "0 of 3 pods resized; web-2: resizing: app: cpu request 100m→200m"
			s.updated(2)
			s.asked(1)
		}),
		"proving": heldSetOf(3, func(s *stage) {
			s.set.Spec.MinReadySeconds = 600
			s.updated(1, 2)
			build.ResizedAt(now.Add(-time.Hour))(s.pods[2])
			build.ResizedAt(now.Add(-5 * time.Minute).Add(10 * time.Second))(s.pods[1])
		}),
		"proving-guarded": heldSetOf(2, func(s *stage) {
			s.set.Status.Conditions[0].Message = "0 of 2 pods resized; web-1: waiting until it has been Ready at its new size for 1m0s; likewise web-0"
			s.updated(0, 1)
		}),
		// What the condition says may be behind by seconds, and no word of it stands beside a table that says something else.
		"all-done-behind": heldSetOf(3, func(s *stage) {
			s.set.Status.Conditions[0].Message = "2 of 3 pods resized; web-0: resizing: app: cpu request 100m→200m"
			s.updated(0, 1, 2)
		}),
		"deferred-behind": heldSetOf(2, func(s *stage) {
			s.set.Status.Conditions[0].Reason, s.set.Status.Conditions[0].Message = "Deferred", "0 of 2 pods resized; web-1: deferred on node node: no room"
			s.set.Status.Conditions[0].LastTransitionTime.Time = now.Add(-time.Minute)
			s.set.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: api.FieldManager, Subresource: "status", Time: ptr.To(metav1.NewTime(now.Add(-10 * time.Second)))}}
			s.updated(1)
		}),
		"quota": heldSetOf(3, func(s *stage) {
			s.set.Status.Conditions[0].Reason, s.set.Status.Conditions[0].Message = "QuotaExceeded", "1 of 3 pods resized; web-1: exceeded quota: team, requested: requests.cpu=100m, used: requests.cpu=400m, limited: requests.cpu=400m"
			s.updated(2)
			s.quota("400m")
		}),
		"admission": heldSetOf(2, func(s *stage) { // what only the controller has heard
			s.set.Status.Conditions[0].Reason, s.set.Status.Conditions[0].Message = "AdmissionDenied", "0 of 2 pods resized; web-1: a webhook says no"
		}),
		"newer-edit":       setOf(1, func(s *stage) { s.set.Generation = 2 }),
		"silent":           setOf(1, func(s *stage) { s.set.Status.Conditions = nil }),
		"malformed":        malformedStage,
		"complete-unready": setOf(2, func(s *stage) { build.NotReady(s.pods[1]) }),
		"complete-behind":  believedStage,
		"kept-back": changed(believedStage, func(s *stage) {
			s.set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To[int32](1)
			s.updated(1)
		}),
		"kept-back-unmarked": changed(believedStage, func(s *stage) { // it was raised before the pod was marked
			s.set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To[int32](1)
			s.updated(0, 1)
			s.pods[0].Labels["controller-revision-hash"] = "web-a"
		}),
		"deployment":      deploymentOf(2),
		"deployment-held": heldDeploymentOf(3, func(s *stage) { s.resized(2) }),
		"deployment-canary": heldDeploymentOf(3, func(s *stage) {
			s.resized(2)
			s.deploy.Annotations[api.CanaryAnnotation], s.deploy.Annotations[api.CanaryDurationAnnotation] = "1", "10m"
			s.recorded(rollout.Record{Phase: rollout.PhaseCanary, Of: rollout.EditNamed("5209"), From: "a"}, s.pods[2])
		}),
		"deployment-refused": heldDeploymentOf(3, func(s *stage) { // all have been asked
			s.deploy.Status.Conditions[0].Reason, s.deploy.Status.Conditions[0].Message = "AdmissionDenied", "0 of 3 pods resized; web-2: a policy says no; likewise web-1, web-0"
		}),
		"deployment-detached": heldDeploymentOf(2, func(s *stage) { s.resized(1); s.detached("web-old-0") }),
		// A pause that is wished for in the middle counts from the end.
		"deployment-pause": heldDeploymentOf(3, func(s *stage) {
			s.resized(2)
			s.deploy.Annotations[api.HoldAnnotation] = "true"
		}),
		"deployment-kept": func(t *testing.T) *stage {
			s := heldDeploymentOf(2)(t)
			s.deploy.Annotations[api.InForceAnnotation] = "LiveResize;"
			s.replicaSet(t, "web-b", "2", larger, 2)
			s.others[len(s.others)-1].(metav1.Object).GetAnnotations()[api.HoldAnnotation] = "false" // the Deployment controller has seen it
			return s
		},
		"daemonset": heldDaemonSetOf(4, func(s *stage) {
			build.Resized(&s.daemons.Spec.Template)(s.pods[0])
			s.pods[0].Labels["controller-revision-hash"] = "b"
			build.WithSize(&s.daemons.Spec.Template)(s.pods[1])
			condition(corev1.PodResizePending, "Deferred", "Node didn't have enough resource: cpu")(s.pods[1])
		}),
		"canary": canaryStage, "stopped": stoppedStage,
		// Nobody who looks has seen that the canary has been well for long enough.
		"canary-passed": changed(canaryStage, func(s *stage) {
			s.updated(2)
			s.pods[2].ManagedFields = nil
			build.ResizedAt(now.Add(-time.Hour))(s.pods[2])
			judge.ConditionReady(s.pods[2]).LastTransitionTime = metav1.NewTime(now.Add(-time.Hour))
			s.recorded(rollout.Record{Phase: rollout.PhaseRolling, Of: rollout.RevisionNamed("web-b"), From: "web-a"})
		}),
		"canary-anew": changed(canaryStage, func(s *stage) { // a new leader does not know for how long it has been well
			build.Resized(&s.set.Spec.Template)(s.pods[1])
			build.ResizedAt(now.Add(-time.Hour))(s.pods[1])
			judge.ConditionReady(s.pods[1]).LastTransitionTime = metav1.NewTime(now.Add(-time.Hour))
			s.recorded(rollout.Record{Phase: rollout.PhaseRolling, Of: rollout.RevisionNamed("web-b"), From: "web-a"})
		}),
		"reverted-restart": heldSetOf(3, func(s *stage) {
			s.updated(2)
			s.set.Annotations[api.OnFailureAnnotation], s.set.Annotations[api.ResizeActionAnnotation], s.set.Annotations[api.CanaryAnnotation] = "Revert", "Restart", "1"
			s.recorded(rollout.Record{Phase: rollout.PhaseReverted, Of: rollout.RevisionNamed("web-b"), From: "web-a", Failed: "web-2 failed: OOMKilled"}, s.pods[2])
			s.set.Status.Conditions[0].Reason = "Reverted"
		}),
		"unattended": heldSetOf(2, func(s *stage) {
			s.report.Controller = errors.New("no controller is ready")
			s.updated(1)
			s.pods[1].Labels["controller-revision-hash"] = "web-a"
		}),
		// A pod that has gone back, and is not available, has the others wait that are to go back.
		"reverting-blocked": heldSetOf(4, func(s *stage) {
			s.updated(1, 2, 3)
			build.ResizedAt(now.Add(-time.Minute))(s.pods[3])
			build.Resized(build.Size(t, size))(s.pods[3])
			build.NotReady(s.pods[3])
			s.pods[3].Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-time.Minute / 2)) // since it has gone back
			s.pods[3].Labels["controller-revision-hash"] = "web-a"
			s.set.Annotations[api.OnFailureAnnotation], s.set.Annotations[api.CanaryAnnotation] = "Revert", "3"
			s.recorded(rollout.Record{Phase: rollout.PhaseReverting, Of: rollout.RevisionNamed("web-b"), From: "web-a", Failed: "web-3 failed: OOMKilled"})
			s.set.Status.Conditions[0].Reason = "ResizeFailed"
		}),
		"canary-blocked": heldSetOf(2, func(s *stage) {
			s.pods[0].DeletionTimestamp, s.pods[0].Finalizers = ptr.To(metav1.NewTime(now)), []string{"test/keep"}
			s.set.Annotations[api.CanaryAnnotation] = "1"
			s.recorded(rollout.Record{Phase: rollout.PhaseCanary, Of: rollout.RevisionNamed("web-b"), From: "web-a"})
		}),
		"canary-back": changed(canaryStage, func(s *stage) {
			s.recorded(rollout.Record{Phase: rollout.PhaseRolling, Of: rollout.RevisionNamed("web-b"), From: "web-b"})
		}),
		"many": manyStage,
		"none": setOf(1, func(s *stage) { s.set.Labels = nil }),
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			reports := reportsOf(t, s(t))
			must.Do(t, (statusView{}).print(&out, reports, now))
			golden.Assert(t, "status-"+name+".txt", out.Bytes())
			out.Reset()
			must.Do(t, (statusView{brief: true}).print(&out, reports, now))
			for _, r := range reports {
				if said := resized.FindStringSubmatch(r.Message); said != nil && !strings.Contains(out.String(), " "+said[1]+"/"+said[2]+" ") {
					t.Errorf("not what %q says:\n%s", said[0], &out)
				}
				if c := r.Condition; (c != nil) != strings.Contains(out.String(), "the condition says ") || c != nil && !strings.Contains(out.String(), " "+c.Reason+"; ") {
					t.Errorf("of the condition %+v its row says\n%s", c, &out)
				}
				for _, p := range r.Pods {
					if p.pending() && p.why() == "" {
						t.Errorf("%s is %s, and does not say why", p.Name, p.State)
					}
				}
			}
		})
	}
}

// distantStage has pods and nodes with names as clouds give them.
func distantStage(t *testing.T) *stage {
	t.Helper()
	s := manyStage(t)
	s.set.Name = "checkout-frontend-of-the-shop"
	for i, pod := range s.pods {
		pod.Name = fmt.Sprintf("%s-%d", s.set.Name, i)
		pod.Spec.NodeName = fmt.Sprintf("ip-10-0-%d-17.eu-central-1.compute.internal", i)
		s.nodes[i].Name = pod.Spec.NodeName
	}
	return s
}

// What people see is as wide as their terminal.
func TestStatusWidths(t *testing.T) {
	for name, s := range map[string]*stage{"states": statesStage(t), "many": manyStage(t), "distant": distantStage(t)} {
		reports := reportsOf(t, s)
		other := reports[0]
		other.Workload.Namespace, other.Reason, other.Message = "payments", "Deferred", "4 of 24 pods resized; "+other.Pods[1].Name+": deferred on node node-21: Node didn't have enough resource: cpu"
		for _, width := range []int{80, 120, 200} {
			for of, view := range map[string]statusView{name: {}, name + "-all": {brief: true}} {
				var out bytes.Buffer
				must.Do(t, view.print(cli.Page{Writer: &out, Width: width}, []statusReport{reports[0], other}, now))
				golden.Assert(t, fmt.Sprintf("status-%s-%d.txt", of, width), out.Bytes())
				for line := range strings.Lines(out.String()) {
					if got := utf8.RuneCountInString(strings.TrimRight(line, "\n")); got > width {
						t.Errorf("%s at %d columns: a line has %d: %s", of, width, got, line)
					}
				}
			}
		}
	}
}

// status lists the detached pods that nothing owns.
func TestStatusListsUnownedPods(t *testing.T) {
	s := newDeploymentStage(t, 3)
	detach(s, 0)
	detach(s, 1)
	s.pods[1].OwnerReferences = nil
	var out bytes.Buffer
	must.Do(t, s.cluster(t).warnOfUnowned(t.Context(), &out, ""))
	must.Equal(t, out.String(), fmt.Sprintf("Warning: pod/%s (namespace default): %s\n", s.pods[1].Name, deployment.Unowned), "what it printed")
}

// Who reads lines has one for each pod, as wide as it is.
func TestStatusWideInAPipe(t *testing.T) {
	var out bytes.Buffer
	must.Do(t, (statusView{format: cli.Wide, brief: true}).print(&out, reportsOf(t, distantStage(t)), now))
	found := 0
	for line := range strings.Lines(out.String()) {
		if columns := utf8.RuneCountInString(line); columns > 280 && strings.HasPrefix(line, "checkout") {
			t.Errorf("a pod has %d columns: %s", columns, line)
		}
		if strings.HasPrefix(line, "checkout-frontend-of-the-shop-") && strings.Contains(line, "PodResizePending/Deferred") && strings.Contains(line, "capacity: 4000") {
			found++
		}
	}
	must.Equal(t, found, 7, "lines that say of a pod what it waits for, in %s", &out)
}

// Words have colors on a terminal, and a line that is cut has none.
func TestStatusColors(t *testing.T) {
	var out bytes.Buffer
	must.Do(t, (statusView{}).print(cli.Page{Writer: &out, Width: 100, Colors: true}, reportsOf(t, statesStage(t)), now))
	for _, want := range []string{string(cli.Good) + "Done\x1b[0m", string(cli.Bad) + "Infeasible\x1b[0m", string(cli.Waiting) + "Requested\x1b[0m"} {
		must.Contain(t, out.String(), want, "what it says")
	}
	for width, want := range map[int]string{9: string(cli.Good) + "Done\x1b[0m here\n", 6: "Done …\n"} {
		if got := cut(string(cli.Good)+"Done\x1b[0m here\n", func() (int, int) { return width, 10 }); got[0] != want {
			t.Errorf("at %d columns: %q, want %q", width, got[0], want)
		}
	}
}

// Programs that watch get each workload once, and again when something changes.
func TestStatusStream(t *testing.T) {
	for format, want := range map[cli.Format]string{"json": "{\"kind\":\"RolloutStatus\"", "yaml": "---\napiVersion: inplace-rollout.io/v1alpha1\n"} {
		s := newSetStage(t, 2)
		s.heldAt(t, larger)
		before := reportsOf(t, s)
		s.asked(1, observed)
		var out bytes.Buffer
		screen := newScreen(&out, statusView{format: format})
		for _, reports := range [][]statusReport{before, before, reportsOf(t, s)} {
			must.Do(t, screen.show(reports, now))
		}
		must.Do(t, screen.trouble(io.ErrUnexpectedEOF))
		if got := strings.Count(out.String(), want); got != 2 || !strings.HasPrefix(out.String(), want) {
			t.Errorf("%s: %d documents, want 2:\n%s", format, got, &out)
		}
	}
}

// A watch ends when its time is up, and says so.
func TestStatusTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := statusOptions{cluster: heldStage(t).cluster(t), watch: true, timeout: time.Millisecond}
		o.flags = genericclioptions.NewConfigFlags(true)
		ctx, cancel := o.within(t.Context(), o.timeout)
		defer cancel()
		var complaints bytes.Buffer
		if code := exitCode(o.run(ctx, &bytes.Buffer{}, &complaints, nil)); code != 2 || complaints.String() != "Error: not complete after 1ms\n" {
			t.Errorf("it ended with %d, and said %q", code, &complaints)
		}
	})
}

// Who waits also stops in time where the API server does not answer: it would take the command minutes to find that out.
func TestStatusOfASilentServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(server.Close)
	for args, want := range map[string]int{"status --watch": 1, "status --watch sts/web": 1, "check --wait": 2} {
		root := newRoot(strings.Fields("inplace-rollout " + args + " --timeout=1s --server=" + server.URL))
		root.SetOut(&bytes.Buffer{})
		root.SetErr(&bytes.Buffer{})
		start := time.Now()
		if code := exitCode(execute(t.Context(), root)); code != want || time.Since(start) > 15*time.Second {
			t.Errorf("%s ended with %d after %s", args, code, time.Since(start))
		}
	}
}

// A selector selects among what is opted in.
func TestStatusOfSelected(t *testing.T) {
	for selector, want := range map[string]int{"": 1, "team=shop": 1, "team!=shop": 0, "team in (shop, pay)": 1, api.EnabledLabel + "!=true": 0} {
		s := newSetStage(t, 1)
		s.set.Labels["team"] = "shop"
		o := statusOptions{cluster: s.cluster(t), selector: selector}
		must.Equal(t, len(must.Get(o.reports(t.Context(), nil))(t)), want, "what %q selects", selector)
		for o.all = range map[bool]bool{false: true, true: true} {
			where, out := map[bool]string{false: " in default namespace"}[o.all], &bytes.Buffer{}
			err := o.run(t.Context(), out, out, nil)
			if said := "No workloads found" + where + ": none that the selector " + selector + " selects is opted in.\n"; err != nil || (out.String() == said) != (want == 0) {
				t.Errorf("%q: it ends with %v: %s", selector, err, out)
			}
		}
	}
}

// A pod that is to be restarted is kept if no node has room, as far as that may be seen.
func TestStatusWithoutRoom(t *testing.T) {
	const infeasible = "infeasible on node node: Node didn't have enough capacity: cpu"
	for _, tt := range []struct {
		what      string
		cpu       string // of the node
		others    int    // that are there, with 100m each; fewer than none are in another namespace
		forbidden bool
		said      string // as the condition's reason
		want      string
	}{
		{"there is room", "300m", 1, false, "Progressing", "restarting: " + infeasible},
		{"another pod has the room", "299m", 1, false, "Progressing", "NoNodeFits: not restarted, because the only node that is large enough has no room beside its pods: " + infeasible},
		{"the node is too small", "199m", 0, false, "Progressing", "NoNodeFits: not restarted, because it needs 200m cpu; the only node that it can run on has 199m: " + infeasible},
		{"a pod of another namespace has the room", "299m", -1, false, "Progressing", "NoNodeFits: not restarted, because the only node that is large enough has no room beside its pods: " + infeasible},
		{"the nodes may not be seen", "199m", 1, true, "Progressing", "restarting: " + infeasible},
		{"the nodes may not be seen, but the controller sees them", "199m", 1, true, "NoNodeFits", "NoNodeFits: not restarted: " + infeasible},
		{"there is room by now", "300m", 1, false, "NoNodeFits", "restarting: " + infeasible},
		{"a budget is in the way", "300m", 1, false, "DisruptionBudget", "DisruptionBudget: restarting: " + infeasible + "; not evicted yet"},
	} {
		s := newSetStage(t, 1)
		s.heldAt(t, larger)
		s.asked(0, condition(corev1.PodResizePending, "Infeasible", "Node didn't have enough capacity: cpu"), observed)
		s.nodes, s.set.Status.Conditions[0].Reason = []*corev1.Node{node("node", tt.cpu)}, tt.said
		for i := range max(tt.others, -tt.others) {
			other := build.Pod(fmt.Sprint("other-", i), build.Size(t, size))
			if tt.others < 0 {
				other.Namespace = "elsewhere"
			}
			s.pods = append(s.pods, other)
		}
		o := statusOptions{cluster: s.cluster(t)}
		if tt.forbidden {
			o.client.(*fake.Clientset).PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", nil)
			})
		}
		reports := must.Get(o.reports(t.Context(), nil))(t)
		reason, _, kept := strings.Cut(strings.Replace(tt.want, ": restarting", ": not", 1), ": not")
		if got := reports[0].Pods[0].why(); got != tt.want || kept != (reports[0].Reason == reason) {
			t.Errorf("%s: got %s and %q, want %q", tt.what, reports[0].Reason, got, tt.want)
		}
	}
}

func TestStatusFormats(t *testing.T) {
	for _, format := range []cli.Format{"json", "yaml"} {
		var out bytes.Buffer
		must.Do(t, (statusView{format: format}).print(&out, reportsOf(t, heldStage(t)), now))
		golden.Assert(t, "status."+string(format), out.Bytes())
		for name, s := range map[string]*stage{"canary": canaryStage(t), "stopped": stoppedStage(t)} {
			out.Reset()
			reports := reportsOf(t, s)
			if at := reports[0].Pods[0].Proved; (at != nil) != (name == "canary") {
				t.Errorf("%s: web-2 is proved at %v", name, at)
			} else if at != nil {
				at.Time = build.Start
			}
			for _, c := range reports[0].Rollout.Canaries {
				c.Done.Time, c.Well.Time = build.Start, build.Start
			}
			must.Do(t, (statusView{format: format}).print(&out, reports, now))
			golden.Assert(t, "status-"+name+"."+string(format), out.Bytes())
		}
		out.Reset()
		if err := (statusView{format: format}).print(&out, []statusReport{}, now); err != nil || !strings.Contains(out.String(), `items`) || !strings.Contains(out.String(), `[]`) {
			t.Errorf("no workload in %s: %q, %v", format, out.String(), err)
		}
	}
}

// Whoever may not see what the condition rests on is told the same as whoever may.
func TestStatusExitCode(t *testing.T) {
	small := func(reason, action, message string) func(*stage) {
		return func(s *stage) {
			s.nodes = []*corev1.Node{node("node", "150m")}
			s.set.Annotations[api.InForceAnnotation] = action + ";"
			s.set.Status.Conditions[0].Reason, s.set.Status.Conditions[0].Message = reason, message
		}
	}
	onlyLive := func(message string) func(*stage) { return small(judge.ReasonInfeasible, "LiveResize", message) }
	for _, tt := range []struct {
		what  string
		stage *stage
		watch bool
		want  int
	}{
		{"complete", newSetStage(t, 1), false, 0},
		{"complete, watched", newSetStage(t, 1), true, 0},
		{"held", heldStage(t), false, 2},
		{"the condition is behind the pods", believedStage(t), false, 2},
		{"the canary is under way", canaryStage(t), false, 2},
		{"the canary waits to be promoted", manualStage(t), false, 3},
		{"it has still to be Ready for a while", changed(manualStage, func(s *stage) {
			r := must.Get(rollout.ReadRecord(s.set.Annotations))(t)
			r.Canaries[0].Well.Time = now.Add(-time.Second)
			s.recorded(*r)
		})(t), false, 2},
		{"it was not Ready before, and is not", changed(manualStage, func(s *stage) {
			r := must.Get(rollout.ReadRecord(s.set.Annotations))(t)
			r.Canaries[0].Unready, r.Canaries[0].Well = true, nil
			s.recorded(*r)
			build.NotReady(s.pods[2])
		})(t), false, 2},
		{"its successor has yet to come", changed(manualStage, func(s *stage) {
			s.pods[2].DeletionTimestamp, s.pods[2].Finalizers = ptr.To(metav1.NewTime(now)), []string{"test/keep"}
		})(t), false, 2},
		{"another canary is to be asked", changed(manualStage, func(s *stage) { s.set.Annotations[api.CanaryAnnotation] = "2" })(t), false, 2},
		{"the kubelet has still to apply it", changed(manualStage, func(s *stage) { s.asked(2) })(t), false, 2},
		{"stopped", stoppedStage(t), false, 3},
		{"deferred", heldSetOf(1, func(s *stage) {
			s.asked(0, condition(corev1.PodResizePending, "Deferred", "Node didn't have enough resource: cpu"), observed)
		})(t), false, 2},
		{"infeasible, and nothing may restart", infeasibleStage(t), false, 3},
		{"infeasible on its node, and another pod is deferred", heldSetOf(2, onlyLive("0 of 2 pods resized; web-1: infeasible on node node"), func(s *stage) {
			s.asked(0, condition(corev1.PodResizePending, "Deferred", "Node didn't have enough resource: cpu"), observed)
		})(t), false, 2},
		{"all are infeasible on their node", heldSetOf(2, onlyLive("0 of 2 pods resized; web-1: infeasible on node node; likewise web-0"))(t), false, 3},
		{"a limit is removed, and nothing may restart", removedStage(t), false, 3},
		{"no node is ever large enough", heldSetOf(1, small(judge.ReasonNoNodeFits, "", "0 of 1 pods resized; web-0: not restarted"), func(s *stage) {
			s.asked(0, condition(corev1.PodResizePending, "Infeasible", "Node didn't have enough capacity: cpu"), observed)
		})(t), false, 2},
		{"a LimitRange allows no such pod", heldSetOf(1, func(s *stage) {
			s.set.Annotations[api.InForceAnnotation], s.set.Status.Conditions[0].Reason = "Restart;", judge.ReasonInvalid
			s.others = append(s.others, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "small"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
				{Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("150m")}},
			}}})
		})(t), false, 3},
		{"others delete what is resized", heldSetOf(2, func(s *stage) { s.set.Status.Conditions[0].Reason = "DeletedAfterResize" })(t), false, 3},
		{"an annotation is malformed", malformedStage(t), false, 3},
		{"not opted in", setOf(1, func(s *stage) { s.set.Labels = map[string]string{api.EnabledLabel: "false"} })(t), false, 3},
	} {
		for _, hidden := range []string{"nothing", "nodes", "limitranges"} {
			o := statusOptions{cluster: tt.stage.cluster(t), watch: tt.watch}
			o.client.(*fake.Clientset).PrependReactor("list", hidden, func(a clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "", nil)
			})
			var out bytes.Buffer
			err := o.run(t.Context(), &out, &bytes.Buffer{}, nil)
			if tt.what == "not opted in" { // one that is named
				r := must.Get(o.report(t.Context(), capacity.New(o.client, capacity.All, now), tt.stage.live(t), o.told(t.Context(), "default")))(t)
				err = completeness([]statusReport{r})
			}
			if strings.Contains(out.String(), "limit is removed") && (strings.Contains(out.String(), "Wanted") || !strings.Contains(out.String(), "web-0   Waiting")) {
				t.Errorf("what no resize can do is wanted, or accepted:\n%s", &out)
			}
			must.Equal(t, exitCode(err), tt.want, "%s, and %s may not be seen: exit code, after %s", tt.what, hidden, &out)
		}
	}
	done, going, over := statusReport{Complete: true}, statusReport{}, statusReport{Stopped: true}
	for want, reports := range map[int][]statusReport{0: {done}, 2: {done, over, going}, 3: {over, done}} {
		must.Equal(t, exitCode(completeness(reports)), want, "exit code of several")
	}
}

// A watch goes on while the API server does not answer, and says so once; it ends
// when the API server says no.
func TestStatusWatchOfATroubledCluster(t *testing.T) {
	s := newSetStage(t, 1)
	s.heldAt(t, larger)
	asked := 0
	o := statusOptions{cluster: s.cluster(t), watch: true}
	o.objects.(*dynamicfake.FakeDynamicClient).PrependReactor("list", "statefulsets", func(clienttesting.Action) (bool, runtime.Object, error) {
		switch asked++; asked {
		case 2:
			return true, nil, io.ErrUnexpectedEOF
		case 3:
			return true, nil, apierrors.NewServiceUnavailable("starting")
		case 5:
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "statefulsets"}, "", nil)
		}
		return false, nil, nil
	})
	var out bytes.Buffer
	err := o.run(t.Context(), &out, &bytes.Buffer{}, nil)
	if !apierrors.IsForbidden(err) || asked != 5 {
		t.Errorf("asked %d times, ended with %v; want five, and that it is forbidden", asked, err)
	}
	must.Equal(t, strings.Count(out.String(), "looking again, because of: "), 1, "how often it is told of trouble in %s", &out)
}

func TestStatusOfWhatIsNotOptedIn(t *testing.T) {
	for name, labels := range map[string]map[string]string{"not-opted-in": nil, "bad-label": {api.EnabledLabel: "True"}} {
		s := newSetStage(t, 1)
		s.set.Labels = labels
		o := statusOptions{cluster: s.cluster(t)}
		r := must.Get(o.report(t.Context(), capacity.New(o.client, capacity.Sizes, now), s.live(t), o.told(t.Context(), "default")))(t)
		var out bytes.Buffer
		must.Do(t, (statusView{}).print(&out, []statusReport{r}, now))
		golden.Assert(t, "status-"+name+".txt", out.Bytes())
	}
}

// The lines of a log say only what is new; a terminal shows all in one place.
func TestScreen(t *testing.T) {
	s := newSetStage(t, 2)
	s.heldAt(t, larger)
	before := reportsOf(t, s)
	s.asked(1, observed)
	between := reportsOf(t, s)
	s.updated(1)
	after := reportsOf(t, s)

	var log, terminal bytes.Buffer
	lines := newScreen(&log, statusView{})
	shown := newScreen(&terminal, statusView{})
	shown.size = func() (int, int) { return 60, 40 }
	for i, reports := range [][]statusReport{before, before, between, after} {
		if i == 3 {
			shown.size = func() (int, int) { return 200, 4 }
		}
		for _, screen := range []*screen{lines, shown} {
			must.Do(t, screen.show(reports, now))
		}
	}
	golden.Assert(t, "screen-lines.txt", log.Bytes())
	golden.Assert(t, "screen-terminal.txt", bytes.ReplaceAll(terminal.Bytes(), []byte("\x1b"), []byte("ESC")))
}

// Of many pods a log says what the headline does, unless each is asked for.
func TestManyPods(t *testing.T) {
	reports := reportsOf(t, manyStage(t))
	for format, want := range map[cli.Format]int{"": 1, cli.Wide: 25} {
		var log bytes.Buffer
		must.Do(t, newScreen(&log, statusView{format: format}).show(reports, now))
		must.Equal(t, strings.Count(log.String(), "\n"), want, "lines that --watch -o %q wrote: %s", format, log.String())
	}
}

// Trouble stands below what was seen last, and goes with it.
func TestScreenInTrouble(t *testing.T) {
	s := newSetStage(t, 1)
	reports := reportsOf(t, s)
	var out bytes.Buffer
	screen := newScreen(&out, statusView{})
	screen.size = func() (int, int) { return 40, 40 }
	must.Do(t, screen.show(reports, now))
	lines := screen.lines
	out.Reset()
	for range 2 {
		must.Do(t, screen.trouble(errors.New("connection refused by 127.0.0.1:6443")))
	}
	must.Equal(t, out.String(), "looking again, because of: connection r…\n", "what it printed")
	out.Reset()
	must.Do(t, screen.show(reports, now))
	if want := fmt.Sprintf("\x1b[%dA\x1b[J", lines+1); !strings.HasPrefix(out.String(), want) || screen.lines != lines {
		t.Errorf("printed %q with %d lines, want %q first, and %d", out.String(), screen.lines, want, lines)
	}
}

// A watch of nothing says that, on a terminal and in a log.
func TestScreenOfNobody(t *testing.T) {
	for name, size := range map[string]func() (int, int){"terminal": func() (int, int) { return 100, 40 }, "log": nil} {
		s := newSetStage(t, 1)
		s.set.Labels = nil
		var out bytes.Buffer
		screen := newScreen(&out, statusView{})
		screen.size = size
		must.Do(t, screen.show(reportsOf(t, s), now))
		must.Equal(t, out.String(), statusView{}.nobody()+"\n", "what it printed on a %s", name)
	}
}

func TestReadCondition(t *testing.T) {
	complete := func(status string) []any {
		return []any{map[string]any{"type": api.ConditionComplete, "status": status, "reason": "R", "message": "M"}}
	}
	for _, tt := range []struct {
		what          string
		generation    int64
		held, optedIn bool
		conditions    []any
		complete      bool
		reason        string
	}{
		{"true of what is there", 1, false, true, complete("True"), true, "R"},
		{"false", 1, false, true, complete("False"), false, "R"},
		{"true of an older generation", 2, false, true, complete("True"), false, "Pending"},
		{"true, and held since", 1, true, true, complete("True"), false, "Pending"},
		{"nothing said", 1, false, true, nil, false, "Unknown"},
		{"opted out since", 1, false, false, complete("True"), false, "NotOptedIn"},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"observedGeneration": int64(1), "conditions": tt.conditions}}}
		u.SetGeneration(tt.generation)
		r := statusReport{Held: tt.held, OptedIn: tt.optedIn}
		r.readCondition(u)
		if r.Complete != tt.complete || r.Reason != tt.reason {
			t.Errorf("%s: complete %t with %s, want %t with %s", tt.what, r.Complete, r.Reason, tt.complete, tt.reason)
		}
	}
}

// Of a pod that another one replaces, nobody says which size is wanted.
func TestAppliedOfAReplacedPod(t *testing.T) {
	for _, cell := range (podStatus{State: stateWaiting}).row(true, true, now).cells {
		if cell.text == "as wanted" {
			t.Error("its size is said to be as wanted")
		}
	}
}

// The diagram and the table of docs/how-it-works.md have the states that status shows, and no others.
func TestStatesOfThePage(t *testing.T) {
	text := must.Get(os.ReadFile(filepath.Join("..", "..", "docs", "how-it-works.md")))(t)
	want := map[podState]bool{stateKeptBack: true, stateDone: true}
	for _, state := range stateOf {
		want[state] = true
	}
	drawn := map[podState]bool{}
	for _, arrow := range regexp.MustCompile(`(?m)^  (\S+) --> (\S+): `).FindAllSubmatch(text, -1) {
		drawn[podState(arrow[1])], drawn[podState(arrow[2])] = true, true
	}
	delete(drawn, "[*]") // where pods come from, and go
	if !maps.Equal(drawn, want) {
		t.Errorf("the diagram has the states %v, want %v", drawn, want)
	}
	_, table, _ := strings.Cut(string(text), "| state |")
	table, _, _ = strings.Cut(table, "\n\n")
	delete(want, stateKeptBack) // says nothing of the pod
	for state := range want {
		must.Contain(t, table, "\n| "+string(state)+" |", "the table")
	}
}
