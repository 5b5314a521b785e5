package main

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/daemonset"
	"github.com/inplace-rollout/inplace-rollout/pkg/deployment"
	"github.com/inplace-rollout/inplace-rollout/pkg/statefulset"
)

// kind is what is different for each kind of workload.
type kind struct {
	resource string // as the API names it
	// generate makes up what only this kind has, and specify writes it into a manifest's spec.
	generate func(generator, *Workload)
	specify  func(w Workload, namespace string, spec map[string]any)
	edits    []choice
	// read returns what the checks ask about.
	read func(object map[string]any) (view, error)
	// unfinished returns what of a rollout is not done; empty if nothing.
	unfinished func(view, []corev1.Pod, []appsv1.ReplicaSet) string
}

// view reads a workload, with the condition that all kinds have.
func (k kind) view(object map[string]any) (view, error) {
	v, err := k.read(object)
	if err != nil {
		return v, err
	}
	var d appsv1.Deployment // the conditions of the other kinds have the same fields
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"status": object["status"]}, &d); err != nil {
		return v, fmt.Errorf("reading conditions: %w", err)
	}
	for _, c := range d.Status.Conditions {
		if c.Type == api.ConditionComplete {
			v.complete, v.reason, v.message = c.Status, c.Reason, c.Message
		}
	}
	return v, nil
}

// view is what the checks ask about a workload of any kind.
type view struct {
	metav1.Object
	replicas   int
	template   corev1.PodTemplateSpec
	onDelete   bool
	partition  int32
	paused     bool
	revision   string // that the pods of all kinds but Deployments must have
	revisions  bool   // the revision is that of the newest ControllerRevision
	strategy   string // of a DaemonSet
	start      int
	surges     bool // a DaemonSet, and no pod may be down
	observed   bool // the built-in controller has seen the newest generation
	counted    bool // and counts all pods as updated and Ready
	complete   corev1.ConditionStatus
	reason     string
	message    string
	replicaset bool                         // it has ReplicaSets
	resized    map[types.UID]bool           // pods that somebody else has resized
	classed    bool                         // it has had sizes by class of node
	nodes      map[string]map[string]string // the labels of a DaemonSet's nodes, if it has
}

