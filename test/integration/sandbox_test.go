//go:build integration || around

package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/invariant"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/webhook"
)

// patience bounds every wait. It is never the expected duration.
const patience = 2 * time.Minute

// sandbox is a namespace with one workload, named web, and what can be done and
// asked there whatever the kind of the workload.
type sandbox[W metav1.Object] struct {
	t           *testing.T
	namespace   string
	ref         string // the workload as kubectl names it
	kind        string
	workloads   getter[W]
	began       int64    // where the audit log stood when the sandbox was made
	mark        int64    // the same, or since markAudit
	oldKubelets []string // nodes whose kubelets lower no memory limit
	unchecked   bool     // promises are broken there on purpose, or not made
}

// getter is a typed client of one kind and namespace.
type getter[W any] interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (W, error)
}

// options of a workload, in the words of its manifest.
type options struct {
	Kind      string // StatefulSet if empty
	Replicas  int    // 3 if 0; so many nodes has a DaemonSet
	OptedOut  bool
	Meta      string // more of the workload's metadata, as YAML
	Spec      string // more of the workload's spec, as YAML
	Resources string // of the container app, as YAML
	Pod       string // more of the pod's spec, as YAML
	PodMeta   string // annotations and labels of the pods, as YAML
	NS        map[string]string
	Node      func(i int) controlplane.Node // the i-th of a DaemonSet, from 1; 8 cpus and 16 Gi if nil
	// By makes the workload of a manifest; without it, it is applied.
	By func(namespace, manifest string)
}

func (o options) replicas() int { return cmp.Or(o.Replicas, 3) }

// base is the size that most workloads start with: Burstable, requests and limits.
const base = "{requests: {cpu: 100m, memory: 100Mi}, limits: {cpu: 200m, memory: 200Mi}}"

// newSandbox creates the namespace and applies the workload's manifest.
func newSandbox[W metav1.Object](t *testing.T, o options, typed func(namespace string) getter[W]) *sandbox[W] {
	t.Helper()
	mark := must.Get(cp.AuditMark())(t)
	namespace := newNamespace(t, o.NS)
	s := &sandbox[W]{
		t: t, namespace: namespace, workloads: typed(namespace), began: mark, mark: mark,
		kind: o.Kind, ref: strings.ToLower(o.Kind) + "/web",
	}
	if o.By == nil {
		o.By = func(namespace, manifest string) { apply(t, namespace, manifest) }
	}
	o.By(namespace, manifest(t, namespace, o))
	t.Cleanup(func() {
		s.assertPromises()
		if t.Failed() {
			s.dump()
			return
		}
		s.clear()
	})
	return s
}

// assertPromises checks from the audit log that whatever the test did, the controller kept what
// users are promised.
func (s *sandbox[W]) assertPromises() {
	if s.unchecked {
		return
	}
	events, err := cp.AuditAbout(s.namespace, s.began)
	if err != nil {
		s.t.Error(err)
		return
	}
	violations, err := invariant.Check(events, invariant.Options{
		Controllers:     []string{controller.User, "system:serviceaccount:" + s.namespace + ":" + controller.ServiceAccount},
		DeferredTimeout: policy.Standard.DeferredTimeout, ErrorTimeout: errorTimeout, OldKubelets: s.oldKubelets,
	})
	must.Fails(s.t, "the check", err, "")
	for _, v := range violations {
		s.t.Errorf("a promise was broken: %s", v)
	}
}

// clear takes everything away that others could notice. The namespace stays: to delete it
// costs the control plane a hundred requests, more than most tests.
func (s *sandbox[W]) clear() {
	ctx, background := context.Background(), metav1.DeletePropagationBackground
	options, all := metav1.DeleteOptions{PropagationPolicy: &background}, metav1.ListOptions{}
	if err := errors.Join(
		client.AppsV1().StatefulSets(s.namespace).DeleteCollection(ctx, options, all),
		client.AppsV1().Deployments(s.namespace).DeleteCollection(ctx, options, all),
		client.AppsV1().DaemonSets(s.namespace).DeleteCollection(ctx, options, all),
		client.CoreV1().Pods(s.namespace).DeleteCollection(ctx, options, all),
	); err != nil {
		s.t.Errorf("deleting workloads and pods: %v", err)
	}
}

func newNamespace(t *testing.T, labels map[string]string) string {
	t.Helper()
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(t.Name()))
	ns := must.Get(client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: name[:min(len(name), 40)] + "-", Labels: labels},
	}, metav1.CreateOptions{}))(t)
	return ns.Name
}

