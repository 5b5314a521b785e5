package deployment

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubectl/pkg/util/podutils"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

// defaults are those of the flags.
var defaults = simulated.Defaults

// scene is what a plan is to be made from, before it is read. The Deployment's template is newer.
type scene struct {
	d    *appsv1.Deployment
	sets []*appsv1.ReplicaSet
	pods []*corev1.Pod
	node *corev1.Node
}

type change = func(*scene)

var versionNames = map[string]version{"older": older, "newer": newer, "other": other, "limited": limited, "image": otherImage}

// pod makes the pod of one of the situations that a pod of these tests can be in.
func pod(t *testing.T, name, situation string) *corev1.Pod {
	t.Helper()
	situation, unready := strings.CutSuffix(situation, ", not ready")
	sent := func(pod *corev1.Pod) {
		build.WithSize(templates[newer])(pod)
		build.ResizedAt(build.Start)(pod)
	}
	applied := func(pod *corev1.Pod) {
		sent(pod)
		build.Actuate(pod)
	}
	pending := func(reason string) func(*corev1.Pod) {
		return build.Condition(corev1.PodResizePending, reason, "too big")
	}
	changes, known := map[string][]func(*corev1.Pod){
		"resizing":             {sent},
		"resized":              {applied},
		"infeasible":           {sent, pending(corev1.PodReasonInfeasible)},
		"deferred":             {sent, pending(corev1.PodReasonDeferred)},
		"of other":             {build.Resized(templates[other]), build.Ours(build.CPURequest)},
		"resized by others":    {build.Resized(templates[other])},
		"given a limit":        {build.Resized(templates[version{Image: 1, CPU: 2, Memory: 1}])},
		"of admission":         {build.Resized(templates[version{Image: 1, CPU: 3, Memory: 1}])},
		"left with a limit":    {build.Resized(templates[version{Image: 1, CPU: 2, Memory: 1}]), build.Ours(build.MemoryLimit)},
		"boosted":              {applied, boosted},
		"terminating":          {build.Terminating},
		"failed":               {func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }},
		"not yet scheduled":    {func(pod *corev1.Pod) { pod.Spec.NodeName = "" }, build.NotReady},
		"with a deletion cost": {func(pod *corev1.Pod) { pod.Annotations = map[string]string{corev1.PodDeletionCost: "-5"} }},
	}[situation]
	from := older
	if !known {
		if from, known = versionNames[situation]; !known {
			t.Fatalf("no such situation: %s", situation)
		}
	}
	if unready {
		changes = append(changes, build.NotReady)
	}
	return build.Pod(name, templates[from], changes...)
}

// boosted marks the pod as one in which a startup booster is to put back what it was born to have.
func boosted(pod *corev1.Pod) {
	pod.Annotations = map[string]string{"vpaCpuStartupBoost/app": `{"requests":{"cpu":"1m"},"limits":{}}`}
}

// observed is a plan's observation of sets, each `NAME VERSION [MARK…]: POD|POD…`,
// the oldest first; NAME is also the pod-template-hash. Marks are adopted, was-VERSION
// (adopted, and it had that), closed (adopted, and what has to be restarted is known),
// restart-POD (it has to be) and acknowledged, or a number of replicas other than that of the pods. The
// set named detached holds the pods that were taken out of the first one.
func observed(t *testing.T, sets string, changes ...change) observation {
	t.Helper()
	s := &scene{d: webDeployment(newer, 0), node: simulated.LargeNode()}
	s.d.Annotations[api.HoldAnnotation], s.d.Annotations["deployment.kubernetes.io/revision"] = "false", "2"
	total := 0
	for i, described := range strings.Split(sets, "; ") {
		head, list, _ := strings.Cut(described, ":")
		words := strings.Fields(head)
		var situations []string
		if list = strings.TrimSpace(list); list != "" {
			situations = strings.Split(list, "|")
		}
		if words[0] == "detached" {
			for j, situation := range situations {
				p := pod(t, fmt.Sprintf("detached-%d", j), situation)
				build.OwnedBy(s.d, "Deployment")(p)
				p.Labels[api.DetachedLabel] = string(s.sets[0].UID)
				s.pods = append(s.pods, p)
			}
			continue
		}
		rs := webSet(s.d, words[0], versionNames[words[1]], len(situations))
		rs.CreationTimestamp = metav1.NewTime(build.Start.Add(time.Duration(i) * time.Second))
		rs.Annotations["deployment.kubernetes.io/revision"] = fmt.Sprint(i + 1)
		for j, situation := range situations {
			p := pod(t, fmt.Sprintf("%s-%d", words[0], j), situation)
			build.OwnedBy(rs, "ReplicaSet")(p)
			s.pods = append(s.pods, p)
			if !judge.Gone(p) {
				rs.Status.Replicas++
			}
		}
		rs.Status.ObservedGeneration = rs.Generation
		marked, m := false, map[string]any{}
		var restarts []string
		for _, mark := range words[2:] {
			switch does, what, _ := strings.Cut(mark, "-"); does {
			case "adopted":
				marked = true
			case "closed":
				marked, m["closed"] = true, true
			case "restart":
				restarts = append(restarts, what)
				m["restarts"] = restarts
			case "was":
				marked = true
				m["annotations"] = map[string]string{"deployment.kubernetes.io/revision": fmt.Sprint(i + 1)}
				m["template"] = templates[versionNames[what]]
				rs.Annotations["deployment.kubernetes.io/revision"] = fmt.Sprint(i + 2)
			case "acknowledged":
				rs.Annotations[api.HoldAnnotation] = "false"
			default:
				n := int32(0)
				if _, err := fmt.Sscan(mark, &n); err != nil {
					t.Fatalf("no such mark: %s", mark)
				}
				rs.Spec.Replicas = &n
			}
		}
		if marked {
			encoded := must.Get(json.Marshal(m))(t)
			rs.Annotations[api.AdoptedAnnotation] = string(encoded)
		}
		total += int(*rs.Spec.Replicas)
		s.sets = append(s.sets, rs)
	}
	s.d.Spec.Replicas = ptr.To(int32(total))
	for _, f := range changes {
		f(s)
	}
	return s.observation(t)
}

func (s *scene) observation(t *testing.T) observation {
	t.Helper()
	o := observation{
		Facts: rollout.Facts{Places: capacity.NewPlaces([]*corev1.Node{s.node}, false, capacity.Limits{}), Defaults: defaults, Now: build.Start.Add(10 * time.Second)}, pods: s.pods,
	}
	o.deployment = read(t, decodeDeployment, build.Stored(t, s.d))
	for _, rs := range s.sets {
		o.sets = append(o.sets, read(t, decodeReplicaSet, build.Stored(t, rs)))
	}
	return o
}

// read decodes what is stored.
func read[T any](t *testing.T, decode func(any) (*T, error), stored any) *T {
	t.Helper()
	return must.Get(decode(stored))(t)
}

func bounds(surge, unavailable int32) change {
	return func(s *scene) {
		s.d.Spec.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt32(surge))
		s.d.Spec.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(unavailable))
	}
}

// nothingRuns has no container of any pod run.
func nothingRuns(s *scene) {
	for _, pod := range s.pods {
		for i := range pod.Status.ContainerStatuses {
			pod.Status.ContainerStatuses[i].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
		}
	}
}

// unreported has no kubelet say what the first pod has.
func unreported(s *scene) { s.pods[0].Status.ContainerStatuses = nil }

func replicas(n int32) change { return func(s *scene) { s.d.Spec.Replicas = &n } }

func recreate(s *scene) {
	s.d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
}

// switched has others have changed the strategy to Recreate since the edit, when maxSurge and maxUnavailable were these.
func switched(inForce string) change {
	return func(s *scene) {
		recreate(s)
		s.d.Annotations[api.InForceStrategyAnnotation] = inForce
	}
}

func historyLimit(n int32) change { return func(s *scene) { s.d.Spec.RevisionHistoryLimit = &n } }

func inForce(value string) change {
	return func(s *scene) { s.d.Annotations[api.InForceAnnotation] = value }
}

// to gives the Deployment another template.
func to(v version) change {
	return func(s *scene) { s.d.Spec.Template = *templates[v].DeepCopy() }
}

// restartsContainer has the kubelet restart the container for a new cpu request.
func restartsContainer(s *scene) {
	specs := []*corev1.PodSpec{s.d.Spec.Template.Spec.DeepCopy()}
	s.d.Spec.Template.Spec = *specs[0]
	specs = append(specs, build.Each(s.sets, func(rs *appsv1.ReplicaSet) *corev1.PodSpec { return &rs.Spec.Template.Spec })...)
	specs = append(specs, build.Each(s.pods, func(pod *corev1.Pod) *corev1.PodSpec { return &pod.Spec })...)
	for _, spec := range specs {
		spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}
	}
	s.d.Spec.Template.Spec = *specs[0]
}

func minReady(s *scene) { s.d.Spec.MinReadySeconds = 20 }

// lagging has the ReplicaSet controller not have seen the last write of the first set.
func lagging(s *scene) { s.sets[0].Generation++ }

// losing has the set of that number still say that it has pods.
func losing(i int) change { return func(s *scene) { s.sets[i].Status.Replicas = 1 } }

// failing has the ReplicaSet controller not get the first set's pods made.
func failing(s *scene) {
	s.sets[0].Status.Conditions = []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Message: "exceeded quota: compute"}}
}

func deleted(i int) change {
	return func(s *scene) { s.sets[i].DeletionTimestamp = ptr.To(metav1.NewTime(build.Start)) }
}

// does names what a plan does.
func does(p rollout.Plan) string {
	return simulated.InWords(p, func(write rollout.Write, say func(string, ...string)) {
		switch w := write.(type) {
		case detach:
			say("detach", w.restart.Member.Name)
		case evict:
			verb := "evict"
			if w.down {
				verb = "delete"
			}
			say(verb, w.restart.Member.Name)
		case reattach:
			for _, pod := range w.came {
				say("evict", pod.Name)
			}
			for _, pod := range w.pods {
				say("give back", pod.Name)
			}
		case adopt:
			say("adopt", w.set.Name)
		case closeAdoption:
			say("mark", append([]string{w.set.Name}, w.restarts...)...)
		case endAdoption:
			say("unmark", w.set.Name)
		case revert:
			to := simulated.VersionOf(&w.template.Spec).String()
			for name, v := range versionNames {
				if v.String() == to {
					to = name
				}
			}
			say("revert "+w.set.Name+" to", to)
		case saveHistory:
			if w.reuse != nil {
				say("keep "+w.set.Name+" in", w.reuse.Name)
			} else {
				say("keep", w.set.Name)
			}
		case removeSet:
			say("remove", w.set.Name)
		case rollout.ShowGeneration:
			say("show the generation")
		}
	})
}

