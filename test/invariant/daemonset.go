package invariant

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

func ofDaemonSet(d *appsv1.DaemonSet) version {
	s := d.Status
	v := version{kind: "DaemonSet", meta: d.ObjectMeta, template: d.Spec.Template, replicas: s.DesiredNumberScheduled, parallel: true}
	_, v.held = d.Annotations["inplace-rollout.io/hold"]
	v.onDelete = d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType && !v.held
	if rolling := d.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
		down, _ := intstr.GetScaledValueFromIntOrPercent(rolling.MaxUnavailable, int(v.replicas), true)
		more, _ := intstr.GetScaledValueFromIntOrPercent(rolling.MaxSurge, int(v.replicas), true)
		v.down, v.most = int32(down), int32(max(down, more))
		v.surges = more > 0
		v.surging = more > 0 && !v.held && !v.onDelete && s.UpdatedNumberScheduled < s.CurrentNumberScheduled
	}
	v.most, v.minReady = max(v.most, 1), seconds(d.Spec.MinReadySeconds)
	for _, c := range s.Conditions {
		v.condition(string(c.Type), c.Status)
	}
	spec := d.Spec
	if v.held { // what the user wants; what they have taken away of it, the API server fills in when the hold is let go
		spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
		if spec.UpdateStrategy.RollingUpdate == nil {
			spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr.To(intstr.FromInt32(1)), MaxSurge: ptr.To(intstr.FromInt32(0))}
		}
	}
	v.spec = spec
	return v
}

// lackedBy returns the name of a container of the pod that has neither the template's size nor that
// of a class of nodes, or "". A pod that had the class's size before an edit keeps what that does not change, and gets the rest of it later.
func (v version) lackedBy(p *corev1.Pod) string {
	name := lacks(p, v.template)
	var classes []struct {
		Containers map[string]corev1.ResourceRequirements
	}
	if name == "" || json.Unmarshal([]byte(v.annotation("node-resources")), &classes) != nil {
		return name // there are none, say
	}
	has := containers(&p.Spec)
	for _, class := range classes {
		sized := *v.template.DeepCopy()
		for name, c := range containers(&sized.Spec) {
			if has[name] != nil {
				set(&c.Resources.Requests, common(class.Containers[name].Requests, has[name].Resources.Requests))
				set(&c.Resources.Limits, common(class.Containers[name].Limits, has[name].Resources.Limits))
			}
		}
		if lacks(p, sized) == "" {
			return ""
		}
	}
	return name
}

// common are the values of a that b has, too.
func common(a, b corev1.ResourceList) corev1.ResourceList {
	a = maps.Clone(a)
	maps.DeleteFunc(a, func(name corev1.ResourceName, q resource.Quantity) bool { return q.Cmp(b[name]) != 0 })
	return a
}

// storeRevision takes in which template the pods with a hash have. The status of a DaemonSet, unlike
// a StatefulSet's, does not name the newest revision.
func (h *history) storeRevision(w Write) {
	stored, is := w.Object.(*appsv1.ControllerRevision)
	if !is {
		return
	}
	owner := metav1.GetControllerOf(stored)
	if owner == nil || h.workloads[owner.UID] == nil {
		return
	}
	label := stored.Name // of a StatefulSet's pods
	if owner.Kind == "DaemonSet" {
		label = stored.Labels[appsv1.ControllerRevisionHashLabelKey]
	}
	var data struct {
		Spec struct{ Template corev1.PodTemplateSpec }
	}
	if json.Unmarshal(stored.Data.Raw, &data) == nil {
		h.workloads[owner.UID].revisions[label] = data.Spec.Template
	}
}

// node is what the log tells of one.
type node struct {
	written    []time.Time
	gone, lost bool // lost: its kubelet says nothing
	taints     []corev1.Taint
}

// repels reports whether the DaemonSet controller takes a pod away from the node, which is gone or does not let it stay.
func (n *node) repels(p *corev1.Pod) bool {
	return n.gone || slices.ContainsFunc(n.taints, func(taint corev1.Taint) bool {
		return taint.Effect == corev1.TaintEffectNoExecute &&
			!slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.TODO(), &taint, false) })
	})
}

