package daemonset

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

// The edit of these tests leads from former to newer; the others are of the past.
var (
	former     = version{Image: 1, CPU: 1}
	newer      = version{Image: 1, CPU: 2}
	limited    = version{Image: 1, CPU: 1, Memory: 1} // its limit cannot be removed in place
	otherImage = version{Image: 2, CPU: 1}
)

// defaults are those of the flags.
var defaults = simulated.Defaults

// newPodOn makes the pod of a node that is in one of these situations; nil if there is none.
func newPodOn(t *testing.T, node, situation string) *corev1.Pod {
	t.Helper()
	if situation == "missing" {
		return nil
	}
	type changes = []func(*corev1.Pod)
	wanted, third := templates[newer], templates[version{Image: 1, CPU: 3}]
	justBorn := func(pod *corev1.Pod) { pod.CreationTimestamp = metav1.NewTime(build.Start.Add(6 * time.Second)) }
	is, known := map[string]struct {
		of         version
		generation string
		changes    changes
	}{
		"updated":                                 {newer, "2", nil},
		"updated, just born":                      {newer, "2", changes{justBorn}},
		"updated, terminating":                    {newer, "2", changes{build.Terminating}},
		"updated, not ready":                      {newer, "2", changes{build.NotReady}},
		"relabelled":                              {newer, "1", changes{build.RelabelledAt(build.Start.Add(6 * time.Second))}},
		"relabelled long ago":                     {newer, "1", changes{build.RelabelledAt(build.Start.Add(-time.Minute))}},
		"updated, not ready since it was resized": {newer, "1", changes{build.NotReady, build.ResizedAt(build.Start)}},
		"left with another cpu":                   {newer, "2", changes{build.Resized(third), build.Ours(build.CPURequest)}},
		"left with a limit":                       {newer, "2", changes{build.Resized(templates[version{Image: 1, CPU: 2, Memory: 1}]), build.Ours(build.MemoryLimit)}},
		"refused another cpu":                     {newer, "2", changes{build.WithSize(third), build.Ours(build.CPURequest), build.ResizedAt(build.Start), build.Condition(corev1.PodResizePending, corev1.PodReasonInfeasible, "too big")}},
		"boosted": {newer, "1", changes{build.Ours(build.CPURequest), func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{"vpaCpuStartupBoost/app": `{"requests":{"cpu":"1m"},"limits":{}}`}
		}}},
		"resized by others":           {newer, "2", changes{build.Resized(third)}},
		"updated, given a limit":      {newer, "2", changes{build.Resized(templates[version{Image: 1, CPU: 2, Memory: 1}])}},
		"live":                        {former, "1", nil},
		"live, just born":             {former, "1", changes{justBorn}},
		"live, left with another cpu": {former, "1", changes{build.Resized(third), build.Ours(build.CPURequest)}},
		"live, refused another cpu":   {former, "1", changes{build.WithSize(third), build.Ours(build.CPURequest), build.ResizedAt(build.Start), build.Condition(corev1.PodResizePending, corev1.PodReasonInfeasible, "too big")}},
		"live, not ready":             {former, "1", changes{build.NotReady}},
		"live, counted":               {former, "2", nil}, // by a set of this name that was deleted
		"other image, counted":        {otherImage, "2", nil},
		"unmarked":                    {former, "", nil},
		"updated, unmarked":           {newer, "", nil},
		"resizing":                    {former, "1", changes{build.WithSize(wanted)}},
		"resized":                     {former, "1", changes{build.Resized(wanted)}},
		"resized, counted":            {former, "2", changes{build.Resized(wanted)}},
		"deferred":                    {former, "1", changes{build.WithSize(wanted), build.Condition(corev1.PodResizePending, corev1.PodReasonDeferred, "no room")}},
		"infeasible":                  {former, "1", changes{build.WithSize(wanted), build.Condition(corev1.PodResizePending, corev1.PodReasonInfeasible, "too big")}},
		"infeasible, not ready":       {former, "1", changes{build.WithSize(wanted), build.NotReady, build.Condition(corev1.PodResizePending, corev1.PodReasonInfeasible, "too big")}},
		"limited":                     {limited, "1", nil},
		"other image":                 {otherImage, "1", nil},
		"terminating":                 {former, "1", changes{build.Terminating}},
		"failed":                      {former, "1", changes{func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }}},
		"unknown":                     {former, "1", nil},
		"unscheduled":                 {newer, "2", changes{build.NotReady}},
	}[situation]
	if !known {
		t.Fatalf("no such situation: %s", situation)
	}
	pod := build.Pod("web-"+strings.TrimPrefix(node, "node-"), templates[is.of], is.changes...)
	pod.Labels[appsv1.ControllerRevisionHashLabelKey], pod.Labels[templateGenerationLabel] = is.of.String(), is.generation
	build.PinnedTo(node)(pod)
	pod.Spec.Tolerations = tolerations
	switch situation {
	case "unmarked", "updated, unmarked":
		if is.of == newer {
			pod.Labels[appsv1.ControllerRevisionHashLabelKey] = (&revision{hash: newer.String()}).unmarked()
		}
		delete(pod.Labels, templateGenerationLabel)
	case "unknown":
		pod.Labels[appsv1.ControllerRevisionHashLabelKey] = "gone"
	case "unscheduled":
		pod.Spec.NodeName, pod.Status.Phase = "", corev1.PodPending
	}
	return pod
}

