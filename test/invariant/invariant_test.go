package invariant_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/test/invariant"
)

const (
	ours        = "system:serviceaccount:inplace-rollout:inplace-rollout"
	statefulSet = "system:serviceaccount:kube-system:statefulset-controller"
	replicaSet  = "system:serviceaccount:kube-system:replicaset-controller"
	user        = "admin"
	hold        = "inplace-rollout.io/hold"
	action      = "inplace-rollout.io/resource-resize-action"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// trail is an audit log, with an event for each minute.
type trail struct {
	t            *testing.T
	events       []auditv1.Event
	gaps, doubts []invariant.Span
}

// write logs that somebody wrote an object, which is stored as it is then.
func (l *trail) write(by, verb, resource, name string, object runtime.Object) {
	l.t.Helper()
	l.answered(by, verb, resource, name, 200, object)
}

func (l *trail) answered(by, verb, resource, name string, code int32, object runtime.Object) {
	l.t.Helper()
	resource, subresource, _ := strings.Cut(resource, "/")
	e := auditv1.Event{
		Stage: auditv1.StageResponseComplete, Verb: verb, StageTimestamp: metav1.NewMicroTime(start.Add(time.Duration(len(l.events)) * time.Minute)),
		ObjectRef: &auditv1.ObjectReference{Resource: resource, Subresource: subresource, Name: name}, ResponseStatus: &metav1.Status{Code: code},
	}
	e.User.Username = by
	if object != nil {
		encoded, err := json.Marshal(object)
		if err != nil {
			l.t.Fatal(err)
		}
		e.ResponseObject = &runtime.Unknown{Raw: encoded}
	}
	l.events = append(l.events, e)
}

func container(cpu, image string) []corev1.Container {
	requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	return []corev1.Container{{Name: "app", Image: image, Resources: corev1.ResourceRequirements{Requests: requests}}}
}

// set is a StatefulSet of two pods, or one with changes.
func set(cpu string, change ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "set", Labels: map[string]string{"inplace-rollout.io/enabled": "true"}, Annotations: map[string]string{}},
		Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To(int32(2))},
	}
	s.Spec.Template.Spec.Containers = container(cpu, "app:1")
	s.Spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
	s.Status.UpdateRevision = "web-" + cpu
	for _, f := range change {
		f(s)
	}
	return s
}

func annotated(key, value string) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) { s.Annotations[key] = value }
}

func image2(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "app:2" }

func optedOut(s *appsv1.StatefulSet) { s.Labels = nil }

func complete(s *appsv1.StatefulSet) {
	s.Status.Conditions = []appsv1.StatefulSetCondition{{Type: "inplace-rollout.io/Complete", Status: corev1.ConditionTrue}}
}

func incomplete(s *appsv1.StatefulSet) {
	complete(s)
	s.Status.Conditions[0].Status = corev1.ConditionFalse
}

// pod of a size, with the label of a revision.
func pod(name, cpu, revision, owner, kind string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: revision},
		OwnerReferences: []metav1.OwnerReference{{Kind: kind, UID: types.UID(owner), Controller: ptr.To(true)}},
	}}
	p.Spec.NodeName, p.Spec.Containers = "node", container(cpu, "app:1")
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for _, f := range change {
		f(p)
	}
	return p
}

func infeasible(p *corev1.Pod) {
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Reason: corev1.PodReasonInfeasible})
}

func limited(p *corev1.Pod) {
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
}

// statefulSets logs a set of 1 cpu with two pods, and an edit to 2.
func (l *trail) statefulSets(change ...func(*appsv1.StatefulSet)) {
	l.write(user, "create", "statefulsets", "web", set("1", change...))
	for _, name := range []string{"web-0", "web-1"} {
		l.write(statefulSet, "create", "pods", name, pod(name, "1", "web-1", "set", "StatefulSet"))
	}
	l.write(user, "patch", "statefulsets", "web", set("2", append(change, annotated(hold, "0"))...))
}

// limit logs a LimitRange by which no container may have more than 1.5 cpu.
func (l *trail) limit() {
	l.write(user, "create", "limitranges", "limits", &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
		{Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}},
	}}})
}

