package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

const (
	// size that every workload of a stage starts with.
	size = "requests: {cpu: 100m, memory: 100Mi}, limits: {cpu: 1, memory: 1Gi}"
	// larger is the size that edits ask for.
	larger = "requests: {cpu: 200m, memory: 100Mi}, limits: {cpu: 1, memory: 1Gi}"
)

// stage is a cluster of fakes with the workload web in it, whose pods are of size.
type stage struct {
	set     *appsv1.StatefulSet // or
	deploy  *appsv1.Deployment  // or
	daemons *appsv1.DaemonSet
	nodes   []*corev1.Node
	pods    []*corev1.Pod
	others  []runtime.Object
	says    string              // the policy that holds, to dry runs: see answer
	image   string              // that a webhook gives what is edited; empty if none is there
	report  prerequisite.Report // of what is seen of the installation
}

func webMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: "default", Name: "web", UID: "uid-of-web", Generation: 1, ResourceVersion: "7",
		Labels: map[string]string{api.EnabledLabel: "true"}, Annotations: map[string]string{},
	}
}

func pointed(template *corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	template.Labels = map[string]string{"app": "web"}
	return *template
}

func node(name, cpu string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("8Gi")}
	return n
}

// newSetStage has a StatefulSet at rest, on one node.
func newSetStage(t *testing.T, replicas int) *stage {
	t.Helper()
	s := &stage{set: &appsv1.StatefulSet{ObjectMeta: webMeta()}, nodes: []*corev1.Node{node("node", "4")}}
	s.set.Spec.Replicas = ptr.To(int32(replicas))
	s.set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	s.set.Spec.Template = pointed(build.Size(t, size))
	s.set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{
		Type:          appsv1.RollingUpdateStatefulSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To(int32(0))},
	}
	s.set.Status = appsv1.StatefulSetStatus{
		ObservedGeneration: 1, CurrentRevision: "web-a", UpdateRevision: "web-a",
		Conditions: []appsv1.StatefulSetCondition{{Type: api.ConditionComplete, Status: corev1.ConditionTrue, Reason: "Complete", Message: "all pods are of revision web-a"}},
	}
	s.revision(t, "web-a", &s.set.Spec.Template)
	for i := range replicas {
		pod := build.Pod(fmt.Sprintf("web-%d", i), &s.set.Spec.Template, build.OwnedBy(s.set, "StatefulSet"))
		pod.Labels = map[string]string{"app": "web", appsv1.ControllerRevisionHashLabelKey: "web-a"}
		s.pods = append(s.pods, pod)
	}
	return s
}

func (s *stage) revision(t *testing.T, name string, template *corev1.PodTemplateSpec) {
	t.Helper()
	u := s.live(t)
	r := build.Revision(t, u, u.GetKind(), name, int64(name[len(name)-1]-'a'+1), template)
	r.Labels = map[string]string{"app": "web", appsv1.ControllerRevisionHashLabelKey: strings.TrimPrefix(name, "web-")}
	s.others = append(s.others, r)
}

// heldAt gives the set a new template that it is held at.
func (s *stage) heldAt(t *testing.T, resources string) {
	t.Helper()
	s.set.Spec.Template = pointed(build.Size(t, resources))
	s.set.Generation, s.set.Status.ObservedGeneration = 2, 2
	s.set.Annotations[api.HoldAnnotation] = "0"
	s.set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To(int32(1<<31 - 1))
	s.set.Status.UpdateRevision = "web-b"
	s.set.Status.Conditions[0].Status, s.set.Status.Conditions[0].Reason, s.set.Status.Conditions[0].Message = corev1.ConditionFalse, "Progressing", "under way"
	s.revision(t, "web-b", &s.set.Spec.Template)
}

// updated gives these pods the size and the label of what the set is held at.
func (s *stage) updated(pods ...int) {
	for _, i := range pods {
		build.Resized(&s.set.Spec.Template)(s.pods[i])
		s.pods[i].Labels["controller-revision-hash"] = "web-b"
	}
}

// resized gives these pods of a Deployment the size that it is held at.
func (s *stage) resized(pods ...int) {
	for _, i := range pods {
		build.Resized(&s.deploy.Spec.Template)(s.pods[i])
		build.ResizedAt(now.Add(-time.Minute))(s.pods[i])
	}
}

