package daemonset

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

// classes gives the nodes with the label size=large this size of the container app.
func classes(size string) change {
	return ofSet(func(set *appsv1.DaemonSet) {
		set.Annotations[api.NodeResourcesAnnotation] = `[{"nodeSelector": {"size": "large"}, "containers": {"app": {` + size + `}}}]`
	})
}

func largeNode(i int) change {
	return node(i, func(node *corev1.Node) { node.Labels = map[string]string{"size": "large"} })
}

// atMost is a LimitRange for the cpu of each container.
func atMost(cpu string) change {
	return func(o *observation) {
		o.Places = capacity.NewPlaces(nodes(o), false, capacity.Limits{Ranges: []corev1.LimitRange{{ObjectMeta: metav1.ObjectMeta{Name: "cpu"}, Spec: corev1.LimitRangeSpec{
			Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}},
		}}}})
	}
}

// refusedFinally has the API server have refused these changes of the second pod.
func refusedFinally(changes string) change {
	return func(o *observation) {
		o.Notes.Note(o.pods[1].UID).Size = &judge.Refused{Refusal: judge.Refusal{
			Of: o.newest.name + " " + changes, Reason: "node too small", Kind: judge.ReasonInfeasible, Final: true, Until: o.Now.Add(time.Second),
		}}
	}
}

// said has the condition say Complete of the newest template and more, or False with the same.
func said(status corev1.ConditionStatus, more string) change {
	return ofSet(func(set *appsv1.DaemonSet) {
		set.Status.Conditions = []appsv1.DaemonSetCondition{{Type: api.ConditionComplete, Status: status}}
		c := rollout.Over(rollout.TemplateGeneration("2"), 0)
		c.Details = more
		set.Annotations[api.SaidOfAnnotation] = c.Of().String()
	})
}

// admissionLowers has a template whose pods would be Guaranteed, if admission had not lowered their requests at their birth, as
// OpenShift's ClusterResourceOverride does.
func admissionLowers(o *observation) {
	size := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	guaranteed := *o.newest.template
	guaranteed.PodTemplateSpec = guaranteed.DeepCopy()
	guaranteed.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: size("2m", "2Mi"), Limits: size("2m", "2Mi")}
	o.newest.template = &guaranteed
	for _, pod := range o.pods {
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: size("1m", "1Mi"), Limits: size("2m", "2Mi")}
		build.Actuate(pod)
	}
}