// deployments logs a Deployment of 1 cpu with two pods, and an edit to 2.
func (l *trail) deployments(change ...func(*appsv1.Deployment)) {
	l.write(user, "create", "deployments", "web", deployment("1", change...))
	l.write(replicaSet, "create", "replicasets", "web-a", set1("web-a", "1", 2))
	for _, name := range []string{"web-a-0", "web-a-1"} {
		l.write(replicaSet, "create", "pods", name, pod(name, "1", "", "web-a", "ReplicaSet"))
	}
	l.write(user, "patch", "deployments", "web", deployment("2", change...))
}

// detached is a pod that was taken out of its ReplicaSet.
func detached(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := pod(name, "1", "", "deployment", "Deployment", change...)
	p.Labels = map[string]string{"inplace-rollout.io/detached-from": "web-a"}
	return p
}

// unlimited logs that a limit is removed from a Deployment's template, that its ReplicaSet takes that over, and makes pods which have
// the limit all the same, and that one of the pods is evicted.
func (l *trail) unlimited(evicted string, made ...string) {
	within := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	limit := func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Resources.Limits = within }
	rs := set1("web-a", "1", 2)
	rs.Spec.Template.Spec.Containers[0].Resources.Limits = within
	l.write(user, "create", "deployments", "web", deployment("1", limit))
	l.write(replicaSet, "create", "replicasets", "web-a", rs)
	for _, name := range []string{"web-a-0", "web-a-1"} {
		l.write(replicaSet, "create", "pods", name, pod(name, "1", "", "web-a", "ReplicaSet", limited))
	}
	l.write(user, "patch", "deployments", "web", deployment("1"))
	l.write(ours, "patch", "replicasets", "web-a", set1("web-a", "1", 2))
	for _, name := range made {
		l.write(replicaSet, "create", "pods", name, pod(name, "1", "", "web-a", "ReplicaSet", limited))
	}
	l.write(ours, "create", "pods/eviction", evicted, nil)
}

func recreate(d *appsv1.Deployment) {
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
}

// switched has others have changed the strategy since the edit.
func switched(d *appsv1.Deployment) {
	recreate(d)
	d.Annotations["inplace-rollout.io/in-force-strategy"] = "0;1"
}

func deployment(cpu string, change ...func(*appsv1.Deployment)) *appsv1.Deployment {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "deployment", Labels: map[string]string{"inplace-rollout.io/enabled": "true"}, Annotations: map[string]string{hold: "false"}},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To(int32(2))},
	}
	d.Spec.Template.Spec.Containers = container(cpu, "app:1")
	d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: ptr.To(intstr.FromInt32(1)), MaxSurge: ptr.To(intstr.FromInt32(0))}
	for _, f := range change {
		f(d)
	}
	return d
}

func set1(name, cpu string, replicas int32) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), OwnerReferences: []metav1.OwnerReference{{Kind: "Deployment", UID: "deployment", Controller: ptr.To(true)}},
	}}
	rs.Spec.Replicas = &replicas
	rs.Spec.Template.Spec.Containers = container(cpu, "app:1")
	return rs
}

// returned is a pod of a set that has come back with the old revision, and of a size now.
func returned(name, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	return pod(name, cpu, "web-1", "set", "StatefulSet", append(change, func(p *corev1.Pod) { p.UID = types.UID(name + " again") })...)
}

// back logs that its user deletes a pod of a set, and that it comes back and is Ready at once.
func (l *trail) back(name string) {
	l.write(user, "delete", "pods", name, nil)
	l.write(statefulSet, "create", "pods", name, returned(name, "1", func(p *corev1.Pod) { p.Status.Conditions = nil }))
	l.write("system:node:node", "patch", "pods/status", name, returned(name, "1"))
	l.after(15 * time.Millisecond)
}

// promised is what is done, and which promise is broken by that.
type promised struct {
	name string
	do   func(l *trail)
	want string // the promise and its object; "" if all are kept
}