// withInit gives the set, and its pods, an init container that requests so much cpu.
func (s *stage) withInit(t *testing.T, cpu string) {
	t.Helper()
	init := corev1.Container{Name: "setup", Image: "setup:1", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
	}}
	s.set.Spec.Template.Spec.InitContainers, s.others = []corev1.Container{init}, nil
	s.revision(t, "web-a", &s.set.Spec.Template)
	for i, pod := range s.pods {
		with := build.Pod(pod.Name, &s.set.Spec.Template, build.OwnedBy(s.set, "StatefulSet"))
		with.Labels = pod.Labels
		s.pods[i] = with
	}
}

// quota bounds what all pods request of cpu.
func (s *stage) quota(cpu string) {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "team"}}
	q.Spec.Hard = corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse(cpu)}
	q.Status.Hard, q.Status.Used = q.Spec.Hard, corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse("0")}
	s.others = append(s.others, q)
}

// recorded has the workload be in a guarded rollout, with this canary.
func (s *stage) recorded(r rollout.Record, canaries ...*corev1.Pod) {
	at := metav1.NewTime(now.Add(-time.Minute))
	r.Schema = rollout.RecordSchema
	for _, pod := range canaries {
		r.Canaries = append(r.Canaries, rollout.Canary{UID: pod.UID, Name: pod.Name, Done: &at, Well: &at, Ready: judge.ConditionReady(pod).LastTransitionTime.Unix()})
	}
	s.meta().Annotations[api.RolloutAnnotation] = r.String()
}

// newDaemonSetStage has a DaemonSet at rest, on as many nodes.
func newDaemonSetStage(t *testing.T, nodes int) *stage {
	t.Helper()
	s := &stage{daemons: &appsv1.DaemonSet{ObjectMeta: webMeta()}}
	s.daemons.Annotations[appsv1.DeprecatedTemplateGeneration] = "1"
	s.daemons.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	s.daemons.Spec.Template = pointed(build.Size(t, size))
	s.daemons.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{
		Type:          appsv1.RollingUpdateDaemonSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr.To(intstr.FromInt32(1)), MaxSurge: ptr.To(intstr.FromInt32(0))},
	}
	s.daemons.Status = appsv1.DaemonSetStatus{
		ObservedGeneration: 1, DesiredNumberScheduled: int32(nodes), CurrentNumberScheduled: int32(nodes), UpdatedNumberScheduled: int32(nodes),
		Conditions: []appsv1.DaemonSetCondition{{Type: api.ConditionComplete, Status: corev1.ConditionTrue, Reason: "Complete", Message: "all pods are of template generation 1"}},
	}
	s.revision(t, "web-a", &s.daemons.Spec.Template)
	for i := range nodes {
		s.nodes = append(s.nodes, node(fmt.Sprintf("node-%d", i), "4"))
		pod := build.Pod(fmt.Sprintf("web-%c%c", 'z'-i/5, 'a'+i%5), &s.daemons.Spec.Template, build.OwnedBy(s.daemons, "DaemonSet"), build.PinnedTo(s.nodes[i].Name))
		pod.Labels = map[string]string{"app": "web", appsv1.ControllerRevisionHashLabelKey: "a"}
		s.pods = append(s.pods, pod)
	}
	return s
}

// newDeploymentStage has a Deployment at rest, on one node.
func newDeploymentStage(t *testing.T, replicas int) *stage {
	t.Helper()
	s := &stage{deploy: &appsv1.Deployment{ObjectMeta: webMeta()}, nodes: []*corev1.Node{node("node", "4")}}
	s.deploy.Annotations["deployment.kubernetes.io/revision"] = "1"
	s.deploy.Spec.Replicas = ptr.To(int32(replicas))
	s.deploy.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	s.deploy.Spec.Template = pointed(build.Size(t, size))
	s.deploy.Status.ObservedGeneration = 1
	s.replicaSet(t, "web-a", "1", size, replicas)
	return s
}

// detached adds a pod that waits for another one in its place.
func (s *stage) detached(name string) {
	pod := s.pods[0].DeepCopy()
	pod.Name, pod.UID = name, types.UID("uid-of-"+name)
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s.deploy, deployments.gvk())}
	pod.Labels = map[string]string{"app": "web", api.DetachedLabel: "uid-of-web-a"}
	s.pods = append(s.pods, pod)
}

