package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// Members that are made from stripped pods say the same as those that are made from whole
// ones: nothing that is read is missing. The pods differ in all that members are judged by.
func TestStripChangesNoMember(t *testing.T) {
	templates := []*corev1.PodTemplateSpec{
		build.Template(t, fmt.Sprintf(twoContainers, "100m", "64Mi", "200m")),
		build.Template(t, fmt.Sprintf(twoContainers, "150m", "64Mi", "200m")),
		build.Template(t, fmt.Sprintf(twoContainers, "100m", "32Mi", "1")),
		build.Template(t, "containers: [{name: app, image: app:1, resources: {limits: {cpu: 200m, memory: 64Mi}}}]"),
		build.Template(t, "containers: [{name: app, image: app:1, resources: {limits: {cpu: 300m, memory: 64Mi}}}]"),
		build.Template(t, "{resources: {requests: {cpu: 500m}}, containers: [{name: app, image: app:1}]}"),
		build.Template(t, "{resources: {requests: {cpu: 600m}}, containers: [{name: app, image: app:1}]}"),
	}
	for _, older := range []*corev1.PodTemplateSpec{templates[0], templates[3], templates[5]} {
		for _, newer := range templates {
			for _, f := range changes(newer) {
				changesNoMember(t, older, newer, f)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.SampledFrom(templates)
		changesNoMember(t, draw.Draw(t, "older"), draw.Draw(t, "newer"), rapid.SliceOfN(rapid.SampledFrom(changes(draw.Draw(t, "now"))), 0, 4).Draw(t, "changes")...)
	})
}

func changesNoMember(t rapid.TB, older, newer *corev1.PodTemplateSpec, changes ...change) {
	t.Helper()
	pod := build.Pod("web-0", older, decorate)
	for _, f := range changes {
		f.change(pod)
	}
	before := pod.DeepCopy()
	stripped := must.Get(pods.Strip(pod))(t)
	for name, target := range map[string]func(*corev1.Pod) (resize.Target, error){
		"For":      func(pod *corev1.Pod) (resize.Target, error) { return resize.For(pod, older, newer) },
		"ForBut":   func(pod *corev1.Pod) (resize.Target, error) { return resize.ForBut(pod, older, newer) },
		"Leftover": func(pod *corev1.Pod) (resize.Target, error) { return resize.Leftover(pod, newer) },
		"Since":    func(pod *corev1.Pod) (resize.Target, error) { return resize.SizedSince(pod, newer, newer, build.Start) },
	} {
		if got, want := says(stripped, newer, target), says(pod, newer, target); got != want {
			t.Fatalf("%v, %s: a stripped pod says\n%s\nand the whole one\n%s", changes, name, got, want)
		}
	}
	if !equality.Semantic.DeepEqual(pod, before) {
		t.Fatalf("the pod itself has changed from %v to %v", before, pod)
	}
}

const twoContainers = `
initContainers:
- {name: setup, image: setup:1, resources: {requests: {cpu: 300m}}}
- {name: proxy, image: proxy:1, restartPolicy: Always, resources: {requests: {cpu: 50m}}}
containers:
- name: app
  image: app:1
  env:
  - {name: MODE, value: fast}
  - {name: CPUS, valueFrom: {resourceFieldRef: {resource: requests.cpu}}}
  - {name: OF_LOG, valueFrom: {resourceFieldRef: {containerName: log, resource: limits.cpu}}}
  resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]
  resources: {requests: {cpu: %s, memory: %s}}
- {name: log, image: log:1, resources: {limits: {cpu: %s}}}`

// decorate gives a pod what nothing reads.
func decorate(pod *corev1.Pod) {
	pod.Annotations = map[string]string{"prometheus.io/scrape": "true"}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)}}
	pod.Status.PodIP, pod.Status.HostIP = "10.0.0.1", "10.0.0.2"
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue})
	pod.Spec.Volumes = []corev1.Volume{{Name: "data"}}
}

// change is one way in which a pod may differ from one that rests.
type change struct {
	name   string
	change func(*corev1.Pod)
}

