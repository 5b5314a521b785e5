package main

import (
	_ "embed"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// Every workload runs in both namespaces, and only in the first it is opted in.
const (
	inPlace = "demo"
	builtIn = "demo-builtin"
)

// workload is what the demo shows in one chapter. Everything that belongs to it has
// the label app with its name.
type workload struct {
	kind, name string
	file       string // its manifest in this folder
	manifest   []byte
	about      string
	more, edit string // what the edit brings, in words and as flags of kubectl
	waiter     string // the kubectl command that waits for the opted-in one
}

var (
	//go:embed database.yaml
	databaseManifest []byte
	//go:embed web.yaml
	webManifest []byte
	//go:embed agent.yaml
	agentManifest []byte
	//go:embed counter.yaml
	counterManifest []byte
)

// Workloads in the order in which they are shown. `kubectl rollout status` takes a
// held StatefulSet for rolled out, and waits for a Deployment.
var (
	simulated = []workload{database, web}
	counters  = []workload{counting("StatefulSet", "counter", completeWaiter), counting("Deployment", "web", rolloutStatus)}
)

const (
	completeWaiter = "wait --for=condition=" + api.ConditionComplete
	rolloutStatus  = "rollout status"
)

var database = workload{
	kind: "StatefulSet", name: "db",
	file: "database.yaml", manifest: databaseManifest,
	about: "two containers, probes, a volume claim each, a PodDisruptionBudget",
	more:  "cpu and memory",
	edit:  "-c database --requests=cpu=1,memory=1Gi --limits=memory=1Gi",

	waiter: completeWaiter,
}

var web = workload{
	kind: "Deployment", name: "web",
	file: "web.yaml", manifest: webManifest,
	about: "probes, the default strategy, a PodDisruptionBudget",
	more:  "cpu",
	edit:  "-c nginx --requests=cpu=500m",

	waiter: rolloutStatus,
}

// agent is shown at a glance.
var agent = workload{
	kind: "DaemonSet", name: "agent",
	file: "agent.yaml", manifest: agentManifest,
	about: "a probe, the default strategy, one pod on each node",
	edit:  "-c agent --requests=cpu=200m",
}

// counting is a workload on a real node.
func counting(kind, name, waiter string) workload {
	return workload{
		kind: kind, name: name,
		file: "counter.yaml", manifest: []byte(strings.NewReplacer("KIND", kind, "NAME", name).Replace(string(counterManifest))),
		about: "a program that counts, probes, a PodDisruptionBudget",
		more:  "cpu and memory",
		edit:  "-c counter --requests=cpu=100m,memory=128Mi --limits=cpu=100m,memory=128Mi",

		waiter: waiter,
	}
}

// in names the workload in a namespace, as arguments of kubectl.
func (w *workload) in(namespace string) string {
	return fmt.Sprintf("%s/%s -n %s", strings.ToLower(w.kind), w.name, namespace)
}

// subject is a workload in one of the namespaces.
type subject = types.NamespacedName

func (w *workload) subject(namespace string) subject {
	return subject{Namespace: namespace, Name: w.name}
}

// owner is the workload that pods belong to.
type owner interface {
	metav1.Object
	template() *corev1.PodTemplateSpec
	replicas() int
	// updated pods, as its built-in controller counts them.
	updated() int
	// rolledOut reports whether its built-in controller has nothing left to do.
	rolledOut() bool
	// complete is the condition inplace-rollout.io/Complete, empty if there is none.
	complete() (status corev1.ConditionStatus, reason string)
	// brake is the field that holds a rollout.
	brake() (name, value string)
	// revision of a pod, if its name does not tell.
	revision(pod *corev1.Pod) string
	// current reports whether a pod is of the newest revision.
	current(pod *corev1.Pod, sets map[string]*appsv1.ReplicaSet) bool
}

type statefulSet struct{ *appsv1.StatefulSet }

func (s statefulSet) template() *corev1.PodTemplateSpec { return &s.Spec.Template }
func (s statefulSet) replicas() int                     { return int(ptr.Deref(s.Spec.Replicas, 1)) }
func (s statefulSet) updated() int                      { return int(s.Status.UpdatedReplicas) }

func (s statefulSet) rolledOut() bool {
	n, status := int32(s.replicas()), s.Status
	return status.ObservedGeneration == s.Generation && status.UpdatedReplicas == n &&
		status.ReadyReplicas == n && status.CurrentRevision == status.UpdateRevision
}

func (s statefulSet) complete() (status corev1.ConditionStatus, reason string) {
	for _, c := range s.Status.Conditions {
		if c.Type == api.ConditionComplete {
			return c.Status, c.Reason
		}
	}
	return "", ""
}

func (s statefulSet) brake() (name, value string) {
	partition := int32(0)
	if r := s.Spec.UpdateStrategy.RollingUpdate; r != nil {
		partition = ptr.Deref(r.Partition, 0)
	}
	return "partition", fmt.Sprint(partition)
}

func (s statefulSet) revision(pod *corev1.Pod) string {
	return strings.TrimPrefix(pod.Labels[appsv1.ControllerRevisionHashLabelKey], s.Name+"-")
}

func (s statefulSet) current(pod *corev1.Pod, _ map[string]*appsv1.ReplicaSet) bool {
	return pod.Labels[appsv1.ControllerRevisionHashLabelKey] == s.Status.UpdateRevision
}

type daemonSet struct{ *appsv1.DaemonSet }

func (d daemonSet) template() *corev1.PodTemplateSpec { return &d.Spec.Template }
func (d daemonSet) replicas() int                     { return int(d.Status.DesiredNumberScheduled) }
func (d daemonSet) updated() int                      { return int(d.Status.UpdatedNumberScheduled) }

func (d daemonSet) rolledOut() bool {
	n, status := d.Status.DesiredNumberScheduled, d.Status
	return status.ObservedGeneration == d.Generation && status.UpdatedNumberScheduled == n && status.NumberAvailable == n
}

func (d daemonSet) complete() (status corev1.ConditionStatus, reason string) {
	for _, c := range d.Status.Conditions {
		if c.Type == api.ConditionComplete {
			return c.Status, c.Reason
		}
	}
	return "", ""
}

func (d daemonSet) brake() (name, value string) { return "type", string(d.Spec.UpdateStrategy.Type) }

func (d daemonSet) revision(pod *corev1.Pod) string {
	return pod.Labels[appsv1.ControllerRevisionHashLabelKey]
}

// current goes by the pod's size: the set does not name its newest revision.
func (d daemonSet) current(pod *corev1.Pod, _ map[string]*appsv1.ReplicaSet) bool {
	return hasSize(pod, d.Spec.Template.Spec.Containers)
}

type deployment struct{ *appsv1.Deployment }

func (d deployment) template() *corev1.PodTemplateSpec { return &d.Spec.Template }
func (d deployment) replicas() int                     { return int(ptr.Deref(d.Spec.Replicas, 1)) }
func (d deployment) updated() int                      { return int(d.Status.UpdatedReplicas) }

func (d deployment) rolledOut() bool {
	n, status := int32(d.replicas()), d.Status
	return status.ObservedGeneration == d.Generation && status.UpdatedReplicas == n &&
		status.Replicas == n && status.AvailableReplicas == n
}

func (d deployment) complete() (status corev1.ConditionStatus, reason string) {
	for _, c := range d.Status.Conditions {
		if c.Type == api.ConditionComplete {
			return c.Status, c.Reason
		}
	}
	return "", ""
}

func (d deployment) brake() (name, value string) { return "paused", fmt.Sprint(d.Spec.Paused) }

func (d deployment) revision(*corev1.Pod) string { return "" }

func (d deployment) current(pod *corev1.Pod, sets map[string]*appsv1.ReplicaSet) bool {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || sets[owner.Name] == nil || sets[owner.Name].UID != owner.UID {
		return false
	}
	template := sets[owner.Name].Spec.Template.DeepCopy()
	delete(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return equality.Semantic.DeepEqual(*template, d.Spec.Template)
}