// replicaSet adds one, with its pods.
func (s *stage) replicaSet(t *testing.T, name, revision, resources string, replicas int) {
	t.Helper()
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID("uid-of-" + name),
		Labels:          map[string]string{"app": "web", appsv1.DefaultDeploymentUniqueLabelKey: name},
		Annotations:     map[string]string{"deployment.kubernetes.io/revision": revision},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.deploy, deployments.gvk())},
	}}
	rs.Spec.Replicas = ptr.To(int32(replicas))
	rs.Spec.Selector = &metav1.LabelSelector{MatchLabels: rs.Labels}
	rs.Spec.Template = pointed(build.Size(t, resources))
	rs.Spec.Template.Labels = rs.Labels
	rs.Status.Replicas = int32(replicas)
	s.others = append(s.others, rs)
	for i := range replicas {
		pod := build.Pod(fmt.Sprintf("%s-%d", name, i), &rs.Spec.Template, build.OwnedBy(rs, "ReplicaSet"))
		pod.Labels = rs.Labels
		s.pods = append(s.pods, pod)
	}
}

// meta is that of the workload.
func (s *stage) meta() *metav1.ObjectMeta {
	switch {
	case s.set != nil:
		return &s.set.ObjectMeta
	case s.daemons != nil:
		return &s.daemons.ObjectMeta
	default:
		return &s.deploy.ObjectMeta
	}
}

// live is the workload as it is stored.
func (s *stage) live(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	object, kind := runtime.Object(s.deploy), deployments
	switch {
	case s.set != nil:
		object, kind = s.set, statefulSets
	case s.daemons != nil:
		object, kind = s.daemons, daemonSets
	}
	u := build.Stored(t, object)
	u.SetGroupVersionKind(kind.gvk())
	return u
}

// cluster has the commands read the stage, and nothing else.
func (s *stage) cluster(t *testing.T) *cluster {
	t.Helper()
	stored, nodes := []runtime.Object{s.live(t)}, build.Each(s.nodes, func(n *corev1.Node) runtime.Object { return n })
	typed := slices.Concat(nodes, build.Each(s.pods, func(pod *corev1.Pod) runtime.Object { return pod }))
	for _, object := range s.others {
		if rs, is := object.(*appsv1.ReplicaSet); is {
			u := build.Stored(t, rs)
			u.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
			stored = append(stored, u)
			continue
		}
		typed = append(typed, object)
	}
	objects := dynamicfake.NewSimpleDynamicClient(scheme.Scheme, stored...)
	objects.PrependReactor("update", "*", s.answer)
	objects.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		patch, sent := a.(clienttesting.PatchActionImpl), &metav1.PartialObjectMetadata{}
		if len(patch.PatchOptions.DryRun) == 0 || !strings.Contains(string(patch.Patch), api.AttendedAnnotation) {
			return false, nil, nil
		}
		must.Do(t, utiljson.Unmarshal(patch.Patch, sent))
		u := s.live(t)
		annotations := sent.Annotations
		for name, value := range u.GetAnnotations() {
			if _, is := annotations[name]; !is {
				annotations[name] = value
			}
		}
		u.SetAnnotations(annotations)
		return s.answer(clienttesting.NewUpdateActionWithOptions(a.GetResource(), u.GetNamespace(), u, metav1.UpdateOptions{DryRun: patch.PatchOptions.DryRun}))
	})
	return &cluster{client: fake.NewClientset(typed...), objects: objects, namespace: "default", clock: clocktesting.NewFakePassiveClock(now), reports: memo[prerequisite.Report]{"default": s.report}}
}

// answer is what the policy that holds makes of the dry run of an edit: it sees a controller; or "none", and lets go, or "waits", and
// holds all the same. Or there is "nothing" that holds, or whoever asks is "forbidden" to edit.
func (s *stage) answer(a clienttesting.Action) (handled bool, would runtime.Object, err error) {
	update := a.(clienttesting.UpdateActionImpl)
	u := update.Object.(*unstructured.Unstructured).DeepCopy()
	annotations := u.GetAnnotations()
	if s.image != "" {
		withImage(u, s.image)
	}
	switch _, asks := annotations[api.AttendedAnnotation]; {
	case len(update.UpdateOptions.DryRun) == 0:
		return false, nil, nil
	case s.says == "forbidden":
		return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), u.GetName(), errors.New("you cannot update resource"))
	case s.says == "nothing" || !asks:
		return true, u, nil
	case s.says == "none":
		delete(annotations, api.HoldAnnotation)
	case s.says == "waits":
		annotations[api.HoldAnnotation] = "any"
	}
	delete(annotations, api.InForceAnnotation)
	annotations[api.AttendedAnnotation] = strconv.FormatBool(s.says == "")
	u.SetAnnotations(annotations)
	return true, u, nil
}

