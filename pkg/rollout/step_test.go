package rollout_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// now is the time of the tests: long after the pods became Ready.
var now = build.Start.Add(24 * time.Hour)

// invalidPod is one that the API server would not let in.
var invalidPod = judge.Refusal{Reason: "a new pod would be refused, too", Kind: judge.ReasonInvalid, Until: now.Add(10 * time.Second)}

// saidFor: nobody has looked, and the kubelet says for how long it has been so.
func saidFor(d time.Duration) func(*judge.Member) {
	return func(m *judge.Member) {
		m.Since, m.Pod.Status.Conditions[len(m.Pod.Status.Conditions)-1].LastTransitionTime = time.Time{}, metav1.NewTime(now.Add(-d))
	}
}

// member makes the place name-index in one of the situations that a place can be in.
func member(t *testing.T, index int, situation string) judge.Member {
	t.Helper()
	older, newer := build.Size(t, "requests: {cpu: 100m}"), build.Size(t, "requests: {cpu: 150m}")
	name := "web-" + string(rune('0'+index))
	m := judge.Member{Place: judge.Place{Name: name, Index: index, Available: true}, Policy: policy.LiveResizeable}
	situation, lost := strings.CutSuffix(situation, ", node lost")
	if rest, is := strings.CutPrefix(situation, "memory "); is { // whose change restarts the container
		situation = rest
		restarts := "containers: [{name: app, image: 'app:1', resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}], resources: {requests: {memory: %s}}}]"
		older, newer = build.Template(t, fmt.Sprintf(restarts, "1Gi")), build.Template(t, fmt.Sprintf(restarts, "2Gi"))
	}
	if rest, is := strings.CutPrefix(situation, "mixed "); is { // more cpu, and a lower limit of memory
		situation = rest
		older, newer = build.Size(t, "requests: {cpu: 100m}, limits: {memory: 2Gi}"), build.Size(t, "requests: {cpu: 150m}, limits: {memory: 1Gi}")
	}
	if rest, is := strings.CutPrefix(situation, "larger "); is { // than it has to be
		situation, older, newer = rest, newer, older
	}
	type (
		pod = []func(*corev1.Pod) // changes to one of the older size
		is  = []func(*judge.Member)
	)
	pending := func(reason, why string) func(*corev1.Pod) {
		return build.Condition(corev1.PodResizePending, reason, why)
	}
	asked, has, other := build.WithSize(newer), build.Resized(newer), build.Size(t, "requests: {cpu: 170m}")
	after := func(d time.Duration) func(*corev1.Pod) { return build.ResizedAt(build.Start.Add(d)) }
	down := func(m *judge.Member) { m.Available = false }
	updated := func(m *judge.Member) { m.Updated = true }
	cure := func(m *judge.Member) { m.Cure = true }
	since := func(ago time.Duration) func(*judge.Member) { return func(m *judge.Member) { m.Since = now.Add(-ago) } }
	proves := func(ago time.Duration) func(*judge.Member) {
		return func(m *judge.Member) { m.Proof.Since = now.Add(-ago) }
	}
	differs := func(m *judge.Member) { m.Differs = "the image changed" }
	barred := func(m *judge.Member) { m.Barred = "the request is above the limit" }
	restartOnly := func(m *judge.Member) { m.Policy, m.Why = policy.RestartOnly, "cpu of app: RestartOnly" }
	runs := func(of *corev1.PodTemplateSpec, change ...func(*corev1.Pod)) func(*judge.Member) {
		return func(m *judge.Member) { m.Pod = build.Pod(name, of, change...) }
	}
	refused := func(r judge.Refusal) func(*judge.Member) { return func(m *judge.Member) { m.Refusal = r } }
	unplaceable := func(r judge.Refusal) func(*judge.Member) { return func(m *judge.Member) { m.Unplaceable = r } }
	label := func(until time.Time) func(*judge.Member) {
		return func(m *judge.Member) {
			m.Relabel = judge.Refusal{Reason: "spec: Forbidden: pod updates may not change it", Kind: judge.ReasonAdmissionDenied, Until: until}
		}
	}
	crashes := func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	}
	gated := func(pod *corev1.Pod) { pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "wait"}} }
	mirror := func(pod *corev1.Pod) { pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }
	editedAgain := func(m *judge.Member) { m.Target = must.Get(resize.For(m.Pod, newer, other))(t) }
	soon, later := now.Add(time.Second), now.Add(time.Minute)
	tooSmall := judge.Refusal{Reason: "node too small", Kind: judge.ReasonInfeasible, Final: true, Until: later}
	quota := judge.Refusal{Reason: "exceeded quota: q", Kind: judge.ReasonQuotaExceeded, Until: now}
	denied := judge.Refusal{Reason: "exceeded quota: q", Kind: judge.ReasonAdmissionDenied, Until: now}
	unsupported := judge.Refusal{Reason: "no support for resize", Kind: judge.ReasonUnsupportedByNode, Since: now.Add(-time.Minute), Until: now}
	oldKubelet := judge.Refusal{Reason: "pod update requires features X", Kind: judge.ReasonUnsupportedByNode, Final: true, Until: later}
	noNode := judge.Refusal{Reason: "no node can hold cpu 100", Kind: judge.ReasonNoNodeFits}
	until := func(r judge.Refusal, at time.Time) judge.Refusal { r.Until = at; return r }
	forLong := func(r judge.Refusal) judge.Refusal { r.Since = now.Add(-10 * time.Minute); return r }
	situations := map[string]struct {
		like string // that is so, too
		pod  pod
		is   is
		bare bool // there is no pod but what is says
	}{
		"updated":                            {bare: true, is: is{updated, runs(newer)}},
		"updated, not available":             {like: "updated", is: is{down}},
		"stale":                              {},
		"stale, in a crash loop":             {pod: pod{build.NotReady, crashes}, is: is{down}},
		"stale, Ready for a moment":          {is: is{down}},
		"stale, not available":               {pod: pod{build.NotReady}, is: is{down}},
		"resizing":                           {pod: pod{asked}},
		"resizing for another edit":          {pod: pod{build.WithSize(other)}},
		"in progress for another edit":       {pod: pod{build.WithSize(other), build.Condition(corev1.PodResizeInProgress, "", "")}},
		"resized":                            {pod: pod{has}},
		"resized, and its label was refused": {pod: pod{has}, is: is{label(soon)}},
		"resized, and its label is to be tried again": {pod: pod{has}, is: is{label(now)}},
		"resized by us, not available":                {pod: pod{has, after(0)}, is: is{down}},
		"resized, to prove itself":                    {pod: pod{has, after(0)}, is: is{proves(4 * time.Second)}},
		"updated, to prove itself":                    {like: "resized, to prove itself", is: is{updated, func(m *judge.Member) { m.Labelled = true }}},
		"to prove itself, edited again":               {like: "resized, to prove itself", is: is{editedAgain}},
		"proved, edited again":                        {like: "to prove itself, edited again", is: is{proves(10 * time.Second)}},
		"to prove itself, edited again, and nobody has looked": {like: "to prove itself, edited again", is: is{func(m *judge.Member) {
			m.Proof.Since, m.Target.Resized = time.Time{}, now.Add(-4*time.Second)
		}}},
		"updated, proved":                              {like: "updated, to prove itself", is: is{proves(10 * time.Second)}},
		"cured, to prove itself":                       {like: "updated, to prove itself", is: is{cure}},
		"updated long ago, and nobody has looked":      {like: "updated, to prove itself", is: is{func(m *judge.Member) { m.Proof.Since = time.Time{} }}},
		"just born, other image":                       {bare: true, is: is{runs(older, build.NotReady), differs, down}},
		"resized, not available":                       {pod: pod{has}, is: is{down}},
		"deferred":                                     {pod: pod{asked, pending(corev1.PodReasonDeferred, "no room")}, is: is{since(time.Minute)}},
		"deferred, not available":                      {like: "deferred", is: is{down, func(m *judge.Member) { m.Pod.Status.Conditions[0].Status = corev1.ConditionFalse }}},
		"infeasible":                                   {pod: pod{asked, pending(corev1.PodReasonInfeasible, "too big")}},
		"infeasible, not available":                    {pod: pod{build.NotReady, asked, pending(corev1.PodReasonInfeasible, "too big")}, is: is{down}},
		"failing":                                      {pod: pod{asked, build.Condition(corev1.PodResizeInProgress, corev1.PodReasonError, "in use")}, is: is{since(time.Minute)}},
		"refused":                                      {is: is{refused(tooSmall)}},
		"refused, to be asked again":                   {is: is{refused(until(tooSmall, now))}},
		"no node fits":                                 {like: "infeasible", is: is{unplaceable(noNode)}},
		"refused, and no node fits":                    {like: "refused", is: is{unplaceable(judge.Refusal{Reason: "it needs 100 cpu; the largest node has 4", Kind: judge.ReasonNoNodeFits})}},
		"restart only":                                 {is: is{restartOnly}},
		"unresizable":                                  {pod: pod{mirror}},
		"no node yet":                                  {pod: pod{build.Unschedulable, build.NotReady}, is: is{down}},
		"no node yet, resized":                         {pod: pod{build.Unschedulable, build.NotReady, asked, after(0)}, is: is{down}},
		"no node yet, updated":                         {like: "no node yet, resized", is: is{updated, func(m *judge.Member) { m.Since = build.Start }}},
		"no node yet, just updated":                    {like: "no node yet, resized", is: is{updated, since(0)}}, // by another clock
		"refused, as a new pod would be":               {is: is{barred, unplaceable(invalidPod)}},
		"refused, and a new pod would not be":          {is: is{barred}},
		"restart only, and a new pod would be refused": {is: is{restartOnly, unplaceable(invalidPod)}},
		"no quota for another":                         {like: "infeasible", is: is{unplaceable(judge.Refusal{Reason: "quota q has no room", Kind: judge.ReasonQuotaExceeded, Until: soon})}},
		"no node yet, born so":                         {pod: pod{build.Unschedulable, build.NotReady, asked}, is: is{updated, down}},
		"no node yet, the first of a new node":         {like: "no node yet, born so", is: is{func(m *judge.Member) { m.First = true }}},
		"gated, updated":                               {pod: pod{build.Unschedulable, build.NotReady, asked, after(0), gated}, is: is{updated, down, func(m *judge.Member) { m.Since = build.Start }}},
		"refused by an old kubelet":                    {is: is{refused(oldKubelet)}},
		"untold":                                       {pod: pod{func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].Resources = nil }}, is: is{refused(unsupported)}},
		"untold for too long":                          {like: "untold", is: is{refused(forLong(unsupported))}},
		"told at last":                                 {is: is{refused(forLong(unsupported))}},
		"just born":                                    {pod: pod{func(pod *corev1.Pod) { pod.Spec.NodeName = "" }, build.NotReady}, is: is{down}},
		"deferred too long":                            {like: "deferred", is: is{since(5 * time.Minute)}},
		"deferred too long, and nobody has looked":     {like: "deferred", is: is{saidFor(6 * time.Minute)}},
		"failing too long, and nobody has looked":      {like: "failing", is: is{saidFor(11 * time.Minute)}},
		"deferred too long, no node fits":              {like: "deferred too long", is: is{unplaceable(noNode)}},
		"failing too long":                             {like: "failing", is: is{since(10 * time.Minute)}},
		"asked as a cure":                              {pod: pod{has, build.NotReady, after(time.Minute)}, is: is{down, cure, since(0)}},
		"not Ready since it was resized":               {pod: pod{has, build.NotReady, after(time.Minute)}, is: is{down, since(10 * time.Second)}},
		"not Ready, and nobody has looked":             {pod: pod{has, build.NotReady, after(time.Minute)}, is: is{down}},
		"no node yet, and nobody has looked":           {like: "no node yet, resized", is: is{updated}},
		"not Ready since a moment ago":                 {like: "not Ready since it was resized", is: is{since(0)}},
		"not Ready since a moment ago, the API server's clock is behind": {pod: pod{has, build.NotReady, after(-time.Hour)}, is: is{down, since(0)}},
		"updated, not Ready since it was resized":                        {like: "not Ready since it was resized", is: is{updated}},
		"completed":                        {pod: pod{func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }}},
		"refused for now":                  {is: is{refused(quota)}},
		"refused, not to be asked yet":     {is: is{refused(until(quota, soon))}},
		"denied, not to be asked yet":      {is: is{refused(until(denied, soon))}},
		"denied, to be asked again":        {is: is{refused(denied)}},
		"other image":                      {bare: true, is: is{runs(older), differs}},
		"missing":                          {bare: true},
		"missing, by a quota":              {bare: true, is: is{refused(until(quota, time.Time{}))}},
		"missing, born with another image": {bare: true, is: is{differs}},
		"terminating":                      {pod: pod{build.Terminating}, is: is{down}},
		"held by a finalizer":              {pod: pod{build.Terminating, func(pod *corev1.Pod) { pod.Finalizers = []string{"example.com/drain"} }}, is: is{down}},
	}
	var play func(situation string)
	play = func(situation string) {
		as, known := situations[situation]
		switch {
		case !known:
			t.Fatalf("no such situation: %s", situation)
		case as.like != "":
			play(as.like)
		case !as.bare:
			runs(older, as.pod...)(&m)
			m.Target = must.Get(resize.For(m.Pod, older, newer))(t)
		}
		for _, is := range as.is {
			is(&m)
		}
	}
	play(situation)
	if lost {
		m.Lost = "its node node is not Ready"
	}
	return m
}

