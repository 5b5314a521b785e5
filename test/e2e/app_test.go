//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/cgroup"
	"github.com/inplace-rollout/inplace-rollout/test/measure"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// patience bounds every wait. It is never the expected duration.
const patience = 90 * time.Second

// The sizes that most workloads start with and grow to: every value changes.
const (
	small         = "{requests: {cpu: 40m, memory: 32Mi}, limits: {cpu: 80m, memory: 64Mi}}"
	largeRequests = "cpu=60m,memory=48Mi"
	largeLimits   = "cpu=120m,memory=96Mi"
	smallRequests = "cpu=40m,memory=32Mi"
	smallLimits   = "cpu=80m,memory=64Mi"
)

// options of an app, in the words of its manifest.
type options struct {
	Kind        string // StatefulSet if empty
	Replicas    int    // 3 if 0; a DaemonSet has one pod, because there is one node
	Around      string // what is in the namespace before the workload, as YAML
	Annotations string // of the workload, as YAML
	Spec        string // more of the workload's spec, as YAML
	Resources   string // small if empty
	Container   string // more of the container app, as YAML
	Pod         string // more of the pod's spec, as YAML
}

// app is a workload named web in a namespace of its own, which runs the counter
// in its container app.
type app struct {
	t         *testing.T
	namespace string
	kind      string
	ref       string // the workload as kubectl names it
	replicas  int
}

// newApp creates a workload and waits until the built-in controller has rolled it out.
func newApp(t *testing.T, o options) *app {
	t.Helper()
	a := createApp(t, o)
	if o.Kind == "DaemonSet" {
		a.complete() // a new one is held until its pods are known, and kubectl tells nothing of held ones
	}
	a.kubectl("rollout", "status", a.ref, "--timeout="+patience.String())
	return a
}

// createApp creates a workload that need not become Ready.
func createApp(t *testing.T, o options) *app {
	t.Helper()
	o = o.defaulted()
	namespace := must.Get(client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}, metav1.CreateOptions{}))(t)
	a := &app{t: t, namespace: namespace.Name, kind: o.Kind, ref: strings.ToLower(o.Kind) + "/web", replicas: o.Replicas}
	t.Cleanup(a.cleanUp)
	if o.Around != "" {
		a.apply(o.Around)
	}
	a.apply(manifest(t, o))
	return a
}

func (o options) defaulted() options {
	if o.Kind == "" {
		o.Kind = "StatefulSet"
	}
	if o.Kind == "DaemonSet" {
		o.Replicas = 1
	}
	if o.Replicas == 0 {
		o.Replicas = 3
	}
	if o.Resources == "" {
		o.Resources = small
	}
	return o
}

// apply applies a manifest as people do.
func (a *app) apply(text string, flags ...string) {
	a.t.Helper()
	file := filepath.Join(a.t.TempDir(), "manifest.yaml")
	must.Do(a.t, os.WriteFile(file, []byte(text), 0o600))
	a.kubectl(append([]string{"apply", "--filename", file}, flags...)...)
}

// manifest is what people keep in git.
func manifest(t *testing.T, o options) string {
	t.Helper()
	o = o.defaulted()
	workload := *build.Parsed[map[string]any](t, fmt.Sprintf(`
apiVersion: apps/v1
kind: %s
metadata: {name: web, labels: {app: web, inplace-rollout.io/enabled: "true"}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 5
      automountServiceAccountToken: false
      containers:
      - name: app
        image: inplace-rollout-counter:test
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
        resources: %s
`, o.Kind, o.Resources))
	metadata, spec := workload["metadata"].(map[string]any), workload["spec"].(map[string]any)
	pod := spec["template"].(map[string]any)["spec"].(map[string]any)
	if o.Kind != "DaemonSet" {
		spec["replicas"] = o.Replicas
	}
	merge(t, metadata, "annotations: {"+o.Annotations+"}")
	merge(t, spec, o.Spec)
	merge(t, pod["containers"].([]any)[0].(map[string]any), o.Container)
	merge(t, pod, o.Pod)
	merged := must.Get(yaml.Marshal(workload))(t)
	return string(merged)
}

// merge adds the keys of a YAML text to a map.
func merge(t *testing.T, object map[string]any, text string) {
	t.Helper()
	more := map[string]any{}
	must.Do(t, yaml.Unmarshal([]byte(text), &more))
	maps.Copy(object, more)
}