// manifest is what people keep in git.
func manifest(t *testing.T, namespace string, o options) string {
	t.Helper()
	if o.Kind == "" {
		o.Kind = "StatefulSet"
	}
	if o.Resources == "" {
		o.Resources = base
	}
	workload := *build.Parsed[map[string]any](t, fmt.Sprintf(`
apiVersion: apps/v1
kind: %s
metadata: {name: web, namespace: %s, labels: {inplace-rollout.io/enabled: %q}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0 # the simulated kubelet has no graceful termination
      containers:
      - {name: app, image: "app:1", resources: %s}
`, o.Kind, namespace, fmt.Sprint(!o.OptedOut), o.Resources))
	switch o.Kind {
	case "DaemonSet":
		merge(t, workload, fmt.Sprintf("{nodeSelector: {pool: %s}, tolerations: [{key: pool, operator: Exists}]}", namespace), "spec", "template", "spec")
	case "StatefulSet":
		merge(t, workload, "serviceName: web", "spec")
		fallthrough
	default:
		merge(t, workload, fmt.Sprintf("replicas: %d", o.replicas()), "spec")
	}
	merge(t, workload, o.Meta, "metadata")
	merge(t, workload, o.Spec, "spec")
	merge(t, workload, o.PodMeta, "spec", "template", "metadata")
	merge(t, workload, o.Pod, "spec", "template", "spec")
	merged := must.Get(yaml.Marshal(workload))(t)
	return string(merged)
}

// merge adds the keys of a YAML text to the map at path.
func merge(t *testing.T, object map[string]any, text string, path ...string) {
	t.Helper()
	more := map[string]any{}
	must.Do(t, yaml.Unmarshal([]byte(text), &more))
	for _, key := range path {
		object, _ = object[key].(map[string]any)
	}
	maps.Copy(object, more)
}

func writeFile(t *testing.T, manifest string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	must.Do(t, os.WriteFile(file, []byte(manifest), 0o600))
	return file
}

func (s *sandbox[W]) apply(manifest string) {
	s.t.Helper()
	apply(s.t, s.namespace, manifest)
}

// dump tells everything about a workload whose test failed.
func (s *sandbox[W]) dump() {
	for _, args := range [][]string{
		{"get", s.ref, "-o", "yaml"},
		{"get", "controllerrevisions,replicasets", "-o", "yaml"},
		{"get", "pods", "-o", "wide", "--show-labels"},
		{"events"},
	} {
		out, err := cp.Kubectl(context.Background(), append([]string{"-n", s.namespace}, args...)...)
		s.t.Logf("kubectl %s:\n%s%v", strings.Join(args, " "), out, err)
	}
}

// kubectl runs the real kubectl in the sandbox.
func (s *sandbox[W]) kubectl(args ...string) string {
	s.t.Helper()
	return must.Get(cp.Kubectl(s.t.Context(), append([]string{"-n", s.namespace}, args...)...))(s.t)
}

// try is kubectl where an error is an answer; t may be a subtest.
func (s *sandbox[W]) try(t *testing.T, args ...string) error {
	t.Helper()
	_, err := cp.Kubectl(t.Context(), append([]string{"-n", s.namespace}, args...)...)
	return err
}

// allow gives a user a role in the namespace, --role=… or --clusterrole=…, and waits until something
// of it is allowed.
func (s *sandbox[W]) allow(user, role, verb, resource string) {
	s.t.Helper()
	flag, name, _ := strings.Cut(role, "=")
	kind := map[string]string{"--role": "Role", "--clusterrole": "ClusterRole"}[flag]
	must.Get(client.RbacV1().RoleBindings(s.namespace).Create(s.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user + "-" + name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{}))(s.t)
	s.waitAllowed(user, verb, resource)
}

// waitAllowed waits until the API server knows that a user may do something: it authorizes from a cache. The resource is
// written as for `kubectl auth can-i`, such as pods/resize or replicasets.apps.
func (s *sandbox[W]) waitAllowed(user, verb, resource string) {
	s.t.Helper()
	resource, subresource, _ := strings.Cut(resource, "/")
	resource, group, _ := strings.Cut(resource, ".")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: s.namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource,
		},
	}}
	eventually(s.t, "the rights of "+user+" to be in force", func() (bool, string) {
		answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(s.t.Context(), review, metav1.CreateOptions{})
		return err == nil && answer.Status.Allowed, must.Said(err)
	})
}