func TestNext(t *testing.T) {
	tests := []struct {
		name        string
		places      string // the highest index first
		nonMembers  string // below them
		limit       int
		unavailable int // the limit, if 0
		passRestart bool
		restarts    rollout.Restarts
		action      policy.Action
		minReady    int32
		pass        bool // pods that wait for room on their nodes
		lost        bool // pods are deleted soon after their resize
		back        bool // they go back
		want        string
		reason      string
		message     string
	}{
		{name: "the highest goes first, and alone", places: "stale|stale|stale", limit: 1, want: "resize 2, hold",
			reason: "Progressing", message: "0 of 3 pods resized; web-2: resizing: app: cpu request 100m→150m"},
		{name: "as many as the limit go at once", places: "updated|updated|stale|stale|stale", limit: 2, want: "resize 2 1, hold"},
		{name: "the next waits while one is being resized", places: "resizing|stale", limit: 1, want: "hold"},
		{name: "a resized one is marked as updated, and the next may go in the same step", places: "resized|stale", limit: 1, want: "resize 0, mark 1, hold"},
		{name: "one that cannot be marked has its size, and holds up no resize", places: "resized, and its label was refused|stale", limit: 1, want: "resize 0, hold",
			reason: "AdmissionDenied", message: "1 of 2 pods resized; web-1: has its size, but cannot be marked as updated: spec: Forbidden: pod updates may not change it; web-0: resizing: app: cpu request 100m→150m"},
		{name: "one that cannot be marked is tried again after a while", places: "updated|resized, and its label was refused", limit: 1, want: "hold, look in 1s"},
		{name: "one that cannot be marked is tried again", places: "updated|resized, and its label is to be tried again", limit: 1, want: "mark 0, hold",
			reason: "AdmissionDenied", message: "2 of 2 pods resized; web-0: has its size, but cannot be marked as updated: spec: Forbidden: pod updates may not change it"},
		{name: "a restart below one that cannot be marked waits for it, and says so", places: "resized, and its label was refused|other image", limit: 1, want: "hold, look in 1s",
			reason: "AdmissionDenied", message: "1 of 2 pods resized; web-1: has its size, but cannot be marked as updated: spec: Forbidden: pod updates may not change it; web-0: waits for web-1, which is kept: the image changed"},
		{name: "a resized one that is not available for minReadySeconds yet holds up the next", places: "resized, not available|stale", limit: 1, want: "mark 1, hold"},
		{name: "an updated one that is not available holds up the next", places: "updated, not available|stale", limit: 1, want: "hold",
			reason: "Progressing", message: "1 of 2 pods resized; web-1: waiting for the pod to become available"},
		{name: "a pod that is not Ready is resized all the same: the size may be the cure", places: "stale, not available|stale", limit: 1, want: "resize 1, hold"},
		{name: "deferred: the next waits", places: "deferred|stale", limit: 1, want: "hold, look in 4m0s",
			reason: "Deferred", message: "0 of 2 pods resized; web-1: deferred on node node: no room"},
		{name: "deferred, where pods have no order: nothing is down, and the next goes", pass: true, places: "deferred|stale|stale", limit: 1, want: "resize 1, hold",
			reason: "Deferred", message: "0 of 3 pods resized; web-2: deferred on node node: no room; web-1: resizing: app: cpu request 100m→150m"},
		{name: "deferred, where pods have no order: one at a time, all are asked", pass: true, places: "deferred|deferred|resizing|stale", limit: 1, want: "hold, look in 4m0s"},
		{name: "deferred, where pods have no order: it proves nothing", pass: true, places: "deferred|stale|stale", limit: 2, want: "resize 1, hold"},
		{name: "deferred, where pods have no order: but not beside others that would go down with it", pass: true, places: "memory deferred|memory stale", limit: 1, want: "hold, look in 4m0s"},
		{name: "deferred, where pods have no order: but not with a size that takes something, which all would have at once", pass: true, places: "mixed deferred|mixed stale", limit: 1, want: "hold, look in 4m0s"},
		{name: "deferred, where pods have no order: but not where the pod is down", pass: true, places: "deferred, not available|stale", limit: 1, want: "hold, look in 4m0s"},
		{name: "deferred, where pods have no order: a restart takes its own share only", pass: true, restarts: rollout.Independent, places: "deferred|infeasible", limit: 1, want: "restart 0, hold"},
		{name: "failing: the next waits", places: "failing|stale", limit: 1, want: "hold",
			reason: "ResizeError", message: "0 of 2 pods resized; web-1: failing on node node: in use"},
		{name: "infeasible: only a restart helps", places: "infeasible|stale", limit: 1, want: "restart 1, hold",
			reason: "Progressing", message: "0 of 2 pods resized; web-1: restarting: infeasible on node node: too big"},
		{name: "refused for good: only a restart helps", places: "refused|stale", limit: 1, want: "restart 1, hold"},
		{name: "refused for now: asked again, and the next waits", places: "refused for now|stale", limit: 1, want: "resize 1, hold",
			reason: "QuotaExceeded", message: "0 of 2 pods resized; web-1: exceeded quota: q"},
		{name: "refused for now: not asked again too soon", places: "refused, not to be asked yet|stale", limit: 1, want: "hold, look in 1s"},
		{name: "refused by admission: the next one waits where they have an order", places: "denied, not to be asked yet|stale", limit: 1, want: "hold, look in 1s"},
		{name: "and does not where they have none", pass: true, places: "denied, not to be asked yet|stale", limit: 1, want: "resize 0, hold", reason: "AdmissionDenied",
			message: "0 of 2 pods resized; web-1: exceeded quota: q; web-0: resizing: app: cpu request 100m→150m"},
		{name: "nor for a quota, which is for all of them: they wait", pass: true, places: "refused, not to be asked yet|stale", limit: 1, want: "hold, look in 1s"},
		{name: "it is asked again within the limits, and named all the time", pass: true, places: "denied, to be asked again|resizing", limit: 1, want: "hold", reason: "AdmissionDenied",
			message: "0 of 2 pods resized; web-1: exceeded quota: q; web-0: waiting for the kubelet: generation 2 is not observed"},
		{name: "many are not asked again and again", pass: true, places: strings.Repeat("denied, not to be asked yet|", 100) + "denied, not to be asked yet|stale", limit: 1, want: "hold, look in 1s"},
		{name: "deferred past its deadline, where nobody has looked: so, too", places: "deferred too long, and nobody has looked|stale", limit: 1, want: "restart 1, hold"},
		{name: "failing past its deadline, where nobody has looked", places: "failing too long, and nobody has looked", limit: 1, want: "restart 0"},
		{name: "deferred past its deadline: restarted", places: "deferred too long|stale", limit: 1, want: "restart 1, hold",
			message: "0 of 2 pods resized; web-1: restarting: deferred on node node: no room, for more than 5m0s"},
		{name: "failing past its deadline: restarted", places: "failing too long", limit: 1, want: "restart 0"},
		{name: "LiveResize: what cannot be is passed over, and the others go on", action: policy.LiveResize, places: "infeasible|deferred too long|unresizable|failing too long|stale", limit: 1,
			want: "resize 0, hold", reason: "Infeasible", message: "0 of 5 pods resized; web-4: infeasible on node node: too big; left as it is; " +
				"web-3: deferred on node node: no room, for more than 5m0s; left as it is; web-2: static pods cannot be resized; left as it is; and 2 more"},
		{name: "LiveResize: a pod without a node is resized beside another one: it has nothing to lose", action: policy.LiveResize, places: "no node yet|stale", limit: 1, want: "resize 1, hold"},
		{name: "a pod without a node needs no restart", places: "no node yet|stale", limit: 1, want: "resize 1, hold"},
		{name: "a pod without a node has the size that it is to start with, and holds up nobody", places: "no node yet, resized|stale", limit: 1, want: "resize 0, mark 1, hold"},
		{name: "what keeps a resized pod from any node is told", places: "no node yet, updated|stale", limit: 1, want: "resize 0, hold",
			reason: "NoNodeFits", message: "1 of 2 pods resized; web-1: no node has room for it at its new size, either: Unschedulable; web-0: resizing: app: cpu request 100m→150m"},
		{name: "to whoever has not looked before, too", places: "no node yet, and nobody has looked|stale", limit: 1, want: "resize 0, hold", reason: "NoNodeFits"},
		{name: "the scheduler has time to look at the new size", places: "no node yet, just updated", limit: 1, want: "hold, look in 10s",
			reason: "Progressing", message: "1 of 1 pods resized; web-0: waiting for a node, at its new size"},
		{name: "a size that is invalid in a new pod, too, is not asked for, and restarts nothing", places: "refused, as a new pod would be|stale", limit: 1, want: "resize 0, hold",
			reason: "Invalid", message: "0 of 2 pods resized; web-1: a new pod would be refused, too; left as it is; web-0: resizing: app: cpu request 100m→150m"},
		{name: "LiveResize: a size that is invalid in a new pod, too", action: policy.LiveResize, places: "refused, as a new pod would be", limit: 1, want: "hold, look in 10s",
			reason: "Invalid", message: "0 of 1 pods resized; web-0: a new pod would be refused, too; left as it is"},
		{name: "RestartOnly: what would be refused is not handed over", places: "restart only, and a new pod would be refused|restart only, and a new pod would be refused", limit: 1, want: "hold, look in 10s", reason: "Invalid"},
		{name: "OnDelete: the pod would not come back", passRestart: true, places: "restart only, and a new pod would be refused", limit: 1, want: "hold, look in 10s",
			reason: "Invalid", message: "0 of 1 pods resized; web-0: a new pod would be refused, too; do not delete it; left as it is"},
		{name: "OnDelete: nor would this one", passRestart: true, places: "refused, as a new pod would be", limit: 1, want: "hold, look in 10s",
			reason: "Invalid", message: "0 of 1 pods resized; web-0: a new pod would be refused, too; do not delete it; left as it is"},
		{name: "a size that only a new pod can have needs a restart", places: "refused, and a new pod would not be|stale", limit: 1, want: "restart 1, hold",
			message: "0 of 2 pods resized; web-1: restarting: the request is above the limit"},
		{name: "no running pod is given up for one that a quota does not let in", places: "no quota for another|stale", limit: 1, want: "resize 0, hold",
			reason: "QuotaExceeded", message: "0 of 2 pods resized; web-1: not restarted, because quota q has no room: infeasible on node node: too big; web-0: resizing: app: cpu request 100m→150m"},
		{name: "a new pod that no node has room for holds up the next", places: "no node yet, born so|stale", limit: 1, want: "hold",
			reason: "Progressing", message: "1 of 2 pods resized; web-1: waiting for a node: Unschedulable"},
		{name: "but not the first one of a new node", places: "no node yet, the first of a new node|stale", limit: 1, want: "resize 0, hold",
			reason: "Progressing", message: "1 of 2 pods resized; web-1: waiting for a node: Unschedulable; web-0: resizing: app: cpu request 100m→150m"},
		{name: "a pod that is gated waits for no room", places: "gated, updated|stale", limit: 1, want: "resize 0, hold", reason: "Progressing",
			message: "1 of 2 pods resized; web-1: waiting for a node: the pod is gated, and is scheduled when its scheduling gates are removed; web-0: resizing: app: cpu request 100m→150m"},
		{name: "a kubelet that is too old: only a restart helps", places: "refused by an old kubelet|stale", limit: 1, want: "restart 1, hold",
			message: "0 of 2 pods resized; web-1: restarting: node node does not support it: pod update requires features X"},
		{name: "LiveResize: a kubelet that is too old", action: policy.LiveResize, places: "refused by an old kubelet|stale", limit: 1, want: "resize 0, hold", reason: "UnsupportedByNode"},
		{name: "a kubelet that does not tell what containers have is waited for, and asked again", places: "untold|stale", limit: 1, want: "resize 1, hold",
			reason: "Progressing", message: "0 of 2 pods resized; web-1: waiting for the kubelet of node node to report the containers' resources"},
		{name: "one that never tells: only a restart helps", places: "untold for too long|stale", limit: 1, want: "restart 1, hold",
			message: "0 of 2 pods resized; web-1: restarting: node node does not support it: no support for resize, for more than 10m0s"},
		{name: "LiveResize: one that never tells", action: policy.LiveResize, places: "untold for too long|stale", limit: 1, want: "resize 0, hold", reason: "UnsupportedByNode"},
		{name: "one that tells at last is asked", places: "told at last|stale", limit: 1, want: "resize 1, hold"},
		{name: "LiveResize: a node that said no is asked again after a while", action: policy.LiveResize, places: "refused, to be asked again|stale", limit: 1, want: "resize 1, hold"},
		{name: "nor does one that a finalizer holds, too, which is named first", places: "held by a finalizer, node lost|stale", limit: 1, want: "hold",
			reason: "Progressing", message: "0 of 2 pods resized; web-1: terminating, held by finalizer example.com/drain"},
		{name: "a pod that is deleted on a lost node does not go by itself", places: "terminating, node lost|stale", limit: 1, want: "hold",
			reason: "NodeLost", message: "0 of 2 pods resized; web-1: its node node is not Ready"},
		{name: "others delete what is resized: what has been asked is waited for", lost: true, places: "updated|resized|stale|stale", limit: 1, want: "mark 2, hold"},
		{name: "others delete what is resized: then the others are restarted", lost: true, places: "updated|stale|stale", limit: 1, want: "restart 1 0",
			reason: "Progressing", message: "1 of 3 pods resized; web-1: restarting: 3 pods were deleted; web-0: waits for its restart: 3 pods were deleted"},
		{name: "others delete what is resized: a size that has been refused is not asked for again", lost: true, places: "refused for now|resizing", limit: 1, want: "restart 1, hold"},
		{name: "others delete what is resized: no node has room for new pods", lost: true, places: "no node fits|stale", limit: 1, want: "hold", reason: "NoNodeFits"},
		{name: "LiveResize: others delete what is resized, and no further pod is asked", lost: true, action: policy.LiveResize, places: "updated|stale|stale", limit: 1, want: "hold",
			reason: "DeletedAfterResize", message: "1 of 3 pods resized; web-1: 3 pods were deleted; left as it is; likewise web-0"},
		{name: "OnDelete: others delete what is resized, and no further pod is asked", lost: true, passRestart: true, places: "updated|stale|stale", limit: 1, want: "",
			reason: "WaitingForDelete", message: "1 of 3 pods resized; web-1: restarts when it is deleted: 3 pods were deleted; likewise web-0"},
		{name: "LiveResize: deferred is waited for until its deadline", action: policy.LiveResize, places: "deferred|stale", limit: 1, want: "hold, look in 4m0s"},
		{name: "Restart: everything is restarted", action: policy.Restart, places: "stale|stale", limit: 1, want: "restart 1 0",
			message: "0 of 2 pods resized; web-1: restarting: the action is Restart; web-0: waits for its restart: the action is Restart"},
		{name: "RestartOnly: restarted, whatever the action", action: policy.LiveResize, places: "restart only|restart only", limit: 1, want: "restart 1 0",
			message: "0 of 2 pods resized; web-1: restarting: cpu of app: RestartOnly; web-0: waits for its restart: cpu of app: RestartOnly"},
		{name: "no running pod is given up for one that no node can hold", places: "no node fits|stale", limit: 1, want: "resize 0, hold",
			reason: "NoNodeFits", message: "0 of 2 pods resized; web-1: not restarted, because no node can hold cpu 100: infeasible on node node: too big; web-0: resizing: app: cpu request 100m→150m"},
		{name: "that its own node is too small, too, is not said again", places: "refused, and no node fits", limit: 1, want: "hold, look in 1m0s",
			reason: "NoNodeFits", message: "0 of 1 pods resized; web-0: infeasible on node node, and not restarted, because it needs 100 cpu; the largest node has 4"},
		{name: "a restart below a pod that is kept waits for it, and holds up nobody", places: "no node fits|infeasible|stale|stale", limit: 1, want: "resize 1, hold",
			reason: "NoNodeFits", message: "0 of 4 pods resized; web-3: not restarted, because no node can hold cpu 100: infeasible on node node: too big; " +
				"web-2: waits for web-3, which is kept: infeasible on node node: too big; web-1: resizing: app: cpu request 100m→150m"},
		{name: "a restart below a pod that is kept waits for it, with a live one between them", places: "no node fits|updated|stale|infeasible|stale", limit: 2, want: "resize 2 0, hold"},
		{name: "LiveResize: a restart below a pod that is left waits for it, and holds up nobody", action: policy.LiveResize, places: "infeasible|other image|stale", limit: 1, want: "resize 0, hold",
			reason: "Infeasible", message: "0 of 3 pods resized; web-2: infeasible on node node: too big; left as it is; " +
				"web-1: waits for web-2, which is kept: the image changed; web-0: resizing: app: cpu request 100m→150m"},
		{name: "LiveResize: a pod that is down counts below one that is left, whatever it is born with", action: policy.LiveResize, places: "infeasible|missing, born with another image|stale", limit: 1, want: "hold"},
		{name: "a pod that is not Ready after its resize holds up the next", places: "not Ready since it was resized|stale", limit: 1, want: "hold, unready",
			reason: "NotReadyAfterResize", message: "0 of 2 pods resized; web-1: not Ready at its new size"},
		{name: "and does so whatever it was before", places: "asked as a cure|stale", limit: 1, want: "hold, unready, look in 10s"},
		{name: "and whatever the clocks say", places: "not Ready since a moment ago, the API server's clock is behind|stale", limit: 1, want: "hold, unready, look in 10s"},
		{name: "that is told after a while only, as a container may restart", places: "not Ready since a moment ago|stale", limit: 1, want: "hold, unready, look in 10s",
			reason: "Progressing", message: "0 of 2 pods resized; web-1: waiting for the pod to be Ready"},
		{name: "where nobody has looked, the time of the resize has to do", places: "not Ready, and nobody has looked|stale", limit: 1, want: "hold, unready",
			reason: "NotReadyAfterResize", message: "0 of 2 pods resized; web-1: not Ready at its new size"},
		{name: "on the way back it has its size from before, and nobody waits for it who loses nothing", back: true, places: "not Ready, and nobody has looked|stale", limit: 1, want: "resize 0, hold, unready",
			reason: "NotReadyAfterResize", message: "0 of 2 pods resized; web-1: not Ready at its size from before; web-0: resizing: app: cpu request 100m→150m"},
		{name: "on the way back, one at a time goes all the same", back: true, places: "not Ready, and nobody has looked|resizing|stale", limit: 1, want: "hold, unready"},
		{name: "on the way back, what restarts a container waits for it", back: true, places: "not Ready, and nobody has looked|memory stale|memory stale, not available", limit: 1, want: "hold, unready"},
		{name: "on the way back, so does everybody if it has been not Ready only since it went back", back: true, places: "not Ready since a moment ago, the API server's clock is behind|stale", limit: 1, want: "hold, unready, look in 10s"},
		{name: "a pod that is not Ready after its resize is told of first", places: "deferred|deferred|deferred|not Ready since it was resized|stale", limit: 5, want: "hold, unready, look in 4m0s",
			reason: "NotReadyAfterResize", message: "0 of 5 pods resized; web-1: not Ready at its new size; web-4: deferred on node node: no room; likewise web-3, web-2"},
		{name: "the rollout is not over while an updated pod is not Ready at its new size", places: "updated|updated, not Ready since it was resized", limit: 1, want: "unready",
			reason: "NotReadyAfterResize", message: "2 of 2 pods resized; web-0: not Ready at its new size"},

		{name: "a restart of a container waits for a pod that is down, wherever it is", places: "memory stale|memory stale|memory stale, not available", limit: 1, want: "resize 0, hold"},
		{name: "a second edit: it waits for a pod that is down by the first", places: "memory stale, not available|memory stale|memory stale", limit: 1, want: "resize 2, hold"},
		{name: "of two pods that are down one restarts its container at a time", places: "memory stale|memory stale, not available|memory stale, not available", limit: 1, want: "resize 1, hold"},
		{name: "a crash loop is cured all the same", places: "memory stale, not available|memory stale|memory stale, in a crash loop", limit: 1, want: "resize 2 0, hold"},
		{name: "and exempts nobody else", places: "stale|stale, in a crash loop", limit: 1, want: "resize 0, hold"},
		{name: "a cure does not wait for a batch, and is none", places: "stale|stale|stale, not available", limit: 3, want: "resize 2 0, hold"},
		{name: "what takes a pod down keeps to maxUnavailable", places: "updated|updated|memory stale|memory stale|memory stale", limit: 3, unavailable: 2, want: "resize 2 1, hold"},
		{name: "with maxUnavailable 0 it is replaced first", places: "memory stale|memory stale, in a crash loop", limit: 1, unavailable: -1, restarts: rollout.AfterResizes, want: "resize 0, restart 1, hold",
			message: "0 of 2 pods resized; web-1: waits for its restart: its resize would restart a container, and maxUnavailable is 0; web-0: resizing: app: memory request 1Gi→2Gi"},
		{name: "LiveResize: with maxUnavailable 0 one at a time goes down", action: policy.LiveResize, places: "updated|updated|updated|memory stale|memory stale", limit: 3, unavailable: -1, restarts: rollout.AfterResizes, want: "resize 1, hold"},
		{name: "a pod that is down below the partition counts", places: "stale|stale", nonMembers: "stale, not available", limit: 1, want: "hold",
			reason: "Progressing", message: "0 of 2 pods resized; web-9: waiting for the pod to become available"},
		{name: "and leaves the rest of the limit", places: "updated|updated|stale|stale", nonMembers: "missing", limit: 2, want: "resize 1, hold"},
		{name: "a smaller size gives room, for which a pod that is missing may wait", places: "missing|larger stale|larger stale", limit: 1, want: "resize 1, hold"},
		{name: "and one that is missing beside the others", places: "larger stale|larger stale", nonMembers: "missing", limit: 1, want: "resize 1, hold"},
		{name: "but a pod that is down does not wait for room", places: "larger updated, not available|larger stale", limit: 1, want: "hold"},
		{name: "and what takes a pod down gives none", places: "missing|memory larger stale", limit: 1, want: "hold"},
		{name: "why a pod is not made is told", places: "stale", nonMembers: "missing, by a quota", limit: 1, want: "hold",
			reason: "QuotaExceeded", message: "0 of 1 pods resized; web-9: waiting for the pod to be created: exceeded quota: q"},
		{name: "OnDelete: a pod that is down until it is deleted does not hold up live ones", passRestart: true, places: "infeasible, not available|stale", limit: 1, want: "resize 0, hold", reason: "WaitingForDelete"},
		{name: "a pod of another template that is down counts, too", places: "other image, node lost|stale", limit: 1, want: "restart 1, hold"},
		{name: "a restart that waits for live ones does not hold them up, though its pod is down", places: "stale|just born, other image", limit: 1, want: "resize 1, hold"},
		{name: "but it does where one more would go down", places: "memory stale|just born, other image", limit: 1, want: "hold"},

		{name: "what an edit that was given up has set going counts until the kubelet has done it, and waits for its turn", places: "stale|resizing for another edit", limit: 1, want: "hold"},
		{name: "it is asked at once where it is its turn", places: "resizing for another edit|stale", limit: 1, want: "resize 1, hold"},
		{name: "or its kubelet is at it, which may last", places: "stale|in progress for another edit", limit: 1, want: "resize 0, hold"},
		{name: "or nobody before it waits", places: "updated|resizing for another edit|stale", limit: 1, want: "resize 1, hold"},
		{name: "where there is no order, it is asked at once", restarts: rollout.AfterResizes, places: "stale|resizing for another edit", limit: 1, want: "resize 0, hold"},
		{name: "but not for the pod itself", places: "stale|updated|resizing for another edit", limit: 2, want: "resize 2 0, hold"},
		{name: "and below the partition, too", places: "stale", nonMembers: "resizing for another edit", limit: 1, want: "hold",
			message: "0 of 1 pods resized; web-9: waiting for the kubelet to resize it"},
		{name: "a pod that is down is not restarted beside one that is being resized", places: "memory resizing|memory stale, not available", limit: 1, want: "hold"},
		{name: "a size that no pod has yet is tried on one", places: "stale|stale|stale|stale", limit: 4, want: "resize 3, hold"},
		{name: "then on two", places: "updated|stale|stale|stale|stale", limit: 4, want: "resize 3 2, hold"},
		{name: "which both have to prove it before the next", places: "updated|resized|resizing|stale|stale|stale", limit: 4, want: "mark 4, hold"},
		{name: "and be available", places: "updated|resized|resized by us, not available|stale|stale|stale", limit: 4, want: "mark 4 3, hold"},
		{name: "then on four", places: "updated|resized|resized|stale|stale|stale|stale|stale", limit: 9, want: "resize 4 3 2 1, mark 6 5, hold"},
		{name: "and one for one, once as many as the limit have proved it", places: "updated|updated|resizing|stale|stale", limit: 2, want: "resize 1, hold"},
		{name: "a pod that is not Ready after its resize ends a batch", places: "updated|not Ready since it was resized|stale|stale|stale", limit: 4, want: "hold, unready"},
		{name: "a cure that did not help ends none, and takes its share", places: "updated|asked as a cure|stale|stale|stale", limit: 4, want: "resize 2 1, hold, unready"},
		{name: "maxSurge is no room for pods that are not Ready", places: "updated|updated|updated|updated|not Ready since it was resized|stale|stale", limit: 4, unavailable: -1, want: "hold, unready"},
		{name: "nor are more asked than maxUnavailable of them allow", places: "updated|updated|updated|updated|not Ready since it was resized|stale|stale", limit: 4, unavailable: 2, want: "resize 1 0, hold, unready"},

		{name: "a pod on a lost node takes its share, and is not asked", places: "stale, node lost|stale", limit: 1, want: "hold",
			reason: "NodeLost", message: "0 of 2 pods resized; web-1: its node node is not Ready"},
		{name: "and no more than that", places: "stale, node lost|updated|stale", limit: 2, want: "resize 0, hold"},
		{name: "nor is an updated one, which counts though it was last seen available", places: "updated, node lost|stale", limit: 1, want: "hold", reason: "NodeLost"},
		{name: "it is not given up for what its kubelet said before", places: "failing too long, node lost", limit: 1, want: "hold"},
		{name: "an updated pod on a lost node keeps nothing from being complete", places: "updated, not Ready since it was resized, node lost", limit: 1, want: "",
			reason: "NodeLost", message: "1 of 1 pods resized; web-0: its node node is not Ready"},
		{name: "a pod that is just being scheduled is waited for", places: "just born|stale", limit: 1, want: "hold",
			message: "0 of 2 pods resized; web-1: waiting for the pod to be scheduled"},
		{name: "what is under way further down counts", places: "stale|resizing|stale", limit: 1, want: "hold"},
		{name: "what has to be restarted further down waits for what is above, not the other way round", places: "stale|deferred too long", limit: 1, want: "resize 1, hold"},
		{name: "no node fits: what is kept further down holds up nobody", places: "stale|updated|deferred too long, no node fits", limit: 1, want: "resize 2, hold"},
		{name: "LiveResize: what is left, and is not available, holds up others, and says so", action: policy.LiveResize, places: "infeasible, not available|stale", limit: 1, want: "hold",
			reason: "Infeasible", message: "0 of 2 pods resized; web-1: infeasible on node node: too big; left as it is; it is not available, so others wait for it"},
		{name: "LiveResize: what is left further down holds up nobody", action: policy.LiveResize, places: "stale|updated|deferred too long|failing too long", limit: 1, want: "resize 3, hold"},
		{name: "LiveResize: what is deferred further down counts until its deadline", action: policy.LiveResize, places: "stale|deferred", limit: 1, want: "hold, look in 4m0s"},
		{name: "a pod further down that is not Ready after its resize counts", places: "stale|not Ready since it was resized", limit: 1, want: "hold, unready"},
		{name: "a pod that is not Ready waits for nobody", places: "infeasible|stale, not available", limit: 1, want: "resize 0, restart 1, hold"},
		{name: "a completed pod is about to be replaced", places: "completed|stale", limit: 1, want: "hold"},
		{name: "restarts side by side go together, up to the first live one", places: "other image|infeasible|stale|other image", limit: 1, want: "restart 3 2, hold"},
		{name: "a restart below a live one waits for it", places: "stale|other image", limit: 1, want: "resize 1, hold"},
		{name: "with nothing to hold, all restarts are free", places: "updated|other image|refused", limit: 1, want: "restart 1 0"},
		{name: "restarts last: they hold up nobody", restarts: rollout.AfterResizes, places: "infeasible|deferred too long|stale|unresizable", limit: 1, want: "resize 1, restart 3 2 0, hold"},
		{name: "restarts last: nothing keeps them back when nothing is live", restarts: rollout.AfterResizes, places: "updated|infeasible|restart only", limit: 1, want: "restart 1 0"},
		{name: "restarts last: no running pod is given up for one that no node can hold", restarts: rollout.AfterResizes, places: "no node fits|infeasible", limit: 1, want: "hold",
			message: "0 of 2 pods resized; web-1: not restarted, because no node can hold cpu 100: infeasible on node node: too big; web-0: waits for web-1, which is kept: infeasible on node node: too big"},
		{name: "minReadySeconds: a resized pod is marked as updated, and has yet to prove its size", minReady: 10, places: "resized, to prove itself|stale", limit: 1, want: "mark 1, hold"},
		{name: "minReadySeconds: the next waits until the size is proved", minReady: 10, places: "updated, to prove itself|stale", limit: 1, want: "hold, look in 6s",
			reason: "Progressing", message: "1 of 2 pods resized; web-1: waiting until it has been Ready for 10s since its resize"},
		{name: "minReadySeconds: and goes then", minReady: 10, places: "updated, proved|stale", limit: 1, want: "resize 0, hold"},
		{name: "minReadySeconds: the hold stays until the last size is proved", minReady: 10, places: "updated, proved|updated, to prove itself", limit: 1, want: "hold, look in 6s",
			message: "2 of 2 pods resized; web-0: waiting until it has been Ready for 10s since its resize"},
		{name: "minReadySeconds: one size has to be proved before two are asked for", minReady: 10, places: "updated, to prove itself|stale|stale", limit: 3, want: "hold, look in 6s"},
		{name: "minReadySeconds: then two may be asked", minReady: 10, places: "updated, proved|stale|stale|stale", limit: 3, want: "resize 2 1, hold"},
		{name: "minReadySeconds: a restart waits for the proof, too", minReady: 10, places: "updated, to prove itself|restart only|stale", limit: 2, want: "hold, look in 6s"},
		{name: "minReadySeconds: whatever was its cure has to prove itself", minReady: 10, places: "cured, to prove itself|stale", limit: 1, want: "hold, look in 6s"},
		{name: "minReadySeconds: a pod that is not Ready waits for nobody's proof", minReady: 10, places: "updated, to prove itself|stale, not available", limit: 1, want: "resize 0, hold"},
		{name: "minReadySeconds: nothing is to be proved on a lost node", minReady: 10, places: "updated, to prove itself, node lost", limit: 1, want: ""},
		{name: "minReadySeconds: where nobody has looked, the time of the resize has to do", minReady: 10, places: "updated long ago, and nobody has looked", limit: 1, want: ""},
		{name: "minReadySeconds: nobody is asked beside a pod that has yet to prove the size of an edit that was given up", minReady: 10, places: "stale|to prove itself, edited again", limit: 1, want: "resize 0, hold"},
		{name: "minReadySeconds: two that have yet to prove it wait for each other, and say so", minReady: 10, places: "to prove itself, edited again|to prove itself, edited again", limit: 1, want: "hold, look in 6s",
			message: "0 of 2 pods resized; web-1: waiting until it has been Ready for 10s since its resize; likewise web-0"},
		{name: "minReadySeconds: so, too, where nobody has looked", minReady: 10, places: "to prove itself, edited again, and nobody has looked|to prove itself, edited again, and nobody has looked", limit: 1, want: "hold, look in 6s",
			message: "0 of 2 pods resized; web-1: waiting until it has been Ready for 10s since its resize; likewise web-0"},
		{name: "minReadySeconds: when it has proved that, another one is asked", minReady: 10, places: "stale|proved, edited again", limit: 1, want: "resize 1, hold"},
		{name: "minReadySeconds: it is said that others have yet to be Ready for so long", minReady: 10, places: "stale, Ready for a moment|stale, Ready for a moment|stale", limit: 1, want: "hold",
			reason: "Progressing", message: "0 of 3 pods resized; web-2: waiting for the pod to become available; likewise web-1"},
		{name: "no minReadySeconds, nothing to prove", places: "updated, to prove itself|stale", limit: 1, want: "resize 0, hold"},
		{name: "everything updated", places: "updated|updated", limit: 1, want: "", message: "2 of 2 pods resized"},
		{name: "a missing pod will be born old and can be resized then", places: "updated|missing", limit: 1, want: "hold"},
		{name: "a missing pod that would be born with another image needs no waiting", places: "missing, born with another image|other image", limit: 1, want: "restart 1 0"},
		{name: "a terminating pod is not resized", places: "terminating|stale", limit: 1, want: "hold"},
		{name: "OnDelete: restarts hold up nobody", places: "other image|stale", limit: 1, passRestart: true, want: "resize 0, hold",
			reason: "WaitingForDelete", message: "0 of 2 pods resized; web-1: restarts when it is deleted: the image changed; web-0: resizing: app: cpu request 100m→150m"},
		{name: "those that wait for the same are named together", places: "other image|other image|other image|other image|other image", limit: 1, passRestart: true, want: "",
			reason: "WaitingForDelete", message: "0 of 5 pods resized; web-4: restarts when it is deleted: the image changed; likewise web-3, web-2, web-1, web-0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			members := membersOf(t, tt.places)
			options := rollout.Options{
				Limit: tt.limit, Restarts: tt.restarts,
				Terms: judge.Terms{
					Unavailable: cmp.Or(tt.unavailable, tt.limit), Strategy: policy.RollingUpdate, Action: tt.action,
					DeferredTimeout: 5 * time.Minute, ErrorTimeout: 10 * time.Minute, Now: now, MinReadySeconds: tt.minReady, PassDeferred: tt.pass,
				},
			}
			options.Back = tt.back
			if tt.lost {
				options.Lost = "3 pods were deleted"
			}
			if tt.unavailable < 0 {
				options.Unavailable = 0
			}
			if tt.nonMembers != "" {
				options.NonMembers = []judge.Member{member(t, 9, tt.nonMembers)}
			}
			if tt.passRestart {
				options.Strategy = policy.OnDelete
			}
			step := rollout.Next(judge.Pods(members, options.Terms), options)
			must.Equal(t, describe(step), tt.want, "the step")
			c := step.Condition()
			if tt.reason != "" && c.Reason != tt.reason {
				t.Errorf("reason %q, want %q", c.Reason, tt.reason)
			}
			if got := c.Message(); tt.message != "" && got != tt.message {
				t.Errorf("message:\n got %s\nwant %s", got, tt.message)
			}
		})
	}
}