// change is to what a plan is made from.
type change func(*observation)

func ofSet(f func(*appsv1.DaemonSet)) change { return func(o *observation) { f(o.set) } }

var (
	notHeld   = ofSet(func(set *appsv1.DaemonSet) { letGo(set) })
	userWaits = ofSet(func(set *appsv1.DaemonSet) {
		delete(set.Annotations, api.HoldAnnotation)
		set.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
	})
	minReady = ofSet(func(set *appsv1.DaemonSet) { set.Spec.MinReadySeconds = 20 })
	lagging  = ofSet(func(set *appsv1.DaemonSet) { set.Status.UpdatedNumberScheduled-- })
)

func letGo(set *appsv1.DaemonSet) {
	delete(set.Annotations, api.HoldAnnotation)
	set.Spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
}

func maxUnavailable(n string) change {
	return ofSet(func(set *appsv1.DaemonSet) {
		set.Spec.UpdateStrategy.RollingUpdate = rollingUpdate(intstr.Parse(n), intstr.FromInt32(0)).RollingUpdate
	})
}

func maxSurge(n string) change {
	return ofSet(func(set *appsv1.DaemonSet) {
		set.Spec.UpdateStrategy.RollingUpdate = rollingUpdate(intstr.FromInt32(0), intstr.Parse(n)).RollingUpdate
	})
}

func inForce(value string) change {
	return ofSet(func(set *appsv1.DaemonSet) { set.Annotations[api.InForceAnnotation] = value })
}

// node changes that of a number.
func node(i int, change func(*corev1.Node)) change {
	return func(o *observation) { change(o.Places.Node(nodeName(i))) }
}

// nodes returns those of a plan, in the order of their numbers.
func nodes(o *observation) (all []*corev1.Node) {
	for node := o.Places.Node(nodeName(0)); node != nil; node = o.Places.Node(nodeName(len(all))) {
		all = append(all, node)
	}
	return all
}

func lost(i int) change {
	return node(i, func(node *corev1.Node) { node.Status.Conditions[0].Status = corev1.ConditionUnknown })
}

func small(i int) change {
	return node(i, func(node *corev1.Node) { node.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("1m") })
}

// misscheduled: the pod of the node may stay, and no other may come.
func misscheduled(i int) change {
	return func(o *observation) {
		o.Places.Node(nodeName(i)).Spec.Taints = []corev1.Taint{{Key: foreign, Effect: corev1.TaintEffectNoSchedule}}
		o.set.Status.NumberMisscheduled++
		o.set.Status.DesiredNumberScheduled--
		o.set.Status.CurrentNumberScheduled--
		for _, pod := range o.pods {
			if capacity.TargetNode(pod) == nodeName(i) && o.labelled(pod) {
				o.set.Status.UpdatedNumberScheduled--
			}
		}
	}
}

// givenUp is an edit to the size of the pods that are left with another cpu.
func givenUp(o *observation) {
	o.revisions["given-up"] = &revision{name: "given-up", template: &hash.Template{PodTemplateSpec: templates[version{Image: 1, CPU: 3}]}}
}