// cleanUp removes the namespace, or tells everything about it if the test has failed.
func (a *app) cleanUp() {
	if a.t.Failed() {
		for _, args := range [][]string{{"get", a.ref, "-o", "yaml"}, {"get", "pods", "-o", "yaml"}, {"events"}} {
			out, err := node.Kubectl(context.Background(), append([]string{"--namespace", a.namespace}, args...)...)
			a.t.Logf("kubectl %s:\n%s%v", strings.Join(args, " "), out, err)
		}
	}
	// The pods must go also after a failure: their room is the next test's.
	must.Fails(a.t, "deleting the namespace", client.CoreV1().Namespaces().Delete(context.Background(), a.namespace, metav1.DeleteOptions{}), "")
}

// kubectl runs the real kubectl in the app's namespace.
func (a *app) kubectl(args ...string) string {
	a.t.Helper()
	return must.Get(node.Kubectl(a.t.Context(), append([]string{"--namespace", a.namespace}, args...)...))(a.t)
}

// setResources edits the container app as a person would.
func (a *app) setResources(requests, limits string) {
	a.t.Helper()
	a.kubectl("set", "resources", a.ref, "--containers=app", "--requests="+requests, "--limits="+limits)
}

// complete waits, as users do, until our condition says that all is done.
func (a *app) complete() {
	a.t.Helper()
	a.completeWithin(patience)
}

func (a *app) completeWithin(patience time.Duration) {
	a.t.Helper()
	a.kubectl("wait", "--for=condition="+api.ConditionComplete, a.ref, "--timeout="+patience.String())
}

func (a *app) get() measure.Workload {
	a.t.Helper()
	var object metav1.Object
	var err error
	switch apps, ctx := client.AppsV1(), a.t.Context(); a.kind {
	case "Deployment":
		object, err = apps.Deployments(a.namespace).Get(ctx, "web", metav1.GetOptions{})
	case "DaemonSet":
		object, err = apps.DaemonSets(a.namespace).Get(ctx, "web", metav1.GetOptions{})
	default:
		object, err = apps.StatefulSets(a.namespace).Get(ctx, "web", metav1.GetOptions{})
	}
	must.Do(a.t, err)
	return measure.WorkloadOf(object)
}

// pods in the order of their names, without those that are about to go.
func (a *app) pods() []corev1.Pod {
	a.t.Helper()
	list := must.Get(client.CoreV1().Pods(a.namespace).List(a.t.Context(), metav1.ListOptions{LabelSelector: "app=web"}))(a.t)
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods
}

// appOf is the status of the container app.
func appOf(pod *corev1.Pod) corev1.ContainerStatus { return measure.ContainerStatus(pod, "app") }

// assertMoved checks that the rollout is truly done: every pod has the template's
// size, in its spec, in its status and in the kernel; the built-in controller has
// nothing left to do; no hold is left behind.
func (a *app) assertMoved() {
	a.t.Helper()
	w, pods := a.get(), a.pods()
	if field, value := w.HoldField(); !w.RolledOut() || !slices.Contains([]string{"0", "false", "RollingUpdate"}, value) {
		a.t.Errorf("the built-in controller is not done, with %s %s: %+v", field, value, w)
	}
	if hold, held := w.GetAnnotations()[api.HoldAnnotation]; held {
		a.t.Errorf("still held: %q", hold)
	}
	must.Equal(a.t, len(pods), a.replicas, "pods")
	for _, pod := range pods {
		a.assertSize(&pod, w.Template().Spec.Containers[0].Resources)
	}
}

// assertSize checks the size of the container app, from the spec to the kernel.
func (a *app) assertSize(pod *corev1.Pod, want corev1.ResourceRequirements) {
	a.t.Helper()
	for _, differs := range measure.OtherSize(pod, "app", want) {
		a.t.Errorf("%s: %s", pod.Name, differs)
	}
	a.assertCgroup(pod, want)
}

// assertCgroup checks what the kernel grants the container app.
func (a *app) assertCgroup(pod *corev1.Pod, want corev1.ResourceRequirements) {
	a.t.Helper()
	a.assertCgroupOf(pod, "app", want)
}

