package statefulset

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/revisions"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/simulated"
)

// everything is the partition that holds back every pod.
const everything = 1<<31 - 1

// The edit of these tests leads from older to newer; the others are of the past.
var (
	older      = version{Image: 1, CPU: 1}
	newer      = version{Image: 1, CPU: 2}
	limited    = version{Image: 1, CPU: 1, Memory: 1} // its limit cannot be removed in place
	otherImage = version{Image: 2, CPU: 1}
)

// place makes the pod of one of the situations that a place of the set can be in, or nil.
func place(t *testing.T, set *appsv1.StatefulSet, ordinal int, situation string) *corev1.Pod {
	t.Helper()
	if situation == "missing" {
		return nil
	}
	type changes = []func(*corev1.Pod)
	wanted, third := templates[newer], templates[version{Image: 1, CPU: 3}]
	is, known := map[string]struct {
		of      version
		changes changes
	}{
		"updated":              {newer, nil},
		"updated, terminating": {newer, changes{build.Terminating}},
		"updated, held":        {newer, changes{build.Terminating, func(pod *corev1.Pod) { pod.Finalizers = []string{"example.com/drain"} }}},
		"relabelled":           {newer, changes{build.RelabelledAt(build.Start.Add(6 * time.Second))}},
		"relabelled long ago":  {newer, changes{build.RelabelledAt(build.Start.Add(-time.Minute))}},
		"updated, not ready":   {newer, changes{build.NotReady}},
		"updated, not ready since it was resized":       {newer, changes{build.Resized(wanted), build.NotReady, build.ResizedAt(build.Start)}},
		"resized, not ready":                            {older, changes{build.Resized(wanted), build.NotReady, build.ResizedAt(build.Start)}},
		"updated, resized by others":                    {newer, changes{build.Resized(third)}},
		"updated, resized by others during the rollout": {newer, changes{build.Resized(third), build.ResizedBy("updater", build.Start, build.CPURequest)}},
		"left with another cpu":                         {newer, changes{build.Resized(third), build.Ours(build.CPURequest)}},
		"left with another cpu, not ready":              {newer, changes{build.Resized(third), build.Ours(build.CPURequest), build.NotReady}},
		"left pending":                                  {newer, changes{build.WithSize(third), build.Ours(build.CPURequest), build.Condition(corev1.PodResizePending, corev1.PodReasonDeferred, "no room")}},
		"boosted, and put back":                         {newer, changes{build.Resized(templates[older]), build.ResizedBy("manager", build.Start, build.CPURequest), boosted}},
		"live, resized by others":                       {older, changes{build.Resized(third)}},
		"resized by a recommender":                      {older, changes{build.Resized(wanted), build.ResizedBy("recommender", build.Start.Add(-time.Minute), build.CPURequest)}},
		"left with a limit":                             {newer, changes{build.Resized(templates[version{Image: 1, CPU: 2, Memory: 1}]), build.Ours(build.MemoryLimit)}},
		"updated, given a limit":                        {newer, changes{build.Resized(templates[version{Image: 1, CPU: 2, Memory: 1}])}},
		"limited alone":                                 {version{Image: 1, CPU: 2, Memory: 1}, nil},
		"limited alone, not ready":                      {version{Image: 1, CPU: 2, Memory: 1}, changes{build.NotReady}},
		"live":                                          {older, nil},
		"orphan":                                        {older, nil},
		"orphan, updated":                               {newer, nil},
		"live, just born":                               {older, changes{func(pod *corev1.Pod) { pod.CreationTimestamp = metav1.NewTime(build.Start.Add(6 * time.Second)) }}},
		"live, rejected": {older, changes{build.NotReady, func(pod *corev1.Pod) {
			pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, "OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu"
		}}},
		"live, not ready":        {older, changes{build.NotReady}},
		"resizing":               {older, changes{build.WithSize(wanted)}},
		"resized":                {older, changes{build.Resized(wanted)}},
		"infeasible":             {older, changes{build.WithSize(wanted), build.Condition(corev1.PodResizePending, corev1.PodReasonInfeasible, "too big")}},
		"infeasible, not ready":  {older, changes{build.WithSize(wanted), build.NotReady, build.Condition(corev1.PodResizePending, corev1.PodReasonInfeasible, "too big")}},
		"limited":                {limited, nil},
		"other image":            {otherImage, nil},
		"other image, not ready": {otherImage, changes{build.NotReady}},
		"terminating":            {older, changes{build.Terminating}},
	}[situation]
	if !known {
		t.Fatalf("no such situation: %s", situation)
	}
	pod := build.Pod(fmt.Sprintf("%s-%d", set.Name, ordinal), templates[is.of], is.changes...)
	pod.Labels[appsv1.ControllerRevisionHashLabelKey] = revisionOf(is.of)
	return pod
}

// beganBefore is a rollout that has begun before anything was done to the pods.
func beganBefore(set *appsv1.StatefulSet) {
	set.Status.Conditions = []appsv1.StatefulSetCondition{{
		Type: api.ConditionComplete, Status: corev1.ConditionFalse, Reason: judge.ReasonProgressing, LastTransitionTime: metav1.NewTime(build.Start.Add(-time.Minute)),
	}}
}

// boosted notes on the pod that a startup booster is to put back what it was born to have.
func boosted(pod *corev1.Pod) {
	pod.Annotations = map[string]string{"autoscaling.x-k8s.io/startup-cpu-boost": `{"state":"Active","initCPURequests":{"app":"1m"}}`}
}

func held(wish string, at int) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) {
		set.Annotations[api.HoldAnnotation] = wish
		set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To(int32(at))
	}
}

func startAt5(set *appsv1.StatefulSet) { set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 5} }

func parallel(set *appsv1.StatefulSet) {
	set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
}

func onDelete(set *appsv1.StatefulSet) {
	set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
}

// heldOnDelete is under OnDelete, and edited.
func heldOnDelete(set *appsv1.StatefulSet) {
	onDelete(set)
	set.Annotations[api.HoldAnnotation] = "OnDelete"
}

// currentIsNewest: missing pods are made of the newest revision.
func currentIsNewest(set *appsv1.StatefulSet) { set.Status.CurrentRevision = set.Status.UpdateRevision }

// unseen: the StatefulSet controller counts no pod as updated.
func unseen(set *appsv1.StatefulSet) { set.Status.UpdatedReplicas = 0 }

func recreate(set *appsv1.StatefulSet) {
	set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: "Recreate"} // of 1.37
}

func two(set *appsv1.StatefulSet) {
	set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(2))
}

// says has the annotations say action and policy now; inForce, when the template was edited.
func says(action, resizePolicy string) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) {
		set.Annotations[api.ResizeActionAnnotation], set.Annotations[api.ResizePolicyAnnotation] = action, resizePolicy
	}
}

func inForce(value string) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) { set.Annotations[api.InForceAnnotation] = value }
}

func lagging(set *appsv1.StatefulSet) { set.Status.UpdatedReplicas-- }

func minReady(set *appsv1.StatefulSet) { set.Spec.MinReadySeconds = 20 }

func currentIsOtherImage(set *appsv1.StatefulSet) {
	set.Status.CurrentRevision = revisionOf(otherImage)
}

// defaults are those of the flags.
var defaults = simulated.Defaults

