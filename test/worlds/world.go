package main

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/test/build"
)

// World is one namespace, and what people, kubelets and others do in it. It is a plain
// value: a seed makes it, and a smaller one can be made of it.
type World struct {
	Seed uint64 `json:"seed"`
	// Quota of cpu requests; none if empty.
	Quota string `json:"quota,omitempty"`
	// Limits are those of a LimitRange.
	Limits *Limits `json:"limits,omitempty"`
	// Webhook meddles with every write to a workload, as its name says; none if empty.
	Webhook   string     `json:"webhook,omitempty"`
	Workloads []Workload `json:"workloads"`
	Edits     []Edit     `json:"edits,omitempty"`
}

// Limits of a LimitRange: what containers get that say nothing, and the most that they may have.
type Limits struct {
	Default Size   `json:"default"`
	MaxCPU  string `json:"maxCPU,omitempty"`
}

// The webhooks.
const (
	setsCPU   = "sets-cpu"   // the template's cpu is what an annotation of the workload says
	stamps    = "stamps"     // every write gets an annotation
	setsImage = "sets-image" // the template's image is what an annotation of the workload says
)

// Workload is a StatefulSet, a Deployment or a DaemonSet as it is created.
type Workload struct {
	Kind     string `json:"kind"`
	Name     string `json:"name"`
	OptedIn  bool   `json:"optedIn,omitempty"`
	Replicas int32  `json:"replicas"` // the nodes of a DaemonSet
	// Policy and Action are the annotations; none if empty.
	Policy   string `json:"policy,omitempty"`
	Action   string `json:"action,omitempty"`
	OnDelete bool   `json:"onDelete,omitempty"`
	Parallel bool   `json:"parallel,omitempty"`
	Recreate bool   `json:"recreate,omitempty"`
	// Partition and Paused are what the manifest says, now and whenever it is applied again.
	Partition      int32  `json:"partition,omitempty"`
	Paused         bool   `json:"paused,omitempty"`
	MaxUnavailable string `json:"maxUnavailable,omitempty"`
	MaxSurge       string `json:"maxSurge,omitempty"`
	MinReady       int32  `json:"minReady,omitempty"`
	Start          int32  `json:"start,omitempty"`
	History        int32  `json:"history,omitempty"`
	// Room is the cpu of each of the two nodes that the pods can run on; all have room if empty.
	Room string `json:"room,omitempty"`
	// Graceful pods take a second to go.
	Graceful bool `json:"graceful,omitempty"`
	// Classes is the annotation with a DaemonSet's sizes by class of node; none if empty.
	Classes string `json:"classes,omitempty"`
	// Budget is the maxUnavailable of a PodDisruptionBudget; none if empty.
	Budget string `json:"budget,omitempty"`
	Size   Size   `json:"size"`
	// Restarts are the resources whose resizePolicy is RestartContainer.
	Restarts []string `json:"restarts,omitempty"`
	// Sidecar is a second container, or a restartable init container; none without one.
	Sidecar     *Size `json:"sidecar,omitempty"`
	SidecarInit bool  `json:"sidecarInit,omitempty"`
}

// Size of a container: requests and limits, each as its manifest says it; what is empty is not said.
type Size struct {
	CPU         string `json:"cpu,omitempty"`
	CPULimit    string `json:"cpuLimit,omitempty"`
	Memory      string `json:"memory,omitempty"`
	MemoryLimit string `json:"memoryLimit,omitempty"`
}

// Edit is one thing that happens, some time after the one before.
type Edit struct {
	Pause    int    `json:"pause"` // milliseconds
	Workload int    `json:"workload"`
	Do       string `json:"do"`
	// Patch of the workload, or the resources of a pod, or the hard limits of a quota, or what a LimitRange
	// says of containers.
	Patch map[string]any `json:"patch,omitempty"`
	// Pods, or nodes, are meant by their place among those that there are; the numbers wrap around.
	Pods []int `json:"pods,omitempty"`
	// Mode of the kubelets of these pods, or what becomes of the nodes.
	Mode string `json:"mode,omitempty"`
}

