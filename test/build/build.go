// Package build makes the objects that unit tests need, from the YAML that people
// know, and plays the kubelet on them.
package build

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/kubectl/pkg/util/qos"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// Start is when the pods of tests became Ready.
var Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// The cpu request, and the memory limit, of the container app as managedFields name them.
const (
	CPURequest  = `{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:requests":{"f:cpu":{}}}}}}}`
	MemoryLimit = `{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:resources":{"f:limits":{"f:memory":{}}}}}}}`
)

// Template parses the spec of a pod template.
func Template(t testing.TB, spec string) *corev1.PodTemplateSpec {
	t.Helper()
	return &corev1.PodTemplateSpec{Spec: *Parsed[corev1.PodSpec](t, spec)}
}

// Parsed is what a text in YAML says, with no field that its type does not have.
func Parsed[T any](t testing.TB, text string) *T {
	t.Helper()
	object := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Fatalf("parsing %s: %v", text, err)
	}
	return object
}

// Pod returns a running, Ready pod as the API server and the kubelet make it from
// template: requests that are missing are filled in from limits, and the status
// shows what the spec says.
func Pod(name string, template *corev1.PodTemplateSpec, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-of-" + name), ResourceVersion: "1", Generation: 1,
			Labels: map[string]string{},
		},
		Spec: *resize.Defaulted(template),
	}
	pod.Spec.NodeName = "node"
	pod.Status.QOSClass = qos.ComputePodQOS(pod)
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(Start)}}
	Actuate(pod)
	for _, f := range change {
		f(pod)
	}
	return pod
}

// Actuate writes into the pod's status that the kubelet has done what the spec says. Of the pod as a whole that is with the overhead of its
// RuntimeClass (getEffectiveAllocatedResources in pkg/kubelet of Kubernetes).
func Actuate(pod *corev1.Pod) {
	pod.Status.ObservedGeneration = pod.Generation
	pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses = nil, nil
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, status(c, true))
	}
	for _, c := range pod.Spec.InitContainers {
		pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses,
			status(c, ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways))
	}
	if pod.Spec.Resources != nil {
		pod.Status.AllocatedResources = resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
		pod.Status.Resources = &corev1.ResourceRequirements{
			Requests: pod.Status.AllocatedResources.DeepCopy(), Limits: resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{}),
		}
	}
}

func status(c corev1.Container, running bool) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: c.Name, Ready: true, Resources: c.Resources.DeepCopy(), AllocatedResources: c.Resources.Requests.DeepCopy()}
	if running {
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(Start)}
	} else {
		s.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed"}
	}
	return s
}

// WithSize gives the pod the resources of template without the kubelet's having noticed.
func WithSize(template *corev1.PodTemplateSpec) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		sized := Pod(pod.Name, template)
		for i := range pod.Spec.Containers {
			pod.Spec.Containers[i].Resources = sized.Spec.Containers[i].Resources
		}
		pod.Generation++
		pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{ // of somebody's resize, whose values are not told
			Manager: "somebody", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "resize", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1("{}"),
		})
	}
}

// Resized gives the pod the resources of template, carried out.
func Resized(template *corev1.PodTemplateSpec) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		WithSize(template)(pod)
		Actuate(pod)
	}
}

// Condition sets a condition, observed at the pod's present generation.
func Condition(kind corev1.PodConditionType, reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message, ObservedGeneration: pod.Generation,
		})
	}
}

// Ours records in managedFields which fields the controller has set through the
// resize subresource.
func Ours(fields string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: api.FieldManager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "resize",
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
		})
	}
}

// ResizedBy records that somebody else has set the fields then.
func ResizedBy(manager string, at time.Time, fields string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "resize", Time: ptr.To(metav1.NewTime(at)),
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
		})
	}
}