// observed is what a plan is made from, with the highest place first.
func observed(t *testing.T, places string, changes ...func(*appsv1.StatefulSet)) observation {
	t.Helper()
	situations := strings.Split(places, "|")
	o := observation{
		Facts: rollout.Facts{Places: capacity.NewPlaces([]*corev1.Node{simulated.LargeNode()}, false, capacity.Limits{}), Defaults: defaults, Now: build.Start.Add(time.Second * 10)},
		set:   webSet(newer, len(situations)), revisions: allRevisions,
	}
	for _, change := range changes { // the start of the ordinals, among others
		change(o.set)
	}
	o.moved = o.Now
	updated := 0
	for i, situation := range situations {
		pod := place(t, o.set, o.start()+len(situations)-1-i, situation)
		if pod == nil {
			continue
		}
		if strings.HasPrefix(situation, "orphan") {
			o.orphans = append(o.orphans, pod)
			continue
		}
		o.pods = append(o.pods, pod)
		if pod.DeletionTimestamp == nil && label(pod) == revisionOf(newer) {
			updated++
		}
	}
	o.set.Status = appsv1.StatefulSetStatus{
		UpdateRevision: revisionOf(newer), CurrentRevision: revisionOf(older), Replicas: int32(len(o.pods)), UpdatedReplicas: int32(updated),
	}
	for _, change := range changes { // the status
		change(o.set)
	}
	o.Notes = &judge.PodNotes{}
	for _, pod := range o.pods { // the clocks do not differ
		o.Notes.Look(cmp.Or(judge.Relabelled(pod), build.Start), pod)
	}
	return o
}

// does names what a plan does.
func does(p rollout.Plan) string {
	return simulated.InWords(p, func(write rollout.Write, say func(string, ...string)) {
		if w, is := write.(makeOf); is {
			say(map[bool]string{true: "made of the newest", false: "made of the former"}[w.revision == p.Revision.Name])
			return
		}
		if _, is := write.(rollout.ShowGeneration); is {
			say("show the generation")
			return
		}
		w := write.(lowerPartition)
		names := []string{strconv.Itoa(w.to)}
		for i, r := range w.restarts {
			names = append(names, []string{"for ", ""}[min(i, 1)]+r.Member.Name)
		}
		say("partition", names...)
	})
}

// movesPartition reports whether the plan lets the StatefulSet controller touch more pods.
func movesPartition(p rollout.Plan) bool {
	return slices.ContainsFunc(p.Writes, func(write rollout.Write) bool {
		switch write.(type) {
		case lowerPartition, rollout.Release:
			return true
		}
		return false
	})
}

// planned is what the plan of o does.
func planned(o observation) (rollout.Plan, error) {
	return simulated.Planned(o.Facts, o, o.set.Annotations)
}

func TestDoubt(t *testing.T) {
	scaledIn := func(set *appsv1.StatefulSet) { set.Status.Replicas++ }
	tests := []struct {
		places  string
		changes []func(*appsv1.StatefulSet)
		want    time.Duration
	}{
		{places: "relabelled|updated"},
		{places: "relabelled|live"},
		{places: "relabelled|terminating"}, // the StatefulSet controller has never counted it
		{places: "relabelled|updated, terminating", want: 6 * time.Second},
		{places: "relabelled|missing", want: 6 * time.Second},
		{places: "relabelled|live, just born", want: 6 * time.Second},
		{places: "relabelled|updated", changes: []func(*appsv1.StatefulSet){scaledIn}, want: 6 * time.Second},
		{places: "relabelled|relabelled long ago|missing", want: 6 * time.Second},
		{places: "relabelled long ago|missing"},
		{places: "relabelled long ago|updated, terminating"},
		{places: "updated|missing"},
	}
	for _, tt := range tests {
		t.Run(tt.places, func(t *testing.T) {
			o := observed(t, tt.places, append(tt.changes, held("0", everything))...)
			for _, ahead := range []time.Duration{0, 10 * time.Minute, -20 * time.Minute} { // the API server's clock
				for _, pod := range o.pods {
					build.Late(pod, ahead)
				}
				must.Equal(t, o.doubt(), tt.want, "the doubt")
			}
			first := o
			if first.Notes = nil; tt.want > 0 && first.doubt() != revisions.WatchLag {
				t.Errorf("at its first look a controller waits for %s, want %s", first.doubt(), revisions.WatchLag)
			}
			p, err := planned(o)
			if err != nil || movesPartition(p) && tt.want > 0 || tt.want > 0 && p.RequeueAfter != tt.want {
				t.Errorf("planned %s and another look after %s, %v; want nothing, and a look after %s", does(p), p.RequeueAfter, err, tt.want)
			}
		})
	}
}