// What an Edit does.
const (
	doPatch   = "patch"   // the user patches the workload
	doApply   = "apply"   // the user applies the manifest again, on the server side
	doUndo    = "undo"    // kubectl rollout undo
	doDelete  = "delete"  // the user deletes the workload and applies the manifest again
	doOrphan  = "orphan"  // the same, and the pods stay
	doKill    = "kill"    // the user deletes pods
	doResize  = "resize"  // somebody else resizes pods, as a vertical autoscaler does
	doKubelet = "kubelet" // kubelets treat resizes otherwise
	doOOM     = "oom"     // the kernel kills containers of pods that have been resized
	doNode    = "node"    // something happens to a node of a DaemonSet
	doQuota   = "quota"   // the quota changes
	doLimit   = "limit"   // the LimitRange comes, changes or goes
	doBudget  = "budget"  // the PodDisruptionBudget comes or goes
	doBad     = "bad"     // a patch that must be refused
	doCrowd   = "crowd"   // somebody else's pod takes room on the workload's own nodes
	doHalf    = "half"    // nothing is done until some pods are of the newest template, or for a few seconds
	doSettle  = "settle"  // nothing is done until the rollout is complete, or for a few seconds
)

// String is the world as YAML.
func (w World) String() string {
	text, err := yaml.Marshal(w)
	if err != nil {
		return fmt.Sprintf("%#v", w)
	}
	return string(text)
}

// resources are a size in the words of a manifest.
func (s Size) resources() map[string]any {
	resources := map[string]any{}
	add := func(list, name, value string) {
		if value == "" {
			return
		}
		values, _ := resources[list].(map[string]any)
		if values == nil {
			values = map[string]any{}
			resources[list] = values
		}
		values[name] = value
	}
	add("requests", "cpu", s.CPU)
	add("requests", "memory", s.Memory)
	add("limits", "cpu", s.CPULimit)
	add("limits", "memory", s.MemoryLimit)
	return resources
}

// manifest is what people keep in git.
func (w Workload) manifest(namespace string) map[string]any {
	labels := map[string]any{"app": w.Name}
	app := map[string]any{"name": "app", "image": "app:1", "resources": w.Size.resources()}
	if len(w.Restarts) > 0 {
		app["resizePolicy"] = build.Each(w.Restarts, func(resource string) any {
			return map[string]any{"resourceName": resource, "restartPolicy": "RestartContainer"}
		})
	}
	containers := []any{app}
	// The simulated kubelet deletes by name, and so perhaps the pod of a StatefulSet that came after.
	pod := map[string]any{"terminationGracePeriodSeconds": 0}
	metadata := map[string]any{"labels": labels}
	if w.Graceful {
		pod["terminationGracePeriodSeconds"] = 30
		metadata["annotations"] = map[string]any{simTermination: "1s"}
	}
	if w.Room != "" {
		pool := poolOf(namespace, w)
		pod["nodeSelector"] = map[string]any{poolLabel: pool}
		pod["tolerations"] = []any{map[string]any{"key": poolLabel, "operator": "Exists"}}
	}
	if w.Sidecar != nil {
		sidecar := map[string]any{"name": "sidecar", "image": "sidecar:1", "resources": w.Sidecar.resources()}
		if w.SidecarInit {
			sidecar["restartPolicy"] = "Always"
			pod["initContainers"] = []any{sidecar}
		} else {
			containers = append(containers, sidecar)
		}
	}
	pod["containers"] = containers
	spec := map[string]any{
		"replicas": w.Replicas,
		"selector": map[string]any{"matchLabels": labels},
		"template": map[string]any{"metadata": metadata, "spec": pod},
	}
	if w.MinReady > 0 {
		spec["minReadySeconds"] = w.MinReady
	}
	kinds[w.Kind].specify(w, namespace, spec)
	annotations := map[string]any{}
	for key, value := range map[string]string{policyAnnotation: w.Policy, actionAnnotation: w.Action, api.NodeResourcesAnnotation: w.Classes} {
		if value != "" {
			annotations[key] = value
		}
	}
	return map[string]any{
		"apiVersion": "apps/v1", "kind": w.Kind,
		"metadata": map[string]any{
			"name": w.Name, "namespace": namespace, "annotations": annotations,
			"labels": map[string]any{enabledLabel: fmt.Sprint(w.OptedIn)},
		},
		"spec": spec,
	}
}

// ref names the workload as kubectl does.
func (w Workload) ref() string { return strings.ToLower(w.Kind) + "/" + w.Name }

// number is a count or a percentage.
func number(text string) any {
	var n int
	if _, err := fmt.Sscanf(text, "%d", &n); err == nil && !strings.HasSuffix(text, "%") {
		return n
	}
	return text
}