// setResources edits the container app as `kubectl set resources` does.
func (s *sandbox[W]) setResources(requests, limits string) {
	s.t.Helper()
	resources := map[string]map[string]string{}
	for what, list := range map[string]string{"requests": requests, "limits": limits} {
		for entry := range strings.SplitSeq(list, ",") {
			if resource, quantity, given := strings.Cut(entry, "="); given {
				if resources[what] == nil {
					resources[what] = map[string]string{}
				}
				resources[what][resource] = quantity
			}
		}
	}
	container := must.Get(json.Marshal(map[string]any{"name": "app", "resources": resources}))(s.t)
	s.patchAs("kubectl-set", fmt.Sprintf(`{"spec": {"template": {"spec": {"containers": [%s]}}}}`, container))
}

// patch edits the workload as `kubectl patch` does.
func (s *sandbox[W]) patch(patch string) {
	s.t.Helper()
	s.patchAs("kubectl-patch", patch)
}

// patchAs sends a patch as kubectl would, which takes ten times as long to start as the API server to answer.
func (s *sandbox[W]) patchAs(manager, patch string) {
	s.t.Helper()
	body := must.Get(yaml.YAMLToJSON([]byte(patch)))(s.t)
	workloads := objects.Resource(appsv1.SchemeGroupVersion.WithResource(strings.ToLower(s.kind) + "s")).Namespace(s.namespace)
	must.Get(workloads.Patch(s.t.Context(), "web", types.StrategicMergePatchType, body, metav1.PatchOptions{FieldManager: manager}))(s.t)
}

func (s *sandbox[W]) get() W {
	s.t.Helper()
	return must.Get(s.workloads.Get(s.t.Context(), "web", metav1.GetOptions{}))(s.t)
}

// pods by their names.
func (s *sandbox[W]) pods() map[string]corev1.Pod {
	s.t.Helper()
	list := must.Get(client.CoreV1().Pods(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=web"}))(s.t)
	pods := map[string]corev1.Pod{}
	for _, pod := range list.Items {
		pods[pod.Name] = pod
	}
	return pods
}

// names of the pods.
func (s *sandbox[W]) names() []string {
	s.t.Helper()
	return slices.Sorted(maps.Keys(s.pods()))
}

func (s *sandbox[W]) uids() map[string]types.UID {
	s.t.Helper()
	uids := map[string]types.UID{}
	for name, pod := range s.pods() {
		uids[name] = pod.UID
	}
	return uids
}

// annotatePod tells the simulated kubelet how to treat one pod; the annotation is
// key=value, or key- to take it away, as for kubectl.
func (s *sandbox[W]) annotatePod(name, annotation string) {
	s.t.Helper()
	annotations := map[string]any{}
	if key, value, given := strings.Cut(annotation, "="); given {
		annotations[key] = value
	} else {
		annotations[strings.TrimSuffix(key, "-")] = nil
	}
	patch := must.Get(json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}}))(s.t)
	s.patchPod(name, string(patch))
}

// patchPod patches one pod, or a subresource of it.
func (s *sandbox[W]) patchPod(name, patch string, subresources ...string) {
	s.t.Helper()
	must.Get(client.CoreV1().Pods(s.namespace).Patch(s.t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...))(s.t)
}

// begin starts a rollout to cpu and returns when the pod name has that size in
// its spec: the rollout is under way.
func (s *sandbox[W]) begin(cpu, name string) {
	s.t.Helper()
	s.setResources("cpu="+cpu, "")
	s.waitPod(name, "to be resized to "+cpu, func(pod corev1.Pod) bool { return cpuOf(pod.Spec.Containers[0].Resources) == cpu })
}

// beginAny starts a rollout to cpu and returns when one of the pods has that size
// in its spec: the rollout is under way.
func (s *sandbox[W]) beginAny(cpu string) {
	s.t.Helper()
	s.setResources("cpu="+cpu, "")
	eventually(s.t, "a pod to be resized to "+cpu, func() (bool, string) {
		for _, pod := range s.pods() {
			if cpuOf(pod.Spec.Containers[0].Resources) == cpu {
				return true, ""
			}
		}
		return false, describe(s.get())
	})
}

// waitSize waits until a pod runs with the cpu request.
func (s *sandbox[W]) waitSize(name, cpu string) {
	s.t.Helper()
	s.waitPod(name, "to run with "+cpu, func(pod corev1.Pod) bool { return hasSize(pod, cpu) })
}

