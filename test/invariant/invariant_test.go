package invariant_test

import (
	"encoding/json"
	"reflect"
	"slices"
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

	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/invariant"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

const (
	ours        = "system:serviceaccount:inplace-rollout:inplace-rollout"
	statefulSet = "system:serviceaccount:kube-system:statefulset-controller"
	replicaSet  = "system:serviceaccount:kube-system:replicaset-controller"
	user        = "admin"
	kubelet     = "system:node:node"
	scheduler   = "system:kube-scheduler"
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
		encoded := must.Get(json.Marshal(object))(l.t)
		e.ResponseObject = &runtime.Unknown{Raw: encoded}
	}
	l.events = append(l.events, e)
}

// history is what a log has, step by step.
type (
	history []step
	step    = func(l *trail)
)

func together(steps ...step) step {
	return func(l *trail) {
		l.t.Helper()
		for _, do := range steps {
			do(l)
		}
	}
}

// object is what is written; its resource is named as its type.
type object interface {
	runtime.Object
	metav1.Object
}

func logged(by, verb string, o object, subresource string) step {
	return func(l *trail) {
		l.t.Helper()
		l.write(by, verb, strings.ToLower(reflect.TypeOf(o).Elem().Name())+"s"+subresource, o.GetName(), o)
	}
}

func created(by string, o object) step     { return logged(by, "create", o, "") }
func wrote(by string, o object) step       { return logged(by, "patch", o, "") }
func wroteStatus(by string, o object) step { return logged(by, "patch", o, "/status") }

func resized(by string, p *corev1.Pod) step { return logged(by, "patch", p, "/resize") }

// asked logs that we ask for the size that a pod has then, refused that we do in vain, and reported what a kubelet says of a pod.
func asked(p *corev1.Pod) step    { return resized(ours, p) }
func reported(p *corev1.Pod) step { return wroteStatus(kubelet, p) }
func refused(pod string) step {
	return func(l *trail) { l.answered(ours, "patch", "pods/resize", pod, 422, nil) }
}

func deleted(by, pod string) step {
	return func(l *trail) { l.write(by, "delete", "pods", pod, nil) }
}

func evicted(pod string) step {
	return func(l *trail) { l.write(ours, "create", "pods/eviction", pod, nil) }
}

// after has the last event be so long after the one before it.
func after(d time.Duration) step {
	return func(l *trail) {
		n := len(l.events) - 1
		l.events[n].StageTimestamp.Time = l.events[n-1].StageTimestamp.Add(d)
	}
}

// atOnce has the last n events be a second after the one before them.
func atOnce(n int) step {
	return func(l *trail) {
		late := len(l.events) - n
		for i := range l.events[late:] {
			l.events[late+i].StageTimestamp.Time = l.events[late-1].StageTimestamp.Add(time.Second)
		}
	}
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

func onDelete(s *appsv1.StatefulSet) {
	s.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
}

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

func unready(p *corev1.Pod) { p.Status.Conditions = nil }

func infeasible(p *corev1.Pod) {
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Reason: corev1.PodReasonInfeasible})
}

func limited(p *corev1.Pod) {
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
}

// webPod is a pod of that set, with the label of its first revision.
func webPod(name, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	return pod(name, cpu, "web-1", "set", "StatefulSet", change...)
}

// webPods logs that a set has its pods.
var webPods = together(created(statefulSet, webPod("web-0", "1")), created(statefulSet, webPod("web-1", "1")))

// edited logs a set of 1 cpu with two pods, and an edit to 2.
func edited(change ...func(*appsv1.StatefulSet)) step {
	return together(created(user, set("1", change...)), webPods, wrote(user, set("2", append(change, annotated(hold, "0"))...)))
}

// hasSize logs that a pod of the set is resized to 2, and gets the label of that revision.
func hasSize(name string) step {
	return together(asked(webPod(name, "2")), wrote(ours, pod(name, "2", "web-2", "set", "StatefulSet")))
}

// says logs what we write as the status of the set that is held, of 2 cpu.
func says(change ...func(*appsv1.StatefulSet)) step {
	return wroteStatus(ours, set("2", append(change, annotated(hold, "0"))...))
}

// limit logs a LimitRange by which no container may have more than 1.5 cpu.
func limit(l *trail) {
	created(user, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "limits"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
		{Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}},
	}}})(l)
}

// setPod is a pod of a Deployment's first ReplicaSet.
func setPod(name, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	return pod(name, cpu, "", "web-a", "ReplicaSet", change...)
}