// planned is what the plan of o does.
func planned(o observation) (rollout.Plan, error) {
	return simulated.Planned(o.Facts, o, o.deployment.Annotations)
}

func TestNextStep(t *testing.T) {
	type changes = []change
	tests := []struct {
		name    string
		sets    string
		changes changes
		want    string
		waits   string // for what the condition's message says
		after   time.Duration
	}{
		{name: "live: one is tried first", sets: "a older: older|older|older|older", changes: changes{bounds(2, 1)}, want: "resize a-0"},
		{name: "live: as many at once as surge and unavailable together", sets: "a older: resized|resized|older|older|older|older", changes: changes{bounds(2, 1)}, want: "resize a-2 a-3 a-4"},
		{name: "live: none while some of them are about to be deleted, and nobody knows which", sets: "a older 1: older|older", changes: changes{lagging}},
		{name: "live: nor while that is still to be said", sets: "a older: older|older", changes: changes{replicas(1), func(s *scene) { s.sets[0].Annotations[desiredAnnotation] = "2" }}},
		{name: "live: one where the ReplicaSet controller has looked, and they stay", sets: "a older 1: older|older", want: "resize a-0"},
		{name: "live: one at a time with maxSurge 1 and maxUnavailable 0", sets: "a older: older|older", want: "resize a-0"},
		{name: "live: what is under way comes first, wherever it is", sets: "a older: older|resizing|older|resized|resized", changes: changes{bounds(1, 1)}, want: "resize a-0"},
		{name: "live: in the order in which the ReplicaSet controller deletes", sets: "a older: older|older, not ready|with a deletion cost|not yet scheduled", changes: changes{bounds(1, 1)},
			want: "resize a-1", waits: "0 of 4 pods resized; a-3: waiting for the pod to be scheduled; a-1: resizing: app: cpu request 1m→2m"},
		{name: "live: a pod that is missing takes its place", sets: "a older 3: older|older", changes: changes{bounds(1, 1)}, want: "resize a-0"},
		{name: "live: pods that go or are over do not count", sets: "a older 4: terminating|failed|older|older|resized|resized", changes: changes{bounds(2, 2)}, want: "resize a-2 a-3"},
		{name: "live: those that take their places do", sets: "a older 4: terminating|failed|older|older", changes: changes{bounds(1, 1)}},
		{name: "live: pods of other ReplicaSets that are down count", sets: "a image: image, not ready|image; b older: older", changes: changes{bounds(1, 0)}},
		{name: "live: strategy Recreate lets all go at once, once one has the size", sets: "a older: older|older|resized", changes: changes{recreate}, want: "resize a-0 a-1"},
		{name: "live: percentages count", sets: "a older: resized|older|older|older", changes: changes{func(s *scene) {
			s.d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromString("25%")), MaxUnavailable: ptr.To(intstr.FromString("25%"))}
		}}, want: "resize a-1 a-2"},
		{name: "live: maxSurge is no room for pods that are not Ready after their resize", sets: "a older: resized|resized|resized|resized|resized, not ready|older", changes: changes{bounds(4, 0)}},

		{name: "RestartContainer: only maxUnavailable counts", sets: "a older: resized|older|older|older|older", changes: changes{restartsContainer, bounds(2, 2)}, want: "resize a-1 a-2"},
		{name: "RestartContainer: one at least where it is to be live", sets: "a older: older|older|older", changes: changes{restartsContainer, bounds(3, 0), inForce("LiveResize;")}, want: "resize a-0"},
		{name: "RestartContainer: with maxUnavailable 0 the replacement comes first", sets: "a older: older|older|older", changes: changes{restartsContainer, bounds(3, 0)},
			want: "release, hand over: its resize would restart a container, and maxUnavailable is 0"},
		{name: "RestartContainer: with maxUnavailable 0 a pod that is down is resized", sets: "a older: older|older, not ready", changes: changes{restartsContainer, bounds(1, 0)}, want: "resize a-1"},
		{name: "RestartContainer: with maxUnavailable 0 and some resized, others are replaced first", sets: "a newer closed restart-a-0: older|resized", changes: changes{restartsContainer, bounds(1, 0)}, want: "detach a-0"},
		{name: "RestartContainer: what is missing is down already", sets: "a older 4: older|older|older", changes: changes{restartsContainer, bounds(1, 2)}, want: "resize a-0"},
		{name: "RestartContainer: so that none may go", sets: "a older 4: older|older|older", changes: changes{restartsContainer, bounds(1, 1)}},

		{name: "base: the set that has the template before the newest", sets: "a newer acknowledged: newer; b older: older|older", want: "release"},
		{name: "base: otherwise the newest that differs in size only", sets: "a older: older; b other: other; c image: image", want: "resize b-0"},
		{name: "base: of two that have the template the oldest", sets: "a newer: newer; b newer acknowledged: newer", waits: "waiting for the Deployment controller to see ReplicaSet web-a"},
		{name: "base: a set without pods is none", sets: "a older: ; b image: image", want: "release, hand over: the template changed in spec.containers[app].image"},
		{name: "no base: nothing runs", sets: "a older: ", want: "release"},
		{name: "no base: the newest tells what differs", sets: "a image: image; b older: ", want: "release, hand over: the template changed in spec.containers[app].image"},
		{name: "no base: detached pods are given back first", sets: "a image: image; detached: older", want: "give back detached-0"},
		{name: "no base: a duplicate goes first", sets: "a image: image; b image: ", want: "remove web-b"},

		{name: "adoption: when all have the new size", sets: "a older: resized|resized", want: "adopt web-a"},
		{name: "adoption: whatever other sets have", sets: "a newer: ; b older: resized", want: "adopt web-b"},
		{name: "adopted: what it had goes into the history", sets: "a newer was-older: resized", want: "keep web-a"},
		{name: "adopted: at once, before pods are replaced", sets: "a newer was-older: infeasible", want: "keep web-a"},
		{name: "adopted: and also before another edit is", sets: "a other was-older: resized", want: "keep web-a"},
		{name: "adopted: once", sets: "a newer was-older: resized; b older: ", want: "unmark web-a"},
		{name: "adopted: without history there is nothing to keep", sets: "a newer was-older: resized", changes: changes{historyLimit(0)}, want: "unmark web-a"},
		{name: "adopted: nothing is kept that would be removed at once", sets: "a other was-older: resized", changes: changes{historyLimit(1)}, want: "adopt web-a"},
		{name: "adopted: it is where there is room for one more", sets: "a other was-older: resized", changes: changes{historyLimit(2)}, want: "keep web-a"},
		{name: "adopted: or where the Deployment controller takes the set for the new one", sets: "a newer was-older: resized", changes: changes{historyLimit(1)}, want: "keep web-a"},
		{name: "adopted: or where an older one goes instead", sets: "a image: ; b newer was-older: resized", changes: changes{historyLimit(1)}, want: "keep web-b"},
		{name: "adopted: one used again takes no more room", sets: "a other: ; b other was-older: resized", changes: changes{historyLimit(2)}, want: "keep web-b in web-a"},
		{name: "adopted: one that is being deleted takes none", sets: "a image: ; b newer was-older: resized", changes: changes{historyLimit(1), deleted(0)}, want: "keep web-b"},
		{name: "adopted: an idle set with the new template keeps the old one", sets: "a newer: ; b newer was-older: resized", want: "keep web-b in web-a"},
		{name: "adopted: or goes, where the old one is kept already", sets: "a newer: ; b newer was-older: resized; c older: ", want: "remove web-a"},
		{name: "adopted: or where there is no history", sets: "a newer: ; b newer was-older: resized", changes: changes{historyLimit(0)}, want: "remove web-a"},
		{name: "adopted: one that still loses its pods keeps nothing", sets: "a newer: ; b newer was-older: resized", changes: changes{losing(0)}, want: "keep web-b"},
		{name: "adopted: one that is being deleted neither", sets: "a newer: ; b newer was-older: resized", changes: changes{deleted(0)}, want: "keep web-b"},
		{name: "adopted: a mark without pods is taken away", sets: "a image: image; b older adopted: ", want: "unmark web-b"},
		{name: "adopted: when what it had is kept", sets: "a image: image; b older was-other: ", want: "keep web-b"},
		{name: "adopted: another edit gives the detached pods back", sets: "a other adopted: of other; detached: older", want: "evict a-0, give back detached-0"},
		{name: "adoption: not while pods of an even older template may be born", sets: "a older: resized", changes: changes{lagging}, waits: "a: waiting for the ReplicaSet controller to observe the template of ReplicaSet web-a"},
		{name: "adoption: not while a pod can be resized", sets: "a older: resized|older", want: "resize a-1"},
		{name: "adoption: pods that need a restart come after it", sets: "a older: resized|infeasible; b older: ", want: "adopt web-a"},
		{name: "adoption: also if they all do, as long as the edit is not to blame", sets: "a older: infeasible|infeasible; b older: ", want: "adopt web-a"},
		{name: "adoption: another set's pods are the Deployment controller's", sets: "a image: image; b older: resized; c older: ", want: "adopt web-b"},

		{name: "adopted: the ReplicaSet controller has to see it", sets: "a newer adopted: resized", changes: changes{lagging}, waits: "a: waiting for the ReplicaSet controller to observe the new template of ReplicaSet web-a"},
		{name: "adopted: a pod that was born at the old size is resized", sets: "a newer adopted: resized|older", want: "resize a-1"},
		{name: "adopted: or replaced, where the policy of what the edit has changed is RestartOnly", sets: "a newer was-older: resized|older; b older: ",
			changes: changes{inForce(";cpu=RestartOnly"), bounds(1, 1)}, want: "mark web-a a-1"},
		{name: "adopted: a further edit is asked for what it changes itself", sets: "a older was-limited: older; b limited: ",
			changes: changes{inForce(";memory=RestartOnly")}, want: "resize a-0"},
		{name: "adopted: one that was born with a limit that is no more is replaced", sets: "a newer was-limited: resized|limited; b limited: ", changes: changes{bounds(1, 1)}, want: "mark web-a a-1"},
		{name: "adopted: and what admission has made of a pod of the new template is left alone", sets: "a newer was-older: resized|of admission; b older: ", want: "unmark web-a"},
		{name: "adopted: not in a pod that had to be restarted before", sets: "a newer was-older restart-a-1: resized|of admission; b older: ", want: "resize a-1"},
		{name: "adopted: those that have to be restarted are noted before the first one is", sets: "a newer was-older restart-a-0: infeasible|of admission|newer; b older: ",
			changes: changes{bounds(1, 1)}, want: "mark web-a a-0"},
		{name: "closed: those that have to be restarted are", sets: "a newer was-older closed restart-a-0 restart-a-9: infeasible|older|newer; b older: ", changes: changes{bounds(1, 1)}, want: "evict a-0"},
		{name: "closed: so is one whose limit is no more", sets: "a newer was-limited closed restart-a-0: limited|newer; b limited: ", changes: changes{bounds(1, 1)}, want: "evict a-0"},
		{name: "closed: of several such pods one goes, which shows whether a new one has it, too", sets: "a newer was-limited closed restart-a-0 restart-a-1: limited|limited; b limited: ",
			changes: changes{bounds(0, 2)}, want: "evict a-0"},
		{name: "closed: and none as long as one is to come", sets: "a newer was-limited closed restart-a-0 restart-a-1 3: limited|limited; b limited: ",
			changes: changes{bounds(0, 2)}},
		{name: "closed: not if a new one has it, too", sets: "a newer was-limited closed restart-a-0: limited|given a limit; b limited: ", changes: changes{bounds(1, 1)}, want: "resize a-0"},
		{name: "closed: another one is not, even if it looks like one of the former template", sets: "a newer was-older closed restart-a-9: resized|older; b older: ", want: "unmark web-a"},
		{name: "closed: a restarted pod that is not back keeps it held", sets: "a newer closed restart-a-9 3: resized|resized", changes: changes{failing},
			waits: "web-a: waiting for 1 more pod: exceeded quota: compute"},
		{name: "closed: or one that is not Ready", sets: "a newer closed restart-a-9: resized|newer, not ready", waits: "a-1: waiting for the pod to become available"},
		{name: "closed: where none was restarted, no pod is waited for", sets: "a newer closed 3: resized|newer, not ready", want: "unmark web-a"},
		{name: "closed: another edit judges all pods anew", sets: "a other was-older closed restart-a-0: older|newer; b older: ", want: "resize a-0"},
		{name: "adopted: what is not Ready does not keep it from being settled", sets: "a newer adopted: resized|newer, not ready", want: "unmark web-a"},
		{name: "adopted: unless it is so since its resize", sets: "a newer adopted: resized|resized, not ready", waits: "a-1: not Ready at its new size"},
		{name: "adopted: a duplicate goes first", sets: "a newer adopted: resized; b newer: ", want: "remove web-b"},
		{name: "settled: the Deployment controller has to acknowledge it", sets: "a newer: resized", waits: "waiting for the Deployment controller to see ReplicaSet web-a as the new one"},
		{name: "settled: then the hold is let go", sets: "a newer acknowledged: resized; b older: ", want: "release"},
		{name: "settled: with a duplicate, all begins again from the mark", sets: "a newer: ; b newer acknowledged: newer", want: "mark web-b"},
		{name: "settled: histories that are alike are duplicates too", sets: "a older: ; b older: ; c newer adopted: newer", want: "remove web-b"},

		{name: "replace: within maxUnavailable", sets: "a newer closed: infeasible|infeasible|resized", changes: changes{bounds(1, 1)}, want: "evict a-0"},
		{name: "replace: the next one when the first is back", sets: "a newer closed: infeasible|newer, not ready|resized", changes: changes{bounds(1, 1)}},
		{name: "replace: what is missing counts", sets: "a newer closed 4: infeasible|resized|resized", changes: changes{bounds(1, 1)}},
		{name: "replace: what is not Ready is deleted", sets: "a newer closed: infeasible, not ready|infeasible", changes: changes{bounds(1, 1)}, want: "delete a-0"},
		{name: "replace: within maxUnavailable", sets: "a newer closed: infeasible, not ready|infeasible, not ready|infeasible, not ready", changes: changes{bounds(0, 2)}, want: "delete a-0 a-1"},
		{name: "replace: one at least", sets: "a newer closed: infeasible, not ready|infeasible, not ready", changes: changes{bounds(1, 0)}, want: "delete a-0"},
		{name: "replace: what has come for another counts until it is available", sets: "a newer closed: newer, not ready|infeasible, not ready", changes: changes{bounds(0, 1)}},
		{name: "replace: what is missing counts", sets: "a newer closed 2: infeasible, not ready", changes: changes{bounds(0, 1)}},
		{name: "replace: whatever is to come, where nothing runs", sets: "a newer closed 2: infeasible, not ready", changes: changes{bounds(0, 1), nothingRuns}, want: "delete a-0"},
		{name: "replace: one after the other, where none is available yet", sets: "a newer closed: infeasible|infeasible|infeasible", changes: changes{bounds(0, 1), minReady}, want: "evict a-0"},
		{name: "replace: with maxUnavailable 0 one is detached, where none is available yet", sets: "a newer closed: infeasible|infeasible", changes: changes{minReady}, want: "detach a-0"},
		{name: "replace: and stays until the others are", sets: "a newer closed: newer|infeasible; detached: infeasible", changes: changes{minReady, replicas(2)},
			waits: "detached-0: waiting for its new pod"},
		{name: "replace: with maxUnavailable 0 one is detached", sets: "a newer closed: infeasible|infeasible", want: "detach a-0"},
		{name: "replace: or as many as maxSurge", sets: "a newer closed: infeasible|infeasible|infeasible", changes: changes{bounds(2, 0)}, want: "detach a-0 a-1"},
		{name: "replace: no more than that", sets: "a newer closed 2: infeasible; detached: infeasible", changes: changes{replicas(2)},
			waits: "detached-0: waiting for its new pod"},
		{name: "replace: the detached one goes when another is available", sets: "a newer closed: newer|infeasible; detached: infeasible", changes: changes{replicas(2)}, want: "evict detached-0"},
		{name: "replace: a detached one that is down goes when the new one has a node", sets: "a newer closed 2: newer, not ready|infeasible; detached: infeasible, not ready", changes: changes{replicas(2)}, want: "evict detached-0"},
		{name: "replace: and not before, as there may be none", sets: "a newer closed 2: infeasible; detached: infeasible, not ready", changes: changes{replicas(2)}, waits: "detached-0: waiting for its new pod"},
		{name: "replace: a spare pod of another set counts", sets: "a newer closed: infeasible|infeasible; b image: image", changes: changes{replicas(2)}, want: "detach a-1, evict a-0"},
		{name: "Recreate: nothing is adopted while a pod has to go", sets: "a older: infeasible|resized", changes: changes{recreate}, want: "release, hand over: infeasible on node node: too big"},
		{name: "Recreate: first what can be is resized", sets: "a older: infeasible|older", changes: changes{recreate}, want: "resize a-1"},
		{name: "Recreate: whatever the others wait for", sets: "a older: infeasible|resized, not ready", changes: changes{recreate}},
		{name: "Recreate: after an adoption the base goes back", sets: "a newer was-older closed: infeasible|newer; b older: ", changes: changes{recreate}, want: "revert web-a to older"},
		{name: "Recreate: after an edit back it gets what the edit has left", sets: "a newer: newer|left with a limit", changes: changes{recreate}, want: "revert web-a to i1c2m1"},
		{name: "Recreate: or what a pod has still", sets: "a newer was-newer closed restart-a-0: infeasible|newer", changes: changes{recreate}, want: "revert web-a to older"},
		{name: "Recreate: if that is known", sets: "a newer was-newer closed restart-a-0: infeasible|newer", changes: changes{recreate, unreported}, waits: "a-0: left as it is until the next edit: a restart is not possible, because the strategy is Recreate"},
		{name: "Recreate since the edit: as many at once as before", sets: "a older: older|older|resized", changes: changes{switched("0;1")}, want: "resize a-0"},
		{name: "Recreate since the edit: the template is adopted", sets: "a older: infeasible|resized", changes: changes{switched("0;1")}, want: "adopt web-a"},
		{name: "Recreate since the edit: one goes at a time", sets: "a newer was-older closed: infeasible|infeasible|newer; b older: ", changes: changes{switched("25%;1")}, want: "evict a-0"},
		{name: "Recreate since the edit: or none, before another one has come", sets: "a newer was-older closed: infeasible|newer; b older: ", changes: changes{switched("25%;0")}, want: "detach a-0"},
		{name: "Recreate since the edit: also with the action Restart", sets: "a older: older|older", changes: changes{switched("0;1"), inForce("Restart;")}, want: "adopt web-a"},
		{name: "Recreate since the edit: it is let go where all are of the template", sets: "a newer acknowledged: newer|resized; b older: ", changes: changes{switched("0;1")}, want: "release"},
		{name: "Recreate since the edit: but not where others are not", sets: "a image: image; b newer acknowledged: resized; c older: ", changes: changes{switched("0;1")},
			waits: "web: the strategy was changed to Recreate during the rollout, by which all pods of another template would go at once: set it back, edit the template again, or release the Deployment"},
		{name: "Recreate since the edit: nor where some are left", sets: "a image: image; b newer was-older closed acknowledged restart-b-0: infeasible|resized; c older: ",
			changes: changes{switched("0;1"), inForce("LiveResize;")}, waits: "b-0: infeasible on node node: too big; left as it is"},
		{name: "Recreate since the edit: nor where none is", sets: "a image: image", changes: changes{switched("0;1")},
			waits: "web: the strategy was changed to Recreate during the rollout"},
		{name: "Recreate since the edit: it is where it stays paused", sets: "a image: image; b newer acknowledged: resized; c older: ",
			changes: changes{switched("0;1"), func(s *scene) { s.d.Annotations[api.HoldAnnotation] = "true" }}, want: "release"},
		{name: "Recreate since the edit: whoever has no pods is let go", sets: "a image: ", changes: changes{switched("0;1")}, want: "release"},
		{name: "replace: not before the ReplicaSet makes pods of the new size", sets: "a newer closed: infeasible", changes: changes{lagging}, waits: "a: waiting for the ReplicaSet controller"},
		{name: "replace: not while another pod can be resized", sets: "a newer adopted: infeasible|older", changes: changes{bounds(1, 1)}, want: "resize a-1"},

		{name: "hand-over: the action is Restart", sets: "a older: older|older", changes: changes{inForce("Restart;")}, want: "release, hand over: the action is Restart"},
		{name: "hand-over: the policy is RestartOnly", sets: "a older: older", changes: changes{inForce(";cpu=RestartOnly")}, want: "release, hand over: cpu of app: RestartOnly (annotation cpu)"},
		{name: "hand-over: not what was resized already by then", sets: "a older: resized|older; b older: ", changes: changes{inForce("Restart;")}, want: "adopt web-a"},
		{name: "hand-over: the edit removes a limit, before a new pod shows whether it has that, too", sets: "a limited: limited|limited", want: "adopt web-a"},
		{name: "hand-over: of one pod, there is nothing to be learned for others", sets: "a limited: limited",
			want: "release, hand over: app: the memory request is removed, app: the memory limit is removed"},
		{name: "hand-over: not if some pods have no such limit", sets: "a limited: resized|limited", want: "adopt web-a"},
		{name: "hand-over: detached pods are given back first", sets: "a older: older; detached: older", changes: changes{inForce("Restart;")},
			want: "evict a-0, give back detached-0"},
		{name: "hand-over: the mark stays, since it says what the pods were made from", sets: "a older adopted: older", changes: changes{inForce("Restart;")},
			want: "release, hand over: the action is Restart"},
		{name: "hand-over: a duplicate goes first", sets: "a older: older; b image: ; c image: ", changes: changes{inForce("Restart;")},
			want: "remove web-c"},

		{name: "action LiveResize: what cannot be resized is left, and the others go on", sets: "a older: infeasible|older", changes: changes{inForce("LiveResize;"), bounds(1, 1)}, want: "resize a-1"},
		{name: "action LiveResize: pods of another template wait for the others of the size", sets: "a image: image; b older: infeasible|resizing", changes: changes{inForce("LiveResize;")},
			waits: "; the Deployment controller has yet to replace 1 pod of ReplicaSet web-a"},
		{name: "action LiveResize: but not for one that cannot have it", sets: "a image: image; b older: infeasible|resized; c older: ", changes: changes{inForce("LiveResize;")}, want: "adopt web-b"},
		{name: "action LiveResize: nor where the size harms", sets: "a image: image; b older: infeasible|resized, not ready", changes: changes{inForce("LiveResize;")}},
		{name: "leaving: the mark is closed first", sets: "a image: image; b newer was-older: infeasible|resized; c older: ", changes: changes{inForce("LiveResize;")}, want: "mark web-b b-0"},
		{name: "leaving: the Deployment controller has to have seen that", sets: "a image: image; b newer was-older closed restart-b-0: infeasible|resized; c older: ", changes: changes{inForce("LiveResize;")},
			waits: "b-0: infeasible on node node: too big; left as it is; the Deployment controller has yet to replace 1 pod of ReplicaSet web-a; waiting for the Deployment controller to see ReplicaSet web-b"},
		{name: "leaving: then the hold is let go, and the mark stays", sets: "a image: image; b newer was-older closed acknowledged restart-b-0: infeasible|resized; c older: ", changes: changes{inForce("LiveResize;")}, want: "release"},
		{name: "action LiveResize: after an edit back in a built-in rollout, the pods of the newer size are kept", sets: "a newer acknowledged: newer|newer; b older: older", changes: changes{inForce("LiveResize;")},
			waits: "web-b: its pods are kept, because the action is LiveResize and only the Deployment controller can replace them, by restarts: `kubectl inplace-rollout retry --action=LiveResizePreferred` lets it"},
		{name: "action LiveResize: so are those of the older size", sets: "a other: other; b newer acknowledged: newer", changes: changes{inForce("LiveResize;")}, waits: "web-a: its pods are kept"},
		{name: "action LiveResize: but not those whose size may only change by a restart", sets: "a newer acknowledged: newer|newer; b older: older", changes: changes{inForce("LiveResize;cpu=RestartOnly")}, want: "release"},
		{name: "action LiveResize: nor those of another template", sets: "a newer acknowledged: newer|newer; b image: image", changes: changes{inForce("LiveResize;")}, want: "release"},
		{name: "action LiveResize: and is held for ever", sets: "a older: infeasible|resized", changes: changes{inForce("LiveResize;")}, waits: "a-0: infeasible on node node: too big; left as it is"},

		{name: "A→C→A: what C left is resized back", sets: "a newer: newer|of other", want: "resize a-1"},
		{name: "A→C→A: or replaced, where the policy does not let what C left change", sets: "a newer: newer|of other",
			changes: changes{inForce(";cpu:increase=RestartOnly,cpu:decrease=RestartOnly"), bounds(1, 1)}, want: "evict a-1"},
		{name: "A→C→A: but what was only asked for, and is not in force, is taken back", sets: "a older: older|deferred",
			changes: changes{to(older), inForce(";cpu=RestartOnly")}, want: "resize a-1"},
		{name: "a pod that somebody else has resized is replaced, where the policy does not let that change", sets: "a older: older|resized by others",
			changes: changes{inForce(";cpu:decrease=RestartOnly"), bounds(1, 1)}, want: "resize a-0"},
		{name: "and when the others are done", sets: "a newer closed restart-a-1: resized|resized by others",
			changes: changes{inForce(";cpu:decrease=RestartOnly"), bounds(1, 1)}, want: "evict a-1"},
		{name: "A→C→A: what cannot be taken back is replaced", sets: "a newer: newer|left with a limit", changes: changes{bounds(1, 1)}, want: "evict a-1"},
		{name: "what a new pod has of admission stays where we have set it, too", sets: "a newer acknowledged: left with a limit|given a limit", want: "release"},
		{name: "A→C→A: a size that somebody else has set is left alone", sets: "a newer acknowledged: newer|resized by others", want: "release"},
		{name: "A→C→D: the base is adopted by D, whatever C left", sets: "a other adopted: older|of other|resized", want: "resize a-0"},

		{name: "minReadySeconds: look again when the pod has proved its size", sets: "a older: resized|older", changes: changes{minReady}, after: 10 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := planned(observed(t, tt.sets, tt.changes...))
			simulated.Does(t, p, err, does(p), tt.want)
			if p.Condition.Complete || !strings.Contains(p.Condition.Message()+"; "+p.Unacknowledged, tt.waits) {
				t.Errorf("says %+v and %q, want it to tell %q", p.Condition, p.Unacknowledged, tt.waits)
			}
			simulated.Looks(t, p, tt.after, tt.want, "resize")
		})
	}
}