func TestNextStep(t *testing.T) {
	type changes = []func(*appsv1.StatefulSet)
	all := held("0", everything)
	tests := []struct {
		name    string
		places  string // the highest first
		changes changes
		want    string
		after   time.Duration
	}{
		{name: "live: the highest goes first, and alone", places: "live|live|live", changes: changes{all}, want: "resize web-2"},
		{name: "live: once it is resized it is settled, and the next one starts", places: "resized|live|live", changes: changes{all}, want: "mark web-2, resize web-1"},
		{name: "live: with maxUnavailable 2, two at once, once one has the size", places: "updated|live|live|live", changes: changes{all, two}, want: "resize web-2 web-1"},
		{name: "live: what is down below the partition counts", places: "live|live|live, not ready", changes: changes{held("1", everything)}},
		{name: "live: all but one of two may be down there", places: "updated|live|live|missing", changes: changes{held("1", everything), two}, want: "resize web-2"},
		{name: "live: a recommender has resized the pods, and then written the template: nothing is left but the labels",
			places: "resized by a recommender|resized by a recommender|resized by a recommender", changes: changes{all}, want: "mark web-2 web-1 web-0"},
		{name: "done: the hold is let go", places: "updated|updated", changes: changes{all}, want: "release"},
		{name: "done: not before the StatefulSet controller counts what we do", places: "updated|updated", changes: changes{all, lagging}},
		{name: "partition 2 of the user: the indexes below stay out", places: "live|updated|live|live", changes: changes{held("2", everything)}, want: "resize web-3"},
		{name: "partition 2 of the user: done once the indexes from 2 on are", places: "updated|updated|live|live", changes: changes{held("2", everything)}, want: "release"},
		{name: "a partition of the user above all indexes: let go at once", places: "live|live", changes: changes{held("7", everything)}, want: "release"},
		{name: "ordinals from 5: the partition counts from there", places: "live|updated|live|live", changes: changes{startAt5, held("2", everything)}, want: "resize web-8"},
		{name: "ordinals from 5: the partition counts from there", places: "infeasible|live", changes: changes{startAt5, all}, want: "partition 1 for web-6"},

		{name: "partition: for a restart in the middle the partition is lowered to it", places: "updated|infeasible|live", changes: changes{all}, want: "partition 1 for web-1"},
		{name: "partition: it stays there until the new pod is back", places: "updated|infeasible|live", changes: changes{held("0", 1)}},
		{name: "partition: the new pod is not ready yet", places: "updated|updated, not ready|live", changes: changes{held("0", 1)}},
		{name: "partition: once it is, the next one is resized", places: "updated|updated|live", changes: changes{held("0", 1)}, want: "resize web-0"},
		{name: "partition: restarts that ask for more go one by one", places: "other image|infeasible|limited|live", changes: changes{all}, want: "partition 3 for web-3"},
		{name: "partition: not while a live one above is left", places: "live|infeasible|live", changes: changes{all, two}, want: "resize web-2"},
		{name: "partition: not before the StatefulSet controller has seen the labels above", places: "updated|infeasible|live", changes: changes{all, lagging}},
		{name: "partition: a restart below goes further down", places: "updated|updated|infeasible|live", changes: changes{held("0", 2)}, want: "partition 1 for web-1"},
		{name: "partition: pods that it has let go already are not recorded again", places: "updated|other image|other image|other image|live", changes: changes{held("0", 2)},
			want: "partition 1 for web-1"},
		{name: "partition: those that ask for more go one by one", places: "updated|infeasible|infeasible|infeasible|live", changes: changes{held("0", 2)}, want: "partition 3"},

		{name: "held below the maximum: the pods between the wish and that are resized", places: "updated|updated|live|live", changes: changes{held("0", 2)}, want: "resize web-1"},
		{name: "held below the maximum: done when they are", places: "updated|updated|updated|live", changes: changes{held("1", 2)}, want: "release"},

		{name: "new: no pod is waited for, nor a status that counts them", places: "updated|missing|missing", changes: changes{all, currentIsNewest, lagging}, want: "release"},
		{name: "new: adopted pods are resized", places: "live|live", changes: changes{all, currentIsNewest}, want: "resize web-1"},
		{name: "new: a pod that is about to be adopted keeps the hold", places: "updated|orphan", changes: changes{all, currentIsNewest}},
		{name: "new: one of the newest revision does not", places: "updated|orphan, updated", changes: changes{all, currentIsNewest}, want: "release"},
		{name: "relabelled: a status that lags is waited for, also where the current revision is the newest", places: "relabelled long ago|updated", changes: changes{all, currentIsNewest, lagging}},

		{name: "hand-over: nothing live is left", places: "updated|updated|infeasible", changes: changes{all}, want: "release, hand over: infeasible on node node: too big"},
		{name: "hand-over: not of what asks for more together with others", places: "updated|infeasible|other image", changes: changes{all}, want: "partition 1 for web-1"},
		{name: "hand-over: a template change", places: "other image|other image", changes: changes{all},
			want: "release, hand over: the template changed in spec.containers[app].image"},
		{name: "hand-over: a limit is removed", places: "limited", changes: changes{all}, want: "release, hand over: app: the memory request is removed, app: the memory limit is removed"},
		{name: "hand-over: not from more than one before a new pod shows whether it has the limit, too", places: "limited alone|limited alone", changes: changes{all}, want: "partition 1 for web-1"},
		{name: "hand-over: nor from more than one at a time", places: "limited alone|limited alone", changes: changes{all, two}, want: "partition 1 for web-1"},
		{name: "hand-over: nor as long as another one is to come", places: "limited alone|limited alone|terminating", changes: changes{all, two}},
		{name: "hand-over: but one that is down, before which none is made, waits for nobody", places: "limited alone, not ready|missing|limited alone, not ready", changes: changes{all}, want: "partition 2"},
		{name: "hand-over: nor of the last one", places: "limited alone|terminating", changes: changes{all}},
		{name: "hand-over: nor if it has", places: "updated, given a limit|limited alone", changes: changes{all}, want: "mark web-0"},
		{name: "hand-over: if it has not", places: "updated|limited alone|limited alone", changes: changes{all}, want: "release, hand over: app: the memory request is removed, app: the memory limit is removed"},
		{name: "hand-over: not before the StatefulSet controller counts what we do", places: "updated|other image", changes: changes{all, lagging}},

		{name: "stuck: the partition is lowered first", places: "infeasible, not ready|updated", changes: changes{all}, want: "partition 1"},
		{name: "stuck: what asks for more and is not has its turn later", places: "infeasible, not ready|infeasible|live", changes: changes{all}, want: "partition 2"},
		{name: "rejected: missing pods are made of the newest, instead of what no kubelet lets in", places: "live|live, rejected", changes: changes{all}, want: "made of the newest"},
		{name: "rejected: but not where the user keeps it back", places: "live|live, rejected", changes: changes{held("1", everything)}, want: ""},
		{name: "down below: it waits for nobody, and those above have their turn later", places: "live|live|live, not ready", changes: changes{parallel, all, inForce("Restart;")}, want: "made of the newest"},
		{name: "down below: then it is deleted, and the partition stays above them", places: "live|live|live, not ready", changes: changes{all, currentIsNewest, inForce("Restart;")}, want: "delete web-0"},
		{name: "down below: not while the partition lets them go", places: "live|live|live, not ready", changes: changes{held("0", 1), currentIsNewest, inForce("Restart;")}, want: "partition 3"},
		{name: "down below: not before the StatefulSet controller has seen the labels above", places: "relabelled long ago|live|live|live, not ready", changes: changes{all, currentIsNewest, lagging, inForce("Restart;")}},
		{name: "down below: a template change is not ours to force", places: "live|live|other image, not ready", changes: changes{all, currentIsNewest, inForce("Restart;")}, want: "partition 0 for web-0"},
		{name: "down below: it comes back", places: "live|live|missing", changes: changes{all, currentIsNewest, inForce("Restart;")}},
		{name: "down below: it is waited for", places: "live|live|updated, not ready", changes: changes{all, currentIsNewest, inForce("Restart;")}},
		{name: "down below: where the user keeps pods back, they are let be as long as it needs the partition", places: "live|live|live, not ready|live", changes: changes{held("1", 1), inForce("Restart;")}, want: "delete web-1"},
		{name: "down below: also until it is made again", places: "live|live|missing", changes: changes{held("0", 0), inForce("Restart;")}},
		{name: "down below: then the partition is raised again", places: "live|live|updated, not ready", changes: changes{held("0", 0), inForce("Restart;")}, want: "partition 3"},
		{name: "stuck: then the pod is deleted", places: "infeasible, not ready|updated", changes: changes{held("0", 1)}, want: "delete web-1"},
		{name: "stuck: a Parallel set gets along by itself", places: "infeasible, not ready|updated", changes: changes{parallel, all}, want: "release, hand over: infeasible on node node: too big"},
		{name: "stuck: a template change is not ours to force", places: "other image, not ready|updated", changes: changes{all},
			want: "release, hand over: the template changed in spec.containers[app].image"},

		{name: "boosted: what is put back is asked for once more", places: "updated|boosted, and put back", changes: changes{all, beganBefore}, want: "resize web-0"},

		{name: "A→C→A: what C left is resized back", places: "updated|left with another cpu", changes: changes{all}, want: "resize web-0"},
		{name: "A→C→A: or needs a new pod, where the policy does not let what C left change", places: "updated|left with another cpu",
			changes: changes{held("0", 0), inForce(";cpu:decrease=RestartOnly")}, want: "delete web-0"},
		{name: "A→C→A: what C only asked for, and is not in force, is taken back", places: "updated|left pending",
			changes: changes{all, inForce(";cpu=RestartOnly")}, want: "resize web-0"},
		{name: "a pod that somebody else has resized is restarted, where the policy does not let that change", places: "live, resized by others|live",
			changes: changes{all, inForce(";cpu:decrease=RestartOnly")}, want: "partition 1 for web-1"},
		{name: "and the others are not", places: "live|live, resized by others",
			changes: changes{all, inForce(";cpu:decrease=RestartOnly")}, want: "resize web-1"},
		{name: "A→C→A: what cannot be taken back needs a new pod; the partition first", places: "updated|left with a limit", changes: changes{all}, want: "partition 0"},
		{name: "A→C→A: then we delete it, since it carries the label", places: "updated|left with a limit", changes: changes{held("0", 0)}, want: "delete web-0"},
		{name: "A→C→A: one at a time", places: "left with a limit|left with a limit", changes: changes{held("0", 0)}, want: "delete web-1"},
		{name: "a size that somebody else has set is left alone", places: "updated|updated, resized by others", changes: changes{all}, want: "release"},

		{name: "missing below the partition: it will be born old, and resized", places: "missing|live", changes: changes{all}},
		{name: "missing below the partition, to be born with another image: handed over", places: "missing|other image", changes: changes{all, currentIsOtherImage},
			want: "release, hand over: the template changed in spec.containers[app].image"},
		{name: "missing at the partition: it will be born new, and is waited for", places: "missing|live", changes: changes{held("0", 1)}},

		{name: "exposed: the partition is raised again", places: "updated|live|live", changes: changes{held("0", 0)}, want: "resize web-1, partition 2"},
		{name: "exposed: not for pods that need a restart", places: "other image|live", changes: changes{held("0", 1)}},
		{name: "exposed: a pod that is being restarted is not, or its place would be born old", places: "terminating|live", changes: changes{held("0", 1)}},
		{name: "exposed: raised even while the StatefulSet controller lags", places: "updated|live", changes: changes{held("0", 0), lagging}, want: "resize web-0, partition 1"},

		{name: "action Restart: for more, one by one", places: "live|live", changes: changes{all, inForce("Restart;")}, want: "partition 1 for web-1"},
		{name: "action Restart: the last one is handed over", places: "updated|live", changes: changes{all, inForce("Restart;")}, want: "release, hand over: the action is Restart"},
		{name: "action Restart: a stuck pod is deleted", places: "live, not ready|updated", changes: changes{held("0", 1), inForce("Restart;")}, want: "delete web-1"},
		{name: "action LiveResize: what is left is held for ever", places: "infeasible|limited|updated", changes: changes{all, inForce("LiveResize;")}},
		{name: "policy RestartOnly for what changes: for more, one by one", places: "live|live", changes: changes{all, inForce(";cpu=RestartOnly")}, want: "partition 1 for web-1"},
		{name: "in force: an action that is said later waits for the next edit", places: "live|live", changes: changes{all, inForce(";"), says("Restart", "cpu=RestartOnly")}, want: "resize web-1"},
		{name: "in force: an action that is taken back later stays", places: "live", changes: changes{all, inForce("Restart;")}, want: "release, hand over: the action is Restart"},
		{name: "in force: wins over what the annotations say now", places: "infeasible|live", changes: changes{all, inForce("LiveResize;"), says("Restart", "cpu=RestartOnly")}, want: "resize web-0"},
		{name: "in force: wins over a malformed annotation", places: "live", changes: changes{all, inForce("Restart;"), says("Rstart", "")}, want: "release, hand over: the action is Restart"},
		{name: "in force but malformed: what is said now counts", places: "live", changes: changes{all, inForce("Rstart;"), says("Restart", "")}, want: "release, hand over: the action is Restart"},

		{name: "OnDelete: live pods are resized, and restarts wait for the user", places: "other image|live|infeasible", changes: changes{onDelete}, want: "resize web-1"},
		{name: "OnDelete: nothing ever moves a partition", places: "other image|limited", changes: changes{onDelete}},
		{name: "OnDelete: what can be resized keeps the hold", places: "other image|live|infeasible", changes: changes{heldOnDelete}, want: "resize web-1"},
		{name: "OnDelete: and while it is resized", places: "other image|resizing|infeasible", changes: changes{heldOnDelete}},
		{name: "OnDelete: and until it is relabelled", places: "other image|resized|infeasible", changes: changes{heldOnDelete}, want: "mark web-1"},
		{name: "OnDelete: and until that is seen", places: "other image|relabelled|infeasible", changes: changes{heldOnDelete, unseen}},
		{name: "OnDelete: what waits to be deleted takes it away", places: "other image|relabelled|infeasible", changes: changes{heldOnDelete}, want: "release"},
		{name: "OnDelete: and what is left as it is", places: "relabelled|infeasible", changes: changes{heldOnDelete, inForce("LiveResize;")}, want: "release"},
		{name: "OnDelete: and when all are updated", places: "relabelled|relabelled", changes: changes{heldOnDelete}, want: "release"},
		{name: "OnDelete: a pod that is not there comes of the new template", places: "missing|infeasible", changes: changes{heldOnDelete}, want: "release"},
		{name: "OnDelete: what C left and cannot be taken back is not deleted", places: "left with a limit", changes: changes{onDelete}},

		{name: "minReadySeconds: look again when the pod becomes available", places: "updated|live", changes: changes{all, minReady}, after: 10*time.Second + 100*time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := observed(t, tt.places, tt.changes...)
			p, err := planned(o)
			simulated.Does(t, p, err, does(p), tt.want)
			simulated.Looks(t, p, tt.after, tt.want, "resize", "mark")
			must.Equal(t, p.Unacknowledged != "", policy.Held(o.set) && !o.caughtUp(), "waits for the StatefulSet controller to count pods")
		})
	}
}