// observed is what a plan is made from: the situations of the nodes 0, 1, …; of a node with several
// pods they are joined by +, the oldest first. The set is held.
func observed(t *testing.T, places string, changes ...change) observation {
	t.Helper()
	set := webSet(newer)
	set.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	set.Annotations[api.HoldAnnotation], set.Annotations[appsv1.DeprecatedTemplateGeneration] = "RollingUpdate", "2"
	o := observation{Facts: rollout.Facts{Defaults: defaults, Now: build.Start.Add(10 * time.Second)}, history: &history{}, set: set}
	var stored []appsv1.ControllerRevision
	for i, v := range []version{former, limited, otherImage, newer} {
		of := set.DeepCopy()
		of.Spec.Template = *templates[v]
		stored = append(stored, *newRevision(t, of, v.String(), int64(1+i)))
	}
	o.read(set, &set.Spec.Template, stored)
	var nodes []*corev1.Node
	for i, situations := range strings.Split(places, "|") {
		nodes = append(nodes, newNode(i))
		for nth, situation := range strings.Split(situations, "+") {
			pod := newPodOn(t, nodeName(i), situation)
			if pod == nil {
				continue
			}
			if nth > 0 {
				pod.Name += fmt.Sprintf("-%d", nth)
				pod.UID += "-again"
				pod.CreationTimestamp = metav1.NewTime(pod.CreationTimestamp.Add(time.Second))
			}
			o.pods = append(o.pods, pod)
			if nth == 0 {
				set.Status.CurrentNumberScheduled++
				set.Status.UpdatedNumberScheduled += int32(asInt(o.labelled(pod)))
				set.Status.NumberAvailable += int32(asInt(o.available(pod)))
			}
		}
		set.Status.DesiredNumberScheduled++
	}
	o.Places, o.Notes = capacity.NewPlaces(nodes, false, capacity.Limits{}), &judge.PodNotes{}
	for _, change := range changes {
		change(&o)
	}
	for _, pod := range o.pods { // the clocks do not differ
		o.Notes.Look(cmp.Or(judge.Relabelled(pod), build.Start), pod)
	}
	return o
}

// does names what a plan does.
func does(p rollout.Plan) string {
	return simulated.InWords(p, func(w rollout.Write, say func(does string, names ...string)) {
		say("unmark", w.(unmark).member.Name)
	})
}

// planned is what the plan of o does.
func planned(o observation) (rollout.Plan, error) {
	return simulated.Planned(o.Facts, o, o.set.Annotations)
}

