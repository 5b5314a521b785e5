package measure

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

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

// pod of web-0.
func pod(name string, ready corev1.ConditionStatus) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web-0"}}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	return p
}

const simulatedKubelet = "system:kwok"

func TestFollowInPlace(t *testing.T) {
	events := []auditv1.Event{
		request(0, administrator, "patch", "statefulsets", "", "web-0", 200, nil),
		request(10, controller.User, "patch", "pods", "resize", "web-0-1", 409, nil),
		request(50, controller.User, "patch", "pods", "resize", "web-0-1", 200, pod("web-0-1", corev1.ConditionTrue)),
		request(350, simulatedKubelet, "patch", "pods", "status", "web-0-1", 200, pod("web-0-1", corev1.ConditionTrue)),
		request(370, controller.User, "patch", "pods", "resize", "web-0-0", 403, nil),
		request(382, controller.User, "patch", "pods", "resize", "web-0-0", 200, pod("web-0-0", corev1.ConditionTrue)),
		request(390, controller.User, "create", "events", "", "", 201, nil),
		request(391, controller.User, "create", "events", "", "", 201, nil),
		request(600, simulatedKubelet, "patch", "pods", "status", "web-0-0", 200, pod("web-0-0", corev1.ConditionFalse)),
		request(700, simulatedKubelet, "patch", "pods", "status", "web-0-0", 200, pod("web-0-0", corev1.ConditionTrue)),
		request(800, "system:serviceaccount:kube-system:statefulset-controller", "update", "statefulsets", "status", "web-0", 409, nil),
	}
	got, err := follow(events, InPlace, []string{"web-0-0", "web-0-1"})
	if err != nil {
		t.Fatal(err)
	}
	if got.Conflicts != 1 || got.Refusals != 1 || got.LeastReady != 1 {
		t.Errorf("%d conflicts, %d refusals, at least %d pods Ready; want 1 of each", got.Conflicts, got.Refusals, got.LeastReady)
	}
	if names := slices.Collect(maps.Keys(got.Steps)); !slices.Equal(names, []string{"web-0"}) {
		t.Fatalf("followed %q, want web-0 alone", names)
	}
	s := got.Steps["web-0"]
	if first, ok := s.First(); !ok || first != ms(48) {
		t.Errorf("first request after %s, want 48ms after the answer to the edit", first)
	}
	for what, c := range map[string]struct {
		of   Write
		want int
	}{
		"events":         {Write{User: controller.User, Verb: "create", Resource: "events"}, 2},
		"resizes":        {Write{User: controller.User, Verb: "patch", Resource: "pods/resize"}, 4},
		"of the kubelet": {Write{User: simulatedKubelet, Verb: "patch", Resource: "pods/status"}, 3},
		"by another":     {Write{User: BuiltIn[0], Verb: "update", Resource: "statefulsets/status"}, 1},
	} {
		c.of.Count = c.want
		if !slices.Contains(got.Writes, c.of) {
			t.Errorf("%s: want %d writes, of %+v", what, c.want, got.Writes)
		}
	}
}

func TestFollowBuiltIn(t *testing.T) {
	const controller = "system:serviceaccount:kube-system:statefulset-controller"
	events := []auditv1.Event{
		request(0, administrator, "patch", "statefulsets", "", "web-0", 200, nil),
		request(10, controller, "delete", "pods", "", "web-0-1", 200, nil),
		request(20, controller, "create", "pods", "", "", 201, nil),
		request(30, simulatedKubelet, "patch", "pods", "status", "web-0-1", 200, pod("web-0-1", corev1.ConditionTrue)),
		request(40, controller, "delete", "pods", "", "web-0-0", 409, nil),
		request(50, controller, "delete", "pods", "", "web-0-0", 200, nil),
		request(55, simulatedKubelet, "patch", "pods", "status", "web-0-1", 200, pod("web-0-1", corev1.ConditionFalse)),
		request(60, simulatedKubelet, "patch", "pods", "status", "web-0-0", 200, pod("web-0-0", corev1.ConditionTrue)),
	}
	got, err := follow(events, BuiltIn, []string{"web-0-0", "web-0-1"})
	if err != nil {
		t.Fatal(err)
	}
	if got.Conflicts != 1 || got.Refusals != 0 || got.LeastReady != 0 {
		t.Errorf("%d conflicts, %d refusals, at least %d pods Ready; want 1, 0 and 0", got.Conflicts, got.Refusals, got.LeastReady)
	}
	if _, ok := got.Steps["web-0"].First(); ok {
		t.Error("nobody was asked for a size, but there is a first request")
	}
}