// TestCheck: each promise is seen to be broken, and seen to be kept in the case beside.
func TestCheck(t *testing.T) {
	live := annotated(action, "LiveResize")
	checkAll(t, []promised{
		{"a pod is restarted by LiveResize", func(l *trail) {
			l.statefulSets(live)
			l.write(statefulSet, "delete", "pods", "web-1", nil)
		}, "restart pods/web-1"},
		{"it would be, in a dry run", func(l *trail) {
			l.statefulSets(live)
			l.write(statefulSet, "delete", "pods", "web-1", nil)
			l.events[len(l.events)-1].RequestObject = &runtime.Unknown{Raw: []byte(`{"kind":"DeleteOptions","dryRun":["All"]}`)}
			l.write(statefulSet, "delete", "pods", "web-0", nil)
			l.events[len(l.events)-1].RequestURI = "/api/v1/namespaces/default/pods/web-0?dryRun=All"
		}, ""},
		{"its user deletes it", func(l *trail) {
			l.statefulSets(live)
			l.write(user, "delete", "pods", "web-1", nil)
		}, ""},
		{"it is scaled down by the subresource", func(l *trail) {
			l.statefulSets(live)
			l.write(user, "patch", "statefulsets/scale", "web", &autoscalingv1.Scale{
				TypeMeta: metav1.TypeMeta{Kind: "Scale"}, ObjectMeta: metav1.ObjectMeta{UID: "set"}, Spec: autoscalingv1.ScaleSpec{Replicas: 1},
			})
			l.write(ours, "patch", "statefulsets/status", "web", set("2", live, func(s *appsv1.StatefulSet) { s.Spec.Replicas = ptr.To(int32(1)) }))
			l.write(statefulSet, "delete", "pods", "web-1", nil)
		}, ""},
		{"it is scaled down", func(l *trail) {
			l.statefulSets(live)
			l.write(user, "patch", "statefulsets", "web", set("2", live, func(s *appsv1.StatefulSet) { s.Spec.Replicas = ptr.To(int32(1)) }))
			l.write(statefulSet, "delete", "pods", "web-1", nil)
		}, ""},
		{"the image has changed, too", func(l *trail) {
			l.statefulSets(live)
			l.write(user, "patch", "statefulsets", "web", set("2", live, image2))
			l.write(statefulSet, "delete", "pods", "web-1", nil)
		}, ""},
		{"its user has let go", func(l *trail) {
			l.statefulSets(live)
			l.write(user, "patch", "statefulsets", "web", set("2", live))
			l.write(statefulSet, "delete", "pods", "web-1", nil)
		}, ""},
		{"it was not held, because no controller was there", func(l *trail) {
			l.statefulSets()
			l.write(user, "patch", "statefulsets", "web", set("3", annotated("inplace-rollout.io/not-held", "7")))
			l.write(statefulSet, "delete", "pods", "web-1", nil)
		}, ""},
		{"it was not held, and should have been", func(l *trail) {
			l.statefulSets(live)
			l.write(user, "patch", "statefulsets", "web", set("3", live, annotated("inplace-rollout.io/not-held", "7"), annotated("inplace-rollout.io/in-force", "LiveResize;")))
			l.write(statefulSet, "delete", "pods", "web-1", nil)
		}, "held statefulsets/web"},
		{"we have let go", func(l *trail) {
			l.statefulSets(live)
			l.write(ours, "patch", "statefulsets", "web", set("2", live))
			l.write(statefulSet, "delete", "pods", "web-1", nil)
		}, "restart pods/web-1"},
		{"LiveResizePreferred, and nothing is in the way", func(l *trail) {
			l.statefulSets()
			l.write(statefulSet, "delete", "pods", "web-1", nil)
		}, "restart pods/web-1"},
		{"LiveResizePreferred, and the kubelet cannot", func(l *trail) {
			l.statefulSets()
			l.write("system:node:node", "patch", "pods/status", "web-1", pod("web-1", "2", "web-1", "set", "StatefulSet", infeasible))
			l.write(statefulSet, "delete", "pods", "web-1", nil)
		}, ""},
		{"LiveResizePreferred, and the API server refuses", func(l *trail) {
			l.statefulSets()
			l.answered(ours, "patch", "pods/resize", "web-1", 422, nil)
			l.write(statefulSet, "delete", "pods", "web-1", nil)
		}, ""},
		{"an edit back, and the edit has added a limit", func(l *trail) {
			l.statefulSets()
			l.write(ours, "patch", "pods/resize", "web-1", pod("web-1", "2", "web-1", "set", "StatefulSet", limited))
			l.write(user, "patch", "statefulsets", "web", set("1", annotated(hold, "0")))
			l.write(ours, "delete", "pods", "web-1", nil)
		}, ""},
		{"an edit back, and the edit has added a limit of the pod", func(l *trail) {
			l.statefulSets()
			l.write(ours, "patch", "pods/resize", "web-1", pod("web-1", "2", "web-1", "set", "StatefulSet", func(p *corev1.Pod) {
				p.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}}
			}))
			l.write(user, "patch", "statefulsets", "web", set("1", annotated(hold, "0")))
			l.write(ours, "delete", "pods", "web-1", nil)
		}, ""},
		{"an edit back, and somebody else has added a limit", func(l *trail) {
			l.statefulSets()
			l.write(user, "patch", "pods/resize", "web-1", pod("web-1", "1", "web-1", "set", "StatefulSet", limited))
			l.write(ours, "patch", "pods/resize", "web-1", pod("web-1", "2", "web-1", "set", "StatefulSet", limited))
			l.write(user, "patch", "statefulsets", "web", set("1", annotated(hold, "0")))
			l.write(ours, "delete", "pods", "web-1", nil)
		}, "restart pods/web-1"},
		{"OnDelete with the action Restart", func(l *trail) {
			onDelete := func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType }
			l.statefulSets(annotated(action, "Restart"), onDelete)
			l.write(ours, "delete", "pods", "web-1", nil)
		}, "restart pods/web-1"},
		{"one goes while another is down", func(l *trail) {
			l.statefulSets(annotated(action, "Restart"))
			unready := pod("web-0", "1", "web-1", "set", "StatefulSet", func(p *corev1.Pod) { p.Status.Conditions = nil })
			l.write("system:node:node", "patch", "pods/status", "web-0", unready)
			l.write(statefulSet, "delete", "pods", "web-1", nil)
		}, "availability statefulsets/web"},
		{"one goes while all are there", func(l *trail) {
			l.statefulSets(annotated(action, "Restart"))
			l.write(statefulSet, "delete", "pods", "web-1", nil)
		}, ""},
		{"the lower ordinal is asked first", func(l *trail) {
			l.statefulSets()
			l.write(ours, "patch", "pods/resize", "web-0", pod("web-0", "2", "web-1", "set", "StatefulSet"))
		}, "order pods/web-0"},
		{"the lower ordinal is asked first, which is not Ready: the size may be its cure", func(l *trail) {
			l.statefulSets()
			unready := func(p *corev1.Pod) { p.Status.Conditions = nil }
			l.write("system:node:node", "patch", "pods/status", "web-0", pod("web-0", "1", "web-1", "set", "StatefulSet", unready))
			l.write(ours, "patch", "pods/resize", "web-0", pod("web-0", "2", "web-1", "set", "StatefulSet", unready))
		}, ""},
		{"the lower ordinal is asked first, which has just come back and is not known to be Ready", func(l *trail) {
			l.statefulSets()
			l.back("web-0")
			l.write(ours, "patch", "pods/resize", "web-0", returned("web-0", "2"))
			l.after(70 * time.Millisecond)
		}, ""},
		{"the lower ordinal is asked first, which has come back and has long been Ready", func(l *trail) {
			l.statefulSets()
			l.back("web-0")
			l.write(ours, "patch", "pods/resize", "web-0", returned("web-0", "2"))
			l.after(time.Minute)
		}, "order pods/web-0"},
		{"the lower ordinal is asked alone, as a LimitRange refuses the higher one its size", func(l *trail) {
			l.statefulSets()
			l.limit()
			l.write(ours, "patch", "pods/resize", "web-0", pod("web-0", "2", "web-1", "set", "StatefulSet"))
		}, ""},
		{"likewise, when the LimitRange has gone", func(l *trail) {
			l.statefulSets()
			l.limit()
			l.write(user, "delete", "limitranges", "limits", nil)
			l.write(user, "patch", "deployments", "other", nil)
			l.write(ours, "patch", "pods/resize", "web-0", pod("web-0", "2", "web-1", "set", "StatefulSet"))
		}, "order pods/web-0"},
		{"the higher ordinal is asked first", func(l *trail) {
			l.statefulSets()
			l.write(ours, "patch", "pods/resize", "web-1", pod("web-1", "2", "web-1", "set", "StatefulSet"))
			l.write("system:node:node", "patch", "pods/status", "web-1", pod("web-1", "2", "web-1", "set", "StatefulSet"))
			l.write(ours, "patch", "pods/resize", "web-0", pod("web-0", "2", "web-1", "set", "StatefulSet"))
		}, ""},
		{"Complete, and a pod is of the old size", func(l *trail) {
			l.statefulSets()
			l.write(ours, "patch", "statefulsets/status", "web", set("2", annotated(hold, "0"), complete))
		}, "complete statefulsets/web"},
		{"Complete, and the pods have the size and the label", func(l *trail) {
			l.statefulSets()
			for _, name := range []string{"web-1", "web-0"} {
				l.write(ours, "patch", "pods/resize", name, pod(name, "2", "web-1", "set", "StatefulSet"))
				l.write(ours, "patch", "pods", name, pod(name, "2", "web-2", "set", "StatefulSet"))
			}
			l.write(ours, "patch", "statefulsets/status", "web", set("2", annotated(hold, "0"), complete))
		}, ""},
		{"Complete, and a pod has the size and not the label", func(l *trail) {
			l.statefulSets()
			for _, name := range []string{"web-1", "web-0"} {
				l.write(ours, "patch", "pods/resize", name, pod(name, "2", "web-1", "set", "StatefulSet"))
				l.write("system:node:node", "patch", "pods/status", name, pod(name, "2", "web-1", "set", "StatefulSet"))
			}
			l.write(ours, "patch", "statefulsets/status", "web", set("2", annotated(hold, "0"), complete))
		}, "complete statefulsets/web"},
		{"Complete, and a pod has the size that somebody else has given it", func(l *trail) {
			l.write(user, "create", "statefulsets", "web", set("1"))
			l.write(statefulSet, "create", "pods", "web-0", pod("web-0", "1", "web-1", "set", "StatefulSet"))
			l.write(user, "patch", "pods/resize", "web-0", pod("web-0", "3", "web-1", "set", "StatefulSet"))
			l.write(ours, "patch", "statefulsets/status", "web", set("1", complete))
		}, ""},
		{"Complete, and a pod has another size, and was asked since somebody else has given it one", func(l *trail) {
			l.write(user, "create", "statefulsets", "web", set("1"))
			l.write(statefulSet, "create", "pods", "web-0", pod("web-0", "1", "web-1", "set", "StatefulSet"))
			l.write(user, "patch", "pods/resize", "web-0", pod("web-0", "3", "web-1", "set", "StatefulSet"))
			l.write(ours, "patch", "pods/resize", "web-0", pod("web-0", "2", "web-1", "set", "StatefulSet"))
			l.write(ours, "patch", "statefulsets/status", "web", set("1", complete))
		}, "complete statefulsets/web"},
		{"Complete, and a pod has kept of an edit that was taken back what a new one was born with", func(l *trail) {
			l.statefulSets()
			l.write(ours, "patch", "pods/resize", "web-1", pod("web-1", "2", "web-1", "set", "StatefulSet"))
			l.write("system:node:node", "patch", "pods/status", "web-1", pod("web-1", "2", "web-1", "set", "StatefulSet"))
			l.write(user, "update", "statefulsets", "web", set("1"))
			l.write(statefulSet, "create", "pods", "web-2", pod("web-2", "2", "web-1", "set", "StatefulSet"))
			l.write(ours, "patch", "statefulsets/status", "web", set("1", complete))
		}, ""},
		{"Complete, and the write of the last label was answered with a fault", func(l *trail) {
			l.statefulSets()
			for _, name := range []string{"web-1", "web-0"} {
				l.write(ours, "patch", "pods/resize", name, pod(name, "2", "web-1", "set", "StatefulSet"))
				l.write("system:node:node", "patch", "pods/status", name, pod(name, "2", "web-1", "set", "StatefulSet"))
			}
			l.write(ours, "patch", "pods", "web-1", pod("web-1", "2", "web-2", "set", "StatefulSet"))
			l.answered(ours, "patch", "pods", "web-0", 504, nil)
			l.write(ours, "patch", "statefulsets/status", "web", set("2", annotated(hold, "0"), complete))
		}, ""},
		{"Complete, and a pod is on its way whose deletion was answered with a fault", func(l *trail) {
			l.statefulSets()
			l.write(ours, "patch", "pods/resize", "web-1", pod("web-1", "2", "web-1", "set", "StatefulSet"))
			l.write(ours, "patch", "pods", "web-1", pod("web-1", "2", "web-2", "set", "StatefulSet"))
			l.answered(user, "delete", "pods", "web-0", 504, nil)
			l.write(user, "patch", "pods", "web-0", pod("web-0", "1", "web-1", "set", "StatefulSet", func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.Now()) }))
			l.write(ours, "patch", "statefulsets/status", "web", set("2", annotated(hold, "0"), complete))
		}, ""},
		{"Complete, and a pod is gone whose deletion the log does not show", func(l *trail) {
			l.statefulSets()
			l.write(ours, "patch", "pods/resize", "web-1", pod("web-1", "2", "web-1", "set", "StatefulSet"))
			l.write(ours, "patch", "pods", "web-1", pod("web-1", "2", "web-2", "set", "StatefulSet"))
			l.answered(user, "delete", "pods", "web-0", 404, nil)
			l.write(ours, "patch", "statefulsets/status", "web", set("2", annotated(hold, "0"), complete))
		}, ""},
		{"Complete, and a pod of another size was rejected by its kubelet", func(l *trail) {
			l.statefulSets()
			l.write(ours, "patch", "pods/resize", "web-1", pod("web-1", "2", "web-1", "set", "StatefulSet"))
			l.write(ours, "patch", "pods", "web-1", pod("web-1", "2", "web-2", "set", "StatefulSet"))
			l.write("system:node:node", "patch", "pods/status", "web-0", pod("web-0", "1", "web-1", "set", "StatefulSet", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }))
			l.write(ours, "patch", "statefulsets/status", "web", set("2", annotated(hold, "0"), complete))
		}, ""},
		{"what is not opted in is written", func(l *trail) {
			l.statefulSets(optedOut)
			l.write(ours, "patch", "pods", "web-1", pod("web-1", "1", "web-2", "set", "StatefulSet"))
		}, "opted in pods/web-1"},
		{"the condition of what was opted out goes", func(l *trail) {
			l.statefulSets()
			l.write(user, "patch", "statefulsets", "web", set("2", optedOut, complete))
			l.write(ours, "patch", "statefulsets/status", "web", set("2", optedOut))
			l.after(time.Hour)
		}, ""},
		{"what was opted out gets a condition", func(l *trail) {
			l.statefulSets()
			l.write(user, "patch", "statefulsets", "web", set("2", optedOut))
			l.write(ours, "patch", "statefulsets/status", "web", set("2", optedOut, incomplete))
			l.after(time.Hour)
		}, "opted in statefulsets/web"},
		{"a condition of what never was opted in goes", func(l *trail) {
			l.statefulSets(optedOut)
			l.write(ours, "patch", "statefulsets/status", "web", set("2", optedOut))
		}, "opted in statefulsets/web"},
		{"a bare pod is deleted", func(l *trail) {
			l.write(user, "create", "pods", "bare", pod("bare", "1", "", "", ""))
			l.write(ours, "delete", "pods", "bare", nil)
		}, "opted in pods/bare"},
		{"the image is changed by us", func(l *trail) {
			l.statefulSets()
			l.write(ours, "patch", "statefulsets", "web", set("2", image2))
		}, "fence statefulsets/web"},
		{"a Deployment's pod is deleted past the budgets", func(l *trail) {
			l.deployments()
			l.answered(ours, "patch", "pods/resize", "web-a-1", 403, nil)
			l.write(ours, "delete", "pods", "web-a-1", nil)
		}, "fence pods/web-a-1"},
		{"a Deployment's pod is deleted that is not Ready", func(l *trail) {
			l.deployments()
			l.answered(ours, "patch", "pods/resize", "web-a-1", 403, nil)
			l.write("system:node:node", "patch", "pods/status", "web-a-1", pod("web-a-1", "1", "", "web-a", "ReplicaSet", func(p *corev1.Pod) { p.Status.Conditions = nil }))
			l.write(ours, "delete", "pods", "web-a-1", nil)
		}, ""},
		{"a Deployment's pod is evicted", func(l *trail) {
			l.deployments()
			l.answered(ours, "patch", "pods/resize", "web-a-1", 403, nil)
			l.write(ours, "create", "pods/eviction", "web-a-1", nil)
		}, ""},
		{"a Deployment's pod is evicted for a removed limit, after its ReplicaSet has taken the template over", func(l *trail) {
			l.unlimited("web-a-1")
		}, ""},
		{"so is one that was made of it, and has the limit from admission", func(l *trail) { l.unlimited("web-a-2", "web-a-2") }, "restart pods/web-a-2"},
		{"a Deployment's pod is evicted, and the strategy is Recreate", func(l *trail) {
			l.deployments(recreate)
			l.answered(ours, "patch", "pods/resize", "web-a-1", 403, nil)
			l.write(ours, "create", "pods/eviction", "web-a-1", nil)
		}, "apart pods/web-a-1"},
		{"a Deployment's pod is evicted, and the strategy is Recreate since the edit", func(l *trail) {
			l.deployments(switched)
			l.answered(ours, "patch", "pods/resize", "web-a-1", 403, nil)
			l.write(ours, "create", "pods/eviction", "web-a-1", nil)
		}, ""},
		{"so are two, and one may be down", func(l *trail) {
			l.deployments(switched)
			for _, name := range []string{"web-a-1", "web-a-0"} {
				l.answered(ours, "patch", "pods/resize", name, 403, nil)
			}
			l.write(ours, "create", "pods/eviction", "web-a-1", nil)
			l.write(ours, "create", "pods/eviction", "web-a-0", nil)
		}, "availability deployments/web"},
		{"we let go, and the strategy is Recreate since the edit", func(l *trail) {
			l.deployments(switched)
			l.write(ours, "patch", "deployments", "web", deployment("2", recreate, func(d *appsv1.Deployment) { d.Annotations = nil }))
		}, "availability deployments/web"},
		{"a Deployment's pods go together, and the strategy is Recreate", func(l *trail) {
			l.deployments(recreate)
			l.answered(ours, "patch", "pods/resize", "web-a-1", 403, nil)
			l.write(replicaSet, "patch", "replicasets", "web-a", set1("web-a", "1", 2))
			l.write(replicaSet, "delete", "pods", "web-a-1", nil)
			l.write(replicaSet, "delete", "pods", "web-a-0", nil)
		}, ""},
		{"the Deployment controller rolls what is held", func(l *trail) {
			l.deployments()
			l.write(replicaSet, "create", "replicasets", "web-b", set1("web-b", "2", 1))
			l.write(replicaSet, "patch", "replicasets", "web-a", set1("web-a", "1", 1))
			l.write(replicaSet, "delete", "pods", "web-a-1", nil)
		}, "restart pods/web-a-1"},
		{"a new Deployment adopts pods of another size", func(l *trail) {
			l.write(replicaSet, "create", "pods", "web-a-0", pod("web-a-0", "1", "", "web-a", "ReplicaSet"))
			l.write(user, "create", "deployments", "web", deployment("2"))
			l.write("system:serviceaccount:kube-system:deployment-controller", "patch", "replicasets", "web-a", set1("web-a", "1", 1))
			l.write(replicaSet, "delete", "pods", "web-a-0", nil)
		}, ""},
		{"a ReplicaSet is scaled by us", func(l *trail) {
			l.deployments()
			l.write(ours, "patch", "replicasets", "web-a", set1("web-a", "2", 3))
		}, "fence replicasets/web-a"},
		{"a ReplicaSet gets the Deployment's size", func(l *trail) {
			l.deployments()
			l.write(ours, "patch", "replicasets", "web-a", set1("web-a", "2", 2))
		}, ""},
		{"a ReplicaSet gets its former size back", func(l *trail) {
			l.deployments()
			l.write(ours, "patch", "replicasets", "web-a", set1("web-a", "2", 2))
			l.write(ours, "patch", "replicasets", "web-a", set1("web-a", "1", 2))
		}, "fence replicasets/web-a"},
		{"so does one of a guarded rollout", func(l *trail) {
			l.deployments(func(d *appsv1.Deployment) { d.Annotations["inplace-rollout.io/canary"] = "1" })
			l.write(ours, "patch", "replicasets", "web-a", set1("web-a", "2", 2))
			l.write(ours, "patch", "replicasets", "web-a", set1("web-a", "1", 2))
		}, ""},
		{"a ReplicaSet gets a size of its own", func(l *trail) {
			l.deployments()
			l.write(ours, "patch", "replicasets", "web-a", set1("web-a", "3", 2))
		}, "fence replicasets/web-a"},
		{"a pod is detached, and nothing is in the way", func(l *trail) {
			l.deployments()
			l.write(ours, "patch", "pods", "web-a-1", detached("web-a-1"))
		}, "restart pods/web-a-1"},
		{"a pod is detached that cannot be resized, and evicted before another one has come", func(l *trail) {
			l.deployments(func(d *appsv1.Deployment) {
				d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: ptr.To(intstr.FromInt32(0)), MaxSurge: ptr.To(intstr.FromInt32(1))}
			})
			l.answered(ours, "patch", "pods/resize", "web-a-1", 403, nil)
			l.write(ours, "patch", "pods", "web-a-1", detached("web-a-1"))
			l.write(ours, "create", "pods/eviction", "web-a-1", nil)
		}, "availability deployments/web"},
		{"a pod loses its owner", func(l *trail) {
			l.deployments()
			l.answered(ours, "patch", "pods/resize", "web-a-1", 403, nil)
			l.write(ours, "patch", "pods", "web-a-1", detached("web-a-1", func(p *corev1.Pod) { p.OwnerReferences = nil }))
		}, "fence pods/web-a-1"},
		{"a Deployment's pod is evicted for a removed limit that its successor has, too", func(l *trail) {
			l.unlimited("web-a-1")
			l.write(replicaSet, "create", "pods", "web-a-2", pod("web-a-2", "1", "", "web-a", "ReplicaSet", limited))
			l.write(ours, "create", "pods/eviction", "web-a-0", nil)
		}, "once pods/web-a-0"},
		{"Complete, and a pod has had its size for less than minReadySeconds", func(l *trail) {
			slow := func(s *appsv1.StatefulSet) { s.Spec.Replicas, s.Spec.MinReadySeconds = ptr.To(int32(1)), 300 }
			l.write(user, "create", "statefulsets", "web", set("1", slow))
			l.write(statefulSet, "create", "pods", "web-0", pod("web-0", "1", "web-1", "set", "StatefulSet"))
			l.write(user, "patch", "statefulsets", "web", set("2", slow, annotated(hold, "0")))
			l.write(ours, "patch", "pods/resize", "web-0", pod("web-0", "2", "web-1", "set", "StatefulSet"))
			l.write("system:node:node", "patch", "pods/status", "web-0", pod("web-0", "2", "web-1", "set", "StatefulSet"))
			l.write(ours, "patch", "pods", "web-0", pod("web-0", "2", "web-2", "set", "StatefulSet"))
			l.write(ours, "patch", "statefulsets/status", "web", set("2", slow, annotated(hold, "0"), complete))
		}, "complete statefulsets/web"},
		{"no node has room for what comes", func(l *trail) {
			l.deployments()
			l.answered(ours, "patch", "pods/resize", "web-a-1", 403, nil)
			l.write(ours, "patch", "replicasets", "web-a", set1("web-a", "2", 2))
			l.write(ours, "create", "pods/eviction", "web-a-1", nil)
			pending := pod("web-a-2", "2", "", "web-a", "ReplicaSet", func(p *corev1.Pod) { p.Spec.NodeName = "" })
			l.write(replicaSet, "create", "pods", "web-a-2", pending)
			pending.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
			l.write("system:kube-scheduler", "patch", "pods/status", "web-a-2", pending)
			l.atOnce(2)
		}, "room pods/web-a-2"},
	})
}

func checkAll(t *testing.T, tests []promised) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := &trail{t: t}
			tt.do(l)
			violations, err := invariant.Check(l.events, invariant.Options{
				Controllers: []string{ours}, Operators: "operator:", DeferredTimeout: 5 * time.Minute, ErrorTimeout: 10 * time.Minute,
				Gaps: l.gaps, Doubts: l.doubts,
			})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, v := range violations {
				got = append(got, v.Invariant+" "+v.Object)
			}
			if len(got) == 0 && tt.want == "" {
				return
			}
			if len(got) == 0 || got[0] != tt.want || tt.want == "" {
				t.Errorf("violations %q, want %q; the first of %v", got, tt.want, violations)
			}
		})
	}
}