func TestNextStep(t *testing.T) {
	const image = "the template changed in spec.containers[app].image"
	tests := []struct {
		name    string
		places  string
		changes []change
		want    string
		after   time.Duration
	}{
		{name: "live: one goes first, and alone", places: "live|live|live", want: "resize web-0"},
		{name: "live: once it is resized it is settled, and the next one starts", places: "resized|live|live", want: "mark web-0, resize web-1"},
		{name: "live: with maxUnavailable 2, two at once, once one has the size", places: "updated|live|live|live", changes: []change{maxUnavailable("2")}, want: "resize web-1 web-2"},
		{name: "live: a percentage is rounded up, as the DaemonSet controller does", places: "updated|updated|live|live|live", changes: []change{maxUnavailable("30%")}, want: "resize web-2 web-3"},
		{name: "live: with maxSurge, so many may be under way, and none has to go down", places: "updated|updated|live|live|live", changes: []change{maxSurge("40%")}, want: "resize web-2 web-3"},
		{name: "live: a value that says nothing is 1", places: "updated|updated|live|live|live", changes: []change{maxUnavailable("0%")}, want: "resize web-2"},

		{name: "done: but not one that its size may have harmed", places: "updated, not ready since it was resized|updated"},
		{name: "done: while there is one, nobody else is restarted", places: "updated, not ready since it was resized|other image"},

		{name: "order: what is not available goes first", places: "live|live|live, not ready", want: "resize web-2"},

		{name: "done: the hold is let go", places: "updated|updated", want: "release"},
		{name: "done: not before a startup booster is", places: "updated|boosted"},
		{name: "done: not before the DaemonSet controller counts what we do", places: "updated|updated", changes: []change{lagging}},
		{name: "done: not where a pod without a hash of the history is left", places: "updated|unknown", want: `release, hand over: its revision "gone" is not in the history`},
		{name: "done: a pod that is not available is waited for by nobody", places: "updated|updated, not ready", want: "release"},

		{name: "restart: each by itself, beside those that are resized", places: "updated|infeasible|live", changes: []change{maxUnavailable("2")}, want: "resize web-2, delete web-1"},
		{name: "restart: where nothing is left to be resized, the DaemonSet controller does it", places: "updated|other image|infeasible", want: "release, hand over: " + image},
		{name: "restart: but not of a pod that it takes for updated", places: "updated|other image|other image, counted", want: "delete web-1"},
		{name: "restart: of a pod whose limit cannot be taken away", places: "limited|live|updated", changes: []change{maxUnavailable("2")}, want: "resize web-1, delete web-0"},
		{name: "restart: of one such pod, which shows whether a new one has the limit, too", places: "limited|limited", changes: []change{maxUnavailable("2")}, want: "delete web-0"},
		{name: "restart: of none if it has", places: "limited|updated, given a limit", want: "resize web-0"},
		{name: "restart: nor if we have set it in another one since", places: "limited|left with a limit|updated, given a limit", want: "resize web-0"},
		{name: "restart: if it has not, the DaemonSet controller does it", places: "limited|limited|updated", want: "release, hand over: app: the memory request is removed, app: the memory limit is removed"},
		{name: "restart: with maxSurge it comes last", places: "other image|live|updated", changes: []change{maxSurge("2")}, want: "resize web-1"},
		{name: "restart: and is the DaemonSet controller's", places: "other image|updated|updated", changes: []change{maxSurge("2")}, want: "release, hand over: " + image},
		{name: "restart: what that takes for updated is unmarked first", places: "other image, counted|other image, counted|updated", changes: []change{maxSurge("2")}, want: "unmark web-0 web-1"},
		{name: "restart: what has its size since it was unmarked is marked again", places: "updated, unmarked|updated", changes: []change{maxSurge("2")}, want: "mark web-0"},
		{name: "restart: the action Restart", places: "live|live", changes: []change{inForce("Restart;")}, want: "release, hand over: the action is Restart"},
		{name: "restart: the policy", places: "live|updated", changes: []change{inForce(";cpu=RestartOnly")}, want: "release, hand over: cpu of app: RestartOnly (annotation cpu)"},

		{name: "contents: a pod that only counts as updated is resized", places: "live, counted|updated", want: "resize web-0"},
		{name: "contents: and then gets the hash", places: "resized, counted|updated", want: "mark web-0"},
		{name: "contents: what an edit that was given up has left is taken back", places: "updated|left with another cpu", changes: []change{givenUp}, want: "resize web-1"},
		{name: "contents: or the pod is restarted", places: "updated|left with a limit", want: "delete web-1"},
		{name: "contents: what others have set stays", places: "updated|resized by others", want: "release"},

		{name: "two pods on a node: both are resized", places: "live+live", want: "resize web-0"},
		{name: "two pods on a node: both have to be done", places: "updated+resized", want: "mark web-0-1"},
		{name: "two pods on a node: one that is about to go does not count", places: "terminating+updated|live", want: "resize web-1"},
		{name: "two pods on a node: nor one that has failed", places: "failed+updated|live", want: "resize web-1"},

		{name: "terminating: others wait for its successor", places: "terminating|live"},
		{name: "terminating: nobody waits for it where all are done", places: "terminating|updated", want: "release"},
		{name: "missing: others wait for it", places: "missing|live"},
		{name: "missing: also where the status does not know", places: "missing|live", changes: []change{ofSet(func(set *appsv1.DaemonSet) { set.Status.CurrentNumberScheduled = 2 })}},
		{name: "missing: it will be of the newest revision", places: "missing|updated", want: "release"},
		{name: "unscheduled: it is of the newest revision", places: "unscheduled|updated", want: "release"},
		{name: "unscheduled: others wait for it", places: "unscheduled|live"},

		{name: "lost: it keeps the hold", places: "live, not ready|updated", changes: []change{lost(0)}},
		{name: "lost: its node is gone", places: "live|live", changes: []change{func(o *observation) { o.Places = capacity.NewPlaces(nodes(o)[1:], false, capacity.Limits{}) }}, want: "resize web-1"},

		{name: "misscheduled: it is relabelled, too", places: "updated|resized", changes: []change{misscheduled(1)}, want: "mark web-1"},
		{name: "misscheduled: it is resized, too", places: "updated|live", changes: []change{misscheduled(1)}, want: "resize web-1"},
		{name: "misscheduled: it is not given up for one that may not come", places: "updated|infeasible", changes: []change{misscheduled(1)}},

		{name: "no room on its node: the pod is kept", places: "infeasible|updated", changes: []change{small(0)}},
		{name: "no room on its node: the pod is kept, and others are restarted", places: "infeasible|infeasible|updated", changes: []change{small(0)}, want: "delete web-1"},
		{name: "no room on its node: the pod is kept, and others are resized", places: "infeasible|live", changes: []change{small(0)}, want: "resize web-1"},
		{name: "no room elsewhere: that is nothing to it", places: "infeasible|live", changes: []change{small(1), maxUnavailable("2")}, want: "resize web-1, delete web-0"},
		{name: "a cordoned node is no obstacle", places: "infeasible|live", changes: []change{maxUnavailable("2"), node(0, func(node *corev1.Node) {
			node.Spec.Unschedulable, node.Spec.Taints = true, []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
		})}, want: "resize web-1, delete web-0"},

		{name: "OnDelete: live, as ever", places: "updated|live|live", changes: []change{userWaits}, want: "resize web-1"},
		{name: "OnDelete: restarts are the user's", places: "infeasible|limited|other image|left with a limit", changes: []change{userWaits}},

		{name: "minReadySeconds: look again when the pod becomes available", places: "updated|live", changes: []change{minReady}, after: 10*time.Second + 100*time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := planned(observed(t, tt.places, tt.changes...))
			simulated.Does(t, p, err, does(p), tt.want)
			simulated.Looks(t, p, tt.after, tt.want, "resize", "mark")
		})
	}
}

