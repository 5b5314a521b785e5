//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/counter"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestEviction has pods of a Deployment that their kubelet can never resize: each is evicted, when its budget lets it. It runs alone,
// because it restarts the kubelet. How many are available meanwhile is judged by test/invariant.
func TestEviction(t *testing.T) {
	giveOutProcessors(t)
	a := newApp(t, options{
		Kind: "Deployment", Replicas: 2, Resources: "{limits: {cpu: 80m, memory: 64Mi}}", Spec: "strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}",
		Around: "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web}, spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}}",
	})
	before := a.pods()
	a.kubectl("set", "resources", a.ref, "--containers=app", "--limits=cpu=120m,memory=96Mi")
	a.condition(judge.ReasonDisruptionBudget, "not evicted yet")
	a.event("Deployment", judge.EventDisruptionBudget, "")
	a.assertKept(before, 0)
	for _, pod := range before {
		a.podCondition(pod.Name, corev1.PodResizePending, corev1.PodReasonInfeasible)
		a.assertCgroup(&pod, *build.Parsed[corev1.ResourceRequirements](t, "{requests: {cpu: 80m, memory: 64Mi}, limits: {cpu: 80m, memory: 64Mi}}"))
	}

	a.kubectl("patch", "poddisruptionbudget/web", "--type=merge", "--patch", `{"spec":{"minAvailable":1}}`)
	// A write of the kubelet may break an eviction off that the budget has counted already:
	// its controller waits for the pod to go for two minutes (DeletionTimeout).
	a.completeWithin(patience + 2*time.Minute)
	a.assertEnlarged(before)
}

// assertEnlarged checks that all pods have been replaced by larger ones.
func (a *app) assertEnlarged(before []corev1.Pod) {
	a.t.Helper()
	after := a.pods()
	must.Equal(a.t, len(after), len(before), "number of pods %v, before %v", names(after), names(before))
	for _, pod := range after {
		if slices.ContainsFunc(before, func(old corev1.Pod) bool { return old.UID == pod.UID }) {
			a.t.Errorf("%s has not been replaced", pod.Name)
		}
		a.assertSize(&pod, *build.Parsed[corev1.ResourceRequirements](a.t, "{requests: {cpu: 120m, memory: 96Mi}, limits: {cpu: 120m, memory: 96Mi}}"))
	}
	if w := a.get(); !w.RolledOut() {
		a.t.Errorf("the built-in controller is not done: %+v", w)
	}
}

// TestDisturbed has what a rollout needs go away in the middle of it: the rollout
// goes on when it is back, and still nobody notices. It runs alone, because it disturbs the node.
func TestDisturbed(t *testing.T) {
	for _, tt := range []struct {
		name    string
		disturb func() error
	}{
		{"kubelet killed", func() error { node.KillKubelet(); return node.RestartKubelet(t.Context()) }},
		{"containerd killed", func() error { node.KillContainerd(); return node.RestartContainerd(t.Context()) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newApp(t, options{Replicas: 4})
			before := a.pods()
			visitors := a.visit()
			a.setResources(largeRequests, largeLimits)
			a.eventually("the first pod to be resized", func() (bool, string) {
				pods := a.pods()
				cpu := pods[len(pods)-1].Spec.Containers[0].Resources.Requests.Cpu().String()
				return cpu == "60m", cpu
			})
			must.Do(t, tt.disturb())
			a.complete()
			a.assertKept(before, 0)
			a.assertMoved()
			if seen := visitors.report(); seen.Visits == 0 || seen.Lost > 0 || seen.Forgotten > 0 {
				t.Errorf("of %d visits %d were lost, and %d counts forgotten: %s", seen.Visits, seen.Lost, seen.Forgotten, seen.Why)
			}
		})
	}
}

// visitors count on an app's pods, one visitor per pod, and notice every request
// that is lost and every count that is forgotten.
type visitors struct {
	*measure.Recorder
	subject measure.Subject
	from    int
	cancel  context.CancelFunc
}

// visit sends a visitor to every pod, until the test or report ends.
func (a *app) visit() *visitors {
	a.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	a.t.Cleanup(cancel)
	recorder := must.Get(measure.Record(ctx, client, a.namespace, func(err error) { a.t.Error(err) }))(a.t)
	v := &visitors{Recorder: recorder, subject: measure.Subject{Namespace: a.namespace, Name: "web"}, cancel: cancel}
	v.Visit(ctx, node, 50*time.Millisecond, a.namespace)
	visited := func(s *measure.State) bool { return s.Settled() && len(s.Visits) == a.replicas }
	must.Do(a.t, v.Await(ctx, "every pod is visited", visited, v.subject))
	v.from = v.Now()
	return v
}