// With maxUnavailable 0 the new pod comes first, unless the old one is evicted because it is not available.
func TestNewFirst(t *testing.T) {
	for _, tt := range []struct {
		sets        string
		unavailable int32
		want        string
	}{
		{"a newer closed: infeasible|infeasible", 0, "a-0 true"},
		{"a newer closed: infeasible|infeasible", 1, "a-0 false"},
		{"a newer closed: resized|infeasible, not ready", 0, "a-1 false"},
		{"a older: resized|infeasible", 0, "a-1 true"},
		{"a older: resized|infeasible, not ready", 0, "a-1 false"},
	} {
		p, err := planned(observed(t, tt.sets, bounds(1, tt.unavailable)))
		if err != nil || len(p.Replaced) != 1 {
			t.Fatalf("%s: gives up %v, and %v", tt.sets, p.Replaced, err)
		}
		must.Equal(t, fmt.Sprint(p.Replaced[0].Member.Name, " ", p.Replaced[0].NewFirst), tt.want, "%s, maxUnavailable %d", tt.sets, tt.unavailable)
	}
}

func TestNextStepEvictionRefused(t *testing.T) {
	o := observed(t, "a newer closed: infeasible|infeasible", bounds(1, 2))
	until := o.Now.Add(time.Second)
	refused := &judge.PodNotes{Foreseen: true}
	refused.Note(o.pods[0].UID).Eviction = &judge.Refused{Refusal: judge.Refusal{Reason: "the budget says no", Until: until}}
	o.Notes = refused
	p := must.Get(planned(o))(t)
	must.Equal(t, does(p), "evict a-1", "the other one is evicted")
	must.Contain(t, p.Condition.Message(), "a-0: not evicted yet: the budget says no", "the condition")
	must.Equal(t, p.RequeueAfter, until.Sub(o.Now), "when it looks again")

	// A refused pod takes its share of what may be unavailable.
	o = observed(t, "a newer closed: infeasible|infeasible", bounds(1, 1))
	o.Notes = refused
	if p = must.Get(planned(o))(t); does(p) != "" || p.Condition.Reason != judge.ReasonDisruptionBudget {
		t.Errorf("got %q, %+v, want it to be waited for", does(p), p.Condition)
	}
	o.Now = until
	must.Equal(t, does(must.Get(planned(o))(t)), "evict a-0", "when the time has come to ask again")

	// Nor is it forgotten where nobody holds the Deployment any more.
	o = observed(t, "a newer: left with a limit|newer", bounds(0, 1), func(s *scene) { delete(s.d.Annotations, api.HoldAnnotation) })
	o.Notes = refused
	if p = must.Get(planned(o))(t); does(p) != "" || p.Condition.Reason != judge.ReasonDisruptionBudget {
		t.Errorf("not held: got %q, %+v", does(p), p.Condition)
	}
}