// TestDoubt: where the status cannot tell whether the DaemonSet controller has seen all labels, it
// takes time.
func TestDoubt(t *testing.T) {
	gone := ofSet(func(set *appsv1.DaemonSet) { set.Status.CurrentNumberScheduled++ })
	updatedGone := ofSet(func(set *appsv1.DaemonSet) {
		set.Status.CurrentNumberScheduled++
		set.Status.UpdatedNumberScheduled++
	})
	tests := []struct {
		places  string
		changes []change
		counts  bool
		want    time.Duration
	}{
		{places: "relabelled|updated", counts: true},
		{places: "relabelled|updated", changes: []change{lagging}},
		{places: "relabelled|live", counts: true},
		{places: "relabelled|unmarked", counts: true, want: 6 * time.Second},
		{places: "relabelled|terminating", counts: true}, // the DaemonSet controller has never counted it
		{places: "relabelled|updated, terminating", counts: true, want: 6 * time.Second},
		{places: "relabelled|missing", counts: true},
		{places: "relabelled|missing", changes: []change{gone}, counts: true, want: 6 * time.Second},
		{places: "relabelled|live, just born", counts: true, want: 6 * time.Second},
		{places: "relabelled|updated", changes: []change{misscheduled(1)}, counts: true, want: 6 * time.Second},
		{places: "relabelled|updated", changes: []change{misscheduled(0)}, counts: true, want: 6 * time.Second},
		{places: "relabelled|updated|updated", changes: []change{misscheduled(1), lagging, lagging}, want: 6 * time.Second},
		// What is gone is counted still, in place of what is misscheduled.
		{places: "relabelled|missing|updated", changes: []change{misscheduled(0), updatedGone}, counts: true, want: 6 * time.Second},
		{places: "relabelled long ago|missing", changes: []change{gone}, counts: true},
		{places: "relabelled long ago|updated, terminating", counts: true},
		{places: "relabelled+live|updated", counts: true}, // it counts the oldest of a node
		{places: "updated|missing", changes: []change{gone}, counts: true},
	}
	for _, tt := range tests {
		t.Run(tt.places, func(t *testing.T) {
			o := observed(t, tt.places, tt.changes...)
			for _, ahead := range []time.Duration{0, 10 * time.Minute, -20 * time.Minute} { // the API server's clock
				for _, pod := range o.pods {
					build.Late(pod, ahead)
				}
				if counts, wait := o.doubt(); counts != tt.counts || wait != tt.want {
					t.Errorf("counts: %t, and waits for %s; want %t, and %s", counts, wait, tt.counts, tt.want)
				}
			}
			p, err := planned(o)
			if err != nil || (!tt.counts || tt.want > 0) && strings.Contains(does(p), "release") || tt.counts && tt.want > 0 && !p.Hold && p.RequeueAfter != tt.want {
				t.Errorf("planned %s and another look after %s, %v; want no release, and a look after %s", does(p), p.RequeueAfter, err, tt.want)
			}
			must.Equal(t, p.Unacknowledged == "", tt.counts, "nothing is to be acknowledged")
		})
	}
}

