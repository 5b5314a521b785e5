package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/kubectl/pkg/util/qos"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
)

// classLabel is the label of nodes that classes go by: small or large; some nodes have none.
const classLabel = "example.com/class"

// class is an entry of the annotation. It is read and written here, and not as the product does.
type class struct {
	NodeSelector map[string]string                      `json:"nodeSelector"`
	Containers   map[string]corev1.ResourceRequirements `json:"containers"`
}

// written is a class as people write it.
type written struct {
	NodeSelector map[string]string         `json:"nodeSelector"`
	Containers   map[string]map[string]any `json:"containers"`
}

// addClasses gives DaemonSets sizes by class of node, and adds edits about that between those of the
// world. These have draws of their own, so that a seed makes what else it makes without them.
func (w *World) addClasses() {
	g := generator{rand.New(rand.NewPCG(w.Seed, 1))}
	for i := range w.Workloads {
		of := &w.Workloads[i]
		if of.Kind != "DaemonSet" || g.in(4) {
			continue
		}
		if g.in(2) {
			of.Classes = g.classes(*of, false)
		}
		for range 2 + g.IntN(4) {
			edits := []Edit{g.classEdit(*of)}
			if g.in(3) {
				edits = append(edits, Edit{Do: doSettle})
			}
			for j := range edits {
				edits[j].Workload = i
			}
			w.Edits = slices.Insert(w.Edits, g.IntN(len(w.Edits)+1), edits...)
		}
	}
}

// classEdit is an edit of the sizes by class, or of the class of nodes.
func (g generator) classEdit(w Workload) Edit {
	e := Edit{Pause: g.pause(), Do: doPatch}
	switch n := g.IntN(14); {
	case n < 5:
		e.Patch = annotate(api.NodeResourcesAnnotation, g.classes(w, true))
	case n == 5:
		e.Patch = annotate(api.NodeResourcesAnnotation, nil)
	case n < 8: // with an edit of the template
		e.Patch = merged(podSpec(app(map[string]any{"resources": g.like(w.Size).resources()})), annotate(api.NodeResourcesAnnotation, g.classes(w, true)))
	case n == 8:
		e.Do, e.Patch = doBad, annotate(api.NodeResourcesAnnotation, g.malformed())
	default:
		e.Do, e.Pods, e.Mode = doNode, g.pods(2), pick(g, "small", "large", "classless")
	}
	return e
}

// classes are sizes by class of node. Those that pods of the template may not be able to have come with edits only.
func (g generator) classes(w Workload, edit bool) string {
	all := []written{}
	for range 1 + g.IntN(3) {
		c := written{NodeSelector: pick(g, map[string]string{classLabel: "small"}, map[string]string{classLabel: "large"}, map[string]string{classLabel: "large"},
			map[string]string{classLabel: "large", zoneLabel: "even"}, map[string]string{zoneLabel: "odd"}), Containers: map[string]map[string]any{}}
		size := g.like(w.Size)
		switch n := g.IntN(12); {
		case n < 4: // cpu only
			size.Memory, size.MemoryLimit = "", ""
		case n < 6: // memory only
			size.CPU, size.CPULimit = "", ""
		case n == 6 && edit: // fits on no node
			size.CPU = "100"
			if size.CPULimit != "" {
				size.CPULimit = "100"
			}
		case n == 7 && edit: // perhaps another QoS class, or a limit that the template has not
			size = g.size(g.IntN(3))
		}
		c.Containers["app"] = size.resources()
		if w.Sidecar != nil && g.in(2) {
			c.Containers["sidecar"] = g.size(0).resources()
		}
		all = append(all, c)
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // it is made of what JSON knows
	}
	return string(text)
}

// malformed is an annotation that must be refused.
func (g generator) malformed() string {
	return pick(g, "large", "{}", `[{"nodeSelector": {}, "containers": {"app": {"requests": {"cpu": "1"}}}}]`,
		`[{"nodeSelector": {"`+classLabel+`": "large"}, "containers": {"app": {"requests": {"cpu": "much"}}}}]`,
		`[{"nodeSelector": {"`+classLabel+`": "large"}, "containers": {"app": {"requests": {"disk": "1Gi"}}}}]`,
		`[{"nodeSelector": {"`+classLabel+`": "large"}, "container": {"app": {"requests": {"cpu": "1"}}}}]`,
		`[{"nodeSelector": {"`+classLabel+`": "large"}, "containers": {"app": {"requests": {"cpu": "200m"}, "limits": {"cpu": "100m"}}}}]`)
}