// membersOf are the pods of the places, the highest first.
func membersOf(t *testing.T, described string) (members []judge.Member) {
	t.Helper()
	places := strings.Split(described, "|")
	for i, situation := range places {
		members = append(members, member(t, len(places)-1-i, situation))
	}
	return members
}

func describe(s rollout.Step) string {
	var said []string
	restart := build.Each(s.Restart, func(r rollout.Restart) judge.Member { return r.Member })
	for _, part := range []struct {
		verb    string
		members []judge.Member
	}{{"resize", s.Resize}, {"mark", s.MarkUpdated}, {"restart", restart}} {
		if len(part.members) > 0 {
			text := part.verb
			for _, m := range part.members {
				text += " " + strings.TrimPrefix(m.Name, "web-")
			}
			said = append(said, text)
		}
	}
	if s.Hold {
		said = append(said, "hold")
	}
	if s.Unready {
		said = append(said, "unready")
	}
	if s.RequeueAfter > 0 && s.RequeueAfter < 5*time.Minute && len(s.Resize)+len(s.MarkUpdated)+len(s.Restart) == 0 {
		said = append(said, "look in "+s.RequeueAfter.String())
	}
	return strings.Join(said, ", ")
}

// TestAlone: pods are restarted each by itself, as far as the limits let them, and lost ones hold up
// only what takes a pod down.
func TestAlone(t *testing.T) {
	tests := []struct {
		name   string
		places string
		limit  int
		want   string
		says   string

		minReady int32
	}{
		{name: "a restart takes its share", places: "infeasible|stale|updated", limit: 1, want: "restart 2 now"},
		{name: "and leaves the rest", places: "infeasible|stale|updated", limit: 2, want: "restart 2 now, resize 1"},
		{name: "what may not be restarted yet takes none", places: "resizing|infeasible|stale", limit: 1, want: "restart 1"},
		{name: "a restart waits for nobody that is still to be resized", places: "stale|infeasible", limit: 2, want: "resize 1, restart 0 now"},
		{name: "nor for one that is kept", places: "no node fits|infeasible", limit: 1, want: "restart 0 now"},
		{name: "as many at once as may be down", places: "other image|other image|other image", limit: 2, want: "restart 2 now, restart 1 now, restart 0"},
		{name: "fewer, where one is down", places: "updated, not available|other image|other image", limit: 2, want: "restart 1 now, restart 0"},
		{name: "one that is down has its share already", places: "infeasible, not available|stale", limit: 1, want: "restart 1 now"},

		{name: "none beside a pod that has yet to prove the size of an edit that was given up", places: "infeasible|to prove itself, edited again", minReady: 10, limit: 1, want: "restart 1, resize 0"},

		{name: "a lost pod is not waited for", places: "stale, node lost|stale", limit: 1, want: "resize 0", says: "0 of 2 pods resized; web-1: its node node is not Ready; web-0: resizing: app: cpu request 100m→150m"},
		{name: "nor by many", places: "stale, node lost|stale, node lost|updated|updated|stale|stale", limit: 2, want: "resize 1, resize 0"},
		{name: "but what restarts a container does", places: "stale, node lost|memory stale", limit: 1, want: ""},
		{name: "and so does a restart", places: "stale, node lost|infeasible", limit: 1, want: "restart 0"},
		{name: "it proves no size", places: "resized, node lost|stale|stale", limit: 2, want: "resize 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			members := membersOf(t, tt.places)
			options := rollout.Options{
				Limit: tt.limit, Restarts: rollout.Independent,
				Terms: judge.Terms{
					Unavailable: tt.limit, PassLost: true, Strategy: policy.RollingUpdate,
					DeferredTimeout: 5 * time.Minute, ErrorTimeout: 10 * time.Minute, Now: now, MinReadySeconds: tt.minReady,
				},
			}
			step := rollout.Next(judge.Pods(members, options.Terms), options)
			var does []string
			for i := len(members) - 1; i >= 0; i-- {
				name := fmt.Sprintf("web-%d", i)
				for _, m := range step.Resize {
					if m.Name == name {
						does = append(does, fmt.Sprintf("resize %d", i))
					}
				}
				for _, r := range step.Restart {
					if r.Member.Name == name {
						does = append(does, fmt.Sprintf("restart %d%s", i, map[bool]string{true: " now"}[r.Now]))
					}
				}
			}
			must.Equal(t, strings.Join(does, ", "), tt.want, "what it does")
			if got := step.Condition().Message(); tt.says != "" && got != tt.says {
				t.Errorf("says %q, want %q", got, tt.says)
			}
		})
	}
}