// Late puts back or forward, by that much, the times that the API server has noted of the pod.
func Late(pod *corev1.Pod, by time.Duration) {
	pod.CreationTimestamp = metav1.NewTime(pod.CreationTimestamp.Add(by))
	for i, entry := range pod.ManagedFields {
		pod.ManagedFields[i].Time = ptr.To(metav1.NewTime(entry.Time.Add(by)))
	}
}

// RelabelledAt records when the controller last wrote to the pod itself.
func RelabelledAt(t time.Time) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: api.FieldManager, Operation: metav1.ManagedFieldsOperationUpdate, Time: ptr.To(metav1.NewTime(t)),
		})
	}
}

// ResizedAt records when the controller last resized the pod.
func ResizedAt(t time.Time) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		Ours(CPURequest)(pod)
		pod.ManagedFields[len(pod.ManagedFields)-1].Time = ptr.To(metav1.NewTime(t))
	}
}

// PinnedTo puts the pod on a node, and has it come to no other, as those of DaemonSets.
func PinnedTo(node string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.NodeName = node
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
			}}},
		}}}
	}
}

// Unschedulable marks the pod as one that the scheduler has found no node for.
func Unschedulable(pod *corev1.Pod) {
	pod.Spec.NodeName = ""
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
	})
}

// NotReady takes the pod's readiness away.
func NotReady(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse }

// Terminating marks the pod as deleted.
func Terminating(pod *corev1.Pod) {
	pod.DeletionTimestamp = ptr.To(metav1.NewTime(Start))
}

// Revision is the ControllerRevision that the controller of a StatefulSet or DaemonSet stores for template.
func Revision(t testing.TB, owner metav1.Object, kind, name string, number int64, template *corev1.PodTemplateSpec) *appsv1.ControllerRevision {
	t.Helper()
	raw := must.Get(yaml.Marshal(map[string]any{"spec": map[string]any{"template": template}}))(t)
	raw = must.Get(yaml.YAMLToJSON(raw))(t)
	r := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: owner.GetNamespace(), Name: name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind(kind))},
		},
		Revision: number,
	}
	r.Data.Raw = raw
	return r
}

// Size is a template of one container, app, with these resources in YAML flow
// style: `requests: {cpu: 100m}`.
func Size(t testing.TB, resources string) *corev1.PodTemplateSpec {
	t.Helper()
	return Template(t, fmt.Sprintf("containers: [{name: app, image: app:1, resources: {%s}}]", resources))
}

// Stored is the object as the API server has it, for what reads more than our types.
func Stored(t testing.TB, object runtime.Object) *unstructured.Unstructured {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatalf("encoding a %T: %v", object, err)
	}
	return &unstructured.Unstructured{Object: fields}
}

// OwnedBy makes owner the only owner of the pod.
func OwnedBy(owner metav1.Object, kind string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind(kind))}
	}
}

// AddSeeds adds inputs for properties of rapid, which draw what they need from a fuzzer's bytes.
func AddSeeds(f *testing.F) {
	f.Helper()
	for seed := range uint64(64) {
		source := rand.NewPCG(seed, 0)
		var input []byte
		for range 256 {
			input = binary.LittleEndian.AppendUint64(input, source.Uint64())
		}
		f.Add(input)
	}
}

// Each is what a function makes of each of them.
func Each[E, R any](all []E, of func(E) R) (made []R) {
	for _, one := range all {
		made = append(made, of(one))
	}
	return made
}

// Answers has a fake API server answer such requests with an object, or an error.
func Answers(client interface {
	PrependReactor(verb, resource string, reaction clienttesting.ReactionFunc)
}, verb, resource string, object runtime.Object, err error) {
	client.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, object, err })
}

// Those are the ones of which it is so.
func Those[E any](all []E, so func(E) bool) []E {
	return slices.DeleteFunc(slices.Clone(all), func(one E) bool { return !so(one) })
}

// Count is of how many of them it is so.
func Count[E any](all []E, so func(E) bool) int { return len(Those(all, so)) }