func (c change) String() string { return c.name }

// changes are those that the members are judged by; now is the size that some give the pod.
func changes(now *corev1.PodTemplateSpec) []change {
	sized := func(f func(*corev1.PodTemplateSpec) func(*corev1.Pod)) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			if len(pod.Spec.Containers) == len(now.Spec.Containers) {
				f(now)(pod)
			}
		}
	}
	found := []change{
		{"asked", sized(build.WithSize)},
		{"resized", sized(build.Resized)},
		{"ours", build.Ours(build.CPURequest)},
		{"somebody's", build.ResizedBy("updater", build.Start.Add(time.Second), build.CPURequest)},
		{"resized at", build.ResizedAt(build.Start)},
		{"deferred", build.Condition(corev1.PodResizePending, corev1.PodReasonDeferred, "no room")},
		{"in progress", build.Condition(corev1.PodResizeInProgress, corev1.PodReasonError, "it fails")},
	}
	return slices.Concat(found, changesOfPods(), changesOfResources())
}

// changesOfPods are those that have nothing to do with the size now.
func changesOfPods() []change {
	return []change{
		{"unschedulable", build.Unschedulable},
		{"gated", func(pod *corev1.Pod) {
			build.Unschedulable(pod)
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
		}},
		{"not ready", build.NotReady},
		{"terminating", build.Terminating},
		{"held by a finalizer", func(pod *corev1.Pod) { build.Terminating(pod); pod.Finalizers = []string{"example.com/drain"} }},
		{"failed", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }},
		{"mirror", func(pod *corev1.Pod) { pod.Annotations[corev1.MirrorPodAnnotationKey] = "x" }},
		{"filled", func(pod *corev1.Pod) {
			pod.Annotations[resize.LimitRangerAnnotation] = "LimitRanger plugin set: memory limit for container app"
			pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")}
		}},
		{"observed", func(pod *corev1.Pod) { pod.Generation++ }},
		{"windows", func(pod *corev1.Pod) { pod.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }},
		{"for windows", func(pod *corev1.Pod) {
			pod.Spec.NodeSelector = map[string]string{corev1.LabelOSStable: string(corev1.Windows)}
		}},
		{"tolerant", func(pod *corev1.Pod) {
			pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}},
		{"elsewhere", func(pod *corev1.Pod) {
			pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"x"}}}}},
			}}}
		}},
		{"on a lost node", func(pod *corev1.Pod) { pod.Spec.NodeName = "lost" }},
		{"its kubelet has written", func(pod *corev1.Pod) {
			at := metav1.NewTime(build.Start.Add(2 * time.Second))
			pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{Manager: "kubelet", Subresource: "status", Time: &at, FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:containerStatuses":{}}}`)})
		}},
		{"of a silent kubelet", func(pod *corev1.Pod) { pod.Status.ObservedGeneration = 0 }},
		{"with overhead", func(pod *corev1.Pod) {
			pod.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10")}
		}},
	}
}