// report ends the visits and returns what was noticed.
func (v *visitors) report() measure.Measurement {
	v.cancel()
	history, _ := v.From(0)
	return measure.Edit(history, v.from, v.subject)
}

// hold makes the program in a pod hold so many bytes of memory.
func hold(t *testing.T, pod *corev1.Pod, bytes int64) {
	t.Helper()
	browser := node.HTTP(patience)
	defer browser.CloseIdleConnections()
	must.Do(t, counter.Hold(t.Context(), browser, pod, bytes))
}

// TestDeferredTooLong waits for room only as long as the workload says. Then the pod is restarted, since the scheduler has room for
// it: the kubelet preempts nobody for a resize, the scheduler does for a new pod. Where it has none is in test/integration. It
// runs alone, because it fills the node.
func TestDeferredTooLong(t *testing.T) {
	a := newApp(t, options{
		Replicas: 1, Annotations: api.DeferredTimeoutAnnotation + ": 5s", Pod: "priorityClassName: important",
		Around: "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: important}, value: 1000}",
	})
	before := a.pods()
	a.fillNode("30m")
	a.setResources("cpu=150m,memory=32Mi", "cpu=300m,memory=64Mi")
	a.event("Pod", "ResizeDeferred", "web-0: ") // the kubelet's
	a.event("StatefulSet", judge.EventDeferred, "web-0")
	a.event("StatefulSet", judge.EventHandedOver, "for more than 5s") // its only pod is left to the built-in controller
	a.complete()
	a.assertMoved()
	a.assertRestarted(before, "web-0")
}

// assertRestarted checks that the named pods, and no others, are new, and that none
// was restarted twice.
func (a *app) assertRestarted(before []corev1.Pod, want ...string) {
	a.t.Helper()
	var replaced []string
	for i, pod := range a.pods() {
		if pod.UID != before[i].UID {
			replaced = append(replaced, pod.Name)
		}
	}
	must.EqualLists(a.t, replaced, want, "replaced pods")
	for _, name := range want {
		// Events come after what they tell of.
		a.eventually(name+" to have started twice", func() (bool, string) { n := a.started(name); return n >= 2, fmt.Sprint(n) })
		must.Equal(a.t, a.started(name), 2, "how often %s has been created", name)
	}
}

// started is how many pods of a name have started a container.
func (a *app) started(name string) int {
	a.t.Helper()
	list := must.Get(client.CoreV1().Events(a.namespace).List(a.t.Context(), metav1.ListOptions{FieldSelector: "reason=Started,involvedObject.name=" + name}))(a.t)
	uids := map[string]bool{}
	for _, e := range list.Items {
		uids[string(e.InvolvedObject.UID)] = true
	}
	return len(uids)
}

// TestOOMLoop cures a program that is killed for its memory again and again: the new
// size is what it needs to become Ready, so nobody waits for it to be Ready first.
func TestOOMLoop(t *testing.T) {
	t.Parallel()
	a := createApp(t, options{Spec: "podManagementPolicy: Parallel", Container: `args: ["--memory=73400320", "--on=web-0"]`})
	a.eventually("the others to be Ready, and web-0 to be killed again and again", func() (bool, string) {
		pods := a.pods()
		if len(pods) != 3 {
			return false, fmt.Sprint(names(pods))
		}
		terminated := appOf(&pods[0]).LastTerminationState.Terminated
		looping := appOf(&pods[0]).RestartCount >= 2 && terminated != nil && terminated.Reason == "OOMKilled"
		return looping && appOf(&pods[1]).Ready && appOf(&pods[2]).Ready, fmt.Sprint(pods[0].Status.ContainerStatuses)
	})
	before := a.pods()
	a.setResources(largeRequests, largeLimits)
	a.complete()
	must.EqualLists(t, names(a.pods()), names(before), "the pods")
	a.assertMoved()
	after := a.pods()
	for i := range after[1:] {
		must.Equal(t, appOf(&after[i+1]).RestartCount, 0, "restarts of %s", after[i+1].Name)
	}
	if !appOf(&after[0]).Ready {
		t.Error("web-0 is not Ready")
	}
	a.event("Pod", "ResizeCompleted", "web-0: ")
}