func TestNextStepSays(t *testing.T) {
	tests := []struct {
		name     string
		places   string
		changes  []change
		says     string
		reason   string
		complete bool
	}{
		{name: "kept, where its node is too small", places: "infeasible|updated", changes: []change{small(0)}, reason: judge.ReasonNoNodeFits,
			says: "1 of 2 pods resized; web-0: not restarted, because it needs 2m cpu; node node-0, the only one that it can run on, has 1m: infeasible on node node-0: too big"},
		{name: "with maxSurge, others wait with what is kept", places: "infeasible|infeasible|updated", changes: []change{small(1), maxSurge("1")}, reason: judge.ReasonNoNodeFits,
			says: "1 of 3 pods resized; web-0: waits for its restart: infeasible on node node-0: too big; web-1: not restarted, because it needs 2m cpu; node node-1, the only one that it can run on, has 1m: infeasible on node node-1: too big"},
		{name: "lost", places: "live, not ready|updated", changes: []change{lost(0)}, reason: judge.ReasonNodeLost, says: "1 of 2 pods resized; web-0: its node node-0 is not Ready"},
		{name: "OnDelete", places: "other image|updated", changes: []change{userWaits}, reason: judge.ReasonWaitingForDelete,
			says: "1 of 2 pods resized; web-0: restarts when it is deleted: the template changed in spec.containers[app].image"},
		{name: "deferred on several nodes", places: "deferred|deferred|deferred|updated", reason: judge.ReasonDeferred,
			says: "1 of 4 pods resized; web-0: deferred on node node-0: no room; likewise web-1 on node node-1, web-2 on node node-2"},
		{name: "missing", places: "missing|live", reason: judge.ReasonProgressing,
			says: "0 of 1 pods resized; a node without its pod: waiting for the pod to be created"},

		{name: "not held: all are updated", places: "updated|updated", changes: []change{notHeld}, reason: judge.ReasonComplete, says: "all pods are of template generation 2", complete: true},
		{name: "not held: an older revision", places: "updated|live", changes: []change{notHeld}, reason: judge.ReasonProgressing,
			says: "left to the DaemonSet controller, template generation 2: web-1 is of an older revision"},
		{name: "not held: the status is behind", places: "updated|updated", changes: []change{notHeld, lagging}, reason: judge.ReasonProgressing,
			says: "left to the DaemonSet controller, template generation 2: 1 of 2 pods updated, 2 available"},
		{name: "not held: a pod is not available", places: "updated|updated, not ready", changes: []change{notHeld}, reason: judge.ReasonProgressing,
			says: "2 of 2 pods resized; web-1: waiting for the pod to become available"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := must.Get(planned(observed(t, tt.places, tt.changes...)))(t)
			simulated.Says(t, p, tt.says, tt.complete)
			must.Equal(t, p.Condition.Reason, tt.reason, "the reason")
		})
	}
}

// TestNextStepLabelsRefused: admission that changes pods on every update lets nobody unmark one.
func TestNextStepLabelsRefused(t *testing.T) {
	o := observed(t, "other image, counted|updated", maxSurge("1"))
	refusal := judge.Refusal{Reason: "no", Kind: judge.ReasonAdmissionDenied, Until: o.Now.Add(time.Second)}
	o.Notes.Note(o.pods[0].UID).Relabel = &judge.Refused{Refusal: refusal}
	p, err := planned(o)
	if err != nil || does(p) != "" || p.RequeueAfter != time.Second || p.Condition.Reason != judge.ReasonAdmissionDenied ||
		!strings.HasSuffix(p.Condition.Message(), "; its labels cannot be changed: no") {
		t.Errorf("does %q, looks again after %v, says %+v, %v", does(p), p.RequeueAfter, p.Condition, err)
	}
	o.Now = refusal.Until
	must.Equal(t, does(must.Get(planned(o))(t)), "unmark web-0", "what it does later")
}