func TestClasses(t *testing.T) {
	cpu3, memory3, large := classes(`"requests": {"cpu": "3m"}`), classes(`"requests": {"memory": "3Mi"}`), largeNode(1)
	const (
		all  = "all pods are of template generation 2"
		none = "; 0 of 1 have the size of their node's class"
		one  = "; 1 of them has the size of its node's class"
		back = "; 1 of them has yet to go back to the template's size"
		void = "it keeps the template's size, because it cannot get the size of class size=large in place on node node-1: "
	)
	isSaid, cpuUpOnly := said(corev1.ConditionTrue, none), inForce(";cpu:decrease=RestartOnly")
	for _, tt := range []struct {
		name     string
		places   string
		changes  []change
		want     string
		says     string // the condition's message; empty if nothing
		complete bool
	}{
		{"it is said before it is done", "updated|updated", []change{notHeld, cpu3, large, said(corev1.ConditionTrue, "")}, "", all + none, true},
		{"a pod gets the size of its node's class", "updated|updated", []change{notHeld, cpu3, large, isSaid}, "resize web-1", all + none, true},
		{"where admission lowers requests, it gets the limits", "updated|updated", []change{notHeld, admissionLowers, classes(`"requests": {"cpu": "4m", "memory": "4Mi"}, "limits": {"cpu": "4m", "memory": "4Mi"}`), large, isSaid}, "resize web-1", all + none, true},
		{"before it is Ready", "updated, not ready|updated, not ready", []change{notHeld, cpu3, large, largeNode(0), isSaid}, "resize web-0 web-1", all + "; 0 of 2 have the size of their node's class", true},
		{"Ready ones wait for those that are not available", "updated, not ready|updated", []change{notHeld, cpu3, large, isSaid}, "", all + none, true},
		{"it has the size", "updated|left with another cpu", []change{notHeld, cpu3, large, isSaid}, "", all + one, true},
		{"no node is of the class", "updated|updated", []change{notHeld, cpu3, isSaid}, "", all, true},
		{"its node is not of the class any more", "updated|left with another cpu", []change{notHeld, cpu3, isSaid}, "resize web-1", all + back, true},
		{"the annotation is gone", "updated|left with another cpu", []change{notHeld, isSaid}, "resize web-1", all + back, true},
		{"what cannot be taken back restarts no pod", "updated|left with a limit", []change{notHeld, isSaid}, "", all + back + "; web-1: app: the memory limit is removed; left as it is", false},
		{"nor does it when that has been said", "updated|left with a limit", []change{notHeld, said(corev1.ConditionFalse, back+"; web-1: app: …")}, "",
			all + back + "; web-1: app: the memory limit is removed; left as it is", false},
		{"not Complete before all have their size", "updated|updated", []change{notHeld, cpu3, large}, "resize web-1", "1 of 2 pods resized; web-1: resizing: app: cpu request 2m→3m", false},

		{"RestartOnly", "updated|updated", []change{notHeld, cpu3, large, isSaid, inForce(";cpu=RestartOnly")}, "", all + none + "; web-1: " + void + "cpu of app: RestartOnly (annotation cpu)", false},
		{"the action Restart", "updated|updated", []change{notHeld, cpu3, large, isSaid, inForce("Restart;")}, "", all + none + "; web-1: " + void + "the action is Restart", false},
		{"malformed", "updated|updated", []change{notHeld, classes(`"requests": {"disk": 1}`), large, isSaid}, "",
			`annotation inplace-rollout.io/node-resources: entry 1: container "app": requests: "disk": only cpu and memory can be resized`, false},
		{"no such container: the pod goes back to the template's size", "updated|left with another cpu", []change{notHeld, large, isSaid, ofSet(func(set *appsv1.DaemonSet) {
			set.Annotations[api.NodeResourcesAnnotation] = `[{"nodeSelector": {"size": "large"}, "containers": {"db": {"requests": {"cpu": "3m"}}}}]`
		})}, "resize web-1", all + none, true},
		{"infeasible", "updated|refused another cpu", []change{notHeld, cpu3, large, isSaid}, "", all + none + "; web-1: infeasible on node node-1: too big; left as it is", false},
		{"infeasible since an edit", "updated|refused another cpu", []change{notHeld, cpu3, large}, "", all + none + "; web-1: infeasible on node node-1: too big; left as it is", false},
		{"refused, with the size of another class: it goes back to the template's size first", "updated|left with another cpu",
			[]change{notHeld, classes(`"requests": {"cpu": "9m"}`), large, isSaid, refusedFinally("app: cpu request 3m→9m")}, "resize web-1", all + none, true},
		{"refused, with the template's size", "updated|updated", []change{notHeld, classes(`"requests": {"cpu": "9m"}`), large, isSaid, refusedFinally("app: cpu request 2m→9m")}, "",
			all + none + "; web-1: infeasible on node node-1: node too small; left as it is", false},
		{"a LimitRange is against it, which says nothing of a new pod", "updated|updated", []change{notHeld, cpu3, large, isSaid, atMost("2m")}, "",
			all + none + "; web-1: app: cpu per Container must have a limit, at most 2m (LimitRange cpu); left as it is", false},
		{"infeasible, OnDelete", "updated|refused another cpu", []change{userWaits, cpu3, large, isSaid}, "", all + none + "; web-1: infeasible on node node-1: too big; left as it is", false},

		{"the DaemonSet controller's rollout goes on", "live|updated", []change{notHeld, cpu3, large}, "resize web-1", "left to the DaemonSet controller, template generation 2: web-0 is of an older revision", false},
		{"held: a class keeps no hold", "updated|updated", []change{cpu3, large}, "resize web-1, release", "", false},
		{"held: nor does one that cannot be had", "updated|refused another cpu", []change{cpu3, large}, "release", "", false},
		{"held: nor does it keep others from a restart", "other image|refused another cpu", []change{cpu3, large}, "release, hand over: the template changed in spec.containers[app].image", "", false},
		{"held: an edit of what the class has otherwise", "live|live, left with another cpu", []change{cpu3, large}, "mark web-1, resize web-0", "", false},
		{"held: it only marks a pod that has its class's size", "updated|live, left with another cpu", []change{cpu3, large}, "mark web-1", "", false},
		{"held: also where it has that from its birth", "updated|live", []change{classes(`"requests": {"cpu": "1m"}`), large}, "mark web-1", "", false},
		{"held: without the class, that pod is resized", "updated|live, left with another cpu", []change{cpu3}, "resize web-1", "", false},
		{"held: the pod keeps the size of its former class, if nothing but going back is RestartOnly", "updated|live, left with another cpu", []change{cpuUpOnly}, "mark web-1", "", false},
		{"held: with that size, the edit is live", "live|live, left with another cpu", []change{cpuUpOnly}, "mark web-1, resize web-0", "", false},
		{"held: going back is live", "updated|live, left with another cpu", []change{inForce(";cpu:increase=LiveResizeable")}, "resize web-1", "", false},
		{"held: the edit itself is RestartOnly", "updated|live, left with another cpu", []change{inForce(";cpu=RestartOnly")}, "release, hand over: cpu of app: RestartOnly (annotation cpu)", "", false},
		{"held: what an edit that was given up has left is no class's", "updated|live, left with another cpu", []change{cpuUpOnly, givenUp}, "release, hand over: cpu of app: RestartOnly (annotation cpu:decrease)", "", false},
		{"held: nor is it kept where the class has another", "updated|live, left with another cpu", []change{classes(`"requests": {"cpu": "4m"}`), large, givenUp}, "resize web-1", "", false},
		{"held: a former class keeps no hold", "updated|left with another cpu", []change{cpuUpOnly}, "release", "", false},
		{"held: an edit that was given up does", "live|left with another cpu", []change{cpuUpOnly, givenUp}, "resize web-0", "", false},
		{"held: so it does on a node with a class", "updated|left with another cpu", []change{givenUp, memory3, large}, "resize web-1", "", false},
		{"held: where the class says the same, it is the class's", "updated|left with another cpu", []change{givenUp, cpu3, large}, "release", "", false},
		{"held: what only a restart takes back is taken back on a node with a class", "updated|left with a limit", []change{memory3, large}, "delete web-1", "", false},
		{"going back is RestartOnly", "updated|left with another cpu", []change{notHeld, cpuUpOnly, isSaid}, "", all + back + "; web-1: cpu of app: RestartOnly (annotation cpu:decrease); left as it is", false},
		{"held: a size that the kubelet has refused is given up, and no pod for it", "updated|live, refused another cpu", []change{cpu3, large}, "resize web-1", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := planned(observed(t, tt.places, tt.changes...))
			simulated.Does(t, p, err, does(p), tt.want)
			if tt.says != "" {
				simulated.Says(t, p, tt.says, tt.complete)
			}
			const advice = ". Choose another size for the class, in the annotation inplace-rollout.io/node-resources"
			if told := p.Condition.Told(); strings.Contains(tt.says, void) && !strings.HasSuffix(told, advice) { // no pod is restarted for it, so nobody is told to allow that
				t.Errorf("what to do next is missing: %s", told)
			}
			if updated := !strings.Contains(tt.places, "live") && !strings.Contains(tt.places, "other") && !strings.Contains(tt.want, "delete"); updated && p.Started != "" {
				t.Errorf("it is said to be a rollout: %s", p.Started)
			}
		})
	}
}