// manifest of the workload, as people keep it.
func manifest(t *testing.T, kind, spec, resources string) *unstructured.Unstructured {
	t.Helper()
	text := fmt.Sprintf(`
apiVersion: apps/v1
kind: %s
metadata: {name: web, namespace: default}
spec:
  %s
  template: {spec: {containers: [{name: app, image: "app:1", resources: {%s}}]}}
`, kind, spec, resources)
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatalf("parsing %s: %v", text, err)
	}
	u := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(raw, &u.Object); err != nil {
		t.Fatalf("parsing %s: %v", text, err)
	}
	return u
}

// withImage changes that of the first container.
func withImage(u *unstructured.Unstructured, image string) {
	containers := u.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)
	containers[0].(map[string]any)["image"] = image
}

// begin is how a test begins.
type begin = func(*testing.T) *stage

// changed begins like another one, and then differs.
func changed(like begin, changes ...func(*stage)) begin {
	return func(t *testing.T) *stage {
		s := like(t)
		for _, change := range changes {
			change(s)
		}
		return s
	}
}

// heartbeat has the controller say these defaults, and that there are these checks.
func heartbeat(defaults, checks string) func(*stage) {
	return func(s *stage) {
		s.others = append(s.others, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Namespace: "inplace-rollout", Name: api.HeartbeatName, Annotations: map[string]string{api.DefaultsAnnotation: defaults, api.ChecksAnnotation: checks},
		}})
	}
}

// guarded has the workload name these checks.
func guarded(checks string) func(*stage) {
	return func(s *stage) {
		s.meta().Annotations[api.CanaryAnnotation], s.meta().Annotations[api.ChecksAnnotation] = "1", checks
	}
}

func setOf(replicas int, changes ...func(*stage)) begin {
	return changed(func(t *testing.T) *stage { return newSetStage(t, replicas) }, changes...)
}

// heldSetOf is setOf, and held at larger.
func heldSetOf(replicas int, changes ...func(*stage)) begin {
	return changed(func(t *testing.T) *stage {
		s := newSetStage(t, replicas)
		s.heldAt(t, larger)
		return s
	}, changes...)
}

func deploymentOf(replicas int, changes ...func(*stage)) begin {
	return changed(func(t *testing.T) *stage { return newDeploymentStage(t, replicas) }, changes...)
}

// heldDeploymentOf is deploymentOf, and held at larger.
func heldDeploymentOf(replicas int, changes ...func(*stage)) begin {
	return changed(func(t *testing.T) *stage {
		s := newDeploymentStage(t, replicas)
		s.deploy.Spec.Template = pointed(build.Size(t, larger))
		s.deploy.Spec.Paused = true
		s.deploy.Generation, s.deploy.Status.ObservedGeneration = 2, 2
		s.deploy.Annotations[api.HoldAnnotation], s.deploy.Annotations[api.EditAnnotation] = "false", "5209"
		s.deploy.Status.Conditions = []appsv1.DeploymentCondition{{Type: api.ConditionComplete, Status: corev1.ConditionFalse, Reason: "Progressing", Message: "under way"}}
		return s
	}, changes...)
}

func daemonSetOf(nodes int, changes ...func(*stage)) begin {
	return changed(func(t *testing.T) *stage { return newDaemonSetStage(t, nodes) }, changes...)
}

// heldDaemonSetOf is daemonSetOf, and held at larger.
func heldDaemonSetOf(nodes int, changes ...func(*stage)) begin {
	return changed(func(t *testing.T) *stage {
		s := newDaemonSetStage(t, nodes)
		s.daemons.Spec.Template = pointed(build.Size(t, larger))
		s.daemons.Generation, s.daemons.Status.ObservedGeneration, s.daemons.Status.UpdatedNumberScheduled = 2, 2, 0
		s.daemons.Annotations[appsv1.DeprecatedTemplateGeneration] = "5"
		s.daemons.Annotations[api.HoldAnnotation] = "RollingUpdate"
		s.daemons.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
		c := &s.daemons.Status.Conditions[0]
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "Progressing", "under way"
		s.revision(t, "web-b", &s.daemons.Spec.Template)
		return s
	}, changes...)
}

// heldStage is held at larger, and web-2 has that size already.
var heldStage = heldSetOf(3, func(s *stage) { s.updated(2) })