// TestNextStepShowsTheGeneration: an operator may wait for the generation before it makes pods Ready, and the hold waits for the pods.
func TestNextStepShowsTheGeneration(t *testing.T) {
	notReady := func(set *appsv1.StatefulSet) {
		set.Generation, set.Status.ObservedGeneration, set.Status.ReadyReplicas = 3, 2, set.Status.Replicas-1
	}
	guarded := func(set *appsv1.StatefulSet) { set.Annotations[api.CanaryAnnotation] = "1" }
	const shown = "show the generation"
	for _, tt := range []struct {
		what, places string
		changes      []func(*appsv1.StatefulSet)
		after        time.Duration
		helped       bool
		want         string
	}{
		{what: "a resized pod, before its deadline", places: "updated, not ready since it was resized|live", after: 9 * time.Minute},
		{what: "a resized pod", places: "updated, not ready since it was resized|live", after: 10 * time.Minute, want: shown},
		{what: "a pod that was lost", places: "updated, not ready|live", after: 10 * time.Minute, want: shown},
		{what: "nothing is left to resize", places: "updated|updated, not ready since it was resized", after: 10 * time.Minute, want: shown},
		{what: "it has helped before", places: "updated, not ready since it was resized|live", after: 10 * time.Second, helped: true, want: shown},
		{what: "it is shown already", places: "updated, not ready|live", after: 10 * time.Minute, changes: []func(*appsv1.StatefulSet){func(set *appsv1.StatefulSet) { set.Status.ObservedGeneration = 3 }}},
		{what: "all are Ready by now", places: "updated, not ready|live", after: 10 * time.Minute, changes: []func(*appsv1.StatefulSet){func(set *appsv1.StatefulSet) { set.Status.ReadyReplicas++ }}},
		{what: "marked under OnDelete", places: "updated, not ready|live", after: 4 * time.Minute, changes: []func(*appsv1.StatefulSet){heldOnDelete}},
		{what: "a canary, before it fails", places: "resized, not ready|live", after: 30 * time.Second, changes: []func(*appsv1.StatefulSet){guarded}, want: shown},
	} {
		t.Run(tt.what, func(t *testing.T) {
			o := observed(t, tt.places, append([]func(*appsv1.StatefulSet){notReady}, tt.changes...)...)
			if rolling(o.set) {
				held("0", everything)(o.set)
			}
			o.Notes.Helped = tt.helped
			p, err := planned(o)
			if err != nil || slices.Contains(strings.Split(does(p), ", "), shown) {
				t.Fatalf("at first it does %q, %v", does(p), err)
			}
			o.Notes.See(p.Verdicts)
			o.Now = o.Now.Add(tt.after)
			p = must.Get(planned(o))(t)
			must.Equal(t, does(p), tt.want, "what it does")
			if says := strings.Contains(p.Condition.Details, "the generation counts as observed"); tt.want != "" && !says {
				t.Errorf("it says %+v", p.Condition)
			}
		})
	}
}