func TestNextStepNotHeld(t *testing.T) {
	tests := []struct {
		name    string
		places  string
		changes []change
		want    string
	}{
		{name: "all are updated", places: "updated|updated"},
		{name: "an older revision is the DaemonSet controller's to restart", places: "live|left with another cpu"},
		{name: "what an edit that was given up has left is resized back", places: "updated|left with another cpu", want: "resize web-1"},
		{name: "one after the other", places: "left with another cpu|left with another cpu", want: "resize web-0"},
		{name: "where that is impossible, the pod is restarted", places: "updated|left with a limit", want: "delete web-1"},
		{name: "one after the other, too", places: "left with a limit|left with a limit", want: "delete web-0"},
		{name: "with maxSurge they are unmarked", places: "left with a limit|left with a limit", changes: []change{maxSurge("2")}, want: "unmark web-0 web-1"},
		{name: "not with LiveResize", places: "updated|left with a limit", changes: []change{inForce("LiveResize;")}},
		{name: "a pod that only counts as updated is resized", places: "updated|live, counted", want: "resize web-1"},
		{name: "and then gets the hash", places: "updated|resized, counted", want: "mark web-1"},
		{name: "or is restarted", places: "updated|other image, counted", want: "delete web-1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := planned(observed(t, tt.places, append(slices.Clip(tt.changes), notHeld)...))
			simulated.Does(t, p, err, does(p), tt.want)
		})
	}
}

// TestOrder: pods that are not available come first, then one of each zone in turn. The place of a
// pod in it, which changes, is nothing that its verdict may depend on: that is kept.
func TestOrder(t *testing.T) {
	for _, tt := range []struct{ places, zones, want string }{
		{"live|live|live", "", "0 1 2"},
		{"live|live|live|live|live", "a|a|a|b|b", "0 3 1 4 2"},
		{"live|live|live|live|live", "b|b|a|a|c", "2 0 4 3 1"},
		{"live|live|live|live", "a||a|", "1 0 3 2"},
		{"live|live|live|live, not ready|infeasible, not ready", "a|a|b|b|a", "3 4 0 2 1"},
		{"live|terminating|failed|missing|live", "", "1 2 0 4"},
		{"live+updated|live", "a|b", "0 1 0-1"},
	} {
		zones := strings.Split(tt.zones, "|")
		o := observed(t, tt.places, func(o *observation) {
			for i, node := range nodes(o) {
				if delete(node.Labels, corev1.LabelTopologyZone); i < len(zones) && zones[i] != "" {
					node.Labels[corev1.LabelTopologyZone] = zones[i]
				}
			}
		})
		p := must.Get(planned(o))(t)
		var got []string
		for _, v := range p.Verdicts {
			got = append(got, strings.TrimPrefix(v.Member.Name, "web-"))
			must.Equal(t, v.Member.Index, 0, "%s in %s: the index of %s", tt.places, tt.zones, v.Member.Name)
		}
		must.Equal(t, strings.Join(got, " "), tt.want, "%s in %s: the order", tt.places, tt.zones)
	}
}

// TestNewSetSettles: a new set is let go when its status has been quiet, as a StatefulSet is.
func TestNewSetSettles(t *testing.T) {
	isNew := func(o *observation) { o.set.Annotations[appsv1.DeprecatedTemplateGeneration] = "1" }
	for _, tt := range []struct {
		name, places string
		changes      []change
		quiet        time.Duration
		want         time.Duration // after which it is looked at again; 0 if it is let go
	}{
		{name: "pods come up", places: "updated|updated, not ready", changes: []change{isNew}, quiet: 500 * time.Millisecond, want: 1500 * time.Millisecond},
		{name: "nothing happens any more", places: "updated|updated, not ready", changes: []change{isNew}, quiet: 2 * time.Second},
		{name: "the last pod has just come", places: "updated|updated", changes: []change{isNew}, quiet: 50 * time.Millisecond, want: 450 * time.Millisecond},
		{name: "all pods are there", places: "updated|updated", changes: []change{isNew}, quiet: 500 * time.Millisecond},
		{name: "others write its status all the time", places: "updated|updated, not ready", changes: []change{isNew, func(o *observation) { o.set.CreationTimestamp.Time = o.Now.Add(-time.Minute) }}},
		{name: "a rollout is over", places: "updated|updated"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := observed(t, tt.places, tt.changes...)
			o.VersionSince = o.Now.Add(-tt.quiet)
			p, err := planned(o)
			want := map[bool]string{true: "release"}[tt.want == 0]
			simulated.Does(t, p, err, does(p), want)
			simulated.Looks(t, p, tt.want, want)
		})
	}
}