// A canary proves its size for as long as is said or, where nothing is, as a new pod has to be Ready, and a minute at least.
func TestCanaryDuration(t *testing.T) {
	for _, tt := range []struct {
		said            time.Duration
		minReadySeconds int32
		want            time.Duration
	}{
		{0, 0, time.Minute},
		{0, 59, time.Minute},
		{0, 90, 90 * time.Second},
		{10 * time.Second, 90, 10 * time.Second},
		{10 * time.Minute, 0, 10 * time.Minute},
	} {
		must.Equal(t, rollout.CanaryDuration(policy.Guard{Duration: tt.said}, tt.minReadySeconds), tt.want, "%s, minReadySeconds %d", tt.said, tt.minReadySeconds)
	}
}

// A canary that others resize again and again proves another size: it has failed. Once its size is proved, such a pod is let be.
func TestContestedCanary(t *testing.T) {
	template := build.Size(t, `requests: {cpu: 100m}`)
	for phase, want := range map[rollout.Phase]int{rollout.PhaseCanary: 1, rollout.PhaseRolling: 0} {
		target := must.Get(resize.For(build.Pod("web-2", template, build.Resized(template)), template, template))(t)
		target.Conceded = true
		guard := &rollout.Guard{Guard: policy.Guard{Canary: ptr.To(intstr.FromInt32(1)), Duration: time.Hour}, Record: rollout.Record{Phase: phase}}
		o := rollout.Options{Limit: 1, Guard: guard, Terms: judge.Terms{Action: policy.LiveResizePreferred, Strategy: policy.RollingUpdate, Now: build.Start.Add(time.Minute)}}
		m := judge.Member{Place: judge.Place{Name: "web-2", Pod: target.Pod(), Available: true, Target: target}, Policy: policy.LiveResizeable}
		step := rollout.Next(judge.Pods([]judge.Member{m}, o.Terms), o)
		must.Equal(t, len(step.Failures), want, "in the phase %s: failures %v", phase, step.Failures)
	}
}