// TestNextStepLabelsRefused: admission that changes pods on every update lets nobody detach one, or give it back.
func TestNextStepLabelsRefused(t *testing.T) {
	for _, tt := range []struct{ what, sets, refused, want, then, says string }{
		{what: "detach", sets: "a newer closed: infeasible|infeasible", refused: "a-0", want: "detach a-1", then: "detach a-0", says: "a-0: its new pod cannot come first: no"},
		{what: "reattach, and the edit goes on", sets: "a older: older|older; detached: older", refused: "detached-0", want: "resize a-0", then: "give back detached-0"},
		{what: "reattach, before the hold is let go", sets: "a newer: newer|newer; detached: older", refused: "detached-0", want: "evict detached-0", then: "evict detached-0"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			o := observed(t, tt.sets, bounds(1, 0))
			o.Notes = &judge.PodNotes{Foreseen: true}
			refusal := &judge.Refused{Refusal: judge.Refusal{Reason: "no", Kind: judge.ReasonAdmissionDenied, Until: o.Now.Add(time.Second)}}
			for _, pod := range o.pods {
				if pod.Name == tt.refused {
					o.Notes.Note(pod.UID).Relabel = refusal
				}
			}
			p := must.Get(planned(o))(t)
			must.Equal(t, does(p), tt.want, "what it does")
			must.Contain(t, p.Condition.Message(), tt.says, "%+v", p.Condition)
			o.Now = refusal.Until
			must.Equal(t, does(must.Get(planned(o))(t)), tt.then, "what it does later")
		})
	}
}