var kinds = map[string]kind{
	"StatefulSet": {
		resource: "statefulsets",
		generate: func(g generator, w *Workload) {
			w.OnDelete, w.Parallel = g.in(5), g.in(3)
			if g.in(3) && !w.OnDelete {
				w.Partition = int32(g.IntN(4))
			}
			if g.in(3) {
				w.MaxUnavailable = pick(g, "2", "3", "50%")
			}
			if g.in(4) {
				w.Start = int32(1 + g.IntN(3))
			}
		},
		specify: func(w Workload, _ string, spec map[string]any) {
			spec["serviceName"] = w.Name
			strategy := map[string]any{"type": "OnDelete"}
			if !w.OnDelete {
				rolling := map[string]any{"partition": w.Partition}
				if w.MaxUnavailable != "" {
					rolling["maxUnavailable"] = number(w.MaxUnavailable)
				}
				strategy = map[string]any{"type": "RollingUpdate", "rollingUpdate": rolling}
			}
			spec["updateStrategy"] = strategy
			if w.Parallel {
				spec["podManagementPolicy"] = "Parallel"
			}
			if w.Start > 0 {
				spec["ordinals"] = map[string]any{"start": w.Start}
			}
		},
		edits: []choice{
			{6, func(g generator, _ *shape) Edit {
				return Edit{Do: doPatch, Patch: spec("updateStrategy", map[string]any{"rollingUpdate": map[string]any{"partition": g.IntN(5)}})}
			}},
			{4, func(g generator, _ *shape) Edit {
				if g.in(2) {
					return Edit{Do: doPatch, Patch: spec("updateStrategy", map[string]any{"type": "OnDelete", "rollingUpdate": nil})}
				}
				return Edit{Do: doPatch, Patch: spec("updateStrategy", map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"partition": g.IntN(3)}})}
			}},
		},
		read: func(object map[string]any) (view, error) {
			set := &appsv1.StatefulSet{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, set); err != nil {
				return view{}, fmt.Errorf("reading a StatefulSet: %w", err)
			}
			n := ptr.Deref(set.Spec.Replicas, 1)
			v := view{
				Object: set, replicas: int(n), template: set.Spec.Template,
				onDelete: set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType,
				revision: set.Status.UpdateRevision, observed: statefulset.Kind{}.Access().Observed(set),
				counted: set.Status.Replicas == n && set.Status.ReadyReplicas == n,
			}
			if rolling := set.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
				v.partition = ptr.Deref(rolling.Partition, 0)
			}
			if set.Spec.Ordinals != nil {
				v.start = int(set.Spec.Ordinals.Start)
			}
			return v, nil
		},
		unfinished: func(v view, pods []corev1.Pod, _ []appsv1.ReplicaSet) string {
			for i := range v.replicas {
				name := fmt.Sprintf("%s-%d", v.GetName(), v.start+i)
				n := slices.IndexFunc(pods, func(pod corev1.Pod) bool { return pod.Name == name })
				if n < 0 {
					return name + " is missing"
				}
				if i < int(v.partition) {
					continue
				}
				if got := pods[n].Labels[appsv1.StatefulSetRevisionLabel]; got != v.revision {
					return fmt.Sprintf("%s is of revision %s, not %s", name, got, v.revision)
				}
				if differs := differs(pods[n], v); differs != "" {
					return name + " " + differs
				}
			}
			return ""
		},
	},
	"DaemonSet": {
		resource: "daemonsets",
		generate: func(g generator, w *Workload) {
			w.OnDelete = g.in(5)
			switch g.IntN(4) {
			case 0:
				w.MaxSurge, w.MaxUnavailable = pick(g, "1", "2", "50%"), "0"
			case 1:
				w.MaxSurge, w.MaxUnavailable = "0", pick(g, "2", "3", "50%")
			}
			if g.in(5) {
				w.History = int32(1 + g.IntN(2))
			}
		},
		specify: func(w Workload, namespace string, spec map[string]any) {
			delete(spec, "replicas")
			strategy := map[string]any{"type": "OnDelete"}
			if !w.OnDelete {
				strategy["type"] = "RollingUpdate"
				if w.MaxSurge != "" {
					strategy["rollingUpdate"] = map[string]any{"maxSurge": number(w.MaxSurge), "maxUnavailable": number(w.MaxUnavailable)}
				}
			}
			spec["updateStrategy"] = strategy
			if w.History > 0 {
				spec["revisionHistoryLimit"] = w.History
			}
			pod := spec["template"].(map[string]any)["spec"].(map[string]any)
			pod["nodeSelector"] = map[string]any{poolLabel: poolOf(namespace, w)}
			pod["tolerations"] = []any{map[string]any{"key": poolLabel, "operator": "Exists"}}
		},
		edits: []choice{
			{8, func(g generator, _ *shape) Edit {
				strategy := map[string]any{"type": "OnDelete", "rollingUpdate": nil}
				switch g.IntN(4) {
				case 0:
					delete(strategy, "rollingUpdate")
				case 1:
					strategy = map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxSurge": pick[any](g, 1, "50%"), "maxUnavailable": 0}}
				case 2:
					strategy = map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxSurge": 0, "maxUnavailable": pick[any](g, 1, 2, "50%")}}
				}
				return Edit{Do: doPatch, Patch: spec("updateStrategy", strategy)}
			}},
			{4, func(g generator, _ *shape) Edit {
				return Edit{Do: doPatch, Patch: podSpec(map[string]any{"nodeSelector": map[string]any{zoneLabel: pick[any](g, "even", nil, nil)}})}
			}},
			{10, nodes},
		},
		read: func(object map[string]any) (view, error) {
			d := &appsv1.DaemonSet{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, d); err != nil {
				return view{}, fmt.Errorf("reading a DaemonSet: %w", err)
			}
			n := d.Status.DesiredNumberScheduled
			v := view{
				Object: d, replicas: int(n), template: d.Spec.Template, revisions: true, strategy: string(d.Spec.UpdateStrategy.Type),
				onDelete: d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType && !isHeld(d),
				observed: daemonset.Kind{}.Access().Observed(d),
				counted:  d.Status.CurrentNumberScheduled == n && d.Status.NumberAvailable == n,
			}
			if rolling := d.Spec.UpdateStrategy.RollingUpdate; rolling != nil && rolling.MaxSurge != nil {
				v.surges = rolling.MaxSurge.String() != "0"
			}
			return v, nil
		},
		unfinished: func(v view, pods []corev1.Pod, _ []appsv1.ReplicaSet) string {
			if len(pods) != v.replicas {
				return fmt.Sprintf("%d pods instead of %d", len(pods), v.replicas)
			}
			for _, pod := range pods {
				if got := pod.Labels[appsv1.ControllerRevisionHashLabelKey]; got != v.revision {
					return fmt.Sprintf("%s is of revision %s, not %s", pod.Name, got, v.revision)
				}
				if differs := differsOnItsNode(pod, v); differs != "" {
					return pod.Name + " " + differs
				}
			}
			return ""
		},
	},
	"Deployment": {
		resource: "deployments",
		generate: func(g generator, w *Workload) {
			switch g.IntN(6) {
			case 0:
				w.MaxSurge, w.MaxUnavailable = "0", pick(g, "1", "2", "50%")
			case 1:
				w.MaxSurge, w.MaxUnavailable = "1", "0"
			case 2:
				w.MaxSurge, w.MaxUnavailable = pick(g, "1", "2"), pick(g, "1", "2")
			case 3:
				w.Recreate = g.in(2)
			}
			w.Paused = g.in(10)
			if g.in(5) {
				w.History = int32(1 + g.IntN(2))
			}
		},
		specify: func(w Workload, _ string, spec map[string]any) {
			strategy := map[string]any{"type": "RollingUpdate"}
			if w.MaxSurge != "" {
				strategy["rollingUpdate"] = map[string]any{"maxSurge": number(w.MaxSurge), "maxUnavailable": number(w.MaxUnavailable)}
			}
			if w.Recreate {
				strategy["type"] = "Recreate"
			}
			spec["strategy"] = strategy
			spec["paused"] = w.Paused
			if w.History > 0 {
				spec["revisionHistoryLimit"] = w.History
			}
		},
		edits: []choice{
			{7, func(g generator, _ *shape) Edit { return Edit{Do: doPatch, Patch: spec("paused", !g.in(3))} }},
			{4, func(generator, *shape) Edit { return Edit{Do: doPatch, Patch: spec("paused", false)} }},
		},
		read: func(object map[string]any) (view, error) {
			d := &appsv1.Deployment{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, d); err != nil {
				return view{}, fmt.Errorf("reading a Deployment: %w", err)
			}
			n := ptr.Deref(d.Spec.Replicas, 1)
			v := view{
				Object: d, replicas: int(n), template: d.Spec.Template, paused: d.Spec.Paused, replicaset: true,
				observed: deployment.Kind{}.Access().Observed(&deployment.Deployment{Deployment: d}),
				counted:  d.Status.Replicas == n && d.Status.UpdatedReplicas == n && d.Status.AvailableReplicas == n,
			}
			return v, nil
		},
		unfinished: func(v view, pods []corev1.Pod, sets []appsv1.ReplicaSet) string {
			var active []appsv1.ReplicaSet
			for _, rs := range sets {
				if _, marked := rs.Annotations[api.AdoptedAnnotation]; marked {
					return "ReplicaSet " + rs.Name + " has the mark of an adoption"
				}
				template := rs.Spec.Template.DeepCopy()
				delete(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
				same, empty := equality.Semantic.DeepEqual(*template, v.template), ptr.Deref(rs.Spec.Replicas, 0) == 0 && rs.Status.Replicas == 0
				switch {
				case same && !empty:
					active = append(active, rs)
				case !same && !empty:
					return "ReplicaSet " + rs.Name + ", which has another template, has pods"
				}
			}
			if v.replicas > 0 && len(active) != 1 {
				return fmt.Sprintf("%d ReplicaSets that have the template have pods", len(active))
			}
			if len(pods) != v.replicas {
				return fmt.Sprintf("%d pods instead of %d", len(pods), v.replicas)
			}
			for _, pod := range pods {
				if !metav1.IsControlledBy(&pod, &active[0]) {
					return pod.Name + " belongs to no ReplicaSet with the template"
				}
				if _, detached := pod.Labels[api.DetachedLabel]; detached {
					return pod.Name + " is detached"
				}
				if differs := differs(pod, v); differs != "" {
					return pod.Name + " " + differs
				}
			}
			return ""
		},
	},
}