// TestNowhereBesideACanary: a pod that was there at the edit, and that no node has room for, need not wait for the canary. It may be what
// the built-in controller waits for, before it makes the pod that is the canary. One that came later has the size from before.
func TestNowhereBesideACanary(t *testing.T) {
	older, newer := build.Size(t, `requests: {cpu: 100m}`), build.Size(t, `requests: {cpu: 10m}`)
	for after, want := range map[time.Duration]int{0: 1, time.Second: 0} {
		began := metav1.NewTime(build.Start)
		pod := build.Pod("web-0", older, build.NotReady, build.Unschedulable)
		pod.CreationTimestamp = metav1.NewTime(began.Add(after))
		guard := &rollout.Guard{Guard: policy.Guard{Canary: ptr.To(intstr.FromInt32(1)), Duration: time.Hour}, Record: rollout.Record{Phase: rollout.PhaseCanary, Began: began}}
		o := rollout.Options{Limit: 1, Guard: guard, Terms: judge.Terms{Action: policy.LiveResizePreferred, Strategy: policy.RollingUpdate, Now: began.Add(2 * time.Second)}}
		members := []judge.Member{
			{Place: judge.Place{Name: "web-1", Updated: true}}, // it will be made with the size
			{Place: judge.Place{Name: "web-0", Pod: pod, Target: must.Get(resize.For(pod, older, newer))(t)}, Policy: policy.LiveResizeable},
		}
		must.Equal(t, len(rollout.Next(judge.Pods(members, o.Terms), o).Resize), want, "born %v after the edit: pods that are asked", after)
	}
}

// TestSickCanaries: of two canaries that were not Ready, either, one has been so for too long. No third one that is not takes its place.
func TestSickCanaries(t *testing.T) {
	members := []judge.Member{member(t, 2, "asked as a cure"), member(t, 1, "asked as a cure"), member(t, 0, "stale, not available")}
	members[0].Since = now.Add(-time.Minute)
	for _, m := range members {
		m.Pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(build.Start)
	}
	for canaries, want := range map[int32]int{2: 0, 3: 1} {
		settings := policy.Settings{Guard: &policy.Guard{Canary: ptr.To(intstr.FromInt32(canaries))}, NotReadyTimeout: ptr.To(time.Minute)}
		guard := rollout.Facts{Settings: settings, Now: build.Start}.Guard(rollout.Edit{Version: "2", Began: build.Start.Add(-time.Hour)}, 0)
		o := rollout.Options{Limit: 3, Guard: guard, Terms: judge.Terms{Action: policy.LiveResizePreferred, Strategy: policy.RollingUpdate, Now: now}}
		must.Equal(t, len(rollout.Next(judge.Pods(members, o.Terms), o).Resize), want, "canary of %d: pods that are asked", canaries)
	}
}