// assertCgroupOf checks what the kernel grants a container.
func (a *app) assertCgroupOf(pod *corev1.Pod, container string, want corev1.ResourceRequirements) {
	a.t.Helper()
	cgroup := must.Get(node.Cgroup(pod, container))(a.t)
	a.assertLimits(pod.Name+", "+container, cgroup, want)
}

// assertLimits checks what the kernel grants a cgroup.
func (a *app) assertLimits(whose string, cgroup cgroup.Cgroup, want corev1.ResourceRequirements) {
	a.t.Helper()
	shares, known := cgroup.WantShares(want.Requests.Cpu().MilliValue())
	for _, check := range []struct {
		what string
		get  func() (int64, error)
		want int64
		skip bool
	}{
		{"cpu limit in the kernel", cgroup.CPULimit, want.Limits.Cpu().MilliValue(), false},
		{"cpu shares in the kernel", cgroup.CPUShares, shares, !known},
		{"memory limit in the kernel", cgroup.MemoryLimit, want.Limits.Memory().Value(), false},
	} {
		if got, err := check.get(); !check.skip && (err != nil || got != check.want) {
			a.t.Errorf("%s: %s %d, want %d: %v", whose, check.what, got, check.want, err)
		}
	}
}

// assertKept checks that the pods are the same as before, and that each has
// restarted so many times more.
func (a *app) assertKept(before []corev1.Pod, restarts int32) {
	a.t.Helper()
	after := a.pods()
	if len(after) != len(before) {
		a.t.Errorf("%d pods, before %d", len(after), len(before))
		return
	}
	for i, pod := range after {
		old := appOf(&before[i])
		must.Equal(a.t, pod.UID, before[i].UID, "the UID of %s, now %s", before[i].Name, pod.Name)
		must.Equal(a.t, appOf(&pod).RestartCount-old.RestartCount, restarts, "restarts of the container of %s", pod.Name)
		if same := appOf(&pod).ContainerID == old.ContainerID; same != (restarts == 0) {
			a.t.Errorf("%s: container %s, before %s", pod.Name, appOf(&pod).ContainerID, old.ContainerID)
		}
	}
}

// event waits for an event on an object of a kind, ours or the kubelet's.
func (a *app) event(kind, reason, containing string) {
	a.t.Helper()
	a.eventually("an event "+reason+" on a "+kind+" about "+containing, func() (bool, string) {
		messages := a.events(kind, reason)
		return slices.ContainsFunc(messages, func(m string) bool { return strings.Contains(m, containing) }), strings.Join(messages, "; ")
	})
}

// podEvents waits until every pod has an event.
func (a *app) podEvents(reason string) {
	a.t.Helper()
	for _, pod := range a.pods() {
		a.event("Pod", reason, pod.Name+": ")
	}
}

// events are `name: message` of those on a kind of object.
func (a *app) events(kind, reason string) []string {
	a.t.Helper()
	list := must.Get(client.CoreV1().Events(a.namespace).List(a.t.Context(), metav1.ListOptions{
		FieldSelector: "involvedObject.kind=" + kind + ",reason=" + reason,
	}))(a.t)
	return build.Each(list.Items, func(e corev1.Event) string { return e.InvolvedObject.Name + ": " + e.Message })
}

// condition waits until our condition has the reason, and a message with the text.
func (a *app) condition(reason, text string) {
	a.t.Helper()
	a.eventually("the condition "+reason+" with "+text, func() (bool, string) {
		c := a.get().Complete()
		return c.Reason == reason && strings.Contains(c.Message, text), fmt.Sprint(c)
	})
}

// podCondition waits until a pod has a condition of the kubelet with the reason.
func (a *app) podCondition(name string, kind corev1.PodConditionType, reason string) {
	a.t.Helper()
	a.eventually(name+" to be "+reason, func() (bool, string) {
		pod, err := client.CoreV1().Pods(a.namespace).Get(a.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error() // it may be about to be created again
		}
		i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
		return i >= 0 && pod.Status.Conditions[i].Reason == reason, fmt.Sprint(pod.Status.Conditions)
	})
}

func (a *app) eventually(what string, check func() (bool, string)) {
	a.t.Helper()
	must.Eventually(a.t, 20*time.Millisecond, patience, what, check)
}
