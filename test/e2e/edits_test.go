//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

const large = "{requests: {cpu: 60m, memory: 48Mi}, limits: {cpu: 120m, memory: 96Mi}}"

// TestEdits changes the size up and down by every means that people have: the pods
// are the same after all of them.
func TestEdits(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"StatefulSet", "Deployment", "DaemonSet"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			a := newApp(t, options{Kind: kind, Replicas: 2})
			before := a.pods()
			serverSide := []string{"--server-side", "--field-manager=gitops"}
			for _, edit := range []struct {
				name string
				to   string
				do   func()
			}{
				{"patch", large, func() {
					a.kubectl("patch", a.ref, "--patch", "spec: {template: {spec: {containers: [{name: app, resources: "+large+"}]}}}")
				}},
				{"edit", small, func() {
					a.edit("s/cpu: 60m/cpu: 40m/; s/cpu: 120m/cpu: 80m/; s/memory: 48Mi/memory: 32Mi/; s/memory: 96Mi/memory: 64Mi/")
				}},
				{"apply", large, func() { a.apply(manifest(t, options{Kind: kind, Replicas: 2, Resources: large})) }},
				// The fields belong to those who have edited them so far.
				{"apply on the server, taking over", small, func() {
					a.apply(manifest(t, options{Kind: kind, Replicas: 2}), append(serverSide, "--force-conflicts")...)
				}},
				{"apply on the server", large, func() {
					a.apply(manifest(t, options{Kind: kind, Replicas: 2, Resources: large}), serverSide...)
				}},
			} {
				edit.do()
				a.complete()
				a.assertSaid(edit.to)
				a.assertKept(before, 0)
				a.assertMoved()
				if t.Failed() {
					t.Fatalf("after %s", edit.name)
				}
			}
			a.event(kind, judge.EventComplete, "all pods")
			a.podEvents("ResizeCompleted")
		})
	}
}

// assertSaid checks that the template has a size: otherwise nothing has been tested.
func (a *app) assertSaid(resources string) {
	a.t.Helper()
	if got, want := a.get().Template().Spec.Containers[0].Resources, *build.Parsed[corev1.ResourceRequirements](a.t, resources); got.Limits.Memory().Cmp(*want.Limits.Memory()) != 0 {
		a.t.Errorf("the template says %v, want %v", got, want)
	}
}

// edit opens the workload in an editor, which runs a script of sed.
func (a *app) edit(script string) {
	a.t.Helper()
	cmd := exec.CommandContext(a.t.Context(), node.Bin("kubectl"), "--kubeconfig", node.Kubeconfig(), "--namespace", a.namespace, "edit", a.ref)
	cmd.Env = append(os.Environ(), "KUBE_EDITOR=sed -i '"+script+"'")
	if out, err := cmd.CombinedOutput(); err != nil {
		a.t.Fatalf("editing: %v: %s", err, out)
	}
}

func names(pods []corev1.Pod) []string {
	return build.Each(pods, func(pod corev1.Pod) string { return pod.Name + "/" + string(pod.UID) })
}

// TestFlow is the flow T=0…T=12 of KEP-1287 by edits of a template, with a tenth of its
// sizes: 1, 1.5, 2 (deferred), 1.6, 100 (infeasible). docs/how-it-works.md says which
// states that are today. It runs alone, because it fills the node.
func TestFlow(t *testing.T) {
	o := options{Replicas: 1, Resources: "{requests: {cpu: 100m}}", Annotations: api.ResizeActionAnnotation + ": LiveResize"}
	a := newApp(t, o)
	a.shows("T=2: runs", stage{spec: "100m", allocated: "100m", actual: "100m"})
	before := a.pods()
	a.fillNode("80m") // so there is room for 1.6, but not for 2

	resume := a.stopShim(&before[0]) // so that the second edit comes while the first resize is in progress
	a.setCPU("150m")
	a.shows("T=4: the kubelet has accepted the first resize", stage{"150m", "150m", "100m", string(corev1.PodResizeInProgress)})
	a.condition(judge.ReasonProgressing, "web-0")
	a.setCPU("200m")
	a.shows("T=5: the second is asked for", stage{"200m", "150m", "100m", string(corev1.PodResizeInProgress)})
	a.condition(judge.ReasonProgressing, "web-0")
	resume()
	a.shows("T=7: the second is deferred", stage{"200m", "150m", "150m", corev1.PodReasonDeferred})
	a.condition(judge.ReasonDeferred, "web-0")
	a.event("Pod", "ResizeDeferred", "web-0: ")

	resume = a.stopShim(&before[0]) // else the kubelet may be done before it has told
	a.setCPU("160m")
	a.shows("T=9: the kubelet has accepted the third", stage{"160m", "160m", "150m", string(corev1.PodResizeInProgress)})
	resume()
	a.shows("T=10: it is done", stage{spec: "160m", allocated: "160m", actual: "160m"})
	a.complete()
	a.assertMoved()

	// The API server knows how large the node is: the pod's spec never has this size.
	a.setCPU("1000")
	a.condition(judge.ReasonInfeasible, "cpu, requested: 1000")
	a.shows("T=12: nothing has changed", stage{spec: "160m", allocated: "160m", actual: "160m"})
	a.assertKept(before, 0)
}

// stopShim keeps containerd from resizing the pod's container app, until the returned
// function is called or the test ends.
func (a *app) stopShim(pod *corev1.Pod) (resume func()) {
	a.t.Helper()
	cgroup := must.Get(node.Cgroup(pod, "app"))(a.t)
	pids, err := cgroup.Processes()
	if err != nil || len(pids) != 1 {
		a.t.Fatalf("processes %v of %s, want one: %v", pids, pod.Name, err)
	}
	run := must.Get(node.StopShim(pids[0]))(a.t)
	resume = sync.OnceFunc(func() {
		must.Fails(a.t, "its end", run(), "")
	})
	a.t.Cleanup(resume)
	return resume
}

func (a *app) setCPU(cpu string) {
	a.t.Helper()
	a.kubectl("set", "resources", a.ref, "--containers=app", "--requests=cpu="+cpu)
}

// stage is what a pod shows of a resize: cpu requests, and what its conditions say.
type stage struct {
	spec, allocated, actual string
	says                    string // reason of the condition, or its type if it has none
}

func stageOf(pod *corev1.Pod) stage {
	status := appOf(pod)
	s := stage{spec: cpuOf(pod.Spec.Containers[0].Resources.Requests), allocated: cpuOf(status.AllocatedResources)}
	if status.Resources != nil {
		s.actual = cpuOf(status.Resources.Requests)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
			says := c.Reason
			if says == "" {
				says = string(c.Type)
			}
			s.says = strings.TrimPrefix(s.says+"+"+says, "+")
		}
	}
	return s
}

func cpuOf(list corev1.ResourceList) string {
	if cpu, ok := list[corev1.ResourceCPU]; ok {
		return cpu.String()
	}
	return ""
}

// shows waits until the pod web-0 shows this.
func (a *app) shows(what string, want stage) {
	a.t.Helper()
	a.eventually(what, func() (bool, string) {
		now := stageOf(&a.pods()[0])
		return now == want, fmt.Sprintf("%+v", now)
	})
	a.t.Logf("%s: %+v; %+v", what, want, a.get().Complete())
}