func TestNextStepAfterRefusal(t *testing.T) {
	for final, want := range map[bool]string{true: "partition 1 for web-1", false: ""} {
		o := observed(t, "live|live", held("0", everything))
		changes := resize.Between(templates[older], templates[newer])
		refusal := judge.Refusal{Of: o.revision().Size(changes), Reason: "node too small", Final: final, Until: o.Now}
		refused := &judge.Refused{Refusal: refusal}
		o.Notes.Note(o.pods[0].UID).Size = refused
		due := map[bool]string{true: want, false: "resize web-1"}[final] // what is final is not asked again
		must.Equal(t, does(must.Get(planned(o))(t)), due, "final %t, when the time has come to ask again", final)
		refused.Until = o.Now.Add(time.Second)
		p := must.Get(planned(o))(t)
		must.Equal(t, does(p), want, "final %t", final)
		must.Equal(t, p.RequeueAfter, time.Second, "final %t: when it looks again", final)
		others := []string{revisionOf(newer) + " of another edit", revisionOf(otherImage) + " " + resize.Describe(changes)}
		for _, size := range others {
			refused.Refusal.Of = size
			must.Equal(t, does(must.Get(planned(o))(t)), "resize web-1", "a refusal of %q", size)
		}
	}
}

// TestHoldUnderOnDeleteIsBounded: whatever pods wait for, the hold of a set under OnDelete goes when none has got its size for too long.
func TestHoldUnderOnDeleteIsBounded(t *testing.T) {
	for _, tt := range []struct {
		places  string
		changes []func(*appsv1.StatefulSet)
		within  time.Duration
	}{
		{"resizing|live", nil, 10 * time.Minute},
		{"missing|live", nil, 10 * time.Minute},
		{"updated, not ready|live", nil, 10 * time.Minute},
		{"relabelled|resizing", []func(*appsv1.StatefulSet){unseen}, 10 * time.Minute},
		{"resizing|live", []func(*appsv1.StatefulSet){minReady}, 10*time.Minute + 20*time.Second},
	} {
		for over, want := range map[bool]string{false: "", true: "release, hand over: no pod has got its size for " + tt.within.String() + ", so the rollout is left to whoever deletes pods"} {
			o := observed(t, tt.places, append(tt.changes, heldOnDelete)...)
			o.moved = o.Now.Add(-tt.within)
			if !over {
				o.moved = o.moved.Add(time.Second)
			}
			p, err := planned(o)
			if err != nil || over != strings.Contains(does(p), "release") || over && does(p) != want {
				t.Errorf("%s, over: %t: got %q, %v", tt.places, over, does(p), err)
			}
			if !over && p.RequeueAfter > time.Second || p.RequeueAfter == 0 && !over {
				t.Errorf("%s: looks again after %v, want a second at most", tt.places, p.RequeueAfter)
			}
		}
	}
}

// TestMarkOfInvalidAnnotations: nothing is done then, and nobody waits for ever.
func TestMarkOfInvalidAnnotations(t *testing.T) {
	for over, want := range map[bool]string{false: "", true: "release, hand over: no pod has got its size for 10m0s, so the rollout is left to whoever deletes pods"} {
		for _, change := range []func(*appsv1.StatefulSet){heldOnDelete, onDelete, held("0", everything)} {
			o := observed(t, "live|live", change, inForce("Live;"), says("Live", ""))
			if o.moved = o.Now.Add(-10 * time.Minute); !over {
				o.moved = o.moved.Add(time.Second)
			}
			p, err := o.Facts.Plan(o, o.set.Annotations)
			want := want
			if rolling(o.set) || !policy.Held(o.set) { // is not held
				want = ""
			}
			if got := does(p); err != nil || got != want {
				t.Errorf("over %t, %v: got %q, %v", over, o.set.Annotations, got, err)
			}
			if !over && p.Condition.Reason != judge.ReasonInvalidPolicy {
				t.Errorf("%v: it says %+v", o.set.Annotations, p.Condition)
			}
		}
	}
}

// TestNextStepDeadlocks lists what only people can get going again. An OrderedReady set
// neither makes nor restarts any pod while one is not Ready. Only a restart can help that
// one, and the restart waits for the pods above it.
func TestNextStepDeadlocks(t *testing.T) {
	for _, tt := range []struct {
		name, places string
		at           int
	}{
		{"the place above is empty", "missing|infeasible, not ready", everything},
		{"a restart above takes the limit, and what is between waits for it", "infeasible|live|infeasible, not ready", everything},
	} {
		p := must.Get(planned(observed(t, tt.places, held("0", tt.at))))(t)
		must.Equal(t, does(p), "", "%s: what it does (if that helps, let the simulation expect it)", tt.name)
	}
	for places, of := range map[string][]func(*appsv1.StatefulSet){
		"infeasible, not ready|live, not ready":    {held("1", 1)}, // the partition keeps it back
		"infeasible, not ready|updated, not ready": {held("0", 1)}, // it has its size
	} {
		p, err := planned(observed(t, places, of...))
		if says := p.Condition.Message(); err != nil || does(p) != "" || !strings.Contains(says, "web-1: not restarted before web-0 is available: web-1 would not come back") {
			t.Errorf("%s: does %q, says %q, and %v", places, does(p), says, err)
		}
	}
	p := must.Get(planned(observed(t, "infeasible, not ready|live, not ready", held("0", 1))))(t)
	must.Equal(t, does(p), "resize web-0", "behind one that is resized now")
}

// saidOf has the condition be so, and speak of that.
func saidOf(status corev1.ConditionStatus, said string) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) {
		set.Status.Conditions = []appsv1.StatefulSetCondition{{Type: api.ConditionComplete, Status: status}}
		set.Annotations[api.SaidOfAnnotation] = said
	}
}