// on is the view of a pod on that node: the first class that the node is of overlays the template.
func (v view) on(node string) view {
	var classes []class
	if text := v.GetAnnotations()[api.NodeResourcesAnnotation]; text == "" || json.Unmarshal([]byte(text), &classes) != nil {
		return v
	}
	n := slices.IndexFunc(classes, func(c class) bool {
		return labels.SelectorFromSet(c.NodeSelector).Matches(labels.Set(v.nodes[node]))
	})
	if n < 0 {
		return v
	}
	sized := v
	sized.template = *v.template.DeepCopy()
	for _, list := range [][]corev1.Container{sized.template.Spec.InitContainers, sized.template.Spec.Containers} {
		for i := range list {
			has, size := &list[i].Resources, classes[n].Containers[list[i].Name]
			has.Requests, has.Limits = with(has.Requests, size.Requests), with(has.Limits, size.Limits)
		}
	}
	return sized
}

// with is a list with the values of another.
func with(list, more corev1.ResourceList) corev1.ResourceList {
	both := corev1.ResourceList{}
	for _, from := range []corev1.ResourceList{list, more} {
		for name, quantity := range from {
			both[name] = quantity
		}
	}
	return both
}

// differsOnItsNode is differs for the pod of a DaemonSet. A pod that cannot have the size of its node's
// class in place has the template's, and the condition says so. It keeps what it has where not
// even the template's can be had in place.
func differsOnItsNode(pod corev1.Pod, v view) string {
	sized := v.on(pod.Spec.NodeName)
	why := differs(pod, sized)
	if why == "" || !v.classed || !v.excused(pod) {
		return why
	}
	if !unsized(pod, v.template.Spec) && !v.forbids(pod) {
		return differs(pod, v)
	}
	sized.resized = map[types.UID]bool{pod.UID: true}
	return differs(pod, sized)
}

// excused reports whether the condition says of a pod that it cannot have the size of its node's class, and
// something is in the way.
func (v view) excused(pod corev1.Pod) bool {
	if !v.classed || v.complete != corev1.ConditionFalse || v.reason != "Infeasible" && v.reason != "Invalid" ||
		!strings.Contains(v.message, pod.Name) && !strings.Contains(v.message, " more") {
		return false
	}
	sized := v.on(pod.Spec.NodeName).template.Spec
	return v.resized[pod.UID] || v.forbids(pod) || infeasible(sized) || unsized(pod, sized) || unsized(corev1.Pod{Spec: v.template.Spec}, sized)
}

// forbids reports whether the policy or the action in force may forbid resizes of the pod in place, or
// one would restart a container while none may be down.
func (v view) forbids(pod corev1.Pod) bool {
	if v.surges && slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.ResizePolicy, func(p corev1.ContainerResizePolicy) bool { return p.RestartPolicy == corev1.RestartContainer })
	}) {
		return true
	}
	annotations := v.GetAnnotations()
	action, list := policy.ActionInForce(annotations)
	said := list + ";" + annotations[policyAnnotation]
	_, retried, _ := strings.Cut(annotations[api.RetryAnnotation], ";")
	return strings.Contains(said, "RestartOnly") || slices.Contains([]string{action, annotations[actionAnnotation], retried}, "Restart")
}

// unsized reports whether a pod cannot be resized so by the rules of the API server: a limit would come or
// go or be less than the request, or the QoS class would be another one.
func unsized(pod corev1.Pod, to corev1.PodSpec) bool {
	after := *pod.Spec.DeepCopy()
	for _, list := range [][2][]corev1.Container{{after.InitContainers, to.InitContainers}, {after.Containers, to.Containers}} {
		for i := range list[0] {
			n := slices.IndexFunc(list[1], func(c corev1.Container) bool { return c.Name == list[0][i].Name })
			if n < 0 {
				continue
			}
			has, want := &list[0][i].Resources, list[1][n].Resources
			if len(with(has.Limits, want.Limits)) > min(len(has.Limits), len(want.Limits)) ||
				len(with(has.Requests, want.Requests)) > min(len(has.Requests), len(want.Requests)) {
				return true
			}
			has.Requests, has.Limits = with(has.Requests, want.Requests), with(has.Limits, want.Limits)
			for name, limit := range has.Limits {
				if request := has.Requests[name]; request.Cmp(limit) > 0 {
					return true
				}
			}
		}
	}
	return qos.ComputePodQOS(&pod) != qos.ComputePodQOS(&corev1.Pod{Spec: after})
}

// Labels of the nodes of DaemonSets.
const (
	worldLabel = "example.com/world" // the namespace
	poolLabel  = "example.com/pool"  // selected by the DaemonSet; it is the key of a taint, too
	zoneLabel  = "example.com/zone"  // even or odd
)

// enough cpu for all pods of a workload.
const enough = "8"

// ownNodes is how many a workload has whose pods have little room.
const ownNodes = 2

// poolOf is the name of a DaemonSet's nodes.
func poolOf(namespace string, w Workload) string { return namespace + "." + w.Name }