// changesOfResources change what containers, and the pod as a whole, ask for and have.
func changesOfResources() []change {
	container := func(pod *corev1.Pod) *corev1.Container { return &pod.Spec.Containers[0] }
	status := func(pod *corev1.Pod) *corev1.ContainerStatus { return &pod.Status.ContainerStatuses[0] }
	gpu := corev1.ResourceName("example.com/gpu")
	return []change{
		{"with a size as a whole", func(pod *corev1.Pod) {
			pod.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}
			pod.Status.Resources, pod.Status.AllocatedResources = pod.Spec.Resources, pod.Spec.Resources.Requests
		}},
		{"allocated as a whole", func(pod *corev1.Pod) {
			pod.Status.AllocatedResources = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("550m")}
		}},
		{"applied as a whole", func(pod *corev1.Pod) {
			pod.Status.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("550m")}}
		}},
		{"with a device", func(pod *corev1.Pod) {
			container(pod).Resources.Requests = corev1.ResourceList{gpu: resource.MustParse("1")}
			pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{RequestMappings: []corev1.ContainerExtendedResourceRequest{{ResourceName: string(gpu)}}}
		}},
		{"with a device that a node must have", func(pod *corev1.Pod) {
			container(pod).Resources.Requests = corev1.ResourceList{gpu: resource.MustParse("1")}
		}},
		{"allocated", func(pod *corev1.Pod) {
			status(pod).AllocatedResources = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("7m")}
		}},
		{"unreported", func(pod *corev1.Pod) { status(pod).Resources = nil }},
		{"without a sidecar", func(pod *corev1.Pod) { pod.Status.InitContainerStatuses = nil }},
		{"not running", func(pod *corev1.Pod) {
			status(pod).State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
		}},
		{"terminated", func(pod *corev1.Pod) {
			status(pod).State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
		}},
		{"OOMKilled", func(pod *corev1.Pod) {
			status(pod).LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}
		}},
		{"guaranteed", func(pod *corev1.Pod) { pod.Status.QOSClass = corev1.PodQOSGuaranteed }},
		{"restarting", func(pod *corev1.Pod) { status(pod).RestartCount = 3 }},
		{"a sidecar restarts for cpu", func(pod *corev1.Pod) {
			if len(pod.Spec.InitContainers) > 1 {
				pod.Spec.InitContainers[1].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
				pod.Spec.InitContainers[1].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}
			}
		}},
	}
}

// says returns all that a member that is made from the pod is judged by.
func says(pod *corev1.Pod, newer *corev1.PodTemplateSpec, make func(*corev1.Pod) (resize.Target, error)) string {
	target, err := make(pod)
	if err != nil {
		return err.Error()
	}
	node := func(name, cpu string, taints ...corev1.Taint) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: taints}}
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("1Gi")}
		n.Status.NodeInfo.KubeletVersion = "v1.32.0"
		return n
	}
	facts := rollout.Facts{
		Places:   capacity.NewPlaces([]*corev1.Node{node("node", "1"), node("large", "100", corev1.Taint{Key: "x", Effect: corev1.TaintEffectNoSchedule})}, false, capacity.Limits{}),
		Settings: policy.Settings{Action: policy.LiveResizePreferred}, Defaults: policy.Standard, Now: build.Start.Add(time.Minute),
	}
	if target, err = facts.By(target, nil); err != nil {
		return err.Error()
	}
	place := judge.Place{
		Name: pod.Name, Pod: pod, Target: target, Brings: resize.Describe(target.Changes),
		Available: podutils.IsPodAvailable(pod, 5, metav1.NewTime(facts.Now)),
	}
	m := facts.Members([]judge.Place{place}, rollout.Revision{Name: "b", Template: newer})[0]
	step := rollout.Next(judge.Pods([]judge.Member{m}, facts.Options().Terms), facts.Options())
	does := build.Each(step.Restart, func(r rollout.Restart) string { return fmt.Sprint(r.Reason, r.Now, r.Cause) })
	does = append(does, build.Each(step.Waits, func(w rollout.Wait) string { return w.Reason + ": " + w.Message })...)
	state, why := target.Observe()
	patch, err := target.Patch()
	return fmt.Sprintf("%v\n%v %v %v %v %v %v\n%v %q %v %v %v %q\n%s %v %v\n%v %v %q %q %q\n%+v\n%q %d %d %v %t\n%v\n%v",
		resize.Describe(target.Changes), resize.Describe(target.Effects), target.Obstacles, target.Resized, target.Others, target.Overrules, target.Clean(),
		state, why, target.Unscheduled(), target.Unreported(), target.Restarts(), target.Nowhere(),
		patch, err, target.OldEnvironment(), target.GivesRoom(), judge.Gone(pod), target.Wanted(), target.Applied(), m.Barred,
		m.Unplaceable, does, len(step.Resize), len(step.MarkUpdated), step.RequeueAfter, step.Hold, podutils.ActivePods([]*corev1.Pod{pod, build.Pod("other", newer)}).Less(0, 1), target.By(resize.Kubelet{Version: "v1.34.0"}).Faults())
}