// TestNextStepNotHeld: before a set that is not held is Complete, its pods are looked at.
func TestNextStepNotHeld(t *testing.T) {
	at := func(partition int32) func(*appsv1.StatefulSet) {
		return func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To(partition) }
	}
	available := func(set *appsv1.StatefulSet) { set.Status.AvailableReplicas = int32(replicas(set)) }
	complete := saidOf(corev1.ConditionTrue, "Over;revision web-i1c1m0;")
	const newest = " are of revision web-i1c2m0"
	const left = "left to the StatefulSet controller: "
	type changes = []func(*appsv1.StatefulSet)
	for _, tt := range []struct {
		name, places string
		changes      changes
		want         string // what is done
		says         string
		complete     bool
	}{
		{name: "all are updated", places: "updated|updated", says: "all pods" + newest, complete: true},
		{name: "an older revision", places: "updated|other image", says: left + "web-0 is of an older revision"},
		{name: "the highest is named", places: "live|other image", says: left + "web-1 is of an older revision"},
		{name: "a terminating pod", places: "updated, terminating|updated", says: "1 of 2 pods resized; web-1: terminating"},
		{name: "one that a finalizer holds", places: "updated, held|updated", says: "1 of 2 pods resized; web-1: terminating, held by finalizer example.com/drain"},
		{name: "no pod", places: "missing|updated", says: "1 of 2 pods resized; web-1: waiting for the pod to be created"},
		{name: "not Ready", places: "updated, not ready|updated", says: "2 of 2 pods resized; web-1: waiting for the pod to become available"},
		{name: "Ready for less than minReadySeconds", places: "updated", changes: changes{minReady}, says: "1 of 1 pods resized; web-0: waiting for the pod to become available"},
		{name: "the status is behind", places: "updated|updated", changes: changes{lagging}, says: left + "1 of 2 pods updated, 2 available"},
		{name: "below the partition", places: "updated|missing|live|other image", changes: changes{at(3)}, says: "the pods from 3 on" + newest + "; partition 3 keeps the others as they are", complete: true},
		{name: "ordinals from 5", places: "updated|live|live", changes: changes{startAt5, at(1)}, says: left + "web-6 is of an older revision"},
		{name: "a partition above all", places: "live|live", changes: changes{at(9)}, says: "the pods from 9 on" + newest + "; partition 9 keeps the others as they are", complete: true},
		{name: "a pod that is to be scaled away does not count", places: "updated|live", says: left + "web-0 is of an older revision",
			changes: changes{func(set *appsv1.StatefulSet) { set.Spec.Replicas = ptr.To(int32(1)) }}},

		{name: "but it is told of", places: "updated|left with another cpu", says: "0 of 2 pods resized; web-0: resizing: app: cpu request 3m→2m", want: "resize web-0",
			changes: changes{func(set *appsv1.StatefulSet) { set.Spec.Replicas = ptr.To(int32(1)) }}},
		{name: "what an edit that was given up has left is resized back", places: "updated|left with another cpu", want: "resize web-0",
			says: "1 of 2 pods resized; web-0: resizing: app: cpu request 3m→2m"},
		{name: "also where the pod is not Ready", places: "left with another cpu, not ready|updated, not ready", want: "resize web-1",
			says: "1 of 2 pods resized; web-1: resizing: app: cpu request 3m→2m; web-0: waiting for the pod to become available"},
		{name: "one after the other", places: "left with another cpu|left with another cpu", want: "resize web-1", says: "0 of 2 pods resized; web-1: resizing: app: cpu request 3m→2m"},
		{name: "not below the partition", places: "updated|left with another cpu", changes: changes{at(1)}, says: "the pods from 1 on" + newest + "; partition 1 keeps the others as they are", complete: true},
		{name: "not while the StatefulSet controller restarts pods", places: "live|left with another cpu", says: left + "web-1 is of an older revision"},
		{name: "nor where nothing can hold it", places: "live|left with another cpu", changes: changes{recreate}, says: left + "web-1 is of an older revision"},
		{name: "where that is impossible, the pod is restarted", places: "updated|left with a limit", want: "delete web-0", says: "1 of 2 pods resized; web-0: restarting: app: the memory limit is removed"},
		{name: "one after the other, too", places: "left with a limit|left with a limit", want: "delete web-1",
			says: "0 of 2 pods resized; web-1: restarting: app: the memory limit is removed; web-0: waits for its restart: app: the memory limit is removed"},
		{name: "not with LiveResize", places: "updated|left with a limit", changes: changes{inForce("LiveResize;")},
			says: "1 of 2 pods resized; web-0: app: the memory limit is removed; left as it is"},
		{name: "not under OnDelete", places: "updated|left with a limit", changes: changes{onDelete},
			says: "1 of 2 pods resized; web-0: restarts when it is deleted: app: the memory limit is removed"},

		{name: "Complete of another revision, and another size", places: "left with another cpu|updated", changes: changes{complete}, want: "resize web-1",
			says: "1 of 2 pods resized; web-1: resizing: app: cpu request 3m→2m"},
		{name: "Complete of a partition that OnDelete has not", places: "live|updated", changes: changes{complete, onDelete}, want: "resize web-1",
			says: "1 of 2 pods resized; web-1: resizing: app: cpu request 1m→2m"},
		{name: "Complete of another partition stays so, whatever pods are lost", places: "missing|updated, not ready", changes: changes{complete},
			says: "all pods" + newest, complete: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := observed(t, tt.places, append(changes{available}, tt.changes...)...)
			p, err := planned(o)
			simulated.Does(t, p, err, does(p), tt.want)
			simulated.Says(t, p, tt.says, tt.complete)
		})
	}
}

// TestNextStepContested: what others set in the middle of a rollout is taken back, until the
// contest over that pod is lost.
func TestNextStepContested(t *testing.T) {
	began := func(status corev1.ConditionStatus, reason string, at time.Time) func(*appsv1.StatefulSet) {
		return func(set *appsv1.StatefulSet) {
			set.Status.Conditions = []appsv1.StatefulSetCondition{{Type: api.ConditionComplete, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(at)}}
		}
	}
	// The clock of an API server may be that much behind the one that said when the rollout began.
	before, after, all := build.Start.Add(29*time.Second), build.Start.Add(time.Minute), held("0", everything)
	for _, tt := range []struct {
		name    string
		changes []func(*appsv1.StatefulSet)
		lost    bool
		want    string
	}{
		{"in the rollout", []func(*appsv1.StatefulSet){all, began(corev1.ConditionFalse, judge.ReasonProgressing, before)}, false, "resize web-1"},
		{"under OnDelete", []func(*appsv1.StatefulSet){onDelete, began(corev1.ConditionFalse, judge.ReasonProgressing, before)}, false, "resize web-1"},
		{"before it", []func(*appsv1.StatefulSet){all, began(corev1.ConditionFalse, judge.ReasonProgressing, after)}, false, "resize web-0"},
		{"before we have looked at it", []func(*appsv1.StatefulSet){all, began(corev1.ConditionFalse, judge.ReasonPending, before)}, false, "resize web-0"},
		{"again and again", []func(*appsv1.StatefulSet){all, began(corev1.ConditionFalse, judge.ReasonProgressing, before)}, true, "resize web-0"},
	} {
		o := observed(t, "updated, resized by others during the rollout|live", tt.changes...)
		for note := o.Notes.Note(o.pods[0].UID); !note.ContestLost() && tt.lost; {
			note.Contests++
		}
		p := must.Get(planned(o))(t)
		must.Equal(t, does(p), tt.want, "%s", tt.name)
	}
	// That it is well with its size has been seen: it does not wait for one that may take long.
	o := observed(t, "updated, resized by others during the rollout|resizing", all, began(corev1.ConditionFalse, judge.ReasonProgressing, before))
	must.Equal(t, does(must.Get(planned(o))(t)), "resize web-1", "beside a pod that is under way")
}

