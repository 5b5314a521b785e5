//go:build integration

package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/statefulset"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

// patience bounds every wait. It is never the expected duration.
const patience = 60 * time.Second

// workload is a StatefulSet named web in a namespace of its own.
type workload struct {
	t         *testing.T
	namespace string
	mark      int64 // where the audit log stood when it was made
}

// options of a workload, in the words of its manifest.
type options struct {
	Replicas  int
	OptedOut  bool
	Meta      string // more of the StatefulSet's metadata, as YAML
	Spec      string // more of the StatefulSet's spec, as YAML
	Resources string // of the container app, as YAML
	Pod       string // more of the pod's spec, as YAML
	PodMeta   string // annotations and labels of the pods, as YAML
	NS        map[string]string
}

// base is the size that most workloads start with: Burstable, requests and limits.
const base = "{requests: {cpu: 100m, memory: 100Mi}, limits: {cpu: 200m, memory: 200Mi}}"

// newWorkload creates the StatefulSet and waits until it is available.
func newWorkload(t *testing.T, o options) *workload {
	t.Helper()
	w := createWorkload(t, o)
	w.waitFor("all pods to be available", func(set *appsv1.StatefulSet) bool {
		return set.Status.ObservedGeneration == set.Generation && set.Status.AvailableReplicas == *set.Spec.Replicas &&
			set.Status.CurrentRevision == set.Status.UpdateRevision
	})
	return w
}

func createWorkload(t *testing.T, o options) *workload {
	t.Helper()
	mark, err := cp.AuditMark()
	if err != nil {
		t.Fatal(err)
	}
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: name[:min(len(name), 40)] + "-", Labels: o.NS},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := &workload{t: t, namespace: ns.Name, mark: mark}
	w.apply(manifest(t, ns.Name, o))
	t.Cleanup(func() {
		if t.Failed() {
			w.dump()
			return
		}
		if err := client.CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("deleting the namespace: %v", err)
		}
	})
	return w
}