func TestNextStepNoNodeFits(t *testing.T) {
	small := func(s *scene) { s.node.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("1m") }
	for _, tt := range []struct {
		name, sets, want string
		changes          []change
	}{
		{"what cannot be resized is left, and the others are resized", "a older: infeasible|older", "resize a-1", []change{small, bounds(1, 1)}},
		{"nothing is adopted", "a older: infeasible|resized", "", []change{small}},
		{"though pods of another template wait, where the new pod has to come first", "a image: image; b older: infeasible|resized; c older: ", "", []change{small, bounds(1, 0)}},
		{"otherwise it is, so that they need not", "a image: image; b older: infeasible|resized; c older: ", "adopt web-b", []change{small, bounds(1, 1)}},
		{"nor handed over", "a older: older", "", []change{small, inForce("Restart;")}},
		{"nor evicted", "a newer closed: infeasible|resized", "", []change{small, bounds(1, 1)}},
	} {
		p := must.Get(planned(observed(t, tt.sets, tt.changes...)))(t)
		must.Equal(t, does(p), tt.want, "%s", tt.name)
		if have := p.Condition; have.Reason != judge.ReasonNoNodeFits || !strings.Contains(have.Message(), "it needs 2m cpu; the only node that it can run on has 1m") {
			t.Errorf("%s: says %+v", tt.name, have)
		}
	}
	p := must.Get(planned(observed(t, "a image: image", small)))(t)
	must.Equal(t, does(p), "release, hand over: the template changed in spec.containers[app].image", "a template change is left to the Deployment controller")
}

func TestRestartsAll(t *testing.T) {
	for _, tt := range []struct {
		name, sets string
		changes    []change
		want       bool
	}{
		{"a limit is removed from the only pod", "a limited: limited", nil, true},
		{"a limit is removed from all pods, of which the first shows whether that helps", "a limited: limited|limited", nil, false},
		{"a limit is removed from all pods, which go together", "a limited: limited|limited", []change{recreate}, true},
		{"a limit is removed from some pods", "a limited: newer|limited", nil, false},
		{"a limit is removed that we have set", "a other: newer|left with a limit", nil, false},
		{"the policy has the edit restart every pod", "a older: older|older", []change{inForce(";cpu=RestartOnly")}, true},
		{"some pods have the size already", "a older: resized|older", []change{inForce(";cpu=RestartOnly")}, false},
		{"a resize was tried in vain", "a older: infeasible|infeasible", nil, false},
		{"nothing restarts", "a older: resized", nil, false},
		{"the strategy is Recreate since the edit", "a older: older|older", []change{inForce(";cpu=RestartOnly"), switched("0;1")}, false},
	} {
		o := observed(t, tt.sets, tt.changes...)
		o.Settings = must.Get(policy.InForce(o.deployment.Annotations))(t)
		p := must.Get(o.nextStep())(t)
		if got := o.restartsAll(p); got != tt.want {
			t.Errorf("%s: %t, want %t; the plan: %q", tt.name, got, tt.want, does(p.complete(o)))
		}
	}
}

func TestBuiltInCondition(t *testing.T) {
	counts := func(total, updated, available int32) change {
		return func(s *scene) {
			s.d.Status.Replicas, s.d.Status.UpdatedReplicas, s.d.Status.AvailableReplicas = total, updated, available
		}
	}
	paused := func(s *scene) { s.d.Spec.Paused = true }
	is := func(status corev1.ConditionStatus) change {
		return func(s *scene) {
			s.d.Status.Conditions = []appsv1.DeploymentCondition{{Type: api.ConditionComplete, Status: status, Message: "as it was"}}
		}
	}
	tests := []struct {
		name    string
		changes []change
		reason  string
		message string
	}{
		{"everything updated and available", []change{counts(3, 3, 3)}, judge.ReasonComplete, "all pods are of the newest revision"},
		{"Complete stays Complete when a pod is lost later", []change{counts(2, 2, 2), is(corev1.ConditionTrue)}, judge.ReasonComplete, "all pods are of the newest revision"},
		{"Complete of an edit before the one that was made while it was opted out and paused", []change{paused, counts(3, 0, 3), is(corev1.ConditionTrue)}, judge.ReasonPaused,
			"paused by the user: 0 of 3 pods updated, 3 of an older template, 3 available"},
		{"a pod that is not available", []change{counts(3, 3, 2), is(corev1.ConditionFalse)}, judge.ReasonProgressing,
			"waiting for pods to become available: 3 of 3 pods updated, 0 of an older template, 2 available"},
		{"a pod of an older template is left", []change{counts(4, 3, 4)}, judge.ReasonProgressing,
			"left to the Deployment controller: 3 of 3 pods updated, 1 of an older template, 4 available"},
		{"handed over, under way", []change{counts(4, 2, 3)}, judge.ReasonProgressing,
			"left to the Deployment controller: 2 of 3 pods updated, 2 of an older template, 3 available"},
		{"paused by the user with an edit", []change{paused, counts(3, 0, 3)}, judge.ReasonPaused,
			"paused by the user: 0 of 3 pods updated, 3 of an older template, 3 available"},
		{"paused by the user with nothing to do", []change{paused, counts(3, 3, 3)}, judge.ReasonComplete, "all pods are of the newest revision"},
		{"scaled to nothing", []change{replicas(0)}, judge.ReasonComplete, "all pods are of the newest revision"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := builtInCondition(observed(t, "a newer: newer|newer|newer", tt.changes...).deployment)
			if got.Complete != (tt.reason == judge.ReasonComplete) || got.Reason != tt.reason || got.Message() != tt.message {
				t.Errorf("got %+v, want %s: %s", got, tt.reason, tt.message)
			}
		})
	}
}

// TestNextStepNotHeld: before a Deployment that is not held is Complete, its pods are looked at.
func TestNextStepNotHeld(t *testing.T) {
	notHeld := func(s *scene) {
		delete(s.d.Annotations, api.HoldAnnotation)
		n := *s.d.Spec.Replicas
		s.d.Status.Replicas, s.d.Status.UpdatedReplicas, s.d.Status.AvailableReplicas = n, n, n
	}
	paused := func(s *scene) { s.d.Spec.Paused = true }
	complete := func(s *scene) {
		s.d.Status.Conditions = []appsv1.DeploymentCondition{{Type: api.ConditionComplete, Status: corev1.ConditionTrue}}
	}
	const left, wasPaused = "left to the Deployment controller: ", "paused by the user: "
	for _, tt := range []struct {
		name, sets string
		changes    []change
		want, says string
		complete   bool
	}{
		{"all are of the template", "a newer: newer|newer", nil, "", "all pods are of the newest revision", true},
		{"there are none", "a newer: ", nil, "", "all pods are of the newest revision", true},
		{"others have resized one", "a newer: newer|resized by others", nil, "", "all pods are of the newest revision", true},
		{"one is not available", "a newer: newer|newer, not ready", nil, "", "2 of 2 pods resized; a-1: waiting for the pod to become available", false},
		{"one is of another template", "a newer: newer; b older 0: older", nil, "", left + "pod b-0 has another template", false},
		{"what an edit that was given up has left is resized back", "a newer: newer|of other", []change{bounds(0, 1)}, "resize a-1", "1 of 2 pods resized; a-1: resizing: app: cpu request 3m→2m", false},
		{"also where it was Complete of another revision", "a newer: newer|of other", []change{bounds(0, 1), complete}, "resize a-1", "1 of 2 pods resized; a-1: resizing: app: cpu request 3m→2m", false},
		{"Complete of another revision stays so, whatever pods are lost", "a newer: newer|newer, not ready", []change{complete}, "", "all pods are of the newest revision", true},
		{"what cannot be taken back is evicted", "a newer: newer|left with a limit", []change{bounds(0, 1)}, "evict a-1", "1 of 2 pods resized; a-1: restarting: app: the memory limit is removed", false},
		{"not with LiveResize", "a newer: newer|left with a limit", []change{bounds(0, 1), inForce("LiveResize;")}, "", "1 of 2 pods resized; a-1: app: the memory limit is removed; left as it is", false},
		{"nor with maxUnavailable 0", "a newer: newer|left with a limit", []change{bounds(1, 0)}, "",
			"1 of 2 pods resized; a-1: left as it is until the next edit: a restart is not possible, because maxUnavailable is 0: app: the memory limit is removed", false},
		{"strategy Recreate: the Deployment controller gets a reason to replace all", "a newer: newer|left with a limit", []change{recreate}, "revert web-a to i1c2m1", "1 of 2 pods resized; a-1: restarting: app: the memory limit is removed", false},
		{"nor while the user has it paused", "a newer: newer|of other", []change{paused}, "", wasPaused + "pod a-1 has the size of an abandoned edit", false},
		{"paused, and nothing is to be done", "a newer: newer|newer", []change{paused}, "", "all pods are of the newest revision", true},
		{"a pod is left, and others are of another template", "a image: image; b newer was-older closed restart-b-0: infeasible|resized; c older: ", []change{inForce("LiveResize;")}, "",
			left + "ReplicaSet web-a has another template and 1 replica; 1 of 3 pods resized; b-0: infeasible on node node: too big; left as it is", false},
		{"it is resized meanwhile, if it can be", "a image: image; b newer was-older closed restart-b-0: older|resized; c older: ", nil, "resize b-0",
			left + "ReplicaSet web-a has another template and 1 replica; 1 of 3 pods resized; b-0: resizing: app: cpu request 1m→2m", false},
		{"but not restarted before them", "a image: image; b newer was-older closed restart-b-0: infeasible|resized; c older: ", []change{bounds(1, 1)}, "",
			left + "ReplicaSet web-a has another template and 1 replica; 1 of 3 pods resized; b-0: restarting: infeasible on node node: too big", false},
		{"when they have gone, it is", "a newer was-older closed restart-a-0: infeasible|resized; c older: ", []change{bounds(1, 1)}, "evict a-0",
			"1 of 2 pods resized; a-0: restarting: infeasible on node node: too big", false},
		{"within maxUnavailable, whichever the ReplicaSet controller is about to delete", "a newer was-older closed restart-a-0 restart-a-1 3: infeasible|infeasible|resized|resized|resized; c older: ", []change{bounds(0, 1), lagging}, "evict a-0",
			"3 of 5 pods resized; a-0: restarting: infeasible on node node: too big; likewise a-1", false},
		{"an adoption that was let go of is finished: sizes", "a newer was-older: newer|older; b older: ", []change{bounds(0, 1)}, "resize a-1", "1 of 2 pods resized; a-1: resizing: app: cpu request 1m→2m", false},
		{"an adoption that was let go of is finished: the history", "a newer was-older: newer|older", []change{bounds(0, 1)}, "keep web-a", "", false},
		{"an adoption that was let go of is finished: the mark", "a newer was-older: newer|newer; b older: ", nil, "unmark web-a", "2 of 2 pods resized", false},
		{"handed over: nothing is resized before the Deployment controller makes its own", "a older was-other closed restart-a-0: other|older; b other: ", []change{bounds(0, 1)}, "",
			left + "ReplicaSet web-a has another template and 2 replicas", false},
		{"also where there are no pods left", "a newer: ; b older was-other: ", nil, "keep web-b", "", false},
		{"with no history to keep", "a newer: ; b older was-other: ", []change{historyLimit(0)}, "unmark web-b", "", false},
		{"not while the user has it paused", "a newer: newer|newer; b older adopted: ", []change{paused}, "", wasPaused + "ReplicaSet web-b has the record of an adoption", false},
		{"nor where there are no pods left", "a newer: ; b older adopted: ", []change{paused}, "", wasPaused + "ReplicaSet web-b has the record of an adoption", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := planned(observed(t, tt.sets, append([]change{notHeld}, tt.changes...)...))
			simulated.Does(t, p, err, does(p), tt.want)
			simulated.Says(t, p, tt.says, tt.complete)
			if told := p.Condition.Told(); strings.Contains(told, "until the next edit") != strings.HasSuffix(told, "Edit it once more, or allow a pod to be unavailable") {
				t.Errorf("its condition says %s", told)
			} else if left := strings.Contains(told, "until the next edit"); left && len(p.Restart) > 0 { // else nobody would have to act
				t.Errorf("it says so, and restarts %v", p.Restart)
			}
		})
	}
	t.Run("one was rejected, and all are there", func(t *testing.T) {
		o := observed(t, "a newer: newer|newer", notHeld)
		o.Rejections = &judge.Rejections{}
		rejected := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Message: "Pod was rejected: no room"}}
		o.Rejections.See([]*corev1.Pod{rejected}, 1, 2, func(*corev1.Pod) bool { return true }, false)
		p, err := planned(o)
		simulated.Does(t, p, err, does(p), "")
		simulated.Says(t, p, "all pods are of the newest revision", true)
	})
}