// deployed logs a Deployment with two pods that have these changes.
func deployed(d *appsv1.Deployment, rs *appsv1.ReplicaSet, change ...func(*corev1.Pod)) step {
	return together(created(user, d), created(replicaSet, rs), created(replicaSet, setPod("web-a-0", "1", change...)), created(replicaSet, setPod("web-a-1", "1", change...)))
}

// editedDeployment logs a Deployment of 1 cpu with two pods, and an edit to 2.
func editedDeployment(change ...func(*appsv1.Deployment)) step {
	return together(deployed(deployment("1", change...), set1("web-a", "1", 2)), wrote(user, deployment("2", change...)))
}

// detached is a pod that was taken out of its ReplicaSet.
func detached(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := pod(name, "1", "", "deployment", "Deployment", change...)
	p.Labels = map[string]string{"inplace-rollout.io/detached-from": "web-a"}
	return p
}

// awayBefore logs a hand-over whose first pod is deleted, and the second goes after the ReplicaSet's status was written in that way.
func awayBefore(how ...step) history {
	restarts := func(d *appsv1.Deployment) { d.Annotations = map[string]string{action: "Restart"} }
	return history{
		editedDeployment(restarts), wrote(ours, deployment("2", restarts)), deleted(user, "web-a-0"), wroteStatus(replicaSet, set1("web-a", "1", 2)),
		together(how...), wrote(replicaSet, set1("web-a", "1", 1)), deleted(replicaSet, "web-a-1"),
	}
}

// unlimited logs that a limit is removed from a Deployment's template, that its ReplicaSet takes that over, and makes pods which have
// the limit all the same, before its controller has seen that, and that one of the pods is evicted.
func unlimited(evicts string, made ...string) step {
	limit := func(spec *corev1.PodSpec) {
		spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	}
	rs := set1("web-a", "1", 2)
	limit(&rs.Spec.Template.Spec)
	after := set1("web-a", "1", 2)
	rs.Generation, after.Generation = 1, 2
	seen := after.DeepCopy()
	seen.Status.ObservedGeneration = 2
	steps := history{
		deployed(deployment("1", func(d *appsv1.Deployment) { limit(&d.Spec.Template.Spec) }), rs, limited),
		wrote(user, deployment("1")), wrote(ours, after),
	}
	pods := build.Each(made, func(name string) step { return created(replicaSet, setPod(name, "1", limited)) })
	return together(slices.Concat(steps, pods, history{wroteStatus(replicaSet, seen), evicted(evicts)})...)
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
	return webPod(name, cpu, append(change, func(p *corev1.Pod) { p.UID = types.UID(name + " again") })...)
}

// back logs that its user deletes a pod of a set, and that it comes back and is Ready at once.
func back(name string) step {
	return together(deleted(user, name), created(statefulSet, returned(name, "1", unready)), reported(returned(name, "1")), after(15*time.Millisecond))
}

// unschedulable logs that a pod comes which the scheduler finds no node for.
func unschedulable(by string, p *corev1.Pod) step {
	told := p.DeepCopy()
	told.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	return together(created(by, p), wroteStatus(scheduler, told))
}

// promised is what is done, and which promise is broken by that.
type promised struct {
	name string
	do   history
	want string // the promise and its object; "" if all are kept
}