// hasSize reports whether a pod has the cpu request in its spec, and runs with it.
func hasSize(pod corev1.Pod, cpu string) bool {
	if cpuOf(pod.Spec.Containers[0].Resources) != cpu || len(pod.Status.ContainerStatuses) == 0 {
		return false
	}
	status := pod.Status.ContainerStatuses[0]
	return status.AllocatedResources.Cpu().String() == cpu && status.Resources != nil && cpuOf(*status.Resources) == cpu
}

// assertSize checks that a pod has the size of a template, and runs with it.
func (s *sandbox[W]) assertSize(pod corev1.Pod, template *corev1.PodTemplateSpec) {
	s.t.Helper()
	target := must.Get(resize.Whole(&pod, template, template))(s.t)
	target = target.By(resize.Kubelet{Silent: pod.Annotations[simKubelet] == "1.33", Now: time.Now()})
	if state, message := target.Observe(); state != resize.Actuated {
		s.t.Errorf("%s: %s %s %s, want the template's size", pod.Name, state, message, resize.Describe(target.Changes))
	}
}

// assertNotRestarted checks that no container of a pod was.
func (s *sandbox[W]) assertNotRestarted(pod corev1.Pod) {
	s.t.Helper()
	for _, c := range pod.Status.ContainerStatuses {
		must.Equal(s.t, c.RestartCount, 0, "%s: restarts of container %s", pod.Name, c.Name)
	}
}

// assertReplaced checks that exactly these of the pods from before are gone.
func (s *sandbox[W]) assertReplaced(before map[string]types.UID, want ...string) {
	s.t.Helper()
	after := s.uids()
	gone := slices.DeleteFunc(slices.Sorted(maps.Keys(before)), func(name string) bool { return after[name] == before[name] })
	slices.Sort(want)
	must.EqualLists(s.t, gone, want, "pods that are gone")
}

// assertAllReplaced checks that none of the pods from before is there any more.
func (s *sandbox[W]) assertAllReplaced(before map[string]types.UID) {
	s.t.Helper()
	s.assertReplaced(before, slices.Collect(maps.Keys(before))...)
}

// letGo lets go of the workload, whether the policies are in force or not.
func (s *sandbox[W]) letGo() {
	s.t.Helper()
	eventually(s.t, "the workload to be let go", func() (bool, string) {
		if !held(s.get()) {
			return true, ""
		}
		got := s.run("release", s.ref, "--yes") // the controller may be faster
		return false, got.stderr
	})
}

func cpuOf(r corev1.ResourceRequirements) string { return r.Requests.Cpu().String() }

// waitFor waits until the workload is as described.
func (s *sandbox[W]) waitFor(what string, done func(W) bool) {
	s.t.Helper()
	eventually(s.t, what, func() (bool, string) {
		workload := s.get()
		return done(workload), describe(workload)
	})
}

// describe a workload, for a wait that was in vain.
func describe(workload any) string {
	switch w := workload.(type) {
	case *appsv1.StatefulSet:
		return fmt.Sprintf("annotations %v, strategy %+v, status %+v", w.Annotations, w.Spec.UpdateStrategy, w.Status)
	case *appsv1.Deployment:
		return fmt.Sprintf("annotations %v, paused %t, status %+v", w.Annotations, w.Spec.Paused, w.Status)
	case *appsv1.DaemonSet:
		return fmt.Sprintf("annotations %v, strategy %s, status %+v", w.Annotations, w.Spec.UpdateStrategy.Type, w.Status)
	}
	return fmt.Sprint(workload)
}

// waitComplete returns when the condition says Complete. It does what `kubectl wait` does, which takes longer
// to start than most rollouts take.
func (s *sandbox[W]) waitComplete() {
	s.t.Helper()
	s.waitFor("the condition Complete", isComplete)
}

// isComplete reports whether the condition says Complete of the workload as it is. What the status says of an
// older generation is of no account to `kubectl wait`.
func isComplete[W metav1.Object](workload W) bool {
	status, _, _ := complete(workload)
	return status == corev1.ConditionTrue && statusOf(workload).ObservedGeneration >= workload.GetGeneration()
}