// TestBuiltInStatus: what the status says of a rollout that the StatefulSet controller makes, or that is over. A condition that says
// Complete is believed only of what it was said of.
func TestBuiltInStatus(t *testing.T) {
	type changes = []func(*appsv1.StatefulSet)
	scaled := func(n int32) func(*appsv1.StatefulSet) {
		return func(set *appsv1.StatefulSet) { set.Spec.Replicas = &n }
	}
	at := func(n int32) func(*appsv1.StatefulSet) {
		return func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.Partition = &n }
	}
	available := func(n int32) func(*appsv1.StatefulSet) {
		return func(set *appsv1.StatefulSet) { set.Status.AvailableReplicas = n }
	}
	const all, no = "all pods are of revision web-i1c2m0", corev1.ConditionFalse
	of := func(said string) func(*appsv1.StatefulSet) { return saidOf(corev1.ConditionTrue, said) }
	complete := of("Over;revision web-i1c2m0;")
	for _, tt := range []struct {
		name, places string
		changes      changes
		says         string // the status; not of interest if empty
		rests        bool   // else the pods have to be looked at
	}{
		{"Complete", "updated|updated", changes{complete}, all, true},
		{"a lost pod", "updated|missing", changes{complete}, all, true},
		{"a lost pod before it was Complete", "updated|updated", changes{saidOf(no, ""), available(1)}, "waiting for pods to become available: 2 of 2 pods updated, 1 available", false},
		{"done, and nothing is said", "updated|updated", changes{available(2)}, all, false},
		{"scaled in, and not gone yet", "updated|updated", changes{complete, scaled(1)}, all, true},
		{"Complete of another revision", "updated|updated", changes{of("Over;revision web-i1c1m0;")}, "", false},
		{"Complete of a partition", "updated|live", changes{of("Over;revision web-i1c2m0;1"), at(1)},
			"the pods from 1 on are of revision web-i1c2m0; partition 1 keeps the others as they are", true},
		{"Complete of another partition", "updated|updated", changes{of("Over;revision web-i1c2m0;1")}, "", false},
		{"Complete of a partition that OnDelete has not", "updated|live", changes{of("Over;revision web-i1c2m0;2"), onDelete}, "", false},
		{"Complete of all, and now there is a partition", "updated|updated", changes{complete, at(1)}, "", false},
		{"a partition above all", "live|live", changes{at(9), available(2)}, "the pods from 9 on are of revision web-i1c2m0; partition 9 keeps the others as they are", false},
		{"the StatefulSet controller is at it", "live|updated", changes{saidOf(no, "")}, "left to the StatefulSet controller: 1 of 2 pods updated, 0 available", true},
		{"it is at it above a partition", "live|updated|live", changes{at(1), available(3)}, "left to the StatefulSet controller: 1 of 2 pods updated, 3 available", true},
		{"Complete under OnDelete, with pods of an older revision", "live|updated", changes{complete, onDelete}, "", false},
		{"nobody is at it under OnDelete", "live|updated", changes{saidOf(no, ""), onDelete}, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set := observed(t, tt.places, tt.changes...).set
			u := builtInStatus(set)
			if got := u.Condition; tt.says != "" && (got.Message() != tt.says || got.Complete != strings.Contains(tt.says, " are of ")) {
				t.Errorf("it says %+v, want %q", got, tt.says)
			}
			p, rests := u.AtRest(false, condition(set))
			if silent := p.Condition == (rollout.Condition{}); rests != tt.rests || rests && silent != u.Condition.Complete {
				t.Errorf("at rest: %t, %+v; want %t", rests, p, tt.rests)
			}
		})
	}
}

// TestUnwanted: where the range of the ordinals has moved, the StatefulSet controller deletes the pods that it has left.
func TestUnwanted(t *testing.T) {
	o := observed(t, "updated|updated", startAt5)
	for name, want := range map[string]bool{"web-4": true, "web-5": false, "web-6": false, "web-7": true, "db-4": false} {
		must.Equal(t, o.Unwanted(build.Pod(name, templates[newer]), o.pods), want, "%s: unwanted", name)
	}
}

// TestToCome: a pod that goes or is missing is still to be made, as it was where the partition keeps it back.
func TestToCome(t *testing.T) {
	for _, tt := range []struct {
		places string
		at     int // the partition
		want   []string
	}{
		{"live|live|live", everything, nil},
		{"updated|updated, not ready|live", 1, nil},
		{"terminating|live|live", 1, []string{"2m"}},
		{"missing|live|live", 1, []string{"2m"}},
		{"missing|live|missing", 1, []string{"1m", "2m"}},
		{"missing|live|live", 3, []string{"1m"}},
	} {
		cpu := build.Each(observed(t, tt.places, held("0", tt.at)).toCome(), func(coming rollout.Coming) string {
			return coming.Template.Spec.Containers[0].Resources.Requests.Cpu().String()
		})
		must.EqualLists(t, cpu, tt.want, "%s, partition %d: what pods to come request", tt.places, tt.at)
	}
}

// TestMissingPodsCostLittle: somebody has typed some zeros too many. What is done is the same as for some hundred pods that are missing, and
// costs about as much. How many are missing counts all the same.
func TestMissingPodsCostLittle(t *testing.T) {
	wanted := func(n int32) func(*appsv1.StatefulSet) {
		return func(set *appsv1.StatefulSet) { set.Spec.Replicas = &n }
	}
	for i, of := range [][]func(*appsv1.StatefulSet){
		{held("0", everything)}, {held("0", everything), parallel}, {held("0", everything), parallel, currentIsNewest}, {held("0", 300), parallel}, {held("300", everything)}, {heldOnDelete},
	} {
		for _, place := range []string{"live", "updated", "other image", "infeasible", "missing"} {
			few, many := observed(t, place, append(slices.Clip(of), wanted(rollout.Burst-1))...), observed(t, place, append(slices.Clip(of), wanted(everything))...)
			p := must.Get(planned(many))(t)
			must.Equal(t, does(p), does(must.Get(planned(few))(t)), "case %d, %s: what is done", i, place)
			must.Equal(t, p.Total, everything-many.from(), "case %d, %s: of how many pods", i, place)
			if n := testing.AllocsPerRun(1, func() { _, _ = planned(many); many.Pods(); many.due() }); n > 10_000 {
				t.Errorf("case %d, %s: %v allocations", i, place, n)
			}
		}
	}
}

// TestNewSetIsNotGuarded: no size was before the first one, unless pods of another template are adopted. Those that have been scaled to
// zero since the edit had another one.
func TestNewSetIsNotGuarded(t *testing.T) {
	guarded := func(set *appsv1.StatefulSet) {
		set.Annotations[api.CanaryAnnotation], set.Annotations[api.CanaryDurationAnnotation] = "1", "1h"
	}
	atZero := func(set *appsv1.StatefulSet) { set.Spec.Replicas = ptr.To(int32(0)) }
	for places, tt := range map[string]struct {
		change func(*appsv1.StatefulSet)
		want   string
	}{
		"updated|updated": {currentIsNewest, "release"}, "resized|updated": {currentIsNewest, "made of the former"}, "missing": {atZero, ""},
	} {
		o := observed(t, places, tt.change, held("0", everything), guarded)
		o.VersionSince = o.Now.Add(-time.Minute)
		p, err := planned(o)
		simulated.Does(t, p, err, does(p), tt.want)
	}
}

// TestNewSetSettles: a new set is let go when its status has been quiet: its pods have nothing to wait for, and a write
// that names the version of a set whose pods come up is refused.
func TestNewSetSettles(t *testing.T) {
	available := func(set *appsv1.StatefulSet) { set.Status.AvailableReplicas = int32(replicas(set)) }
	for _, tt := range []struct {
		name, places string
		changes      []func(*appsv1.StatefulSet)
		quiet        time.Duration
		want         time.Duration // after which it is looked at again; 0 if it is let go
	}{
		{name: "pods come up", places: "missing|updated", changes: []func(*appsv1.StatefulSet){currentIsNewest}, quiet: 500 * time.Millisecond, want: 1500 * time.Millisecond},
		{name: "nothing happens any more", places: "missing|updated", changes: []func(*appsv1.StatefulSet){currentIsNewest}, quiet: 2 * time.Second},
		{name: "the last pod has just come", places: "updated|updated", changes: []func(*appsv1.StatefulSet){currentIsNewest, available}, quiet: 50 * time.Millisecond, want: 450 * time.Millisecond},
		{name: "all pods are there", places: "updated|updated", changes: []func(*appsv1.StatefulSet){currentIsNewest, available}, quiet: 500 * time.Millisecond},
		{name: "others write its status all the time", places: "missing|updated", changes: []func(*appsv1.StatefulSet){currentIsNewest, func(set *appsv1.StatefulSet) { set.CreationTimestamp.Time = build.Start.Add(-50 * time.Second) }}},
		{name: "an edit", places: "missing|updated", changes: []func(*appsv1.StatefulSet){currentIsNewest, func(set *appsv1.StatefulSet) { set.Generation = 2 }}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := observed(t, tt.places, append(tt.changes, held("0", everything))...)
			o.VersionSince = o.Now.Add(-tt.quiet)
			p, err := planned(o)
			want := map[bool]string{true: "release"}[tt.want == 0]
			simulated.Does(t, p, err, does(p), want)
			simulated.Looks(t, p, tt.want, want)
		})
	}
}

