//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
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
	if got, want := a.get().Template().Spec.Containers[0].Resources, parse(a.t, resources); got.Limits.Memory().Cmp(*want.Limits.Memory()) != 0 {
		a.t.Errorf("the template says %v, want %v", got, want)
	}
}

func parse(t *testing.T, resources string) corev1.ResourceRequirements {
	t.Helper()
	var parsed corev1.ResourceRequirements
	if err := yaml.Unmarshal([]byte(resources), &parsed); err != nil {
		t.Fatalf("parsing %s: %v", resources, err)
	}
	return parsed
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

// assertUIDs checks that the pods are the same as before.
func (a *app) assertUIDs(before []corev1.Pod) {
	a.t.Helper()
	after := a.pods()
	if !slices.EqualFunc(before, after, func(a, b corev1.Pod) bool { return a.UID == b.UID }) {
		a.t.Errorf("pods have been replaced: %v, before %v", names(after), names(before))
	}
}

func names(pods []corev1.Pod) []string {
	list := make([]string, len(pods))
	for i, pod := range pods {
		list[i] = pod.Name + "/" + string(pod.UID)
	}
	return list
}
