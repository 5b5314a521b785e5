//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
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
			a.event(kind, rollout.EventComplete, fmt.Sprintf("%[1]d of %[1]d pods", a.replicas))
			a.podEvents("ResizeCompleted")
			a.tell()
		})
	}
}

// assertSaid checks that the template has a size: otherwise nothing has been tested.
func (a *app) assertSaid(resources string) {
	a.t.Helper()
	if got, want := a.get().template.Spec.Containers[0].Resources, parse(a.t, resources); got.Limits.Memory().Cmp(*want.Limits.Memory()) != 0 {
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

// TestClasses gives a DaemonSet's pod the size of its node's class, by a label of the node, and takes
// it back: the kernel grants each, and the container is the same.
func TestClasses(t *testing.T) {
	t.Parallel()
	a := newApp(t, options{Kind: "DaemonSet"})
	before := a.pods()
	const label, selector = "e2e-class=large", `{"e2e-class": "large"}`
	a.kubectl("annotate", a.ref, api.NodeResourcesAnnotation+`=[{"nodeSelector": `+selector+
		`, "containers": {"app": {"requests": {"cpu": "60m", "memory": "48Mi"}, "limits": {"cpu": "120m", "memory": "96Mi"}}}}]`)
	a.kubectl("label", "nodes", "--all", label)
	t.Cleanup(func() {
		if _, err := node.Kubectl(context.Background(), "label", "nodes", "--all", "e2e-class-"); err != nil {
			t.Error(err)
		}
	})
	a.awaitCPU("60m", 1)
	a.condition(rollout.ReasonComplete, "1 of them has the size of its node's class")
	a.assertSize(&a.pods()[0], parse(t, large))
	a.kubectl("label", "nodes", "--all", "e2e-class-")
	a.eventually("no pod to have the size of a class", func() (bool, string) {
		c := a.get().condition
		return c.Reason == rollout.ReasonComplete && !strings.Contains(c.Message, "class"), c.Message
	})
	a.assertMoved()
	a.assertKept(before, 0)
	a.tell()
}

// TestUpgrade upgrades a release as Helm does, by a three-way merge of manifests
// that know nothing of a hold, and say what the hold has changed. In the middle of
// the rollout, and again with the next size, that must not let the built-in controller go.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	for kind, spec := range map[string]string{
		"StatefulSet": "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0}}",
		"Deployment":  "paused: false\nstrategy: {rollingUpdate: {maxUnavailable: 1}}", // with 0, the pods would be replaced
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			// The restart of each container makes sure that a rollout has a middle.
			release := options{Kind: kind, Spec: spec, Container: "resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]"}
			a := newApp(t, release)
			before := a.pods()
			installed := manifest(t, release)

			release.Resources = large
			next := manifest(t, release)
			a.upgrade(installed, next)
			a.awaitCPU("60m", 1)
			if !a.upgrade(next, next) {
				t.Error("the rollout was over before the upgrade was repeated")
			}
			a.awaitCPU("60m", 2)
			release.Resources = "{requests: {cpu: 50m, memory: 40Mi}, limits: {cpu: 100m, memory: 80Mi}}"
			if !a.upgrade(next, manifest(t, release)) {
				t.Error("the rollout was over before the next upgrade")
			}
			a.complete()
			a.assertMoved()
			a.assertSaid(release.Resources)
			a.assertUIDs(before)
			a.podEvents("Killing")
		})
	}
}

// upgrade applies what Helm makes of the last manifest, the new one and what there
// is. It reports whether the rollout is held after it.
func (a *app) upgrade(last, next string) (held bool) {
	a.t.Helper()
	resource, request := strings.ToLower(a.kind)+"s", client.AppsV1().RESTClient()
	live, err := request.Get().Namespace(a.namespace).Resource(resource).Name("web").DoRaw(a.t.Context())
	if err != nil {
		a.t.Fatal(err)
	}
	meta, err := strategicpatch.NewPatchMetaFromStruct(map[string]any{"StatefulSet": appsv1.StatefulSet{}, "Deployment": appsv1.Deployment{}}[a.kind])
	if err != nil {
		a.t.Fatal(err)
	}
	patch, err := strategicpatch.CreateThreeWayMergePatch(a.json(last), a.json(next), live, meta, true)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Logf("Helm's patch: %s", patch)
	after, err := request.Patch(types.StrategicMergePatchType).Namespace(a.namespace).Resource(resource).Name("web").Body(patch).DoRaw(a.t.Context())
	var object metav1.PartialObjectMetadata
	if err == nil {
		err = json.Unmarshal(after, &object)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	_, held = object.Annotations[api.HoldAnnotation]
	return held
}

// awaitCPU waits until at least n pods have a cpu request.
func (a *app) awaitCPU(cpu string, n int) {
	a.t.Helper()
	a.eventually(fmt.Sprintf("%d pods to have cpu %s", n, cpu), func() (bool, string) {
		missing := n
		for _, pod := range a.pods() {
			if pod.Spec.Containers[0].Resources.Requests.Cpu().String() == cpu {
				missing--
			}
		}
		return missing <= 0, fmt.Sprintf("%d are missing", missing)
	})
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

func (a *app) json(text string) []byte {
	a.t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		a.t.Fatal(err)
	}
	return data
}