func TestStale(t *testing.T) {
	for sets, want := range map[string]string{
		"a newer: newer|resized, not ready; b older: ":  "",
		"a newer: newer|resized by others":              "",
		"a newer: newer; b older 2: ":                   "ReplicaSet web-b has another template and 2 replicas",
		"a newer: newer; b older 0: older":              "pod b-0 has another template",
		"a newer: newer; b older 0: terminating|failed": "",
		"a newer: newer|of other":                       "",
		"a newer: newer; detached: older":               "pod detached-0 has another template",
	} {
		must.Equal(t, observed(t, sets).stale(), want, "%s: what is stale", sets)
	}
}

// While one pod is being replaced, another one is not promised the room of its successor.
func TestToCome(t *testing.T) {
	for sets, want := range map[string][]string{
		"a older: older|older":                    nil,
		"a older 2: older|terminating":            {"1m"},
		"a older 2: older":                        {"1m"},
		"a newer 2: newer; b older 2: older":      {"2m", "1m"},
		"a newer: newer|newer, not ready|resized": nil,
	} {
		cpu := build.Each(observed(t, sets).toCome(), func(coming rollout.Coming) string {
			return coming.Template.Spec.Containers[0].Resources.Requests.Cpu().String()
		})
		must.EqualLists(t, cpu, want, "%s: what pods to come request", sets)
	}
}

// TestMissingPodsCostLittle: somebody has typed some zeros too many, and a quota lets no such pods in. That is one tenant's Deployment, and
// the memory is that of all. How many are missing counts all the same.
func TestMissingPodsCostLittle(t *testing.T) {
	for unavailable, want := range map[int32]string{50_000: "", 50_001: "resize a-0"} {
		o := observed(t, "a older 50001: older", bounds(0, unavailable))
		p := must.Get(planned(o))(t)
		must.Equal(t, does(p), want, "of 50,000 missing, where %d may be", unavailable)
		must.Contain(t, p.Condition.Message(), "0 of 50001 pods resized", "what it says")
		if want == "" {
			must.Contain(t, p.Condition.Message(), "a: waiting for the pod to be created; likewise 49999 more", "what it says")
		}
		if n := testing.AllocsPerRun(1, func() { _, _ = planned(o); o.Pods() }); n > 5_000 {
			t.Errorf("%v allocations", n)
		}
		must.Equal(t, len(o.toCome()), rollout.Burst, "pods that come at once")
	}
}

func TestSortAsDeleted(t *testing.T) {
	made := func(name string, change ...func(*corev1.Pod)) *corev1.Pod {
		return build.Pod(name, templates[older], change...)
	}
	on := func(node string) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.Spec.NodeName = node } }
	costs := func(cost string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Annotations = map[string]string{corev1.PodDeletionCost: cost} }
	}
	pods := []*corev1.Pod{
		made("ready", on("alone")),
		made("of no cost that is a number", on("alone-2"), costs("dear")),
		made("dear", on("alone-3"), costs("7")),
		made("doubled up", on("shared")),
		made("doubled up too", on("shared")),
		made("cheap", on("alone-4"), costs("-3")),
		made("not ready but dear", on("alone-5"), build.NotReady, costs("9")),
		made("pending", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending }, build.NotReady),
		made("unassigned", on(""), build.NotReady),
	}
	sortAsDeleted(pods)
	want := []string{"unassigned", "pending", "not ready but dear", "cheap", "doubled up", "doubled up too", "of no cost that is a number", "ready", "dear"}
	got := build.Each(pods, func(pod *corev1.Pod) string { return pod.Name })
	must.EqualLists(t, got, want, "in this order")
}

// withField puts a field that our types do not have into the template of a stored object.
func withField(t *testing.T, object runtime.Object, value string) *unstructured.Unstructured {
	t.Helper()
	stored := build.Stored(t, object)
	must.Do(t, unstructured.SetNestedField(stored.Object, value, "spec", "template", "spec", "fromTheFuture"))
	return stored
}

func TestSame(t *testing.T) {
	d := webDeployment(newer, 1)
	spelled := webSet(d, "a", newer, 1)
	spelled.Spec.Template.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("0.002")
	defaulted := webSet(d, "a", newer, 1)
	defaulted.Spec.Template.Spec.DNSPolicy = corev1.DNSClusterFirst
	templateOf := func(set *unstructured.Unstructured) *hash.Template { return read(t, decodeReplicaSet, set).template }
	for _, tt := range []struct {
		name  string
		set   *unstructured.Unstructured
		same  bool // for the built-in controllers
		means bool // the same
	}{
		{"the pod-template-hash is no difference", build.Stored(t, webSet(d, "a", newer, 1)), true, true},
		{"nor is how a quantity is written", build.Stored(t, spelled), true, true},
		{"a default that only one of them has is", build.Stored(t, defaulted), false, true},
		{"the size is", build.Stored(t, webSet(d, "a", older, 1)), false, false},
		{"the image is", build.Stored(t, webSet(d, "a", version{Image: 2, CPU: 2}, 1)), false, false},
		{"a field that our types do not have is", withField(t, webSet(d, "a", newer, 1), "x"), false, false},
	} {
		template := read(t, decodeDeployment, build.Stored(t, d)).template
		must.Equal(t, template.Same(templateOf(tt.set)), tt.same, "%s: it is the same template", tt.name)
		got, digests := template.Means(templateOf(tt.set)), template.Digest() == templateOf(tt.set).Digest()
		if got != tt.means || digests != got {
			t.Errorf("%s: it means the same: %t, and has the same digest: %t, want %t", tt.name, got, digests, tt.means)
		}
	}
	if !templateOf(withField(t, webSet(d, "a", newer, 1), "x")).Same(templateOf(withField(t, webSet(d, "b", newer, 1), "x"))) {
		t.Error("the same fields that our types do not have are a difference")
	}
	if _, err := decodeDeployment(d); err == nil {
		t.Error("a Deployment that is not as stored is taken")
	}
}

// had is what rs has, as what it had before.
func had(rs *replicaSet) *previousTemplate {
	return &previousTemplate{Annotations: historyAnnotations(rs), Template: rs.template.Raw, template: rs.template}
}

// TestForeignMark: of a mark that we cannot have written, nothing goes into the history.
func TestForeignMark(t *testing.T) {
	d := webDeployment(newer, 3)
	for _, tt := range []struct {
		name string
		mark string
		want bool // there is a former template
	}{
		{"another size", string(mustJSON(t, adoption{previousTemplate: previousTemplate{Template: mustJSON(t, webDeployment(older, 3).Spec.Template)}})), true},
		{"another image", string(mustJSON(t, adoption{previousTemplate: previousTemplate{Template: mustJSON(t, webDeployment(version{Image: 2, CPU: 1}, 3).Spec.Template)}})), false},
		{"no template", `{"template": "x"}`, false},
		{"what the first version wrote", "true", false},
	} {
		set := webSet(d, "a", newer, 3)
		set.Annotations = map[string]string{api.AdoptedAnnotation: tt.mark}
		rs := read(t, decodeReplicaSet, build.Stored(t, set))
		if got := rs.previous != nil; got != tt.want || !rs.adopted() {
			t.Errorf("%s: a former template %t, want %t; marked %t", tt.name, got, tt.want, rs.adopted())
		}
	}
}