// differs returns what of a pod is not as its template says: a size, an image, or that it is Ready.
// What the template does not say may be anything, and the size that somebody else gave it, too.
func differs(pod corev1.Pod, v view) string {
	template := v.template.Spec
	if pod.DeletionTimestamp != nil {
		return "is being deleted"
	}
	ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	if !ready {
		return "is not Ready"
	}
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	for _, want := range slices.Concat(template.InitContainers, template.Containers) {
		n := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == want.Name })
		if n < 0 || containers[n].Image != want.Image {
			return "has not the container " + want.Name + " of the template"
		}
		if v.resized[pod.UID] {
			continue
		}
		m := slices.IndexFunc(statuses, func(c corev1.ContainerStatus) bool { return c.Name == want.Name })
		if m < 0 || statuses[m].Resources == nil {
			return "has no status of " + want.Name
		}
		for _, has := range []corev1.ResourceRequirements{containers[n].Resources, *statuses[m].Resources} {
			for _, list := range []struct {
				name      string
				want, has corev1.ResourceList
			}{{"request", want.Resources.Requests, has.Requests}, {"limit", want.Resources.Limits, has.Limits}} {
				for resource, quantity := range list.want {
					if got, says := list.has[resource]; !says || got.Cmp(quantity) != 0 {
						return fmt.Sprintf("has the %s %s %s of %s, and not %s", resource, list.name, got.String(), want.Name, quantity.String())
					}
				}
			}
		}
	}
	return ""
}