// addNode adds the n-th node of a DaemonSet, or of a workload that has nodes of its own. Its name begins with the namespace, by which the audit
// log is read.
func (p *player) addNode(ctx context.Context, w Workload, n int, cpu string) error {
	pool := poolOf(p.namespace, w)
	node := controlplane.Node{
		CPU: cpu, Memory: "16Gi", Taints: []corev1.Taint{{Key: poolLabel, Value: pool, Effect: corev1.TaintEffectNoSchedule}},
		Labels: map[string]string{worldLabel: p.namespace, poolLabel: pool, zoneLabel: []string{"even", "odd"}[n%2]},
	}
	if class := []string{"small", "large", ""}[n%3]; class != "" {
		node.Labels[classLabel] = class
	}
	err := p.retried(ctx, func() error { return p.cp.AddNode(ctx, fmt.Sprintf("%s.%d", pool, n), node) })
	if apierrors.IsAlreadyExists(err) { // an answer was lost
		return nil
	}
	return err
}

// crowd has a pod of somebody else take room on the nodes of a workload.
func (p *player) crowd(ctx context.Context, w Workload, requests map[string]any) error {
	cpu, err := resource.ParseQuantity(fmt.Sprint(requests["cpu"]))
	if err != nil {
		return fmt.Errorf("parsing what others take: %w", err)
	}
	p.added++
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("others-%d", p.added)}, Spec: corev1.PodSpec{
		NodeSelector: map[string]string{poolLabel: poolOf(p.namespace, w)},
		Tolerations:  []corev1.Toleration{{Key: poolLabel, Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{Name: "app", Image: "other:1", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: cpu},
		}}},
	}}
	err = p.retried(ctx, func() error {
		_, err := p.people.CoreV1().Pods(p.namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	if apierrors.IsAlreadyExists(err) { // an answer was lost
		return nil
	}
	return err
}

// eachNode does something with each node of the world whose name begins so.
func (p *player) eachNode(ctx context.Context, prefix string, do func(corev1.Node) error) error {
	var list *corev1.NodeList
	if err := p.retried(ctx, func() (err error) {
		list, err = p.admin.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: worldLabel + "=" + p.namespace})
		return err
	}); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for _, node := range list.Items {
		if strings.HasPrefix(node.Name, prefix) {
			if err := p.retried(ctx, func() error { return do(node) }); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	return nil
}

// node has something happen to nodes of a DaemonSet. What they are numbered by wraps around.
func (p *player) node(ctx context.Context, e Edit) error {
	w := p.Workloads[e.Workload]
	var names []string
	if err := p.eachNode(ctx, poolOf(p.namespace, w)+".", func(node corev1.Node) error {
		names = append(names, node.Name)
		return nil
	}); err != nil {
		return err
	}
	if e.Mode == "add" {
		p.added++
		return p.addNode(ctx, w, 100+p.added, enough)
	}
	slices.Sort(names)
	chosen := map[string]bool{}
	for _, n := range e.Pods {
		if len(names) > 0 {
			chosen[names[n%len(names)]] = true
		}
	}
	return p.eachNode(ctx, poolOf(p.namespace, w)+".", func(node corev1.Node) error {
		if !chosen[node.Name] {
			return nil
		}
		return p.change(ctx, node, e.Mode)
	})
}

// change makes a change to a node.
func (p *player) change(ctx context.Context, node corev1.Node, mode string) error {
	nodes := p.people.CoreV1().Nodes()
	if mode == "remove" {
		return nodes.Delete(ctx, node.Name, metav1.DeleteOptions{})
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now, err := nodes.Get(ctx, node.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		before := now.DeepCopy()
		taint := func(effect corev1.TaintEffect) {
			now.Spec.Taints = slices.DeleteFunc(now.Spec.Taints, func(t corev1.Taint) bool { return t.Key == worldLabel })
			if effect != "" {
				now.Spec.Taints = append(now.Spec.Taints, corev1.Taint{Key: worldLabel, Effect: effect})
			}
		}
		pool := node.Name[:strings.LastIndex(node.Name, ".")]
		switch mode {
		case "cordon":
			now.Spec.Unschedulable = true
		case "uncordon":
			now.Spec.Unschedulable = false
		case "taint": // its pod stays, and is one too many
			taint(corev1.TaintEffectNoSchedule)
		case "drain": // its pod goes
			taint(corev1.TaintEffectNoExecute)
		case "untaint":
			taint("")
		case "leave":
			delete(now.Labels, poolLabel)
		case "join":
			now.Labels[poolLabel] = pool
		case "small", "large":
			now.Labels[classLabel] = mode
		case "classless":
			delete(now.Labels, classLabel)
		case "heal":
			now.Spec.Unschedulable = false
			taint("")
			now.Labels[poolLabel] = pool
		default:
			return fmt.Errorf("nobody knows how a node can %q", mode)
		}
		if equality.Semantic.DeepEqual(before, now) {
			return nil
		}
		_, err = nodes.Update(ctx, now, metav1.UpdateOptions{FieldManager: "people"})
		return err
	})
}