// TestFirst: a pod that comes with its node is the first one there.
func TestFirst(t *testing.T) {
	made := metav1.NewTime(build.Start)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", CreationTimestamp: made}}
	o := observation{Facts: rollout.Facts{Places: capacity.NewPlaces([]*corev1.Node{node}, false, capacity.Limits{})}}
	for _, tt := range []struct {
		node string
		at   time.Duration
		want bool
	}{{"node-1", 0, true}, {"node-1", 30 * time.Second, true}, {"node-1", time.Hour, false}, {"node-2", 0, false}} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(made.Add(tt.at))}}
		build.PinnedTo(tt.node)(pod)
		must.Equal(t, o.first(pod), tt.want, "on %s, %s after the node: whether it comes first", tt.node, tt.at)
	}
}

// TestUnwanted: more pods than nodes that want one are to go, but for those that a node keeps that would get none.
func TestUnwanted(t *testing.T) {
	o := observed(t, "updated|updated|updated")
	for misscheduled, want := range []bool{true, false} {
		o.set.Status.DesiredNumberScheduled, o.set.Status.NumberMisscheduled = 2, int32(misscheduled)
		must.Equal(t, o.Unwanted(o.pods[0], o.pods), want, "%d misscheduled: unwanted", misscheduled)
	}
}

// TestLetLoose: of a set that is not held, the pods of older revisions go, unless their user deletes them.
func TestLetLoose(t *testing.T) {
	free := func(o *observation) {
		delete(o.set.Annotations, api.HoldAnnotation)
		o.set.Spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
	}
	byHand := func(o *observation) { o.set.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType }
	for _, tt := range []struct {
		name    string
		changes []change
		want    int
	}{
		{name: "held"},
		{name: "let go", changes: []change{free}, want: 1},
		{name: "OnDelete", changes: []change{free, byHand}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := observed(t, "live|updated|terminating", tt.changes...).LetLoose(); len(got) != tt.want {
				t.Errorf("%d go, want %d: %+v", len(got), tt.want, got)
			}
		})
	}
}

// FuzzPlan: under LiveResize no plan lets go of a pod that differs only in its size, nor deletes one,
// whatever state the pods and nodes are in. Let go of, the DaemonSet controller replaces pods whose
// labels say neither the newest revision nor the template's generation. No plan, whatever the action,
// deletes two available pods of a set of which one may be down, nor one that its node could not hold.
func FuzzPlan(f *testing.F) {
	build.AddSeeds(f)
	situations := []string{
		"updated", "updated, just born", "updated, terminating", "updated, not ready", "relabelled", "relabelled long ago",
		"left with another cpu", "left with a limit", "resized by others", "live", "live, just born", "live, not ready", "live, counted",
		"resizing", "resized", "resized, counted", "deferred", "infeasible", "infeasible, not ready", "limited", "terminating", "failed",
		"unscheduled", "missing", "live+updated", "updated+resized", "terminating+live", "live+terminating",
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		rapid.MakeFuzz(func(r *rapid.T) {
			places := rapid.SliceOfN(rapid.SampledFrom(situations), 1, 5).Draw(r, "places")
			all := []change{maxSurge("1"), lagging, minReady, lost(0), small(0), misscheduled(0), notHeld, userWaits}
			changes := build.Those(all, func(change) bool { return rapid.Bool().Draw(r, "changed") })
			live := rapid.Bool().Draw(r, "LiveResize")
			if live {
				changes = append(changes, inForce("LiveResize;"))
			}
			o := observed(t, strings.Join(places, "|"), changes...)
			p := must.Get(planned(o))(t)
			deleted := 0
			for _, write := range p.Writes {
				switch w := write.(type) {
				case rollout.DeletePod:
					pod := w.Restart.Member.Pod
					if deleted += asInt(o.available(pod)); deleted > 1 {
						t.Errorf("%s: the plan (%s) deletes more than one available pod", places, does(p))
					}
					if live || !rolling(o.set) {
						t.Errorf("%s: the plan deletes %s", places, pod.Name)
					}
					if node := o.Places.Node(capacity.TargetNode(pod)); !runs(node) || node.Status.Allocatable.Cpu().MilliValue() < 2 {
						t.Errorf("%s: the plan deletes %s, which cannot come back to %s", places, pod.Name, node.Name)
					}
				case rollout.Release:
					for _, pod := range o.pods {
						if live && pod.DeletionTimestamp == nil && !terminal(pod) && !o.labelled(pod) {
							t.Errorf("%s: the plan lets go of %s", places, pod.Name)
						}
					}
				}
			}
		})(t, input)
	})
}