// observed reports whether the built-in controller has seen the workload as it is, held or not.
func observed[W metav1.Object](workload W) bool {
	status := statusOf(workload)
	var said *rollout.StoredCondition
	for _, c := range status.Conditions {
		if c.Type == api.ConditionObserved {
			said = &rollout.StoredCondition{Message: c.Message}
		}
	}
	return rollout.ObservedGeneration(status.ObservedGeneration, said) >= workload.GetGeneration()
}

// complete is the status, reason and message of our condition; empty without it.
func complete(workload any) (status corev1.ConditionStatus, reason, message string) {
	for _, c := range statusOf(workload).Conditions {
		if c.Type == api.ConditionComplete {
			return c.Status, c.Reason, c.Message
		}
	}
	return "", "", ""
}

// commonStatus is what the statuses of all kinds have.
type commonStatus struct {
	ObservedGeneration int64
	Conditions         []appsv1.DeploymentCondition // those of the other kinds have the same fields
}

func statusOf(workload any) commonStatus {
	var has struct{ Status commonStatus }
	text, err := json.Marshal(workload)
	if err == nil {
		err = json.Unmarshal(text, &has)
	}
	if err != nil {
		panic(err) // what has been read can be written
	}
	return has.Status
}

// waitCondition waits until our condition has the reason and a message with the text.
func (s *sandbox[W]) waitCondition(reason, text string) {
	s.t.Helper()
	s.waitFor("the condition "+reason+" with "+text, func(workload W) bool {
		_, gotReason, message := complete(workload)
		return gotReason == reason && strings.Contains(message, text)
	})
}

// waitWithdrawn waits until the workload, which was opted out, has no condition of ours any more.
func (s *sandbox[W]) waitWithdrawn() {
	s.t.Helper()
	s.waitFor("our conditions to go", func(workload W) bool {
		return workload.GetAnnotations()[api.SaidOfAnnotation] == "" && !slices.ContainsFunc(statusOf(workload).Conditions, func(c appsv1.DeploymentCondition) bool {
			return strings.HasPrefix(string(c.Type), "inplace-rollout.io/")
		})
	})
}

// held reports whether the rollout is held.
func held(workload metav1.Object) bool {
	_, held := workload.GetAnnotations()[api.HoldAnnotation]
	return held
}

// waitPod waits until one pod is as described.
func (s *sandbox[W]) waitPod(name, what string, done func(corev1.Pod) bool) {
	s.t.Helper()
	eventually(s.t, name+" "+what, func() (bool, string) {
		pod, exists := s.pods()[name]
		return exists && done(pod), fmt.Sprintf("exists %t, conditions %v", exists, pod.Status.Conditions)
	})
}

func eventually(t *testing.T, what string, check func() (bool, string)) {
	t.Helper()
	deadline, pause := time.Now().Add(patience), 25*time.Millisecond
	for {
		done, seen := check()
		if done {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for %s: %s", patience, what, seen)
		}
		time.Sleep(pause)
		pause = min(pause*3/2, 250*time.Millisecond)
	}
}

// markAudit makes the audit log begin now, for writes and its like.
func (s *sandbox[W]) markAudit() {
	s.t.Helper()
	mark := must.Get(cp.AuditMark())(s.t)
	s.mark = mark
}

// audited returns the writes in the sandbox that pass the filters, since it was
// made or since markAudit, in the order in which they were done.
func (s *sandbox[W]) audited(filters ...controlplane.AuditFilter) []auditv1.Event {
	s.t.Helper()
	events := must.Get(cp.AuditAbout(s.namespace, s.mark, append([]controlplane.AuditFilter{controlplane.Writes, func(e *auditv1.Event) bool {
		return e.ObjectRef != nil && e.ObjectRef.Namespace == s.namespace
	}}, filters...)...))(s.t)
	return events
}