// TestCheck: each promise is seen to be broken, and seen to be kept in the case beside.
func TestCheck(t *testing.T) {
	live, restart, notHeld := annotated(action, "LiveResize"), annotated(action, "Restart"), annotated("inplace-rollout.io/not-held", "7")
	scaled := func(s *appsv1.StatefulSet) { s.Spec.Replicas = ptr.To(int32(1)) }
	three := func(s *appsv1.StatefulSet) { s.Spec.Replicas = ptr.To(int32(3)) }
	fewer := func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(1)) }
	restarts := deleted(statefulSet, "web-1")
	dryRun := func(l *trail) {
		deleted(statefulSet, "web-1")(l)
		l.events[len(l.events)-1].RequestObject = &runtime.Unknown{Raw: []byte(`{"kind":"DeleteOptions","dryRun":["All"]}`)}
		deleted(statefulSet, "web-0")(l)
		l.events[len(l.events)-1].RequestURI = "/api/v1/namespaces/default/pods/web-0?dryRun=All"
	}
	scaledBySubresource := func(l *trail) {
		l.write(user, "patch", "statefulsets/scale", "web", &autoscalingv1.Scale{
			TypeMeta: metav1.TypeMeta{Kind: "Scale"}, ObjectMeta: metav1.ObjectMeta{UID: "set"}, Spec: autoscalingv1.ScaleSpec{Replicas: 1},
		})
	}
	unlimit := func(l *trail) { l.write(user, "delete", "limitranges", "limits", nil) }
	other := func(l *trail) { l.write(user, "patch", "deployments", "other", nil) }
	answered := func(by, verb string, code int32) step {
		return func(l *trail) { l.answered(by, verb, "pods", "web-0", code, nil) }
	}
	limitedPod := func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}}
	}
	leaving := func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.Now()) }
	failed := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	first := together(asked(webPod("web-1", "2")), reported(webPod("web-1", "2")))
	unlabelled := together(first, asked(webPod("web-0", "2")), reported(webPod("web-0", "2")))
	patient := func(s *appsv1.StatefulSet) { s.Spec.MinReadySeconds = 5 }
	ahead := func(p *corev1.Pod) {
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Subresource: "resize", Time: ptr.To(metav1.NewTime(start.Add(9 * time.Hour)))}}
	}
	slow := func(s *appsv1.StatefulSet) { s.Spec.Replicas, s.Spec.MinReadySeconds = ptr.To(int32(1)), 300 }
	one := together(created(user, set("1")), created(statefulSet, webPod("web-0", "1")), resized(user, webPod("web-0", "3")))
	restarting := func(d *appsv1.Deployment) {
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, "inplace-rollout.io/resource-resize-action", "Restart")
	}
	surging := func(d *appsv1.Deployment) {
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: ptr.To(intstr.FromInt32(0)), MaxSurge: ptr.To(intstr.FromInt32(1))}
	}
	released := func(d *appsv1.Deployment) { d.Annotations = nil }
	canary := func(d *appsv1.Deployment) { d.Annotations["inplace-rollout.io/canary"] = "1" }
	checkAll(t, []promised{
		{"a pod is restarted by LiveResize", history{edited(live), restarts}, "restart pods/web-1"},
		{"it would be, in a dry run", history{edited(live), dryRun}, ""},
		{"its user deletes it", history{edited(live), deleted(user, "web-1")}, ""},
		{"it is scaled down by the subresource", history{edited(live), scaledBySubresource, wroteStatus(ours, set("2", live, scaled)), restarts}, ""},
		{"it is scaled down", history{edited(live), wrote(user, set("2", live, scaled)), restarts}, ""},
		{"the image has changed, too", history{edited(live), wrote(user, set("2", live, image2)), restarts}, ""},
		{"its user has let go", history{edited(live), wrote(user, set("2", live)), restarts}, ""},
		{"it was not held, because no controller was there", history{edited(), wrote(user, set("3", notHeld)), restarts}, ""},
		{"it was not held, and should have been", history{
			edited(live), wrote(user, set("3", live, notHeld, annotated("inplace-rollout.io/in-force", "LiveResize;"))), restarts,
		}, "held statefulsets/web"},
		{"we have let go", history{edited(live), wrote(ours, set("2", live)), restarts}, "restart pods/web-1"},
		{"LiveResizePreferred, and nothing is in the way", history{edited(), restarts}, "restart pods/web-1"},
		{"LiveResizePreferred, and the kubelet cannot", history{edited(), reported(webPod("web-1", "2", infeasible)), restarts}, ""},
		{"LiveResizePreferred, and the API server refuses", history{edited(), refused("web-1"), restarts}, ""},
		{"an edit back, and the edit has added a limit", history{
			edited(), asked(webPod("web-1", "2", limited)), wrote(user, set("1", annotated(hold, "0"))), deleted(ours, "web-1"),
		}, ""},
		{"an edit back, and the edit has added a limit of the pod", history{
			edited(), asked(webPod("web-1", "2", limitedPod)), wrote(user, set("1", annotated(hold, "0"))), deleted(ours, "web-1"),
		}, ""},
		{"an edit back, and somebody else has added a limit", history{
			edited(), resized(user, webPod("web-1", "1", limited)), asked(webPod("web-1", "2", limited)),
			wrote(user, set("1", annotated(hold, "0"))), deleted(ours, "web-1"),
		}, "restart pods/web-1"},
		{"OnDelete with the action Restart", history{edited(restart, onDelete), deleted(ours, "web-1")}, "restart pods/web-1"},
		{"one goes while another is down", history{edited(restart), reported(webPod("web-0", "1", unready)), restarts}, "availability statefulsets/web"},
		{"one goes while all are there", history{edited(restart), restarts}, ""},
		{"the lower ordinal is asked first for less, as long as another pod is missing", history{
			edited(three), resized(user, webPod("web-0", "3")), asked(webPod("web-0", "2")),
		}, ""},
		{"the lower ordinal is asked first", history{edited(), asked(webPod("web-0", "2"))}, "order pods/web-0"},
		{"it was resized before, by a clock that is ahead, and has to prove that", history{edited(patient), reported(webPod("web-0", "1", ahead)), after(time.Hour), asked(webPod("web-0", "2"))}, ""},
		{"it has nothing to prove", history{edited(), reported(webPod("web-0", "1", ahead)), after(time.Hour), asked(webPod("web-0", "2"))}, "order pods/web-0"},
		{"the lower ordinal is asked first, which is not Ready: the size may be its cure", history{
			edited(), reported(webPod("web-0", "1", unready)), asked(webPod("web-0", "2", unready)),
		}, ""},
		{"the lower ordinal is asked first, which has just come back and is not known to be Ready", history{
			edited(), back("web-0"), asked(returned("web-0", "2")), after(70 * time.Millisecond),
		}, ""},
		{"the lower ordinal is asked first, which has come back and has long been Ready", history{
			edited(), back("web-0"), asked(returned("web-0", "2")), after(time.Minute),
		}, "order pods/web-0"},
		{"the lower ordinal is asked alone, as a LimitRange refuses the higher one its size", history{edited(), limit, asked(webPod("web-0", "2"))}, ""},
		{"likewise, when the LimitRange has gone", history{edited(), limit, unlimit, other, asked(webPod("web-0", "2"))}, "order pods/web-0"},
		{"the higher ordinal is asked first", history{edited(), first, asked(webPod("web-0", "2"))}, ""},
		{"Complete, and a pod is of the old size", history{edited(), says(complete)}, "complete statefulsets/web"},
		{"Complete, and the pods have the size and the label", history{edited(), hasSize("web-1"), hasSize("web-0"), says(complete)}, ""},
		{"Complete, and a pod has the size and not the label", history{edited(), unlabelled, says(complete)}, "complete statefulsets/web"},
		{"Complete, and a pod has the size that somebody else has given it", history{one, wroteStatus(ours, set("1", complete))}, ""},
		{"Complete, and a pod has another size, and was asked since somebody else has given it one", history{
			one, asked(webPod("web-0", "2")), wroteStatus(ours, set("1", complete)),
		}, "complete statefulsets/web"},
		{"Complete, and a pod has kept of an edit that was taken back what a new one was born with", history{
			edited(), first, logged(user, "update", set("1"), ""), created(statefulSet, webPod("web-2", "2")), wroteStatus(ours, set("1", complete)),
		}, ""},
		{"Complete, and the write of the last label was answered with a fault", history{
			edited(), unlabelled, wrote(ours, pod("web-1", "2", "web-2", "set", "StatefulSet")), answered(ours, "patch", 504), says(complete),
		}, ""},
		{"Complete, and a pod is on its way whose deletion was answered with a fault", history{
			edited(), hasSize("web-1"), answered(user, "delete", 504), wrote(user, webPod("web-0", "1", leaving)), says(complete),
		}, ""},
		{"Complete, and a pod is gone whose deletion the log does not show", history{
			edited(), hasSize("web-1"), answered(user, "delete", 404), says(complete),
		}, ""},
		{"Complete, and a pod of another size was rejected by its kubelet", history{
			edited(), hasSize("web-1"), reported(webPod("web-0", "1", failed)), says(complete),
		}, ""},
		{"what is not opted in is written", history{
			edited(optedOut), wrote(ours, pod("web-1", "1", "web-2", "set", "StatefulSet")),
		}, "opted in pods/web-1"},
		{"the condition of what was opted out goes", history{
			edited(), wrote(user, set("2", optedOut, complete)), wroteStatus(ours, set("2", optedOut)), after(time.Hour),
		}, ""},
		{"what was opted out gets a condition", history{
			edited(), wrote(user, set("2", optedOut)), wroteStatus(ours, set("2", optedOut, incomplete)), after(time.Hour),
		}, "opted in statefulsets/web"},
		{"a condition of what never was opted in goes", history{edited(optedOut), wroteStatus(ours, set("2", optedOut))}, "opted in statefulsets/web"},
		{"a bare pod is deleted", history{created(user, pod("bare", "1", "", "", "")), deleted(ours, "bare")}, "opted in pods/bare"},
		{"the image is changed by us", history{edited(), wrote(ours, set("2", image2))}, "fence statefulsets/web"},
		{"a Deployment's pod is deleted past the budgets", history{editedDeployment(), refused("web-a-1"), deleted(ours, "web-a-1")}, "fence pods/web-a-1"},
		{"a Deployment's pod is deleted that is not Ready", history{
			editedDeployment(), refused("web-a-1"), reported(setPod("web-a-1", "1", unready)), deleted(ours, "web-a-1"),
		}, ""},
		{"a Deployment's pod is evicted", history{editedDeployment(), refused("web-a-1"), evicted("web-a-1")}, ""},
		{"a Deployment's pod is evicted for a removed limit, after its ReplicaSet has taken the template over", history{unlimited("web-a-1")}, ""},
		{"so is one that may be of it, or has the limit from admission", history{unlimited("web-a-2", "web-a-2")}, ""},
		{"so is one that was made of it, and has the limit from admission", history{unlimited("web-a-1"), created(replicaSet, setPod("web-a-2", "1", limited)), evicted("web-a-2")}, "restart pods/web-a-2"},
		{"a Deployment's pod is evicted, and the strategy is Recreate", history{
			editedDeployment(recreate), refused("web-a-1"), evicted("web-a-1"),
		}, "apart pods/web-a-1"},
		{"a Deployment's pod is evicted, and the strategy is Recreate since the edit", history{
			editedDeployment(switched), refused("web-a-1"), evicted("web-a-1"),
		}, ""},
		{"so are two, and one may be down", history{
			editedDeployment(switched), refused("web-a-1"), refused("web-a-0"), evicted("web-a-1"), evicted("web-a-0"),
		}, "availability deployments/web"},
		{"we let go, and the strategy is Recreate since the edit", history{
			editedDeployment(switched), wrote(ours, deployment("2", recreate, released)),
		}, "availability deployments/web"},
		{"a Deployment's pods go together, and the strategy is Recreate", history{
			editedDeployment(recreate), refused("web-a-1"), wrote(replicaSet, set1("web-a", "1", 2)), deleted(replicaSet, "web-a-1"),
			deleted(replicaSet, "web-a-0"),
		}, ""},
		{"a Deployment's pod goes for the edit before, which it was let go for, and the strategy is Recreate", history{
			editedDeployment(recreate), wrote(ours, deployment("2", recreate, released)), wrote(user, deployment("3", recreate, released)),
			wrote(replicaSet, set1("web-a", "1", 0)), deleted(replicaSet, "web-a-1"),
		}, ""},
		{"it has its size by then", history{
			editedDeployment(recreate), asked(setPod("web-a-1", "2")), wrote(ours, set1("web-a", "2", 2)), wrote(ours, deployment("2", recreate, released)),
			wrote(user, deployment("3", recreate, released)), wrote(replicaSet, set1("web-a", "2", 0)), deleted(replicaSet, "web-a-1"),
		}, "restart pods/web-a-1"},
		{"the Deployment controller rolls what is held", history{
			editedDeployment(), created(replicaSet, set1("web-b", "2", 1)), wrote(replicaSet, set1("web-a", "1", 1)), deleted(replicaSet, "web-a-1"),
		}, "restart pods/web-a-1"},
		{"a pod goes because fewer were wanted when its ReplicaSet was scaled", history{
			deployed(deployment("1"), set1("web-a", "1", 2)), wrote(user, deployment("1", fewer)), wrote(replicaSet, set1("web-a", "1", 1)),
			wrote(user, deployment("2")), deleted(replicaSet, "web-a-1"),
		}, ""},
		{"a pod goes while another is away, which the status counts that its ReplicaSet was scaled by", awayBefore(atOnce(1)), ""},
		{"a pod goes while another is away, which the status does not count", awayBefore(), "availability deployments/web"},
		{"a pod goes that came of the older size when the hold had ended", history{
			editedDeployment(), wrote(ours, deployment("2", released)), created(replicaSet, setPod("web-a-2", "1")),
			wrote(replicaSet, set1("web-a", "1", 0)), deleted(replicaSet, "web-a-2"),
		}, ""},
		{"a new Deployment adopts pods of another size", history{
			created(replicaSet, setPod("web-a-0", "1")), created(user, deployment("2")),
			wrote("system:serviceaccount:kube-system:deployment-controller", set1("web-a", "1", 1)), deleted(replicaSet, "web-a-0"),
		}, ""},
		{"a ReplicaSet is scaled by us", history{editedDeployment(), wrote(ours, set1("web-a", "2", 3))}, "fence replicasets/web-a"},
		{"a ReplicaSet gets the Deployment's size", history{editedDeployment(), wrote(ours, set1("web-a", "2", 2))}, ""},
		{"a ReplicaSet gets its former size back", history{
			editedDeployment(), wrote(ours, set1("web-a", "2", 2)), wrote(ours, set1("web-a", "1", 2)),
		}, "fence replicasets/web-a"},
		{"so does one of a guarded rollout", history{editedDeployment(canary), wrote(ours, set1("web-a", "2", 2)), wrote(ours, set1("web-a", "1", 2))}, ""},
		{"a ReplicaSet gets a size of its own", history{editedDeployment(), wrote(ours, set1("web-a", "3", 2))}, "fence replicasets/web-a"},
		{"a pod is detached, and nothing is in the way", history{editedDeployment(), wrote(ours, detached("web-a-1"))}, "restart pods/web-a-1"},
		{"a pod is detached that cannot be resized, and evicted before another one has come", history{
			editedDeployment(surging), refused("web-a-1"), wrote(ours, detached("web-a-1")), evicted("web-a-1"),
		}, "availability deployments/web"},
		{"a pod is detached, and goes though its edit was taken back", history{
			editedDeployment(surging, restarting), wrote(ours, detached("web-a-1")), wrote(user, deployment("1", surging, restarting)),
			created(replicaSet, setPod("web-a-2", "1")), atOnce(2), evicted("web-a-1"),
		}, "once pods/web-a-1"},
		{"so does the one that came in its place", history{
			editedDeployment(surging, restarting), wrote(ours, detached("web-a-1")), wrote(user, deployment("1", surging)),
			created(replicaSet, setPod("web-a-2", "2")), evicted("web-a-2"), evicted("web-a-1"),
		}, "once pods/web-a-2"},
		{"that one goes alone", history{
			editedDeployment(surging, restarting), wrote(ours, detached("web-a-1")), wrote(user, deployment("1", surging)),
			created(replicaSet, setPod("web-a-2", "2")), evicted("web-a-2"),
		}, ""},
		{"a pod loses its owner", history{
			editedDeployment(), refused("web-a-1"), wrote(ours, detached("web-a-1", func(p *corev1.Pod) { p.OwnerReferences = nil })),
		}, "fence pods/web-a-1"},
		{"a Deployment's pod is evicted for a removed limit that its successor has, too", history{
			unlimited("web-a-1"), created(replicaSet, setPod("web-a-2", "1", limited)), evicted("web-a-0"),
		}, "once pods/web-a-0"},
		{"Complete, and a pod has had its size for less than minReadySeconds", history{
			created(user, set("1", slow)), created(statefulSet, webPod("web-0", "1")), wrote(user, set("2", slow, annotated(hold, "0"))),
			asked(webPod("web-0", "2")), reported(webPod("web-0", "2")), wrote(ours, pod("web-0", "2", "web-2", "set", "StatefulSet")), says(slow, complete),
		}, "complete statefulsets/web"},
		{"no node has room for what comes", history{
			editedDeployment(), refused("web-a-1"), wrote(ours, set1("web-a", "2", 2)), evicted("web-a-1"),
			unschedulable(replicaSet, setPod("web-a-2", "2", func(p *corev1.Pod) { p.Spec.NodeName = "" })), atOnce(2),
		}, "room pods/web-a-2"},
	})
}

func checkAll(t *testing.T, tests []promised) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := &trail{t: t}
			together(tt.do...)(l)
			violations := must.Get(invariant.Check(l.events, invariant.Options{
				Controllers: []string{ours}, Operators: "operator:", DeferredTimeout: 5 * time.Minute, ErrorTimeout: 10 * time.Minute,
				Gaps: l.gaps, Doubts: l.doubts,
			}))(t)
			got := build.Each(violations, func(v invariant.Violation) string { return v.Invariant + " " + v.Object })
			if len(got) == 0 && tt.want == "" {
				return
			}
			if len(got) == 0 || got[0] != tt.want || tt.want == "" {
				t.Errorf("violations %q, want %q; the first of %v", got, tt.want, violations)
			}
		})
	}
}