func mustJSON(t *testing.T, value any) []byte {
	t.Helper()
	return must.Get(json.Marshal(value))(t)
}

func TestNewHistory(t *testing.T) {
	d := webDeployment(newer, 3)
	d.Spec.MinReadySeconds = 7
	set := webSet(d, "a", older, 3)
	set.Annotations = map[string]string{
		"deployment.kubernetes.io/revision": "4", "deployment.kubernetes.io/desired-replicas": "3", "deployment.kubernetes.io/max-replicas": "4",
		"deployment.kubernetes.io/revision-history": "2", "kubernetes.io/change-cause": "why", api.HoldAnnotation: "false", api.AdoptedAnnotation: "true",
	}
	deployment, rs := read(t, decodeDeployment, build.Stored(t, d)), read(t, decodeReplicaSet, withField(t, set, "x"))
	rs.previous = had(rs)
	made := must.Get(newHistory(deployment, rs, []*replicaSet{rs}))(t)
	again, err := newHistory(deployment, rs, []*replicaSet{rs})
	if err != nil || !equality.Semantic.DeepEqual(made, again) {
		t.Errorf("a second try makes another one: %v, %v, %v", made, again, err)
	}
	history := read(t, decodeReplicaSet, made)
	if !history.template.Same(rs.template) {
		t.Errorf("keeps %s, want %s", history.template.Raw, rs.template.Raw)
	}
	if want := map[string]string{"deployment.kubernetes.io/revision": "4", "kubernetes.io/change-cause": "why"}; !maps.Equal(history.Annotations, want) {
		t.Errorf("has the annotations %v, want %v", history.Annotations, want)
	}
	hash := history.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	labels := map[string]string{"app": "web", appsv1.DefaultDeploymentUniqueLabelKey: hash}
	if hash == "" || history.Name != "web-"+hash || !maps.Equal(history.Labels, labels) || !maps.Equal(history.Spec.Selector.MatchLabels, labels) || !maps.Equal(podLabels(t, made), labels) {
		t.Errorf("%s has the labels %v, selects %v and makes pods with %v", history.Name, history.Labels, history.Spec.Selector, podLabels(t, made))
	}
	if !metav1.IsControlledBy(history, d) || history.active() || history.Spec.MinReadySeconds != 7 || history.Namespace != "default" {
		t.Errorf("is %+v, %+v", history.ObjectMeta, history.Spec)
	}
	if !maps.Equal(d.Spec.Selector.MatchLabels, map[string]string{"app": "web"}) {
		t.Errorf("the Deployment's selector has become %v", d.Spec.Selector)
	}

	taken, err := newHistory(deployment, rs, []*replicaSet{rs, history})
	if err != nil || taken.GetName() == history.Name {
		t.Errorf("takes the name %s, which is taken: %v", taken.GetName(), err)
	}
	rs.UID = "another"
	if elsewhere, err := newHistory(deployment, rs, nil); err != nil || elsewhere.GetName() == history.Name {
		t.Errorf("another ReplicaSet's history has the same name %s: %v", elsewhere.GetName(), err)
	}
}

// podLabels are those of the pods that a ReplicaSet makes.
func podLabels(t *testing.T, rs *unstructured.Unstructured) map[string]string {
	t.Helper()
	labels, _, err := unstructured.NestedStringMap(rs.Object, "spec", "template", "metadata", "labels")
	must.Do(t, err)
	return labels
}

// TestReplicaSetName cuts names as the Deployment controller does.
func TestReplicaSetName(t *testing.T) {
	long := strings.Repeat("d", 253)
	for deployment, want := range map[string]string{"web": "web-abc", long: long[:249] + "-abc", long[:250]: long[:249] + "-abc", long[:249]: long[:249] + "-abc"} {
		must.Equal(t, replicaSetName(deployment, "abc"), want, "the ReplicaSet of %s", deployment)
	}
}

// TestPatches applies the patches of ReplicaSets.
func TestPatches(t *testing.T) {
	d := webDeployment(newer, 1)
	d.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](math.MaxInt64) // which no float64 has
	stored := map[string]*unstructured.Unstructured{"live": withField(t, webSet(d, "live", older, 1), "x"), "idle": build.Stored(t, webSet(d, "idle", newer, 0))}
	stored["live"].SetLabels(map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "forged"}) // which says nothing of the pods
	stored["live"].SetAnnotations(map[string]string{"deployment.kubernetes.io/revision": "3", "deployment.kubernetes.io/desired-replicas": "1", api.HoldAnnotation: "false"})
	stored["idle"].SetAnnotations(map[string]string{"deployment.kubernetes.io/revision": "2", "kubernetes.io/change-cause": "of the past"})
	deployment := read(t, decodeDeployment, withField(t, d, "y"))
	stored["own"] = stored["live"].DeepCopy() // a ReplicaSet of the user's own, which the Deployment has adopted
	unstructured.RemoveNestedField(stored["own"].Object, "spec", "template", "metadata", "labels", appsv1.DefaultDeploymentUniqueLabelKey)
	live, idle, own := read(t, decodeReplicaSet, stored["live"]), read(t, decodeReplicaSet, stored["idle"]), read(t, decodeReplicaSet, stored["own"])
	live.adoption.previousTemplate = *had(live)
	live.previous = &live.adoption.previousTemplate
	marked := map[string]string{"deployment.kubernetes.io/revision": "3", "deployment.kubernetes.io/desired-replicas": "1", api.HoldAnnotation: "false"}
	adopted := maps.Clone(marked)
	former := `{"annotations":{"deployment.kubernetes.io/revision":"3"},"template":` + string(live.template.Raw)
	adopted[api.AdoptedAnnotation] = former + `,"restarts":["live-a"]}`
	marked[api.AdoptedAnnotation] = former + `,"restarts":["live-a","live-b"],"closed":true}`
	overtaken, again := *live, maps.Clone(adopted)
	overtaken.adoption.Restarts, overtaken.previous = []string{"live-a", "live-b"}, &overtaken.adoption.previousTemplate
	again[api.AdoptedAnnotation] = former + `,"restarts":["live-b","live-c"],"earlier":[{"template":` + string(live.template.Raw) + `,"pods":["live-b"]}]}`
	delete(marked, api.HoldAnnotation)
	adopts := func(rs *replicaSet, rejects bool, restarts ...string) func() ([]byte, error) {
		return func() ([]byte, error) {
			patch, _, err := adoptPatch(deployment, adopt{set: rs, template: deployment.template, restarts: restarts, rejects: rejects})
			return patch, err
		}
	}
	const rejecting = "adopt while kubelets reject what is made"
	for _, tt := range []struct {
		name, of    string
		patch       func() ([]byte, error)
		template    *hash.Template
		annotations map[string]string
	}{
		{"adopt", "live", adopts(live, false, "live-a"), deployment.template, adopted},
		{rejecting, "live", adopts(live, true, "live-a"), deployment.template, adopted},
		{"adopt while pods are left of the edit before", "live", adopts(&overtaken, false, "live-b", "live-c"), deployment.template, again},
		{"adopt one without a hash", "own", adopts(own, false, "live-a"), deployment.template, adopted},
		{"mark", "live", func() ([]byte, error) { return closeAdoptionPatch(deployment, live, []string{"live-a", "live-b"}) }, live.template, marked},
		{"settled", "live", func() ([]byte, error) { return endAdoptionPatch(live) }, live.template,
			map[string]string{"deployment.kubernetes.io/revision": "3", "deployment.kubernetes.io/desired-replicas": "1"}},
		{"revert", "live", func() ([]byte, error) { return revertPatch(live, deployment.template) }, deployment.template,
			map[string]string{"deployment.kubernetes.io/revision": "3", "deployment.kubernetes.io/desired-replicas": "1", api.HoldAnnotation: "false"}},
		{"keep", "idle", func() ([]byte, error) { return historyPatch(idle, live) }, live.template, map[string]string{"deployment.kubernetes.io/revision": "3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			patch := must.Get(tt.patch())(t)
			before := stored[tt.of]
			written := applied(t, before, patch)
			after := read(t, decodeReplicaSet, written)
			if !after.template.Same(tt.template) || string(after.template.Raw) != string(tt.template.Raw) {
				t.Errorf("has the template %s, want %s", after.template.Raw, tt.template.Raw)
			}
			if !maps.Equal(after.Annotations, tt.annotations) {
				t.Errorf("has the annotations %v, want %v", after.Annotations, tt.annotations)
			}
			if labels, want := podLabels(t, written), podLabels(t, before); !maps.Equal(labels, want) {
				t.Errorf("makes pods with the labels %v, want %v", labels, want)
			}
			for _, field := range [][]string{{"metadata", "annotations"}, {"spec", "template"}} { // nothing else has changed
				unstructured.RemoveNestedField(written.Object, field...)
				before = before.DeepCopy()
				unstructured.RemoveNestedField(before.Object, field...)
			}
			if !equality.Semantic.DeepEqual(before, written) {
				t.Errorf("has become %v, was %v", written, before)
			}
			preconditions := []string{"uid", "resourceVersion"}
			if tt.name == rejecting { // the status changes all the time
				preconditions = []string{"uid", "generation", "ownerReferences", "annotations"}
			}
			for _, field := range preconditions {
				other := stored[tt.of].DeepCopy()
				other.Object["metadata"].(map[string]any)[field] = "another"
				got, err := tryPatch(t, other, patch)
				if err == nil && got.Object["metadata"].(map[string]any)[field] == "another" {
					t.Errorf("%s is no precondition", field)
				}
			}
		})
	}
}

func applied(t *testing.T, stored *unstructured.Unstructured, patch []byte) *unstructured.Unstructured {
	t.Helper()
	return must.Get(tryPatch(t, stored, patch))(t)
}