// FuzzPlan: under LiveResize no plan lets go of a pod that differs only in its size, whatever
// state the pods are in. The StatefulSet controller replaces pods from the partition on whose
// label is not that of the newest revision.
func FuzzPlan(f *testing.F) {
	build.AddSeeds(f)
	f.Fuzz(func(t *testing.T, input []byte) {
		rapid.MakeFuzz(func(r *rapid.T) {
			places := rapid.SliceOfN(rapid.SampledFrom([]string{
				"updated", "updated, terminating", "relabelled", "relabelled long ago", "updated, not ready", "updated, resized by others",
				"updated, resized by others during the rollout", "left with another cpu", "left with another cpu, not ready", "left pending",
				"live, resized by others", "left with a limit", "live", "live, just born", "live, not ready", "resizing", "resized",
				"infeasible", "infeasible, not ready", "limited", "terminating", "missing",
			}), 1, 5).Draw(r, "places")
			all := []func(*appsv1.StatefulSet){startAt5, parallel, two, lagging, currentIsNewest, minReady, says("Restart", "cpu=RestartOnly")}
			drawn := build.Those(all, func(func(*appsv1.StatefulSet)) bool { return rapid.Bool().Draw(r, "changed") })
			changes := append([]func(*appsv1.StatefulSet){inForce("LiveResize;"), held("0", everything)}, drawn...)
			o := observed(t, strings.Join(places, "|"), changes...)
			p := must.Get(planned(o))(t)
			partition := everything
			for _, write := range p.Writes {
				switch w := write.(type) {
				case rollout.DeletePod:
					t.Errorf("%s: the plan deletes %s", places, w.Restart.Member.Name)
				case lowerPartition:
					partition = w.to
				case rollout.Release:
					partition = 0
				}
			}
			for _, pod := range o.pods {
				if place, ours := o.index(pod); ours && place >= partition && label(pod) != revisionOf(newer) && pod.DeletionTimestamp == nil {
					t.Errorf("%s: the plan (%s) lets go of %s", places, does(p), pod.Name)
				}
			}
		})(t, input)
	})
}

// TestRenewedIsSeenFirst: a pod that is down is deleted when the StatefulSet controller has seen of which revision the next one is to be.
func TestRenewedIsSeenFirst(t *testing.T) {
	o := observed(t, "live|live|live, not ready", held("0", everything), currentIsNewest, inForce("Restart;"))
	o.renewed = o.Now.Add(-time.Second)
	p := must.Get(planned(o))(t)
	must.Equal(t, does(p)+" "+p.RequeueAfter.String(), " 9s", "what is done, and when it is looked at again")
	o.renewed = o.Now.Add(-revisions.WatchLag)
	must.Equal(t, does(must.Get(planned(o))(t)), "delete web-0", "what is done then")
}

// TestUnborn: of a pod of 1m that is missing, where 2m are wanted now.
func TestUnborn(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	milli := func(n int64) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(n, resource.DecimalSI)}
	}
	least := func(n int64) corev1.LimitRange {
		return corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Min: milli(n)}}}}
	}
	quota := func(n int64) *corev1.ResourceQuota {
		return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "small"},
			Status: corev1.ResourceQuotaStatus{Hard: milli(n), Used: milli(0)}}
	}
	for name, tt := range map[string]struct {
		waited     time.Duration
		least      int64 // of a LimitRange; 0 if there is none
		quota      int64 // likewise
		node       int64 // the only one's cpu
		from       version
		kind, says string
		remade     bool
	}{
		"a moment":                              {waited: time.Second},
		"too long":                              {waited: neverCameAfter, kind: judge.ReasonAdmissionDenied, says: "no pod has been created for 30s", remade: true},
		"too long, and no node is so large":     {waited: neverCameAfter, node: 1, kind: judge.ReasonNoNodeFits, says: "no pod has been created for 30s; a pod of the new size could not be created either: it needs 2m cpu"},
		"a LimitRange":                          {least: 2, kind: judge.ReasonInvalid, says: "must be at least 2m", remade: true},
		"a LimitRange, and no node is so large": {least: 2, node: 1, kind: judge.ReasonInvalid, says: "must be at least 2m", remade: true},
		"a LimitRange refuses both":             {least: 3, kind: judge.ReasonInvalid, says: "a pod of the new size could not be created either: app: cpu per Container must be at least 3m, and 2m is requested"},
		"a quota has room for neither":          {waited: time.Second, quota: 1, from: version{Image: 1, CPU: 3}, kind: judge.ReasonQuotaExceeded, says: "a pod of the new size could not be created either: quota small has no room for cpu 2m"},
		"a quota has room for the new":          {waited: time.Second, quota: 2, from: version{Image: 1, CPU: 3}, kind: judge.ReasonQuotaExceeded, says: "quota small has no room for cpu 3m", remade: true},
		"a quota has room for the old":          {waited: time.Second, quota: 1},
		"another image":                         {waited: neverCameAfter, from: version{Image: 2, CPU: 1}},
		"it is the newest already":              {waited: neverCameAfter, from: version{Image: 1, CPU: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := tt.from, version{Image: 1, CPU: 2}
			if from == (version{}) {
				from = version{Image: 1, CPU: 1}
			}
			set := webSet(to, 1)
			set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To[int32](everything)
			set.Status.CurrentRevision, set.Status.UpdateRevision = revisionOf(from), revisionOf(to)
			client := fake.NewClientset()
			if tt.quota > 0 {
				client = fake.NewClientset(quota(tt.quota))
			}
			quotas := must.Get(capacity.New(client, capacity.Sizes, now).Quotas(t.Context(), "default"))(t)
			limits := capacity.Limits{}
			if tt.least > 0 {
				limits.Ranges = []corev1.LimitRange{least(tt.least)}
			}
			node := simulated.LargeNode()
			if tt.node > 0 {
				node.Status.Allocatable = milli(tt.node)
			}
			o := observation{
				set: set, revisions: allRevisions, births: births{due: map[int]time.Time{0: now.Add(-tt.waited)}, quotas: quotas, limits: limits},
				Facts: rollout.Facts{Now: now, Places: capacity.NewPlaces([]*corev1.Node{node}, false, limits), Defaults: policy.Standard},
			}
			why, remade := o.unborn(0)
			if why.Kind != tt.kind || !strings.Contains(why.Reason, tt.says) || remade != tt.remade || (why.Reason == "") != (tt.says == "") {
				t.Errorf("%s: %q, remade %t; want %s: …%s…, %t", why.Kind, why.Reason, remade, tt.kind, tt.says, tt.remade)
			}
		})
	}
}

// TestExposedPodsNeedRoom: where the partition is lowered for a pod that is down, the StatefulSet controller may go on to those above it, so
// they are asked room for, too.
func TestExposedPodsNeedRoom(t *testing.T) {
	for places, want := range map[string]string{
		"live|live|other image, not ready":                  "web-0 web-2 web-1",
		"live|left with another cpu|other image, not ready": "web-0 web-2",
	} {
		p := must.Get(planned(observed(t, places, held("0", everything), inForce("Restart;"))))(t)
		must.Equal(t, does(p), "partition 0 for web-0", "%s: what it does", places)
		var names []string
		for _, r := range p.Replaced {
			names = append(names, r.Member.Name)
		}
		must.Equal(t, strings.Join(names, " "), want, "%s: room is asked for the successors of", places)
	}
}
