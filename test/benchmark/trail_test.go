package main

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func after(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// request is an event of the audit log: of what came at a millisecond and took two.
func request(at int, user, verb, resource, subresource, name string, code int32, pod *corev1.Pod) auditv1.Event {
	event := auditv1.Event{
		Verb:                     verb,
		RequestReceivedTimestamp: metav1.NewMicroTime(after(at)), StageTimestamp: metav1.NewMicroTime(after(at + 2)),
		ObjectRef:      &auditv1.ObjectReference{Resource: resource, Subresource: subresource, Name: name},
		ResponseStatus: &metav1.Status{Code: code},
	}
	event.User.Username = user
	if resource == "statefulsets" {
		event.ObjectRef.APIGroup = "apps"
	}
	if pod != nil {
		raw, err := json.Marshal(pod)
		if err != nil {
			panic(err)
		}
		event.ResponseObject = &runtime.Unknown{Raw: raw}
	}
	return event
}

// pod of web-0 wants the second size; its kubelet tells that it has one of the two.
func pod(name string, has string, ready corev1.ConditionStatus) *corev1.Pod {
	size := func(cpu string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web-0"}, Generation: 2}}
	p.Spec.Containers = []corev1.Container{{Name: "app", Resources: size("2")}}
	now := size(has)
	p.Status.ObservedGeneration = 2
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Resources: &now}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	return p
}

const kubelet = "system:kwok"

func TestFollowInPlace(t *testing.T) {
	events := []auditv1.Event{
		request(0, administrator, "patch", "statefulsets", "", "web-0", 200, nil),
		request(10, controller.User, "patch", "pods", "resize", "web-0-1", 409, nil),
		request(50, controller.User, "patch", "pods", "resize", "web-0-1", 200, pod("web-0-1", "1", corev1.ConditionTrue)),
		request(200, kubelet, "patch", "pods", "status", "web-0-1", 200, pod("web-0-1", "1", corev1.ConditionTrue)), // about something else
		request(350, kubelet, "patch", "pods", "status", "web-0-1", 200, pod("web-0-1", "2", corev1.ConditionTrue)),
		request(360, kubelet, "patch", "pods", "status", "web-0-1", 200, pod("web-0-1", "2", corev1.ConditionTrue)), // again
		request(370, controller.User, "patch", "pods", "resize", "web-0-0", 403, nil),
		request(382, controller.User, "patch", "pods", "resize", "web-0-0", 200, pod("web-0-0", "1", corev1.ConditionTrue)),
		request(390, controller.User, "create", "events", "", "", 201, nil),
		request(391, controller.User, "create", "events", "", "", 201, nil),
		request(600, kubelet, "patch", "pods", "status", "web-0-0", 200, pod("web-0-0", "2", corev1.ConditionFalse)),
		request(700, kubelet, "patch", "pods", "status", "web-0-0", 200, pod("web-0-0", "2", corev1.ConditionTrue)),
		request(800, "system:serviceaccount:kube-system:statefulset-controller", "update", "statefulsets", "status", "web-0", 409, nil),
	}
	got, err := follow(events, inPlace, []string{"web-0-0", "web-0-1"})
	if err != nil {
		t.Fatal(err)
	}
	if got.conflicts != 1 || got.refusals != 1 || got.leastReady != 1 {
		t.Errorf("%d conflicts, %d refusals, at least %d pods Ready; want 1 of each", got.conflicts, got.refusals, got.leastReady)
	}
	if got.short != ms(100) {
		t.Errorf("for %s there were fewer Ready pods, want 100ms", got.short)
	}
	if names := slices.Collect(maps.Keys(got.steps)); !slices.Equal(names, []string{"web-0"}) {
		t.Fatalf("followed %q, want web-0 alone", names)
	}
	s := got.steps["web-0"]
	if first, ok := s.first(); !ok || first != ms(48) {
		t.Errorf("first request after %s, want 48ms after the answer to the edit", first)
	}
	if pauses := s.pauses(1); !slices.Equal(pauses, []time.Duration{ms(30)}) {
		t.Errorf("paused %s, want 30ms", pauses)
	}
	if !slices.Equal(s.kubelets, []time.Duration{ms(300), ms(218)}) {
		t.Errorf("the kubelets took %s, want 300ms and 218ms", s.kubelets)
	}
	if last, ok := s.last(after(650)); !ok || last != ms(48) {
		t.Errorf("complete after %s, want 48ms after the last pod had its size", last)
	}
	r := result{Way: inPlace, Writes: got.writes}
	for what, c := range map[string]struct {
		counts func(write) bool
		want   float64
	}{
		"everything":                  {func(write) bool { return true }, 13},
		"events":                      {isEvent, 2},
		"what the controller wrote":   {r.carries, 6},
		"status of workloads":         {isStatus, 6},
		"the built-in controller's":   {result{Way: builtIn}.carries, 1},
		"what the controller resized": {func(w write) bool { return r.carries(w) && w.Resource == "pods/resize" && w.Verb == "patch" }, 4},
	} {
		if n := r.written(c.counts); n != c.want {
			t.Errorf("%s: %v writes, want %v of %+v", what, n, c.want, got.writes)
		}
	}
}

func TestFollowBuiltIn(t *testing.T) {
	const controller = "system:serviceaccount:kube-system:statefulset-controller"
	events := []auditv1.Event{
		request(0, administrator, "patch", "statefulsets", "", "web-0", 200, nil),
		request(10, controller, "delete", "pods", "", "web-0-1", 200, nil),
		request(20, controller, "create", "pods", "", "", 201, nil),
		request(30, kubelet, "patch", "pods", "status", "web-0-1", 200, pod("web-0-1", "2", corev1.ConditionTrue)),
		request(40, controller, "delete", "pods", "", "web-0-0", 409, nil),
		request(50, controller, "delete", "pods", "", "web-0-0", 200, nil),
		request(55, kubelet, "patch", "pods", "status", "web-0-1", 200, pod("web-0-1", "2", corev1.ConditionFalse)),
		request(60, kubelet, "patch", "pods", "status", "web-0-0", 200, pod("web-0-0", "2", corev1.ConditionTrue)),
	}
	got, err := follow(events, builtIn, []string{"web-0-0", "web-0-1"})
	if err != nil {
		t.Fatal(err)
	}
	if got.conflicts != 1 || got.refusals != 0 || got.leastReady != 0 {
		t.Errorf("%d conflicts, %d refusals, at least %d pods Ready; want 1, 0 and 0", got.conflicts, got.refusals, got.leastReady)
	}
	if got.short != ms(30) {
		t.Errorf("for %s there were fewer Ready pods, want 30ms", got.short)
	}
	if _, ok := got.steps["web-0"].first(); ok {
		t.Error("nobody was asked for a size, but there is a first request")
	}
	if _, ok := got.steps["web-0"].last(after(100)); ok {
		t.Error("nobody was asked for a size, but there is a last one")
	}
}

func TestPauses(t *testing.T) {
	times := func(all ...int) (at []time.Time) {
		for _, ms := range all {
			at = append(at, after(ms))
		}
		return at
	}
	for name, c := range map[string]struct {
		limit int
		steps steps
		want  []time.Duration
	}{
		"one at a time": {
			1, steps{asked: times(0, 310, 625), actuated: times(300, 610, 925)}, []time.Duration{ms(10), ms(15)},
		},
		"slow start waits for whole batches": {
			3, steps{asked: times(0, 310, 311, 640), actuated: times(300, 605, 620, 940)}, []time.Duration{ms(10), ms(11), ms(20)},
		},
		"then each one that is done lets another one go, whichever it is": {
			2, steps{asked: times(0, 310, 311, 615, 625, 905), actuated: times(300, 610, 620, 900, 930, 1200)},
			// The second has proved the size with the first: two may be under way from then on.
			[]time.Duration{ms(10), ms(11), ms(5), ms(5), ms(5)},
		},
		"in any order in the log": {
			1, steps{asked: times(310, 0), actuated: times(610, 300)}, []time.Duration{ms(10)},
		},
		"what has no size yet lets nobody go": {1, steps{asked: times(0, 310), actuated: nil}, nil},
	} {
		if got := c.steps.pauses(c.limit); !slices.Equal(got, c.want) {
			t.Errorf("%s: paused %s, want %s", name, got, c.want)
		}
	}
}

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = ms(100 - i)
	}
	for _, c := range []struct {
		values []time.Duration
		p      float64
		want   time.Duration
	}{
		{hundred, 50, ms(50)}, {hundred, 99, ms(99)}, {hundred[:1], 99, ms(100)}, {hundred[:3], 50, ms(99)}, {hundred[:3], 99, ms(100)}, {nil, 50, 0},
	} {
		if got := percentile(c.values, c.p); got != c.want {
			t.Errorf("%v%% of %d: %s, want %s", c.p, len(c.values), got, c.want)
		}
	}
}