// writes of the controller, events left out, as `patch pods/resize web-2`; with
// the failed ones among them marked by their status.
func (s *sandbox[W]) writes() []string {
	s.t.Helper()
	var writes []string
	for _, e := range s.audited(controlplane.ByUser(controller.User)) {
		resource := e.ObjectRef.Resource
		if resource == "events" {
			continue
		}
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

// audit returns when the controller made the described writes, but for those that met a conflict.
func (s *sandbox[W]) audit(verb, resource, subresource, name string) []time.Time {
	s.t.Helper()
	var at []time.Time
	for _, e := range s.audited(controlplane.ByUser(controller.User), controlplane.OnResource(resource, subresource)) {
		if e.Verb == verb && e.ObjectRef.Name == name && e.ResponseStatus.Code != http.StatusConflict {
			at = append(at, e.RequestReceivedTimestamp.Time)
		}
	}
	return at
}

// assertNoRefusals checks that nothing was sent that the API server refuses. A
// conflict only says that something has changed meanwhile.
func (s *sandbox[W]) assertNoRefusals() {
	s.t.Helper()
	for _, write := range s.writes() {
		if fields := strings.Fields(write); len(fields) > 3 && fields[3] >= "400" && fields[3] != "409" {
			s.t.Errorf("the API server refused %s", write)
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

// events on the workload: their messages.
func (s *sandbox[W]) events(reason string) []string {
	s.t.Helper()
	list := must.Get(client.CoreV1().Events(s.namespace).List(s.t.Context(), metav1.ListOptions{
		FieldSelector: "involvedObject.kind=" + s.kind + ",reason=" + reason,
	}))(s.t)
	return build.Each(list.Items, func(e corev1.Event) string { return e.Message })
}

func (s *sandbox[W]) waitEvent(reason, containing string) {
	s.t.Helper()
	eventually(s.t, "an event "+reason+" about "+containing, func() (bool, string) {
		messages := s.events(reason)
		return slices.ContainsFunc(messages, func(m string) bool { return strings.Contains(m, containing) }), strings.Join(messages, "; ")
	})
}

// assertWarns checks that the events with a reason are warnings, or that none is.
func (s *sandbox[W]) assertWarns(reason string, warns bool) {
	s.t.Helper()
	for eventType, want := range map[string]bool{corev1.EventTypeWarning: warns, corev1.EventTypeNormal: !warns} {
		found := s.kubectl("get", "events", "--field-selector=reason="+reason+",type="+eventType, "--output=name")
		must.Equal(s.t, found != "", want, "of type %s there are some, %q", eventType, found)
	}
}

// waitQuota waits until so much of the quota is counted as used.
func (s *sandbox[W]) waitQuota(used string) {
	s.t.Helper()
	eventually(s.t, "the quota to be counted", func() (bool, string) {
		quota, err := client.CoreV1().ResourceQuotas(s.namespace).Get(s.t.Context(), "quota", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		now := quota.Status.Used[corev1.ResourceRequestsCPU]
		return now.String() == used, now.String()
	})
}

// tally counts writes to each pod, and keeps those that are not to pods.
func tally(writes []string) (ofPods map[string]int, others []string) {
	ofPods = map[string]int{}
	for _, write := range writes {
		fields := strings.Fields(write)
		if resource, _, _ := strings.Cut(fields[1], "/"); resource == "pods" {
			ofPods[fields[2]]++
		} else {
			others = append(others, write)
		}
	}
	return ofPods, others
}

// guard sets the annotations of a guarded rollout.
func (s *sandbox[W]) guard(pairs ...string) {
	s.t.Helper()
	var said []string
	for i := 0; i < len(pairs); i += 2 {
		said = append(said, fmt.Sprintf("%q: %q", "inplace-rollout.io/"+pairs[i], pairs[i+1]))
	}
	s.patch(`{"metadata": {"annotations": {` + strings.Join(said, ", ") + `}}}`)
}

// askedPods are the pods that we have asked for a size.
func (s *sandbox[W]) askedPods() []string {
	return slices.Compact(slices.Sorted(slices.Values(only(s.writes(), "patch pods/resize"))))
}

// strategyOf is the update strategy: its type, and maxUnavailable/maxSurge if it has them.
func strategyOf(d *appsv1.DaemonSet) string {
	strategy := string(d.Spec.UpdateStrategy.Type)
	if r := d.Spec.UpdateStrategy.RollingUpdate; r != nil {
		strategy += fmt.Sprintf(" %s/%s", r.MaxUnavailable, r.MaxSurge)
	}
	return strategy
}

// serve registers a webhook for the sandbox and waits until the API server asks it.
func (s *sandbox[W]) serve(again bool, mutate webhook.Mutate) {
	s.t.Helper()
	var asked atomic.Bool
	webhook.Serve(s.t, client, webhook.Options{Namespace: s.namespace, Again: again, Mutate: func(r *admissionv1.AdmissionRequest, object *unstructured.Unstructured) {
		asked.Store(true)
		mutate(r, object)
	}})
	eventually(s.t, "the webhook to be asked", func() (bool, string) {
		s.kubectl("label", s.ref, "--overwrite", "example.com/asks=yes", "--dry-run=server")
		return asked.Load(), ""
	})
}