// manifest is what people keep in git.
func manifest(t *testing.T, namespace string, o options) string {
	t.Helper()
	if o.Resources == "" {
		o.Resources = base
	}
	if o.Replicas == 0 {
		o.Replicas = 3
	}
	set := map[string]any{}
	text := fmt.Sprintf(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web, namespace: %s, labels: {inplace-rollout.io/enabled: %q}}
spec:
  replicas: %d
  serviceName: web
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0 # the simulated kubelet has no graceful termination
      containers:
      - {name: app, image: "app:1", resources: %s}
`, namespace, fmt.Sprint(!o.OptedOut), o.Replicas, o.Resources)
	if err := yaml.Unmarshal([]byte(text), &set); err != nil {
		t.Fatalf("parsing %s: %v", text, err)
	}
	merge(t, set, o.Meta, "metadata")
	merge(t, set, o.Spec, "spec")
	merge(t, set, o.PodMeta, "spec", "template", "metadata")
	merge(t, set, o.Pod, "spec", "template", "spec")
	merged, err := yaml.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return string(merged)
}

// merge adds the keys of a YAML text to the map at path.
func merge(t *testing.T, object map[string]any, text string, path ...string) {
	t.Helper()
	more := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &more); err != nil {
		t.Fatalf("parsing %s: %v", text, err)
	}
	for _, key := range path {
		object, _ = object[key].(map[string]any)
	}
	maps.Copy(object, more)
}

// dump tells everything about a workload whose test failed.
func (w *workload) dump() {
	for _, args := range [][]string{
		{"get", "statefulset,controllerrevisions", "-o", "yaml"},
		{"get", "pods", "-o", "wide", "-L", "controller-revision-hash"},
		{"events"},
	} {
		out, err := cp.Kubectl(context.Background(), append([]string{"-n", w.namespace}, args...)...)
		w.t.Logf("kubectl %s:\n%s%v", strings.Join(args, " "), out, err)
	}
}

// kubectl runs the real kubectl in the workload's namespace.
func (w *workload) kubectl(args ...string) string {
	w.t.Helper()
	out, err := cp.Kubectl(w.t.Context(), append([]string{"-n", w.namespace}, args...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// setResources edits the container app as a person would.
func (w *workload) setResources(requests, limits string) {
	w.t.Helper()
	args := []string{"set", "resources", "statefulset/web", "--containers=app", "--requests=" + requests}
	if limits != "" {
		args = append(args, "--limits="+limits)
	}
	w.kubectl(args...)
}

func (w *workload) patch(patch string) {
	w.t.Helper()
	w.kubectl("patch", "statefulset/web", "--patch", patch)
}

func (w *workload) get() *appsv1.StatefulSet {
	w.t.Helper()
	set, err := client.AppsV1().StatefulSets(w.namespace).Get(w.t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return set
}

// pods by their names.
func (w *workload) pods() map[string]corev1.Pod {
	w.t.Helper()
	list, err := client.CoreV1().Pods(w.namespace).List(w.t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		w.t.Fatal(err)
	}
	pods := map[string]corev1.Pod{}
	for _, pod := range list.Items {
		pods[pod.Name] = pod
	}
	return pods
}

func (w *workload) uids() map[string]types.UID {
	w.t.Helper()
	uids := map[string]types.UID{}
	for name, pod := range w.pods() {
		uids[name] = pod.UID
	}
	return uids
}

// annotatePod tells the simulated kubelet how to treat one pod.
func (w *workload) annotatePod(name, annotation string) {
	w.t.Helper()
	w.kubectl("annotate", "--overwrite", "pod", name, annotation)
}

// waitFor waits until the set is as described.
func (w *workload) waitFor(what string, done func(*appsv1.StatefulSet) bool) {
	w.t.Helper()
	eventually(w.t, what, func() (bool, string) {
		set := w.get()
		return done(set), fmt.Sprintf("annotations %v, strategy %+v, status %+v", set.Annotations, set.Spec.UpdateStrategy, set.Status)
	})
}

// waitComplete is what users do: it returns when the condition says Complete.
func (w *workload) waitComplete() {
	w.t.Helper()
	w.kubectl("wait", "--for=condition="+api.ConditionComplete, "statefulset/web", "--timeout="+patience.String())
}

// waitPod waits until one pod is as described.
func (w *workload) waitPod(name, what string, done func(corev1.Pod) bool) {
	w.t.Helper()
	eventually(w.t, name+" "+what, func() (bool, string) {
		pod, exists := w.pods()[name]
		return exists && done(pod), fmt.Sprintf("exists %t, conditions %v", exists, pod.Status.Conditions)
	})
}

func eventually(t *testing.T, what string, check func() (bool, string)) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		done, seen := check()
		if done {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for %s: %s", patience, what, seen)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// assertMoved checks that everything at or above index from is where the
// template says: size in spec and status, revision, no restart; that the built-in
// controller agrees; and that no hold is left behind.
func (w *workload) assertMoved(from int) {
	w.t.Helper()
	set, pods := w.get(), w.pods()
	status := set.Status
	if len(pods) != int(*set.Spec.Replicas) {
		w.t.Errorf("%d pods, want %d", len(pods), *set.Spec.Replicas)
	}
	if status.ObservedGeneration != set.Generation || int(status.UpdatedReplicas) != len(pods)-from || int(status.ReadyReplicas) != len(pods) {
		w.t.Errorf("the StatefulSet controller sees %+v of generation %d", status, set.Generation)
	}
	if from == 0 && status.CurrentRevision != status.UpdateRevision {
		w.t.Errorf("current revision %s, update revision %s: not complete", status.CurrentRevision, status.UpdateRevision)
	}
	if hold, held := set.Annotations[api.HoldAnnotation]; held {
		w.t.Errorf("still held: %q", hold)
	}
	if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil && int(*r.Partition) != from {
		w.t.Errorf("partition %d, want the user's %d", *r.Partition, from)
	}
	start := 0
	if set.Spec.Ordinals != nil {
		start = int(set.Spec.Ordinals.Start)
	}
	for i := from; i < len(pods); i++ {
		pod, exists := pods[fmt.Sprintf("web-%d", start+i)]
		if !exists {
			w.t.Errorf("web-%d does not exist", start+i)
			continue
		}
		w.assertPod(set, pod)
	}
}

func (w *workload) assertPod(set *appsv1.StatefulSet, pod corev1.Pod) {
	w.t.Helper()
	if got := pod.Labels[appsv1.ControllerRevisionHashLabelKey]; got != set.Status.UpdateRevision {
		w.t.Errorf("%s is of revision %s, want %s", pod.Name, got, set.Status.UpdateRevision)
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.RestartCount != 0 {
			w.t.Errorf("%s: container %s restarted %d times", pod.Name, c.Name, c.RestartCount)
		}
	}
	target, err := resize.For(&pod, &set.Spec.Template, &set.Spec.Template)
	if err != nil {
		w.t.Fatal(err)
	}
	if state, message := target.Observe(); state != resize.Actuated {
		w.t.Errorf("%s: %s %s %s, want the template's size", pod.Name, state, message, resize.Describe(target.Changes))
	}
}

// assertReplaced checks that exactly these pods are not the ones that they were.
func (w *workload) assertReplaced(before map[string]types.UID, want ...string) {
	w.t.Helper()
	var replaced []string
	after := w.uids()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if uid, exists := after[name]; exists && uid != before[name] {
			replaced = append(replaced, name)
		}
	}
	if !slices.Equal(replaced, want) {
		w.t.Errorf("replaced pods: %v, want %v", replaced, want)
	}
}

// writes of the controller in the workload's namespace since it was made, events
// left out, as `patch pods/resize web-2`; with the failed ones among them marked
// by their status.
func (w *workload) writes() []string {
	w.t.Helper()
	events, err := cp.AuditSince(w.mark, controlplane.Writes, controlplane.ByUser(controller.User), func(e *auditv1.Event) bool {
		return e.ObjectRef != nil && e.ObjectRef.Namespace == w.namespace && e.ObjectRef.Resource != "events"
	})
	if err != nil {
		w.t.Fatal(err)
	}
	var writes []string
	for _, e := range events {
		resource := e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			resource += "/" + e.ObjectRef.Subresource
		}
		write := fmt.Sprintf("%s %s %s", e.Verb, resource, e.ObjectRef.Name)
		if e.ResponseStatus != nil && e.ResponseStatus.Code >= 300 {
			write += fmt.Sprintf(" %d", e.ResponseStatus.Code)
		}
		writes = append(writes, write)
	}
	return writes
}

// assertNoRefusals checks that nothing was sent that the API server refuses. A
// conflict only says that something has changed meanwhile.
func (w *workload) assertNoRefusals() {
	w.t.Helper()
	for _, write := range w.writes() {
		if fields := strings.Fields(write); len(fields) > 3 && fields[3] >= "400" && fields[3] != "409" {
			w.t.Errorf("the API server refused %s", write)
		}
	}
}

// only keeps the writes that begin with prefix, without it.
func only(writes []string, prefix string) []string {
	var kept []string
	for _, write := range writes {
		if rest, found := strings.CutPrefix(write, prefix+" "); found {
			kept = append(kept, rest)
		}
	}
	return kept
}

// events on the set, as `reason: message`.
func (w *workload) events(reason string) []string {
	w.t.Helper()
	list, err := client.CoreV1().Events(w.namespace).List(w.t.Context(), metav1.ListOptions{
		FieldSelector: "involvedObject.kind=StatefulSet,reason=" + reason,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	var messages []string
	for _, e := range list.Items {
		messages = append(messages, e.Message)
	}
	return messages
}

func (w *workload) waitEvent(reason, containing string) {
	w.t.Helper()
	eventually(w.t, "an event "+reason+" about "+containing, func() (bool, string) {
		messages := w.events(reason)
		return slices.ContainsFunc(messages, func(m string) bool { return strings.Contains(m, containing) }), strings.Join(messages, "; ")
	})
}

// held tells whether the rollout is held.
func held(set *appsv1.StatefulSet) bool { return statefulset.Held(set) }