func tryPatch(t *testing.T, stored *unstructured.Unstructured, patch []byte) (*unstructured.Unstructured, error) {
	t.Helper()
	before := must.Get(json.Marshal(stored))(t)
	decoded := must.Get(jsonpatch.DecodePatch(patch))(t)
	after, err := decoded.Apply(before)
	if err != nil {
		return nil, err
	}
	written := &unstructured.Unstructured{}
	must.Do(t, json.Unmarshal(after, written))
	return written, nil
}

// TestUnapplied: a test that fails is no refusal.
func TestUnapplied(t *testing.T) {
	set := appsv1.SchemeGroupVersion.WithKind("ReplicaSet").GroupKind()
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", "testing value failed", 0, false), true},
		{apierrors.NewInvalid(set, "web", nil), false},
		{apierrors.NewForbidden(replicaSets.GroupResource(), "web", nil), false},
		{errors.New("no answer"), false},
		{nil, false},
	} {
		must.Equal(t, unapplied(tt.err), tt.want, "%v: unapplied", tt.err)
	}
}

// TestShowsTheGeneration: as for StatefulSets, but before the Deployment counts as one that does not move.
func TestShowsTheGeneration(t *testing.T) {
	for _, tt := range []struct {
		deadline, after time.Duration
		want            string
	}{
		{600 * time.Second, 299 * time.Second, ""},
		{600 * time.Second, 300 * time.Second, "show the generation"},
		{time.Duration(math.MaxInt32) * time.Second, 9 * time.Minute, ""},
		{time.Duration(math.MaxInt32) * time.Second, 10 * time.Minute, "show the generation"},
	} {
		o := observed(t, "a older: resized, not ready|older")
		o.deployment.Spec.ProgressDeadlineSeconds = ptr.To(int32(tt.deadline.Seconds()))
		o.deployment.Generation, o.deployment.Status.ObservedGeneration, o.deployment.Status.ReadyReplicas = 3, 2, 1
		o.Notes = &judge.PodNotes{}
		p, err := planned(o)
		if err != nil || does(p) != "" {
			t.Fatalf("at first it does %q, %v", does(p), err)
		}
		o.Notes.See(p.Verdicts)
		o.Now = o.Now.Add(tt.after)
		if p, err = planned(o); err != nil || does(p) != tt.want || strings.Contains(p.Condition.Details, "the generation counts as observed") != (tt.want != "") {
			t.Errorf("deadline %s, after %s: does %q, %v, want %q, and says %+v", tt.deadline, tt.after, does(p), err, tt.want, p.Condition)
		}
	}
}

// TestNextRevision: it is the number that `kubectl rollout history` has, or will have.
func TestNextRevision(t *testing.T) {
	for sets, want := range map[string]string{
		"a older: older; b other": "3", "a newer was-older: newer": "2", "a older; b other": "3", "a newer; b older": "2", // the last two are scaled to zero
	} {
		o := observed(t, sets)
		must.Equal(t, o.nextRevision(o.base()), want, "%s: the next revision", sets)
	}
}

// TestLetLoose: of a Deployment that is not held, so many pods of older ReplicaSets go as the newest lacks.
func TestLetLoose(t *testing.T) {
	free := func(s *scene) { delete(s.d.Annotations, api.HoldAnnotation) }
	paused := func(s *scene) { s.d.Spec.Paused = true }
	for _, tt := range []struct {
		name, sets string
		changes    []change
		want       int
	}{
		{name: "held", sets: "a older: older|older; b newer: newer"},
		{name: "paused", sets: "a older: older|older; b newer: newer", changes: []change{free, paused}},
		{name: "half done", sets: "a older: older|older; b newer: newer", changes: []change{free}, want: 2},
		{name: "one more is asked for", sets: "a older: older|older; b newer 1:", changes: []change{free}, want: 2},
		{name: "all are asked for", sets: "a older 0: older|older; b newer 3: newer", changes: []change{free}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := observed(t, tt.sets, tt.changes...).LetLoose(); len(got) != tt.want {
				t.Errorf("%d go, want %d: %+v", len(got), tt.want, got)
			}
		})
	}
}

// FuzzPlan: under LiveResize no plan lets go of a pod that differs only in its size, whatever
// state the pods are in. The Deployment controller replaces those of other ReplicaSets than the
// one that has the Deployment's template.
func FuzzPlan(f *testing.F) {
	build.AddSeeds(f)
	situations := []string{
		"older", "newer", "other", "limited", "resizing", "resized", "infeasible", "deferred", "of other", "resized by others", "of admission",
		"left with a limit", "terminating", "failed", "not yet scheduled", "with a deletion cost", "older, not ready", "resized, not ready", "infeasible, not ready",
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		rapid.MakeFuzz(func(r *rapid.T) {
			pods := strings.Join(rapid.SliceOfN(rapid.SampledFrom(situations), 1, 5).Draw(r, "pods"), "|")
			sets := rapid.SampledFrom([]string{
				"a older: %s", "a older 6: %s", "a older: %s; b other", "a older: %s; b image", "a older: %s; b image: image",
				"a newer was-older: %s", "a newer was-older: %s; b older", "a newer was-older acknowledged: %s; b older",
				"a newer was-older closed: %s; b older", "a newer: %s; b older",
			}).Draw(r, "sets")
			adopted := !strings.HasPrefix(sets, "a older")
			sets = fmt.Sprintf(sets, pods)
			changes := []change{inForce("LiveResize;")}
			if rapid.Bool().Draw(r, "bounds") {
				changes = append(changes, bounds(int32(rapid.IntRange(0, 2).Draw(r, "surge")), int32(rapid.IntRange(0, 2).Draw(r, "unavailable"))))
			}
			changes = append(changes, build.Those([]change{recreate, lagging, minReady, failing, restartsContainer}, func(change) bool {
				return rapid.IntRange(0, 3).Draw(r, "changed") == 0
			})...)
			o := observed(t, sets, changes...)
			p := must.Get(planned(o))(t)
			for _, write := range p.Writes {
				switch w := write.(type) {
				case evict, detach:
					t.Errorf("%s: the plan is to %s", sets, does(p))
				case rollout.Release:
					if !adopted {
						t.Errorf("%s: the plan (%s) lets go while the pods are of another template", sets, w)
					}
				}
			}
		})(t, input)
	})
}

// TestSortAsActivePods: of pods of one node and without a cost, the order is that of kubectl and
// of the ReplicaSet controller.
func TestSortAsActivePods(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods := rapid.SliceOfN(rapid.Custom(drawPod), 0, 8).Draw(t, "pods")
		want := slices.Clone(pods)
		slices.SortStableFunc(want, func(a, b *corev1.Pod) int {
			less := func(a, b *corev1.Pod) bool { return podutils.ActivePods([]*corev1.Pod{a, b}).Less(0, 1) }
			ready := cmp.Compare(asInt(podutils.IsPodReady(a)), asInt(podutils.IsPodReady(b)))
			return cmp.Or(ready, asInt(less(b, a))-asInt(less(a, b)))
		})
		if sortAsDeleted(pods); !slices.Equal(pods, want) {
			t.Errorf("got\n%+v\nwant\n%+v", ranksOf(pods), ranksOf(want))
		}
	})
}

// TestSortEquals: whatever the order in which pods are listed, equals are sorted alike.
func TestSortEquals(t *testing.T) {
	named := func(name string) *corev1.Pod { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	a, b, c := named("web-a"), named("web-b"), named("web-c")
	for _, pods := range [][]*corev1.Pod{{a, b, c}, {c, b, a}, {b, c, a}} {
		if sortAsDeleted(pods); !slices.Equal(pods, []*corev1.Pod{a, b, c}) {
			t.Errorf("got %s, %s, %s", pods[0].Name, pods[1].Name, pods[2].Name)
		}
	}
}

func ranksOf(pods []*corev1.Pod) []rank {
	ranks := make([]rank, len(pods))
	for i, pod := range pods {
		ranks[i] = rankOf(pod)
		ranks[i].pod = nil
	}
	return ranks
}

func drawPod(t *rapid.T) *corev1.Pod {
	someTime := func() metav1.Time {
		if seconds := rapid.IntRange(0, 2).Draw(t, "seconds"); seconds > 0 {
			return metav1.NewTime(time.Unix(int64(seconds), 0))
		}
		return metav1.Time{}
	}
	someRestarts := func(name string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, RestartCount: rapid.Int32Range(0, 2).Draw(t, "restarts of "+name)}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: someTime()}}
	pod.Spec.NodeName = "node"
	pod.Spec.InitContainers = []corev1.Container{{Name: "setup"}, {Name: "proxy", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
	pod.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{"", corev1.PodPending, corev1.PodUnknown, corev1.PodRunning}).Draw(t, "phase")
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{someRestarts("app"), someRestarts("log")}
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{someRestarts("setup"), someRestarts("proxy")}
	if rapid.Bool().Draw(t, "has no node") {
		pod.Spec.NodeName = ""
	} else {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodReady, LastTransitionTime: someTime(),
			Status: rapid.SampledFrom([]corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}).Draw(t, "Ready"),
		}}
	}
	return pod
}

// TestRefusedByQuota: what a quota does not let come takes no room from others.
func TestRefusedByQuota(t *testing.T) {
	since := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	for message, want := range map[string]metav1.Time{`pods "a-1" is forbidden: exceeded quota: few`: since, "denied": {}} {
		o := observed(t, "a newer 2: resized")
		o.sets[0].Status.Conditions = []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Message: message, LastTransitionTime: since}}
		if _, coming := o.Pods(); len(coming) != 1 || !coming[0].Refused.Equal(want.Time) {
			t.Errorf("%s: to come are %+v", message, coming)
		}
	}
}

// TestFailedTellNothing: a pod that has failed, and may be of the template that its ReplicaSet had before, is no example of what
// admission gives to new ones.
func TestFailedTellNothing(t *testing.T) {
	shows := func(does func(*corev1.Pod)) string {
		o := observed(t, "a newer: of admission")
		does(o.pods[0])
		return fmt.Sprint(o.known().Admission.Shows(o.deployment.template.PodTemplateSpec))
	}
	failed := shows(func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
	if running := shows(func(*corev1.Pod) {}); failed == running {
		t.Errorf("it shows %s, as one that runs does", failed)
	}
}