// storeNode notes that somebody has changed a node. The pods of DaemonSets tolerate what Kubernetes
// itself writes there.
func (h *history) storeNode(w Write) {
	n := h.node(w.ObjectRef.Name)
	n.gone = w.Verb == "delete"
	if is, known := w.Object.(*corev1.Node); known {
		n.taints = is.Spec.Taints
		n.lost = slices.ContainsFunc(is.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
		})
	}
	if w.Verb != "create" && !strings.HasPrefix(w.User.Username, "system:") {
		n.written = append(n.written, w.at)
	}
}

func (h *history) node(name string) *node {
	if h.nodes[name] == nil {
		h.nodes[name] = &node{}
	}
	return h.nodes[name]
}

// changed reports whether somebody has written a node since: then it may have pods no more, or again.
func (h *history) changed(node string, since time.Time) bool {
	return slices.ContainsFunc(h.node(node).written, func(at time.Time) bool { return !at.Before(since) })
}

// left is how many nodes without a Ready pod have left the DaemonSet since its status says how many it has: the DaemonSet controller
// goes by the nodes.
func (h *history) left(work *workload) (n int32) {
	if work.kind != "DaemonSet" {
		return 0
	}
	var counted time.Time
	for _, v := range slices.Backward(work.versions) {
		if v.replicas != work.last().replicas {
			break
		}
		counted = v.at
	}
	members := h.members(work)
	for name, is := range h.nodes {
		if h.changed(name, counted) && (is.gone || len(is.taints) > 0) &&
			!slices.ContainsFunc(members, func(p *pod) bool { return nodeOf(p.last()) == name && p.there() && ready(p.last()) }) {
			n++
		}
	}
	return n
}

// nodeOf is the node that a pod runs on, or that it was made for.
func nodeOf(p *corev1.Pod) string {
	if p.Spec.NodeName != "" || p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil ||
		p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return p.Spec.NodeName
	}
	for _, term := range p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

// suspect is a pod of a DaemonSet that went for no reason that the log knows. Its node may not be one
// for the DaemonSet any more; so it was a restart only if another pod comes to that node.
type suspect struct {
	Write
	pod     *pod
	message string
}

// checkDaemonGoes checks a deletion by the DaemonSet controller.
func (h *history) checkDaemonGoes(w Write, p *pod) {
	work, _ := h.workload(p.last())
	if work == nil {
		return
	}
	on := nodeOf(p.last())
	why, bySize := h.mayRestart(work, p, w)
	switch {
	case h.changed(on, w.Since) || h.node(on).repels(p.last()) || h.foundBeside(work, p) ||
		h.spare(work, p, w.Since) && !work.last().surges && work.any(p.versions[0].since, func(v version) bool { return v.surges }): // of a surge that its user has ended
	case why != "":
		if bySize {
			p.ours, p.more = h.ours(w.User.Username) || work.last().held, h.asksMore(work, p)
			if !h.twin(work, p) {
				h.checkAvailability(w, work, p)
			}
			h.checkOnce(w, work, p)
		}
		p.restart = bySize && !h.spare(work, p, w.at)
	case h.twin(work, p):
		h.violate(w, Restart, p.ref(), "%s had it go while another pod was on its node, and nothing allows that: %s", w.User.Username, h.describe(work, p))
	default:
		h.suspects[on] = append(h.suspects[on], suspect{w, p, h.describe(work, p)})
	}
}

// foundBeside reports whether the DaemonSet has on the node of this pod an older one, which it has adopted
// since it made this one: of two pods the DaemonSet controller keeps the older (podsShouldBeOnNode in
// pkg/controller/daemon of Kubernetes).
func (h *history) foundBeside(work *workload, p *pod) bool {
	made := p.versions[0].at
	return slices.ContainsFunc(h.members(work), func(other *pod) bool {
		before := -1
		for i, v := range other.versions {
			if v.at.Before(made) {
				before = i
			}
		}
		if before < 0 || !other.there() || nodeOf(other.last()) != nodeOf(p.last()) {
			return false
		}
		owner, _ := h.workload(other.versions[before].Pod)
		return owner != work
	})
}

// twin reports whether the DaemonSet has another pod on the node of this one.
func (h *history) twin(work *workload, p *pod) bool {
	return slices.ContainsFunc(h.members(work), func(other *pod) bool {
		return other != p && other.there() && nodeOf(other.last()) == nodeOf(p.last())
	})
}

// spare reports whether the DaemonSet has, or had at that moment, an older pod on the node of this one, which stays: no other comes for
// this one.
func (h *history) spare(work *workload, p *pod, then time.Time) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(h.pods)), func(other *pod) bool {
		owner, _ := h.workload(other.last())
		return other != p && owner == work && (other.there() || other.going.After(then)) && nodeOf(other.last()) == nodeOf(p.last()) && other.versions[0].at.Before(p.versions[0].at)
	})
}

// checkDaemonComes checks whether a new pod of a DaemonSet shows that another one was restarted.
func (h *history) checkDaemonComes(w Write) {
	came := w.pod()
	if came == nil {
		return
	}
	work, _ := h.workload(came)
	on := nodeOf(came)
	h.suspects[on] = slices.DeleteFunc(h.suspects[on], func(s suspect) bool {
		if owner, _ := h.workload(s.pod.last()); owner != work {
			return false
		}
		if !h.changed(on, s.at) && !work.any(s.at, func(v version) bool { return !differOnlyInSize(v.template, work.last().template) }) {
			h.violate(s.Write, Restart, s.pod.ref(), "%s had it go, and nothing allows that: %s", s.User.Username, s.message)
		}
		return true
	})
}

// checkDaemonRestart checks what else is promised of a restart by the controller itself: only what
// the DaemonSet controller leaves alone, and one by one only where pods may be down.
func (h *history) checkDaemonRestart(w Write, p *pod) {
	work, _ := h.workload(p.last())
	if work == nil || work.kind != "DaemonSet" {
		return
	}
	if !h.leavesAlone(work, p, w) {
		h.violate(w, Fence, p.ref(), "%s deleted it, which is up to the DaemonSet controller", w.User.Username)
	}
	if !work.any(w.Since, func(v version) bool { return v.down > 0 }) {
		h.violate(w, Availability, p.ref(), "%s deleted it, and only a surge may restart it", w.User.Username)
	}
	if h.unedited(work, p) {
		h.violate(w, Restart, p.ref(), "%s deleted it, and the template has not been edited since it has the label: no class of nodes allows that", w.User.Username)
	}
}

// unedited reports whether no template has come that says another size than that of the pod's label, or the same
// otherwise, such as 128Mi for 134217728, since the pod has this label. What it lacks then is the size of a class.
func (h *history) unedited(work *workload, p *pod) bool {
	made, known := h.template(p.last())
	spelled := func(of corev1.PodTemplateSpec) string {
		raw, _ := json.Marshal(sizeOf(of)) // what has been read can be written
		return string(raw)
	}
	return known && !work.any(p.labelled().since, func(v version) bool {
		return !differOnlyInSize(made, v.template) || spelled(made) != spelled(v.template)
	})
}

// classed reports whether all that the pod can lack is the size of a class that came when it was of the
// newest template: the condition stays True while it gets that. An edit that was given up has left nothing
// in a pod that nobody has asked since.
func (h *history) classed(work *workload, p *pod) bool {
	if work.kind != "DaemonSet" || !work.any(p.labelled().at, func(v version) bool { return v.annotation("node-resources") != "" }) {
		return false
	}
	made, known := h.template(p.last())
	versions := work.since(p.labelled().since)
	edit := slices.IndexFunc(versions, func(v version) bool {
		return !differOnlyInSize(made, v.template) || !equality.Semantic.DeepEqual(sizeOf(made), sizeOf(v.template))
	})
	return known && (edit < 0 || !slices.ContainsFunc(p.asked, func(a ask) bool { return a.at.After(versions[edit].at) }))
}

// labelled is the first version of the pod that has its label.
func (p *pod) labelled() podVersion {
	return p.versions[slices.IndexFunc(p.versions, func(v podVersion) bool {
		return v.Labels[appsv1.ControllerRevisionHashLabelKey] == p.last().Labels[appsv1.ControllerRevisionHashLabelKey]
	})]
}
